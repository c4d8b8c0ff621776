"""Converts the elements and attributes of an XML record to values, by the types of the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidegate.sources.readers.values import Number, Pairs
from tidegate.sources.readers.xml_elements import BLANKS, Element, Record, is_namespace
from tidegate.spec.ddl_tree import Node

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
# Possessive, so that many zeros before something else take no time.
_NUMBER = re.compile(r"([+-]?)0*+(\d++)?(?:\.(\d*+))?([eE][+-]?\d++)?", re.ASCII)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class XmlOptions(NamedTuple):
    """How elements and attributes become columns: Spark's options of that name."""

    row_tag: str
    attribute_prefix: str = "_"
    value_tag: str = "_VALUE"
    without_attributes: bool = False
    without_namespace: bool = False
    strips: bool = True
    null_value: str | None = None
    encoding: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> XmlOptions:
        """Those of a source."""
        return cls(
            row_tag=options["rowTag"],
            attribute_prefix=options.get("attributePrefix", "_"),
            value_tag=options.get("valueTag", "_VALUE"),
            without_attributes=options.get("excludeAttribute") == "true",
            without_namespace=options.get("ignoreNamespace") == "true",
            strips=options.get("ignoreSurroundingSpaces", "true") == "true",
            null_value=options.get("nullValue"),
            encoding=options.get("encoding"),
        )


class Shaper:
    """Makes a value of each record, as :func:`tidegate.sources.readers.values.make_converter` takes it."""

    def __init__(self, root: Node, options: XmlOptions) -> None:
        self._root = root
        self._options = options
        self._fields = {id(node): dict(node.fields) for node in root.walk() if node.kind == "struct"}

    def shape(self, record: Record) -> Pairs:
        """A record without a fault as an object."""
        return self._struct(record, record.element, self._root)

    def _name(self, name: str) -> str:
        return name.rpartition(":")[2] if self._options.without_namespace else name

    def _attributes(self, element: Element) -> Iterator[tuple[str, str]]:
        if not self._options.without_attributes:
            for name, text in element.attributes.items():
                if not is_namespace(name):
                    yield self._options.attribute_prefix + self._name(name), text

    def _own_text(self, element: Element) -> str:
        text = "".join(element.texts)
        return text.strip(BLANKS) if self._options.strips else text

    def _struct(self, record: Record, element: Element, node: Node) -> Pairs:
        types, value_tag = self._fields[id(node)], self._options.value_tag
        pairs = Pairs()
        unknown: dict[str, list[Any]] = {}
        for name, text in self._attributes(element):
            if name in types:
                pairs.append((name, self._leaf(text, types[name])))
            else:
                unknown.setdefault(name, []).append(text)
        text = self._own_text(element)
        if text.strip(BLANKS) or (value_tag in types and not element.children):
            if value_tag in types:
                pairs.append((value_tag, self._leaf(text, types[value_tag])))
            else:
                unknown.setdefault(value_tag, []).append(text)
        lists: dict[str, list[Any]] = {}
        for child in element.children:
            name = self._name(child.name)
            if (type_ := types.get(name)) is None:
                unknown.setdefault(name, []).append(self._anything(child))
                continue
            item = type_.item if type_.kind == "array" else type_
            if type_.kind == "array":
                lists.setdefault(name, []).append(self._value(record, child, item))
            else:
                pairs.append((name, self._value(record, child, item)))  # twice: as a key that is there twice
            if child.attributes and item.kind not in ("struct", "map"):
                # A value of one type has no place for attributes.
                for attribute, text in self._attributes(child):
                    unknown.setdefault(f"{name}.{attribute}", []).append(text)
        pairs += lists.items()
        pairs += ((name, values[0] if len(values) == 1 else values) for name, values in unknown.items())
        return pairs

    def _value(self, record: Record, element: Element, node: Node) -> Any:
        if node.kind == "struct":
            return self._struct(record, element, node)
        if node.kind == "map":
            pairs = Pairs((self._name(child.name), self._value(record, child, node.item)) for child in element.children)
            pairs += ((name, self._leaf(text, node.item)) for name, text in self._attributes(element))
            if text := self._own_text(element).strip(BLANKS):
                pairs.append((self._options.value_tag, self._leaf(text, node.item)))
            return pairs
        if node.kind == "array":
            return [self._value(record, element, node.item)]
        if not element.children:
            return self._leaf("".join(element.texts), node)
        if node.kind != "string":
            return self._anything(element)
        inner = record.between_tags(element).decode()
        return inner.strip(BLANKS) if self._options.strips else inner

    def _leaf(self, text: str, node: Node) -> Any:
        stripped = text.strip(BLANKS)
        if node.kind == "string":
            stripped = stripped if self._options.strips else text
            return None if stripped == self._options.null_value else stripped
        if stripped == self._options.null_value or not stripped:
            return None
        if node.kind in _NUMBERS:
            return _read_number(stripped)
        return _BOOLEANS.get(stripped.lower(), stripped) if node.kind == "boolean" else stripped

    def _anything(self, element: Element) -> Any:
        """An element that the schema does not have."""
        pairs = Pairs(self._attributes(element))
        if not pairs and not element.children:
            return self._own_text(element)
        children: dict[str, list[Any]] = {}
        for child in element.children:
            children.setdefault(self._name(child.name), []).append(self._anything(child))
        pairs += ((name, found[0] if len(found) == 1 else found) for name, found in children.items())
        if text := self._own_text(element).strip(BLANKS):
            pairs.append((self._options.value_tag, text))
        return pairs


def _read_number(text: str) -> str:
    """A number as JSON writes it, digit for digit: without a plus and zeros before it. Other texts as they are."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3] or "0" in text.lower().partition("e")[0]):
        return text
    sign, whole, decimals, exponent = match.groups()
    point = f".{decimals}" if decimals else ""
    return Number(f"{'-' if sign == '-' else ''}{whole or '0'}{point}{exponent or ''}")
