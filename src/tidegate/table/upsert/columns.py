"""The columns by which rows replace others: ``table.keys`` and ``table.order_by`` of a spec, found in the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.spec.faults import name_nearest
from tidegate.spec.models import TableSpec
from tidegate.table import errors
from tidegate.table.schema import fields_of, normalise_schema, type_text

_KEY_TYPES = ("string", "long", "integer", "short", "byte", "boolean", "date", "timestamp", "binary")
_ORDER_TYPES = (*_KEY_TYPES, "float", "double")


@dataclass(frozen=True)
class UpsertColumns:
    """Each column, spelled as in the rows, with its Delta type. Of the rows with equal ``keys`` the one with the
    greatest values in ``order`` remains, without these columns the last one."""

    keys: dict[str, str] = field(default_factory=dict)
    order: dict[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, str]:
        """The columns of both; none is in both."""
        return {**self.keys, **self.order}


def find_columns(table: TableSpec, schema_json: str) -> UpsertColumns:
    """The columns that ``table`` names, among those of ``schema_json``.

    Raises UsageError TABLE_KEYS when the rows do not have one, there are no keys, or values cannot be compared
    reliably: as keys, floats have NaN and two zeros; engines disagree on lists and structs.
    """
    keys = _find("table.keys", table.keys, _KEY_TYPES, schema_json)
    return UpsertColumns(keys, _find("table.order_by", table.ordering, _ORDER_TYPES, schema_json))


def _find(key: str, names: Sequence[str], allowed: Sequence[str], schema_json: str) -> dict[str, str]:
    types = {field["name"]: field["type"] for field in fields_of(normalise_schema(schema_json))}
    spelt = {name.lower(): name for name in types}
    found: dict[str, str] = {}
    faults = []
    for given in names:
        name = spelt.get(given.lower())
        if name is None:
            nearest = name_nearest(given, types)
            faults.append(f"the rows have no column {given!r}" + (f" (is it {nearest!r}?)" if nearest else ""))
        elif not (isinstance(kind := types[name], str) and (kind in allowed or kind.startswith("decimal"))):
            faults.append(f"column {name!r} is {type_text(kind)}, and values of this type cannot be compared reliably")
        else:
            found[name] = kind
    if not names and key == "table.keys":
        faults.append("there are none")
    if faults:
        where = f"pipeline.yaml, {key}"
        raise errors.TABLE_KEYS(where=where, key=key, faults="; ".join(faults), columns=", ".join(types))
    return found
