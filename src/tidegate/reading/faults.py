"""SQL that says why a text does not fit its columns: names of fields and types, never values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.sources.values.exact_values import literal
from tidegate.spec.ddl import Column as DdlColumn
from tidegate.spec.ddl import quote_column
from tidegate.words import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CORRUPT = "_tidegate_corrupt"
NAMED_AT_MOST, NAME_CHARACTERS = 64, 256
"""How many of a record's unknown fields are named: the record itself, which is kept, has them all."""


def list_faults(faults: str) -> str:
    """SQL: ``faults`` (ARRAY<STRUCT<path, fault>>) as one text, as many as are named; NULL when there are none."""
    one = f"concat(if(e.path = '', '', concat(left(e.path, {NAME_CHARACTERS}), ': ')), e.fault)"
    return f"nullif(array_join(transform(slice({faults}, 1, {NAMED_AT_MOST}), e -> {one}), '; '), '')"


def list_problems(problems: Sequence[tuple[str, str]], told: str) -> str:
    """SQL: those of ``problems`` (condition, what is said) that are so, but for columns of which ``told`` (SQL, a text)
    speaks already; NULL when there are none."""
    cases = ", ".join(f"CASE WHEN {condition} THEN {literal(text)} END" for condition, text in problems)
    is_told = f"contains(concat('; ', {told}), concat('; ', substring_index(p, ': ', 1), ': '))"
    return _name_some(f"filter(array_distinct(array_compact(array({cases}))), p -> NOT {is_told})")


def _name_some(texts: str) -> str:
    """SQL: ``texts`` (ARRAY<STRING>) as one text, as many as are named; NULL when there are none."""
    rest = f"if(size(a) > {NAMED_AT_MOST}, concat('; and ', size(a) - {NAMED_AT_MOST}, ' more'), '')"
    some = f"nullif(concat(array_join(slice(a, 1, {NAMED_AT_MOST}), '; '), {rest}), '')"
    return f"transform(array({texts}), a -> {some})[0]"


def range_problems(
    columns: Sequence[DdlColumn], value: str, root: str, *, says_infinite: Callable[[str], str]
) -> list[tuple[str, str]]:
    """Values that Spark reads and no other reader can show, or that are not what was written: (condition, text).
    ``says_infinite`` gives by a column's name the regular expression of records that say infinity in it: 1e400 does
    not."""
    problems = []
    for name, type_, _ in columns:
        field = _field(name, root)
        if type_ in ("float", "double"):
            says = literal(says_infinite(name))
            infinite = f"abs({field}) = CAST('Infinity' AS {type_})"
            problems.append((f"{infinite} AND NOT {value} RLIKE {says}", f"{name}: too large for {type_.upper()}"))
        elif type_ in ("date", "timestamp", "timestamp_ntz"):
            low, high = "0001-01-01", "9999-12-31"
            if type_ != "date":
                zone = "Z" if type_ == "timestamp" else ""
                low, high = f"{low} 00:00:00{zone}", f"{high} 23:59:59.999999{zone}"
            kind = type_.upper()
            outside = f"{field} < {kind}'{low}' OR {field} > {kind}'{high}'"
            problems.append((outside, f"{name}: {kind} outside the years 1 to 9999"))
        if type_ == "timestamp":
            # Spark multiplies a number by 10^6 = 2^6 * 15625 without a look at the overflow, so epoch microseconds can
            # land anywhere. Only what 64 divides and a whole second does not can be such a value: few are looked at.
            micros = f"unix_micros({field})"
            digits = literal(rf'"{escape_regex(name)}"\s*:\s*-?[0-9]{{13,}}')
            wrapped = f"{micros} % 64 = 0 AND {micros} % 1000000 != 0 AND {value} RLIKE {digits}"
            problems.append((wrapped, f"{name}: {kind} outside the years 1 to 9999"))
    return problems


def required_problems(columns: Sequence[DdlColumn], root: str) -> list[tuple[str, str]]:
    """NOT NULL columns without a value: (condition, text)."""
    return [
        (f"{_field(c.name, root)} IS NULL", f"{c.name}: missing or null, but NOT NULL")
        for c in columns
        if not c.nullable
    ]


