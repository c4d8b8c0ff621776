"""Columns of parquet, orc and avro files, and fields inside them, from the footers (of avro the header): what the
schema lacks, and what does not fit it.

Spark fails on most types that do not fit, with one file at each attempt, but not on all: it cuts a wide integer down to
TINYINT, takes an unsigned one for signed, and reads a text in an INT column of an orc file as null (each tried on Spark
4.2.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
from pyarrow import orc

from tidegate.sources.readers import avro_file
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.ddl_tree import Node, digits_of_decimal, read_columns
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ROWS_AT_ONCE = 8192
_CUT = "holds nanoseconds (INT96), which Spark cuts to microseconds: write with coerce_timestamps='us'"
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


@dataclass(frozen=True)
class Footer:
    """What a file's footer says: columns and fields (``a.b``, ``list[].c``) that the schema lacks, and why the file
    cannot be read as the schema wants."""

    unknown: tuple[str, ...] = ()
    fault: str | None = None


def read_footers(intake: Path, links: Iterable[str], spec: FilesSource) -> dict[str, Footer]:
    """{link: its footer} for parquet, orc and avro; files without anything to tell, and other formats, are left out."""
    if spec.format not in SELF_DESCRIBING_FORMATS or spec.schema_ is None:
        return {}
    declared = read_columns(parse_ddl(spec.schema_))
    footers = {}
    for link in links:
        found = _read_footer(intake / link, spec.format)
        if isinstance(found, str):
            footers[link] = Footer(fault=found)
            continue
        actual = pa.struct(list(found.items()))
        unknown = tuple(_unknown_fields(actual, declared, ""))
        fault = "; ".join(find_misfits(actual, declared, "", spec.format)) or None
        if fault is None and spec.format == "parquet" and spec.values == "exact":
            fault = "; ".join(f"{place} {_CUT}" for place in _find_nanoseconds(intake / link, declared)) or None
        if unknown or fault:
            footers[link] = Footer(unknown, fault)
    return footers


def find_conflicts(folder: Path, links: Mapping[str, str], kind: str) -> str | None:
    """The columns that files of ``folder`` hold in different types, with a file for each; None for formats whose files
    do not tell. ``links`` maps the files to the paths that the user knows."""
    if kind not in SELF_DESCRIBING_FORMATS:
        return None
    seen: dict[str, dict[str, str]] = {}
    for link, path in links.items():
        columns = _read_footer(folder / link, kind)
        for name, found in columns.items() if isinstance(columns, dict) else ():
            seen.setdefault(name, {}).setdefault(str(found), path)
    told = [
        f"{name} is " + " and ".join(f"{found} in {path}" for found, path in kinds.items())
        for name, kinds in seen.items()
        if len(kinds) > 1
    ]
    return "; ".join(told) or None


def _read_footer(path: Path, kind: str) -> dict[str, object] | str:
    """{name: arrow type} of the top-level columns, or why the footer cannot be read. Empty where only Spark can tell:
    the file is away, or has a type that is unknown here."""
    schema: Any
    try:
        if kind == "parquet":
            with pq.ParquetFile(path) as file:
                return _columns_of_parquet(file)
        elif kind == "avro":
            columns = avro_file.read_columns(avro_file.read_header(path))
            avro_file.count_records(path)  # Spark takes some files that are cut off for whole ones
            return columns
        else:
            schema = orc.ORCFile(str(path)).schema
    except pa.ArrowNotImplementedError:
        return {}
    except avro_file.NotAvro as error:
        return f"not a readable avro file: {error}"
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            return {}
        return f"not a readable {kind} file: {str(error).splitlines()[0]}"
    return {field.name: field.type for field in schema}


def _columns_of_parquet(file: Any) -> dict[str, object]:
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


def _find_nanoseconds(path: Path, declared: Node) -> list[str]:
    """Where timestamps of 96 bits hold more than microseconds, which Spark cuts off in silence. What is written like
    that has whole microseconds as a rule, so the values tell, and not the type."""
    names = {name.lower() for name, _ in declared.fields}
    found: dict[str, None] = {}
    try:
        with pq.ParquetFile(path) as fine, pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as cut:
            leaves = [fine.schema.column(number) for number in range(len(fine.schema))]
            old = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
            tops = [field.name for field in fine.schema_arrow if field.name.lower() in names]
            # Whole columns: of a map whose values alone were read arrow would make a list.
            wanted = [top for top in tops if any(path == top or path.startswith(f"{top}.") for path in old)]
            if not wanted:
                return []
            batches = [file.iter_batches(_ROWS_AT_ONCE, columns=wanted) for file in (fine, cut)]
            for exact, rounded in zip(*batches, strict=True):
                left, right = exact.to_struct_array(), rounded.to_struct_array()
                found |= dict.fromkeys(_uneven_places(left, right, declared, ""))
    except (pa.ArrowException, OSError):
        pass  # Spark will say so
    return list(found)


def _uneven_places(exact: pa.Array, cut: pa.Array, node: Node, place: str) -> Iterator[str]:
    """The places whose values differ in nanoseconds (``exact``) and in microseconds (``cut``)."""
    kind = exact.type
    if kinds.is_timestamp(kind) and (kind.unit, cut.type.unit) == ("ns", "us"):
        # Years that nanoseconds of 64 bits do not reach overflow alike on both sides.
        with_digits, without = (one.cast("int64").fill_null(0).to_numpy(zero_copy_only=False) for one in (exact, cut))
        if (with_digits != without * 1000).any():
            yield place
        return
    for number, (_, inner, where) in enumerate(_inside(kind, node, place)):
        yield from _uneven_places(_part(exact, number, node), _part(cut, number, node), inner, where)


def _part(array: pa.Array, number: int, node: Node) -> pa.Array:
    """The values of the part that :func:`_inside` gives as ``number`` of the type of ``array``."""
    if kinds.is_struct(array.type):
        declared = {name.lower() for name, _ in node.fields}
        read = [at for at, field in enumerate(array.type) if field.name.lower() in declared]
        return array.flatten()[read[number]]
    if kinds.is_map(array.type):
        return (array.keys, array.items)[number]
    return array.flatten()


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    return kind


def _unknown_fields(actual: pa.DataType, node: Node, place: str) -> Iterator[str]:
    """Places of the fields that the declared type lacks, inside a value of the arrow type ``actual``."""
    if node.kind == "struct" and kinds.is_struct(actual):
        declared = {name.lower() for name, _ in node.fields}
        yield from (_below(place, field.name) for field in actual if field.name.lower() not in declared)
    for inner in _inside(actual, node, place):
        yield from _unknown_fields(*inner)


def find_misfits(actual: pa.DataType, node: Node, place: str, format_: str) -> Iterator[str]:
    """Where in a value of the arrow type ``actual``, itself at ``place``, something cannot be read unchanged as the
    declared type says, in words. Fields of a struct that are not declared are not read, and no fault."""
    if not fits_type(actual, node.type or node.kind):
        yield f"{place} is {actual}, the schema wants {node.type.upper()}"
    elif kinds.is_timestamp(actual) and actual.unit == "ns" and format_ == "parquet":  # orc has no other unit
        yield f"{place} is timestamp[ns]; Spark reads ms and us: write with coerce_timestamps='us'"
    elif format_ == "avro" and not _spark_converts_avro(actual, node.kind):
        yield f"{place} is {actual}, which Spark does not read as {node.type.upper()} from avro"
    else:
        for inner in _inside(actual, node, place):
            yield from find_misfits(*inner, format_)


def _spark_converts_avro(actual: pa.DataType, word: str) -> bool:
    """Whether Spark's reader of avro gives a value of ``actual``, which would fit, as ``word``: it converts less than
    its readers of parquet and orc do."""
    if kinds.is_null(actual):
        return True
    if kinds.is_timestamp(actual):
        return (actual.tz is None) == (word == "timestamp_ntz")
    if kinds.is_integer(actual):
        return word != "decimal"
    is_bytes = kinds.is_binary(actual) or kinds.is_fixed_size_binary(actual)
    return not (is_bytes or kinds.is_string(actual)) or is_bytes == (word == "binary")


def _inside(actual: pa.DataType, node: Node, place: str) -> Iterator[tuple[Any, Node, str]]:
    """The declared parts of a nested type: arrow type, declared type and place of each."""
    if node.kind == "struct" and kinds.is_struct(actual):
        declared = {name.lower(): (name, inner) for name, inner in node.fields}
        for field in actual:
            if field.name.lower() in declared:
                name, inner = declared[field.name.lower()]
                yield field.type, inner, _below(place, name)
    elif node.kind == "map" and kinds.is_map(actual):
        assert node.key is not None
        yield actual.key_type, node.key, f"{place}{{key}}"
        yield actual.item_type, node.item, f"{place}{{}}"
    elif node.kind == "array" and not kinds.is_null(actual) and fits_type(actual, "array"):
        yield actual.value_type, node.item, f"{place}[]"


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def fits_type(actual: pa.DataType, declared: str) -> bool:
    """Whether every value of the arrow type ``actual`` can be read as the DDL type ``declared``, unchanged.

    Of nested types only the outermost kind is looked at: :func:`find_misfits` looks inside.
    """
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
        return any(
            test(actual) for test in (*texts, kinds.is_string_view, kinds.is_binary_view, kinds.is_fixed_size_binary)
        )
    tests: dict[str, tuple[Any, ...]] = {
        "boolean": (kinds.is_boolean,),
        "date": (kinds.is_date,),
        "timestamp": (kinds.is_timestamp,),
        "timestamp_ntz": (kinds.is_timestamp,),
        "array": (
            *(kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_list_view),
            kinds.is_large_list_view,
        ),
        "map": (kinds.is_map,),
        "struct": (kinds.is_struct,),
    }
    # A type that this does not know (variant, interval) is left to Spark.
    return word not in tests or any(test(actual) for test in tests[word])


def _integer_bits(actual: pa.DataType) -> int | None:
    """Bits of the signed integer that holds every value of ``actual``; None when it is not an integer."""
    if not kinds.is_integer(actual):
        return None
    bits = int(actual.bit_width)
    return bits * 2 if kinds.is_unsigned_integer(actual) else bits


def _fits_decimal(actual: pa.DataType, declared: str) -> bool:
    precision, scale = digits_of_decimal(declared)
    bits = _integer_bits(actual)
    if bits is not None:
        return precision - scale >= _INTEGER_DIGITS.get(bits, 20)
    if not kinds.is_decimal(actual):
        return False
    return bool(actual.scale <= scale and actual.precision - actual.scale <= precision - scale)
