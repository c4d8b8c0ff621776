"""Plans of publishes: of the batches of a query, and of other work (a backfill, a replay, a rollback, maintenance).

Instead of a query id, the publish of other work (:class:`Rework`) has an id made from the kind of work and its run id.
By this id its commit is found again, a process that was suspended until the work was done changes nothing, and a retry
of the run adds nothing. Its files are prepared below :meth:`tidegate.core.paths.PipelinePaths.attempts` of that id,
where the next process removes what no intent names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.log.snapshot import Replacement
from tidegate.table.log.state import DataFile, TableState, digest_files
from tidegate.table.publish.intent import ATTEMPT, REPLACES, FileToAdd, FileToRemove, PublishIntent, Target
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON
from tidegate.table.schema import fields_of, merge_schemas, partition_folder
from tidegate.table.upsert.folded import Folded

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport

KEYS = "tidegate.keys"
"""In a commit whose rows replace those with the same keys: the columns, as a JSON list."""
DELIVERED = "tidegate.delivered_files"
"""In a commit that replaces rows: its files with new rows. The others have rows that were in the table before."""


_FILE_NAME = re.compile(r"part-(?P<query>[0-9a-f]{8})-(?P<batch>[0-9]{8,})-[^-/]+-[0-9]{5,}\.parquet")
REWORK = "tidegate.rework"
"""In a commit: the kind of work that made it."""
WITHIN = "tidegate.partitions"
"""In a commit of a backfill or a refresh: the partitions that it rebuilt."""
KEEPS_OLDER = "tidegate.keeps_older"
"""In a commit of a refresh that kept the older part of the table."""
RELEASE = "release"
"""The kind of work that carries out a decision on a deferred increment: its files have the names of their batches."""
ABANDONED = "given_up"
"""The outcome of work that was abandoned, and undone, before its version was made."""


def plan_publish(
    manifests: Sequence[BatchManifest],
    *,
    run_id: str,
    partition_by: Sequence[str],
    app_version_before: int,
    discard: bool = False,
    custom_metadata: Mapping[str, str] | None = None,
) -> PublishIntent:
    """The intent that publishes an increment's rows to the table.

    Args:
        manifests: Of one query, in order of batch, at least one. The newest one's schema counts; older ones may differ
            only by added columns (UsageError SCHEMA_CHANGE).
        app_version_before: The last batch of that query in the table's log, -1 for none; manifests up to it are
            skipped.
        discard: Publish no file, only record the batch in the log.
    """
    unpublished = [manifest for manifest in manifests if manifest.batch_id > app_version_before]
    name = manifests[-1].pipeline
    schema_json = merge_schemas([manifest.schema_json for manifest in unpublished or [manifests[-1]]], name)
    partition_by = _spell(partition_by, schema_json)
    files: list[FileToAdd] = []
    for manifest in [] if discard else unpublished:
        files += name_files(manifest, manifest.files, partition_by=partition_by, schema_json=schema_json)
    return PublishIntent(
        pipeline=manifests[-1].pipeline,
        run_id=run_id,
        target="table",
        schema_json=schema_json,
        partition_by=partition_by,
        app_id=manifests[-1].query_id,
        app_version=manifests[-1].batch_id,
        app_version_before=app_version_before,
        files_to_add=files,
        custom_metadata={ATTEMPT: manifests[-1].attempt, **(custom_metadata or {})},
    )


def _spell(partition_by: Sequence[str], schema_json: str) -> list[str]:
    """The partition columns as the rows spell them, which folder names need: Spark ignores case."""
    spelled = {field["name"].lower(): field["name"] for field in fields_of(schema_json)}
    return [spelled.get(name.lower(), name) for name in partition_by]


def plan_quarantine(
    manifests: Sequence[BatchManifest], *, app_version_before: int, custom_metadata: Mapping[str, str] | None = None
) -> PublishIntent:
    """The intent that publishes the quarantined records of batches, like :func:`plan_publish`."""
    last = manifests[-1]
    files: list[FileToAdd] = []
    for manifest in manifests:
        if manifest.batch_id > app_version_before:
            staged = manifest.quarantine_files
            files += name_files(manifest, staged, partition_by=[], schema_json=QUARANTINE_SCHEMA_JSON)
    return PublishIntent(
        pipeline=last.pipeline,
        run_id=last.run_id,
        target="quarantine",
        schema_json=QUARANTINE_SCHEMA_JSON,
        partition_by=[],
        app_id=last.query_id,
        app_version=last.batch_id,
        app_version_before=app_version_before,
        files_to_add=files,
        custom_metadata=dict(custom_metadata or {}),
    )


def plan_replacement(
    empty: PublishIntent,
    manifests: Sequence[BatchManifest],
    folded: Folded,
    replacement: Replacement,
    *,
    token: str,
    table_files: Sequence[DataFile],
) -> PublishIntent:
    """The intent that publishes the remaining rows of an increment, and removes the rows that they replace.

    ``empty`` is the plan of the increment without files, as for discarding it. ``token`` names the attempt that made
    the copies in ``replacement``, for the files ``table_files`` of the table. The commit carries its figures, which are
    not in the manifests.
    """

    def name(manifest: BatchManifest, files: Sequence[StagedFile]) -> list[FileToAdd]:
        return name_files(manifest, files, partition_by=empty.partition_by, schema_json=empty.schema_json)

    remaining = {file.path for file in folded.files}
    files: list[FileToAdd] = []
    for manifest in manifests:
        whole = [file if file.path in remaining else replace(file, rows=0) for file in manifest.files]
        remaining -= {file.path for file in manifest.files}
        files += name(manifest, whole)
    copies = [file for file in folded.files if file.path in remaining]
    files += name(replace(manifests[-1], attempt=folded.token), copies)
    carried = name(replace(manifests[-1], attempt=token), replacement.carried)
    intent = replace(
        empty,
        files_to_add=[*files, *(replace(file, carried=True) for file in carried)],
        files_to_remove=list(map(_to_remove, replacement.remove)),
        table_files=digest_files(table_files),
    )
    figures = json.dumps({**_figures(intent), "superseded": folded.superseded})
    metadata = {"tidegate.table": figures, DELIVERED: json.dumps([file.path for file in files])}
    if folded.mode == "update" and REPLACES not in empty.custom_metadata:
        metadata[KEYS] = json.dumps(list(folded.keys))
    return replace(intent, custom_metadata={**empty.custom_metadata, **metadata})


def _figures(intent: PublishIntent) -> dict[str, int]:
    return {
        "files_added": len(intent.files_to_add),
        "files_removed": len(intent.files_to_remove),
        "rows_added": intent.rows_added,
        "rows_removed": intent.rows_removed,
    }


def name_files(
    manifest: BatchManifest, files: Sequence[StagedFile], *, partition_by: list[str], schema_json: str
) -> list[FileToAdd]:
    """The final paths of a batch's files: the same in each attempt, and unique. Empty files are excluded."""
    prefix = f"part-{manifest.query_id[:8]}-{manifest.batch_id:08d}-{manifest.attempt}"
    return [
        _to_add(file, f"{prefix}-{number:05d}.parquet", partition_by, schema_json)
        for number, file in enumerate(files)
        if file.rows
    ]


