"""What people are told, whole, and what they are told to do tried: disagreements of table, state and spec."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tests.support.staged import make_schema
from tidegate.cli.show_repairs import show_repair
from tidegate.cli.show_status import show_status
from tidegate.core.errors import DisagreementError, TidegateError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.decide import decide
from tidegate.runs.reports.verdicts import Answer
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.sources.kafka import brokers, offsets
from tidegate.state.lease import acquire, read_lease
from tidegate.table.schema import extend_schema
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status


class Bench:
    """A pipeline on a topic of 100 records and a folder with one file, both read into a table."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, runs: int = 1) -> None:
        files = "  f: {type: files, path: data/inbox, format: csv, schema: value STRING}\ntransform: transform.sql\n"
        self.project = make_project(root, files)
        self.paths: PipelinePaths = self.project.paths(NAME)
        (self.paths.job / "transform.sql").write_text("SELECT value FROM s UNION ALL SELECT value FROM f")
        (root / "data/inbox").mkdir(parents=True)
        (root / "data/inbox/a.csv").write_text("a\n")
        self.broker = FakeBroker({"t": {0: 0}}, {"t": {0: 100}})
        monkeypatch.setattr(offsets, "Brokers", self.broker)
        monkeypatch.setattr(brokers, "SurveyedBrokers", self.broker)
        self.spark = FakeSpark(self.broker)
        for number in range(runs):
            assert self.run(f"r{number}") == "published"

    def run(self, run_id: str = "next") -> str:
        return str(run_pipeline(self.project, NAME, run_id, submit=self.spark)["outcome"])

    def edit_spec(self, text: str) -> None:
        self.paths.spec.write_text(self.paths.spec.read_text() + text)

    def refused(self) -> TidegateError:
        """The error of a run, which plan and status tell as well; Spark is not started for it."""
        starts = self.spark.starts
        with pytest.raises(TidegateError) as told:
            self.run("refused")
        assert self.spark.starts == starts
        assert told.value.to_dict() in plan_pipeline(self.project, NAME)["errors"]
        for one in (NAME, None):
            assert told.value.to_dict() in project_status(self.project, one)[0]["errors"]
        return told.value

    def rebuild(self) -> None:
        """What ``repair --rebuild`` says that it would do, it does; the next run is to read all that there is."""
        would = repair_pipeline(self.project, NAME, dry_run=True, rebuild=True)["actions"]
        assert repair_pipeline(self.project, NAME, dry_run=False, rebuild=True)["actions"] == would
        plan = plan_pipeline(self.project, NAME)
        assert (plan["summary"], plan["notes"]) == ("there is something to do", [])
        assert (plan["sources"]["s"]["pending_offsets"], plan["sources"]["f"]["files"]) == (100, 1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


REBUILD = (
    "`tidegate repair clicks --rebuild`: a new table from all records still in the sources; the old one is kept as "
    "a backup (`tidegate repair clicks --rebuild --dry-run` shows what that reads)"
)


def test_partition_by_changed(bench: Bench) -> None:
    before = bench.paths.spec.read_text()
    bench.edit_spec("table: {partition_by: [value]}\n")
    error = bench.refused()
    assert str(error) == (
        "PARTITION_BY_CHANGED: the table is partitioned by [], the spec says ['value']\n"
        "  where: jobs/clicks/pipeline.yaml, table.partition_by\n"
        "  next run: fails again until this is fixed; nothing was read or written\n"
        f"  fix: revert the change, or {REBUILD}"
    )
    shown = repair_pipeline(bench.project, NAME, dry_run=True)
    assert (shown["choices"], shown["actions"]) == ([error.fix], [])
    with pytest.raises(DisagreementError, match="PARTITION_BY_CHANGED"):
        repair_pipeline(bench.project, NAME, dry_run=False)
    bench.paths.spec.write_text(before)
    assert bench.run() == "nothing_new"
    bench.edit_spec("table: {partition_by: [value]}\n")
    bench.rebuild()


def test_a_table_that_is_there_before_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, runs=0)
    month = bench.paths.table / "month=1"
    month.mkdir(parents=True)
    (month / "part-0.parquet").write_bytes(b"PAR1")
    error = bench.refused()
    assert str(error) == (
        "FOREIGN_TABLE: the folder of the table holds parquet files that no run of this pipeline wrote, for example "
        f"{month}/part-0.parquet, and no _delta_log: readers of the table would see the rows of these files together "
        "with the new rows\n"
        f"  where: {bench.paths.table}\n"
        "  next run: fails again until this is fixed; nothing was read or written\n"
        f"  fix: move them away (mv {bench.paths.table} {bench.paths.table}.before), or take them over (tidegate "
        f"adopt clicks --table {bench.paths.table}), or give the pipeline another name or the project another "
        "warehouse; then run again"
    )
    with pytest.raises(DisagreementError, match="FOREIGN_TABLE"):
        repair_pipeline(bench.project, NAME, dry_run=False)
    assert error.fix is not None
    subprocess.run(error.fix.partition("(")[2].partition(")")[0], shell=True, check=True)
    assert bench.run() == "published"


def test_the_state_folder_is_gone(bench: Bench) -> None:
    shutil.rmtree(bench.paths.state)
    error = bench.refused()
    assert str(error) == (
        "STATE_BEHIND: the table, at version 0, holds rows, which the state folder does not know: it was deleted, or "
        "an older copy of it was restored\n"
        "  where: pipeline clicks\n"
        "  next run: fails again until this is fixed; nothing was read or written\n"
        f"  fix: restore the state folder from the same time as the table, or {REBUILD}"
    )
    with pytest.raises(DisagreementError) as told:
        repair_pipeline(bench.project, NAME, dry_run=False)
    assert told.value.fix == error.fix
    bench.rebuild()
    assert bench.run() == "published"


