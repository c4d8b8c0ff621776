"""deltalake deletes from our tables, compacts, merges and vacuums them, and runs and maintenance go on after it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.held import Leases
from tests.support.kept import Kept
from tests.support.nasty_values import NASTY_TEXTS
from tests.support.readers import canonical, read_agreed
from tidegate.table.log.commit import rename_files
from tidegate.table.log.files import LOG_FOLDER, commit_name
from tidegate.table.log.snapshot import DataFile, read_snapshot

VALUES = [*NASTY_TEXTS, *(f"a{chr(code)}b" for code in range(1, 128)), "plain", "müller", "a\u2028b", "a\u00a0b", None]


@pytest.fixture(autouse=True)
def leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    """Leases without files or threads, and nothing waits for a disk."""
    leases = Leases()
    monkeypatch.setattr("tidegate.runs.opening.acquire", leases.acquire)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    yield leases


def rows(begin: int, values: list[str | None] = VALUES) -> list[dict[str, Any]]:
    return [{"id": begin + n, "city": city, "n": n % 4} for n, city in enumerate(values)]


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    text = (table / LOG_FOLDER / commit_name(version)).read_bytes()
    return [json.loads(line) for line in text.split(b"\n") if line]


def vacuum(table: Path) -> None:
    """What deltalake replaced goes from the folder, where plain readers would see it."""
    DeltaTable(str(table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def go_on(kept: Kept, expected: list[dict[str, Any]]) -> None:
    """The next run and maintenance find the table as every reader does."""
    assert canonical(read_agreed(kept.paths.table)) == canonical(expected)
    more = rows(10_000)
    kept.publish(more)
    assert canonical(read_agreed(kept.paths.table)) == canonical(expected + more)
    report = kept.maintain(f"M{kept.next_batch}")
    assert (report["outcome"], report["error"]) == ("published", None)
    assert canonical(read_agreed(kept.paths.table)) == canonical(expected + more)
    assert kept.leftovers() == []


def published(root: Path, values: list[str | None] = VALUES) -> tuple[Kept, list[dict[str, Any]]]:
    kept = Kept(root, partition_by=["city"], keep_versions="0 seconds")
    both = rows(0, values), rows(1000, values)
    for some in both:
        kept.publish(some)
    return kept, [*both[0], *both[1]]


def test_deltalake_deletes_rows_of_every_partition(tmp_path: Path) -> None:
    kept, before = published(tmp_path)
    DeltaTable(str(kept.paths.table)).delete("n >= 2")
    vacuum(kept.paths.table)
    go_on(kept, [row for row in before if row["n"] < 2])


def test_deltalake_deletes_parts_of_files(tmp_path: Path) -> None:
    kept = Kept(tmp_path, partition_by=["city"], keep_versions="0 seconds")
    before = [{**row, "id": row["id"] + n, "n": n // 1000} for n in (0, 1000) for row in rows(0)]
    kept.publish(before)
    DeltaTable(str(kept.paths.table)).delete("n = 1")
    vacuum(kept.paths.table)
    go_on(kept, [row for row in before if row["n"] == 0])


def test_deltalake_compacts(tmp_path: Path) -> None:
    values = [value for value in VALUES if "~" not in str(value)]  # deltalake cannot, in no table
    kept, before = published(tmp_path, values)
    DeltaTable(str(kept.paths.table)).optimize.compact()
    assert len(DeltaTable(str(kept.paths.table)).file_uris()) == len(set(values))
    vacuum(kept.paths.table)
    go_on(kept, before)


def test_deltalake_merges(tmp_path: Path) -> None:
    kept, before = published(tmp_path)
    changes = pa.table({"id": [row["id"] for row in before if row["n"] == 3]})
    merge = DeltaTable(str(kept.paths.table)).merge(changes, "s.id = t.id", source_alias="s", target_alias="t")
    merge.when_matched_update({"n": "-1"}).execute()
    vacuum(kept.paths.table)
    go_on(kept, [{**row, "n": -1 if row["n"] == 3 else row["n"]} for row in before])


def test_deltalake_goes_on_after_maintenance_and_the_other_way_round(tmp_path: Path) -> None:
    kept, before = published(tmp_path, ["plain", "a b", "a=b", "50%", "x/y", "a:b", "müller", None])
    assert kept.maintain()["outcome"] == "published"  # its files have deltalake's spelling too
    DeltaTable(str(kept.paths.table)).delete("n = 0")
    DeltaTable(str(kept.paths.table)).optimize.compact()
    vacuum(kept.paths.table)
    go_on(kept, [row for row in before if row["n"] != 0])


def test_every_path_is_spelled_as_deltalake_spells_it(tmp_path: Path) -> None:
    kept, _ = published(tmp_path)
    table = kept.paths.table
    ours = set(read_snapshot(table).added)
    DeltaTable(str(table)).delete("id >= 0")
    removed = {one["remove"]["path"] for one in actions(table, read_snapshot(table).version) if "remove" in one}
    assert removed == ours
    assert all((table / unquote(path)).exists() for path in ours)


def as_before(kept: Kept) -> None:
    """Spell the adds of the log as versions before this one did."""
    for version in range(read_snapshot(kept.paths.table).version + 1):
        lines = actions(kept.paths.table, version)
        for line in lines:
            for kind in ("add", "remove"):
                if kind in line:
                    line[kind]["path"] = quote(unquote(line[kind]["path"]))
        text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
        (kept.paths.table / LOG_FOLDER / commit_name(version)).write_text(text)


def test_a_table_that_was_spelled_otherwise_is_gone_on_with(tmp_path: Path) -> None:
    kept, before = published(tmp_path)
    as_before(kept)
    assert any("%3D" in path for path in read_snapshot(kept.paths.table).added)
    go_on(kept, before)
    table = read_snapshot(kept.paths.table)
    # All were small, and compaction has named them anew.
    assert not [path for path in table.added if "%3D" in path]


def test_a_file_that_was_spelled_otherwise_is_renamed(tmp_path: Path) -> None:
    kept, before = published(tmp_path, ["a=b c"])
    as_before(kept)
    file = read_snapshot(kept.paths.table).files()[0]
    new = file.path.replace("part-", "part-other-")
    (kept.paths.table / file.path).rename(kept.paths.table / new)
    rename_files(kept.paths.table, [(file, new)], app_id="q", app_version=7)
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    assert isinstance(file, DataFile) and len(read_snapshot(kept.paths.table).added) == 2
