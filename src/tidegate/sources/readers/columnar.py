"""Reads rows of a self-describing file as records of a schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.arrow_nested import TOP, Refusals, Spot, is_list, open_list, open_map, take
from tidegate.sources.readers.arrow_values import Fit, Mismatches, find_unknown, make_fit, pick_fields
from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.row_json import write_rows
from tidegate.sources.readers.rows import BATCH_BYTES, DamagedFile, Rows
from tidegate.sources.readers.value_sizes import measure
from tidegate.sources.readers.values import MISSING
from tidegate.spec.ddl_tree import Node


class Look(NamedTuple):
    """Of a file: the name there of each column that it has, how values become those of the schema, and the paths of
    fields that the schema lacks."""

    names: Mapping[str, str]
    fits: Mapping[str, Fit]
    unknown: Sequence[str]


class ColumnarReader:
    """Reads rows as records with the columns of ``root``, a struct; ``required`` ones are NOT NULL."""

    def __init__(self, root: Node, required: frozenset[str] = frozenset()) -> None:
        self._root, self._required = root, required

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

    def read(self, rows: Rows, begin: int, end: int | None) -> Iterator[tuple[int, Batch]]:
        """The records that begin in a range of bytes of an open file, each batch with the number of rows of the file
        before it. Raises DamagedFile."""
        look = self.look(rows)
        for before, batch in rows.read(list(look.names.values()), begin, end):
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
                yield before + done, records
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
            found.refuse(spot, np.flatnonzero((numbers * 1000 != wanted) & valid), "finer than a microsecond")
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
