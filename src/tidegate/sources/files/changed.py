"""Files that changed after they were read, found by comparing the folder with the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.core.errors import SourceLostError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.sources import errors
from tidegate.sources.files.ledger import Ledger, shown_path
from tidegate.sources.files.scan import FilesScan
from tidegate.spec.models import PipelineSpec

if TYPE_CHECKING:
    from tidegate.core.outputs import ChangedFile

_NAMED_AT_MOST = 5


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
    return list_first(changes, _NAMED_AT_MOST, "; ")


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
