"""Retired queries in a table's log, which accepts no late commit of them.

The version that retires a query (:func:`tidegate.table.log.commit.retire_in_log`) carries ``txn(<query id>#retired,
N)``: from ``N`` on no batch of the query counts. A process that read the log before finds its version number taken,
reads the log again, and is refused. The txn of the last batch stays as it was: repair needs to know which batches the
table contains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions, path_on_disk, read_actions
from tidegate.table.log.snapshot import LogHead

_MARK = "#retired"


class RetiredError(TidegateError):
    """The log no longer accepts this batch of the query. Callers catch it and drop their plan."""

    def __init__(self, query_id: str, batch_id: int) -> None:
        super().__init__(
            "QUERY_RETIRED",
            f"query {query_id} is over: batch {batch_id} of it does not count",
            next_run="reads these records again with the query that followed",
            fix="nothing needs to be done; run again",
        )


def retired_mark(query_id: str) -> str:
    """The id under which a log records the batch from which on it accepts none of a query."""
    return f"{query_id}{_MARK}"


def refuse_retired(table: LogHead, query_id: str, batch_id: int) -> None:
    """Raise RetiredError when the log no longer accepts this batch of the query."""
    first_refused = table.transaction_version(retired_mark(query_id))
    if first_refused is not None and batch_id >= first_refused:
        raise RetiredError(query_id, batch_id)


def drop_late_commits(table_path: Path, retired: Collection[str], aside: Path, check_lease: Callable[[], None]) -> None:
    """Remove commits of retired queries from the end of a log that could not refuse them, because it did not exist at
    the time: the table was not created yet, or had been moved to a backup.

    Such commits name files that do not exist (retiring the query moved them away), in a log that does not record that
    the query is retired. Their commit files are moved to ``aside``.
    """
    while versions := list_versions(table_path):
        try:
            actions = read_actions(table_path, versions[-1])
        except (OSError, ValueError) as error:
            if storage.is_failure(error):
                raise
            return
        writers = {action["txn"]["appId"] for action in actions if "txn" in action}
        files = [path_on_disk(action["add"]["path"]) for action in actions if "add" in action]
        is_known = any(writer.endswith(_MARK) for writer in writers)
        if is_known or not writers & set(retired) or all(storage.exists(table_path / file) for file in files):
            return
        check_lease()
        name = commit_name(versions[-1])
        storage.move(table_path / LOG_FOLDER / name, aside / name)
