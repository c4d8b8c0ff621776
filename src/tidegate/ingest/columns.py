"""Columns of parquet and orc files, and fields inside them, from the footers: what the schema lacks, and what does not
fit it.

Spark fails on most types that do not fit, but not on all: it cuts a wide integer down to TINYINT, takes an unsigned one
for signed, and reads a text in an INT column of an orc file as null (each tried on Spark 4.2.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.spec.ddl import Column, parse_ddl
from tidegate.spec.ddl_tree import Node, read_type
from tidegate.spec.models import FilesSource

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class Footer:
    """What a file's footer says: columns and fields (``a.b``, ``list[].c``) that the schema lacks, and why the file
    cannot be read as the schema wants."""

    unknown: tuple[str, ...] = ()
    fault: str | None = None


def read_footers(intake: Path, links: Iterable[str], spec: FilesSource) -> dict[str, Footer]:
    """{link: its footer} for parquet and orc; files without anything to tell, and other formats, are left out."""
    if spec.format not in ("parquet", "orc") or spec.schema_ is None:
        return {}
    columns = parse_ddl(spec.schema_)
    known = {column.name.lower(): read_type(column.type) for column in columns}
    footers = {}
    for link in links:
        found = _read_columns(intake / link, spec.format)
        if isinstance(found, str):
            footers[link] = Footer(fault=found)
            continue
        unknown = tuple(_unknown_fields(found, known, ""))
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


def _unknown_fields(found: Mapping[str, Any], known: Mapping[str, Node], path: str) -> Iterator[str]:
    """Paths of what ``known`` (types by names in lower case) lacks."""
    for name, actual in found.items():
        node = known.get(name.lower())
        if node is None:
            yield f"{path}{name}"
            continue
        here, inner = _strip(actual, node, f"{path}{name}")
        if inner is not None:
            fields = {field_name.lower(): kind for field_name, kind in inner[1].fields}
            yield from _unknown_fields(_fields_of(inner[0]), fields, f"{here}.")


def _strip(actual: Any, node: Node, path: str) -> tuple[str, tuple[Any, Node] | None]:
    """The path and the types of what lists and maps hold; None where that is no struct."""
    while node.kind in ("array", "map") and fits_type(actual, node.kind) and not _is_null(actual):
        actual = actual.value_type if node.kind == "array" else actual.item_type
        path += "[]" if node.kind == "array" else "{}"
        node = node.fields[0][1]
    return path, (actual, node) if node.kind == "struct" and fits_type(actual, "struct") else None


def _fields_of(actual: Any) -> dict[str, Any]:
    import pyarrow.types as kinds

    if not kinds.is_struct(actual):
        return {}
    fields = [actual.field(number) for number in range(actual.num_fields)]
    return {field.name: field.type for field in fields}


def _describe_misfit(found: dict[str, Any], columns: Sequence[Column]) -> str | None:
    known = {column.name.lower(): (column.name, read_type(column.type)) for column in columns}
    return "; ".join(_misfits(found, known, "")) or None


def _misfits(found: Mapping[str, Any], known: Mapping[str, tuple[str, Node]], path: str) -> Iterator[str]:
    """Each column or field whose values cannot all be read unchanged."""
    by_name = {name.lower(): kind for name, kind in found.items()}
    for key, (name, node) in known.items():
        if key not in by_name:
            continue
        actual, here = by_name[key], f"{path}{name}"
        while node.kind in ("array", "map") and fits_type(actual, node.kind) and not _is_null(actual):
            actual = actual.value_type if node.kind == "array" else actual.item_type
            here += "[]" if node.kind == "array" else "{}"
            node = node.fields[0][1]
        if not fits_type(actual, node.type):
            yield f"{here} is {actual}, the schema wants {node.type.upper()}"
        elif node.kind == "struct":
            fields = {field_name.lower(): (field_name, kind) for field_name, kind in node.fields}
            yield from _misfits(_fields_of(actual), fields, f"{here}.")


def _is_null(actual: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_null(actual))


def fits_type(actual: Any, declared: str) -> bool:
    """Whether every value of the arrow type ``actual`` can be read as the DDL type ``declared``, unchanged.

    Of nested types only the outermost kind is looked at: :func:`_misfits` looks inside.
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
