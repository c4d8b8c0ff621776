"""Types of the actions of a Delta log, with the fields that are used here.

They are plain dictionaries: fields of other writers are kept, and a table of 100,000 files needs no more objects.
"""

from __future__ import annotations

from typing import Any, Required, TypedDict

CommitInfo = dict[str, Any]
"""Information about a commit, with any keys: ``tidegate.run_id`` and so on."""


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
    """A file that is no longer in the table, with the same path as in its ``add``."""

    path: Required[str]
    deletionTimestamp: int
    dataChange: bool
    extendedFileMetadata: bool
    partitionValues: dict[str, str | None]
    size: int
    deletionVector: dict[str, object] | None


class Txn(TypedDict, total=False):
    """The progress of an application: for a query, its last batch."""

    appId: Required[str]
    version: Required[int]
    lastUpdated: int


class Protocol(TypedDict, total=False):
    """The features that readers and writers must support."""

    minReaderVersion: int
    minWriterVersion: int
    readerFeatures: list[str]
    writerFeatures: list[str]


class Metadata(TypedDict, total=False):
    """The table's metadata; ``schemaString`` is its schema in Spark's JSON."""

    id: str
    name: str
    format: object
    schemaString: str
    partitionColumns: list[str]
    createdTime: int
    configuration: dict[str, str]


class DomainMetadata(TypedDict, total=False):
    """The metadata of a Delta feature."""

    domain: Required[str]
    configuration: str
    removed: bool


class Action(TypedDict, total=False):
    """One line of a commit, with one of these keys."""

    add: AddFile
    remove: RemoveFile
    txn: Txn
    protocol: Protocol
    metaData: Metadata
    domainMetadata: DomainMetadata
    cdc: AddFile
    commitInfo: CommitInfo
    sidecar: object
