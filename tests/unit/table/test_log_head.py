"""A table's log but for its files: what a tick and a publish of new files read of it does not grow with the table."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.many_commits import SCHEMA, add_file, commit
from tests.support.staged import QUERY, Stager, make_paths
from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.table.log.compaction import compact_log
from tidegate.table.log.files import LOG_FOLDER, commit_name, compacted_name
from tidegate.table.log.snapshot import LogHead, read_head, read_snapshot
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent

KEYS = ("version", "protocol", "metadata", "txns", "domains")


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def make_table(table: Path, files: int) -> None:
    """Version 0 has so many files, which are one; version 1 none; both are in a compaction file."""
    first = add_file(table, 0)
    for number in range(1, files):
        os.link(table / first.path, table / f"part-1f0c7a52-00000000-a-{number:05d}.parquet")
    names = [f"part-1f0c7a52-00000000-a-{number:05d}.parquet" for number in range(1, files)]
    commit(table, 0, add=[first, *(replace(first, path=name) for name in names)])
    commit(table, 1)
    compact_log(table, lambda: None)


def check_same(table: Path) -> LogHead:
    head, whole = read_head(table, (QUERY,)), read_snapshot(table)
    for key in KEYS:
        assert getattr(head, key) == getattr(whole, key), key
    return head


class Reads:
    """How many bytes of files of logs are read, and of how many files."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        for name in ("read", "read_start"):
            patch.setattr(storage, name, self._note(getattr(storage, name)))

    def _note(self, call: object) -> object:
        def noted(path: Path, *more: int) -> bytes:
            data: bytes = call(path, *more)  # type: ignore[operator]
            if LOG_FOLDER in path.parts:
                self.sizes.append(len(data))
            return data

        return noted


@pytest.mark.parametrize("files", [1, 3000])
def test_the_head_is_what_the_whole_log_says(tmp_path: Path, files: int) -> None:
    table = tmp_path / "t"
    make_table(table, files)
    check_same(table)
    for number in range(2, 5):
        commit(table, number, add=[add_file(table, number)])
    assert check_same(table).txns[QUERY]["version"] == 4
    write_deltalake(str(table), pa.table({"id": pa.array([7], pa.int64())}), mode="append")
    assert check_same(table).version == 5
    (table / LOG_FOLDER / compacted_name(1)).unlink()
    check_same(table)


def test_what_a_publish_reads_does_not_grow_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[int, tuple[int, int]] = {}
    for files in (1, 4000):
        paths = make_paths(tmp_path / str(files))
        make_table(paths.table, files)
        manifest = Stager(paths, {"id": "long"}, []).stage(2, [{"id": 1}])
        intent = plan_publish([manifest], run_id="r", partition_by=[], app_version_before=1)
        write_intent(paths, intent)
        with monkeypatch.context() as patch:
            reads = Reads(patch)
            assert finish_intent(paths, intent, is_current=lambda: True).version == 2
            state = read_table_state(paths.table, (QUERY,))
        assert state is not None and state.txns == {QUERY: 2}
        assert len(read_snapshot(paths.table).added) == files + 1
        sizes[files] = (len(reads.sizes), sum(reads.sizes))
        whole = sum(path.stat().st_size for path in (paths.table / LOG_FOLDER).iterdir())
    assert sizes[1][0] == sizes[4000][0]
    assert sizes[4000][1] < 6 * (1 << 16) + sizes[1][1] < whole


def test_a_query_that_the_beginning_does_not_name_is_looked_for_in_all_of_it(tmp_path: Path) -> None:
    """A compaction file of another program may have the same things in another order."""
    table = tmp_path / "t"
    make_table(table, 3)
    path = table / LOG_FOLDER / compacted_name(1)
    lines = path.read_text().splitlines()
    txns = [line for line in lines if line.startswith('{"txn"')]
    path.write_text("\n".join([*(line for line in lines if line not in txns), *txns]) + "\n")
    assert check_same(table).txns[QUERY]["version"] == 1
    path.write_text("\n".join(reversed(lines)) + "\n")
    check_same(table)
    assert commit(table, 2, add=[add_file(table, 2)]) == 2


def test_a_wide_table(tmp_path: Path) -> None:
    """Its schema is longer than what is read at first."""
    table = tmp_path / "t"
    fields = json.loads(SCHEMA)["fields"]
    fields += [{**fields[0], "name": f"column_{number:05d}"} for number in range(4000)]
    schema = json.dumps({"type": "struct", "fields": fields})
    commit(table, 0, add=[add_file(table, 0)], schema_json=schema)
    commit(table, 1, schema_json=schema)
    compact_log(table, lambda: None)
    assert len(check_same(table).schema_json) > 1 << 17


@pytest.mark.parametrize("torn", [b"", b"\0" * 40, b'{"add": {"path": "x"'])
def test_a_torn_version_is_refused(tmp_path: Path, torn: bytes) -> None:
    table = tmp_path / "t"
    make_table(table, 3)
    commit(table, 2, add=[add_file(table, 2)])
    path = table / LOG_FOLDER / commit_name(2)
    path.write_bytes(path.read_bytes()[:-30] + torn)
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE"):
        read_table_state(table, (QUERY,))


def test_deletion_vectors_are_not_passed_over(tmp_path: Path) -> None:
    """Not where they are in the part of a compaction file that is left out."""
    table = tmp_path / "t"
    make_table(table, 3)
    commit(table, 2, add=[add_file(table, 2)])
    path = table / LOG_FOLDER / commit_name(2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines.append({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    path.write_text("\n".join(map(json.dumps, lines)))
    (table / LOG_FOLDER / commit_name(3)).write_text(json.dumps({"commitInfo": {}}))
    for _ in range(2):
        state = read_table_state(table, (QUERY,))
        assert state is not None and [one.what for one in state.unsupported] == ["deletion vectors of 1 files"]
        compact_log(table, lambda: None)
