"""Reads rows of Avro files: the blocks that begin in a range of bytes.

Avro is not columnar, so a function is generated for each schema that decodes a block without a call for each value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.avro_file import Datum, read_blocks, read_header, read_schema, unpack_block
from tidegate.sources.readers.links import open_link
from tidegate.sources.readers.rows import BATCH_BYTES, BATCH_ROWS, Rows, calendar_of, without_columns
from tidegate.sources.readers.unreadable import DamagedFile

_LARGEST_BLOCK_BYTES = 64 << 20
"""A writer ends a block as soon as it has some ten kilobytes, so one that is far larger is one record."""
_MOST_ITEMS = LONGEST_RECORD_BYTES
_DECIMAL_BYTES, _DECIMAL_DIGITS = 32, 76
_LARGEST_NUMBER = (1 << 64) - 1
_DEEPEST = 12
"""Indents of a generated function, at most, where a nested value begins."""


class AvroRows(Rows):
    """An Avro file, open."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = Path(path)
        self._header = read_header(self._path)
        self._record = read_schema(self._header.schema)
        self.schema = pa.schema([field.with_type(_widen(field.type)) for field in self._record.arrow])
        self.calendar = calendar_of(self._header.entries, options.get("datetimeRebaseMode"), (3, 0), "legacyDateTime")

    def read(self, names: Sequence[str], begin: int, end: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        decoder = _Decoder(self._record, self.schema, names)
        first, rows, size = 0, 0, 0
        with open_link(self._path) as file:
            for block in read_blocks(self._path):
                if end is not None and block.begin >= end:
                    break
                if block.begin < begin:
                    first += block.records
                    continue
                file.seek(block.begin)
                content = b""
                if (length := block.length) <= _LARGEST_BLOCK_BYTES:
                    content = unpack_block(file.read(block.length), self._header.codec, _LARGEST_BLOCK_BYTES)
                    length = len(content)
                if length > _LARGEST_BLOCK_BYTES:
                    which = f"records {first + rows + 1:,} to {first + rows + block.records:,}"
                    raise DamagedFile(f"the block of {which} has more than {_LARGEST_BLOCK_BYTES:,} bytes")
                try:
                    if block.records > max(len(content), _MOST_ITEMS):
                        raise IndexError  # even of records without bytes there are not so many
                    decoder.decode(content, block.records)
                except (IndexError, OverflowError, struct.error) as error:
                    raise DamagedFile(f"the block before byte {block.begin + block.length:,} is damaged") from error
                rows, size = rows + block.records, size + len(content)
                if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield first, decoder.take(first, rows)
                    first, rows, size = first + rows, 0, 0
        if rows:
            yield first, decoder.take(first, rows)

    def check(self) -> None:
        """Look at where the blocks end: a file that is cut off, or has other bytes within, is found so."""
        for _ in read_blocks(self._path):
            pass

    def close(self) -> None:
        """Nothing is held open."""


def _widen(kind: pa.DataType) -> pa.DataType:
    """A type whose decimals have room for whatever bytes say."""
    if kinds.is_decimal(kind):
        return pa.decimal256(_DECIMAL_DIGITS, kind.scale)
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_widen(field.type)) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(kind.key_type, _widen(kind.item_type))
    return pa.list_(_widen(kind.value_type)) if kinds.is_list(kind) else kind


class _Column:
    """The values of one type as they are decoded; of nested types their bounds, and the columns inside."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.values: list[Any] = []
        if kinds.is_struct(kind):
            self.inside = [_Column(field.type) for field in kind]
        elif kinds.is_map(kind):
            self.inside = [_Column(kind.key_type), _Column(kind.item_type)]
        else:
            self.inside = [_Column(kind.value_type)] if kinds.is_list(kind) else []

    def take(self) -> pa.Array:
        """What was decoded, which is forgotten."""
        values, kind = self.values, self.kind
        inside = [column.take() for column in self.inside]
        if kinds.is_null(kind):
            array = pa.nulls(len(values))
        elif kinds.is_struct(kind):
            mask = pa.array([value is None for value in values], pa.bool_())
            array = pa.StructArray.from_arrays(inside, fields=list(kind), mask=mask)
        elif kinds.is_list(kind) or kinds.is_map(kind):
            array = _take_nested(values, inside, kind)
        elif kinds.is_string(kind):
            array = pa.array(values, pa.binary()).view(kind)  # valid or not: who reads it looks
        elif kinds.is_decimal(kind):
            array = _take_decimals(values, kind)
        elif kinds.is_temporal(kind):
            array = pa.array(values, pa.int32() if kinds.is_date32(kind) else pa.int64()).view(kind)
        else:
            array = pa.array(values, kind)
        values.clear()
        return array


def _take_nested(ends: Sequence[int | None], inside: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """``ends`` has the end of each value, and None for a null."""
    offsets, last = [0], 0
    for end in ends:
        last = last if end is None else end
        offsets.append(last)
    mask = pa.array([end is None for end in ends], pa.bool_())
    made = pa.MapArray if kinds.is_map(kind) else pa.ListArray
    return made.from_arrays(pa.array(offsets, pa.int32()), *inside, type=kind, mask=mask)


def _take_decimals(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Bytes are a whole number, the high byte first; one that is too large for any column is one that is."""
    most = 10**_DECIMAL_DIGITS - 1
    numbers = [max(-most, min(most, int.from_bytes(value, signed=True))) if value else 0 for value in values]
    content = b"".join(number.to_bytes(_DECIMAL_BYTES, "little", signed=True) for number in numbers)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(kind, len(values), [valid.buffers()[1], pa.py_buffer(content)])


