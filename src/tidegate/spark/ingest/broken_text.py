"""SQL that finds texts which Spark holds and writes, and which no other reader of a table can show.

Spark does not look into the bytes of a STRING that is cast from BINARY. In a table, one such value that is not UTF-8
ends DuckDB's and pyarrow's reading of the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.spark.driver.failures import NOT_UTF8
from tidegate.spec.ddl import quote_column
from tidegate.spec.ddl_tree import Node

_TEXTS = ("string", "varchar", "char")


def find_broken_text(node: Node, value: str, path: str, depth: int = 0) -> str | None:
    """SQL: the first text inside ``value`` (SQL, of the type ``node``, in the column ``path``) that is not UTF-8, with
    its path, else NULL. None when the type holds no text."""
    if node.kind in _TEXTS:
        text = f"{path}: {NOT_UTF8}".replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
        return f"CASE WHEN NOT is_valid_utf8({value}) THEN '{text}' END"
    found = list(_inside(node, value, path, depth))
    return f"coalesce({', '.join(found)})" if len(found) > 1 else (found[0] if found else None)


def _inside(node: Node, value: str, path: str, depth: int) -> Iterator[str]:
    if node.kind == "struct":
        for name, inner in node.fields:
            found = find_broken_text(inner, f"{value}.{quote_column(name)}", f"{path}.{name}", depth)
            if found is not None:
                yield found
        return
    if not node.fields:
        return
    lists = [(node.item, value, f"{path}[]")]
    if node.kind == "map":
        assert node.key is not None
        lists = [(node.key, f"map_keys({value})", f"{path}{{}}"), (node.item, f"map_values({value})", f"{path}{{}}")]
    for inner, values, place in lists:
        one = f"v{depth}"
        found = find_broken_text(inner, one, place, depth + 1)
        if found is not None:
            yield f"get(array_compact(transform({values}, {one} -> {found})), 0)"
