"""Spark's DDL for columns (``id BIGINT, tags ARRAY<STRING>``) read without a JVM.

The grammar is Spark's own (``colTypeList`` and ``dataType`` of its SQL parser), without the types that a source cannot
be read into or the table cannot hold; those are refused by name, with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.spec.faults import name_nearest


class Column(NamedTuple):
    """A column: ``type`` in Spark's short lower-case form (``bigint``, ``decimal(10,2)``, ``array<string>``)."""

    name: str
    type: str
    nullable: bool


class DdlError(ValueError):
    """A schema that is not Spark DDL. ``column`` is the name of the column it happens in, when known."""

    def __init__(self, message: str, fix: str, column: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.column = column


_SIMPLE = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
}
PARTITION_TYPES = ("string", "date", "tinyint", "smallint", "int", "bigint")
"""Types of columns that a table can be partitioned by: of other values in folder names readers disagree."""
_DECIMAL = {"decimal", "dec", "numeric"}
_NESTED = {"array", "map", "struct"}
_REFUSED = {
    "char": "write STRING, which has no fixed length",
    "character": "write STRING, which has no fixed length",
    "varchar": "write STRING, and limit its length by an expectation",
    "interval": "write STRING or BIGINT: a table cannot hold an interval",
    "time": "write STRING: a table cannot hold a time of day",
    "void": "write the type of the values: a table cannot hold VOID",
    "variant": "write STRING, and take it apart in the transform: a table cannot hold VARIANT",
    "geometry": "write BINARY or STRING: a table cannot hold GEOMETRY",
    "geography": "write BINARY or STRING: a table cannot hold GEOGRAPHY",
    "text": "write STRING",
    "datetime": "write TIMESTAMP",
    "number": "write DECIMAL(precision, scale), BIGINT or DOUBLE",
    "bool": "write BOOLEAN",
    "int64": "write BIGINT",
    "int32": "write INT",
    "float64": "write DOUBLE",
    "str": "write STRING",
    "object": "write STRUCT<...> or MAP<STRING, ...>",
    "list": "write ARRAY<...>",
    "json": "write STRUCT<...>, or STRING",
}
_KNOWN = [name.upper() for name in (*_SIMPLE, "decimal", *sorted(_NESTED))]
_MOST_DIGITS = 38
_DEEPEST = 50

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>`(?:[^`]|``)*`)
          |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
          |(?P<word>\w+)
          |(?P<mark>.))""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z0-9_]+")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


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
    def digits(self) -> tuple[int, int]:
        """(digits, of these decimals) of a DECIMAL."""
        match = re.fullmatch(r"decimal\((\d+),(\d+)\)", self.type)
        return (int(match[1]), int(match[2])) if match else (10, 0)

    @property
    def scale(self) -> int:
        """The decimals of a DECIMAL."""
        return self.digits[1]

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


def parse_ddl(text: str) -> list[Column]:
    """The columns of a schema, in order.

    Raises DdlError with what is wrong, the column and the fix. Names that differ only in case are one name to Spark and
    refused, as are columns without a type.
    """
    columns = _Parser(text).read_columns()
    refuse_twins([column.name for column in columns], None)
    return columns


def read_type(text: str) -> Node:
    """The tree of a type. Raises DdlError."""
    return _Parser(text).read_type()


def read_columns(columns: Sequence[Column]) -> Node:
    """The struct of a source's columns."""
    return Node("struct", "", tuple((column.name, read_type(column.type)) for column in columns))


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


def is_infer(text: str | None) -> bool:
    """Return whether a schema is the word ``infer`` instead of columns."""
    return text is not None and text.strip().lower() == "infer"


def show_ddl(columns: list[Column]) -> str:
    """Columns as one text, the same for every way of writing them."""
    return ", ".join(f"{quote_name(name)} {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in columns)


def quote_column(name: str) -> str:
    """A top-level column as Spark SQL names it: dots, blanks and backticks are part of the name."""
    return "`" + name.replace("`", "``") + "`"