class _Decoder:
    """Decodes blocks into the columns ``names`` of ``record``."""

    def __init__(self, record: Datum, schema: pa.Schema, names: Sequence[str]) -> None:
        self._names = list(names)
        self._columns = {name: _Column(schema.field(name).type) for name in names}
        maker = _Maker()
        fields = [self._columns.get(field.name) for field in schema]
        for datum, column in zip(record.inside, fields, strict=True):
            maker.read(datum, column, 2)
        self._decode = maker.make()

    def decode(self, content: bytes, count: int) -> None:
        """Take the records of a block. Raises IndexError, OverflowError and struct.error where it is damaged."""
        if self._decode(content, count) != len(content):
            raise IndexError

    def take(self, first: int, count: int) -> pa.RecordBatch:
        """The ``count`` records that were decoded; ``first`` are before them in the file. Raises DamagedFile."""
        arrays = []
        for name in self._names:
            try:
                arrays.append(self._columns[name].take())
            except (pa.ArrowException, OverflowError, ValueError) as error:
                which = f"records {first + 1:,} to {first + count:,}"
                raise DamagedFile(
                    f"{which}: column {name} has a value that its type in the file does not hold"
                ) from error
        if not arrays:
            return without_columns(count)
        return pa.RecordBatch.from_arrays(arrays, self._names)


