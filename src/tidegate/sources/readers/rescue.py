"""The fields of a record that its schema lacks, for the column ``_rescued`` (``unknown_fields: rescue``)."""

from __future__ import annotations

from tidegate.sources.readers.values import Pairs, write_json
from tidegate.spec.ddl_tree import Node


def write_unknown(value: object, node: Node) -> str:
    """What ``value`` has that the type ``node`` lacks, as JSON. A RecursionError where it has too many levels."""
    return "".join(write_json(pick_unknown(value, node)))


def pick_unknown(value: object, node: Node) -> object:
    """What ``value`` has that the type ``node`` lacks, each field where it was, items of arrays at their places; None
    where there is nothing."""
    if node.kind == "array" and isinstance(value, list) and not isinstance(value, Pairs):
        items = [pick_unknown(one, node.item) for one in value]
        return None if all(item is None for item in items) else items
    if not isinstance(value, Pairs):
        return None
    if node.kind == "map":
        found = [(name, pick_unknown(one, node.item)) for name, one in value]
    elif node.kind == "struct":
        known = dict(node.fields)
        found = [(name, pick_unknown(one, known[name])) for name, one in value if name in known]
        unknown = [(name, one) for name, one in value if name not in known]
        return Pairs(unknown + [pair for pair in found if pair[1] is not None]) or None
    else:
        return None
    return Pairs(pair for pair in found if pair[1] is not None) or None
