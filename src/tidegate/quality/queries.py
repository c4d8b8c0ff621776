"""Custom SQL: DuckDB counts the rows that a rule's query finds in an increment, or in the table after its publish.

Great Expectations runs ``unexpected_rows_expectation`` in a database. An increment is parquet files, which DuckDB reads
in this process, without a JVM, in bounded memory. A query is one SELECT: it can read the files of its two views and no
other file, changes none, and reaches no network.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.process.machine import now_text
from tidegate.quality.engine import PANDAS_MEMORY_BYTES, RuleResult, StagedInput, hide_values
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.spec.faults import Fault, SpecError
from tidegate.table.schema import fields_of
from tidegate.table.upsert.columns import UpsertColumns

_BATCH, _TABLE, _OTHERS = "batch", "published", "others"
_TYPES = {
    "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR", "binary": "BLOB", "date": "DATE",
    "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
_FIRST_LINE_SECONDS = 10.0
_EXCERPT_AT_MOST = 40
_PLACE = re.compile(r"\n\n(?P<line>LINE (?P<number>\d+): )(?P<shown>.*)\n(?P<caret> *)\^[\^~]*\s*\Z")
_OF_THE_QUERY = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
_OF_VALUES = (
    *(duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.NotImplementedException),
    *(duckdb.PermissionException, duckdb.IOException, duckdb.OutOfMemoryException),
)
"""Their texts have values of rows in quotes or as numbers. Others have them as they are."""
_HARMLESS = "Invalid Input Error: More than one row returned by a subquery"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Relation:
    """The rows of parquet files, and the schema (a Spark schema string) that they are read with."""

    schema_json: str
    files: Sequence[StagedInput] = ()
    replaced_by: UpsertColumns = field(default_factory=UpsertColumns)
    """Of the other files of a table: by these columns rows of the increment replace theirs."""


def judge_queries(
    suite: SuiteSpec, batch: Relation, others: Relation | None, spill: Path | None = None
) -> list[RuleResult]:
    """Count the rows that the query of each rule of ``suite``, all of which are custom SQL, finds.

    Args:
        suite: The rules.
        batch: The increment.
        others: The files of the table that remain next to the increment; None where no rule reads the table.
        spill: The folder for rows that do not fit in memory, which DuckDB makes when it needs it, and removes.

    Returns:
        One result per rule, in their order.

    Raises:
        UsageError: BAD_SUITE, where a query is not one SELECT, or fails.
    """
    if faults := find_query_faults(suite):
        raise SpecError(faults, fix=f"tidegate validate {suite.name}")
    with _open(batch, others, spill) as connection:
        return [_judge(connection, rule) for rule in suite.rules]


def find_query_faults(suite: SuiteSpec) -> list[Fault]:
    """List the queries of a suite that are not one SELECT in DuckDB's SQL on the increment or the table."""
    with duckdb.connect(":memory:") as connection:
        found = [(rule, _find_fault(connection, rule)) for rule in suite.queries]
    return [_fault(suite, rule, fault) for rule, fault in found if fault]


def _find_fault(connection: duckdb.DuckDBPyConnection, rule: RuleSpec) -> str:
    query = _fill(rule)
    try:
        kinds = [statement.type.name for statement in duckdb.extract_statements(query)]
    except duckdb.Error as error:
        return f"DuckDB cannot parse the query: {_explain(error, query, query)}"
    if kinds == ["SELECT"] and _describes(connection, query):
        kinds = ["DESCRIBE, SHOW or SUMMARIZE"]
    if kinds != ["SELECT"]:
        return f"the query must be one SELECT, and is {', '.join(kinds) or 'empty'}"
    if not (rule.reads_batch or rule.reads_table):
        return (
            "the query reads neither {batch}, the increment, nor {table}, the table after the publish, and there is "
            "nothing else that it can read"
        )
    return ""


