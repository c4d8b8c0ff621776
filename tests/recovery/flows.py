"""Pipelines that replace rows or remember some from one batch to the next, each with an oracle in plain Python.

What is offered is chosen so that the result depends neither on crashes nor on how the files were divided among runs and
batches: no record is ever late, whoever reads it first. What must be in the table follows from all that was offered,
and from the watermark that one query would have that had seen it all in one go.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from tests.support.scene import SUITE, Scene
from tests.support.streaming import FEW_PARTITIONS

_BEGIN = datetime(2026, 1, 1)
_MINUTE = timedelta(minutes=1)
_STEP = timedelta(hours=1)
"""Each offer is an hour later in event time than the one before."""


@dataclass
class Flow(Scene):
    """A scene with a transform. Files get times of their own, a second apart: Spark takes them in that order."""

    spec: ClassVar[str]
    arguments: ClassVar[str]
    transform: ClassVar[str]
    suite: ClassVar[str | None] = SUITE.replace("1000", "1000000")

    @property
    def now(self) -> datetime:
        """The event time at which the newest offer begins."""
        return _BEGIN + self.files * _STEP

    def put(self, folder: str, stem: str, lines: list[str]) -> Path:
        path = super().put(folder, f".{stem}", lines)
        os.utime(path, (1_767_225_600 + self.files,) * 2)
        return path.rename(path.with_name(f"{stem}.csv"))


def _source(name: str, folder: str, schema: str, more: str = "") -> str:
    return (
        f"  {name}: {{type: files, path: data/{folder}, format: csv, schema: '{schema}'{more}, "
        "options: {maxFilesPerTrigger: 2}}\n"
    )


@dataclass
class Totals(Flow):
    """Update mode: a count and a sum by key, and keys that a rule rejects. Most files change most of the keys."""

    spec = (
        "output_mode: update\ntable: {keys: [id]}\nsources:\n" + _source("orders", "inbox", "id STRING, amount INT")
    )  # fmt: skip
    arguments = "orders"
    transform = (
        "    return orders.groupBy('id').agg(F.count('*').alias('n'), F.sum('amount').alias('amount'))\n"
    )  # fmt: skip
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)

    def offer(self, rows: int = 6, *, tag: str = "") -> Path:
        self.files += 1
        stem = f"{tag}{self.files:04d}"
        lines = []
        for number in range(rows):
            key, amount = f"k{(self.files * 5 + number) % 11}", number * 7 + self.files
            count, total = self.totals.get(key, (0, 0))
            self.totals[key] = (count + 1, total + amount)
            lines.append(f"{key},{amount}")
        self.malformed.add(f"m{stem}")
        self.rejected.add(f"r{stem}")
        return self.put("inbox", stem, [*lines, f"m{stem},notanumber", f"r{stem},-5"])

    def wanted(self) -> dict[str, Any]:
        return dict(self.totals)

    def known_as(self, row: dict[str, Any]) -> tuple[str, Any]:
        return row["id"], (row["n"], row["amount"])

    def may_show(self, key: str, value: Any) -> bool:
        """A row may be older than the last offer, but never ahead of it."""
        count, total = self.totals.get(key, (0, 0))
        return 0 < value[0] <= count and 0 <= value[1] <= total


@dataclass
class WholeTotals(Totals):
    """Complete mode: the same table again with each batch. A rule would reject a row with each batch again."""

    spec = "output_mode: complete\nsources:\n" + _source("orders", "inbox", "id STRING, amount INT")
    suite = None

    def wanted(self) -> dict[str, Any]:
        return self.totals | dict.fromkeys(self.rejected, (1, -5))

    def wanted_rejected(self) -> set[str]:
        return set()

    def may_show(self, key: str, value: Any) -> bool:
        return value == (1, -5) if key in self.rejected else super().may_show(key, value)


@dataclass
class OwnTotals(Totals):
    """Update mode, with the count and the sum in a state of the transform's own."""

    transform = (
        "    import pandas as pd\n\n"
        "    def add(key, batches, state):\n"
        "        n, amount = state.get if state.exists else (0, 0)\n"
        "        for batch in batches:\n"
        "            n, amount = n + len(batch), amount + int(batch['amount'].sum())\n"
        "        state.update((n, amount))\n"
        "        yield pd.DataFrame({'id': [key[0]], 'n': [n], 'amount': [amount]})\n\n"
        "    kept = 'n LONG, amount LONG'\n"
        "    groups = orders.groupBy('id')\n"
        "    return groups.applyInPandasWithState(add, f'id STRING, {kept}', kept, 'update', 'NoTimeout')\n"
    )


