"""The console sink: the first rows of each version on stderr, as Spark's ``show`` prints them.

stdout is the command's result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tidegate.core.paths import PipelinePaths
from tidegate.sinks.rows import read_file
from tidegate.table.publish.delivery import Delivery

_ROWS = 20
_CELL = 20


class ConsoleFeeder:
    """Prints rows to stderr; under Airflow that is the task's log."""

    def __init__(self, paths: PipelinePaths, schema_json: str) -> None:
        self._paths = paths
        self._schema_json = schema_json

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Print the head of a version."""
        names: list[str] = []
        shown: list[list[str]] = []
        for file in delivery.files:
            for batch in read_file(self._paths.table, file, self._schema_json):
                names = batch.schema.names
                head = batch.slice(0, _ROWS - len(shown))
                shown += [[_cell(row[name]) for name in names] for row in head.to_pylist()]
                if len(shown) == _ROWS:
                    break
            if len(shown) == _ROWS:
                break
        print(f"{self._paths.name}, version {delivery.number}, run {delivery.run_id}", file=sys.stderr)
        for partition in delivery.partitions:
            replaced = ", ".join(f"{name}={value}" for name, value in partition.items()) or "the whole table"
            print(f"replaces {replaced}", file=sys.stderr)
        if shown:
            print(_draw(names, shown), file=sys.stderr, flush=True)
        if delivery.rows > len(shown):
            print(f"only showing {len(shown)} of {delivery.rows:,} rows", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing was opened."""


def _cell(value: object) -> str:
    text = "NULL" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= _CELL else text[: _CELL - 3] + "..."


def _draw(names: list[str], rows: list[list[str]]) -> str:
    widths = [max(3, len(name), *(len(row[index]) for row in rows)) for index, name in enumerate(names)]
    line = "+" + "+".join("-" * width for width in widths) + "+"
    body = ["|" + "|".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "|" for row in rows]
    head = "|" + "|".join(name.rjust(width) for name, width in zip(names, widths, strict=True)) + "|"
    return "\n".join([line, head, line, *body, line])
