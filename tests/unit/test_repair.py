"""Repair without Spark: killed between any two of its writes it is completed by the next one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.staged import QUERY, make_schema
from tests.storage_calls import KilledHere, StorageCalls, kill
from tidegate import storage
from tidegate.project import Project, load_project
from tidegate.run.preflight import gather_facts
from tidegate.run.repair import find_disagreement, repair_pipeline
from tidegate.spec.load import load_pipeline
from tidegate.staging.birth import new_birth, read_birth, write_birth
from tidegate.table.commit import commit_files

NAME = "orders"


def make_project(root: Path) -> Project:
    """A pipeline that was repaired and has not run since: a birth, and no checkpoint that could tell of more."""
    (root / "jobs" / NAME).mkdir(parents=True)
    (root / "data" / "inbox").mkdir(parents=True)
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING}\n"
    )
    project = load_project(root)
    write_birth(project.paths(NAME), new_birth(project.paths(NAME), load_pipeline(project, NAME), {"orders": {}}, {}))
    return project


def commit(table: Path, batch_id: int) -> None:
    commit_files(
        table,
        schema_json=make_schema(id="string"),
        partition_by=[],
        add=[],
        remove=[],
        app_id=QUERY,
        app_version=batch_id,
        app_version_before=batch_id - 1,
        custom_metadata={"tidegate.query_id": QUERY},
    )


@pytest.mark.parametrize(
    ("code", "batches", "noted"),
    [
        ("TABLE_BEHIND", 2, {"version": 3, "batch_id": 3}),
        ("TABLE_REPLACED", 2, {"version": 1, "batch_id": 1, "table_id": "another"}),
        ("TABLE_GONE", 0, {"version": 3, "batch_id": 3, "table_id": "gone"}),
    ],
)
def test_a_killed_repair_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, batches: int, noted: dict[str, Any]
) -> None:
    """A new birth is the last thing that matters: before it there is a disagreement, and a note to tell it by."""
    for at in itertools.count(1):
        project = make_project(tmp_path / str(at))
        paths, spec = project.paths(NAME), load_pipeline(project, NAME)
        for batch in range(batches):
            commit(paths.table, batch)
        table = gather_facts(paths, spec).table
        table_id = "" if table is None else table.table_id
        old = {"table_id": table_id, "query_id": QUERY, "ledger_last_id": 0, **noted}
        right = {"table_id": table_id, "version": batches - 1, "query_id": None, "batch_id": -1, "ledger_last_id": 0}
        storage.write_note(paths.published, old["version"], old)
        found = find_disagreement(paths, gather_facts(paths, spec), NAME)
        assert found is not None and found.code == code
        born = read_birth(paths)

        with monkeypatch.context() as patch:
            calls = StorageCalls(patch, at, kill)
            try:
                repair_pipeline(project, NAME, dry_run=False)
            except KilledHere:
                note = storage.read_note(paths.published)
                assert note in (old, right if batches else None), calls.names
                found = find_disagreement(paths, gather_facts(paths, spec), NAME)
                if found is None:
                    assert read_birth(paths) != born, calls.names
                else:
                    assert found.code == code, calls.names

        storage.remove_tree(paths.lease)  # this process lives, so it would wait for itself
        repair_pipeline(project, NAME, dry_run=False)
        assert storage.read_note(paths.published) == (right if batches else None)
        assert find_disagreement(paths, gather_facts(paths, spec), NAME) is None
        if calls.count < at:
            break
    assert at > 10
