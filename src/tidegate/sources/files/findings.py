"""What reports, ``plan`` and ``validate`` say of the files of a source: what changed since it was read, and where the
source starts.

The first run that lists a source marks files from before its ``start`` as taken, in one transaction of the ledger. From
then on only the ledger counts: a later change of the key has no effect on what is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.core.errors import STORAGE_FAILED, DisagreementError, SourceLostError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.sources import errors
from tidegate.sources.files.ledger import Ledger, Start, open_ledger, shown_path
from tidegate.sources.files.scan import FilesScan, start_ns
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.outputs import BeforeStart, ChangedFile, NotRead, SourceReport

_STARTS_NAMED_AT_MOST = 100
"""How many files from before a source's start a report names; it counts all of them."""


def summarise_scan(scan: FilesScan, files: int, size_bytes: int) -> SourceReport:
    """Summarise a scan for ``plan`` and the report, without empty values."""
    summary: SourceReport = {"files": files, "bytes": size_bytes, "backlog": len(scan.settling)}
    if scan.skipped:
        summary["skipped"] = list(scan.skipped)
    if scan.changed:
        summary["changed"] = list(scan.changed)
    if scan.vanished:
        summary["vanished"] = list(scan.vanished)
    if scan.settling:
        summary["settling"] = list(scan.settling)
    return summary


def list_unread(sources: Mapping[str, SourceReport]) -> list[tuple[str, NotRead]]:
    """List (source, file or folder) of what cannot be read until a person changes something."""
    return [(name, one) for name, source in sources.items() for one in source.get("skipped", ()) if "fix" in one]


def describe_unread(sources: Mapping[str, SourceReport]) -> list[str]:
    """Describe the files of each source that cannot be read until a person changes something, for reports and plans."""
    notes = []
    for name, source in sources.items():
        if unread := [one for _, one in list_unread({name: source})]:
            count = count_of(len(unread), "file or folder", "files or folders")
            fixes = "; ".join(dict.fromkeys(one["fix"] for one in unread))
            notes.append(f"source {name}: {count} cannot be read: {_name_unread(unread)}; to have it read: {fixes}")
    return notes


def unread_error(paths: PipelinePaths, sources: Mapping[str, SourceReport]) -> TidegateError | None:
    """Return the error that ends a run which reads nothing while there are files that cannot be read: TryAgainError
    STORAGE_FAILED where a retry may read all of them, else SourceLostError FILES_UNREAD."""
    unread = list_unread(sources)
    if not unread:
        return None
    where = f"{paths.spec}: sources.{unread[0][0]}.path"
    if all(one.get("retry") for _, one in unread):
        path = unread[0][1]["path"]
        reason = _name_unread([one for _, one in unread])
        return STORAGE_FAILED(where=where, path=path, reason=reason, quoted_path=shlex.quote(path))
    return errors.FILES_UNREAD(
        where=where,
        pipeline=paths.name,
        files=count_of(len(unread), "file or folder", "files or folders"),
        named=_name_unread([one for _, one in unread]),
        fixes="; ".join(dict.fromkeys(one["fix"] for _, one in unread)),
    )


def _name_unread(unread: Sequence[NotRead]) -> str:
    return list_first([f"{one['path']} ({one['why']})" for one in unread])


def note_scan(ledger: Ledger, source_name: str, scan: FilesScan) -> None:
    """Record the changes and absences of ``scan``; to be called once a report names them."""
    if scan.changed:
        rows = ledger.last_rows(source_name, [one["path"] for one in scan.changed])
        changes = [
            (rows[one["path"]].path, one["now"]["size"], one["now"]["mtime_ns"], one["how"], one["unread_bytes"])
            for one in scan.changed
        ]
        ledger.note_changed(source_name, changes)
    if scan.same:
        ledger.note_same(source_name, scan.same)
    if scan.vanished:
        ledger.note_place(source_name, scan.vanished, "reported")
    if scan.listed is not None:
        ledger.note_listed(source_name, scan.listed)


def note_first_look(ledger: Ledger, source_name: str, spec: FilesSource, scan: FilesScan) -> bool:
    """Record the start of the source and the files from before it, if ``scan`` was the first look at it.

    Returns whether there were such files: they count as taken from now on.
    """
    if scan.began is not None:
        return False
    ledger.note_start(source_name, spec.start, scan.before_start)
    return bool(scan.before_start)


def list_changed(ledger: Ledger, scans: Mapping[str, FilesScan]) -> list[ChangedFile]:
    """Every change that is not acknowledged: {"source", "path", "size", "mtime_ns", "how", "unread_bytes"}."""
    found: dict[tuple[str, str], ChangedFile] = {}
    for row in ledger.noted_rows():
        if row.source in scans and row.noted is not None:
            size, mtime_ns = row.noted
            found[row.source, shown_path(row.path)] = _change(
                row.source, row.path, size, mtime_ns, row.noted_how, row.noted_unread
            )
    for source, scan in scans.items():
        for one in scan.changed:
            now = one["now"]
            found[source, one["path"]] = _change(
                source, one["path"], now["size"], now["mtime_ns"], one["how"], one["unread_bytes"]
            )
        # The appended lines are read now.
        for entry in scan.new:
            found.pop((source, shown_path(entry.path)), None)
    return [found[key] for key in sorted(found)]


