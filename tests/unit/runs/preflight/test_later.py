"""Versions of the table's log behind the note of the last publish: each is looked at, not only the newest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.staged import make_schema
from tests.unit.manifests import OTHER, QUERY, manifest
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight import table_log
from tidegate.runs.preflight.table_log import Later, look_later
from tidegate.spec.models import ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.published import Published
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import read_table_state

RUN = {"tidegate.run_id": "r"}


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return Project(tmp_path, ProjectSpec()).paths("orders").pinned()


def commit(path: Path, app_id: str, version: int, **told: str) -> None:
    """One version without files, as ``app_id``."""
    commit_files(
        path,
        Commit(
            schema_json=make_schema(id="string"),
            app_id=app_id,
            app_version=version,
            app_version_before=version - 1,
            custom_metadata={f"tidegate.{key}": value for key, value in told.items()} | RUN,
        ),
    )


def publish(paths: PipelinePaths, query: str, batch: int) -> None:
    """A version of a run."""
    commit(paths.table, query, batch, query_id=query, batches=json.dumps([batch, batch]))


def look(paths: PipelinePaths, version: int, batch: int, *staged: int, can_go_back: bool = True) -> Later:
    """With the note of a version of the living query, and some of its batches staged."""
    table = read_table_state(paths.table)
    assert table is not None
    note = Published(table.table_id, version, QUERY, batch)
    manifests = {QUERY: [manifest(one) for one in staged]}
    return look_later(paths, table, note, manifests, can_go_back=can_go_back)


def test_what_was_noted_is_not_looked_at(paths: PipelinePaths) -> None:
    publish(paths, OTHER, 0)
    assert look(paths, 0, 0) == Later()


def test_the_first_of_the_batches_that_nobody_knows_is_named_with_the_version_before_it(paths: PipelinePaths) -> None:
    publish(paths, QUERY, 0)
    publish(paths, QUERY, 1)
    commit(paths.table, "maintain-1", 0, rework="maintain")
    publish(paths, OTHER, 0)
    publish(paths, OTHER, 1)
    commit(paths.table, "maintain-2", 0, rework="maintain")
    assert look(paths, 0, 0, 1) == Later(read=f"batch 0 of query {OTHER}", back_to=2)
    assert look(paths, 0, 0, 1, can_go_back=False) == Later(read=f"batch 0 of query {OTHER}")
    assert look(paths, 0, 0) == Later(read=f"batch 1 of query {QUERY}", back_to=0)


def test_published_and_not_noted(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process was killed before its note, or slept and took a later one back: manifests, or the ledger, know."""
    for batch in range(3):
        publish(paths, QUERY, batch)
    assert look(paths, 0, 0, 1, 2) == Later()
    monkeypatch.setattr(table_log, "is_in_ledger", lambda paths, *batch: batch == (QUERY, 2))
    assert look(paths, 0, 0) == Later()


def test_a_rollback_that_is_known_nowhere(paths: PipelinePaths) -> None:
    publish(paths, QUERY, 0)
    publish(paths, QUERY, 1)
    told = {"then": "reread", "generation": "0", "rolled_back_to": "0", "rework": "rollback"}
    commit(paths.table, "rollback-1", 0, **told)
    assert look(paths, 1, 1) == Later(rollback="rollback r")
    paths.rollback.parent.mkdir(parents=True)
    paths.rollback.write_text("{}")
    assert look(paths, 1, 1) == Later(), "it is being carried out"


def test_records_that_moved_are_known_to_quarantine_as_well(paths: PipelinePaths) -> None:
    publish(paths, QUERY, 0)
    commit(paths.table, "replay-1", 0, rework="replay", companion=json.dumps(["replay-1", 0]))
    assert look(paths, 0, 0) == Later(moved="replay r")
    commit(paths.quarantine, "replay-1", 0, rework="replay")
    assert look(paths, 0, 0) == Later()
