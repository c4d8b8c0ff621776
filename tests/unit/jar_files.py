"""Jars made by hand."""

from __future__ import annotations

CONTENT = b"PK\5\6" + bytes(18)  # an archive without files