def _change(source: str, path: str, size: int, mtime_ns: int, how: str | None, unread_bytes: int | None) -> ChangedFile:
    return {
        "source": source,
        "path": shown_path(path),
        "size": size,
        "mtime_ns": mtime_ns,
        "how": how or "changed",
        "unread_bytes": size if unread_bytes is None else unread_bytes,
    }


def describe_changed(changed: Sequence[ChangedFile]) -> str:
    """Describe the first changes, each with the bytes that were not read, and count the others."""
    changes = [f"{one['path']} {one['how']} ({count_of(one['unread_bytes'], 'byte')} not read)" for one in changed]
    return list_first(changes, between="; ")


def changed_error(spec: PipelineSpec, paths: PipelinePaths, changed: Sequence[ChangedFile]) -> SourceLostError | None:
    """Return the error that ends a run when a file of a source with ``on_change: fail`` has changed."""
    fail = [one for one in changed if getattr(spec.sources[one["source"]], "on_change", "") == "fail"]
    if not fail:
        return None
    return errors.FILES_CHANGED(
        where=f"{paths.spec}: sources.{fail[0]['source']}.on_change",
        files=count_of(len(fail), "file"),
        changes=describe_changed(fail),
        pipeline=spec.name,
    )


def summarise_start(name: str, source: FilesSource, scan: FilesScan, ledger: Ledger) -> BeforeStart | None:
    """Summarise the files from before the source's start for ``plan`` and the report; None when there are none."""
    began = scan.began
    value: BeforeStart
    if began is None:
        earlier = scan.before_start
        value = {"start": source.start, "at": None, "files": len(earlier), "bytes": sum(one.size for one in earlier)}
        value["paths"] = sorted(one.path for one in earlier)[:_STARTS_NAMED_AT_MOST]
    else:
        value = {"start": began.start, "at": began.at, "files": began.files, "bytes": began.bytes}
        if not began.reported:
            value["paths"] = ledger.before_start(name, _STARTS_NAMED_AT_MOST)
    return value if value["files"] else None


def describe_start(name: str, earlier: BeforeStart) -> str:
    """Describe the files from before a source's start in a sentence."""
    size = f"{count_of(earlier['files'], 'file')} ({count_of(earlier['bytes'], 'byte')})"
    what = f"source {name} starts at {earlier['start']}: {size}"
    is_one = earlier["files"] == 1
    if earlier["at"] is None:
        rest = "is there before that; with the next run it counts as taken, and it is not read"
        if not is_one:
            rest = "are there before that; with the next run they count as taken, and they are not read"
        return f"{what} {rest}"
    they, counts = ("was", "it counts as taken and was") if is_one else ("were", "they count as taken and were")
    return f"{what} {they} there before that, first {earlier['paths'][0]}; {counts} not read"


def describe_late(name: str, source: FilesSource, late: Sequence[str]) -> str:
    """Describe new objects that only a list of all keys has found."""
    found = f"source {name}: found by listing all keys: {count_of(len(late), 'object')} ({list_first(late)})"
    if source.notifications is not None:
        return f"{found}, which no notification in {source.notifications.place} has named"
    return f"{found}, with names that sort before some that were taken"


def describe_change(name: str, source: FilesSource, began: Start | None) -> str | None:
    """Describe a change of ``start`` since the first look; None when there is none."""
    if began is None or start_ns(began.start) == start_ns(source.start):
        return None
    looked = f"source {name}: start is {source.start}, and was {began.start} when the source was first looked at"
    looked += f" ({began.at})" if began.at else ""
    return f"{looked}; only that first look counts: the change has no effect on what is read"


def list_changed_starts(project: Project, names: Sequence[str] | None) -> list[str]:
    """:func:`describe_change` of every source of these pipelines (None: of all), for ``validate``."""
    notes = []
    for pipeline in names or list_pipelines(project):
        try:
            spec, paths = load_pipeline(project, pipeline), project.paths(pipeline)
            with open_ledger(paths, read_only=True) as ledger:
                streams = spec.file_streams.items()
                found = (describe_change(name, one, ledger.start_of(name)) for name, one in streams)
                notes += [f"{pipeline}: {note}" for note in found if note is not None]
        except (TidegateError, OSError):
            continue  # faults of the spec are reported elsewhere, and validate does not check ledgers
    return notes


def check_starts_known(spec: PipelineSpec, paths: PipelinePaths) -> None:
    """For a rebuild: check that passed-over files can be distinguished from those to be read.

    Raises DisagreementError START_UNKNOWN when a source has ``start: now`` and the record of its first look is lost:
    another first look would pass over all files of the old table.
    """
    at_risk = [name for name, one in spec.file_streams.items() if one.start == "now"]
    if not at_risk:
        return
    try:
        with open_ledger(paths, read_only=True) as ledger:
            if ledger.last_id() or any(ledger.start_of(name) is not None for name in at_risk):
                return
    except DisagreementError:
        pass
    raise errors.START_UNKNOWN(
        where=f"{paths.spec}: sources.{at_risk[0]}.start; {paths.ledger}",
        first_at_risk=at_risk[0],
        name=paths.ledger.name,
        pipeline=paths.name,
    )