def test_a_rebuild_where_nothing_disagrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, monkeypatch, runs=0)
    show_repair(repair_pipeline(bench.project, NAME, dry_run=True, rebuild=True))
    assert capsys.readouterr().out == (
        "clicks: nothing disagrees; a new table was requested\n"
        "  choice: leave the table as it is: `tidegate run clicks` continues with it\n"
        "  choice: `tidegate repair clicks --rebuild`: a new table from all records still in the sources; "
        "the old one is kept as a backup\n"
        f"  would: back up table and quarantine, as hidden folders next to {bench.paths.table}\n"
        "  would: end the query in the logs, and leave its checkpoint where it is, unused\n"
        "  next run: begins a new checkpoint\n"
        '  next run: starts source s at {"t": {"0": 0}}\n'
    )
    show_repair(repair_pipeline(bench.project, NAME, dry_run=False, rebuild=True))
    assert capsys.readouterr().out == (
        "clicks: nothing disagrees; a new table was requested\n"
        f"  did: back up table and quarantine, as hidden folders next to {bench.paths.table}\n"
        "  did: end the query in the logs, and leave its checkpoint where it is, unused\n"
        "  next run: begins a new checkpoint\n"
        '  next run: starts source s at {"t": {"0": 0}}\n'
    )
    assert bench.run() == "published"
    then = repair_pipeline(bench.project, NAME, dry_run=False, rebuild=True)["next_run"]
    assert "reads 1 file that the table's log does not hold" in then
    assert bench.run("again") == "published"


def test_whose_column_it_is(bench: Bench) -> None:
    table, rows = make_schema(at="timestamp_ntz"), make_schema(at="timestamp")
    with pytest.raises(UsageError) as told:
        extend_schema(table, rows, NAME)
    assert str(told.value) == (
        "SCHEMA_UNSUPPORTED: the table itself has columns that tidegate does not write, whatever the new rows have: "
        "column 'at' has type timestamp_ntz (timestamp without time zone: cast it to TIMESTAMP)\n"
        "  where: the log of the table\n"
        "  next run: fails again until this is fixed; nothing was published\n"
        "  fix: cast or rename these columns in the transform; if the table itself has them, move it away and rewrite "
        "its rows with other types, or give the pipeline another name"
    )
    with pytest.raises(UsageError) as told:
        extend_schema(rows, table, NAME)
    assert str(told.value) == (
        "SCHEMA_UNSUPPORTED: the rows cannot be stored in a table: column 'at' has type timestamp_ntz (timestamp "
        "without time zone: cast it to TIMESTAMP)\n"
        "  where: the rows that leave the transform\n"
        "  next run: fails again until this is fixed; nothing was published\n"
        "  fix: cast or rename these columns in the transform; if the table itself has them, move it away and rewrite "
        "its rows with other types, or give the pipeline another name"
    )


def test_each_error_says_where(bench: Bench) -> None:
    with pytest.raises(UsageError) as told:
        extend_schema(make_schema(id="long", at="date"), make_schema(id="long"), NAME)
    assert str(told.value) == (
        "SCHEMA_CHANGE: the rows no longer fit the table: column 'at' of the table is missing in the new rows (keep "
        "it, if need be as CAST(NULL AS DATE) AS at)\n"
        "  where: the rows that leave the transform\n"
        "  next run: fails again until this is fixed; table and checkpoint are unchanged\n"
        "  fix: change the transform as described; or rebuild the table with the columns as they are now, from all "
        "records that runs have read: `tidegate refresh clicks --dry-run` shows them, `tidegate refresh clicks` does "
        "it; a table that refresh refuses (`output_mode: update` without state, lost or adopted records) is made anew "
        "from the records still in the sources: `tidegate repair clicks --rebuild --dry-run`, `tidegate repair clicks "
        "--rebuild`"
    )
    with pytest.raises(UsageError) as told:
        decide(bench.project, NAME, "r9", Answer("release", "looked at it"))
    assert str(told.value) == (
        "NOT_HELD: run r9 of clicks holds no increment: nothing is held under this run id\n"
        "  where: run r9 of pipeline clicks\n"
        "  next run: is not affected; nothing was changed\n"
        "  fix: tidegate status clicks shows what is held"
    )
    with pytest.raises(UsageError) as told:
        decide(bench.project, NAME, "r0", Answer("release", "looked at it"))
    assert told.value.where == "run r0 of pipeline clicks"


def test_a_run_that_was_killed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """``status`` has a line for it before somebody goes on with its work, and after that."""
    pid = os.fork()
    if pid == 0:
        acquire(bench.paths, run_id="killed", command="run", expires_after_seconds=60)
        os._exit(9)
    os.waitpid(pid, 0)
    record = read_lease(bench.paths)
    assert record is not None
    line = (
        f"run killed (run, pid {pid} on {record.holder.host}, since {record.holder.acquired_at}) ended without an "
        "outcome: it was killed, its machine went down, or its state folder could not be written (a full disk); "
    )
    for one in (NAME, None):
        show_status(project_status(bench.project, one))
        assert f"\n  {line}the next run continues what it had begun\n" in capsys.readouterr().out
    assert bench.run() == "nothing_new"
    show_status(project_status(bench.project, NAME))
    told = capsys.readouterr().out
    assert f"\n    note: {line}this run continues what it had begun\n" in told and told.count(line) == 1
