"""How records become columns: the settings of a worker. This module has no slow imports."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.spec.ddl import Column, Node, parse_ddl, read_columns

RESCUED_DDL = "_rescued STRING"
"""What a record has behind its own columns with the policy ``rescue``: a JSON object of its unknown fields."""
FRAMEWORK_DDL = "_raw STRING, _position STRING, _malformed BOOLEAN, _detail STRING, _unknown ARRAY<STRING>"
"""What every record has behind its own columns."""


def load_reader(name: str) -> Any:
    """The class ``name``, ``module.Class`` of this room: the workers that need it load its module, which takes time."""
    module, _, name = name.partition(".")
    return getattr(importlib.import_module(f"tidegate.sources.readers.{module}"), name)


@dataclass(frozen=True)
class Form:
    """How records become columns: ``ddl`` are those of the schema, ``policy`` is ``unknown_fields``, ``options`` are
    the source's for the parser, and the values of the columns ``in_folders`` are in the names of folders."""

    format: str
    ddl: str
    policy: str = "report"
    options: Mapping[str, str] = field(default_factory=dict)
    in_folders: Sequence[str] = ()

    @property
    def ending(self) -> bytes | None:
        """What ends a line; None for any end of a line."""
        ending = self.options.get("lineSep")
        return None if ending is None else ending.encode()

    @property
    def root(self) -> Node:
        """The columns that are in the records, as the fields of a struct."""
        return read_columns(self._columns(is_in_folder=False))

    @property
    def required(self) -> frozenset[str]:
        """The columns that are in the records and NOT NULL."""
        return frozenset(column.name for column in self._columns(is_in_folder=False) if not column.nullable)

    def list_in_folders(self) -> list[Column]:
        """The columns whose values are in the names of folders."""
        return self._columns(is_in_folder=True)

    def _columns(self, *, is_in_folder: bool) -> list[Column]:
        return [column for column in parse_ddl(self.ddl) if (column.name in self.in_folders) == is_in_folder]
