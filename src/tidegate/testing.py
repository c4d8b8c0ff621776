"""Run a pipeline on the rows of a test: the real steps in a temporary folder.

    from tidegate.testing import run_on_rows

    def test_a_late_trade_is_counted():
        first, second = run_on_rows("prices", [{"trades": [{"id": 1, "price": 2.0}]}, {"trades": [...]}])
        assert first.rows == [{"id": 1, "price": 2.0}]
        assert first.report["rows"]["rejected"] == 0

Like Spark's memory sink for a query: each delivery is one run, with transform, state, quarantine rules, gate and table;
its rows are those that a further sink would get. The project is not changed, no further sink is fed, and all runs share
one Spark session, the test's own if it has one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate.core.errors import TidegateError
from tidegate.core.outputs import QuarantinedRecord, RunReport
from tidegate.core.paths import PipelinePaths
from tidegate.runs.steps import run_pipeline
from tidegate.sinks.rows import read_versions
from tidegate.spark import errors as spark_errors
from tidegate.spark.driver.packages import find_packages
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spark.ingest.job import drain_order
from tidegate.spec.environment import PREFIX
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.spec.source_checks import list_columns
from tidegate.table.log.state import read_table_state
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.read import show_quarantine
from tidegate.views.trial import YamlSource, copy_pipeline

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Delivery:
    """One run: the ``rows`` that it published, the records that it ``quarantined``, and its ``report``."""

    rows: list[dict[str, Any]]
    report: RunReport
    quarantined: list[QuarantinedRecord] = field(default_factory=list)


def run_on_rows(
    name: str, deliveries: Sequence[Mapping[str, Rows]], project: Path | str | None = None
) -> list[Delivery]:
    """Run pipeline ``name`` once for each of ``deliveries``: {source: its new rows}, a row being {column: value}.

    Columns that a row leaves out are null. ``project`` is the project's folder, by default found upwards from the
    working folder. Raises TidegateError as ``tidegate run`` would: HeldError when the gate holds a delivery.
    """
    found = load_project(project)
    _session(find_packages(found))
    with tempfile.TemporaryDirectory(prefix="tidegate-test-") as folder, mock.patch.dict(os.environ):
        # Variables that override a project's folders and master: the copy must not write into the real ones.
        for variable in [one for one in os.environ if one.startswith(PREFIX)]:
            del os.environ[variable]
        bench = _Bench(found, name, Path(folder))
        return [bench.deliver(number, rows) for number, rows in enumerate(deliveries)]


class _Bench:
    """A copy of one pipeline whose sources are folders of parquet files."""

    def __init__(self, project: Project, name: str, root: Path) -> None:
        spec = load_pipeline(project, name)
        columns = {source: list_columns(one) for source, one in spec.sources.items()}
        unknown = [source for source, found in columns.items() if found is None]
        if unknown:
            raise spark_errors.NO_SCHEMA(where=f"jobs/{name}/pipeline.yaml", sources=", ".join(unknown))
        self.name = name
        self.ddl = {
            source: ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in found or ())
            for source, found in columns.items()
        }
        copy_pipeline(project, name, root, self._source)
        (root / "jobs" / "tidegate_job.py").write_text("# runs in the test's own process\n")
        settings = {"version": 1, "spark": {"master": "local[2]", "conf": project.spec.spark.conf}}
        (root / "tidegate.yaml").write_text(json.dumps(settings))
        for source in spec.sources:
            (root / "inbox" / source).mkdir(parents=True)
        self.root = root
        self.project = load_project(root)

    def _source(self, source: str, given: YamlSource) -> YamlSource:
        kept: YamlSource = {key: given[key] for key in ("event_time", "watermark", "static") if key in given}
        return {"type": "files", "path": f"inbox/{source}", "format": "parquet", "schema": self.ddl[source], **kept}

    @property
    def paths(self) -> PipelinePaths:
        """The copy's paths."""
        return self.project.paths(self.name)

    def deliver(self, number: int, rows: Mapping[str, Rows]) -> Delivery:
        """Write the rows into the sources and run."""
        foreign = set(rows) - set(self.ddl)
        if foreign:
            raise spark_errors.NO_SUCH_NAME(
                where="run_on_rows",
                place=f"delivery {number}",
                unknown=f"rows for {', '.join(sorted(foreign))}",
                kind="sources",
                known=", ".join(self.ddl),
            )
        for source, new in rows.items():
            if new:
                self._offer(source, number, new)
        run_id = f"delivery-{number}"
        before = read_table_state(self.paths.table)
        report = run_pipeline(self.project, self.name, run_id, submit=self._submit)
        published = read_versions(self.paths.table, 0 if before is None else before.version + 1)
        return Delivery(list(published), report, self._quarantined(run_id))

    def _quarantined(self, run_id: str) -> list[QuarantinedRecord]:
        return list(show_quarantine(self.paths.quarantine, QuarantineFilter(run_id=run_id), sys.maxsize))

    def _offer(self, source: str, number: int, rows: Rows) -> None:
        """Have Spark write a parquet file, so that it has the schema's types, and rename it into the inbox."""
        schema = StructType.fromDDL(self.ddl[source])
        assert isinstance(schema, StructType)
        names = {one.name.lower(): one.name for one in schema}
        for row in rows:
            if foreign := [key for key in row if key.lower() not in names]:
                raise spark_errors.NO_SUCH_NAME(
                    where="run_on_rows",
                    place=f"a row of {source}",
                    unknown=", ".join(foreign),
                    kind="columns",
                    known=", ".join(names.values()),
                )
        values = [[{key.lower(): value for key, value in row.items()}.get(name) for name in names] for row in rows]
        written = self.root / "offered" / f"{source}-{number}"
        _session().createDataFrame(values, schema).coalesce(1).write.parquet(str(written))
        [file] = written.glob("*.parquet")
        file.rename(self.root / "inbox" / source / f"{number:06d}.parquet")

    def _submit(self, plan: SubmitPlan) -> int:
        [order_path] = plan.application_args
        # The driver's events on stdout are not output of the test.
        with _settings(plan.conf), contextlib.redirect_stdout(sys.stderr):
            return drain_order(Path(order_path))


def _session(jars: Sequence[Path] = ()) -> SparkSession:
    """The session of this process; the first call determines its jars."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()


@contextlib.contextmanager
def _settings(conf: Mapping[str, str]) -> Iterator[None]:
    """Apply a run's settings to the session, as far as they can be modified, and restore the session afterwards."""
    settings = _session().conf
    mine = {key: value for key, value in conf.items() if settings.isModifiable(key)}
    before = {key: settings.get(key, None) for key in mine}
    for key, value in mine.items():
        settings.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                settings.unset(key)
            else:
                settings.set(key, old)


__all__ = ["Delivery", "TidegateError", "run_on_rows"]
