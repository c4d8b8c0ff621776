"""The ``column=value`` folders of a table: the type of each column, and names from which no reader infers another type.

The type is that of the column of this name in a source of the spec. Without one, it is what plain readers infer from
the folder names: a date when all are dates, a number when all are plain numbers, else text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from tidegate.core.hive_names import NULL_NAME, unescape_name
from tidegate.spec.ddl import PARTITION_TYPES
from tidegate.table.partition import partition_folder
from tidegate.table.schema import Field

_INTEGERS = {"tinyint": ("byte", 7), "smallint": ("short", 15), "int": ("integer", 31), "bigint": ("long", 63)}
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass
class Folders:
    """``columns`` of the table that are in folder names; ``values`` of each folder, in Delta's string form; ``renames``
    are folders (deepest first) with names from which no reader infers another type."""

    columns: list[Field] = field(default_factory=list)
    values: dict[str, dict[str, str | None]] = field(default_factory=dict)
    renames: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_folders(
    folders: Collection[str], partition_by: Sequence[str], declared: Mapping[str, str], *, may_rename: bool
) -> Folders:
    """Read partition columns and values from the folders of the table's files.

    Args:
        folders: relative to the table, "" for the table itself.
        declared: the types of columns in sources, {lower-case name: type}.
        may_rename: if False, a note says how plain readers read ambiguous folders.
    """
    found = Folders()
    parts: dict[str, list[str | None]] = {}
    for folder in sorted(folders):
        values = _split(folder, partition_by)
        if values is None:
            wanted = "/".join(f"{name}=..." for name in partition_by) or "none: the spec has no partition_by"
            found.faults.append(f"folder {folder or '(the table itself)'} has files; the folders should be {wanted}")
        else:
            parts[folder] = values
    for index, name in enumerate(partition_by):
        texts = {values[index] for values in parts.values()}
        kind = _type_of(name, declared.get(name.lower()), {text for text in texts if text is not None}, found)
        found.columns.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    if found.faults:
        return found
    for folder, values in parts.items():
        found.values[folder] = dict(zip(partition_by, values, strict=True))
    _find_renames(found, parts, partition_by, may_rename)
    return found


def _split(folder: str, partition_by: Sequence[str]) -> list[str | None] | None:
    """The values of a folder; None when its name does not match ``partition_by``."""
    parts = folder.split("/") if folder else []
    if len(parts) != len(partition_by):
        return None
    values: list[str | None] = []
    for part, wanted in zip(parts, partition_by, strict=True):
        name, equals, value = part.partition("=")
        if not equals or unescape_name(name) != wanted:
            return None
        values.append(None if value in (NULL_NAME, "") else unescape_name(value))
    return values


def _type_of(name: str, declared: str | None, texts: set[str], found: Folders) -> str:
    if declared in PARTITION_TYPES:
        wrong = sorted(text for text in texts if not _fits(text, declared))
        if wrong:
            found.faults.append(f"folder {name}={wrong[0]}: {name} is {declared.upper()} in the spec")
        return _INTEGERS[declared][0] if declared in _INTEGERS else declared
    if texts and all(_is_date(text) for text in texts):
        kind = "date"
    elif texts and all(_NUMBER.fullmatch(text) and _fits(text, "bigint") for text in texts):
        kind = "integer" if all(_fits(text, "int") for text in texts) else "long"
    else:
        kind = "string"
    found.notes.append(
        f"partition column {name} is taken for {kind.upper()} by its folders; a transform that gives another type is "
        "refused by the first run, before it writes"
    )
    return kind


def _fits(text: str, kind: str) -> bool:
    if kind == "date":
        return _is_date(text)
    if kind in _INTEGERS:
        bits = _INTEGERS[kind][1]
        return _NUMBER.fullmatch(text) is not None and -(1 << bits) <= int(text) < 1 << bits
    return True


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _find_renames(
    found: Folders, parts: Mapping[str, Sequence[str | None]], partition_by: Sequence[str], may_rename: bool
) -> None:
    """Find folders of text that plain readers would take for numbers or dates."""
    schema = _schema_text(found.columns)
    renamed: dict[str, str] = {}
    for folder, values in parts.items():
        here = folder.split("/")
        for depth, (name, value) in enumerate(zip(partition_by, values, strict=True)):
            wanted = partition_folder([name], {name: value}, schema).partition("=")[2]
            now = here[depth].partition("=")[2]
            if wanted.startswith("%") and not now.startswith("%"):
                at = "/".join(here[: depth + 1])
                renamed[at] = "/".join([*here[:depth], f"{here[depth].partition('=')[0]}={wanted}"])
    if renamed and not may_rename:
        example = min(renamed)
        found.notes.append(
            f"plain readers take folders such as {example} for numbers or dates, and Delta readers for text: they did "
            "before, and their names stay, since the log has them"
        )
    elif both := sorted(new for new in renamed.values() if any(f"{one}/".startswith(f"{new}/") for one in parts)):
        found.faults += [f"folder {new}: another one stands for the same value" for new in both]
    elif renamed:
        found.renames = sorted(renamed.items(), key=lambda one: (-one[0].count("/"), one[0]))


def renamed(path: str, renames: Iterable[tuple[str, str]]) -> str:
    """The path of a file once the folders above it are renamed."""
    by_folder = dict(renames)
    parts = path.split("/")
    for depth in range(len(parts) - 1):
        new = by_folder.get("/".join(path.split("/")[: depth + 1]))
        if new is not None:
            parts[depth] = new.rpartition("/")[2]
    return "/".join(parts)


def _schema_text(columns: Sequence[Field]) -> str:
    return json.dumps({"type": "struct", "fields": list(columns)})
