"""Run a pipeline on the rows of a test: the real steps in a temporary folder.

    from tidegate.testing import run_on_rows

    def test_a_late_trade_is_counted():
        first, second = run_on_rows("prices", [{"trades": [{"id": 1, "price": 2.0}]}, {"trades": [...]}])
        assert first.rows == [{"id": 1, "price": 2.0}]
        assert first.report["rows"]["rejected"] == 0

Like Spark's memory sink for a query: each delivery is one run, with transform, state, quarantine rules, gate and table;
its rows are those that a further sink would get. Of the suite, only the rules that check rows run, unless the whole
suite is asked for. The project is not changed, no further sink is fed, and all runs share one Spark session, the test's
own if it has one.
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

from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.outputs import QuarantinedRecord, RunReport
from tidegate.core.paths import PipelinePaths
from tidegate.quality.suite import SuiteSpec, load_suite
from tidegate.quality.verdict import SHARE_RULE
from tidegate.runs.decide import decide
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer
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
from tidegate.spec.yaml_file import read_document
from tidegate.table.log.state import read_table_state
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.read import show_quarantine
from tidegate.views.trial import YamlSource, copy_pipeline, name_originals

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Delivery:
    """One run: the ``rows`` that it published, the records that it ``quarantined``, and its ``report``."""

    rows: list[dict[str, Any]]
    report: RunReport
    quarantined: list[QuarantinedRecord] = field(default_factory=list)


class HeldDelivery(HeldError):
    """The gate holds a delivery. ``delivery`` has its report, and in ``rows`` what the gate did not let pass."""

    def __init__(self, held: HeldError, number: int, delivery: Delivery) -> None:
        super().__init__(
            held.code,
            held.message,
            where=f"delivery {number}",
            fix="correct the rows, the transform or the rule; the rows are in `delivery.rows` of this error",
        )
        self.delivery = delivery


def run_on_rows(
    name: str,
    deliveries: Sequence[Mapping[str, Rows]],
    project: Path | str | None = None,
    *,
    whole_suite: bool = False,
) -> list[Delivery]:
    """Run pipeline ``name`` once for each of ``deliveries``: {source: its new rows}, a row being {column: value}.

    Args:
        name: The pipeline.
        deliveries: The input of each run. Columns that a row leaves out are null.
        project: The project's folder, by default found upwards from the working folder.
        whole_suite: Also check the rules on the increment as a whole (numbers of rows, figures, shares), and
            ``max_quarantine_share``. A few rows seldom pass them.

    Returns:
        One value for each delivery.

    Raises:
        HeldDelivery: When the gate holds a delivery.
        TidegateError: As ``tidegate run`` would.
    """
    found = load_project(project)
    _session(find_packages(found))
    with tempfile.TemporaryDirectory(prefix="tidegate-test-") as folder, mock.patch.dict(os.environ):
        # Variables that override a project's folders and master: the copy must not write into the real ones.
        for variable in [one for one in os.environ if one.startswith(PREFIX)]:
            del os.environ[variable]
        bench = _Bench(found, name, Path(folder), whole_suite=whole_suite)
        return [bench.deliver(number, rows) for number, rows in enumerate(deliveries)]


class _Bench:
    """A copy of one pipeline whose sources are folders of parquet files."""

    def __init__(self, project: Project, name: str, root: Path, *, whole_suite: bool) -> None:
        spec, suite = load_pipeline(project, name), load_suite(project, name)
        columns = {source: list_columns(one) for source, one in spec.sources.items()}
        unknown = [source for source, found in columns.items() if found is None]
        if unknown:
            where, why = f"jobs/{name}/pipeline.yaml", "a test has rows, and no files"
            raise spark_errors.SCHEMA_NOT_INFERRED(where=where, name=", ".join(unknown), why=why)
        self.name = name
        self.ddl = {
            source: ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in found or ())
            for source, found in columns.items()
        }
        copy_pipeline(project, name, root, self._source)
        self.whole_suite = whole_suite
        if not whole_suite:
            _keep_rules_on_rows(root, name, suite)
        (root / "jobs" / "tidegate_job.py").write_text("# runs in the test's own process\n")
        settings = {"version": 1, "spark": {"master": "local[2]", "conf": project.spec.spark.conf}}
        (root / "tidegate.yaml").write_text(json.dumps(settings))
        for source in spec.sources:
            (root / "inbox" / source).mkdir(parents=True)
        self.root = root
        self.original = project.root
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
        first = 0 if before is None else before.version + 1
        try:
            report = run_pipeline(self.project, self.name, run_id, submit=self._submit)
        except HeldError as held:
            raise HeldDelivery(held, number, self._release(run_id, first)) from None
        except TidegateError as error:
            raise self._name_originals(error) from None
        return self._collect(run_id, first, report)

    def _release(self, run_id: str, first: int) -> Delivery:
        """Publish what the gate holds, only so that its rows can be read; the report is the one from before."""
        report = load_report(self.paths, run_id)
        assert report is not None, "a run that is held leaves its report"
        held = report.to_json()
        decide(self.project, self.name, run_id, Answer("release", "it is thrown away"))
        return self._collect(run_id, first, held)

    def _collect(self, run_id: str, first: int, report: RunReport) -> Delivery:
        if not self.whole_suite:  # the share is only judged because the default has another limit
            results = [one for one in report["quality"]["results"] if one["rule"] != SHARE_RULE]
            report = {**report, "quality": {**report["quality"], "results": results}}
        quarantined = show_quarantine(self.paths.quarantine, QuarantineFilter(run_id=run_id), sys.maxsize)
        return Delivery(list(read_versions(self.paths.table, first)), report, list(quarantined))

    def _name_originals(self, error: TidegateError) -> TidegateError:
        """The error with the files of the project in the place of their copies; a test has no next run."""
        error.message, error.where, error.fix = (
            name_originals(text or "", self.root, self.original) for text in (error.message, error.where, error.fix)
        )
        error.args, error.next_run = (error.message,), None
        return error

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


def _keep_rules_on_rows(root: Path, name: str, suite: SuiteSpec | None) -> None:
    """Remove from the copy in ``root`` what checks an increment as a whole; no suite is left where all rules do."""
    spec_path = root / "jobs" / name / "pipeline.yaml"
    spec = json.loads(spec_path.read_text(encoding="utf-8"))
    spec["quality"] = {**(spec.get("quality") or {}), "max_quarantine_share": 1}
    spec_path.write_text(json.dumps(spec), encoding="utf-8")
    if suite is None:
        return
    suite_path = root / "expectations" / f"{name}.yaml"
    document = read_document(suite_path, suite.file).data
    pairs = zip(document["expectations"], suite.rules, strict=True)
    kept = [given for given, rule in pairs if rule.checks_rows]
    if kept:
        suite_path.write_text(json.dumps({**document, "expectations": kept}), encoding="utf-8")
    else:
        suite_path.unlink()


def _session(jars: Sequence[Path] = ()) -> SparkSession:
    """The session of this process; the first call determines its jars, and the Python of its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
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


__all__ = ["Delivery", "HeldDelivery", "TidegateError", "run_on_rows"]
