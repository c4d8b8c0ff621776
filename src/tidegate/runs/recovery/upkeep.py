"""What a pipeline's tables need from time to time: a compact log, and room on the disk."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.facts import Facts
from tidegate.sinks.feed import last_fed
from tidegate.spec.models import PipelineSpec
from tidegate.state.lease import Lease
from tidegate.table.log.compaction import compact_log, is_compaction_due
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions
from tidegate.table.log.state import TableState, has_log, read_commit_metadata, read_table_state
from tidegate.table.publish.intent import Target, list_moving
from tidegate.table.publish.replace import LeftBehind, find_left_behind, find_replaced, hide_left_behind

_NOTE_EVERY = 100
"""Versions: reading so many commits again costs less than noting each, which has to reach the disk."""


@dataclass(frozen=True)
class Replaced:
    """Files of the ``target`` table that newer versions replaced long enough ago: all that the versions after
    ``before``, up to ``done``, took out."""

    target: Target
    table_id: str
    before: int
    done: int
    files: list[Path]


def maintain_tables(paths: PipelinePaths, spec: PipelineSpec, lease: Lease, table: TableState | None) -> None:
    """Compact each table's log when that is due, and remove files that were replaced long enough ago, where the clock
    can be believed: else maintenance says why not.

    Bounded work, after each publish; ``table`` is the pipeline's table as it is now.
    """
    for target, path in tables_of(paths):
        if is_compaction_due(path):
            compact_log(path, lease.check)
        state = table if target == "table" else read_table_state(path)
        if state is None:
            continue
        replaced = find_replaced_files(paths, spec, target, state)
        if not (replaced.files and spec.maintenance.keep_versions and find_clock_fault(paths, time.time())):
            remove_files(paths, replaced, lease)


def find_left(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> list[tuple[Target, Path, LeftBehind]]:
    """What other programs left in the folders of the tables, where plain readers take it for rows; so do publishes of
    the time when the table had ``readers: delta``. As long as it has, there are no plain readers of it.

    A table that the pipeline has not published to, such as one that is to be adopted, is not looked at.
    """
    found = []
    table, published = facts.table, facts.published
    is_ours = table is not None and published is not None and published.table_id == table.table_id
    for target, path in tables_of(paths):
        if has_log(path) and (target == "quarantine" or (is_ours and spec.table.readers == "both")):
            found.append((target, path, find_left_behind(path, _looked_up_to(paths, target))))
    return found


def hide_left(paths: PipelinePaths, spec: PipelineSpec, lease: Lease, facts: Facts) -> list[str]:
    """Hide what :func:`find_left` finds from plain readers; a line for the report on each thing that was found."""
    sentences = []
    for target, path, left in find_left(paths, spec, facts):
        hide_left_behind(path, left, lease.check)
        done = [*(["hidden"] if left.files else []), *(["removed"] if left.checkpoints else [])]
        sentences += [f"the {target}: {line}; {word} now" for line, word in zip(left.describe(), done, strict=False)]
        sentences += [f"the {target}: {line}" for line in left.describe_for_good()]
        before = _looked_up_to(paths, target)
        must_note = left.files or left.is_cut or before > left.looked_up_to
        if must_note or left.looked_up_to - before >= _NOTE_EVERY:
            lease.check()
            storage.replace(paths.looked_up_to(target), storage.dump_json({"version": left.looked_up_to}))
    return sentences


def _looked_up_to(paths: PipelinePaths, target: Target) -> int:
    """The version up to which a table was looked through for what others left; -1 for none."""
    note = storage.read_json(paths.looked_up_to(target))
    return -1 if note is None else int(note["version"])


def tables_of(paths: PipelinePaths) -> tuple[tuple[Target, Path], ...]:
    """The pipeline's two tables."""
    return (("table", paths.table), ("quarantine", paths.quarantine))


