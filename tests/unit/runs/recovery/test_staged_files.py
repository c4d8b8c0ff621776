"""Staged files that are not what was written: refused wherever they would be used, and the named remedy works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.keyed import Keyed
from tests.support.readers import read_agreed
from tests.support.staged import QUERY, Stager, make_paths
from tests.support.synced import Synced
from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.runs.gate import increment
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.after_commit import publish_quarantine
from tidegate.runs.restart.disagreement import find_disagreement
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.birth import new_birth, replace_birth, write_birth
from tidegate.state.checkpoint import list_entry
from tidegate.state.files import list_staged_files
from tidegate.state.manifest import BatchManifest, SourceRange, StagedFile, write_manifest
from tidegate.state.topics import FilePart
from tidegate.table.quarantine.read import write_quarantine_rows
from tidegate.table.upsert.merge import replace_rows

NAME = "orders"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def remove(path: Path) -> None:
    path.unlink()


def row(number: int, n: int = 0) -> dict[str, Any]:
    return {"id": number, "city": "Oslo", "n": n}


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_a_damaged_file_is_not_judged(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit's answer would be on other rows than those that were staged."""
    keyed.mode = "append"
    [manifest] = keyed.stage([row(1)])
    flip(keyed.paths.state / manifest.files[0].path)

    def judge_files(*arguments: Any) -> Any:
        raise AssertionError("judged")

    suite = SuiteSpec("orders", (RuleSpec("r", "expect_column_values_to_not_be_null", {"column": "id"}),))

    monkeypatch.setattr("tidegate.quality.pandas_engine.judge_files", judge_files)
    with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
        increment._judge(keyed.context("r"), suite, [manifest], None)


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
@pytest.mark.parametrize("damage", [flip, tear])
def test_no_mode_publishes_what_was_damaged(tmp_path: Path, mode: str, damage: Callable[[Path], None]) -> None:
    keyed = Keyed(tmp_path, mode=mode, keys=["id"] if mode == "update" else [])
    keyed.stage([row(1)])
    keyed.run()
    manifests = keyed.stage([row(1, 1), row(2)])
    damage(keyed.paths.state / manifests[0].files[0].path)
    for _ in range(2):
        with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
            keyed.run()
        found = find_disagreement(keyed.paths, gather_facts(keyed.paths, keyed.spec), NAME)
        assert found is not None and found.code == "STAGED_FILE_DAMAGED"
    assert [value["n"] for value in read_agreed(keyed.paths.table)] == [0]


def test_a_damaged_copy_is_made_again(keyed: Keyed) -> None:
    """What was staged is whole, so nobody needs to decide anything."""
    keyed.stage([row(1), row(2)], [row(2, 1)])
    context = keyed.context("r")
    facts = recover_run(context)
    increment.audit_increment(context, facts)
    [copy] = keyed.paths.staging.glob("*/*/merge-*/**/*.parquet")
    flip(copy)
    assert find_disagreement(keyed.paths, gather_facts(keyed.paths, keyed.spec), NAME) is None
    keyed.run("r")
    assert sorted((value["id"], value["n"]) for value in read_agreed(keyed.paths.table)) == [(1, 0), (2, 1)]