@dataclass
class Pairs(Flow):
    """A left join of two streams. Of three offers one has something for both, one for the left and one for the right:
    Spark itself does not move the watermark in a run with news of one source."""

    timed: ClassVar[str] = ", event_time: dt, watermark: 33 minutes"
    spec = (
        "sources:\n"
        + _source("shown", "inbox", "id STRING, dt TIMESTAMP", timed)
        + _source("clicked", "clicks", "id STRING, dt TIMESTAMP", timed)
    )
    arguments = "shown, clicked"
    transform = (
        "    shown = shown.select(F.col('id').alias('ad'), F.col('dt').alias('shown_at'))\n"
        "    clicked = clicked.select(F.col('id').alias('clicked_ad'), F.col('dt').alias('clicked_at'))\n"
        "    near = F.expr('ad = clicked_ad AND clicked_at BETWEEN shown_at AND shown_at + INTERVAL 1 HOUR')\n"
        "    return shown.join(clicked, near, 'left')\n"
    )
    suite = None
    shown: dict[str, datetime] = field(default_factory=dict)
    clicked: dict[str, datetime] = field(default_factory=dict)
    withheld: dict[str, dict[str, datetime]] = field(default_factory=lambda: {"shown": {}, "clicked": {}})
    """Records that come with a later offer."""

    def offer(self, rows: int = 6, *, tag: str = "") -> Path:
        self.files += 1
        stem = f"{tag}{self.files:04d}"
        shown = {f"g{stem}-{number}": self.now + 4 * number * _MINUTE for number in range(rows)}
        clicked = {key: moment + 10 * _MINUTE for key, moment in list(shown.items())[::2]}
        # These move the watermark of each side on, however few rows there are.
        self.withheld["shown"] |= shown | {f"g{stem}-lonely": self.now + 50 * _MINUTE}
        self.withheld["clicked"] |= clicked | {f"stray{stem}": self.now + 50 * _MINUTE}
        self.malformed.add(f"m{stem}")
        torn = [f"m{stem},notatime"]
        if self.files % 3 != 0:
            put = self.put("inbox", stem, [_timed(*one) for one in self.withheld["shown"].items()] + torn)
            self.shown |= self.withheld.pop("shown")
            torn = []
        if self.files % 3 != 2:
            put = self.put("clicks", stem, [_timed(*one) for one in self.withheld["clicked"].items()] + torn)
            self.clicked |= self.withheld.pop("clicked")
        self.withheld = {"shown": {}, "clicked": {}} | self.withheld
        return put

    def wanted(self) -> dict[str, Any]:
        watermark = min(max(one.values(), default=_BEGIN) for one in (self.shown, self.clicked)) - 33 * _MINUTE
        pairs: dict[str, Any] = {key: key for key in self.shown if key in self.clicked}
        # Nothing that may still come can match these.
        alone = [key for key, at in self.shown.items() if key not in self.clicked and at + 60 * _MINUTE < watermark]
        return pairs | dict.fromkeys(alone)

    def known_as(self, row: dict[str, Any]) -> tuple[str, Any]:
        return row["ad"], row["clicked_ad"]

    def may_show(self, key: str, value: Any) -> bool:
        return (key, value) in self.wanted().items()


