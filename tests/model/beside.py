"""What scenes of work beside the runs share."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.model import fake_spark
from tests.model.processes import Process, Stop
from tests.model.world import NAME, World
from tidegate.core.errors import TidegateError
from tidegate.rework.backfill.command import refresh_table
from tidegate.rework.backfill.held import decide_backfill
from tidegate.runs.gate import increment
from tidegate.runs.reports.verdicts import Answer
from tidegate.state.birth import KeptState

D1, D2 = "2026-01-01", "2026-01-02"
KEPT: KeptState = {"operator": "aggregate", "keys": ["id"], "values": ["count"]}


def done(process: Process) -> Any:
    assert process.error is None, repr(process.error)
    return process.value


def refuse_all(patch: pytest.MonkeyPatch) -> None:
    judge = increment._judge
    patch.setattr(increment, "_judge", lambda *a: [replace(one, success=False) for one in judge(*a)])


def code_of(process: Process) -> str | None:
    """The code of the error with which the process ended; None for a process that went well."""
    assert process.error is None or isinstance(process.error, TidegateError), repr(process.error)
    return None if process.error is None else process.error.code


def compact_from_outside(table: Path) -> None:
    """What OPTIMIZE of another program does: the files that the log has of each day become one, in one version."""
    files: dict[str, dict[str, Any]] = {}
    newest = max(int(path.stem) for path in (table / "_delta_log").glob("*[0-9].json"))
    for number in range(newest + 1):
        for line in (table / "_delta_log" / f"{number:020d}.json").read_text().split("\n"):
            action = json.loads(line) if line else {}
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1}}]
    for day in sorted({add["partitionValues"]["day"] for add in files.values()}):
        mine = [add for add in files.values() if add["partitionValues"]["day"] == day]
        rows = pa.concat_tables([pq.read_table(table / unquote(add["path"]), partitioning=None) for add in mine])
        name = f"day={day}/part-00000-{uuid.uuid4()}.c000.snappy.parquet"
        pq.write_table(rows, table / name)
        actions += [
            {"remove": {"path": add["path"], "dataChange": False, "deletionTimestamp": 1, "size": add["size"]}}
            for add in mine
        ]
        add = {
            "path": name,
            "partitionValues": {"day": day},
            "dataChange": False,
            "size": (table / name).stat().st_size,
            "modificationTime": 1,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
        actions.append({"add": add})
    text = "\n".join(json.dumps(one) for one in actions)
    (table / "_delta_log" / f"{newest + 1:020d}.json").write_text(text)


def refresh(world: World, run_id: str = "fresh", stop: Stop | None = None, *, keeps_older: bool = False) -> Process:
    def work() -> Any:
        return refresh_table(world.project, NAME, run_id, keeps_older=keeps_older, submit=world._submit)

    return world._start(f"backfill {run_id}", work, stop)


def decide(world: World, decision: Any, run_id: str = "fresh", stop: Stop | None = None) -> Process:
    """Decide on a held backfill or refresh."""

    def work() -> Any:
        return decide_backfill(world.project, NAME, run_id, Answer(decision, "seen"))

    return world._start(f"decide {run_id}", work, stop)


def points_of_finishing(refreshed: Process, *, killed: bool = False, more_than: int = 20) -> list[int]:
    """The storage calls of a refresh from the one on that writes the intent: each kind of call once, without syncs for
    a kill (as :func:`tests.model.processes.stops`). ``more_than`` is a lower bound of the kinds."""
    calls = refreshed.calls
    first = next(number for number, call in enumerate(calls) if call.startswith("link data/state/orders/intents"))
    known = set(calls[:first])
    found = [number for number, call in enumerate(calls) if number >= first and not (call in known or known.add(call))]
    assert len(found) > more_than
    return [number + 1 for number in found if not (killed and calls[number].startswith("fsync "))]


def find_malformed(patch: pytest.MonkeyPatch, *bad: str, good: tuple[str, ...] = ()) -> None:
    """The schema is another by now: these records are malformed, and those are not any more."""
    read = fake_spark._Query._read_files

    def kind(row: dict[str, str]) -> str:
        return "malformed" if row["id"] in bad else "good" if row["id"] in good else row["kind"]

    def read_anew(self: Any, *ranges: Any) -> list[tuple[dict[str, str], str]]:
        return [({**row, "kind": kind(row)}, position) for row, position in read(self, *ranges)]

    patch.setattr(fake_spark._Query, "_read_files", read_anew)


def run_live(world: World) -> None:
    """Two live runs, with more records between them; then all that was offered is there, once."""
    world.check()
    done(world.run(world.new_run_id()))
    world.check_all()
    world.offer(0, ["good", "malformed"])
    done(world.run(world.new_run_id()))
    world.check_all()
    reads = world.reads
    done(world.run(world.new_run_id()))
    assert world.reads == reads
