"""Plans of publishes, computed from the manifests alone, without access to the table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.partition import partition_folder
from tidegate.table.publish.intent import REPLACES, FileToAdd, FileToRemove, PublishIntent, Target
from tidegate.table.schema import merge_schemas
from tidegate.table.upsert.folded import Folded

if TYPE_CHECKING:
    from tidegate.table.upsert.merge import Replacement

KEYS = "tidegate.keys"
"""In a commit whose rows replace those with the same keys: the columns, as a JSON list."""
DELIVERED = "tidegate.delivered_files"
"""In a commit that replaces rows: its files with new rows. The others have rows that were in the table before."""


_FILE_NAME = re.compile(r"part-(?P<query>[0-9a-f]{8})-(?P<batch>[0-9]{8,})-[^-/]+-[0-9]{5,}\.parquet")


def plan_publish(
    manifests: Sequence[BatchManifest],
    *,
    run_id: str,
    target: Target,
    partition_by: list[str],
    app_version_before: int,
    schema_json: str | None = None,
    discard: bool = False,
    custom_metadata: dict[str, str] | None = None,
) -> PublishIntent:
    """The intent that publishes an increment's rows (``table``) or its quarantined records (``quarantine``).

    Args:
        manifests: Of one query, in order of batch, at least one.
        app_version_before: The last batch of that query in the target's log, -1 for none; manifests up to it are
            skipped.
        schema_json: By default that of the newest manifest, from which older ones may differ only by added columns
            (UsageError SCHEMA_CHANGE).
        discard: Publish no file, only record the batch in the log.
    """
    unpublished = [manifest for manifest in manifests if manifest.batch_id > app_version_before]
    last = manifests[-1]
    if schema_json is None:
        schema_json = merge_schemas([manifest.schema_json for manifest in unpublished or [last]])
    partition_by = _spell_as_schema(partition_by, schema_json)
    files: list[FileToAdd] = []
    for manifest in [] if discard else unpublished:
        staged = manifest.files if target == "table" else manifest.quarantine_files
        files += name_files(manifest, staged, partition_by=partition_by, schema_json=schema_json)
    return PublishIntent(
        pipeline=last.pipeline,
        run_id=run_id,
        target=target,
        schema_json=schema_json,
        partition_by=partition_by,
        app_id=last.query_id,
        app_version=last.batch_id,
        app_version_before=app_version_before,
        files_to_add=files,
        custom_metadata=custom_metadata or {},
    )


def plan_replacement(
    manifests: Sequence[BatchManifest],
    folded: Folded,
    replacement: Replacement,
    *,
    token: str,
    table_files: str,
    run_id: str,
    partition_by: list[str],
    app_version_before: int,
    custom_metadata: dict[str, str],
) -> PublishIntent:
    """The intent that publishes the remaining rows of an increment, and removes the rows that they replace.

    ``token`` names the attempt that made the copies in ``replacement``; ``table_files`` is the digest of the table's
    files for which they were made. The commit carries its figures, which are not in the manifests.
    """
    empty = plan_publish(
        manifests,
        run_id=run_id,
        target="table",
        partition_by=partition_by,
        app_version_before=app_version_before,
        discard=True,
    )

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
        files_to_remove=[FileToRemove(f.path, f.rows, f.size_bytes, f.partition) for f in replacement.remove],
        table_files=table_files,
    )
    figures = {
        "files_added": len(intent.files_to_add),
        "files_removed": len(intent.files_to_remove),
        "rows_added": intent.rows_added,
        "rows_removed": intent.rows_removed,
        "superseded": folded.superseded,
    }
    metadata = {"tidegate.table": json.dumps(figures), DELIVERED: json.dumps([file.path for file in files])}
    if folded.mode == "update" and REPLACES not in custom_metadata:
        metadata[KEYS] = json.dumps(list(folded.keys))
    return replace(intent, custom_metadata={**custom_metadata, **metadata})


def _spell_as_schema(names: Sequence[str], schema_json: str) -> list[str]:
    """Column names spelled as in the rows: Spark ignores case, and folder names must have the spelling of the rows."""
    own = {field["name"].lower(): field["name"] for field in json.loads(schema_json)["fields"]}
    return [own.get(name.lower(), name) for name in names]


def name_files(
    manifest: BatchManifest, files: Sequence[StagedFile], *, partition_by: list[str], schema_json: str
) -> list[FileToAdd]:
    """The final paths of a batch's files: the same in each attempt, and unique. Empty files are excluded."""
    named = []
    for number, file in enumerate(files):
        if file.rows == 0:
            continue
        name = _file_name(manifest, number)
        folder = partition_folder(partition_by, file.partition, schema_json)
        named.append(
            FileToAdd(
                source=file.path,
                path=f"{folder}/{name}" if folder else name,
                rows=file.rows,
                size_bytes=file.size_bytes,
                partition={column: file.partition[column] for column in partition_by},
                sha256=file.sha256,
            )
        )
    return named


def _file_name(manifest: BatchManifest, number: int) -> str:
    return f"part-{manifest.query_id[:8]}-{manifest.batch_id:08d}-{manifest.attempt}-{number:05d}.parquet"


def parse_file_name(name: str) -> tuple[str, int] | None:
    """(first eight characters of the query id, batch id) of a file that :func:`name_files` named; None for others."""
    found = _FILE_NAME.fullmatch(name)
    return (found["query"], int(found["batch"])) if found else None
