"""Source clean-up: archive or delete files of a pipeline's sources that were read and are not needed any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.held import list_held
from tidegate.runs.reports.verdicts import WAITED, list_waiting
from tidegate.sources.files.consumed import Consumed, clear_consumed, find_consumed
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.listing import is_inside
from tidegate.sources.files.scan import source_roots
from tidegate.sources.files.source import FilesStream
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project
from tidegate.state.lease import Lease
from tidegate.table.log.files import CommitInfo, list_versions
from tidegate.table.log.state import read_commit_metadata

_OLD_IN_A_ROW = 1000
"""After so many commits in a row that are too old, no newer one is expected."""


@dataclass
class SourceChores:
    """The files of each source to clean up, and notes on sources that are not cleaned up."""

    consumed: dict[str, Consumed] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_chores(project: Project, paths: PipelinePaths, spec: PipelineSpec, now: float) -> SourceChores:
    """Find the files that ``maintenance.source`` moves or removes, without changing anything.

    Sources to which lines may be appended are not cleaned up, nor folders that another source reads too, also one of
    another pipeline: it may still need the files. ``now`` is in seconds since the epoch.
    """
    chores = SourceChores()
    if spec.maintenance.source == "keep" or not spec.file_streams:  # without files there is no ledger either
        return chores
    if list_held(paths):  # corrected, it has to read files of the source again
        chores.notes.append("files of the sources are kept: a backfill is held, and may need them")
        return chores
    recent = find_recent_batches(paths, since_ms=int((now - spec.maintenance.keep_versions) * 1000))
    if recent is None:
        chores.notes.append(
            "files of the sources are kept: commits are missing from the table's log, which would say what the "
            "versions within keep_versions have read"
        )
        return chores
    # The rows of deferred increments are only in staging and in the source.
    needed = {manifest.key for one in list_waiting(paths) for manifest in one.manifests}
    with open_ledger(paths, read_only=True) as ledger:
        named = load_pipeline(project, spec.name).file_streams
        for name, source in spec.file_streams.items():
            if name not in named:  # the spool of a source that is received
                continue
            if (why := _why_left(project, spec, name, source)) is not None:
                chores.notes.append(f"source {name}: its files are kept, because {why}")
                continue
            try:
                consumed = find_consumed(FilesStream(project, paths, name, source, ledger), recent, needed)
            except TidegateError as error:
                chores.notes.append(f"source {name}: {error.code}, so its files are kept")
                continue
            chores.consumed[name] = consumed
            if consumed.doubtful:
                chores.notes.append(
                    f"source {name}: kept, because they may have changed since they were read (their inodes did, "
                    f"and of files above 32 KiB only the ends can be compared): {list_first(consumed.doubtful)}"
                )
    return chores


def clear_sources(paths: PipelinePaths, spec: PipelineSpec, lease: Lease, chores: SourceChores) -> list[str]:
    """Carry out what :func:`find_chores` found; return a line on each source."""
    how = spec.maintenance.source
    lines: list[str] = []
    todo = {name: consumed for name, consumed in chores.consumed.items() if consumed.files}
    if not todo or how == "keep":
        return lines
    with open_ledger(paths, lease=lease) as ledger:
        for name, consumed in todo.items():
            done, faults = clear_consumed(ledger, name, consumed, how, lease.check)
            if done:
                size = count_of(sum(file.size for file in done), "byte")
                word = "archived" if how == "archive" else "deleted"
                lines.append(f"source {name}: {word} {count_of(len(done), 'file')} that were read ({size})")
            chores.notes += [f"source {name}: {fault}" for fault in list(faults)[:5]]
    return lines


def find_recent_batches(paths: PipelinePaths, *, since_ms: int) -> dict[str, int] | None:
    """Return {query id: its first batch} of the table's versions since a moment: a rollback to one of them may need the
    files that later ones read. None when the log is incomplete.

    Version numbers decide which commit is later, because clocks may be wrong, and commits of other programs may have no
    time stamp.
    """
    recent: dict[str, int] = {}
    later: list[CommitInfo] = []
    old, versions = 0, list_versions(paths.table)
    for version in reversed(versions):
        try:
            info = read_commit_metadata(paths.table, version)
        except ValueError:  # torn, and held by a compaction file
            info = {}
        later.append(info)
        made = info.get("timestamp")
        if not isinstance(made, int):
            continue
        old += 1
        if made >= since_ms:
            for query_id, first in chain.from_iterable(map(_batches_of, later)):
                recent[query_id] = min(first, recent.get(query_id, 2**63))
            later.clear()
            old = 0
        elif old == _OLD_IN_A_ROW:
            break
    return None if versions and versions[0] > 0 and not old else recent


def _batches_of(info: CommitInfo) -> Iterator[tuple[str, int]]:
    """Yield (query id, first batch) of a version's increments, including released deferred ones."""
    query_id, after = info.get("tidegate.query_id"), info.get("tidegate.app_version_before")
    if query_id is not None and after is not None:
        yield query_id, int(after) + 1
    for waited, first, _ in json.loads(info.get(WAITED) or "[]"):
        yield waited, int(first)


def _why_left(project: Project, spec: PipelineSpec, name: str, source: FilesSource) -> str | None:
    """Explain why no file of a source may be removed; None if files may be."""
    if source.on_change == "reread_tail":
        return "on_change: reread_tail reads what is appended to them"
    if source.is_on_store:
        return "objects of a store are left to a lifecycle rule of its bucket"
    top = source_roots(project, source)[0]
    for who, other in _other_sources(project, spec, name):
        if other is None:
            return f"{who} cannot be read, and may read the same folder"
        if any(overlap(top, root) for root in source_roots(project, other)):
            return f"{who} reads the same folder"
    return None


def overlap(one: str, other: str) -> bool:
    """Return whether one of two folders, real paths, is the other or lies in it."""
    if is_inside(one, [other]) or is_inside(other, [one]):
        return True
    return _holds(one, other) or _holds(other, one)


def _holds(top: str, folder: str) -> bool:
    """True if a folder, or one above it, is ``top`` under another path, such as a bind mount. False when one of the two
    does not exist."""
    try:
        return any(storage.is_same(Path(top), one) for one in (Path(folder), *Path(folder).parents))
    except OSError:
        return False


def _other_sources(project: Project, spec: PipelineSpec, name: str) -> Iterator[tuple[str, FilesSource | None]]:
    """Every other source of files in the project; None for a pipeline whose spec cannot be read."""
    for pipeline in list_pipelines(project):
        try:
            theirs = spec if pipeline == spec.name else load_pipeline(project, pipeline)
        except TidegateError:
            yield f"pipeline {pipeline}", None
            continue
        for source_name, source in theirs.file_sources.items():
            if (pipeline, source_name) != (spec.name, name):
                yield f"source {source_name} of pipeline {pipeline}", source
