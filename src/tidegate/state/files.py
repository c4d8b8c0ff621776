"""The parquet files that Spark wrote into an attempt folder, as the manifest names them, and their digests.

A digest is taken when the file was written, and compared when it is judged and when it is published. So the published
bytes are those that were written and judged, even if the disk or the folder was damaged since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.hive_names import NULL_NAME, unescape_name
from tidegate.core.paths import PipelinePaths
from tidegate.state import errors
from tidegate.state.manifest import BatchManifest, StagedFile

TEXT_MARK = "~"
"""Written behind texts that begin like the name of NULL, so that they have another one."""


def list_staged_files(folder: Path, relative_to: Path) -> list[StagedFile]:
    """Every parquet file under ``folder`` with at least one row: counted by its own footer, made durable with every
    folder above it, up to what ``relative_to`` holds."""
    import pyarrow.parquet as pq  # only drivers need it, and every run imports this module

    found = []
    for path in storage.list_tree(folder, "*.parquet"):
        rows = pq.read_metadata(storage.open_input(path)).num_rows
        if rows == 0:
            continue
        inside = path.relative_to(folder).parts[:-1]
        found.append(
            StagedFile(
                path=str(path.relative_to(relative_to)),
                rows=rows,
                size_bytes=storage.stat(path).size_bytes,
                partition=dict(partition_value(part) for part in inside),
                sha256=storage.digest(path),
            )
        )
    paths = [relative_to / file.path for file in found]
    storage.sync_files(paths)
    storage.sync_names_above(paths, relative_to)
    return found


def is_swept(paths: PipelinePaths, manifest: BatchManifest, *, quarantined: bool) -> bool:
    """Whether files that the manifest names were removed. Of a batch that Spark has not committed, and that is not in
    the table, this happens when a driver was suspended before it wrote the manifest: its attempt, which no manifest
    named, was swept meanwhile. Such a manifest is the first one for its batch and still does not count: the batch is
    computed again.

    ``quarantined``: the quarantine table has the batch, so its files there are gone from staging and nothing is lost.
    """
    if not (manifest.files or manifest.quarantine_files):
        return False
    if not storage.exists(paths.attempts(manifest.query_id, manifest.batch_id) / manifest.attempt):
        return True
    needed = manifest.files if quarantined else [*manifest.files, *manifest.quarantine_files]
    return any(not storage.exists(paths.state / file.path) for file in needed)


def drop_swept(paths: PipelinePaths, manifest: BatchManifest) -> bool:
    """Remove a manifest that does not count (:func:`is_swept`). False when another one is in its place: a stale process
    must not remove what was staged meanwhile."""
    path = paths.manifest(manifest.query_id, manifest.batch_id)
    try:
        data = storage.read(path)
    except FileNotFoundError:
        return False
    return bool(json.loads(data).get("attempt") == manifest.attempt) and storage.take_away(path, data)


def remove_empty_folders(paths: PipelinePaths, query_ids: Iterable[str]) -> None:
    """Remove the folders of queries that have no staged batch any more."""
    for query_id in query_ids:
        for folder in (paths.staging / query_id, paths.manifests / query_id):
            storage.remove_empty_folder(folder)


def partition_value(folder_name: str) -> tuple[str, str | None]:
    """(column, value) of a ``column=value`` folder that was staged; Spark escapes special characters as %XX."""
    column, _, name = folder_name.partition("=")
    value = unescape_name(name)
    if value == NULL_NAME:
        return unescape_name(column), None
    return unescape_name(column), value.removesuffix(TEXT_MARK) if value.startswith(NULL_NAME) else value


def describe_damage(path: Path, size_bytes: int, sha256: str) -> str | None:
    """Describe how a file differs from the written one; None when it is whole. Without a digest (an earlier version of
    tidegate staged it) its size alone is compared. Raises FileNotFoundError when it is gone."""
    there = storage.stat(path).size_bytes
    if there != size_bytes:
        return f"it has {there:,} bytes, {size_bytes:,} were written"
    if sha256 and (found := storage.digest(path)) != sha256:
        return f"its sha256 is {found[:16]}..., that of what was written {sha256[:16]}..."
    return None


def is_whole(path: Path, file: StagedFile) -> bool:
    """Whether the file is there and what was written."""
    try:
        return describe_damage(path, file.size_bytes, file.sha256) is None
    except FileNotFoundError:
        return False


def check_whole(state: Path, files: Iterable[StagedFile], pipeline: str) -> None:
    """Raise DisagreementError STAGED_FILE_DAMAGED for the first of ``files`` that is not what was written."""
    for file in files:
        damage = describe_damage(state / file.path, file.size_bytes, file.sha256)
        if damage is not None:
            raise damaged(state / file.path, damage, pipeline)


def damaged(path: Path, damage: str, pipeline: str) -> DisagreementError:
    """The error for a staged file that is not what was written."""
    return errors.STAGED_FILE_DAMAGED(where=str(path), damage=damage, pipeline=pipeline)