def find_replaced_files(
    paths: PipelinePaths, spec: PipelineSpec, target: Target, state: TableState, *, after: int | None = None
) -> Replaced:
    """The files of a table that nothing needs any more, as far as the log was not looked through before (or ``after``
    a version): of a bounded number of versions, none that a sink, a begun publish or ``keep_versions`` needs."""
    storage.forget_listings()  # what is found here is removed for good
    table_path = paths.table if target == "table" else paths.quarantine
    up_to = state.version
    if target == "table":  # what versions brought that a sink has not had yet is still to be read
        fed = [last_fed(paths, sink.name, state) for sink in spec.sinks]
        up_to = min([up_to, *(version for version in fed if version is not None)])
    before = after
    if before is None:
        note = storage.read_json(paths.removed(target))
        before = int(note["version"]) if note is not None and note["table_id"] == state.table_id else -1
    if before > up_to:  # an older copy of the table was put back, and its versions' numbers are given again
        before = -1
    done, files = find_replaced(
        table_path,
        after=before,
        up_to=up_to,
        before_ms=int((time.time() - spec.maintenance.keep_versions) * 1000),
        needed=list_moving(paths, table_path),
    )
    return Replaced(target, state.table_id, before, done, files)


def remove_files(paths: PipelinePaths, replaced: Replaced, lease: Lease) -> None:
    """Remove what :func:`find_replaced_files` found. Safe to be killed anywhere: what is gone is skipped."""
    lease.check()
    for path in replaced.files:
        storage.remove(path)
    if replaced.files or replaced.done - replaced.before >= _NOTE_EVERY:
        note = {"table_id": replaced.table_id, "version": replaced.done}
        storage.replace(paths.removed(replaced.target), storage.dump_json(note))


_SKEW = 3600.0
"""Seconds by which clocks of two machines may differ."""
_CONFIRMED_AFTER = 12 * 3600.0
"""What was noted less than so many seconds ago may have been noted with the same wrong clock."""
_LONGEST_PAUSE = 35 * 86_400.0
"""A pipeline that does something once a month is believed at once."""


def find_clock_fault(paths: PipelinePaths, now: float) -> str | None:
    """Why nothing may be removed for its age at ``now``, in seconds since the epoch, and what to do; None: believed."""
    versions = list_versions(paths.table)
    newest = _made_at(paths, versions[-1]) if versions else 0.0
    if (ahead := max([newest, *_written(paths.lease)]) - now) > _SKEW:
        what = "the newest version of the table" if newest - now > _SKEW else "a heartbeat of the lease"
        return (
            f"this clock says {_show(now)}, and {what} is of {_show(now + ahead)}: correct the clock; if it is right, "
            f"and the other one was not, the next version that is published shows it. {_REFUSED}"
        )
    # The newest of those that the clock of the last hours has not made.
    number = bisect_left(versions, now - _CONFIRMED_AFTER, key=lambda version: _made_at(paths, version))
    if number == 0 or now - (before := _made_at(paths, versions[number - 1])) <= _LONGEST_PAUSE:
        return None
    if any(now - _LONGEST_PAUSE <= at < now - _CONFIRMED_AFTER for at in _written(paths.runs)):
        return None
    return (
        f"this clock says {_show(now)}, and the pipeline has noted nothing since {_show(before)}, but perhaps in the "
        f"last 12 hours: correct the clock; if it is right, a maintenance in 12 hours removes what is old. {_REFUSED}"
    )


_REFUSED = (
    "Until then nothing is removed for its age: replaced files, old partitions, files of the sources, reports, backups"
)


def _made_at(paths: PipelinePaths, version: int) -> float:
    """When a version was made: by its commit, else by the time stamp of its file."""
    with contextlib.suppress(ValueError, FileNotFoundError):
        made = read_commit_metadata(paths.table, version).get("timestamp")
        if isinstance(made, int) and made:
            return made / 1000
    with contextlib.suppress(FileNotFoundError):
        return storage.stat(paths.table / LOG_FOLDER / commit_name(version)).modified_ns / 1e9
    return 0.0


def _written(folder: Path) -> Iterator[float]:
    """When the files of a folder were written."""
    for path in storage.list_folder(folder, "*"):
        with contextlib.suppress(FileNotFoundError):
            yield storage.stat(path).modified_ns / 1e9


def _show(seconds: float) -> str:
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{seconds:.0f} seconds since 1970"
