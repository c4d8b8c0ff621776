"""A pipeline on files, run by run in the shared Spark session: the same code as a spark-submit, without its start.

What belongs into the table and into quarantine is told by the test; three readers must agree on it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.readers import read_agreed
from tidegate.delivery.job import main as deliver
from tidegate.driver.order import DeliveryOrder
from tidegate.driver.submit import SubmitPlan
from tidegate.ingest.job import drain_order
from tidegate.project import Project, load_project
from tidegate.run.steps import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
_ONE_SESSION = "spark.sql.streaming.stateStore.providerClass"


def in_session(spark: SparkSession) -> Callable[[SubmitPlan], int]:
    """A ``submit`` that runs the driver here, with the SQL settings of the plan; they are put back afterwards."""

    def submit(plan: SubmitPlan) -> int:
        wanted = {key: value for key, value in plan.conf.items() if key.startswith("spark.sql.")}
        wanted = {key: value for key, value in wanted.items() if spark.conf.isModifiable(key)}
        wanted[_ONE_SESSION] = spark.conf.get(_ONE_SESSION)
        before = {key: spark.conf.get(key, None) for key in wanted}
        try:
            for key, value in wanted.items():
                spark.conf.set(key, value)
            path = Path(plan.application_args[0])
            order = json.loads(path.read_bytes())
            return deliver(DeliveryOrder(**order)) if order.get("kind") == "delivery" else drain_order(path)
        finally:
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)

    return submit


@dataclass
class Streaming:
    """One project with one pipeline."""

    root: Path
    spark: SparkSession
    name: str = "flow"
    runs: int = 0
    files: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def project(self) -> Project:
        """The project as it is now."""
        return load_project(self.root)

    @property
    def state(self) -> Path:
        """The pipeline's state folder."""
        return self.root / "data/state" / self.name

    def write(self, path: str, text: str) -> Path:
        """A file of the project."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

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

    def run(self, run_id: str | None = None) -> dict[str, Any]:
        """One run; its report. Raises what ``tidegate run`` would end with."""
        self.runs += 1
        report = run_pipeline(self.project, self.name, run_id or f"run-{self.runs}", submit=in_session(self.spark))
        self.reports.append(report)
        return report

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, sorted, on which all three readers agree."""
        rows = read_agreed(self.root / "data/warehouse" / self.name, self.spark)
        return sorted((tuple(row[column] for column in columns) for row in rows), key=_sortable)

    def aside(self, reason: str) -> list[dict[str, Any]]:
        """The records in quarantine for a reason, parsed."""
        return sorted((json.loads(text or "null") for text in self.quarantine()[reason]), key=str)

    def quarantine(self) -> dict[str, list[str | None]]:
        """All records in quarantine by reason, as they came."""
        folder = self.root / "data/quarantine" / self.name
        texts: dict[str, list[str | None]] = defaultdict(list)
        for row in read_agreed(folder, self.spark) if folder.exists() else []:
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
    made.write("tidegate.yaml", 'version: 1\nspark: {master: "local[2]"}\n')
    more = "" if transform is None else "transform: transform.py\n"
    made.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\n{more}{spec}")
    if transform is not None:
        made.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{transform}")
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
    return made


def source(name: str, schema: str, **more: Any) -> str:
    """A files source of JSON lines in data/in/<name>, for a spec."""
    keys = {"type": "files", "path": f"data/in/{name}", "format": "json", "schema": schema, **more}
    return f"  {name}: {json.dumps(keys)}\n"
