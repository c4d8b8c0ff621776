"""The quarantine table: written without Spark, published like any table, looked at by run and reason."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.readers import read_agreed
from tests.support.staged import QUERY, make_paths
from tests.unit.table.quarantine.tables import NOON, publish, record
from tidegate.core.paths import PipelinePaths
from tidegate.table.log.state import read_table_state
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.read import list_quarantine, show_quarantine, write_quarantine_rows


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    paths = make_paths(tmp_path)
    publish(paths, 0, [record(1), record(2), record(3, "price_positive")])
    publish(paths, 1, [record(4, run_id="run-2", source="rates")])
    return paths


def test_every_reader_sees_the_quarantined_records(paths: PipelinePaths) -> None:
    rows = sorted(read_agreed(paths.quarantine), key=lambda row: str(row["raw"]))
    assert [row["raw"] for row in rows] == ["line 1", "line 2", "line 3", "line 4"]
    assert rows[0]["quarantined_at"] == NOON + timedelta(minutes=1)
    state = read_table_state(paths.quarantine, (QUERY,))
    assert state is not None
    assert state.txns == {QUERY: 1}
    assert read_table_state(paths.table) is None


def test_counts_by_run_source_and_reason_newest_first(paths: PipelinePaths) -> None:
    counts = list_quarantine(paths.quarantine)
    assert [(row["run_id"], row["source"], row["reason"], row["records"]) for row in counts] == [
        ("run-2", "rates", "malformed", 1),
        ("run-1", "trades", "price_positive", 1),
        ("run-1", "trades", "malformed", 2),
    ]
    assert counts[2]["first_at"] == "2026-01-31T12:01:00+00:00"
    assert counts[2]["last_at"] == "2026-01-31T12:02:00+00:00"
    assert counts[2]["example"] in ("line 1", "line 2")
    json.dumps(counts)


def test_counts_by_cause_with_an_example_of_each(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    wrong = [record(n, raw=f"date {n} " + "x" * 300, detail="at: not a TIMESTAMP") for n in range(3)]
    publish(paths, 0, [*wrong, record(4, raw="{", detail="not valid JSON")])
    counts = {row["detail"]: row for row in list_quarantine(paths.quarantine)}
    assert {cause: row["records"] for cause, row in counts.items()} == {"at: not a TIMESTAMP": 3, "not valid JSON": 1}
    assert counts["not valid JSON"]["example"] == "{"
    example = counts["at: not a TIMESTAMP"]["example"]
    assert example.startswith("date ") and len(example) == 200


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (QuarantineFilter(run_id="run-2"), ["line 4"]),
        (QuarantineFilter(reason="malformed"), ["line 4", "line 2", "line 1"]),
        (QuarantineFilter(reason="no such rule"), []),
    ],
)
def test_records_by_filter_newest_first(paths: PipelinePaths, wanted: QuarantineFilter, expected: list[str]) -> None:
    shown = show_quarantine(paths.quarantine, wanted)
    assert [row["raw"] for row in shown] == expected
    assert sum(row["records"] for row in list_quarantine(paths.quarantine, wanted)) == len(expected)


def test_shown_records_are_json_with_their_position(paths: PipelinePaths) -> None:
    (newest,) = show_quarantine(paths.quarantine, limit=1)
    assert newest["position"] == {"file": "in/x.json", "line": 4}
    json.dumps(newest)


def test_nothing_quarantined_is_nothing_listed(tmp_path: Path) -> None:
    assert list_quarantine(tmp_path / "none") == []
    assert show_quarantine(tmp_path / "none") == []


def test_raw_bytes_are_kept_readable(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    rows = [record(1, raw=b"caf\xc3\xa9 \xff\x00"), record(2, raw="a \udcff lone one"), record(3, raw=None)]
    assert write_quarantine_rows(path, rows) == 3
    assert pq.read_table(path)["raw"].to_pylist() == ["café \\xff\x00", "a \\udcff lone one", None]


def test_missing_columns_are_null_and_unknown_ones_refused(tmp_path: Path) -> None:
    write_quarantine_rows(tmp_path / "a.parquet", [{"raw": "x"}])
    assert pq.read_table(tmp_path / "a.parquet")["reason"].to_pylist() == [None]
    with pytest.raises(KeyError, match="colour"):
        write_quarantine_rows(tmp_path / "b.parquet", [{"colour": "red"}])


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    write_quarantine_rows(tmp_path / "a.parquet", [record(1)])
    with pytest.raises(FileExistsError):
        write_quarantine_rows(tmp_path / "a.parquet", [record(2)])
    assert pq.read_table(tmp_path / "a.parquet")["raw"].to_pylist() == ["line 1"]


def test_looking_at_a_large_table_holds_a_piece_of_it(tmp_path: Path) -> None:
    """80 MB of records, and no more than a fifth of them in memory at a time."""
    import pyarrow as pa

    paths = make_paths(tmp_path)
    raws = [secrets.token_hex(2048) for _ in range(100)]
    for batch in range(2):
        publish(paths, batch, [record(number % 1440, raw=raws[number % 100] + str(number)) for number in range(10_000)])
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        found = show_quarantine(paths.quarantine, limit=5)
        [counts] = list_quarantine(paths.quarantine)
    finally:
        pa.set_memory_pool(before)
    assert [row["position"]["line"] for row in found] == [1439] * 5
    assert counts["records"] == 20_000
    assert pool.max_memory() < 16 << 20, pool.max_memory()
