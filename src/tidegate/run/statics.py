"""Static sources: one version per run, and the same one for a batch that has to be run again.

A join of a stream with a table reads the table afresh in each run. The files of the moment are copied into the
pipeline's state first, so that nothing that happens to the originals reaches a run half-way, nor a batch that was begun
and killed. Unchanged files are not copied again. The table of another pipeline is read at its newest version; its files
never change and are linked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from tidegate import storage
from tidegate.errors import SourceLostError, TryAgainError
from tidegate.project import PipelinePaths, Project
from tidegate.source.files import FileEntry, list_static, static_is_empty
from tidegate.source.intake import partition_folder
from tidegate.source.ledger import link_suffix
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.staging.checkpoint import CheckpointState
from tidegate.table.log import has_log, list_data_files


def pin_statics(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, checkpoint: CheckpointState
) -> dict[str, dict[str, Any]]:
    """{static source: its version}: the version of a batch that Spark has planned and not committed, else a new one.

    Files: {"folder", "links", "files" (as the user knows them), "partition_columns", "version"}; Kafka: {"offsets",
    "version"}. Raises SourceLostError when a source is missing or empty, TryAgainError when a file changes while it is
    copied.
    """
    pinned = {}
    for name, source in spec.statics.items():
        folder = paths.static(name)
        known = storage.read_json(paths.static_version(name))
        if known is not None and checkpoint.in_flight is not None:
            pinned[name] = known
            continue
        if isinstance(source, FilesSource):
            version = _pin_files(project, paths, name, source, known)
        else:
            version = _pin_offsets(project, source)
        if version != known:
            storage.replace(paths.static_version(name), storage.dump_json(version))
        _remove_others(folder, version)
        pinned[name] = version
    return pinned


def _pin_files(
    project: Project, paths: PipelinePaths, name: str, source: FilesSource, known: dict[str, Any] | None
) -> dict[str, Any]:
    entries, columns, is_table = _list(project, paths, name, source)
    text = json.dumps([[entry.path, entry.size, entry.mtime_ns] for entry in entries])
    version = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = paths.static(name) / version
    if known is not None and known.get("version") == version and folder.is_dir():
        return known
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed while it copied
    links = []
    for number, entry in enumerate(entries):
        inside = partition_folder(entry.partition)
        link = f"{inside}/" * bool(inside) + f"{number:06d}{link_suffix(entry.path)}"
        target = folder / link
        target.parent.mkdir(parents=True, exist_ok=True)
        _take(name, entry, target, is_table=is_table)
        links.append(link)
    files = [entry.path for entry in entries]
    return {
        "version": version,
        "folder": str(folder),
        "links": links,
        "files": files,
        "partition_columns": list(columns),
    }


def _list(
    project: Project, paths: PipelinePaths, name: str, source: FilesSource
) -> tuple[list[FileEntry], tuple[str, ...], bool]:
    folder = Path(os.path.normpath(os.path.join(os.path.abspath(project.root), source.path)))
    if source.format != "parquet" or not has_log(folder):
        return (*list_static(project, paths, name, source), False)
    entries = []
    for file in list_data_files(folder):
        values = {column: value or None for column, value in file.partition.items()}
        entries.append(FileEntry(file.path, str(folder / file.path), file.size_bytes, file.modified_at_ms, 0, values))
    if not entries:
        raise static_is_empty(paths, name, source)
    return entries, tuple(entries[0].partition), True


def _take(name: str, entry: FileEntry, target: Path, *, is_table: bool) -> None:
    try:
        if is_table:
            with contextlib.suppress(OSError):
                os.link(entry.abs_path, target)
                return
        before = os.stat(entry.abs_path)
        shutil.copyfile(entry.abs_path, target)
        after = os.stat(entry.abs_path)
    except FileNotFoundError as error:
        raise SourceLostError(
            "STATIC_MISSING",
            f"the file {entry.path} of the static source {name} was taken away while it was copied",
            next_run="looks again; nothing was read",
            fix="put it back, or run again",
        ) from error
    except OSError as error:
        if error.errno in (28, 122):
            raise storage.disk_full(target) from error
        raise
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise TryAgainError(
            "STATIC_CHANGING",
            f"the file {entry.path} of the static source {name} changed while it was copied",
            next_run="takes it as it is then; nothing was read",
            fix="replace static files whole (write beside, then rename); then run again",
        )


def _pin_offsets(project: Project, source: KafkaSource) -> dict[str, Any]:
    from tidegate.source.kafka import plan_kafka, resolve_birth

    plan = plan_kafka(project.spec.kafka, source, resolve_birth(project.spec.kafka, source), {})
    offsets = plan.to_dict()["ranges"]
    version = hashlib.sha256(json.dumps(offsets, sort_keys=True).encode()).hexdigest()[:16]
    return {"version": version, "offsets": offsets}


def _remove_others(folder: Path, version: dict[str, Any]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != version["version"]:
            storage.remove_tree(entry)
