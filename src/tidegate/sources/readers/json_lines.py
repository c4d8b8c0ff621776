"""Reads lines of JSON as record batches: most with a typed decoder, doubtful ones with the functions that define
values."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tidegate.sources.bounds import MANY_VALUES
from tidegate.sources.readers.columns import MANY_ZEROS, TINY, Record, arrow_type, has_odd_name
from tidegate.sources.readers.json_text import MANY_LEVELS, RecordReader, read_object
from tidegate.sources.readers.opening import is_utf8
from tidegate.sources.readers.records import Batch, Wrong, arrange
from tidegate.sources.readers.values import Fault, Findings, write_unknown
from tidegate.sources.readers.ways import PLAIN, Ways
from tidegate.spec.ddl import Node

_NESTED = (dict, list)


class _Known(NamedTuple):
    """Of a key: whether the schema lacks it, and the look at its value."""

    name: str
    is_lacking: bool
    look: KeyLook


class KeyLook:
    """Looks at values of the type ``node``; None is a value that no type is known of.

    Records of a feed have few sets of keys, so what a set means is found once.
    """

    def __init__(self, node: Node | None) -> None:
        self._kind = "" if node is None else node.kind
        self._fields = {name: KeyLook(inner) for name, inner in node.fields} if self._kind == "struct" and node else {}
        self._item = KeyLook(node.item) if node is not None and self._kind in ("array", "map") else None
        self._shapes: dict[tuple[str, ...], tuple[_Known, ...]] = {}

    def look(self, value: object, path: str, names: list[str]) -> int:
        """The number of keys in ``value``, at every depth; the paths of those that the schema lacks go to ``names``."""
        if type(value) is list:
            item, inside = self._item or _ANY, f"{path}[]"
            return sum(item.look(one, inside, names) for one in value if type(one) in _NESTED)
        if type(value) is not dict:
            return 0
        count = len(value)
        if self._kind != "struct":
            item, inside = self._item or _ANY, f"{path}{{}}"
            return count + sum(item.look(one, inside, names) for one in value.values() if type(one) in _NESTED)
        keys = tuple(value)
        shape = self._shapes.get(keys)
        if shape is None:
            shape = self._describe(keys)
            if len(self._shapes) < _SHAPES_AT_MOST:
                self._shapes[keys] = shape
        before = f"{path}." if path else ""
        for name, is_lacking, inner in shape:
            if is_lacking:
                names.append(before + name)
            one = value[name]
            if type(one) in _NESTED:
                count += inner.look(one, before + name, names)
        return count

    def _describe(self, keys: tuple[str, ...]) -> tuple[_Known, ...]:
        """What there is to do for an object with these keys, in their order."""
        known = (_Known(name, name not in self._fields, self._fields.get(name, _ANY)) for name in keys)
        return tuple(one for one in known if one.is_lacking or one.look._fields or one.look._item)


_SHAPES_AT_MOST = 1000
_ANY = KeyLook(None)


class JsonReader:
    """Reads lines of JSON as records with the columns of ``root``, a struct; ``required`` ones are NOT NULL."""

    def __init__(
        self, root: Node, required: frozenset[str] = frozenset(), ways: Ways = PLAIN, *, rescues: bool = False
    ) -> None:
        self._rescues = rescues
        self._root, self._switches = root, ways.switches
        self._record = Record(root, ways)
        self._decode = msgspec.json.Decoder(self._record.decoded).decode
        self._decode_any = msgspec.json.Decoder(float_hook=str).decode  # only for names, so 1e400 is not a fault
        self._exact = RecordReader(root, required, ways)
        self._required = [number for number, (name, _) in enumerate(root.fields) if name in required]
        self._look = KeyLook(root)
        self._has_odd_name = has_odd_name(root)
        self._has_floats = any(leaf.kind in ("float", "double") for leaf in root.leaves())

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of ``lines``, none of which is blank; ``block`` is the text that they are the lines of."""
        rows, doubts = self._decode_all(lines, block)
        count = _count_spaced_marks if _has_blanks(block) else _count_marks
        marks = count(block) - sum(count(lines[at]) for at in doubts)
        columns, found, keys = self._record.to_columns(rows)
        doubts |= found
        for number in self._required:
            if columns[number].null_count:
                doubts |= {at for at, is_null in enumerate(columns[number].is_null().to_pylist()) if is_null}
        unknown: dict[int, list[str]] = {}
        if marks != keys:
            # The marks behind keys are never fewer than the keys: as many as are known, and no key is unknown or there
            # twice.
            each = self._record.count_keys_of_each(rows)
            suspects = [
                at for at, line in enumerate(lines) if at not in doubts and (each is None or count(line) != each[at])
            ]
            unknown, more = self._find_others(lines, suspects, count)
            doubts |= more
        wrong: dict[int, Wrong] = {}
        if doubts:
            columns = self._replace(columns, lines, sorted(doubts), wrong, unknown)
        return self._complete(columns, lines, wrong, unknown)

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same by the functions that define values alone: far slower."""
        wrong: dict[int, Wrong] = {}
        unknown: dict[int, list[str]] = {}
        nothing = [pa.nulls(len(lines), arrow_type(inner)) for _, inner in self._root.fields]
        columns = self._replace(nothing, lines, range(len(lines)), wrong, unknown)
        return self._complete(columns, lines, wrong, unknown)

    def _complete(
        self,
        columns: Sequence[pa.Array],
        lines: Sequence[bytes],
        wrong: dict[int, Wrong],
        unknown: dict[int, list[str]],
    ) -> Batch:
        rescued = {}
        for at in sorted(unknown.keys() - wrong.keys()) if self._rescues else ():
            try:
                value = read_object(lines[at].decode(), self._switches)
                if isinstance(value, Fault):  # the fast way reads more levels
                    raise RecursionError
                rescued[at] = write_unknown(value, self._root)
            except RecursionError:
                wrong[at] = Wrong(MANY_LEVELS, lines[at])
        return Batch(columns, wrong, unknown, rescued)

    def _decode_all(self, lines: Sequence[bytes], block: bytes) -> tuple[list[msgspec.Struct], set[int]]:
        decode, doubts = self._decode, set[int]()
        has_odd_text = not block.isascii() and not is_utf8(block)
        has_tiny = self._has_floats and (b"e-" in block or b"E-" in block or MANY_ZEROS in block)
        if has_odd_text or has_tiny or max(map(len, lines), default=0) > MANY_VALUES:
            for at, line in enumerate(lines):
                if (has_odd_text and not is_utf8(line)) or (has_tiny and TINY.search(line)) or len(line) > MANY_VALUES:
                    doubts.add(at)
        if self._has_odd_name:
            doubts = set(range(len(lines)))
        if doubts:
            lines = [b"{}" if at in doubts else line for at, line in enumerate(lines)]
        try:
            rows = [decode(line) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            rows, empty = [], self._record.decoded()
            for at, line in enumerate(lines):
                try:
                    rows.append(decode(line))
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    rows.append(empty)
                    doubts.add(at)
        return rows, doubts

    def _find_others(
        self, lines: Sequence[bytes], suspects: Sequence[int], count: Callable[[bytes], int]
    ) -> tuple[dict[int, list[str]], set[int]]:
        """The unknown fields of those records, by their places; and those that may have a key twice."""
        decode, look = self._decode_any, self._look.look
        unknown: dict[int, list[str]] = {}
        twice: set[int] = set()
        for at in suspects:
            names: list[str] = []
            try:
                keys = look(decode(lines[at]), "", names)
            except (msgspec.MsgspecError, ValueError, RecursionError):  # a whole number of 5,000 digits, 900 levels
                twice.add(at)
                continue
            if names:
                unknown[at] = list(dict.fromkeys(names))
            if count(lines[at]) != keys:
                twice.add(at)
        return unknown, twice

    def _replace(
        self,
        columns: Sequence[pa.Array],
        lines: Sequence[bytes],
        doubts: Sequence[int],
        wrong: dict[int, Wrong],
        unknown: dict[int, list[str]],
    ) -> list[pa.Array]:
        """``columns`` with the values of the doubtful records as they are defined; what is malformed has none."""
        rows: dict[int, dict[str, object]] = {}
        for at in doubts:
            rows[at], fault, names = self._read_closely(lines[at])
            if fault is not None:
                wrong[at] = fault
                unknown.pop(at, None)
            elif names:
                unknown[at] = names
        return arrange(self._root, columns, range(len(lines)), rows, {})

    def _read_closely(self, line: bytes) -> tuple[dict[str, object], Wrong | None, list[str]]:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return {}, Wrong("not valid UTF-8", base64.b64encode(line)), []
        if (commas := line.count(b",")) > MANY_VALUES:
            limit = f"too many values for one record; the limit is {MANY_VALUES:,}"
            return {}, Wrong(f"{commas:,} commas, {limit}", line), []
        findings = Findings()
        try:
            values = self._exact.read(text, findings)
        except RecursionError:
            return {}, Wrong(MANY_LEVELS, line), []
        if findings.faults:
            return {}, Wrong.of(findings.faults, line), []
        return values, None, list(dict.fromkeys(findings.unknown))


_MARK = re.compile(rb'"[ \t\r\n]*:')


def _has_blanks(text: bytes) -> bool:
    """Return whether there are blanks before a colon. Most are looked for alone first, which is far cheaper."""
    return any(blank in text and blank + b":" in text for blank in (b" ", b"\t", b"\r", b"\n"))


def _count_marks(text: bytes) -> int:
    """How often a quote and a colon follow each other, as behind each key; within a text they may too."""
    return text.count(b'":')


def _count_spaced_marks(text: bytes) -> int:
    """The same where blanks may be between the two."""
    return len(_MARK.findall(text))
