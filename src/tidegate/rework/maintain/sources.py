"""Source clean-up: which files of a pipeline's sources were read and are needed by nobody any more."""

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
from tidegate.rework.maintain.waiting import needed_batches, needs_source
from tidegate.runs.reports.waiting import WAITED
from tidegate.sources.files.consumed import Consumed, clear_consumed, find_consumed
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.listing import is_inside
from tidegate.sources.files.scan import source_roots
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project
from tidegate.state.lease import Lease
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import read_commit_metadata

_OLD_IN_A_ROW = 1000
"""After so many commits that are too old no newer one is expected below them."""


@dataclass
class SourceChores:
    """What can go of each source, and why of others nothing does."""

    consumed: dict[str, Consumed] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_chores(project: Project, paths: PipelinePaths, spec: PipelineSpec, now: float) -> SourceChores:
    """The files that ``maintenance.source`` moves or removes. Nothing is changed.

    Left alone are sources that lines may be appended to, and folders that another source reads as well, be it of
    another pipeline: it may need the files still. ``now`` is in seconds since the epoch.
    """
    chores = SourceChores()
    if spec.maintenance.source == "keep" or not spec.file_streams:  # without files there is no ledger either
        return chores
    if needs_source(paths):
        chores.notes.append("files of the sources are left alone: a backfill is held, and may need them")
        return chores
    recent = find_recent_batches(paths, since_ms=int((now - spec.maintenance.keep_versions) * 1000))
    if recent is None:
        chores.notes.append(
            "files of the sources are left alone: commits are missing from the table's log, which would say what the "
            "versions within keep_versions have read"
        )
        return chores
    needed = needed_batches(paths)
    with open_ledger(paths, read_only=True) as ledger:
        named = load_pipeline(project, spec.name).file_streams
        for name, source in spec.file_streams.items():
            if name not in named:  # what was received, as a run reads it
                continue
            if (why := _why_left(project, spec, name, source)) is not None:
                chores.notes.append(f"source {name}: its files are left alone, because {why}")
                continue
            try:
                consumed = find_consumed(project, paths, name, source, ledger, recent, needed)
            except TidegateError as error:
                chores.notes.append(f"source {name}: {error.code}, so its files are left alone")
                continue
            chores.consumed[name] = consumed
            if consumed.doubtful:
                chores.notes.append(
                    f"source {name}: left alone, because they may have changed since they were read (their inodes did, "
                    f"and of files above 32 KiB only the ends can be compared): {list_first(consumed.doubtful, 5)}"
                )
    return chores


def clear_sources(paths: PipelinePaths, spec: PipelineSpec, lease: Lease, chores: SourceChores) -> list[str]:
    """Carry out what :func:`find_chores` found; a line on each source, on what was done and what could not be."""
    how = spec.maintenance.source
    told: list[str] = []
    todo = {name: consumed for name, consumed in chores.consumed.items() if consumed.files}
    if not todo or how == "keep":
        return told
    with open_ledger(paths, lease=lease) as ledger:
        for name, consumed in todo.items():
            done, faults = clear_consumed(ledger, name, consumed, how, lease.check)
            if done:
                size = count_of(sum(file.size for file in done), "byte")
                word = "archived" if how == "archive" else "deleted"
                told.append(f"source {name}: {word} {count_of(len(done), 'file')} that were read ({size})")
            chores.notes += [f"source {name}: {fault}" for fault in list(faults)[:5]]
    return told


def find_recent_batches(paths: PipelinePaths, *, since_ms: int) -> dict[str, int] | None:
    """{query id: its first batch} of the versions of the table made since a moment: rolling back to one of them may
    need the files that later ones read. None when the log does not say it.

    What was made later has a higher number, whatever its time stamp says: a clock may have been behind, and commits of
    others need not have one.
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
    """(query id, first batch) of what a version has taken in: with a release also what waited until then."""
    query_id, after = info.get("tidegate.query_id"), info.get("tidegate.app_version_before")
    if query_id is not None and after is not None:
        yield query_id, int(after) + 1
    for waited, first, _ in json.loads(info.get(WAITED) or "[]"):
        yield waited, int(first)


def _why_left(project: Project, spec: PipelineSpec, name: str, source: FilesSource) -> str | None:
    """Why no file of a source may go; None for no reason."""
    if source.on_change == "reread_tail":
        return "on_change: reread_tail reads what is appended to them"
    top = source_roots(project, source)[0]
    for who, other in _other_sources(project, spec, name):
        if other is None:
            return f"{who} cannot be read, and may read the same folder"
        if any(overlap(top, root) for root in source_roots(project, other)):
            return f"{who} reads the same folder"
    return None


def overlap(one: str, other: str) -> bool:
    """Whether one of two folders, real paths, is the other or lies in it."""
    if is_inside(one, [other]) or is_inside(other, [one]):
        return True
    return _holds(one, other) or _holds(other, one)


def _holds(top: str, folder: str) -> bool:
    """Whether a folder, or one above it, is ``top`` under another path, as a bind mount gives it. False when one of the
    two is not there."""
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
