"""Columns of parquet and orc files, from their footers: those the schema lacks, and those that do not fit it.

Spark fails on most types that do not fit, but not on all: it cuts a wide integer down to TINYINT, takes an unsigned one
for signed, and reads a text in an INT column of an orc file as null (each tried on Spark 4.2.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.spec.ddl import Column, parse_ddl
from tidegate.spec.models import FilesSource

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class Footer:
    """What a file's footer says: columns that the schema lacks, and why the file cannot be read as the schema wants."""

    unknown: tuple[str, ...] = ()
    fault: str | None = None


def read_footers(intake: Path, links: Iterable[str], spec: FilesSource) -> dict[str, Footer]:
    """{link: its footer} for parquet and orc; files without anything to tell, and other formats, are left out."""
    if spec.format not in ("parquet", "orc") or spec.schema_ is None:
        return {}
    columns = parse_ddl(spec.schema_)
    known = {column.name.lower() for column in columns}
    footers = {}
    for link in links:
        found = _read_columns(intake / link, spec.format)
        if isinstance(found, str):
            footers[link] = Footer(fault=found)
            continue
        unknown = tuple(name for name in found if name.lower() not in known)
        fault = _describe_misfit(found, columns)
        if unknown or fault:
            footers[link] = Footer(unknown, fault)
    return footers


def find_conflicts(folder: Path, links: Mapping[str, str], kind: str) -> str | None:
    """The columns that files of ``folder`` hold in different types, with a file for each; None for formats whose files
    do not tell. ``links`` maps the files to the paths that the user knows."""
    if kind not in ("parquet", "orc"):
        return None
    seen: dict[str, dict[str, str]] = {}
    for link, path in links.items():
        columns = _read_columns(folder / link, kind)
        for name, found in columns.items() if isinstance(columns, dict) else ():
            seen.setdefault(name, {}).setdefault(str(found), path)
    told = [
        f"{name} is " + " and ".join(f"{found} in {path}" for found, path in kinds.items())
        for name, kinds in seen.items()
        if len(kinds) > 1
    ]
    return "; ".join(told) or None


def _read_columns(path: Path, kind: str) -> dict[str, Any] | str:
    """{name: arrow type} of the top-level columns, or why the footer cannot be read. Empty where only Spark can tell:
    the file is away, or has a type that is unknown here."""
    import pyarrow as pa

    schema: Any
    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
        else:
            from pyarrow import orc

            schema = orc.ORCFile(str(path)).schema
    except pa.ArrowNotImplementedError:
        return {}
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            return {}
        return f"not a readable {kind} file: {str(error).splitlines()[0]}"
    return {field.name: field.type for field in schema}


def _describe_misfit(found: dict[str, Any], columns: Sequence[Column]) -> str | None:
    by_name = {name.lower(): kind for name, kind in found.items()}
    wrong = [
        f"{column.name} is {by_name[column.name.lower()]}, the schema wants {column.type.upper()}"
        for column in columns
        if column.name.lower() in by_name and not fits_type(by_name[column.name.lower()], column.type)
    ]
    return "; ".join(wrong) or None


def fits_type(actual: Any, declared: str) -> bool:
    """Whether every value of the arrow type ``actual`` can be read as the DDL type ``declared``, unchanged.

    Of nested types only the outermost kind is looked at; Spark refuses the file when what is inside does not fit.
    """
    import pyarrow.types as kinds

    if kinds.is_dictionary(actual):
        actual = actual.value_type
    word = declared.split("<")[0].split("(")[0]
    if kinds.is_null(actual):
        return True
    if word in _INTEGER_BITS:
        return _integer_bits(actual) is not None and int(_integer_bits(actual) or 0) <= _INTEGER_BITS[word]
    if word in ("float", "double"):
        bits = _integer_bits(actual)
        if bits is not None:
            return bits <= (16 if word == "float" else 32)
        return bool(kinds.is_float32(actual) or (word == "double" and kinds.is_float64(actual)))
    if word == "decimal":
        return _fits_decimal(actual, declared)
    if word in ("string", "char", "varchar", "binary"):
        texts = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
        return any(test(actual) for test in (*texts, kinds.is_fixed_size_binary))
    tests: dict[str, tuple[Any, ...]] = {
        "boolean": (kinds.is_boolean,),
        "date": (kinds.is_date,),
        "timestamp": (kinds.is_timestamp,),
        "timestamp_ntz": (kinds.is_timestamp,),
        "array": (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list),
        "map": (kinds.is_map,),
        "struct": (kinds.is_struct,),
    }
    # A type that this does not know (variant, interval) is left to Spark.
    return word not in tests or any(test(actual) for test in tests[word])


def _integer_bits(actual: Any) -> int | None:
    """Bits of the signed integer that holds every value of ``actual``; None when it is not an integer."""
    import pyarrow.types as kinds

    if not kinds.is_integer(actual):
        return None
    bits = int(actual.bit_width)
    return bits * 2 if kinds.is_unsigned_integer(actual) else bits


def _fits_decimal(actual: Any, declared: str) -> bool:
    import pyarrow.types as kinds

    match = _DECIMAL.fullmatch(declared)
    precision, scale = (int(match[1]), int(match[2])) if match else (10, 0)
    bits = _integer_bits(actual)
    if bits is not None:
        return precision - scale >= _INTEGER_DIGITS.get(bits, 20)
    if not kinds.is_decimal(actual):
        return False
    return bool(actual.scale <= scale and actual.precision - actual.scale <= precision - scale)
