"""Derive the columns of a table from those of its files, and find differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from tidegate.core.errors import UsageError
from tidegate.core.words import list_first
from tidegate.rework.adopt.footers import FileFooter
from tidegate.table.schema import DataType, Field, StructType, normalise_schema, type_text

_EXAMPLES = 3


def join_columns(
    footers: Sequence[FileFooter], partition_by: Sequence[str]
) -> tuple[list[Field], list[str], list[str]]:
    """Return (columns, faults, notes): every column in the order of the newest files, each with the type that most
    files have. A column that some files lack is null there, as for every reader.

    ``partition_by`` are columns whose values are in the folder names, and so must not be in the files.
    """
    faults = [f"{footer.path}: {footer.fault}" for footer in footers if footer.fault is not None]
    files = [footer for footer in footers if footer.fault is None]
    texts = Counter(footer.columns for footer in files)
    parsed: dict[str, list[Field]] = {}
    for text in texts:
        try:
            parsed[text] = _fields_of(text)
        except UsageError as error:
            faults += [f"{name}: {error.message}" for name in _files_with(files, [text])]
    counts: dict[str, Counter[str]] = {}
    kinds: dict[str, DataType] = {}
    for text, fields in parsed.items():
        for field in fields:
            kind = type_text(field["type"])
            kinds[kind] = field["type"]
            counts.setdefault(field["name"], Counter())[kind] += texts[text]
    notes = []
    columns: list[Field] = []
    for name, found in counts.items():
        kind, _ = found.most_common(1)[0]
        columns.append({"name": name, "type": kinds[kind], "nullable": True, "metadata": {}})
        faults += _differing(files, parsed, name, kind, kinds, found)
        lacking = sum(texts[text] for text in parsed) - found.total()
        if lacking:
            notes.append(f"column {name} is null in the rows of {lacking:,} of {len(files):,} files, which lack it")
    faults += _spelt_twice(counts)
    inside = {one.lower() for one in partition_by} & {name.lower() for name in counts}
    faults += [f"column {name!r} is in the files and in the names of their folders" for name in sorted(inside)]
    return columns, faults, notes


def compare_with_rows(columns: Sequence[Field], declared: Mapping[str, str]) -> list[str]:
    """List differences between the table and the rows of a spec without a transform; ``declared`` is {name: type}."""
    kinds = {field["name"].lower(): type_text(field["type"]) for field in columns}
    given = {name.lower(): kind for name, kind in declared.items()}
    faults = [
        f"column {name!r} is {kind} in the table and {given[name].upper()} in the spec"
        for name, kind in kinds.items()
        if name in given and _squeeze(kind) != _squeeze(given[name])
    ]
    missing = [f"column {name!r} of the table is not in the spec" for name in kinds if name not in given]
    return faults + missing


def schema_of(columns: Sequence[Field]) -> str:
    """The columns as a schema in Spark's JSON."""
    return json.dumps({"type": "struct", "fields": list(columns)}, ensure_ascii=False)


def _squeeze(kind: str) -> str:
    return kind.lower().replace(" ", "")


def _fields_of(text: str) -> list[Field]:
    return cast(StructType, json.loads(normalise_schema(text)))["fields"]


def _files_with(files: Sequence[FileFooter], texts: Sequence[str]) -> list[str]:
    return [footer.path for footer in files if footer.columns in texts]


def _differing(
    files: Sequence[FileFooter],
    parsed: Mapping[str, list[Field]],
    name: str,
    wanted: str,
    kinds: Mapping[str, DataType],
    found: Counter[str],
) -> list[str]:
    faults = []
    for kind in found:
        if kind == wanted:
            continue
        texts = [
            text
            for text, fields in parsed.items()
            if any(field["name"] == name and type_text(field["type"]) == kind for field in fields)
        ]
        names = _files_with(files, texts)
        others = f"{found[wanted]:,} {'other' if found[wanted] == 1 else 'others'}"
        shown = list_first(names, _EXAMPLES)
        faults.append(f"column {name!r} is {type_text(kinds[kind])} in {shown}, and {wanted} in {others}")
    return faults


def _spelt_twice(names: Mapping[str, object]) -> list[str]:
    spelt: dict[str, list[str]] = {}
    for name in names:
        spelt.setdefault(name.lower(), []).append(name)
    return [f"a column is spelt {' and '.join(map(repr, some))}" for some in spelt.values() if len(some) > 1]
