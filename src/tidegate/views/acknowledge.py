"""``tidegate acknowledge``: accept files that changed after they were read, and rows lost with damaged files.

``status`` reports both until they are acknowledged; rebuilt rows are no longer lost. The new content of a changed file
is then not read; with ``on_change: reread_tail``, lines that are appended later are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.core.errors import SourceLostError
from tidegate.core.outputs import Acknowledged, ChangedFile
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person
from tidegate.core.words import list_first
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.runs.recovery.lost_rows import LostRows, acknowledge_lost_rows, list_lost_rows
from tidegate.runs.reports.report import new_run_id
from tidegate.runs.reports.verdicts import check_reason
from tidegate.sources.files.content import Mark, NotTaken, mark_of, opened, reopen
from tidegate.sources.files.findings import list_changed
from tidegate.sources.files.intake import source_path
from tidegate.sources.files.ledger import FileState, Ledger, open_ledger
from tidegate.sources.files.scan import EMPTY_SCAN, FilesScan, scan_files, source_roots
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import acquire
from tidegate.views import errors


def acknowledge_changes(project: Project, name: str, wanted: Sequence[str], *, reason: str) -> Acknowledged:
    """Record that a person accepts changed files and lost rows: those in ``wanted``, as status names them, or all.

    Raises UsageError REASON_MISSING, or NOT_CHANGED for an unknown name in ``wanted``; TryAgainError LEASE_HELD.
    """
    check_reason(reason, "an acknowledgement")
    reason = reason.encode("utf-8", "replace").decode().strip()  # typed text may hold invalid Unicode
    paths = project.paths(name)
    spec = as_read(load_pipeline(project, name), paths)
    run_id, expires = new_run_id("acknowledge"), project.spec.lease.expires_after
    with acquire(paths, run_id=run_id, command="acknowledge", expires_after_seconds=expires) as lease:
        with open_ledger(paths, lease=lease) if spec.file_streams else contextlib.nullcontext() as ledger:
            found = _Open(list_lost_rows(paths), _find_changed(project, paths, spec, ledger))
            chosen = _choose(project, name, found, wanted) if wanted else found
            lease.check()
            if ledger is not None:
                _acknowledge_changes(project, spec, ledger, chosen.changed, reason)
        acknowledge_lost_rows(paths, lease, chosen.lost, reason=reason)
    left = len(found.changed) - len(chosen.changed) + len(found.lost) - len(chosen.lost)
    lost = [one.to_json() for one in chosen.lost]
    return {"pipeline": name, "acknowledged": chosen.changed, "lost": lost, "left": left}


class _Open(NamedTuple):
    """What can be acknowledged."""

    lost: list[LostRows]
    changed: list[ChangedFile]

    def describe(self) -> str:
        """The first names of each kind that the command takes."""
        lost = dict.fromkeys(_partition_of(one) or one.path for one in self.lost)
        kinds = ([one["path"] for one in self.changed], list(lost))
        return "; ".join(list_first(names) for names in kinds if names) or "none"


def _partition_of(lost: LostRows) -> str | None:
    return describe_partition([*lost.partition.items()]) if lost.partition else None


def _is_meant(word: str, lost: LostRows) -> bool:
    """Return whether ``word`` is the lost file or its partition."""
    return word in (lost.path, _partition_of(lost))


def _find_changed(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, ledger: Ledger | None
) -> list[ChangedFile]:
    if ledger is None:
        return []
    scans = {one: _scan(project, paths, one, source, ledger) for one, source in spec.file_streams.items()}
    return list_changed(ledger, scans)


def _acknowledge_changes(
    project: Project, spec: PipelineSpec, ledger: Ledger, chosen: Sequence[ChangedFile], reason: str
) -> None:
    for source, one in spec.file_streams.items():
        mine = [change for change in chosen if change["source"] == source]
        rows = ledger.last_rows(source, [change["path"] for change in mine])
        taken = [
            (rows[change["path"]].path, _state(project, one, change), change["how"], change["unread_bytes"])
            for change in mine
        ]
        ledger.acknowledge(source, taken, who=name_person(), reason=reason)


def _scan(project: Project, paths: PipelinePaths, name: str, source: FilesSource, ledger: Ledger) -> FilesScan:
    try:
        return scan_files(project, paths, name, source, ledger)
    except SourceLostError:
        return EMPTY_SCAN  # changes that an earlier run has seen can still be acknowledged


def _choose(project: Project, name: str, found: _Open, wanted: Sequence[str]) -> _Open:
    """Select what ``wanted`` names. A name of lost rows is not also a changed file."""
    lost = [one for one in found.lost if any(_is_meant(word, one) for word in wanted)]
    known = {one["path"]: one for one in found.changed}
    known |= {source_path(project, path): one for path, one in known.items()}
    changed, missing = list[ChangedFile](), list[str]()
    for word in wanted:
        one = known.get(word) or known.get(os.path.abspath(word))
        if any(_is_meant(word, rows) for rows in lost):
            continue
        if one is None:
            missing.append(word)
        elif one not in changed:
            changed.append(one)
    if missing:
        named = ", ".join(missing)
        raise errors.NOT_CHANGED(where=f"pipeline {name}", missing=named, open=found.describe(), name=name)
    return _Open(lost, changed)


def _state(project: Project, spec: FilesSource, change: ChangedFile) -> FileState:
    """The file as status reported it, with the mark of its content if it has not changed since."""
    ctime_ns, mark = None, None
    try:
        with (
            opened(source_path(project, change["path"]), source_roots(project, spec)) as handle,
            reopen(handle) as reader,
        ):
            mark = _mark_if_same(reader, change)
            ctime_ns = os.fstat(reader).st_ctime_ns if mark is not None else None
    except (OSError, NotTaken):
        pass
    return FileState(change["size"], change["mtime_ns"], ctime_ns, mark)


def _mark_if_same(reader: int, change: ChangedFile) -> Mark | None:
    found = os.fstat(reader)
    if (found.st_size, found.st_mtime_ns) != (change["size"], change["mtime_ns"]):
        return None
    return mark_of(reader, found.st_size)
