"""A type in Spark's short form (``struct<a:int,b:array<decimal(5,2)>>``), taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tidegate.spec.ddl import Column, quote_name

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


class Node(NamedTuple):
    """A type; ``kind`` is its first word. A struct has fields, an array its item, a map its value (both nameless) and
    its ``key``, which no record format but parquet and orc has in another type than text."""

    kind: str
    type: str
    fields: tuple[tuple[str, Node], ...] = ()
    key: Node | None = None

    @property
    def item(self) -> Node:
        """What an array or a map holds."""
        return self.fields[0][1]

    @property
    def scale(self) -> int:
        """The decimals of a DECIMAL."""
        return digits_of_decimal(self.type)[1]

    @property
    def shown(self) -> str:
        """The type as users write it: ``STRUCT<a: INT, b: ARRAY<STRING>>``."""
        if self.kind == "struct":
            return f"STRUCT<{', '.join(f'{quote_name(name)}: {inner.shown}' for name, inner in self.fields)}>"
        if self.fields:
            key = "" if self.key is None else f"{self.key.shown}, "
            return f"{self.kind.upper()}<{key}{self.item.shown}>"
        return self.type.upper()

    def leaves(self) -> Iterator[Node]:
        """The types inside that hold no other type."""
        return (node for node in self.walk() if not node.fields)

    def walk(self) -> Iterator[Node]:
        """The type itself and every one inside."""
        yield self
        for _, inner in self.fields:
            yield from inner.walk()


def digits_of_decimal(type_: str) -> tuple[int, int]:
    """(digits, of these decimals) of a DECIMAL; Spark's default without them."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else (10, 0)


def read_type(text: str) -> Node:
    """The tree of a type as :func:`tidegate.spec.ddl.parse_ddl` writes it."""
    kind = re.split(r"[<(]", text, maxsplit=1)[0]
    if not text.endswith(">"):
        return Node(kind, text)
    parts = _split(text[len(kind) + 1 : -1])
    if kind == "struct":
        named = [_name_and_type(part) for part in parts]
        return Node(kind, text, tuple((name, read_type(inner)) for name, inner in named))
    return Node(kind, text, (("", read_type(parts[-1])),), read_type(parts[0]) if kind == "map" else None)


def read_json(kind: Any) -> Node:
    """The tree of a type as Spark writes it in JSON: a word, or an object with ``type`` and what is inside."""
    if isinstance(kind, str):
        return Node(kind.partition("(")[0], kind)
    if kind["type"] == "struct":
        return Node("struct", "", tuple((field["name"], read_json(field["type"])) for field in kind["fields"]))
    if kind["type"] == "array":
        return Node("array", "", (("", read_json(kind["elementType"])),))
    if kind["type"] == "map":
        return Node("map", "", (("", read_json(kind["valueType"])),), read_json(kind["keyType"]))
    return Node(kind["type"], "")


def read_columns(columns: Sequence[Column]) -> Node:
    """The struct of a source's columns."""
    return Node("struct", "", tuple((column.name, read_type(column.type)) for column in columns))


def _split(text: str) -> list[str]:
    """The parts between the outermost commas."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, letter in enumerate(text):
        if letter == "`":
            quoted = not quoted
        elif not quoted:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and depth == 0:
                parts.append(text[start:at].strip())
                start = at + 1
    return [*parts, text[start:].strip()]


def _name_and_type(part: str) -> tuple[str, str]:
    if part.startswith("`"):
        match = re.match(r"`((?:[^`]|``)*)`:", part)
        assert match is not None, part
        return match[1].replace("``", "`"), part[match.end() :]
    name, _, inner = part.partition(":")
    return name, inner
