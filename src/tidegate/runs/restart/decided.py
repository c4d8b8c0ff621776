"""What people decided on records, as the table's log has it: a table built from the beginning knows none of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs.reports.waiting import WAITED
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.state import has_log, read_commit_metadata, read_log
from tidegate.table.log.taken import EXCLUDED, ROLLED_BACK_TO
from tidegate.table.publish.intent import REPLACES
from tidegate.table.publish.origins import EDITED
from tidegate.table.publish.rework import REWORK


def list_undone(paths: PipelinePaths) -> list[str]:
    """What reading all sources from the beginning undoes of it, with counts; where the log cannot tell, that."""
    try:
        return _list_undone(paths)
    except (TidegateError, OSError, ValueError) as error:
        return [f"undo what was decided on records; the table's log cannot tell what ({type(error).__name__})"]


def _list_undone(paths: PipelinePaths) -> list[str]:
    discarded: list[int] = []
    left_out = left_rows = edited = 0
    is_refreshed = False
    for info in _walk(paths):
        if EXCLUDED in info:
            excluded = json.loads(info[EXCLUDED])
            left_out, left_rows = left_out + int(excluded["records"]), left_rows + int(excluded["rows"])
        elif _is_discarded(info):
            discarded.append(int(json.loads(info.get("tidegate.rows", "{}")).get("read", 0)))
        edited += 0 if is_refreshed else int(info.get(EDITED, 0))
        is_refreshed = is_refreshed or REPLACES in info
    sentences = []
    if discarded:
        records = count_of(sum(discarded), "record")
        sentences.append(f"read again, and judge again, {count_of(len(discarded), 'discarded increment')} ({records})")
    if left_out:
        records, rows = count_of(left_out, "record"), count_of(left_rows, "row")
        sentences.append(f"read again, and judge again, {records} that a rollback left out ({rows})")
    if edited:
        sentences.append(f"read as the source has it what was edited and replayed: {count_of(edited, 'record')}")
    return sentences


def _walk(paths: PipelinePaths) -> Iterator[CommitInfo]:
    """The commits that the table's rows come from, newest first; a rollback, then the version that it went back to."""
    if not has_log(paths.table):
        return
    number = read_log(paths.table).version
    while number >= 0:
        info = read_commit_metadata(paths.table, number)
        yield info
        number = int(info.get(ROLLED_BACK_TO, number - 1))


def _is_discarded(info: CommitInfo) -> bool:
    """Whether it passed over an increment because somebody discarded it, be it while it waited alone."""
    is_on_increment = WAITED in info or (REWORK not in info and "tidegate.query_id" in info)
    return info.get("tidegate.outcome") == "discarded" and is_on_increment
