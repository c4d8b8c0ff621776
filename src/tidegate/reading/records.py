"""From the text of one record to columns, and to the reason where it does not fit: for Kafka values and lines of files.

What Spark 4.2's ``from_json`` lets pass in silence, each tried in tests/spark/test_parse.py, and what is done about it:
text after the object, such as a second one (only the first would be read: the record is parsed as the one value of an
outer object with a second field, which the parser must meet), NULL for an empty text, invalid UTF-8 (replaced by
U+FFFD), infinity for a number too large for its type, and dates beyond year 9999 (epoch milliseconds read as seconds),
which no other reader of the table could show. With ``values: exact`` a value that Spark would change makes the record
malformed: see :mod:`tidegate.sources.values.exact_json` and :mod:`tidegate.sources.values.exact_csv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.catalyst.private_api import read_number_symbols
from tidegate.reading.faults import (
    CORRUPT,
    NAME_CHARACTERS,
    NAMED_AT_MOST,
    escape_regex,
    explain_csv_fault,
    explain_json_fault,
    join_fields,
    list_faults,
    list_problems,
    make_permissive,
    range_problems,
    required_problems,
    write_map,
)
from tidegate.sources import bounds
from tidegate.sources.values import exact_csv, exact_json
from tidegate.sources.values.exact_values import Separators, literal
from tidegate.spec.ddl import Column as DdlColumn
from tidegate.spec.ddl import parse_ddl, quote_column
from tidegate.spec.ddl_tree import read_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PARSED, _KEYS, _BAD = "_tidegate_parsed", "_tidegate_unknown", "_tidegate_bad"
_DOUBT, _CLOSE, _FAULTS = "_tidegate_doubt", "_tidegate_close", "_tidegate_faults"
_RECORD, _END = "_tidegate_record", "_tidegate_end"
TOMBSTONE = "null value (tombstone)"


def parse_text(
    df: DataFrame,
    value_column: str,
    format: str,
    ddl_schema: str,
    options: Mapping[str, str],
    unknown_fields_policy: str,
    values: str = "exact",
    *,
    undecoded: str | None = None,
) -> DataFrame:
    """``df`` with the columns of ``ddl_schema`` parsed from ``value_column`` (STRING), and what is wrong with a record.

    ``format`` is json, csv or text (one STRING column). Added: the schema's columns; ``_rescued`` STRING with the
    policy ``rescue`` (JSON object of the unknown fields, or null); ``_malformed`` BOOLEAN, never null; ``_detail``
    STRING (why: names of fields, never values); ``_unknown`` ARRAY<STRING> (paths of the keys that the schema lacks,
    such as ``a.b`` and ``list[].c``; null when there are none). ``value_column`` becomes base64 where it is not valid
    UTF-8. Null texts are malformed, and blank ones too, but for ``text``. With ``values`` as_spark, values that Spark
    changes pass. The column ``undecoded``, which is not kept, says why a text is none at all, or is null.
    """
    columns = parse_ddl(ddl_schema)
    value = quote_column(value_column)
    exact = values == "exact"
    read = _read(df, format, columns, value, options, exact=exact)
    wrong, why = _explain(read, format, value, undecoded, unknown_fields_policy, exact=exact)
    # The reasons hold lambdas, which neither whole-stage code nor the search for common expressions takes in: good
    # records must not meet them.
    bad = " OR ".join(f"({condition})" for condition in wrong)
    parsed = read.parsed.select("*", F.expr(f"coalesce({bad}, false)").alias(_BAD))
    kept = [
        F.expr(f"CASE WHEN is_valid_utf8({value}) THEN {value} ELSE base64(CAST({value} AS BINARY)) END").alias(name)
        if name == value_column
        else F.col(quote_column(name))
        for name in df.columns
        if name != undecoded
    ]
    rescued: list[Column] = []
    if unknown_fields_policy == "rescue":
        picked = exact_json.pick_unknown(read_columns(columns), value, options)
        rescued = [F.expr(f"CASE WHEN {_KEYS} IS NOT NULL THEN to_json({picked}) END").alias("_rescued")]
    return parsed.select(
        *kept,
        *_data(format, columns, value),
        *rescued,
        F.col(_BAD).alias("_malformed"),
        F.expr(f"CASE WHEN {_BAD} THEN CASE {why} END END").alias("_detail"),
        F.col(_KEYS).alias("_unknown"),
    )


@dataclass(frozen=True)
class _Read:
    """Records as Spark's parser read them, with what it can say of those that do not fit."""

    parsed: DataFrame
    problems: Sequence[tuple[str, str]]
    """(SQL condition, SQL reason) of values that were read and do not fit."""
    why_corrupt: str
    """SQL: why a record was not read at all."""


