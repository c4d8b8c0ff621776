"""Avro types: their encoding, and the Arrow types for them.

(Avro 1.12 specification. The mapping is that of ``SchemaConverters`` in Spark 4.2.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


class NotAvro(ValueError):
    """Why a file cannot be read as Avro, in words."""


@dataclass(frozen=True)
class Datum:
    """A type of Avro: ``kind`` is how its values are written, ``arrow`` what holds them.

    A record has its fields, an array its items, a map its values, a union its choices ``inside``. ``detail`` is the
    size of a fixed type, or the symbols of an enum.
    """

    kind: str
    arrow: pa.DataType
    inside: tuple[Datum, ...] = ()
    detail: Any = None


def read_schema(schema: object) -> Datum:
    """Read the record of a schema. Raises NotAvro when it is not a record."""
    try:
        found = _Types().read(schema, "")
    except NotAvro:
        raise
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise NotAvro("its header has no schema that can be read") from error
    if found.kind != "record":
        raise NotAvro("its schema is not a record, so it has no columns")
    return found


class _Types:
    """Reads types; ``_named`` are the records, enums and fixed types that were met, None for a record that is still
    being read."""

    def __init__(self) -> None:
        self._named: dict[str, Datum | None] = {}

    def read(self, schema: object, namespace: str) -> Datum:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._plain(schema, {}, namespace)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise NotAvro(f"its schema has no type at {json.dumps(schema)[:80]}")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace)
        if kind == "array":
            item = self.read(schema.get("items"), namespace)
            return Datum(kind, pa.list_(item.arrow), (item,))
        if kind == "map":
            item = self.read(schema.get("values"), namespace)
            return Datum(kind, pa.map_(pa.string(), item.arrow), (item,))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, namespace)
        return self._plain(kind, schema, namespace)

    def _define(self, kind: str, schema: Mapping[str, object], namespace: str) -> Datum:
        name = str(schema.get("name", ""))
        inside = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace) or "")
        full = _full_name(name, inside)
        if kind == "enum":
            found = Datum(kind, pa.string(), detail=_read_symbols(schema.get("symbols"), name))
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or size < 0:
                raise NotAvro(f"its fixed type {name} has no size")
            found = Datum(kind, _decimal(schema) or pa.binary(size), detail=size)
        else:
            self._named[full] = None
            fields = schema.get("fields")
            if not isinstance(fields, list):
                raise NotAvro(f"its record {name} has no fields")
            read = tuple(self.read(one.get("type"), inside) for one in fields)
            names = [str(one.get("name")) for one in fields]
            arrow = pa.struct([(name, one.arrow) for name, one in zip(names, read, strict=True)])
            found = Datum("record", arrow, read)
        self._named[full] = found
        return found

    def _plain(self, kind: str, schema: Mapping[str, object], namespace: str) -> Datum:
        plain: dict[str, object] = {
            "null": pa.null(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "bytes": pa.binary(),
            "string": pa.string(),
        }
        logical = {
            ("int", "date"): pa.date32(),
            ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
            ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
            ("long", "local-timestamp-millis"): pa.timestamp("ms"),
            ("long", "local-timestamp-micros"): pa.timestamp("us"),
        }
        if kind in plain:
            decimal = _decimal(schema) if kind == "bytes" else None
            return Datum(kind, decimal or logical.get((kind, str(schema.get("logicalType"))), plain[kind]))
        for full in (_full_name(kind, namespace), kind):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise NotAvro(f"its record {kind} contains itself, which no column can hold")
                return found
        raise NotAvro(f"its schema has the unknown type {kind[:80]!r}")

    def _union(self, choices: list[object], namespace: str) -> Datum:
        """Null and another type is that type; whole numbers, or floating ones, are the wider of the two; other choices
        are a struct with a member for each, of which one is filled."""
        read = tuple(self.read(one, namespace) for one in choices)
        kinds = [one.arrow for one in read if one.kind != "null"]
        if len(kinds) < 2:
            return Datum("union", kinds[0] if kinds else pa.null(), read)
        if len(kinds) == 2:
            for narrow, wide in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
                if narrow in kinds and wide in kinds:
                    return Datum("union", wide, read)
        return Datum("union", pa.struct([(f"member{number}", kind) for number, kind in enumerate(kinds)]), read)


def _read_symbols(symbols: object, name: str) -> list[bytes]:
    if not isinstance(symbols, list):
        raise NotAvro(f"its enum {name} has no symbols")
    return [str(symbol).encode() for symbol in symbols]


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    if schema.get("logicalType") != "decimal":
        return None
    try:
        return pa.decimal256(int(schema["precision"]), int(schema.get("scale", 0)))
    except (KeyError, TypeError, ValueError) as error:
        raise NotAvro(f"its decimal {json.dumps(schema)[:80]} cannot be read") from error


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