def explain_json_fault(columns: Sequence[DdlColumn], value: str, options: Mapping[str, str], root: str) -> str:
    """SQL that names what is wrong with a corrupt record. Costs several parses, and only corrupt records pay them."""
    wrong = []
    for name, type_, _ in columns:
        held = f"m[{literal(name)}]"
        fault = f"{_field(name, root)} IS NULL AND {held} IS NOT NULL"
        wrong.append(f"CASE WHEN {fault} THEN {literal(does_not_fit(name, type_))} END")
        if type_.startswith(("struct", "array", "map")):
            alone = f"from_json(concat('{{\"c\":', {held}, '}}'), {literal(f'c {type_}, {CORRUPT} STRING')}, "
            alone += f"{write_map(make_permissive(options))}).{CORRUPT} IS NOT NULL"
            text = does_not_fit_inside(name, type_)
            wrong.append(f"CASE WHEN {_field(name, root)} IS NOT NULL AND {alone} THEN {literal(text)} END")
    named = _name_some(f"array_compact(array({', '.join(wrong)}))")
    schema = literal(f"{join_fields(columns, ' ')}, {CORRUPT} STRING")
    whole = f"from_json({value}, {schema}, {write_map(make_permissive(options))})"
    told = (
        f"transform(array({_as_map(value, options)}), m -> CASE "
        f"WHEN m IS NULL THEN 'not valid JSON' WHEN {whole}.{CORRUPT} IS NULL THEN 'text after the JSON object' "
        f"ELSE coalesce({named}, 'does not fit the schema') END)[0]"
    )
    return (
        f"(CASE WHEN trim({value}) = '' THEN 'empty' "
        f"WHEN NOT startswith(ltrim({value}), '{{') THEN 'not a JSON object' ELSE {told} END)"
    )


def explain_csv_fault(
    columns: Sequence[DdlColumn],
    value: str,
    options: Mapping[str, str],
    root: str,
    roots: Mapping[str, str] | None = None,
) -> str:
    """SQL that names what is wrong with the corrupt csv row in ``value``; ``root`` is the struct of what was parsed,
    but for the columns of ``roots`` {name: struct}."""
    roots = roots or {}
    strings = ", ".join(f"{quote_column(column.name)} STRING" for column in columns) + f", {CORRUPT} STRING"
    as_text = f"from_csv({value}, {literal(strings)}, {write_map(make_permissive(options))})"
    wrong = [
        f"CASE WHEN {_field(name, roots.get(name, root))} IS NULL AND s.{quote_column(name)} IS NOT NULL "
        f"THEN {literal(does_not_fit(name, type_))} END"
        for name, type_, _ in columns
    ]
    named = _name_some(f"array_compact(array({', '.join(wrong)}))")
    number = count_of(len(columns), "column")
    return (
        f"(CASE WHEN trim({value}) = '' THEN 'empty' ELSE transform(array({as_text}), s -> CASE "
        f"WHEN s IS NULL THEN 'not a CSV row' WHEN s.{CORRUPT} IS NOT NULL THEN 'not {number}' "
        f"ELSE coalesce({named}, 'does not fit the schema') END)[0] END)"
    )


def corrupt_tokens(
    spark: SparkSession, type_: str, tokens: Sequence[str], options: Mapping[str, str]
) -> frozenset[str]:
    """Those of some JSON values, each as it is written, that Spark does not take for a value of the type."""
    schema = literal(f"c {type_}, {CORRUPT} STRING")
    parsed = f"from_json(concat('{{\"c\":', t, '}}'), {schema}, {write_map(make_permissive(options))})"
    query = f"SELECT transform(from_json(:tokens, 'array<string>'), t -> {parsed}.{CORRUPT} IS NOT NULL) AS corrupt"
    [row] = spark.sql(query, args={"tokens": json.dumps(list(tokens))}).collect()
    return frozenset(token for token, is_corrupt in zip(tokens, row["corrupt"], strict=True) if is_corrupt)


def does_not_fit(path: str, type_: str) -> str:
    """What is said of a value that is not of its type."""
    return f"{path}: not {_article(type_)}"


def does_not_fit_inside(name: str, type_: str) -> str:
    """What is said of a nested column that has such a value."""
    return f"{name}: a value inside does not fit {type_}"


def _as_map(value: str, options: Mapping[str, str]) -> str:
    return f"from_json({value}, 'map<string,string>', {write_map(options)})"


def make_permissive(options: Mapping[str, str]) -> dict[str, str]:
    """The options with which Spark's parser gives a text that does not fit in the column :data:`CORRUPT`."""
    # With options Spark also parses the columns that nobody uses; without, it would miss the faults in them.
    return {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def write_map(options: Mapping[str, str]) -> str:
    """SQL: options as the functions of Spark take them."""
    pairs = [literal(text) for pair in options.items() for text in pair]
    return f"map({', '.join(pairs)})" if pairs else "map('mode', 'PERMISSIVE')"


def join_fields(columns: Sequence[DdlColumn], between: str) -> str:
    """DDL: names and types, with ``between`` each name and its type."""
    return ", ".join(f"{quote_column(name)}{between}{type_}" for name, type_, _ in columns)


def _article(type_: str) -> str:
    word = type_.split("<")[0].split("(")[0]
    return f"{'an' if word[0] in 'aeiou' else 'a'} {type_ if '<' in type_ else type_.upper()}"


def _field(name: str, root: str) -> str:
    return f"{root}.{quote_column(name)}"


def escape_regex(name: str) -> str:
    """A name as a regular expression that matches it alone."""
    return "".join(f"\\{letter}" if letter.isascii() and not letter.isalnum() else letter for letter in name)
