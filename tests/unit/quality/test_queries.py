"""Custom SQL on parquet files: the counts against plain Python, and what a query cannot do."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.staged import Stager, make_paths, make_schema
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.quality.gx_types import QUERY_TYPE
from tidegate.quality.queries import Relation, find_column_faults, find_query_faults, judge_queries
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.spec.faults import SpecError
from tidegate.table.upsert.columns import UpsertColumns

_START = datetime(2026, 3, 1, tzinfo=UTC)
COLUMNS = {
    "id": "long", "n": "integer", "x": "double", "price": "decimal(10,2)", "seen": "timestamp", "on": "date",
    "ok": "boolean", "raw": "binary", "tags": "headers", "inside": "reading", "day": "string",
}  # fmt: skip


def make_row(number: int) -> dict[str, Any]:
    return {
        "id": None if number % 11 == 0 else number,
        "n": number % 7,
        "x": math.nan if number % 13 == 0 else number / 3,
        "price": None if number % 5 == 0 else Decimal(number) / 100,
        "seen": _START + timedelta(hours=number, microseconds=number),
        "on": date(2026, 3, 1) + timedelta(days=number % 4),
        "ok": number % 3 == 0,
        "raw": bytes([number % 256]),
        "tags": [{"key": f"k{number % 2}", "value": b"v"}] * (number % 3),
        "inside": {"y": math.nan if number % 13 == 0 else 0.5},
        "day": ["01", "a'b", "x=[y]*", ""][number % 4] or None,
    }


ROWS = [make_row(number) for number in range(1, 200)]


FILE = "expectations/orders.yaml"


def rule(query: str, **more: Any) -> RuleSpec:
    return RuleSpec("custom", QUERY_TYPE, {"unexpected_rows_query": query}, **more)


def suite(query: str) -> SuiteSpec:
    return SuiteSpec("orders", (rule(query, line=3, file=FILE),), FILE)


@pytest.fixture
def batch(tmp_path: Path) -> Relation:
    """Rows in several files and partitions, below a folder whose name has the characters of globs and quotes."""
    paths = make_paths(tmp_path / "it's [a]*")
    manifest = Stager(paths, COLUMNS, ["day"]).stage(0, ROWS, files=2)
    return Relation(manifest.schema_json, [(paths.state / file.path, file.partition) for file in manifest.files])


def count(query: str, batch: Relation, others: Relation | None = None) -> int | None:
    [result] = judge_queries(suite(query), batch, others)
    assert result.success is (result.unexpected_count == 0)
    return result.unexpected_count


@pytest.mark.parametrize(
    ("where", "is_found"),
    [
        (
            "price IS NULL OR price * 100 <> id",
            lambda r: r["price"] is None or (r["id"] and r["price"] * 100 != r["id"]),
        ),
        ("price = 0.07 AND typeof(price) = 'DECIMAL(10,2)'", lambda r: r["price"] == Decimal("0.07")),
        ("isnan(x)", lambda r: math.isnan(r["x"])),
        ("x > 1000", lambda r: math.isnan(r["x"])),
        ("inside.y = 'NaN'::DOUBLE", lambda r: math.isnan(r["x"])),
        ("x = (SELECT max(x) FROM {batch})", lambda r: math.isnan(r["x"])),
        ("seen >= TIMESTAMPTZ '2026-03-03 00:00:00Z'", lambda r: r["seen"] >= datetime(2026, 3, 3, tzinfo=UTC)),
        ("hour(seen) = 23", lambda r: r["seen"].hour == 23),
        ('"on" <> CAST(seen AS DATE)', lambda r: r["on"] != r["seen"].date()),
        ("ok AND n > 3", lambda r: r["ok"] and r["n"] > 3),
        ("raw = '\\x05'::BLOB", lambda r: r["raw"] == b"\5"),
        ("len(list_filter(tags, lambda t: t.key = 'k1')) = 2", lambda r: [t["key"] for t in r["tags"]] == ["k1"] * 2),
        ("day = '01'", lambda r: r["day"] == "01"),
        ("day = 'x=[y]*' OR day IS NULL", lambda r: r["day"] in ("x=[y]*", None)),
        ("false", lambda r: False),
    ],
)
def test_a_query_finds_the_rows_that_python_finds(batch: Relation, where: str, is_found: Any) -> None:
    expected = sum(bool(is_found(row)) for row in ROWS)
    assert count(f"SELECT * FROM {{batch}} WHERE {where} -- to the end;", batch) == expected
    assert expected > 0 or where == "false"


def test_a_query_may_group_join_and_have_braces(batch: Relation) -> None:
    assert count("WITH g AS (SELECT n FROM {batch} GROUP BY n HAVING count(*) > 28) SELECT * FROM g;", batch) == 3
    assert count("SELECT {{'a': n}} AS s FROM {batch} AS b WHERE b.n = 0 ORDER BY id LIMIT 3", batch) == 3
    assert count("SELECT 1 FROM {batch} HAVING count(*) < 1000", batch) == 1


def test_the_table_is_its_remaining_files_and_the_increment(batch: Relation, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2, 500, None], pa.int32()), "old": ["a"] * 4}), tmp_path / "t.parquet")
    there = Relation(make_schema(id="integer", old="string"), [(tmp_path / "t.parquet", {})])
    nulls = sum(row["id"] is None for row in ROWS)
    assert count("SELECT id FROM {table} WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1", batch, there) == 2
    assert count("SELECT * FROM {table}", batch, there) == len(ROWS) + 4
    assert count("SELECT * FROM {table} WHERE old = 'a' AND day IS NULL", batch, there) == 4
    by_key = Relation(there.schema_json, there.files, UpsertColumns({"id": "long"}))
    assert count("SELECT * FROM {table} WHERE old IS NOT NULL", batch, by_key) == 1  # 500: NULL replaces NULL
    assert count("SELECT * FROM {table} WHERE id IS NULL", batch, by_key) == nulls
    assert (
        count("SELECT * FROM {batch} JOIN {table} USING (id)", batch, Relation(there.schema_json)) == len(ROWS) - nulls
    )


def test_an_increment_without_rows_has_its_columns() -> None:
    nothing = Relation(make_schema(**COLUMNS))
    assert count("SELECT tags[1].key, price FROM {batch} WHERE seen > now()", nothing) == 0
    assert count("SELECT count(*) AS rows FROM {batch} HAVING rows = 0", nothing) == 1


@pytest.mark.parametrize(
    "source", ["read_text('/etc/passwd')", "'{other}'", "glob('/etc/*')", "'https://example.org/a.parquet'"]
)
def test_a_query_reads_no_other_file(batch: Relation, source: str, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(UsageError, match=r"BAD_SUITE.*custom.*file system operations are disabled"):
        count(f"SELECT * FROM {{batch}}, {source.format(other=other)}", batch)


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELEC * FROM {batch}", 'DuckDB cannot parse the query: Parser Error: syntax error at or near "SELEC"'),
        ("COPY (SELECT * FROM {batch}) TO '/tmp/x'", "must be one SELECT, and is COPY"),
        (
            "SELECT id FROM {batch}\nWHERE id > 0 ORDER BY at, id",
            'near "," (after `WHERE id > 0 ORDER BY at`, line 2 of the query)',
        ),
        (
            "SELECT " + "n, " * 99 + "FROM {batch} ORDER BY at, " + "n, " * 99,
            "(after `n, n, n, n, n, n, FROM batch ORDER BY at`, line 1 of the query)",
        ),
        ("SELECT 'abc FROM {batch}", "unterminated string literal (after `SELECT`, line 1 of the query)"),
        ("DESCRIBE SELECT * FROM {batch}", "must be one SELECT, and is DESCRIBE, SHOW or SUMMARIZE"),
        ("-- columns\n(SUMMARIZE {batch})", "must be one SELECT, and is DESCRIBE, SHOW or SUMMARIZE"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "must be one SELECT, and is INSERT"),
        ("SET memory_limit = '20GB'", "must be one SELECT, and is SET"),
        ("ATTACH '/tmp/x.db'", "must be one SELECT, and is ATTACH"),
        ("SELECT * FROM read_csv('/etc/passwd')", "and there is nothing else that it can read"),
        ("SELECT 1", "reads neither {batch}, the increment, nor {table}, the table after the publish"),
        ("SELECT 1 FROM {batch}; DROP VIEW batch", "must be one SELECT, and is SELECT, DROP"),
        ("SELECT 1 FROM {batch}) AS a; DELETE FROM {batch}; SELECT (1", "cannot parse"),
        ("-- {batch}", "must be one SELECT, and is empty"),
    ],
)
def test_a_query_is_one_select(query: str, fault: str) -> None:
    [found] = find_query_faults(suite(query))
    assert fault in found.message, found.message
    with pytest.raises(SpecError, match="BAD_SUITE"):
        judge_queries(suite(query), Relation(make_schema(**COLUMNS)), None)
    assert (found.file, found.line) == ("expectations/orders.yaml", 3)


def test_a_query_fits_the_columns() -> None:
    schema, table = make_schema(**COLUMNS), make_schema(id="long", old="string")
    assert find_column_faults(suite("SELECT old, id FROM {table} WHERE tags[1].key = 'a'"), schema, table) == []
    [found] = find_column_faults(suite("SELECT prise FROM {batch}"), schema, None)
    assert 'Referenced column "prise" not found' in found.message and 'Candidate bindings: "price"' in found.message
    [found] = find_column_faults(suite("SELECT * FROM {batch} WHERE list_sum(n) > 1"), schema, None)
    assert "No function matches" in found.message


@pytest.mark.parametrize(
    ("value", "info"),
    [
        ("CAST(day AS INTEGER)", "Could not convert string '...' to INT32"),
        ("CAST(day || '\n\n' || id AS INTEGER)", "Could not convert string '...' to INT32"),
        ("CAST(id + 86361600 AS TINYINT)", "Type INT64 with value ... can't be cast"),
        ("CAST(86361600 * price AS DECIMAL(5, 2))", "Casting value '...' to type DECIMAL(...)"),
        ("price * price * price * price * price * price * price * price * price * price", "DECIMAL(...) (... * ...)"),
        ("make_date(86361600 + id::INTEGER, 1, 1)", "Date out of range: ..."),
        ("error('a secret ' || id)", "(custom) ... Invalid Input Error, whose text may contain values of rows"),
        ("strptime(day || 'secret', '%Y')", "Invalid Input Error, whose text may contain values of rows"),
        ("(SELECT id FROM {batch})", "Invalid Input Error: More than one row returned by a subquery"),
    ],
)
def test_no_value_of_a_row_is_in_an_error(batch: Relation, value: str, info: str) -> None:
    with pytest.raises(UsageError) as raised:
        count(f"SELECT * FROM {{batch}}\nWHERE {value} IS NULL", batch)
    error = raised.value
    assert error.code == "BAD_SUITE" and error.where == "expectations/orders.yaml, line 3"
    assert info.partition("(custom) ... ")[2] or info in error.message, error.message
    told = error.message.replace(value.format(batch="batch"), "")
    assert not any(text in told for text in ("a'b", "secret", "863616", "x=[y]", "\n")), error.message


def test_an_error_of_a_value_says_where_in_the_query(batch: Relation) -> None:
    with pytest.raises(UsageError, match=r"\(after `WHERE n > 100 OR`, line 2 of the query\)"):
        count("SELECT * FROM {batch}\nWHERE n > 100 OR CAST(day AS INTEGER) > 5", batch)


def test_rows_that_do_not_fit_in_memory_are_spilled_where_the_caller_says(
    batch: Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.quality.queries.PANDAS_MEMORY_BYTES", 60 << 20)
    many = "SELECT i FROM range(6000000) AS r(i) GROUP BY i HAVING count(*) > 1 OR i = (SELECT max(id) FROM {batch})"
    with pytest.raises(UsageError, match="Out of Memory Error"):
        judge_queries(suite(many), batch, None)
    [result] = judge_queries(suite(many), batch, None, tmp_path / "spill")
    assert result.unexpected_count == 1 and not (tmp_path / "spill").exists()


LONG = "SELECT * FROM {batch}, range(100000000000) AS r(i) WHERE hash(i) % 7 = 8"


def test_a_signal_ends_a_query_at_once(
    batch: Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(*_: object) -> None:
        raise TryAgainError("STOPPED", "stopped", where="project here")

    class Stopper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if len(caplog.messages) == 2:
                timer.start()

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    monkeypatch.setattr("tidegate.quality.queries._FIRST_LINE_SECONDS", 0.1)
    before = signal.signal(signal.SIGTERM, stop)
    logger, handler = logging.getLogger("tidegate.quality.queries"), Stopper()
    logger.addHandler(handler)
    try:
        began = datetime.now(UTC)
        with pytest.raises(TryAgainError) as raised:
            judge_queries(suite(LONG), batch, None, tmp_path / "spill")
        assert datetime.now(UTC) - began < timedelta(seconds=4)
    finally:
        logger.removeHandler(handler)
        signal.signal(signal.SIGTERM, before)
        timer.join()
    assert re.fullmatch(r"rule 'custom', since 2\S+, project here", raised.value.where or "")
    assert re.match(r"audit: rule 'custom' has taken 0 s so far, since 2\S+$", caplog.messages[0])
    assert not (tmp_path / "spill").exists()
