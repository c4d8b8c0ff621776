"""A pipeline with quarantined records, without Spark: the real commands; the driver and the judge are replaced."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.delta import open_table
from tests.support.held import COLUMNS, NAME, Held, commands, no_spark
from tests.support.staged import QUERY, Stager
from tidegate.core import storage
from tidegate.rework.replay.choose import Selection
from tidegate.rework.replay.command import replay_records
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.spark.driver.order import IngestOrder
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN
from tidegate.state.manifest import BatchManifest, SourceRange, StagedFile, write_manifest
from tidegate.state.topics import OffsetRange, TopicPartition
from tidegate.table.log.state import read_table_state
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.read import walk_quarantine, write_quarantine_rows

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
REPLAY_QUERY = "2f0c7a52-9a1e-4a55-8f5e-000000000002"


def text(id_: object, n: object) -> str:
    return json.dumps({"id": id_, "n": n})


@dataclass
class Quarantined(Held):
    """``too_small``: rows with a smaller ``n`` break the rule ``positive``, for the driver that replays."""

    too_small: int = 0
    copies: int = 1
    """Rows that the transform makes of a record."""
    detail: str = "torn"
    """What is said of malformed records."""
    drives: int = 0
    offset: int = 0

    def bring(
        self, run_id: str, good: Sequence[int], aside: Sequence[tuple[str, str]], *, several: bool = False
    ) -> Any:
        """A run that publishes rows with these ``n``, and quarantines (text, reason)."""
        self.pending = (good, aside, several)
        return self.run(run_id, [])

    def stage(self, *batches: list[dict[str, Any]], run_id: str | None = None) -> None:
        for _ in batches:
            good, aside, several = self.__dict__.pop("pending", ((), (), False))
            manifest = self.make(self.paths, QUERY, self.next_batch, [(text(n, n), n) for n in good], aside, run_id)
            if several:
                taken = manifest.sources["orders"]
                manifest.sources["orders"] = replace(taken, rows=taken.rows - 1, entered=(taken.entered or 0) - 1)
            write_manifest(self.paths.manifest(QUERY, self.next_batch), manifest)
            self.next_batch += 1

    def make(
        self,
        paths: Any,
        query: str,
        batch: int,
        good: Sequence[tuple[str, int]],
        aside: Sequence[tuple[str, str]],
        run_id: str | None,
        places: Sequence[str] | None = None,
    ) -> BatchManifest:
        rows = [{"id": json.loads(raw)["id"], "n": n} for raw, n in good for _ in range(self.copies)]
        manifest = Stager(paths, COLUMNS, [], query_id=query).stage(batch, rows)
        malformed = sum(reason == "malformed" for _, reason in aside)
        rejected = len(aside) - malformed
        begin = self.offset
        self.offset += len(good) + len(aside)
        where = places or [
            json.dumps({"topic": "orders", "partition": 0, "offset": begin + number}) for number in range(len(aside))
        ]
        files = []
        if aside:
            path = paths.attempts(query, batch) / "a1" / "quarantine" / "part-captured.parquet"
            listed = [
                {
                    "pipeline": NAME,
                    "run_id": run_id,
                    "source": "orders",
                    "position": place,
                    "raw": raw,
                    "reason": reason,
                    "detail": self.detail if reason == "malformed" else f"breaks {reason}",
                    "quarantined_at": NOON + timedelta(minutes=self.offset),
                }
                for (raw, reason), place in zip(aside, where, strict=True)
            ]
            count = write_quarantine_rows(path, listed)
            name = str(path.relative_to(paths.state))
            files = [StagedFile(name, count, path.stat().st_size, {}, storage.digest(path))]
        entered = len(good) + rejected
        taken = SourceRange(
            rows=entered + malformed,
            malformed=malformed,
            entered=entered,
            offsets={TopicPartition("orders", 0): OffsetRange(begin, self.offset)},
        )
        return replace(
            manifest,
            run_id=run_id or manifest.run_id,
            sources={"orders": taken},
            rejected=rejected,
            transformed=len(rows) + rejected,
            quarantine_files=files,
            quarantined=len(aside),
        )

    def drive(self, context: RunContext, order: IngestOrder, load: object, submit: object) -> None:
        """Stands for Spark: the texts are parsed as JSON, and held against the rule."""
        self.drives += 1
        side = context.paths
        assert order.of_texts and not context.spec.file_streams
        found = [
            (row[TEXT_COLUMN], row[PLACE_COLUMN])
            for source, links in order.links.items()
            for link in links
            for row in pq.read_table(side.intake(source) / link, partitioning=None).to_pylist()
        ]
        good, aside, places = [], [], []
        for raw, place in found:
            try:
                value = json.loads(raw)
                n = int(value["n"])
            except (ValueError, TypeError):
                aside.append((raw, "malformed"))
                places.append(place)
                continue
            if n < self.too_small:
                aside.append((raw, "positive"))
                places.append(place)
            else:
                good.append((raw, n))
        manifest = self.make(side, REPLAY_QUERY, 0, good, aside, order.run_id, places)
        write_manifest(side.manifest(REPLAY_QUERY, 0), manifest)
        context.facts = gather_facts(side, context.spec)

    def replay(self, run_id: str = "again", edits: dict[str, str] | None = None, **wanted: Any) -> Any:
        return replay_records(self.project, NAME, run_id, Selection(QuarantineFilter(**wanted), edits), submit=no_spark)

    def ids(self) -> dict[str, str]:
        """{text: id} of what is in quarantine."""
        return {found.row["raw"]: found.id for found in walk_quarantine(self.paths.quarantine)}

    def aside(self) -> Counter[str]:
        """The texts in quarantine, which plain readers and Delta readers must see alike."""
        if read_table_state(self.paths.quarantine) is None:
            return Counter()
        plain = self.seen()
        delta = Counter(open_table(self.paths.quarantine).to_pyarrow_table()["raw"].to_pylist())
        assert plain == delta
        return plain

    def seen(self) -> Counter[str]:
        """The texts in quarantine as plain readers see them."""
        files = self.paths.quarantine.glob("[!.]*.parquet")
        return Counter(raw for path in files for raw in pq.read_table(path)["raw"].to_pylist())

    def seen_rows(self) -> Counter[int]:
        """Column n of the table as plain readers see it."""
        files = self.paths.table.glob("[!.]*.parquet")
        return Counter(n for path in files for n in pq.read_table(path)["n"].to_pylist())


@contextmanager
def at_work(made: Quarantined) -> Iterator[None]:
    """The commands, on ``made``."""
    with commands(lambda: made), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.rework.backfill.side_job.run_driver", lambda *a: made.drive(*a))
        patch.setattr("tidegate.rework.backfill.side_job.pin_statics", lambda *a: {})
        yield