def _read(
    df: DataFrame, format: str, columns: Sequence[DdlColumn], value: str, options: Mapping[str, str], *, exact: bool
) -> _Read:
    if format == "json":
        return _read_json(df, columns, value, options, exact=exact)
    if format == "csv":
        separators = separators_of(df.sparkSession, options)
        parsed = _look_closely(
            _parse_csv(df, value, columns, options), _close_csv(columns, value, options, separators) if exact else None
        )
        problems = range_problems(
            columns, value, _PARSED, says_infinite=lambda name: r"(?i)(?:^|[^a-z])inf"
        ) + required_problems(columns, _PARSED)
        return _Read(parsed, problems, explain_csv_fault(columns, value, options, _PARSED))
    if format == "text":
        parsed = df.select("*", F.expr(f"named_struct('{CORRUPT}', CAST(NULL AS STRING))").alias(_PARSED))
        return _Read(_look_closely(parsed, None), (), "")
    raise ValueError(f"no parser for format {format!r}")


def _read_json(
    df: DataFrame, columns: Sequence[DdlColumn], value: str, options: Mapping[str, str], *, exact: bool
) -> _Read:
    root, tree, separators = f"{_PARSED}.{_RECORD}", read_columns(columns), separators_of(df.sparkSession, options)
    doubt = exact_json.doubt(tree, value, options, separators)
    text = exact_json.keep_numbers(tree, value, f"({_DOUBT} = 2)") if exact else value
    text = f"CASE WHEN NOT ({_has_too_many_values(value)}) THEN {text} END"
    parsed = _parse_json(df.select("*", F.expr(doubt).alias(_DOUBT)), text, columns, options)
    close = exact_json.look_closely(tree, value, options, separators, exact=exact)
    sound = f"{root} IS NOT NULL AND {_PARSED}.{CORRUPT} IS NULL"
    at_top = f"WHEN {_DOUBT} = 1 AND {sound} THEN {exact_json.unknown_at_top(tree, value)}"
    parsed = _look_closely(parsed, f"CASE WHEN {_DOUBT} = 0 THEN NULL {at_top} WHEN {sound} THEN {close} END")
    problems = range_problems(
        columns, value, root, says_infinite=lambda name: rf'"{escape_regex(name)}"\s*:\s*"?[+-]?(?i:inf)'
    ) + required_problems(columns, root)
    return _Read(parsed, problems, explain_json_fault(columns, value, options, root))


def _explain(
    read: _Read, format: str, value: str, undecoded: str | None, unknown_fields_policy: str, *, exact: bool
) -> tuple[list[str], str]:
    """SQL: (conditions of which a malformed record meets one, the branches of the CASE that says why)."""
    no_text, no_utf8 = f"{value} IS NULL", f"NOT is_valid_utf8({value})"
    wrong = [no_text, no_utf8, *(condition for condition, _ in read.problems)]
    why = f"WHEN {no_text} THEN '{TOMBSTONE}' WHEN {no_utf8} THEN 'not valid UTF-8'"
    if undecoded is not None:
        wrong.append(f"{undecoded} IS NOT NULL")
        why = f"WHEN {undecoded} IS NOT NULL THEN {undecoded} {why}"
    if format == "json":
        limit = f"too many values for one record; the limit is {bounds.MANY_VALUES:,}"
        why += (
            f" WHEN {_has_too_many_values(value)} THEN concat(format_number({_commas(value)}, 0), ' commas, {limit}')"
        )
    first, more = ["NULL"], list[str]()
    if format != "text":
        is_corrupt = _is_corrupt(format, value)
        wrong.append(is_corrupt)
        first.append(f"CASE WHEN {is_corrupt} THEN {read.why_corrupt} END")
        if read.problems:
            # What was not read at all says nothing of single values.
            listed = list_problems(read.problems, "b")
            more.append(f"CASE WHEN NOT ({is_corrupt}) OR contains(b, ': ') THEN {listed} END")
        if exact:
            wrong.append(f"{_FAULTS} IS NOT NULL")
            first.append(list_faults(_FAULTS))
    if format == "json" and unknown_fields_policy == "quarantine":
        some = f"array_join(transform(slice({_KEYS}, 1, {NAMED_AT_MOST}), k -> left(k, {NAME_CHARACTERS})), ', ')"
        rest = f"if(size({_KEYS}) > {NAMED_AT_MOST}, concat(' and ', size({_KEYS}) - {NAMED_AT_MOST}, ' more'), '')"
        wrong.append(f"{_KEYS} IS NOT NULL")
        more.append(f"CASE WHEN {_KEYS} IS NOT NULL THEN concat('fields that the schema lacks: ', {some}, {rest}) END")
    all_of_it = ", ".join(["nullif(b, '')", *more])
    named = f"transform(array(concat_ws('; ', {', '.join(first)})), b -> concat_ws('; ', {all_of_it}))[0]"
    return wrong, f"{why} ELSE coalesce(nullif({named}, ''), 'does not fit the schema')"


