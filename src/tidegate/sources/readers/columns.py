"""Decodes the columns of a schema from JSON with msgspec, and converts them to Arrow.

This is the fast path. Each class handles only the common form of a type. A value in any other form makes its record
doubtful, and doubtful records are read by the functions of :mod:`tidegate.sources.readers.values`.
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers.time_columns import Arrangement, Clocks
from tidegate.sources.readers.ways import Ways
from tidegate.spec.ddl import Node

MANY_ZEROS = b"0" * 200
TINY = re.compile(rb"[0-9][eE]-[0-9]{3,}[,}\] \t\r\n]|0{200}")
"""In a record that may have a number so small that it comes as 0: below 10**-324, by its exponent and its zeros."""

Doubts = set[int]
"""Positions of doubtful values in a list."""

_WHOLE = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_PLAIN = {"boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32()}
_ZONED, _UNZONED = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def arrow_type(node: Node) -> pa.DataType:
    """The type of Arrow that holds the type ``node`` of Spark."""
    kind = node.kind
    if kind == "struct":
        return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in node.fields])
    if kind == "array":
        return pa.list_(arrow_type(node.item))
    if kind == "map":
        return pa.map_(pa.string() if node.key is None else arrow_type(node.key), arrow_type(node.item))
    if kind == "decimal":
        return pa.decimal128(*node.digits)
    if kind in ("timestamp", "timestamp_ntz"):
        return _ZONED if kind == "timestamp" else _UNZONED
    if kind in ("float", "double"):
        return pa.float32() if kind == "float" else pa.float64()
    return _WHOLE.get(kind) or _PLAIN[kind]


_Decoded = TypeVar("_Decoded")
_Container = TypeVar("_Container", list[object] | None, dict[str, object] | None)


class Values(ABC, Generic[_Decoded]):
    """Values of one type: how msgspec decodes them (:attr:`form`), and how they become a column of Arrow."""

    form: Any
    """Any form of a type that Python has: a class, a union, or one with an annotation."""

    def __init__(self, node: Node, ways: Ways) -> None:
        self.type = arrow_type(node)

    missing: object = msgspec.UNSET
    """What a field of this type is decoded to where a record does not have it."""
    has_keys = False
    """Whether there may be keys of objects inside."""

    @abstractmethod
    def to_arrow(self, values: Sequence[_Decoded]) -> tuple[pa.Array, Doubts]:
        """Decoded ``values``, none of them :attr:`missing`, as an array, and the positions of the doubtful ones, which
        may have any value in it."""

    def count_keys(self, values: Sequence[_Decoded]) -> int:
        """How many keys of objects are within ``values``."""
        return 0


class _Plain(Values[bool | int | str | None]):
    """What msgspec decodes is what Arrow holds: booleans, whole numbers, texts."""

    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        if node.kind == "boolean":
            self.form = bool | None
        elif node.kind == "string":
            self.form = str | None
        else:
            bits = self.type.bit_width - 1
            self.form = Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)] | None

    def to_arrow(self, values: Sequence[bool | int | str | None]) -> tuple[pa.Array, Doubts]:
        return pa.array(values, self.type), set()


class _Floating(Values[float | None]):
    """Numbers of common size. 0 may have been written as 1e-400: who has the text looks for it (:data:`TINY`)."""

    form = float | None

    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        # Below it every whole number is held; above it what was written has to be looked at.
        self._bound = 1e6 if node.kind == "float" else 1e15

    def to_arrow(self, values: Sequence[float | None]) -> tuple[pa.Array, Doubts]:
        doubles = pa.array(values, pa.float64())
        sizes = pc.abs(doubles)
        doubtful = pc.or_(pc.greater_equal(sizes, self._bound), pc.less(sizes, 1e-30))
        doubtful = pc.and_(doubtful, pc.not_equal(sizes, 0.0))
        return doubles.cast(self.type, safe=False), find_doubtful(doubtful)


class _Decimal(Values[msgspec.Raw | None]):
    """Numbers, also in quotes, of plain digits with no more decimals than the type has."""

    form = msgspec.Raw
    missing = msgspec.Raw(b"")

    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        digits, scale = node.digits
        whole = f"-?[0-9]{{1,{digits - scale}}}" if digits > scale else "-?0"
        decimals = f"(?:[.][0-9]{{1,{scale}}})?" if scale else ""
        self._plain = f'^(?:{whole}{decimals}|"{whole}{decimals}"|null)$'
        self._symbols = ways.symbols
        self._localized = "" if self._symbols is None else self._symbols.match_plain(scale, '"')

    def to_arrow(self, values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, Doubts]:
        texts = pa.array(map(_text_of, values), pa.string(), size=len(values))
        if self._symbols is not None:
            texts = self._put_plainly(texts, *self._symbols[:2])
        doubtful = pc.invert(pc.match_substring_regex(texts, self._plain))
        if has_doubt := pc.any(doubtful).as_py():
            texts = pc.if_else(doubtful, None, texts)
        texts = pc.utf8_trim(texts, '"')
        if pc.any(pc.equal(texts, "null")).as_py():
            texts = pc.if_else(pc.equal(texts, "null"), None, texts)
        return texts.cast(self.type), find_doubtful(doubtful) if has_doubt else set()

    def _put_plainly(self, texts: pa.Array, decimal: str, group: str) -> pa.Array:
        """Convert quoted numbers of the locale to a decimal point without groups; others become doubtful."""
        plain = pc.replace_substring(pc.replace_substring(texts, group, ""), decimal, ".")
        plain = pc.if_else(pc.match_substring_regex(texts, self._localized), plain, _DOUBTFUL)
        return pc.if_else(pc.starts_with(texts, '"'), plain, texts)


_DOUBTFUL = "?"
"""A text that is not a number."""


def _text_of(value: msgspec.Raw | None) -> bytes | None:
    return None if value is None else bytes(value)


class Texts(Values[str | None]):
    """What is written as a text of a form that Arrow reads by itself, exactly: dates and times."""

    form = str | None
    _FORMS: ClassVar = {
        "date": r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}$",
        "timestamp": r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6})?"
        r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$",
        "timestamp_ntz": r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6})?$",
    }

    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        kind = node.kind
        self._form = self._FORMS[kind]
        self._unzoned = self._FORMS["timestamp_ntz"] if kind == "timestamp" else None
        self._clocks = None if ways.zone is dt.UTC else Clocks(ways.zone)
        pattern = ways.patterns.get(kind)
        self._arrangement = Arrangement.of(pattern, kind) if pattern is not None else None
        self._read: Callable[[str], tuple[object, str | None]] | None = None
        if pattern is not None and self._arrangement is None:
            self._read = lambda text: ways.read(text, kind)

    def to_arrow(self, values: Sequence[str | None]) -> tuple[pa.Array, Doubts]:
        return self.read_texts(pa.array(values, pa.string()))

    def read_texts(self, texts: pa.Array) -> tuple[pa.Array, Doubts]:
        """The same of texts that Arrow holds already."""
        if self._read is not None:
            return self._take_distinct(texts.to_pylist(), self._read)
        doubts: Doubts = set()
        if self._arrangement is not None:
            arranged = self._arrangement.to_iso(texts)
            doubts = find_doubtful(pc.and_(arranged.is_null(), texts.is_valid()))
            texts = arranged
        fits = pc.match_substring_regex(texts, self._form)
        if pc.all(fits).as_py() is False:
            unzoned = None
            if self._unzoned is not None:
                unzoned = pc.match_substring_regex(texts, self._unzoned)
                if self._clocks is None:
                    texts = pc.if_else(unzoned, pc.binary_join_element_wise(texts, "Z", ""), texts)
                fits = pc.or_(fits, unzoned)
            doubts |= find_doubtful(pc.invert(fits))
            texts = pc.if_else(fits, texts, None)
            if unzoned is not None and self._clocks is not None:
                return self._take_by_clocks(texts, unzoned, doubts)
        column, more = self._cast(texts, self.type)
        return column, doubts | more

    def _take_by_clocks(self, texts: pa.Array, unzoned: pa.Array, doubts: Doubts) -> tuple[pa.Array, Doubts]:
        """Times with a zone, and those of the option ``timeZone`` without one."""
        assert self._clocks is not None
        local, doubts_of_local = self._cast(pc.if_else(unzoned, texts, None), _UNZONED)
        zoned, doubts_of_zoned = self._cast(pc.if_else(unzoned, None, texts), self.type)
        utc = self._clocks.to_utc(local)
        changed = find_doubtful(pc.and_(local.is_valid(), utc.is_null()))
        return pc.coalesce(utc, zoned), doubts | doubts_of_local | doubts_of_zoned | changed

    def _cast(self, texts: pa.Array, type_: pa.DataType, begin: int = 0) -> tuple[pa.Array, Doubts]:
        """``texts``, the first of which is at ``begin``, as ``type_``; a 30 February is doubtful."""
        try:
            return texts.cast(type_), set()
        except pa.ArrowInvalid:
            if len(texts) == 1:
                return pa.nulls(1, type_), {begin}
        middle = len(texts) // 2
        first, doubts = self._cast(texts[:middle], type_, begin)
        second, more = self._cast(texts[middle:], type_, begin + middle)
        return pa.concat_arrays([first, second]), doubts | more

    def _take_distinct(
        self, values: Sequence[str | None], read: Callable[[str], tuple[object, str | None]]
    ) -> tuple[pa.Array, Doubts]:
        """The same by the definition: each text once, as dates come many times."""
        found: dict[str | None, tuple[object, str | None]] = {None: (None, None)}
        found.update((text, read(text)) for text in set(values) if text is not None)
        doubts = {at for at, text in enumerate(values) if found[text][1] is not None}
        return pa.array([found[text][0] for text in values], self.type), doubts


class _Times(Texts):
    """Times as texts, and as whole seconds since 1970."""

    form = Annotated[int, msgspec.Meta(ge=-62135596800, le=253402300799)] | str | None

    def to_arrow(self, values: Sequence[int | str | None]) -> tuple[pa.Array, Doubts]:
        if not any(type(value) is int for value in values):
            return self.read_texts(pa.array(values, pa.string()))
        texts = [value if type(value) is str else None for value in values]
        seconds = pa.array([value if type(value) is int else None for value in values], pa.int64())
        column, doubts = self.read_texts(pa.array(texts, pa.string()))
        return pc.coalesce(pc.multiply(seconds, 1_000_000).cast(self.type), column), doubts


class _Doubtful(Values[msgspec.Raw | None]):
    """A type whose values are never beyond doubt here: BINARY."""

    form = msgspec.Raw
    missing = msgspec.Raw(b"")

    def to_arrow(self, values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, Doubts]:
        doubts = {at for at, value in enumerate(values) if value is not None and bytes(value) != b"null"}
        return pa.nulls(len(values), self.type), doubts


class Record(Values[msgspec.Struct | None]):
    """The fields of a struct, each its own column."""

    has_keys = True

    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        names = [name for name, _ in node.fields]
        self._fields = [make_values(inner, ways) for _, inner in node.fields]
        slots = [f"f{number}" for number in range(len(names))]
        forms = [one.form if one.form is msgspec.Raw else one.form | msgspec.UnsetType for one in self._fields]
        self.decoded = msgspec.defstruct(
            "Record",
            [(slot, form, one.missing) for slot, form, one in zip(slots, forms, self._fields, strict=True)],
            rename=dict(zip(slots, map(_decodable, names), strict=True)),
            gc=False,
        )
        self.form = self.decoded | None
        self._slots = [attrgetter(slot) for slot in slots]

    def to_columns(self, rows: Sequence[msgspec.Struct]) -> tuple[list[pa.Array], Doubts, int]:
        """Each field of ``rows``, none of which is None; the doubtful rows; the keys of all objects in them."""
        columns, doubts, keys = [], set[int](), 0
        for slot, one in zip(self._slots, self._fields, strict=True):
            values = list(map(slot, rows))
            if missing := values.count(one.missing):
                values = [None if value is one.missing else value for value in values]
            column, found = one.to_arrow(values)
            columns.append(column)
            doubts |= found
            keys += len(values) - missing + one.count_keys(values)
        return columns, doubts, keys

    def count_keys_of_each(self, rows: Sequence[msgspec.Struct]) -> list[int] | None:
        """How many keys each of ``rows`` has, at every depth; None where arrays or maps have keys inside them."""
        counts = [len(self._fields)] * len(rows)
        for slot, one in zip(self._slots, self._fields, strict=True):
            if one.has_keys and not isinstance(one, Record):
                return None
            values = list(map(slot, rows))
            if values.count(one.missing):
                counts = [n - (value is one.missing) for n, value in zip(counts, values, strict=True)]
            if isinstance(one, Record):
                empty = one.decoded()
                inner = [empty if value is None or value is one.missing else value for value in values]
                if (more := one.count_keys_of_each(inner)) is None:
                    return None
                counts = [n + m for n, m in zip(counts, more, strict=True)]
        return counts

    def to_arrow(self, values: Sequence[msgspec.Struct | None]) -> tuple[pa.Array, Doubts]:
        mask = None
        if values.count(None):
            mask = pa.array([value is None for value in values], pa.bool_())
        columns, doubts, self._keys = self.to_columns(self._without_none(values))
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=mask), doubts

    def count_keys(self, values: Sequence[msgspec.Struct | None]) -> int:
        return self._keys

    def _without_none(self, values: Sequence[msgspec.Struct | None]) -> list[msgspec.Struct]:
        empty = self.decoded()
        return [empty if value is None else value for value in values]


class _Nested(Values[_Container]):
    """Arrays and maps: what they hold becomes one column, with the bounds of each."""

    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        self.item = make_values(node.item, ways)
        self.has_keys = node.kind == "map" or self.item.has_keys

    def _inside(self, values: Sequence[_Container], items: list[object]) -> tuple[pa.Array, pa.Array, pa.Array, Doubts]:
        """(the bounds of each value, the column of ``items``, which values are None, which have a doubtful item)."""
        ends = list(itertools.accumulate((len(value) if value else 0 for value in values), initial=0))
        column, found = self.item.to_arrow(items)
        self._keys = self.item.count_keys(items)
        doubts = {bisect.bisect_right(ends, at) - 1 for at in found}
        return pa.array(ends, pa.int32()), column, pa.array([value is None for value in values], pa.bool_()), doubts

    def count_keys(self, values: Sequence[_Container]) -> int:
        return self._keys


class _Array(_Nested[list[object] | None]):
    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        self.form = GenericAlias(list, (self.item.form,)) | None

    def to_arrow(self, values: Sequence[list[object] | None]) -> tuple[pa.Array, Doubts]:
        items = list(itertools.chain.from_iterable(value for value in values if value))
        offsets, column, mask, doubts = self._inside(values, items)
        return pa.ListArray.from_arrays(offsets, column, type=self.type, mask=mask), doubts


class _Map(_Nested[dict[str, object] | None]):
    def __init__(self, node: Node, ways: Ways) -> None:
        super().__init__(node, ways)
        self.form = GenericAlias(dict, (str, self.item.form)) | None

    def to_arrow(self, values: Sequence[dict[str, object] | None]) -> tuple[pa.Array, Doubts]:
        held = [value for value in values if value]
        keys = pa.array(list(itertools.chain.from_iterable(held)), pa.string())
        items = list(itertools.chain.from_iterable(value.values() for value in held))
        offsets, column, mask, doubts = self._inside(values, items)
        self._keys += len(keys)
        return pa.MapArray.from_arrays(offsets, keys, column, type=self.type, mask=mask), doubts


_ODD = re.compile(r'["\\\x00-\x1f]')


def has_odd_name(root: Node) -> bool:
    """Return whether a field has a name that msgspec cannot look for."""
    return any(_ODD.search(name) for node in root.walk() for name, _ in node.fields)


def _decodable(name: str) -> str:
    return _ODD.sub(" ", name)


def find_doubtful(doubtful: pa.Array) -> Doubts:
    return set(pc.indices_nonzero(pc.fill_null(doubtful, False)).to_pylist())


_KINDS: dict[str, type[Values[Any]]] = {
    **dict.fromkeys(("boolean", "string", *_WHOLE), _Plain),
    **dict.fromkeys(("float", "double"), _Floating),
    "decimal": _Decimal,
    "date": Texts,
    "timestamp_ntz": Texts,
    "timestamp": _Times,
    "binary": _Doubtful,
    "struct": Record,
    "array": _Array,
    "map": _Map,
}


def make_values(node: Node, ways: Ways) -> Values[Any]:
    """How values of the type ``node`` are decoded and held, when they are written as ``ways`` says."""
    return _KINDS[node.kind](node, ways)
