"""SQL that finds values which Spark holds and writes, and which no other reader of a table can show.

Spark does not look into the bytes of a STRING that a parquet, orc or avro file holds, or that is cast from BINARY. In a
table, one such value that is not UTF-8 ends DuckDB's and pyarrow's reading of the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.sources.values.exact_values import literal
from tidegate.spec.ddl import quote_column
from tidegate.spec.ddl_tree import Node

_TEXTS = ("string", "varchar", "char")
NOT_UTF8 = "not valid UTF-8"
_TIMES = ("date", "timestamp", "timestamp_ntz")


def find_broken_text(node: Node, value: str, path: str) -> str | None:
    """SQL: the first text inside ``value`` (SQL, of the type ``node``, in the column ``path``) that is not UTF-8, with
    its path, else NULL. None when the type holds no text."""
    return _first(node, value, path, _TEXTS)


def find_unreadable(node: Node, value: str, path: str) -> str | None:
    """The same for all that no other reader shows: also dates and times outside the years 1 to 9999."""
    return _first(node, value, path, (*_TEXTS, *_TIMES))


def _first(node: Node, value: str, path: str, kinds: tuple[str, ...], depth: int = 0) -> str | None:
    if node.kind not in kinds and not node.fields:
        return None
    found = list(_inside(node, value, path, kinds, depth)) if node.fields else [_leaf(node, value, path)]
    return f"coalesce({', '.join(found)})" if len(found) > 1 else (found[0] if found else None)


def _leaf(node: Node, value: str, path: str) -> str:
    if node.kind in _TEXTS:
        wrong, what = f"NOT is_valid_utf8({value})", NOT_UTF8
    else:
        wrong, what = f"year({value}) < 1 OR year({value}) > 9999", f"{node.kind.upper()} outside the years 1 to 9999"
    return f"CASE WHEN {wrong} THEN {literal(f'{path}: {what}')} END"


def _inside(node: Node, value: str, path: str, kinds: tuple[str, ...], depth: int) -> Iterator[str]:
    if node.kind == "struct":
        for name, inner in node.fields:
            found = _first(inner, f"{value}.{quote_column(name)}", f"{path}.{name}", kinds, depth)
            if found is not None:
                yield found
        return
    lists = [(node.item, value, f"{path}[]")]
    if node.kind == "map":
        assert node.key is not None
        lists = [(node.key, f"map_keys({value})", f"{path}{{}}"), (node.item, f"map_values({value})", f"{path}{{}}")]
    for inner, values, place in lists:
        one = f"v{depth}"
        found = _first(inner, one, place, kinds, depth + 1)
        if found is not None:
            yield f"get(array_compact(transform({values}, {one} -> {found})), 0)"