def _commas(value: str) -> str:
    """SQL: the commas of a text."""
    return f"(octet_length({value}) - octet_length(replace({value}, ',', '')))"


def _has_too_many_values(value: str) -> str:
    """SQL: whether a JSON text may be an array too large to parse; commas are counted in long texts only."""
    return f"coalesce(octet_length({value}) > {bounds.MANY_VALUES} AND {_commas(value)} > {bounds.MANY_VALUES}, false)"


def _parse_json(df: DataFrame, value: str, columns: Sequence[DdlColumn], options: Mapping[str, str]) -> DataFrame:
    schema = f"{_RECORD} STRUCT<{join_fields(columns, ': ')}>, {_END} INT, {CORRUPT} STRING"
    wrapped = F.concat(F.lit(f'{{"{_RECORD}":'), F.expr(value), F.lit(f',"{_END}":0}}'))
    return df.select("*", F.from_json(wrapped, schema, make_permissive(options)).alias(_PARSED))


def _parse_csv(df: DataFrame, value: str, columns: Sequence[DdlColumn], options: Mapping[str, str]) -> DataFrame:
    schema = f"{join_fields(columns, ' ')}, {CORRUPT} STRING"
    return df.select("*", F.from_csv(F.expr(value), schema, make_permissive(options)).alias(_PARSED))


def _is_corrupt(format_: str, value: str) -> str:
    if format_ == "csv":
        return f"{_PARSED} IS NULL OR {_PARSED}.{CORRUPT} IS NOT NULL OR trim({value}) = ''"
    return f"{_PARSED}.{_RECORD} IS NULL OR {_PARSED}.{_END} IS NULL OR {_PARSED}.{CORRUPT} IS NOT NULL"


def _data(format_: str, columns: Sequence[DdlColumn], value: str) -> list[Column]:
    if format_ == "text":
        return [F.expr(f"CASE WHEN is_valid_utf8({value}) THEN {value} END").alias(columns[0].name)]
    root = F.col(_PARSED)[_RECORD] if format_ == "json" else F.col(_PARSED)
    return [root.getField(column.name).alias(column.name) for column in columns]


def separators_of(spark: SparkSession, options: Mapping[str, str]) -> Separators:
    """How the locale of ``options`` writes numbers; without one, a point and no groups."""
    if "locale" not in options:
        return Separators()
    return Separators(*read_number_symbols(spark, options["locale"]))


def _close_csv(
    columns: Sequence[DdlColumn], value: str, options: Mapping[str, str], separators: Separators
) -> str | None:
    strings = ", ".join(f"{quote_column(column.name)} STRING" for column in columns)
    faults = exact_csv.describe_row(columns, "s", options, separators)
    if faults is None:
        return None
    as_text = f"from_csv({value}, {literal(strings)}, {write_map(options)})"
    pattern = exact_csv.plain_row(columns, options, separators)
    plain = "false" if pattern is None else f"{value} RLIKE {literal(pattern)}"
    looked = f"transform(array({as_text}), s -> {faults})[0]"
    return f"CASE WHEN NOT {plain} AND {_PARSED}.{CORRUPT} IS NULL THEN {looked} END"


def _look_closely(parsed: DataFrame, close: str | None) -> DataFrame:
    """``parsed`` with the unknown keys and the faults that ``close`` (SQL, paths with faults) finds, null when none."""
    if close is None:
        return parsed.select(
            "*",
            F.expr("CAST(NULL AS ARRAY<STRING>)").alias(_KEYS),
            F.expr("CAST(NULL AS ARRAY<STRUCT<path: STRING, fault: STRING>>)").alias(_FAULTS),
        )
    parsed = parsed.select("*", F.expr(close).alias(_CLOSE))
    unknown = f"filter({_CLOSE}, e -> e.fault IS NULL)"
    faults = f"filter({_CLOSE}, e -> e.fault IS NOT NULL)"
    has = f"{_CLOSE} IS NOT NULL AND exists({_CLOSE}, e -> e.fault IS"
    return parsed.select(
        "*",
        F.expr(f"CASE WHEN {has} NULL) THEN array_distinct({unknown}.path) END").alias(_KEYS),
        F.expr(f"CASE WHEN {has} NOT NULL) THEN array_distinct({faults}) END").alias(_FAULTS),
    )
