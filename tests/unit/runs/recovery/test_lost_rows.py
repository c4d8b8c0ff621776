"""Which publishes rebuild rows that were lost with damaged files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.staged import QUERY
from tidegate.core.paths import PipelinePaths
from tidegate.runs.recovery.lost_rows import list_lost_rows, note_lost_rows, note_rebuilt_rows
from tidegate.spec.project import load_project
from tidegate.state.lease import acquire
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import ROLLED_BACK_TO, DataFile
from tidegate.table.publish.intent import HandOver, PublishIntent, Target
from tidegate.table.publish.plan import DELIVERED, KEEPS_OLDER, KEYS, REWORK, WITHIN

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "day", "type": "string", "nullable": True, "metadata": {}}]})
INTENT = PublishIntent("flow", "r", "table", SCHEMA, [], QUERY, 1, 0)
ALL = {"table 1", "table 2", "quarantine null"}


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    """A pipeline that lost a file of each of two partitions, at version 5, and one of quarantine."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    paths = load_project(tmp_path).paths("flow")
    with acquire(paths, run_id="repair", command="repair", expires_after_seconds=60) as lease:
        lost: dict[Target, list[str | None]] = {"table": ["1", "2"], "quarantine": [None]}
        for target, days in lost.items():
            files = [DataFile(f"{day}.parquet", 3, 1, {"day": day} if day else {}) for day in days]
            note_lost_rows(paths, lease, target, files, run_id=target, version=5)
    return paths


def _commit(path: Path, app_id: str, app_version: int = 0) -> None:
    commit_files(path, Commit(schema_json=SCHEMA, app_id=app_id, app_version=app_version))


def _commit_repair(paths: PipelinePaths) -> None:
    """Version 6 of the table, and the first of quarantine."""
    for number in range(6):
        _commit(paths.table, f"before-{number}")
    _commit(paths.table, "table")
    _commit(paths.quarantine, "quarantine")


def _read(paths: PipelinePaths) -> set[str]:
    return {f"{one.target} {one.partition.get('day') or 'null'}" for one in list_lost_rows(paths)}


def test_rows_are_not_lost_if_the_repair_was_killed_before_its_commit(paths: PipelinePaths) -> None:
    assert _read(paths) == set()
    _commit_repair(paths)
    assert _read(paths) == ALL


@pytest.mark.parametrize(
    ("info", "left"),
    [
        pytest.param({}, ALL, id="run"),
        pytest.param({DELIVERED: "[]", KEYS: '["id"]'}, ALL, id="update"),
        pytest.param({DELIVERED: "[]"}, {"quarantine null"}, id="complete"),
        pytest.param({DELIVERED: "[]", REWORK: "replay"}, ALL, id="replay"),
        pytest.param({DELIVERED: "[]", REWORK: "maintain"}, ALL, id="maintain"),
        pytest.param(
            {WITHIN: '{"day": ["1", "3"]}', REWORK: "backfill"}, {"table 2", "quarantine null"}, id="backfill"
        ),
        pytest.param({WITHIN: "{}", REWORK: "refresh"}, set(), id="refresh"),
        pytest.param({WITHIN: "{}", REWORK: "refresh", KEEPS_OLDER: "true"}, ALL, id="refresh that keeps older rows"),
        pytest.param({ROLLED_BACK_TO: "5", REWORK: "rollback"}, {"quarantine null"}, id="rollback to before"),
        pytest.param({ROLLED_BACK_TO: "6", REWORK: "rollback"}, ALL, id="rollback to after"),
    ],
)
def test_a_publish_ends_the_report_of_what_it_rebuilds(
    paths: PipelinePaths, info: Mapping[str, str], left: set[str]
) -> None:
    _commit_repair(paths)
    _commit(paths.table, QUERY, 1)
    intent = replace(INTENT, custom_metadata=dict(info))
    with acquire(paths, run_id="r", command="run", expires_after_seconds=60) as lease:
        note_rebuilt_rows(paths, lease, replace(intent, target="quarantine"), 7)
        assert _read(paths) == ALL
        for _ in range(2):
            note_rebuilt_rows(paths, lease, intent, 7)
            assert _read(paths) == left


def test_what_an_older_copy_of_the_table_lacks_is_not_rebuilt(paths: PipelinePaths) -> None:
    """The publish that rebuilt the rows is not in the log, though a version with its number may be."""
    _commit_repair(paths)
    _commit(paths.table, "another", 1)
    refresh = replace(INTENT, custom_metadata={WITHIN: "{}", REWORK: "refresh"})
    with acquire(paths, run_id="r", command="run", expires_after_seconds=60) as lease:
        note_rebuilt_rows(paths, lease, refresh, 7)
    assert _read(paths) == ALL


def test_a_refresh_that_hands_over_its_query_rebuilds_all(paths: PipelinePaths) -> None:
    _commit_repair(paths)
    _commit(paths.table, QUERY, 1)
    handed = replace(INTENT, hand_over=HandOver("f", 1, {}, (QUERY, 1)), custom_metadata={REWORK: "refresh"})
    with acquire(paths, run_id="r", command="refresh", expires_after_seconds=60) as lease:
        note_rebuilt_rows(paths, lease, handed, 7)
    assert _read(paths) == set()