def quote_name(name: str) -> str:
    """A column's name as DDL wants it: in backticks where it is not a plain word."""
    return name if _PLAIN.fullmatch(name) else quote_column(name)


def refuse_twins(names: list[str], column: str | None) -> None:
    """Raise DdlError when two names are one to Spark, which does not look at case."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            first = seen[name.lower()]
            same = f"{name!r} is there twice" if first == name else f"{first!r} and {name!r} are one name to Spark"
            raise DdlError(same, "give each its own name", column or name)
        seen[name.lower()] = name


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        found = _TOKEN.finditer(text.rstrip())
        self._tokens = [_Token(str(match.lastgroup), match.group(match.lastgroup or 0)) for match in found]
        self._at = 0
        self._column: str | None = None

    def read_columns(self) -> list[Column]:
        columns: list[Column] = []
        if not self._tokens:
            raise DdlError("there is no column", "write the columns: id BIGINT, name STRING")
        while True:
            self._column = None
            name = self._read_name(f"column {len(columns) + 1}")
            self._column = name
            if self._skip(":"):
                raise self._error("a colon between name and type", f"write {quote_name(name)} TYPE, without the colon")
            kind = self.read_type().type
            columns.append(Column(name, kind, self._read_ending()))
            if self._peek() is None:
                return columns
            self._expect(",", "a comma between columns")

    def _error(self, message: str, fix: str) -> DdlError:
        return DdlError(message, fix, self._column)

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _skip(self, mark: str) -> bool:
        token = self._peek()
        if token is not None and token.kind == "mark" and token.text == mark:
            self._at += 1
            return True
        return False

    def _skip_word(self, word: str) -> bool:
        token = self._peek()
        if token is not None and token.kind == "word" and token.text.lower() == word:
            self._at += 1
            return True
        return False

    def _expect(self, mark: str, what: str) -> None:
        if not self._skip(mark):
            token = self._peek()
            found = repr(token.text) if token else "the end"
            raise self._error(f"{found} where {what} belongs", f"write {mark!r} there")

    def _read_name(self, what: str) -> str:
        token = self._peek()
        if token is not None and token.kind == "quoted" and len(token.text) > 2:
            self._at += 1
            return token.text[1:-1].replace("``", "`")
        if token is not None and token.kind == "word":
            if not _WORD.fullmatch(token.text) or token.text.isdigit():
                raise self._error(f"the name {token.text!r}", f"put it in backticks: `{token.text}`")
            self._at += 1
            follower = self._peek()
            if follower is not None and follower.kind == "mark" and follower.text in "-.":
                raise self._error(
                    f"{follower.text!r} in a name that begins with {token.text!r}", "put the whole name in backticks"
                )
            return token.text
        found = repr(token.text) if token else "the end"
        raise self._error(f"{found} where the name of {what} belongs", "write the columns: id BIGINT, name STRING")

    def read_type(self, depth: int = 0) -> Node:
        token = self._peek()
        if token is None or token.kind != "word":
            found = repr(token.text) if token else "the end"
            raise self._error(f"{found} where a type belongs", "write NAME TYPE, for example id BIGINT")
        if depth > _DEEPEST:
            raise self._error("types nested too deep", "write STRING, and take it apart in the transform")
        self._at += 1
        word = token.text.lower()
        if word in _SIMPLE:
            if word == "string" and self._skip_word("collate"):
                raise self._error("a collation", "write STRING alone: other readers of the table know no collations")
            if word == "timestamp" and self._skip_word("without"):
                self._expect_words("time", "zone")
                return Node("timestamp_ntz", "timestamp_ntz")
            if word == "timestamp" and self._skip_word("with"):
                self._expect_words("local", "time", "zone")
                return Node("timestamp", "timestamp")
            self._refuse_size(token.text)
            return Node(_SIMPLE[word], _SIMPLE[word])
        if word in _DECIMAL:
            return self._read_decimal()
        if word not in _NESTED:
            raise self._unknown_type(token.text)
        return self._read_nested(word, depth)

    def _expect_words(self, *words: str) -> None:
        for word in words:
            if not self._skip_word(word):
                fix = "write TIMESTAMP, or TIMESTAMP_NTZ for one without a zone"
                raise self._error(f"the type is not complete: {word.upper()} is missing", fix)

    def _refuse_size(self, shown: str) -> None:
        token = self._peek()
        if token is not None and token.kind == "mark" and token.text in "(<":
            raise self._error(f"{shown.upper()} takes nothing in {token.text}...", f"write {shown.upper()} alone")

    def _unknown_type(self, shown: str) -> DdlError:
        fix = _REFUSED.get(shown.lower())
        if fix is not None:
            return self._error(f"the type {shown.upper()} cannot be used", fix)
        nearest = name_nearest(shown, _KNOWN)
        return self._error(
            f"there is no type {shown!r}", f"write {nearest}" if nearest else f"allowed: {', '.join(_KNOWN)}"
        )

    def _read_number(self) -> int:
        token = self._peek()
        if token is None or not (token.text.isascii() and token.text.isdigit()):
            found = repr(token.text) if token else "the end"
            raise self._error(f"{found} where a number of digits belongs", "write DECIMAL(precision, scale)")
        self._at += 1
        return int(token.text)

    def _read_decimal(self) -> Node:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._read_number()
            if self._skip(","):
                scale = self._read_number()
            self._expect(")", "the end of DECIMAL(...)")
        if not 1 <= precision <= _MOST_DIGITS:
            raise self._error(f"DECIMAL({precision},{scale}) has {precision} digits", f"use 1 to {_MOST_DIGITS}")
        if scale > precision:
            raise self._error(
                f"DECIMAL({precision},{scale}) has more digits after the point than digits",
                f"write DECIMAL({scale},{scale}), or a smaller scale",
            )
        return Node("decimal", f"decimal({precision},{scale})")

    def _read_nested(self, word: str, depth: int) -> Node:
        self._expect("<", f"what the {word.upper()} holds")
        if word == "array":
            inner = self.read_type(depth + 1)
            self._expect(">", "the end of ARRAY<...>")
            return Node(word, f"array<{inner.type}>", (("", inner),))
        if word == "map":
            key = self.read_type(depth + 1)
            self._expect(",", "the comma between key and value of MAP<...>")
            if key.kind == "map":
                raise self._error("a MAP cannot be the key of a MAP", "write a plain type as the key")
            value = self.read_type(depth + 1)
            self._expect(">", "the end of MAP<...>")
            return Node(word, f"map<{key.type},{value.type}>", (("", value),), key)
        fields: list[tuple[str, Node]] = []
        while not self._skip(">"):
            if fields:
                self._expect(",", "a comma between fields of STRUCT<...>, or its end,")
            name = self._read_name("a field of STRUCT<...>")
            self._skip(":")
            fields.append((name, self.read_type(depth + 1)))
            self._read_ending()
        if not fields:
            raise self._error("STRUCT<> has no fields", "write its fields: STRUCT<city: STRING>")
        refuse_twins([name for name, _ in fields], self._column)
        inside = ",".join(f"{quote_name(name)}:{inner.type}" for name, inner in fields)
        return Node(word, f"struct<{inside}>", tuple(fields))

    def _read_ending(self) -> bool:
        """What may follow a type: NOT NULL and COMMENT '...'. Returns whether null is allowed."""
        nullable = True
        if self._skip_word("not"):
            if not self._skip_word("null"):
                raise self._error("NOT without NULL", "write NOT NULL")
            nullable = False
        if self._skip_word("comment"):
            token = self._peek()
            if token is None or token.kind != "text":
                raise self._error("COMMENT without a text", "write COMMENT 'a text in quotes'")
            self._at += 1
        token = self._peek()
        if token is not None and token.kind == "word":
            fix = "put a comma between columns" if token.text.lower() != "default" else "remove it"
            raise self._error(f"{token.text!r} after the type", fix)
        return nullable