def test_a_damaged_copy_of_the_tables_rows_is_made_again(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.stage([row(1), row(2)])
    keyed.run()
    keyed.stage([row(2, 1)])
    made = []

    def damage_first(*arguments: Any, **more: Any) -> Any:
        found = replace_rows(*arguments, **more)
        if not made:
            flip(keyed.paths.state / found[0].carried[0].path)
        made.append(found)
        return found

    monkeypatch.setattr("tidegate.table.upsert.merge.replace_rows", damage_first)
    keyed.run()
    assert len(made) == 2
    assert sorted((value["id"], value["n"]) for value in read_agreed(keyed.paths.table)) == [(1, 0), (2, 1)]


def test_a_copy_damaged_in_mid_publish_is_found_by_repair(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.stage([row(1), row(2)])
    keyed.run()
    keyed.stage([row(2, 1)])

    def place(source: Path, target: Path, *arguments: Any, **more: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "place", place)
        with pytest.raises(KeyboardInterrupt):
            keyed.run()
    [copy] = keyed.paths.staging.glob("*/*/merge-*/**/*.parquet")
    flip(copy)
    with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
        keyed.run()
    found = find_disagreement(keyed.paths, gather_facts(keyed.paths, keyed.spec), NAME)
    assert found is not None and found.code == "STAGED_FILE_DAMAGED"


def make_project(root: Path) -> tuple[Project, BatchManifest]:
    """A pipeline on files with one staged batch: a row, and a record in quarantine."""
    (root / "jobs" / NAME).mkdir(parents=True)
    (root / "data" / "inbox").mkdir(parents=True)
    (root / "data" / "inbox" / "a.csv").write_text("1\n")
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING}\n"
    )
    project = load_project(root)
    paths, spec = project.paths(NAME), load_pipeline(project, NAME)
    birth = new_birth(paths, spec, {"orders": {}}, {})
    write_birth(paths, birth)
    for name, text in (("offsets", 'v2\n{"batchWatermarkMs":0}\norders:{"logOffset":0}'), ("commits", "v1\n{}")):
        (paths.checkpoint / name).mkdir(parents=True)
        (paths.checkpoint / name / "0").write_text(text)
    (paths.checkpoint / "sources/orders").mkdir(parents=True)
    (paths.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    replace_birth(paths, type(birth)(**{**birth.__dict__, "query_id": QUERY}))
    with open_ledger(paths, create=True) as ledger:
        (taken,) = ledger.add_links("orders", [NewFile("data/inbox/a.csv", 2, 1, "")])
        ledger.mark_staged("orders", QUERY, 0, [{"path": taken.path, "size": 2, "mtime_ns": 1, "link": taken.link}])
    files = BatchFiles(paths.checkpoint, "orders")
    files.put(BatchFile(0, parts=[FilePart(taken.link)]))
    (paths.checkpoint / "sources/orders/0").write_bytes(b"v1\n" + list_entry(files.path(0), 0))
    read = [{"path": taken.path, "link": taken.link, "size": 2, "mtime_ns": 1}]
    manifest = Stager(paths, {"id": "string"}, []).stage(0, [{"id": "1"}])
    folder = paths.staging / QUERY / f"{0:012d}" / "a1" / "quarantine"
    write_quarantine_rows(folder / "captured.parquet", [{"raw": "torn"}])
    aside = list_staged_files(folder, paths.state)
    sources = {"orders": SourceRange(rows=2, malformed=1, files=read, entered=1)}
    manifest = BatchManifest(**{**manifest.__dict__, "quarantine_files": aside, "quarantined": 1, "sources": sources})
    write_manifest(paths.manifest(QUERY, 0), manifest)
    return project, manifest


def test_a_staged_batch_that_is_whole_is_no_disagreement(tmp_path: Path) -> None:
    project, _ = make_project(tmp_path)
    assert repair_pipeline(project, NAME, dry_run=True)["code"] is None


@pytest.mark.parametrize("which", ["files", "quarantine_files"])
@pytest.mark.parametrize("damage", [flip, tear, remove])
def test_repair_reads_a_damaged_batch_again(tmp_path: Path, which: str, damage: Callable[[Path], None]) -> None:
    project, manifest = make_project(tmp_path)
    paths, spec = project.paths(NAME), load_pipeline(project, NAME)
    files: list[StagedFile] = getattr(manifest, which)
    damage(paths.state / files[0].path)

    if damage is tear:
        with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
            check_agreement(gather_facts(paths, spec), NAME)
    done = repair_pipeline(project, NAME, dry_run=False)

    assert done["code"] == ("STAGING_GONE" if damage is remove else "STAGED_FILE_DAMAGED")
    assert gather_facts(paths, spec).unpublished == []
    with open_ledger(paths) as ledger:
        [again] = ledger.rows("orders")
    assert again.state == "linked" and (paths.intake("orders") / again.link).read_text() == "1\n"
    assert repair_pipeline(project, NAME, dry_run=True)["code"] is None


def test_records_that_reached_quarantine_are_not_missed(tmp_path: Path) -> None:
    """As an earlier version of tidegate leaves them, which published them before it judged the rows."""
    project, manifest = make_project(tmp_path)
    paths = project.paths(NAME)
    context = Keyed(tmp_path).context("r")
    context.paths = paths
    publish_quarantine(paths, [manifest], context.lease)
    assert not (paths.state / manifest.quarantine_files[0].path).exists()
    assert repair_pipeline(project, NAME, dry_run=True)["code"] is None


def test_files_and_the_folders_above_them_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark syncs neither; a manifest that is on disk would name files whose folder is not."""
    stager = Stager(make_paths(tmp_path), {"id": "string", "day": "string"}, ["day"])
    manifest = stager.stage(0, [{"id": "1", "day": "a"}, {"id": "2", "day": None}])
    synced = Synced(monkeypatch)
    found = list_staged_files(stager.paths.staging / QUERY / f"{0:012d}" / "a1" / "rows", stager.paths.state)
    assert synced.missing(stager.paths.staging) == []
    assert sorted(file.sha256 for file in found) == sorted(file.sha256 for file in manifest.files)
