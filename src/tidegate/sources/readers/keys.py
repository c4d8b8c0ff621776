"""The keys of decoded records of JSON: how many there are, and which of them a schema lacks."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.spec.ddl_tree import Node

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
