"""Tables as deltalake reads them."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable


def open_table(table_path: Path) -> DeltaTable:
    """Open the table at its newest version."""
    return DeltaTable(str(table_path))
