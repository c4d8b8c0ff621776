"""The note of the last publish: which table it was, what its log then held, and how far the ledger had come.

What the next run finds is compared with it: a table, a ledger or a checkpoint that was restored is behind.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.state.topics import Positions, positions_from_json, positions_to_json


@dataclass(frozen=True)
class Published:
    """The table's log at ``version`` held batches of ``query_id`` up to ``batch_id``; None and -1 after a repair."""

    table_id: str
    version: int
    query_id: str | None
    batch_id: int
    ledger_last_id: int = 0
    """The number of the file taken last."""
    positions: Positions | None = None
    """The positions of the Kafka sources at ``version``; None where they are not known."""
    keeps_state: bool = False
    """Whether the query keeps state: its birth record says so first, and may be lost with its checkpoint."""


def read_published(paths: PipelinePaths) -> Published | None:
    """The note; None before the first publish. Raises UnreadableStateError."""
    value = storage.read_note(paths.published)
    if value is None:
        return None
    with storage.unreadable_is_named(paths.published):
        positions = value.get("positions")
        return Published(
            table_id=str(value.get("table_id")),
            version=int(value.get("version", -1)),
            query_id=value.get("query_id"),
            batch_id=int(value.get("batch_id", -1)),
            ledger_last_id=int(value.get("ledger_last_id") or 0),
            positions=None if positions is None else positions_from_json(positions),
            keeps_state=bool(value.get("keeps_state")),
        )


def write_published(paths: PipelinePaths, note: Published, *, only: bool = False) -> None:
    """Write the note; ``only``: notes of higher versions go, see :func:`tidegate.core.storage.write_note`."""
    value = asdict(note)
    if note.positions is None:
        del value["positions"]
    else:
        value["positions"] = positions_to_json(note.positions)
    storage.write_note(paths.published, note.version, value, only=only)
