"""A pipeline with known input, and the oracle: what was offered is in the table or in quarantine, once, intact.

The pipeline reads csv, is partitioned, and has a quarantine rule, so every kind of file tidegate writes comes up. Three
kinds of records are offered, each with its own id: good ones, malformed ones, and ones a rule rejects.
"""

from __future__ import annotations

import copy
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.project import PipelineProject, in_session
from tests.support.readers import read_agreed, read_with_deltalake, read_with_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "orders"

_PIPELINE = """\
version: 1
name: orders
schedule: null
sources:
  orders:
    type: files
    path: data/inbox
    format: csv
    schema: id STRING, amount INT, day DATE
    options: {maxFilesPerTrigger: 2}
table: {partition_by: [day]}
"""

SUITE = """\
name: orders
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: amount, min_value: 0, max_value: 1000}
    severity: critical
    meta: {rule: amount_in_range, on_failure: quarantine}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    severity: critical
    meta: {rule: id_present}
"""


@dataclass
class Scene(PipelineProject):
    """One project on disk, and what was offered to it."""

    good: dict[str, int] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    files: int = 0

    def offer(self, rows: int = 6, *, tag: str = "") -> Path:
        """Add one file of ``rows`` good records, a malformed and a rejected one."""
        self.files += 1
        stem = f"{tag}{self.files:04d}"
        lines = []
        for number in range(rows):
            key = f"g{stem}-{number}"
            self.good[key] = number * 7 % 1000
            lines.append(f"{key},{self.good[key]},2026-01-0{1 + number % 3}")
        self.malformed.add(f"m{stem}")
        self.rejected.add(f"r{stem}")
        lines += [f"m{stem},notanumber,2026-01-01", f"r{stem},-5,2026-01-02"]
        return self.put("inbox", stem, lines)

    def put(self, folder: str, stem: str, lines: list[str]) -> Path:
        """Add a csv file: written, then renamed in."""
        inbox = self.root / "data" / folder
        hidden = inbox / f".{stem}.csv.tmp"
        hidden.write_text("\n".join(lines) + "\n")
        return hidden.rename(inbox / f"{stem}.csv")

    def save(self, target: Path) -> Snapshot:
        """Keep the scene as it is now. Hard links become files of their own, as in a backup."""
        shutil.copytree(self.root, target, symlinks=True)
        return Snapshot(target, copy.deepcopy(self))

    def wanted(self) -> dict[str, Any]:
        """What the table holds when everything that was offered has gone through: a value by key."""
        return dict(self.good)

    def known_as(self, row: dict[str, Any]) -> tuple[str, Any]:
        """Key and value of a row of the table, as :meth:`wanted` has them."""
        return row["id"], row["amount"]

    def may_show(self, key: str, value: Any) -> bool:
        """Whether a reader may see this row at some moment."""
        return key in self.good

    def check_readers_now(self) -> None:
        """At any moment: no reader sees a row twice, a torn file, or a row that was not offered as good."""
        for read in (read_with_duckdb, read_with_deltalake):
            rows = [self.known_as(row) for row in read(self.table)]
            twice = [key for key, count in Counter(key for key, _ in rows).items() if count > 1]
            assert not twice, f"{read.__name__} sees twice: {twice[:5]}"
            foreign = sorted(str(row) for row in rows if not self.may_show(*row))
            assert not foreign, f"{read.__name__} sees rows that never passed: {foreign[:5]}"

    def check_complete(self, spark: SparkSession | None = None) -> None:
        """Everything offered is accounted for, once and intact, through every reader."""
        rows = [self.known_as(row) for row in read_agreed(self.table, spark)]
        assert Counter(key for key, _ in rows) == Counter(dict.fromkeys(self.wanted(), 1))
        assert dict(rows) == self.wanted()
        aside = read_agreed(self.quarantine, spark)
        malformed = Counter(_id_of(row["raw"]) for row in aside if row["reason"] == "malformed")
        rejected = Counter(self.rejected_as(row["raw"]) for row in aside if row["reason"] == "amount_in_range")
        assert malformed == Counter(dict.fromkeys(self.malformed, 1))
        assert rejected == Counter(dict.fromkeys(self.wanted_rejected(), 1))
        assert len(aside) == malformed.total() + rejected.total()

    def wanted_rejected(self) -> set[str]:
        """The rows that a rule has rejected by then."""
        return self.rejected

    def rejected_as(self, raw: str) -> str:
        """The key of a rejected row, as :attr:`rejected` has it."""
        return _id_of(raw)

    def catch_up(self, spark: SparkSession | None = None, run_id: str | None = None) -> None:
        """At most two clean runs, then everything must be there; a third finds nothing.

        With ``run_id`` the first is a retry of that run: between two of its steps the lease waits for it alone.
        """
        submit = None if spark is None else in_session(spark)
        first = self.run(run_id, submit=submit)
        if first["outcome"] != "nothing_new":
            assert first["rows"]["published"] == first["rows"]["staged"] - first["rows"]["superseded"]
        self.run(submit=submit)
        self.check_complete(spark)
        assert self.run(submit=submit)["outcome"] == "nothing_new"


@dataclass(frozen=True)
class Snapshot:
    """A kept scene. It comes back at the place where it was: a checkpoint knows the folder it reads."""

    folder: Path
    scene: Scene

    def restore(self) -> Scene:
        """The scene as it was, whatever has happened there since."""
        shutil.rmtree(self.scene.root, ignore_errors=True)
        shutil.copytree(self.folder, self.scene.root, symlinks=True)
        return copy.deepcopy(self.scene)


def _id_of(raw: str) -> str:
    found = re.search(r"[gmr][a-z]?\d{4}(-\d+)?", raw)
    assert found, f"no id in {raw!r}"
    return found[0]


def make_scene(root: Path) -> Scene:
    """A new project with the pipeline, nothing offered yet."""
    scene = Scene(root)
    scene.create("lease: {expires_after: 5 seconds}\n")
    scene.write("jobs/orders/pipeline.yaml", _PIPELINE)
    scene.write("expectations/orders.yaml", SUITE)
    return scene


def kill_when(
    scene: Scene, process: subprocess.Popen[bytes], appeared: Callable[[], bool], seconds: float = 120
) -> bool:
    """SIGKILL the command as soon as ``appeared()``; False when it ended before that."""
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        if appeared():
            process.send_signal(signal.SIGKILL)
            process.communicate()
            scene.wait_until_gone()
            return True
        time.sleep(0.001)
    process.communicate()
    return False
