"""Texts of csv records as our reader reads them."""

from __future__ import annotations

from tidegate.sources.readers.csv_lines import CsvReader
from tidegate.sources.readers.csv_values import CsvOptions
from tidegate.sources.readers.records import Batch
from tidegate.spec.ddl import parse_ddl, read_columns


def read(ddl: str, *lines: bytes, **options: str) -> Batch:
    return read_with(CsvOptions.of(options), ddl, *lines)


def read_with(options: CsvOptions, ddl: str, *lines: bytes) -> Batch:
    columns = parse_ddl(ddl)
    required = frozenset(column.name for column in columns if not column.nullable)
    return CsvReader(read_columns(columns), required, options).read(lines, b"\n".join(lines))