def _to_add(
    file: StagedFile, name: str, partition_by: list[str], schema_json: str, *, carried: bool = False
) -> FileToAdd:
    folder = partition_folder(partition_by, file.partition, schema_json)
    return FileToAdd(
        source=file.path,
        path=f"{folder}/{name}" if folder else name,
        rows=file.rows,
        size_bytes=file.size_bytes,
        partition={column: file.partition[column] for column in partition_by},
        carried=carried,
        sha256=file.sha256,
    )


def _to_remove(file: DataFile) -> FileToRemove:
    return FileToRemove(file.path, file.rows, file.size_bytes, file.partition)


def parse_file_name(name: str) -> tuple[str, int] | None:
    """(first eight characters of the query id, batch id) of a file that :func:`name_files` named; None for others."""
    found = _FILE_NAME.fullmatch(name)
    return (found["query"], int(found["batch"])) if found else None


@dataclass(frozen=True)
class Rework:
    """A piece of such work: ``kind`` is its mode in reports (``backfill``, ``maintain``), ``part`` numbers its commits
    from 0."""

    pipeline: str
    kind: str
    run_id: str
    part: int = 0

    @property
    def app_id(self) -> str:
        """The id in its commits instead of a query id."""
        return f"{self.kind}-{hashlib.sha256(f'{self.pipeline} {self.kind} {self.run_id}'.encode()).hexdigest()[:24]}"

    @property
    def file_prefix(self) -> str:
        """The prefix of its files' names; a query has the same one with a chance of one in four billion."""
        return f"part-{hashlib.sha256(self.app_id.encode()).hexdigest()[:8]}-{self.part:08d}"