def _describes(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Whether a statement that DuckDB takes for a SELECT gives columns or figures in the place of rows."""
    found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    assert found is not None
    statements = json.loads(found[0]).get("statements", [])
    return any((one["node"].get("from_table") or {}).get("type") == "SHOW_REF" for one in statements)


def find_column_faults(suite: SuiteSpec, schema_json: str, table_schema_json: str | None) -> list[Fault]:
    """List the queries that cannot run on rows of such columns: unknown names, values of other types."""
    faults = []
    with _open(Relation(schema_json), Relation(table_schema_json or schema_json)) as connection:
        for rule in suite.queries:
            sql = f"EXPLAIN {_count(rule)}"
            try:
                connection.execute(sql)
            except duckdb.Error as error:
                faults.append(_fault(suite, rule, f"DuckDB refuses the query: {_explain(error, sql, _fill(rule))}"))
    return faults


def _fault(suite: SuiteSpec, rule: RuleSpec, message: str) -> Fault:
    where = "kwargs.unexpected_rows_query"
    fix = "correct the query; a column whose name is a word of SQL needs double quotes"
    return Fault(suite.file, rule.line, where, f"rule {rule.rule!r}: {message}", fix, "BAD_SUITE")


def _judge(connection: duckdb.DuckDBPyConnection, rule: RuleSpec) -> RuleResult:
    sql = _count(rule)
    try:
        [count] = _run(connection, rule, sql)
    except duckdb.Error as error:
        fault = f"could not be evaluated: {_explain(error, sql, _fill(rule))}"
        raise rule.to_error(fault) from None
    return RuleResult(rule.rule, rule.type, rule.severity, success=count == 0, unexpected_count=count)


def _run(connection: duckdb.DuckDBPyConnection, rule: RuleSpec, sql: str) -> tuple[int]:
    """Run a query in a thread: DuckDB handles no signal, and one that ends this process must end the query at once.

    While it runs, lines say so, each after twice the time of the line before."""
    began, since, pause = time.monotonic(), now_text(), _FIRST_LINE_SECONDS
    with ThreadPoolExecutor(1) as pool:
        row = pool.submit(lambda: connection.execute(sql).fetchone())
        try:
            while not wait([row], pause).done:
                taken = time.monotonic() - began
                _log.warning("audit: rule %r has taken %.0f s so far, since %s", rule.rule, taken, since)
                pause = taken
            found: tuple[int] = row.result()
            return found
        except BaseException as error:
            connection.interrupt()
            if isinstance(error, TidegateError):  # of a signal
                error.where = ", ".join(filter(None, (f"rule {rule.rule!r}, since {since}", error.where)))
            raise


def _fill(rule: RuleSpec) -> str:
    return rule.kwargs["unexpected_rows_query"].format(batch=_BATCH, table=_TABLE).rstrip("; \t\r\n")


def _count(rule: RuleSpec) -> str:
    return f"SELECT count(*) FROM (\n{_fill(rule)}\n) AS unexpected"


@contextmanager
def _open(batch: Relation, others: Relation | None, spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory with both views, which reads their files alone."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET memory_limit = '{PANDAS_MEMORY_BYTES // 2**20}MiB'")
        connection.execute(f"SET temp_directory = {_text(str(spill or ''))}")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"SET allowed_paths = {_list_paths([*batch.files, *(others.files if others else ())])}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        _add_view(connection, _BATCH, batch)
        if others is not None:
            _add_view(connection, _OTHERS, others)
            connection.execute(f"CREATE VIEW {_TABLE} AS {_select_after(others.replaced_by)}")
        yield connection


def _select_after(columns: UpsertColumns) -> str:
    """The table after the publish: as :func:`tidegate.table.upsert.merge.replace_rows` has it."""
    if not columns.keys:
        return f"SELECT * FROM {_OTHERS} UNION ALL BY NAME SELECT * FROM {_BATCH}"
    same = " AND ".join(f"b.{_name(key)} IS NOT DISTINCT FROM o.{_name(key)}" for key in columns.keys)
    is_newer = f"{_rank('o', columns.order)} > {_rank('b', columns.order)}" if columns.order else "false"
    return (
        f"SELECT * FROM {_OTHERS} AS o WHERE NOT EXISTS (FROM {_BATCH} AS b WHERE {same} AND NOT {is_newer}) "
        "UNION ALL BY NAME "
        f"SELECT * FROM {_BATCH} AS b WHERE NOT EXISTS (FROM {_OTHERS} AS o WHERE {same} AND {is_newer})"
    )


def _rank(row: str, order: Mapping[str, str]) -> str:
    """The values of a row by which it is newer; NULL and NaN are less than any value."""
    parts = []
    for column, kind in order.items():
        value = f"{row}.{_name(column)}"
        if kind in ("float", "double"):
            value = f"NULLIF({value}, 'NaN')"
        parts += [f"{value} IS NOT NULL", value]
    return f"ROW({', '.join(parts)})"


def _add_view(connection: duckdb.DuckDBPyConnection, name: str, relation: Relation) -> None:
    """Make a view of a relation. Columns have the types of the schema, and are null where a file lacks them."""
    fields = {field["name"]: _type(field["type"]) for field in fields_of(relation.schema_json)}
    source, stored = "(SELECT 1) WHERE false", set[str]()
    partitioned = list(relation.files[0][1]) if relation.files else []
    if relation.files:
        read = f"read_parquet({_list_paths(relation.files)}, union_by_name = true, hive_partitioning = false"
        stored = {row[0].lower() for row in connection.execute(f"DESCRIBE SELECT * FROM {read})").fetchall()}
        source = f"{read}, filename = '__file') AS f"
        if partitioned:
            columns = ", ".join(f"{_name(column)} VARCHAR" for column in partitioned)
            connection.execute(f"CREATE TABLE {name}_files (__file VARCHAR, {columns})")
            rows = [
                [storage.address(path), *(there[one] or None for one in partitioned)] for path, there in relation.files
            ]
            marks = ", ".join("?" for _ in range(len(partitioned) + 1))
            connection.executemany(f"INSERT INTO {name}_files VALUES ({marks})", rows)
            source += f" JOIN {name}_files AS p ON p.__file = f.__file"
    selected = []
    for column, kind in fields.items():
        place = "p." if column in partitioned else "f." if column.lower() in stored else None
        value = "NULL" if place is None else f"{place}{_name(column)}"
        if place == "f." and ("FLOAT" in kind or "DOUBLE" in kind):
            # DuckDB trusts a footer's least and greatest value, which do not count NaN: it must not see through this.
            value = f"CASE WHEN {value} IS NULL THEN NULL ELSE {value} END"
        selected.append(f"CAST({value} AS {kind}) AS {_name(column)}")
    connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(selected)} FROM {source}")


def _type(kind: object) -> str:
    """DuckDB's name of a type in a Spark schema string."""
    if isinstance(kind, str):
        return kind if kind.startswith("decimal") else _TYPES[kind]
    assert isinstance(kind, Mapping)
    if kind["type"] == "array":
        return f"{_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({_type(kind['keyType'])}, {_type(kind['valueType'])})"
    inside = ", ".join(f"{_name(one['name'])} {_type(one['type'])}" for one in kind["fields"])
    return f"STRUCT({inside})"


def _list_paths(files: Sequence[StagedInput]) -> str:
    return f"[{', '.join(_text(storage.address(path)) for path, _ in files)}]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _explain(error: duckdb.Error, sql: str, query: str) -> str:
    """What DuckDB says of ``sql``, and after which part of ``query``, which ``sql`` contains; no value of a row."""
    text = str(error)
    place = _PLACE.search(text)
    message = text if place is None else text[: place.start()]
    if not isinstance(error, _OF_THE_QUERY):
        is_known = isinstance(error, _OF_VALUES) or message.startswith(_HARMLESS)
        kind = message.partition(":")[0]
        message = hide_values(message) if is_known else f"{kind}, whose text may contain values of rows"
    message = " ".join(message.split("\n\n", 1)[0].split())
    if place is None:
        return message
    shown, caret = place["shown"], len(place["caret"]) - len(place["line"])
    before = shown[:caret].removeprefix("...")
    if not before.strip():
        before = shown.removeprefix("...")
    excerpt, line = before[-_EXCERPT_AT_MOST:].strip(), int(place["number"]) - sql[: sql.index(query)].count("\n")
    if not excerpt or excerpt not in query:
        return message
    return f"{message} ({'after' if shown[:caret].strip() else 'at'} `{excerpt}`, line {line} of the query)"
