"""Files of a table as a streaming source: refused, since a table replaces its files by others with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tidegate.cli.scaffold.write import new_bare_pipeline
from tidegate.core.errors import UsageError
from tidegate.sources.files.pinned import list_static
from tidegate.sources.files.source import FilesStream
from tidegate.sources.port import SoFar
from tidegate.spec.project import load_project
from tidegate.state.checkpoint import read_checkpoint
from tidegate.views.validate import validate_project


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    root = tmp_path / "project"
    root.mkdir()
    with make_inbox(root, settle="0 seconds", format="parquet", schema="id STRING") as made:
        yield made


def make_table(folder: Path, log: str = "_delta_log") -> None:
    for inner in (log, "day=1/hour=2"):
        (folder / inner).mkdir(parents=True)
    (folder / log / "00000000000000000000.json").write_text("{}\n")
    (folder / "day=1/hour=2/part-1.parquet").write_bytes(b"PAR1")


def refused(inbox: Inbox, path: str, **keys: object) -> str:
    inbox.keys |= {"path": path, **keys}
    with pytest.raises(UsageError) as caught:
        inbox.scan()
    error = caught.value
    assert (error.code, error.exit_code) == ("SOURCE_IS_TABLE", 64)
    assert f"sources.{SOURCE}.path" in (error.where or "") and "static: true" in (error.fix or "")
    return error.message


@pytest.mark.parametrize("log", ["_delta_log", "_spark_metadata"])
@pytest.mark.parametrize(
    "path",
    [
        "lake/t",
        "lake/t/*.parquet",
        "lake/t/**/*.parquet",
        "lake/*",
        "lake/*/*/*/*.parquet",
        "lake/**/*.parquet",
        "lake/**",
        "lake/[t]/day=*/hour=2",
        "lake/t/day=1",
        "lake/t/day=1/hour=2",
        "lake/t/day=1/hour=2/part-1.parquet",
        "lake/t/day=1/*/*.parquet",
        "lake/t/not/there/yet",
        "linked",
        "linked-day",
    ],
)
def test_every_way_into_a_table(inbox: Inbox, path: str, log: str) -> None:
    make_table(inbox.root / "lake/t", log)
    (inbox.root / "linked").symlink_to("lake/t")
    (inbox.root / "linked-day").symlink_to("lake/t/day=1")
    assert str(inbox.root / "lake/t") in refused(inbox, path)


def test_a_table_below_a_folder_that_is_read_with_its_sub_folders(inbox: Inbox) -> None:
    make_table(inbox.root / "inbox/a=1/b=2")
    assert "inbox/a=1/b=2" in refused(inbox, "inbox")
    make_table(inbox.root / "other/deep/down")
    inbox.keys["path"] = "other"
    inbox.scan()  # folders that are not k=v are not read
    assert "other/deep/down" in refused(inbox, "other", options={"recursiveFileLookup": True})


def test_a_link_into_a_table(inbox: Inbox) -> None:
    make_table(inbox.root / "lake/t")
    (inbox.root / "inbox/x.parquet").symlink_to("../lake/t/day=1/hour=2/part-1.parquet")
    assert inbox.scan().new == ()  # leads outside
    assert "leads into a table" in refused(inbox, "inbox", follow_links=["lake"])
    (inbox.root / "inbox/x.parquet").unlink()
    (inbox.root / "inbox/day=1").symlink_to("../lake/t/day=1")
    assert "leads into a table" in refused(inbox, "inbox")


def test_a_log_that_appears_later(inbox: Inbox) -> None:
    inbox.write("a.parquet", b"PAR1")
    assert len(inbox.run(0)[1]) == 1
    make_table(inbox.root / "inbox")
    assert "inbox" in refused(inbox, "inbox")


def test_what_has_no_table_is_read(inbox: Inbox) -> None:
    make_table(inbox.root / "lake/t")
    for path in ("inbox", "inbox/*", "*/*.parquet", "lake/x*"):
        inbox.keys["path"] = path
        inbox.scan()
    inbox.write("k=1/a.parquet", b"PAR1")
    inbox.keys["path"] = "inbox"
    assert len(inbox.scan().new) == 1


def write_pipeline(root: Path, name: str, source: str, more: str = "") -> None:
    (root / "jobs" / name).mkdir(parents=True, exist_ok=True)
    (root / "tidegate.yaml").write_text("version: 1\n")
    sources = f"sources:\n  {SOURCE}: {{type: files, {source}, format: json, schema: id STRING}}\n"
    (root / "jobs" / name / "pipeline.yaml").write_text(f"version: 1\nname: {name}\nschedule: null\n{sources}{more}")


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("data/warehouse/first", "the table of pipeline first"),
        ("data/warehouse/first/day=1/*.parquet", "the table of pipeline first"),
        ("data/warehouse/*/*.parquet", "the table of pipeline"),
        ("data/**/*.parquet", "the table of pipeline"),
        ("data/quarantine/first", "the quarantine table of pipeline first"),
        ("lake/second/day=1", "the table of pipeline second"),
        ("lake/*", "the table of pipeline second"),
        ("data/warehouse/orders", "the table of pipeline orders"),
    ],
)
def test_tables_of_the_project_that_are_not_there_yet(inbox: Inbox, path: str, what: str) -> None:
    """Files of a first publish are in the folder before its log is."""
    write_pipeline(inbox.root, "first", "path: data/inbox/first")
    write_pipeline(inbox.root, "second", "path: data/inbox/second", "table: {path: lake/second}\n")
    write_pipeline(inbox.root, "orders", f"path: '{path}'")
    assert what in refused(inbox, path)
    faults = validate_project(load_project(inbox.root))
    assert [(one.code, one.file, one.line, one.key) for one in faults] == [
        ("SOURCE_IS_TABLE", "jobs/orders/pipeline.yaml", 5, f"sources.{SOURCE}.path")
    ]
    write_pipeline(inbox.root, "orders", f"path: '{path}', static: true")
    assert "SOURCE_IS_TABLE" not in [one.code for one in validate_project(load_project(inbox.root))]


def test_folders_beside_the_tables_of_the_project_are_read(inbox: Inbox) -> None:
    write_pipeline(inbox.root, "first", "path: data/inbox/first")
    for path in ("data", "data/inbox", "data/*.parquet", "data/*/*.parquet", "data/inbox/**", "data/warehouse"):
        write_pipeline(inbox.root, "orders", f"path: '{path}'")
        (inbox.root / "data/warehouse").mkdir(parents=True, exist_ok=True)
        assert validate_project(load_project(inbox.root)) == [], path


def test_validate_names_a_table_of_somebody_else(inbox: Inbox) -> None:
    make_table(inbox.root / "lake/t")
    write_pipeline(inbox.root, "orders", "path: lake/t/day=1")
    (fault,) = validate_project(load_project(inbox.root))
    assert fault.code == "SOURCE_IS_TABLE" and str(inbox.root / "lake/t") in fault.message


def test_plan_and_run_look_by_the_port(inbox: Inbox) -> None:
    make_table(inbox.root / "lake/t")
    inbox.keys["path"] = "lake/t"
    stream = FilesStream(inbox.project, inbox.paths, SOURCE, inbox.spec, inbox.ledger)
    with pytest.raises(UsageError, match="would read files of a table"):
        stream.look(SoFar(None, read_checkpoint(inbox.paths.checkpoint), None))


def test_new_from_a_file_of_a_table(inbox: Inbox) -> None:
    write_pipeline(inbox.root, "first", "path: data/inbox/first")
    make_table(inbox.root / "lake/t")
    (inbox.root / "data/warehouse/first").mkdir(parents=True)
    (inbox.root / "data/warehouse/first/part-1.json").write_text('{"id": 1}\n')
    project = load_project(inbox.root)
    for sample in ("lake/t/day=1/hour=2/part-1.parquet", "data/warehouse/first/part-1.json"):
        with pytest.raises(UsageError, match="would read files of a table"):
            new_bare_pipeline(project, "next", sample=inbox.root / sample)
    assert not (inbox.root / "jobs/next").exists()


def test_a_static_source_reads_a_table(inbox: Inbox) -> None:
    make_table(inbox.root / "lake/t")
    inbox.keys |= {"path": "lake/t/day=1", "static": True}
    entries, _ = list_static(inbox.project, inbox.paths, SOURCE, inbox.spec)
    assert [entry.path for entry in entries] == ["lake/t/day=1/hour=2/part-1.parquet"]
