"""A query that is over, as a table's log has it, so that no late commit of it is ever taken.

The version that ends a query (:func:`tidegate.table.log.commit.retire_in_log`) carries ``txn(<query id>#retired, N)``:
from ``N`` on no batch of the query counts. A process that has read the log before finds the number of its own version
given, reads the log again, and is refused. The last batch itself stays what it was, because repair must be able to ask
which batches the table holds.
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
    """The log takes no such batch of this query any more. Callers catch it and drop what they had planned."""

    def __init__(self, query_id: str, batch_id: int) -> None:
        super().__init__(
            "QUERY_RETIRED",
            f"query {query_id} is over: batch {batch_id} of it does not count",
            next_run="reads these records again with the query that followed",
            fix="nothing needs to be done; run again",
        )


def retired_mark(query_id: str) -> str:
    """The id under which a log notes from which batch on it takes none of a query."""
    return f"{query_id}{_MARK}"


def refuse_retired(table: LogHead, query_id: str, batch_id: int) -> None:
    """Raise RetiredError when the log no longer takes this batch of the query."""
    first_refused = table.transaction_version(retired_mark(query_id))
    if first_refused is not None and batch_id >= first_refused:
        raise RetiredError(query_id, batch_id)


def drop_late_commits(table_path: Path, retired: Collection[str], aside: Path, check_lease: Callable[[], None]) -> None:
    """Take commits off the end of a log that a query made after it was over: there was no log then that could have
    refused them, because the table was not made yet, or had been moved to a backup.

    They are known by the files they name, which are not there (whoever ended the query has moved them away), and by the
    log, which does not say that the query is over. Their commit files go to ``aside``.
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
