"""A text file whose last line has no line break may be half written: it waits until it has been still for a while."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.inbox import Inbox, make_inbox
from tidegate.runs.steps import run_pipeline
from tidegate.sources.files import scan as files
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.project import Project, load_project
from tidegate.views.outlook import plan_pipeline


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with make_inbox(tmp_path) as made:
        yield made


def names(inbox: Inbox, now: float | None = None) -> tuple[list[str], list[str]]:
    """(what would be taken, what settles)."""
    scan = inbox.scan(now)
    return [entry.path for entry in scan.new], [one["path"] for one in scan.settling]


@pytest.mark.parametrize("name", ["json", "csv", "text"])
def test_it_waits_ten_seconds_and_no_longer(inbox: Inbox, name: str) -> None:
    inbox.keys["format"] = name
    inbox.write("whole.x", "1,Oslo,1\n2,Oslo,2\n")
    path = inbox.write("half.x", "1,Oslo,12")
    changed_at = path.stat().st_ctime
    assert names(inbox, changed_at + 9.9) == (["inbox/whole.x"], ["inbox/half.x"])
    (one,) = inbox.scan(changed_at + 3.0).settling
    assert "no line break" in one["why"] and "changed 3.0 seconds ago" in one["why"] and one["age_seconds"] == 3.0
    assert names(inbox, changed_at + 10.1) == (["inbox/half.x", "inbox/whole.x"], [])
    inbox.write("half.x", "34.5\n", append=True)
    assert names(inbox) == (["inbox/half.x", "inbox/whole.x"], [])


@pytest.mark.parametrize(
    ("text", "options", "waits"),
    [
        ("a\r\n", {}, False),
        ("a;", {"lineSep": ";"}, False),
        ("a\n", {"lineSep": ";"}, True),
        ("a||b||", {"lineSep": "||"}, False),
        ("a||b|", {"lineSep": "||"}, True),
        ("x", {}, True),
        ("\n", {}, False),
    ],
)
def test_what_ends_a_line(inbox: Inbox, text: str, options: dict[str, Any], waits: bool) -> None:
    inbox.keys["options"] = options
    inbox.write("a.json", text)
    assert names(inbox) == (([], ["inbox/a.json"]) if waits else (["inbox/a.json"], []))


@pytest.mark.parametrize("encoding", ["UTF-16", "utf-16le", "UTF-32"])
def test_wide_characters(inbox: Inbox, encoding: str) -> None:
    inbox.keys |= {"format": "csv", "options": {"encoding": encoding}}
    inbox.write("a.csv", "a,b\n".encode(encoding))
    assert names(inbox)[1] == []
    inbox.write("a.csv", "c".encode(encoding)[-4:], append=True)
    assert names(inbox)[1] == ["inbox/a.csv"]


@pytest.mark.parametrize("encoding", ["UTF-16", "utf-16le", "UTF-16BE", "UTF-32", "UTF-32BE"])
@pytest.mark.parametrize("last", ["\u0a00", "\u010a", "\u0a0d", "\n"])
def test_wide_characters_with_the_bytes_of_a_line_break(inbox: Inbox, encoding: str, last: str) -> None:
    inbox.keys |= {"format": "text", "options": {"encoding": encoding}}
    inbox.write("a.txt", f"a{last}".encode(encoding))
    assert names(inbox)[1] == ([] if last == "\n" else ["inbox/a.txt"])
    inbox.write("a.txt", b"\n", append=True)
    assert names(inbox)[1] == ["inbox/a.txt"], "half a character"


def test_what_has_no_lines_does_not_wait(inbox: Inbox) -> None:
    inbox.write("a.json.gz", gzip.compress(b"{}"))
    assert names(inbox) == (["inbox/a.json.gz"], [])
    inbox.write("b.parquet", b"PAR1")
    for kind, options in (("parquet", {}), ("orc", {}), ("text", {"wholetext": True})):
        inbox.keys |= {"format": kind, "options": options}
        assert names(inbox)[1] == []


def test_settle_says_otherwise(inbox: Inbox) -> None:
    changed_at = inbox.write("a.json", "{}").stat().st_ctime
    inbox.keys["settle"] = "0 seconds"
    assert names(inbox) == (["inbox/a.json"], [])
    inbox.keys["settle"] = "30 seconds"
    assert names(inbox, changed_at + 29) == ([], ["inbox/a.json"])
    assert names(inbox, changed_at + 31) == (["inbox/a.json"], [])
    inbox.keys["settle"] = "2 seconds"
    assert names(inbox, changed_at + 3) == (["inbox/a.json"], [])


def test_a_file_that_is_old_or_known_is_not_opened(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_at = inbox.write("a.json", "{}").stat().st_ctime
    inbox.run(0, changed_at + 11)
    inbox.write("b.json", "{}")

    def refuse(*arguments: object, **more: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(files, "opened", refuse)
    assert names(inbox, changed_at + 60) == (["inbox/b.json"], [])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs/orders").mkdir(parents=True)
    (tmp_path / "jobs/orders/pipeline.yaml").write_text(
        "version: 1\nname: orders\nschedule: null\nsources:\n"
        "  orders: {type: files, path: inbox, format: csv, schema: id STRING}\n"
    )
    (tmp_path / "inbox").mkdir()
    return load_project(tmp_path)


def test_a_run_that_finds_nothing_else_starts_no_spark_and_names_it(project: Project) -> None:
    def no_spark(plan: SubmitPlan) -> int:
        raise AssertionError("Spark was started")

    (project.root / "inbox/a.csv").write_text("1,Oslo,12")
    report = run_pipeline(project, "orders", "tick", submit=no_spark)
    assert report["outcome"] == "nothing_new"
    (one,) = report["sources"]["orders"]["settling"]
    assert one["path"] == "inbox/a.csv" and "no line break" in one["why"]
    plan = plan_pipeline(project, "orders")
    assert plan["summary"] == "nothing new"
    assert plan["sources"]["orders"]["settling"][0]["path"] == "inbox/a.csv"
