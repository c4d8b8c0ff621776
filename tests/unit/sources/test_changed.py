"""Files that changed after they were read: named until a person has acknowledged them; ``on_change: fail``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.inbox import SOURCE, Inbox
from tidegate.cli.commands import app
from tidegate.core.errors import SourceLostError, UsageError
from tidegate.runs.reports.report import load_report
from tidegate.runs.steps import run_pipeline
from tidegate.sources.files.ledger import open_ledger
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.project import load_project
from tidegate.views.acknowledge import acknowledge_changes
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import needs_a_person, project_status


class Bench:
    """A project whose one file was read."""

    def __init__(self, root: Path, on_change: str) -> None:
        self.root = root
        (root / "tidegate.yaml").write_text("version: 1\n")
        (root / "jobs/orders").mkdir(parents=True)
        self.set_policy(on_change)
        (root / "inbox").mkdir()
        self.file = root / "inbox/a.csv"
        self.file.write_text("1\n2\n")
        with self.inbox() as inbox:
            assert inbox.run(0)[1] == [b"1\n2\n"]
        self.runs = 0

    def set_policy(self, on_change: str) -> None:
        (self.root / "jobs/orders/pipeline.yaml").write_text(
            "version: 1\nname: orders\nschedule: null\nsources:\n"
            f"  {SOURCE}: {{type: files, path: inbox, format: csv, schema: id STRING, on_change: {on_change}}}\n"
        )
        self.project = load_project(self.root)
        self.on_change = on_change

    def inbox(self) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def opened() -> Iterator[Inbox]:
            with open_ledger(self.project.paths("orders")) as ledger:
                yield Inbox(self.root, ledger, format="csv", schema="id STRING", on_change=self.on_change)

        return opened()

    def run(self) -> dict[str, Any]:
        """A run, which must find nothing to read."""

        def no_spark(plan: SubmitPlan) -> int:
            raise AssertionError("Spark was started")

        self.runs += 1
        return run_pipeline(self.project, "orders", f"run-{self.runs}", submit=no_spark)

    def acknowledge(self, *paths: str, reason: str = "known") -> dict[str, Any]:
        return acknowledge_changes(self.project, "orders", paths, reason=reason)

    @property
    def row(self) -> dict[str, Any]:
        (row,) = project_status(self.project, "orders")
        return row


@pytest.fixture(params=["report", "reread_tail"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path, request.param)


def test_a_change_stays_in_status_until_it_is_acknowledged(bench: Bench) -> None:
    assert bench.row["changed"] == [] and needs_a_person([bench.row]) == []
    bench.file.write_text("9\n2\n3\n")
    for _ in range(2):  # before a run has seen it, and after
        (change,) = bench.row["changed"]
        assert (change["path"], change["how"], change["unread_bytes"]) == ("inbox/a.csv", "was rewritten", 6)
        assert any("tidegate acknowledge orders" in note for note in bench.row["notes"])
        assert needs_a_person([bench.row]) == ["orders: 1 changed file is not acknowledged"]
        bench.run()
    assert bench.run()["outcome"] == "nothing_new"
    assert bench.acknowledge("inbox/a.csv")["left"] == 0
    assert bench.row["changed"] == [] and needs_a_person([bench.row]) == []
    assert bench.run()["sources"][SOURCE].get("changed") is None
    bench.file.write_text("1\n")
    (change,) = bench.row["changed"]
    assert (change["how"], change["unread_bytes"]) == ("shrank", 2)
    assert bench.run()["sources"][SOURCE]["changed"][0]["was"]["size"] == 6
    bench.file.unlink()
    bench.run()
    assert len(bench.row["changed"]) == 1, "it is still not acknowledged"
    assert len(bench.acknowledge()["acknowledged"]) == 1
    assert bench.row["changed"] == []


def test_bytes_that_were_appended_and_not_read_are_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "report")
    with bench.file.open("a") as handle:
        handle.write("3\n4")
    bench.run()
    (change,) = bench.row["changed"]
    assert (change["how"], change["unread_bytes"]) == ("grew", 3)
    bench.acknowledge()
    with bench.file.open("a") as handle:
        handle.write("4\n")
    assert [one["unread_bytes"] for one in bench.row["changed"]] == [2], "since it was acknowledged"


def test_a_tail_goes_on_behind_what_was_acknowledged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "reread_tail")
    bench.file.write_text("rotated\nhalf of a li")
    bench.run()
    bench.acknowledge()
    with bench.file.open("a") as handle:
        handle.write("ne\n7\n")
    with bench.inbox() as inbox:
        # A line of which nothing was read is read whole, though its beginning was acknowledged not to be.
        assert inbox.run(1)[1] == [b"half of a line\n7\n"]
        inbox.write("a.csv", "8\n", append=True)
        assert inbox.run(2)[1] == [b"8\n"]
    assert bench.row["changed"] == []


def test_fail_stops_the_run_until_it_is_acknowledged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fail")
    with bench.file.open("a") as handle:
        handle.write("3\n")
    (bench.root / "inbox/b.csv").write_text("4\n")
    for _ in range(2):
        with pytest.raises(SourceLostError) as refused:
            bench.run()
        error = refused.value
        assert (error.code, error.exit_code) == ("FILES_CHANGED", 66)
        assert "inbox/a.csv grew (2 bytes not read)" in error.message
        assert "tidegate acknowledge orders" in str(error.fix)
        report = load_report(bench.project.paths("orders"), f"run-{bench.runs}")
        assert report is not None and report.outcome == "failed"
        with open_ledger(bench.project.paths("orders")) as ledger:
            assert ledger.rows(state="linked") == []
    assert plan_pipeline(bench.project, "orders")["summary"] == "the next run would refuse"
    bench.acknowledge()
    assert plan_pipeline(bench.project, "orders")["summary"] == "there is something to do"
    (bench.root / "inbox/b.csv").unlink()
    assert bench.run()["outcome"] == "nothing_new"


def test_the_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "report")
    call = ["--project", str(tmp_path), "acknowledge", "orders"]
    runner = CliRunner()
    done = runner.invoke(app, [*call, "--reason", "x"])
    assert (done.exit_code, done.stdout) == (0, "orders: there is nothing to acknowledge\n")
    with pytest.raises(UsageError, match="NOT_CHANGED") as refused:
        bench.acknowledge("inbox/b.csv")
    assert refused.value.exit_code == 64 and refused.value.fix
    with pytest.raises(UsageError, match="REASON_MISSING"):
        bench.acknowledge(reason="...")
    bench.file.write_text("1\n2\n3\n")
    assert runner.invoke(app, ["--project", str(tmp_path), "status", "--check"]).exit_code == 1
    done = runner.invoke(app, [*call, str(bench.file), "--reason", "sent again as c.csv"])
    assert "inbox/a.csv grew, 2 bytes stay unread" in done.stdout
    assert runner.invoke(app, ["--project", str(tmp_path), "status", "--check"]).exit_code == 0
    with open_ledger(bench.project.paths("orders")) as ledger:
        kept = ledger._db.execute("SELECT path, how, unread, who, reason FROM acknowledged").fetchall()
    assert [(os.fsdecode(one[0]), *one[1:3], one[4]) for one in kept] == [
        ("inbox/a.csv", "grew", 2, "sent again as c.csv")
    ]


def _same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_text("7\n8\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _as_rsync_does(path: Path) -> None:
    beside = path.with_name(".a.csv.x")
    beside.write_text("7\n8\n")
    os.utime(beside, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    beside.rename(path)


@pytest.mark.parametrize("change", [_same_size_and_time, _as_rsync_does])
def test_content_that_changed_behind_its_time_stamp_is_told(tmp_path: Path, change: Any) -> None:
    bench = Bench(tmp_path, "report")
    change(bench.file)
    assert [one["how"] for one in bench.row["changed"]] == ["was rewritten"]


def _touch(path: Path) -> None:
    os.utime(path)


def _chmod(path: Path) -> None:
    path.chmod(0o600)


def _link(path: Path) -> None:
    os.link(path, path.with_name(".another"))


def _copy(path: Path) -> None:
    path.with_name(".a").write_bytes(path.read_bytes())
    path.with_name(".a").rename(path)


@pytest.mark.parametrize("touch", [_touch, _chmod, _link, _copy])
def test_the_same_content_is_no_change(tmp_path: Path, touch: Any) -> None:
    bench = Bench(tmp_path, "fail")
    touch(bench.file)
    assert bench.run()["outcome"] == "nothing_new"
    with bench.inbox() as inbox:
        assert inbox.scan().same == (), "the run has noted its stamps"


def test_our_own_links_are_no_change(bench: Bench) -> None:
    with bench.inbox() as inbox:
        scan = inbox.scan()
        assert (scan.changed, scan.same) == ((), ())
        if bench.on_change == "report":
            assert inbox.ledger.rows()[0].ctime_ns == bench.file.stat().st_ctime_ns


def test_a_reason_that_is_no_unicode_is_put_down_as_far_as_it_is(bench: Bench) -> None:
    bench.file.write_text("9\n2\n3\n")
    assert bench.acknowledge(reason=b"gepr\xfcft".decode("utf-8", "surrogateescape"))["left"] == 0
    assert bench.row["changed"] == []
