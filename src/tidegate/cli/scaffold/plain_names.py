"""Write a transform that renames columns whose names a table cannot have, for ``tidegate new --from``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tidegate.spec.ddl import Column, Node, quote_column, quote_name, read_type
from tidegate.table.schema import is_table_name

_NOT_IN_A_WORD = re.compile(r"\W+")


def write_renames(source: str, columns: Sequence[Column]) -> str | None:
    """``transform.py`` for the columns of ``source``; None when the table can have them as they are."""
    names = _rename([column.name for column in columns])
    steps = []
    changed = {column.name: new for column, new in zip(columns, names, strict=True) if new != column.name}
    if changed:
        lines = "".join(f"            {_quote(old)}: {_quote(new)},\n" for old, new in changed.items())
        steps.append(f".withColumnsRenamed(\n        {{\n{lines}        }}\n    )")
    for column, new in zip(columns, names, strict=True):
        node = read_type(column.type)
        renamed = _show_type(node, renamed=True)
        if renamed != _show_type(node, renamed=False):
            cast = f"F.col({_quote(quote_column(new))}).cast({_quote(renamed)})"
            steps.append(f".withColumn({_quote(new)}, {cast})")
    if not steps:
        return None
    uses_functions = "from pyspark.sql import functions as F\n" if ".cast(" in "".join(steps) else ""
    body = f"    return {source}{steps[0]}\n"
    if len(steps) > 1:
        body = f"    rows = {source}{steps[0]}\n" + "".join(f"    rows = rows{step}\n" for step in steps[1:])
        body += "    return rows\n"
    return (
        f'"""{source} as it comes, with names that the table can have."""\n\n'
        f"from pyspark.sql import DataFrame\n{uses_functions}\n\n"
        f"def transform({source}: DataFrame) -> DataFrame:\n"
        '    """Rename columns; a cast renames the fields inside a column, one after the other."""\n' + body
    )


def _rename(names: Sequence[str]) -> list[str]:
    """``names``, with those that the table cannot have in lower case with underscores, all different."""
    taken = {name.lower() for name in names if is_table_name(name)}
    result = []
    for name in names:
        if is_table_name(name):
            result.append(name)
            continue
        plain = _NOT_IN_A_WORD.sub("_", name).strip("_").lower() or "column"
        plain = f"c_{plain}" if plain[0].isdigit() else plain
        new, number = plain, 2
        while new in taken:
            new, number = f"{plain}_{number}", number + 1
        taken.add(new)
        result.append(new)
    return result


def _show_type(node: Node, *, renamed: bool) -> str:
    if node.kind == "struct":
        names = [name for name, _ in node.fields]
        shown = zip(_rename(names) if renamed else names, (inner for _, inner in node.fields), strict=True)
        fields = (f"{quote_name(name)}: {_show_type(inner, renamed=renamed)}" for name, inner in shown)
        return f"struct<{', '.join(fields)}>"
    if node.kind == "array":
        return f"array<{_show_type(node.item, renamed=renamed)}>"
    if node.kind == "map" and node.key is not None:
        return f"map<{_show_type(node.key, renamed=renamed)}, {_show_type(node.item, renamed=renamed)}>"
    return node.type


def _quote(text: str) -> str:
    """``text`` as Python writes it, in double quotes."""
    return json.dumps(text, ensure_ascii=False)
