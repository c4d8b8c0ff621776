"""A pipeline on files, run by run in the shared Spark session: the same code as a spark-submit, without its start.

What belongs into the table and into quarantine is told by the test; three readers must agree on it.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.project import PipelineProject, in_session
from tests.support.readers import read_agreed
from tidegate.runs.recovery.context import Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_PARTITIONS = "spark.sql.shuffle.partitions: 2"
"""Of the state: each has files of its own for every operator and batch, and more than one is what matters."""


@dataclass
class Streaming(PipelineProject):
    """One project with one pipeline."""

    spark: SparkSession
    name: str = field(default="flow", kw_only=True)
    runs: int = 0
    files: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)

    def offer(self, source: str, *rows: Mapping[str, Any]) -> Path:
        """A new file of JSON lines for a source, whole at once."""
        self.files += 1
        folder = self.root / "data/in" / source
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{self.files:04d}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        target = folder / f"{self.files:04d}.json"
        os.rename(hidden, target)
        return target

    def run(self, run_id: str | None = None, *, submit: Submit | None = None) -> dict[str, Any]:
        """One run in the shared session; its report. Raises what ``tidegate run`` would end with."""
        self.runs += 1
        report = super().run(run_id or f"run-{self.runs}", submit=submit or in_session(self.spark))
        self.reports.append(report)
        return report

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, sorted, on which all three readers agree."""
        rows = read_agreed(self.table, self.spark)
        return sorted((tuple(row[column] for column in columns) for row in rows), key=_sortable)

    def aside(self, reason: str) -> list[dict[str, Any]]:
        """The records in quarantine for a reason, parsed."""
        return sorted((json.loads(text or "null") for text in self.quarantined()[reason]), key=str)

    def quarantined(self) -> dict[str, list[str | None]]:
        """All records in quarantine by reason, as they came."""
        texts: dict[str, list[str | None]] = defaultdict(list)
        for row in read_agreed(self.quarantine, self.spark) if self.quarantine.exists() else []:
            texts[row["reason"]].append(row["raw"])
        return texts

    def expect(self, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """The table holds exactly these rows, each once."""
        found = Counter(self.rows(*columns.split()))
        wanted = Counter(rows)
        assert found == wanted, f"missing {wanted - found}, too many {found - wanted}"


def _sortable(row: tuple[Any, ...]) -> list[str]:
    return ["" if value is None else str(value) for value in row]


def make_streaming(root: Path, spark: SparkSession, spec: str, transform: str | None = None) -> Streaming:
    """A project whose pipeline ``flow`` has ``spec`` (without version, name and schedule) and a transform.py."""
    made = Streaming(root, spark)
    made.create(conf=FEW_PARTITIONS)
    more = "" if transform is None else "transform: transform.py\n"
    made.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\n{more}{spec}")
    if transform is not None:
        made.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{transform}")
    return made


def source(name: str, schema: str, **more: Any) -> str:
    """A files source of JSON lines in data/in/<name>, for a spec."""
    keys = {"type": "files", "path": f"data/in/{name}", "format": "json", "schema": schema, **more}
    return f"  {name}: {json.dumps(keys)}\n"
