"""The publish of work that no batch of the living query tells of: a backfill, a replay, a rollback, maintenance.

Such a publish has an id of its own in the place of a query's, made from the kind of work and its run id: its commit is
found again by it, a process that slept until the work was done changes nothing, and a retry of the run adds nothing.
Its files are prepared below :meth:`tidegate.core.paths.PipelinePaths.attempts` of that id, where whoever comes next
sweeps what no intent names.
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
"""In a commit: which kind of work made it."""
WITHIN = "tidegate.partitions"
"""In a commit of a backfill or a refresh: the partitions that it rebuilt."""
KEEPS_OLDER = "tidegate.keeps_older"
"""In a commit of a refresh that has left the older part of the table as it is."""
RELEASE = "release"
"""The kind of work that ends the waiting of a held increment, whatever was decided: its files have the names of their
batches."""
GIVEN_UP = "given_up"
"""The outcome of work that was undone before its version was made."""


@dataclass(frozen=True)
class Rework:
    """One piece of such work: ``kind`` is its word in reports (``backfill``, ``maintain``), ``part`` counts its commits
    from 0."""

    pipeline: str
    kind: str
    run_id: str
    part: int = 0

    @property
    def app_id(self) -> str:
        """What its commits carry in the place of a query id."""
        return f"{self.kind}-{hashlib.sha256(f'{self.pipeline} {self.kind} {self.run_id}'.encode()).hexdigest()[:24]}"

    @property
    def file_prefix(self) -> str:
        """How the names of its files begin; those of a query's files begin so by a chance of one in four billion."""
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
    """The publish of one part: ``new`` and ``carried`` files come in, ``remove`` leave, in one version.

    ``table`` and ``table_files`` are the target's log as the plan was made for it: another process's commit in between
    makes it outdated (a plan that only adds may go without files, and without a table where it gives ``schema_json``).
    ``before`` is the last part that the log has, by default the one before this. The rows of ``new`` files count as
    added and are fed to sinks (with ``outcome`` ``published``); those of ``carried`` ones were in the table before.
    ``token`` names the attempt that prepared them; ``schema_json`` defaults to the table's.
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
    told = _figures(intent) | {DELIVERED: json.dumps([file.path for file in delivered])}
    intent.custom_metadata.update({**(metadata or {}), REWORK: work.kind, "tidegate.outcome": outcome, **told})
    return intent


def _figures(intent: PublishIntent) -> dict[str, str]:
    figures = {
        "files_added": len(intent.files_to_add),
        "files_removed": len(intent.files_to_remove),
        "rows_added": intent.rows_added,
        "rows_removed": intent.rows_removed,
    }
    return {"tidegate.figures": json.dumps(figures)}


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