class _Maker:
    """Writes the function that decodes a block: (its content, its records) -> where it has ended.

    Its source text contains only numbers of a file; everything else is in its globals. Deeply nested values are read by
    further functions, (the content of the block, where it begins) -> where it has ended, since Python allows only 20
    nested loops and 100 indents.
    """

    def __init__(self) -> None:
        self._lines = ["def decode(b, count):", " p = 0", " for _ in range(count):"]
        self._helpers: list[str] = []
        self._globals: dict[str, Any] = {
            "float_": struct.Struct("<f").unpack_from,
            "double": struct.Struct("<d").unpack_from,
        }

    def make(self) -> Callable[[bytes, int], int]:
        """The function for what was asked for. Raises DamagedFile."""
        try:
            exec("\n".join([*self._helpers, *self._lines, "  pass", " return p"]), self._globals)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise DamagedFile("its schema has unions of too many types to be read") from error
        decode: Callable[[bytes, int], int] = self._globals["decode"]
        return decode

    def read(self, datum: Datum, column: _Column | None, depth: int) -> None:
        """Read a value into ``column``, or past it."""
        kind = datum.kind
        if depth > _DEEPEST and datum.inside:
            self._read_by_helper(datum, column, depth)
        elif kind == "union":
            self._read_union(datum, column, depth)
        elif kind == "record":
            for number, inner in enumerate(datum.inside):
                self.read(inner, column and column.inside[number], depth)
            self._append(column, "0", depth)
        elif kind in ("array", "map"):
            self._read_items(datum, column, depth)
        else:
            self._read_leaf(datum, column, depth)

    def _read_by_helper(self, datum: Datum, column: _Column | None, depth: int) -> None:
        outer, self._lines = self._lines, []
        self.read(datum, column, 1)
        name = f"h{len(self._helpers)}"
        self._helpers.append("\n".join([f"def {name}(b, p):", *self._lines, " return p"]))
        self._lines = outer
        self._add(depth, f"p = {name}(b, p)")

    def _read_leaf(self, datum: Datum, column: _Column | None, depth: int) -> None:
        kind = datum.kind
        if kind == "null":
            self._append(column, "None", depth)
        elif kind == "boolean":
            self._add(depth, "n = b[p]", "p += 1", "if n > 1: raise IndexError")
            self._append(column, "n == 1", depth)
        elif kind in ("int", "long"):
            self._read_number(depth)
            self._append(column, "n >> 1 ^ -(n & 1)", depth)
        elif kind in ("float", "double"):
            self._append(column, f"{'float_' if kind == 'float' else kind}(b, p)[0]", depth)
            self._add(depth, f"p += {4 if kind == 'float' else 8}")
        elif kind == "fixed":
            self._append(column, f"b[p:p + {datum.detail}]", depth)
            self._add(depth, f"p += {datum.detail}")
        elif kind == "enum":
            self._read_number(depth)
            self._add(depth, "if n & 1: raise IndexError")
            self._append(column, f"{self._name(datum.detail)}[n >> 1]", depth)
        else:
            self._read_number(depth)
            self._add(depth, "if n & 1: raise IndexError", "n = p + (n >> 1)")
            self._append(column, "b[p:n]", depth)
            self._add(depth, "p = n")

    def _read_number(self, depth: int) -> None:
        """A number of seven bits a byte into ``n``, its sign in the lowest bit."""
        self._add(depth, "n = b[p]", "p += 1", "if n > 127:")
        self._add(depth + 1, "n &= 127", "s = 7", "x = b[p]", "while x > 127:")
        self._add(depth + 2, "n |= (x & 127) << s", "s += 7", "p += 1", "x = b[p]")
        self._add(depth + 1, "n |= x << s", "p += 1", f"if s > 63 or n > {_LARGEST_NUMBER}: raise IndexError")

    def _read_union(self, datum: Datum, column: _Column | None, depth: int) -> None:
        self._read_number(depth)
        members = [one for one in datum.inside if one.kind != "null"]
        # Several choices that no type holds alone are a struct of members.
        has_members = len(members) > 1 and kinds.is_struct(datum.arrow)
        for number, choice in enumerate(datum.inside):
            self._add(depth, f"{'el' if number else ''}if n == {2 * number}:")
            if choice.kind == "null":
                self._append_null(column, depth + 1)
            elif not has_members or column is None:
                self.read(choice, column, depth + 1)
            else:
                place = sum(one.kind != "null" for one in datum.inside[:number])
                for at, member in enumerate(column.inside):
                    if at == place:
                        self.read(choice, member, depth + 1)
                    else:
                        self._append_null(member, depth + 1)
                self._append(column, "0", depth + 1)
            self._add(depth + 1, "pass")
        self._add(depth, "else: raise IndexError")

    def _read_items(self, datum: Datum, column: _Column | None, depth: int) -> None:
        """Items come in parts, each with its count; a count below zero is followed by the bytes of the part."""
        left, count = f"i{depth}", f"k{depth}"
        self._add(depth, f"{count} = {0 if column is None else self._length_of(column.inside[-1])}", "while True:")
        self._read_number(depth + 1)
        self._add(depth + 1, "if not n: break", f"{left} = n >> 1 ^ -(n & 1)", f"if {left} < 0:")
        self._add(depth + 2, f"{left} = -{left}")
        self._read_number(depth + 2)
        self._add(depth + 1, f"if {left} > {_MOST_ITEMS}: raise OverflowError", f"{count} += {left}")
        self._add(depth + 1, f"for _ in range({left}):")
        if datum.kind == "map":
            key = None if column is None else column.inside[0]
            self._read_leaf(Datum("string", pa.string()), key, depth + 2)
        self.read(datum.inside[0], column and column.inside[-1], depth + 2)
        self._add(depth + 2, "pass")
        self._append(column, count, depth)

    def _append_null(self, column: _Column | None, depth: int) -> None:
        if column is not None:
            self._append(column, "None", depth)
            if kinds.is_struct(column.kind):
                for inner in column.inside:
                    self._append_null(inner, depth)

    def _append(self, column: _Column | None, value: str, depth: int) -> None:
        if column is not None:
            self._add(depth, f"{self._name(column.values.append)}({value})")

    def _length_of(self, column: _Column) -> str:
        return f"len({self._name(column.values)})"

    def _name(self, value: object) -> str:
        name = f"g{len(self._globals)}"
        self._globals[name] = value
        return name

    def _add(self, depth: int, *lines: str) -> None:
        self._lines += [" " * depth + line for line in lines]
