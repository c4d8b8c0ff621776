"""Values of columns that are in the names of folders, ``day=2026-01-01``, and not in the records below them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.core.hive_names import read_folder
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.csv_options import CsvOptions
from tidegate.sources.readers.csv_values import Read, make_field_reader
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.ddl import Column
from tidegate.spec.ddl_tree import read_type


class FolderValues:
    """The ``columns`` of files by the folders right above them."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(column, read_type(column.type)) for column in columns]
        self._readers: list[Read] = [make_field_reader(node, CsvOptions()) for _, node in self._columns]

    def find(self, path: str) -> list[tuple[str, pa.Scalar]]:
        """The value of each column for the file at ``path``. Raises PartUnreadable."""
        if not self._columns:
            return []
        names = [folder.name for folder in Path(path).parents]
        values = dict(filter(None, map(read_folder, itertools.takewhile(lambda name: "=" in name, names))))
        found: list[tuple[str, pa.Scalar]] = []
        for (column, node), read in zip(self._columns, self._readers, strict=True):
            text = values.get(column.name)
            value: Any = None
            if text is not None:
                value, fault = read(text)
                if fault is not None:
                    raise PartUnreadable(path, f"its folder says {column.name}={text}: {fault}")
            elif not column.nullable:
                raise PartUnreadable(path, f"its folder has no {column.name}, which is NOT NULL")
            found.append((column.name, pa.scalar(value, arrow_type(node))))
        return found