@dataclass(frozen=True)
class Changes:
    """The changes that one part makes to a table."""

    token: str = ""
    """The attempt that prepared the files."""
    new: Sequence[StagedFile] = ()
    """Files whose rows count as added, and are delivered to sinks (with ``outcome`` ``published``)."""
    carried: Sequence[StagedFile] = ()
    """Files whose rows were in the table before."""
    remove: Sequence[DataFile] = ()
    table_files: Sequence[DataFile] | None = None
    """The table's files for which the plan is made: it is outdated once there are others. None if it only adds."""
    outcome: str = "published"
    metadata: Mapping[str, str] = field(default_factory=dict)
    schema_json: str | None = None
    """That of the new rows, by default that of the table."""
    replaces_schema: bool = False
    """The table gets this schema (:attr:`tidegate.table.log.commit.Commit.replaces_schema`)."""
    rearranges: bool = False
    """No rows change, only their files."""


def plan_rework(
    work: Rework,
    table: TableState | None,
    changes: Changes,
    *,
    target: Target = "table",
    report: RunReport | None = None,
    companion: PublishIntent | None = None,
) -> PublishIntent:
    """The publish of one part, as one version. ``table`` is the target, with its batches of ``work.app_id``; None for a
    quarantine that does not exist yet."""
    if target == "quarantine":
        schema, partition_by = QUARANTINE_SCHEMA_JSON, list[str]()
    else:
        assert table is not None, "other work than that of a query needs a table"
        schema = changes.schema_json or table.schema_json
        partition_by = _spell(table.partition_columns, schema)
    count = len(changes.new) + len(changes.carried)
    names = [f"{work.file_prefix}-{changes.token}-{number:05d}.parquet" for number in range(count)]
    files = [
        _to_add(file, name, partition_by, schema, carried=number >= len(changes.new))
        for number, (file, name) in enumerate(zip([*changes.new, *changes.carried], names, strict=True))
    ]
    intent = PublishIntent(
        pipeline=work.pipeline,
        run_id=work.run_id,
        target=target,
        schema_json=schema,
        partition_by=partition_by,
        app_id=work.app_id,
        app_version=work.part,
        app_version_before=-1 if table is None else table.txns.get(work.app_id, -1),
        files_to_add=files,
        files_to_remove=list(map(_to_remove, changes.remove)),
        table_files=None if changes.table_files is None else digest_files(changes.table_files),
        replaces_schema=changes.replaces_schema,
        rearranges=changes.rearranges,
        report=report,
        companion=companion,
    )
    intent.custom_metadata.update(
        {
            **changes.metadata,
            REWORK: work.kind,
            "tidegate.outcome": changes.outcome,
            "tidegate.figures": json.dumps(_figures(intent)),
            DELIVERED: json.dumps([file.path for file in files if not file.carried]),
        }
    )
    return intent