@dataclass
class Windows(Flow):
    """Deduplication and then windows, in append mode; some windows are rejected by a rule."""

    spec = "sources:\n" + _source(
        "events", "inbox", "id STRING, amount INT, dt TIMESTAMP", ", event_time: dt, watermark: 1 hour"
    )
    arguments = "events"
    transform = (
        "    once = events.dropDuplicates(['id', 'dt'])\n"
        "    windows = once.groupBy(F.window('dt', '10 minutes'))\n"
        "    windows = windows.agg(F.count('*').alias('n'), F.sum('amount').alias('amount'))\n"
        "    return windows.select(F.date_format('window.start', 'yyyy-MM-dd HH:mm').alias('start'), 'n', 'amount')\n"
    )
    suite = SUITE.replace("column: id", "column: start")
    events: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    last: str | None = None

    def offer(self, rows: int = 6, *, tag: str = "") -> Path:
        """Good records, one of them twice, and one of the offer before again; a record whose window is rejected."""
        self.files += 1
        stem = f"{tag}{self.files:04d}"
        new = {f"g{stem}-{number}": (number * 7, self.now + 4 * number * _MINUTE) for number in range(rows)}
        keys = [*new, *list(new)[:1], *([self.last] if self.last is not None else [])]
        new[f"r{stem}"] = (-5, self.now + 55 * _MINUTE)
        self.events |= new
        self.last = list(new)[-2] if rows else None
        self.malformed.add(f"m{stem}")
        lines = [_timed(f"{key},{self.events[key][0]}", self.events[key][1]) for key in [*keys, f"r{stem}"]]
        return self.put("inbox", stem, [*lines, f"m{stem},notanumber,2026-01-01T00:00:00Z"])

    def _closed(self) -> dict[str, tuple[int, int]]:
        watermark = max((at for _, at in self.events.values()), default=_BEGIN) - 60 * _MINUTE
        windows = defaultdict(list)
        for amount, at in self.events.values():
            windows[at - (at - _BEGIN) % (10 * _MINUTE)].append(amount)
        return {
            f"{start:%Y-%m-%d %H:%M}": (len(amounts), sum(amounts))
            for start, amounts in windows.items()
            if start + 10 * _MINUTE <= watermark
        }

    def wanted(self) -> dict[str, Any]:
        return {start: value for start, value in self._closed().items() if value[1] >= 0}

    def wanted_rejected(self) -> set[str]:
        return {start for start, value in self._closed().items() if value[1] < 0}

    def rejected_as(self, raw: str) -> str:
        return str(json.loads(raw)["start"])

    def known_as(self, row: dict[str, Any]) -> tuple[str, Any]:
        return row["start"], (row["n"], row["amount"])

    def may_show(self, key: str, value: Any) -> bool:
        return (key, value) in self.wanted().items()


def _timed(key: str, moment: datetime) -> str:
    return f"{key},{moment:%Y-%m-%dT%H:%M:%S}Z"


FLOWS: dict[str, type[Flow]] = {
    "update": Totals,
    "join": Pairs,
    "windows": Windows,
    "complete": WholeTotals,
    "pandas": OwnTotals,
}


def make_flow(root: Path, kind: type[Flow]) -> Flow:
    """A new project with the pipeline, nothing offered yet."""
    flow = kind(root)
    flow.create("lease: {expires_after: 5 seconds}\n", conf=FEW_PARTITIONS)
    (root / "data/clicks").mkdir()
    spec = f"version: 1\nname: orders\nschedule: null\ntransform: transform.py\n{kind.spec}"
    (root / "jobs/orders/pipeline.yaml").write_text(spec)
    head = f"from pyspark.sql import functions as F\n\n\ndef transform({kind.arguments}):\n"
    (root / "jobs/orders/transform.py").write_text(head + kind.transform)
    if kind.suite is not None:
        (root / "expectations/orders.yaml").write_text(kind.suite)
    return flow
