"""Reads rows of a self-describing file as records of a schema."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.arrow_nested import (
    TOP,
    Refusals,
    Spot,
    is_bytes,
    is_list,
    is_text,
    measure,
    open_list,
    open_map,
    take,
)
from tidegate.sources.readers.arrow_values import Fit, Mismatches, find_unknown, make_fit, pick_fields, show_uuids
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.part_readers import Part, PartReader
from tidegate.sources.readers.records import Batch, Found, Wrong
from tidegate.sources.readers.rows import BATCH_BYTES, Rows, open_rows
from tidegate.sources.readers.times import FINER
from tidegate.sources.readers.unreadable import DamagedFile, PartUnreadable, make_fault
from tidegate.sources.readers.values import MISSING
from tidegate.spec.ddl import Node

_MILLISECONDS_OF_DAY = 86_400_000


def write_rows(names: list[str], columns: list[pa.Array], count: int) -> list[str]:
    """Each of ``count`` rows as an object of JSON."""
    return _join(names, [write_values(column) for column in columns], count)


def write_values(array: pa.Array) -> list[str]:
    """Each value of ``array`` as JSON."""
    kind = array.type
    if kinds.is_dictionary(kind):
        return write_values(array.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return write_values(show_uuids(array) if kind.extension_name == "arrow.uuid" else array.storage)
    if kinds.is_struct(kind):
        texts = _join([field.name for field in kind], [write_values(part) for part in array.flatten()], len(array))
    elif is_list(kind):
        ends, items = open_list(array)
        inside = write_values(items)
        texts = [f"[{','.join(inside[begin:end])}]" for begin, end in itertools.pairwise(ends)]
    elif kinds.is_map(kind):
        ends, keys, items = open_map(array)
        named = [key if key.startswith('"') else json.dumps(key, ensure_ascii=False) for key in write_values(keys)]
        pairs = [f"{key}:{value}" for key, value in zip(named, write_values(items), strict=True)]
        texts = [f"{{{','.join(pairs[begin:end])}}}" for begin, end in itertools.pairwise(ends)]
    else:
        write, plain = _writer(array)
        return ["null" if value is None else write(value) for value in plain.to_pylist()]
    if not array.null_count:
        return texts
    return [text if valid else "null" for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)]


def _join(names: list[str], columns: list[list[str]], count: int) -> list[str]:
    if not names:
        return ["{}"] * count
    heads = [json.dumps(name, ensure_ascii=False) for name in names]
    return [
        "{" + ",".join(f"{head}:{text}" for head, text in zip(heads, row, strict=True)) + "}"
        for row in zip(*columns, strict=True)
    ]


def _writer(array: pa.Array) -> tuple[Callable[[Any], str], pa.Array]:
    """How a value of ``array`` is written, and the array in a type whose values Python has."""
    kind = array.type
    if kinds.is_boolean(kind):
        return lambda value: "true" if value else "false", array
    if kinds.is_decimal(kind):
        return lambda value: format(value, "f"), array
    if kinds.is_floating(kind):
        return (_write_double, array) if kinds.is_float64(kind) else (_write_float, array.cast(pa.float32()))
    if is_text(kind):
        return lambda value: json.dumps(value.decode(errors="replace"), ensure_ascii=False), array.cast(
            pa.large_binary()
        )
    if is_bytes(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"', array
    if kinds.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return lambda value: _write_time(value, kind.unit, zone), array.view(pa.int64())
    if kinds.is_date32(kind):
        return lambda value: _write_time(value, "D"), array.view(pa.int32())
    if kinds.is_date64(kind):
        return _write_day, array.view(pa.int64())
    if kinds.is_time(kind):
        return lambda value: f'"{value}"', array.cast(pa.string())
    if kinds.is_duration(kind):
        return str, array.view(pa.int64())
    return lambda value: str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False), array


def _write_time(value: int, unit: Literal["D", "s", "ms", "us", "ns"], zone: str = "") -> str:
    time = np.datetime64(value, unit)
    return str(value) if np.isnat(time) else f'"{time}{zone}"'  # the least number has no text in numpy


def _write_day(value: int) -> str:
    """Milliseconds, of which a day has no part; with its time if it has one."""
    days, rest = divmod(value, _MILLISECONDS_OF_DAY)
    return _write_time(value, "ms") if rest else _write_time(days, "D")


def _write_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')


def _write_float(value: float) -> str:
    """With the fewest digits that identify it: 0.1, not 0.10000000149011612."""
    return str(np.float32(value)) if math.isfinite(value) else _write_double(value)


class Look(NamedTuple):
    """Of a file: the name there of each column that it has, how values become those of the schema, and the paths of
    fields that the schema lacks."""

    names: Mapping[str, str]
    fits: Mapping[str, Fit]
    unknown: Sequence[str]


class RowsParts(PartReader):
    """Files that describe themselves: parquet, orc and avro. A part has the row groups, stripes or blocks that begin in
    it; of the columns a record has all, so no text of it is kept unless it is malformed."""

    has_lines = False

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._root, self._required = form.root, form.required

    def check(self, path: str) -> None:
        """Look at the header or footer, at whether its columns can be those of the schema, and at where blocks end."""
        with self._open(path) as rows:
            self.look(rows)
            rows.check()

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[Rows]:
        try:
            with open_rows(path, self.form) as rows:
                yield rows
        except DamagedFile as error:
            raise PartUnreadable(path, str(error)) from error
        except OSError as error:
            raise make_fault(path, error) from error

    def look(self, rows: Rows) -> Look:
        """How the columns of an open file become those of the schema. Raises DamagedFile where they cannot."""
        actual, mismatches = pa.struct(list(rows.schema)), Mismatches()
        picked = pick_fields(actual, self._root, "", mismatches)
        names = {name: actual.field(number).name for name, number in picked.items()}
        fits = {
            name: make_fit(actual.field(picked[name]).type, node, name, rows.calendar_for(names[name]), mismatches)
            for name, node in self._root.fields
            if name in picked
        }
        if mismatches:
            raise DamagedFile("; ".join(mismatches))
        return Look(names, fits, find_unknown(actual, self._root))

    def read(self, part: Part) -> Iterator[Found]:
        with self._open(part.path) as rows:
            look = self.look(rows)
            for first, batch in rows.read(list(look.names.values()), part.begin, part.end):
                columns = dict(zip(look.names, batch.columns, strict=True))
                fine = {name: rows.fine[inner] for name, inner in look.names.items() if inner in rows.fine}
                done = 0
                for count in _cut(columns, len(batch)):
                    some = {name: column.slice(done, count) for name, column in columns.items()}
                    finer = {name: one.slice(done, count) for name, one in fine.items()}
                    records = self._read(some, finer, look.fits, count)
                    if look.unknown:
                        unknown = {at: look.unknown for at in range(count) if at not in records.wrong}
                        records = Batch(records.columns, records.wrong, unknown)
                    begin = first + done + 1
                    yield Found(records, None, range(begin, begin + count))
                    done += count

    def _read(
        self, columns: dict[str, pa.Array], fine: dict[str, pa.Array], fits: Mapping[str, Fit], count: int
    ) -> Batch:
        found = Refusals()
        held = []
        for name, node in self._root.fields:
            spot = TOP.below(name)
            if name not in columns:
                held.append(pa.nulls(count, arrow_type(node)))
                continue
            array = columns[name] = _without_large(columns[name], spot, found)
            if name in fine:
                _refuse_finer(fine[name], array, node, spot, found)
            held.append(fits[name](array, spot, found))
        for (name, _), column in zip(self._root.fields, held, strict=True):
            if name in self._required and column.null_count:
                nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
                noted = {at for at, faults in found.faults.items() if any(fault.path == name for fault in faults)}
                found.refuse(TOP.below(name), [at for at in nulls if at not in noted], MISSING)
        if not found.faults:
            return Batch(held, {}, {})
        places = sorted(found.faults)
        raws = self._write(columns, places)
        wrong = {at: Wrong.of(found.faults[at], raw.encode()) for at, raw in zip(places, raws, strict=True)}
        taken = np.arange(count)
        kept = pa.array(taken, mask=np.isin(taken, places))
        return Batch([column.take(kept) for column in held], wrong, {})

    def _write(self, columns: dict[str, pa.Array], places: list[int]) -> list[str]:
        taken = pa.array(places, pa.int64())
        names = [name for name, _ in self._root.fields]
        return write_rows(
            names,
            [take(columns[name], taken) if name in columns else pa.nulls(len(places)) for name in names],
            len(places),
        )


def _cut(columns: dict[str, pa.Array], count: int) -> Iterator[int]:
    """How many rows each of some batches has that are not too large together."""
    sizes = sum(column.nbytes for column in columns.values())
    if sizes <= 4 * BATCH_BYTES:
        yield count
        return
    of_rows = sum((measure(column) for column in columns.values()), np.zeros(count, np.int64))
    numbers = np.minimum(of_rows, LONGEST_RECORD_BYTES).cumsum() // BATCH_BYTES
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), count]
    yield from (end - begin for begin, end in itertools.pairwise(edges))


def _without_large(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
    """``array`` without values that are larger than a record may be; each is refused."""
    if array.nbytes <= LONGEST_RECORD_BYTES and not kinds.is_dictionary(array.type):
        return array
    sizes = measure(array)
    large = np.flatnonzero(sizes > LONGEST_RECORD_BYTES)
    if not len(large):
        return array
    found.refuse(spot, large, [f"has {sizes[at]:,} bytes; {TOO_LARGE}" for at in large])
    places = np.arange(len(array))
    return take(array, pa.array(places, mask=np.isin(places, large)))


def _refuse_finer(fine: pa.Array, array: pa.Array, node: Node, spot: Spot, found: Refusals) -> None:
    """Refuse times of ``array``, in microseconds, that have more digits in ``fine``, in nanoseconds."""
    kind = array.type
    if kinds.is_timestamp(kind):
        if (kind.unit, fine.type.unit) == ("us", "ns"):
            # Years that nanoseconds of 64 bits do not reach overflow alike on both sides.
            numbers, wanted = (
                one.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) for one in (array, fine)
            )
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            found.refuse(spot, np.flatnonzero((numbers * 1000 != wanted) & valid), FINER)
    elif kinds.is_struct(kind):
        declared, lefts, rights = dict(node.fields), fine.flatten(), array.flatten()
        for name, number in pick_fields(kind, node, "", Mismatches()).items():
            _refuse_finer(lefts[number], rights[number], declared[name], spot.below(name), found)
    elif is_list(kind):
        ends, items = open_list(array)
        _refuse_finer(open_list(fine)[1], items, node.item, spot.inside("[]", ends), found)
    elif kinds.is_map(kind):
        ends, _, items = open_map(array)
        _refuse_finer(open_map(fine)[2], items, node.item, spot.inside("{}", ends), found)
