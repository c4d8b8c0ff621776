"""Publishes of work that is not a batch of the current query: a backfill, a replay, a rollback, maintenance.

Instead of a query id, such a publish has an id made from the kind of work and its run id. By this id its commit is
found again, a process that was suspended until the work was done changes nothing, and a retry of the run adds nothing.
Its files are prepared below :meth:`tidegate.core.paths.PipelinePaths.attempts` of that id, where the next process
removes what no intent names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.state.manifest import StagedFile
from tidegate.table.log.state import DataFile, TableState, digest_files
from tidegate.table.partition import partition_folder
from tidegate.table.publish.intent import FileToAdd, FileToRemove, PublishIntent, Target
from tidegate.table.publish.plan import DELIVERED

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


def plan_rework(
    work: Rework,
    *,
    target: Target,
    table: TableState | None,
    table_files: Sequence[DataFile] | None,
    token: str,
    new: Sequence[StagedFile] = (),
    carried: Sequence[StagedFile] = (),
    remove: Sequence[DataFile] = (),
    outcome: str,
    metadata: Mapping[str, str] | None = None,
    report: dict[str, Any] | None = None,
    rearranges: bool = False,
    schema_json: str | None = None,
    before: int | None = None,
    companion: PublishIntent | None = None,
) -> PublishIntent:
    """The publish of one part: one version that adds the ``new`` and ``carried`` files and removes those of ``remove``.

    Args:
        table: The target's log for which the plan is made. May be None with a ``schema_json``.
        table_files: The target's files then: the plan is outdated once the table has others. None if it only adds.
        token: The attempt that prepared the files.
        new: Files whose rows count as added, and are delivered to sinks (with ``outcome`` ``published``).
        carried: Files whose rows were in the table before.
        schema_json: By default that of the table.
        before: The last part that the log has, by default the one before this.
    """
    schema, partition_by = schema_json, list[str]()
    if table is not None:
        schema, partition_by = schema_json or table.schema_json, table.partition_columns
    assert schema is not None, "a plan for no table gives its schema"
    delivered = [_name(work, token, n, file, partition_by, schema) for n, file in enumerate(new)]
    moved = [
        _name(work, token, n, file, partition_by, schema, carried=True)
        for n, file in enumerate(carried, start=len(new))
    ]
    intent = PublishIntent(
        pipeline=work.pipeline,
        run_id=work.run_id,
        target=target,
        schema_json=schema,
        partition_by=partition_by,
        app_id=work.app_id,
        app_version=work.part,
        app_version_before=work.part - 1 if before is None else before,
        files_to_add=[*delivered, *moved],
        files_to_remove=[FileToRemove(one.path, one.rows, one.size_bytes, one.partition) for one in remove],
        table_files=None if table_files is None else digest_files(table_files),
        rearranges=rearranges,
        report=report,
        companion=companion,
    )
    figures = {
        "files_added": len(intent.files_to_add),
        "files_removed": len(intent.files_to_remove),
        "rows_added": intent.rows_added,
        "rows_removed": intent.rows_removed,
    }
    intent.custom_metadata.update(
        {
            **(metadata or {}),
            REWORK: work.kind,
            "tidegate.outcome": outcome,
            "tidegate.figures": json.dumps(figures),
            DELIVERED: json.dumps([file.path for file in delivered]),
        }
    )
    return intent


def _name(
    work: Rework,
    token: str,
    number: int,
    file: StagedFile,
    partition_by: Sequence[str],
    schema_json: str,
    *,
    carried: bool = False,
) -> FileToAdd:
    folder = partition_folder(list(partition_by), file.partition, schema_json)
    name = f"{work.file_prefix}-{token}-{number:05d}.parquet"
    return FileToAdd(
        source=file.path,
        path=f"{folder}/{name}" if folder else name,
        rows=file.rows,
        size_bytes=file.size_bytes,
        partition={column: file.partition[column] for column in partition_by},
        carried=carried,
        sha256=file.sha256,
    )
