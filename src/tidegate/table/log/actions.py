"""The actions of a Delta log, as its JSON has them, with the fields that are used here.

They stay dictionaries: other writers' fields are kept as they are, and 100,000 files are not worth as many objects.
"""

from __future__ import annotations

from typing import Any, Required, TypedDict

CommitInfo = dict[str, Any]
"""Free in its keys: what a commit says of itself, ``tidegate.run_id`` and so on."""


class AddFile(TypedDict, total=False):
    """A file of the table; ``path`` percent-encoded, ``size`` in bytes, times in milliseconds since 1970 UTC."""

    path: Required[str]
    partitionValues: dict[str, str | None]
    size: Required[int]
    modificationTime: int
    dataChange: bool
    stats: str
    tags: dict[str, str]
    deletionVector: dict[str, object] | None


class RemoveFile(TypedDict, total=False):
    """A file that is no longer in the table, spelled as it was added."""

    path: Required[str]
    deletionTimestamp: int
    dataChange: bool
    extendedFileMetadata: bool
    partitionValues: dict[str, str | None]
    size: int
    deletionVector: dict[str, object] | None


class Txn(TypedDict, total=False):
    """How far an application has come: of a query, its last batch."""

    appId: Required[str]
    version: Required[int]
    lastUpdated: int


class Protocol(TypedDict, total=False):
    """What readers and writers must be able to do."""

    minReaderVersion: int
    minWriterVersion: int
    readerFeatures: list[str]
    writerFeatures: list[str]


class Metadata(TypedDict, total=False):
    """What the table is; ``schemaString`` is Spark's JSON of its schema."""

    id: str
    name: str
    format: object
    schemaString: str
    partitionColumns: list[str]
    createdTime: int
    configuration: dict[str, str]


class DomainMetadata(TypedDict, total=False):
    """What a feature of Delta keeps in the log."""

    domain: Required[str]
    configuration: str
    removed: bool


class Action(TypedDict, total=False):
    """One line of a commit: one of these."""

    add: AddFile
    remove: RemoveFile
    txn: Txn
    protocol: Protocol
    metaData: Metadata
    domainMetadata: DomainMetadata
    cdc: AddFile
    commitInfo: CommitInfo
    sidecar: object
