"""Columns of parquet and orc files, from their footers: those the schema lacks, and those that do not fit it.

Spark fails on most types that do not fit, with one file at each attempt, but not on all: it cuts a wide integer down to
TINYINT, takes an unsigned one for signed, and reads a text in an INT column of an orc file as null (each tried on Spark
4.2.0).
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
_QUOTED_NAME = re.compile(r"`((?:[^`]|``)*)`:")
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
        fault = _describe_misfit(found, columns, spec.format)
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

            with pq.ParquetFile(path) as file:
                return _columns_of_parquet(file)
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


def _columns_of_parquet(file: Any) -> dict[str, Any]:
    """{name: arrow type}. A timestamp of 96 bits is shown in microseconds: to arrow all of them are nanoseconds, and
    Spark, which writes them itself, reads them."""
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    old = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    return {
        field.name: _in_microseconds(field.type)
        if any(path == field.name or path.startswith(f"{field.name}.") for path in old)
        else field.type
        for field in file.schema_arrow
    }


def _in_microseconds(kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    return kind


def _describe_misfit(found: dict[str, Any], columns: Sequence[Column], format_: str) -> str | None:
    by_name = {name.lower(): kind for name, kind in found.items()}
    wrong = [
        fault
        for column in columns
        if column.name.lower() in by_name
        for fault in find_misfits(by_name[column.name.lower()], column.type, column.name, format_)
    ]
    return "; ".join(wrong) or None


def find_misfits(actual: Any, declared: str, place: str, format_: str) -> list[str]:
    """Where in a column, at ``place``, values of the arrow type ``actual`` cannot be read as the DDL type ``declared``
    says, in words. Fields of a struct that are not declared are not read, and no fault."""
    import pyarrow.types as kinds

    if not fits_type(actual, declared):
        return [f"{place} is {actual}, the schema wants {declared.upper()}"]
    if kinds.is_timestamp(actual):
        is_too_fine = format_ == "parquet" and actual.unit == "ns"  # orc has no other unit
        why = f"{place} is timestamp[ns]; Spark reads ms and us: write with coerce_timestamps='us'"
        return [why] if is_too_fine else []
    inner = declared.partition("<")[2].removesuffix(">")
    if kinds.is_struct(actual):
        wanted = {name.lower(): type_ for name, type_ in map(_name_and_type, _split_top(inner))}
        fields = [field for field in actual if field.name.lower() in wanted]
        below = [(field.type, wanted[field.name.lower()], f"{place}.{field.name}") for field in fields]
    elif kinds.is_map(actual):
        key, value = _split_top(inner)
        below = [(actual.key_type, key, f"{place}[key]"), (actual.item_type, value, f"{place}[value]")]
    elif kinds.is_list(actual) or kinds.is_large_list(actual) or kinds.is_fixed_size_list(actual):
        below = [(actual.value_type, inner, f"{place}[]")]
    else:
        below = []
    return [fault for each in below for fault in find_misfits(*each, format_)]


def _split_top(inner: str) -> list[str]:
    """What stands between the commas of a nested type, as far as they are not inside another one."""
    parts, depth, quoted = [""], 0, False
    for letter in inner:
        quoted ^= letter == "`"
        depth += 0 if quoted else (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _name_and_type(field: str) -> tuple[str, str]:
    quoted = _QUOTED_NAME.match(field)
    if quoted:
        return quoted[1].replace("``", "`"), field[quoted.end() :]
    name, _, type_ = field.partition(":")
    return name, type_


def fits_type(actual: Any, declared: str) -> bool:
    """Whether every value of the arrow type ``actual`` can be read as the DDL type ``declared``, unchanged.

    Of nested types only the outermost kind is looked at: :func:`find_misfits` looks inside.
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
