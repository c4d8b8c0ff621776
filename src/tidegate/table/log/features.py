"""The Delta features that a table requires of its writers: which of them tidegate supports, and how to turn off the
others.

A feature that is listed but not used is no obstacle (no file has a deletion vector, no column is generated). See
docs/how-to/other-engines.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.errors import DisagreementError
from tidegate.table import errors
from tidegate.table.log.snapshot import LogHead

_READERS, _WRITERS = 3, 7
"""The newest versions of the protocol, in which features are listed by name."""
_KEPT = {
    "allowColumnDefaults",  # our rows have a value for each column
    "appendOnly",
    "changeDataFeed",  # without change files, readers derive the feed from added and removed files
    "checkConstraints",
    "checkpointProtection",  # no commit is ever removed here
    "clustering",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "timestampNtz",
    "vacuumProtocolCheck",
}
"""Features that may be listed: they require nothing, or :func:`find_unsupported` checks whether they are used."""


@dataclass(frozen=True)
class Unsupported:
    """A feature that the table uses and tidegate does not support, and the SQL that turns it off."""

    what: str
    undo: str


def find_unsupported(snapshot: LogHead, table: str) -> list[Unsupported]:
    """The features that the table uses and tidegate does not support; ``table`` is its name in the SQL."""
    return list(_find_unsupported(snapshot, table))


def _find_unsupported(snapshot: LogHead, table: str) -> Iterator[Unsupported]:
    protocol = snapshot.protocol
    listed = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    for name in sorted(listed - _KEPT):
        yield Unsupported(f"the feature {name}", f"ALTER TABLE {table} DROP FEATURE {name}")
    versions = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    if versions[0] > _READERS or versions[1] > _WRITERS:
        yield Unsupported(f"version {versions[0]},{versions[1]} of Delta's protocol", "a newer tidegate")
    settings = snapshot.metadata.get("configuration") or {}
    for key in sorted(settings):
        if key.startswith("delta.constraints."):
            name = key.removeprefix("delta.constraints.")
            yield Unsupported(f"the constraint {name} ({settings[key]})", f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for key, off in (("delta.columnMapping.mode", "none"), ("delta.enableInCommitTimestamps", "false")):
        if settings.get(key, off) != off:
            yield Unsupported(f"{key} = {settings[key]}", f"ALTER TABLE {table} SET TBLPROPERTIES ('{key}' = '{off}')")
    if _is_clustered(snapshot):
        yield Unsupported("clustering", f"ALTER TABLE {table} CLUSTER BY NONE")
    yield from _find_in_columns(snapshot, table)
    if marked := snapshot.count_marked():
        undo = f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
        yield Unsupported(f"deletion vectors of {marked:,} files", f"{undo}; REORG TABLE {table} APPLY (PURGE)")


def _is_clustered(snapshot: LogHead) -> bool:
    domain = snapshot.domains.get("delta.clustering")
    if domain is None or domain.get("removed"):
        return False
    return bool(json.loads(domain.get("configuration") or "{}").get("clusteringColumns"))


def _find_in_columns(snapshot: LogHead, table: str) -> Iterator[Unsupported]:
    for name, metadata in _columns_of(json.loads(snapshot.schema_json)):
        for kind, words in (
            ("delta.invariants", "an invariant"),
            ("delta.generationExpression", "a generation expression"),
            ("delta.identity.", "generated numbers"),
        ):
            if any(key.startswith(kind) for key in metadata):
                undo = f"rewrite the table without it (column {name} of {table})"
                yield Unsupported(f"{words} of column {name}", undo)


def _columns_of(kind: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    """(name, metadata) of each field of a type, including nested ones."""
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            name = path + field["name"]
            yield name, field.get("metadata") or {}
            yield from _columns_of(field["type"], f"{name}.")
        for inner in ("elementType", "keyType", "valueType"):
            yield from _columns_of(kind.get(inner), path)


def is_append_only(snapshot: LogHead) -> bool:
    """Return whether no row may be removed from the table. Its files may be rewritten."""
    return (snapshot.metadata.get("configuration") or {}).get("delta.appendOnly", "false").lower() == "true"


def check_features(table_path: Path, snapshot: LogHead, *, removes_rows: bool = False) -> None:
    """Raise DisagreementError TABLE_FEATURE when the table uses unsupported features, or when rows are to be removed
    from an append-only table."""
    found = find_unsupported(snapshot, name_in_sql(table_path))
    if found:
        raise unsupported(table_path, found)
    if removes_rows and is_append_only(snapshot):
        raise append_only(table_path)


def unsupported(table_path: Path, found: Sequence[Unsupported]) -> DisagreementError:
    """The error that names these features and how to turn them off."""
    return errors.TABLE_FEATURE(
        where=str(table_path),
        features="; ".join(one.what for one in found),
        undo="; ".join(one.undo for one in found),
    )


def append_only(table_path: Path) -> DisagreementError:
    """The error of work that removes rows from an append-only table."""
    feature = "delta.appendOnly, which forbids to remove rows (runs that only add rows are not affected)"
    undo = f"ALTER TABLE {name_in_sql(table_path)} SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    return unsupported(table_path, [Unsupported(feature, undo)])


def name_in_sql(table_path: Path) -> str:
    """The table's name in Spark SQL."""
    return f"delta.`{str(table_path).replace('`', '``')}`"
