"""Another engine on the table: deltalake, as itself, between any two steps of ours.

What it does is taken down, so that the readers can be asked: rows of its own, rows that it deleted, and the files that
it replaced, which plain readers see beside the new ones until our next publish or maintenance.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tests.model.fake_spark import day_of
from tests.model.readers import files_at, id_of, kept, list_removed, newest_version, read_log, read_rows

_LONG_AGO = 400 * 86_400 * 10**9
CLEAN_UP = {"delta.logRetentionDuration": "interval 0 seconds", "delta.enableExpiredLogCleanup": "true"}
FEATURES: dict[str, tuple[Callable[[DeltaTable], None], Callable[[DeltaTable], None]]] = {
    "change feed": (
        lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
        lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "false"}),
    ),
    "append only": (
        lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
        lambda table: table.alter.set_table_properties({"delta.appendOnly": "false"}),
    ),
    "constraint": (
        lambda table: table.alter.add_constraint({"has_kind": "kind <> 'none'"}),
        lambda table: table.alter.drop_constraint("has_kind"),
    ),
}
"""What it can ask of all writers: how it does, and how it takes that back."""
_UNDO = {"constraint": "DROP CONSTRAINT has_kind", "append only": "SET TBLPROPERTIES ('delta.appendOnly' = 'false')"}
TENDS = ("vacuum", "vacuum all", "checkpoint", "clean up", "property", *FEATURES)


@dataclass
class Foreign:
    """The other engine at work on the table in ``path``."""

    path: Path
    sent: int = 0
    rows: set[str] = field(default_factory=set)
    """Rows of its own that came into the table."""
    deleted: set[str] = field(default_factory=set)
    """Rows that it deleted, and that no work of ours that reads or restores rows has brought back."""
    stale: dict[str, int] = field(default_factory=dict)
    """Rows in files that it replaced, and when: a plain reader may see these files still."""
    asks: set[str] = field(default_factory=set)
    """What it asks of all writers by now."""
    acts: int = 0

    def act(self, what: str, seed: int) -> str:
        """Do one thing; what became of it."""
        if newest_version(self.path) < 0:
            return "no table"
        self.acts += 1
        read_log(self.path)  # so that its versions are known if they go
        before, there = newest_version(self.path), set(self.path.rglob("*"))
        try:
            told = self._act(what, seed)
        except DeltaError as error:
            return f"refused: {str(error)[:100]}"
        finally:
            self._sync(there)
        gone = list_removed(self.path, before)
        self.stale |= {id_of(row): self.acts for name in gone for row in read_rows(kept(self.path / name))}
        read_log(self.path)  # so that its files are known if they go
        return told

    def _act(self, what: str, seed: int) -> str:
        table = DeltaTable(str(self.path))
        if what == "append":
            return self._append(seed)
        if what == "delete":
            there = sorted(read_log(self.path))
            if not there:
                return "nothing to delete"
            gone = there[seed % len(there)]
            table.delete(f"id = '{gone}'")
            self.deleted.add(gone)
            return f"deleted {gone}"
        if what == "compact":
            return f"compacted: {table.optimize.compact()['numFilesRemoved']} files"
        if what.startswith("vacuum"):
            gone_files = table.vacuum(dry_run=False, full=what == "vacuum all")
            return f"{what}: {len(gone_files)} files {gone_files[:2]}"
        if what == "checkpoint":
            table.create_checkpoint()
        elif what == "clean up":
            table.alter.set_table_properties(CLEAN_UP)
            table = DeltaTable(str(self.path))
            table.create_checkpoint()
            table.cleanup_metadata()
        elif what == "property":
            table.alter.set_table_properties({"delta.deletedFileRetentionDuration": f"interval {7 + seed} days"})
        else:
            FEATURES[what][0](table)
            self.asks.add(what)
        return "done"

    def _append(self, seed: int) -> str:
        self.sent += 1
        ids = [f"x{self.sent}-{seed % 2}", *([f"x{self.sent}-{2 + (seed + 1) % 2}"] if seed > 3 else [])]
        days = [date.fromisoformat(day_of({"id": one})) for one in ids]
        rows = pa.table({"id": ids, "kind": ["good"] * len(ids), "day": pa.array(days, pa.date32())})
        write_deltalake(str(self.path), rows, mode="append")
        self.rows |= set(ids)
        return f"appended {', '.join(ids)}"

    def _sync(self, there: set[Path]) -> None:
        """Its files are on disk: what a power cut leaves of them is not our promise."""
        now = set(self.path.rglob("*"))
        for path in {*(now - there), *(path.parent for path in now ^ there)} & {*now, self.path}:
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)

    def follow(self, fix: str) -> str:
        """Do what the SQL in the words of an error does; what it takes back, of what this engine asks for."""
        told = {what for what, words in _UNDO.items() if words in fix}
        assert told and told <= self.asks, f"the fix takes back {told or 'nothing'}, asked for is {self.asks}: {fix}"
        self.take_back(told)
        return ", ".join(sorted(told))

    def take_back(self, what: Iterable[str]) -> None:
        """Ask no writer for this any more."""
        for one in sorted(what):
            FEATURES[one][1](DeltaTable(str(self.path)))
            self.asks.discard(one)

    def age(self, state: Path) -> None:
        """Files of the table, and those that wait in the pipeline's state, were written long ago, as far as time stamps
        say."""
        then = time.time_ns() - _LONG_AGO
        there = [self.path / name for name in files_at(self.path)]
        waiting = [path for path in state.rglob("*.parquet") if path.stat().st_nlink == 1]
        for number, path in enumerate([*there, *waiting]):
            if path.exists():
                os.utime(path, ns=(then + number, then + number))  # files are told apart by it

    def seen_by(self, since: int) -> None:
        """A publish or a maintenance that began when ``since`` things were done has gone well: what was replaced
        before that is out of sight."""
        self.stale = {one: at for one, at in self.stale.items() if at > since}
