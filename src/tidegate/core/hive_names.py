"""Names of partition folders, ``column=value``, with the escapes of Hive and Spark: ``day=2026-01-01``, ``k=a%2Fb``."""

from __future__ import annotations

import os
import re

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
"""How the folder of NULL is called, and of the empty text."""

_SPECIAL = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^\udc80-\udcff]")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")


def escape_name(text: str) -> str:
    """A partition column or value as part of a folder name. Bytes that are not Unicode are escaped too."""
    return _SPECIAL.sub(lambda match: "".join(f"%{byte:02X}" for byte in os.fsencode(match[0])), text)


def unescape_name(text: str) -> str:
    """Undo :func:`escape_name` of tidegate, Hive or Spark; a stray ``%`` stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def read_folder(name: str) -> tuple[str, str | None] | None:
    """The column and value in the name of a folder, with value None for NULL; None where it has none."""
    key, equals, value = name.partition("=")
    if not equals or not key:
        return None
    return unescape_name(key), None if value == NULL_NAME else unescape_name(value)
