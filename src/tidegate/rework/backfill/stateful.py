"""Partitions of a query that keeps state: what of it can be rebuilt exactly, and which batches it takes to do so.

Runs have emitted what the watermark of the last published batch closes, made of all records that were not late. Late
ones are in quarantine. So a job that reads the other records in one batch, in which nothing can be late, and then
closes by exactly that watermark, gives the same rows: what is open stays with the runs. That holds for operators
whose result does not depend on how the records fell into batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from tidegate.core.errors import catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.lineage import Increment, Lineage
from tidegate.rework.backfill.span import Interval
from tidegate.runs.preflight.facts import Facts
from tidegate.state.birth import KeptState
from tidegate.state.checkpoint import read_batch_watermark, read_checkpoint
from tidegate.state.manifest import SPAN

_JOINS = {"Inner", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi"}
_BY_ORDER = re.compile(
    r"\b(first|last|first_value|last_value|any_value|collect_list|array_agg|listagg|string_agg)\(", re.IGNORECASE
)
_SESSION = re.compile(r"session_window|named_struct\(start, (?!knownnullable\()")
"""A session's key: its start is the event time itself, the start of a window is computed."""
_ONE_DAY_MS = 86_400_000


def check_kept(facts: Facts, name: str) -> None:
    """Raise UsageError BACKFILL_STATE where no partition of such a query can be rebuilt exactly."""
    state = None if facts.birth is None else facts.birth.state
    why = "no run has noted yet what its state is made of" if state is None else None
    for one in state or ():
        why = why or _why_not(one)
    if why is not None:
        raise catalogue.BACKFILL_STATE(
            where=f"pipeline {name}", label="no partition", why=why, possible="none", name=name
        )


def _why_not(kept: KeptState) -> str | None:
    operator = kept["operator"]
    if operator == "Aggregate":
        if any(_SESSION.search(key) for key in kept["keys"]):
            return "where a session ends depends on which of its records came first"
        found = next((match[1] for value in kept["values"] if (match := _BY_ORDER.search(value))), None)
        return f"`{found}` depends on the order in which records came" if found else None
    if operator == "Join":
        return None if set(kept["values"]) <= _JOINS else f"a join {kept['values'][0]} depends on what came when"
    if operator in ("Distinct", "Deduplicate"):
        return None
    return f"what {operator} keeps depends on which records came in one batch"


def closing_watermark(paths: PipelinePaths, lineage: Lineage, name: str) -> int:
    """The watermark, in milliseconds since 1970, by which the rows in the table were closed: that of the last batch
    that the log has. Raises UsageError BACKFILL_STATE where the checkpoint does not tell it."""
    if not lineage.increments:
        return 0
    last = lineage.increments[-1]
    try:
        if read_checkpoint(paths.checkpoint).query_id != last.query_id:
            raise ValueError("it is of another query")
        return read_batch_watermark(paths.checkpoint, last.last)
    except (FileNotFoundError, ValueError) as error:
        why = f"the checkpoint does not tell the watermark of batch {last.last}: {error}"
        raise catalogue.BACKFILL_STATE(
            where=f"pipeline {name}", label="no partition", why=why, possible="none", name=name
        ) from error


def of_query(lineage: Lineage) -> list[Increment]:
    """The publishes of the query whose state is kept now."""
    last = lineage.increments[-1].query_id if lineage.increments else ""
    return [one for one in lineage.increments if one.query_id == last]


def why_not_exact(lineage: Lineage, rejected: int) -> str | None:
    """Why what runs have read does not give what they have published; None where it does. ``rejected`` records of it
    are in quarantine by a rule."""
    own = of_query(lineage)
    if any(one not in own and not (one.is_left_out or one.is_replaced) for one in lineage.increments):
        return "its table has rows of more than one query, each with a state of its own"
    if lineage.replays:
        return "a replay has put records through that the state has not seen"
    gone = next((one for one in own if one.is_left_out), None)
    if gone is not None:
        return (
            f"the rows of batches {gone.first} to {gone.last} were discarded, wait for a decision or were rolled back, "
            "and the state has their records"
        )
    return "a rule has rejected rows whose records the state has seen" if rejected else None


def pick_by_times(lineage: Lineage, interval: Interval, *, margin: bool) -> list[list[int]] | None:
    """The batches of each publish (:func:`of_query`) with records of the event times that the interval's rows are of
    (without ``margin``: of its days alone); None where these are not known of all, and everything has to be read."""
    own = of_query(lineage)
    known = {one.partitioned.get(SPAN) for one in own}
    rules = {one.partitioned.get("rule") for one in own}
    rules |= {one.partitioned.get("rule") for one in lineage.rebuilt}
    if len(known) != 1 or len(rules) != 1 or (span := next(iter(known))) is None:
        return None
    column, source, before, after = json.loads(span)
    try:
        days = [date.fromisoformat(value) for value in interval.within.get(column, ())]
    except ValueError:
        return None
    if not days:
        return None
    begins = [_milliseconds(day) for day in days]
    ranges = [(at - before * margin, at + _ONE_DAY_MS + after * margin) for at in begins]
    picked = []
    for one in own:
        some = [batch for batch in one.batch_ids if _may_hold(one, batch, source, ranges)]
        picked.append(one.batch_ids if some and one.ends else some)
    return picked


def _may_hold(increment: Increment, batch: int, source: str, ranges: list[tuple[int, int]]) -> bool:
    times: Mapping[str, list[int]] | None = increment.times.get(batch)
    if times is None:
        return True
    if source not in times:
        return False  # no record of it entered the transform
    first, last = times[source]  # in whole milliseconds, rounded down
    return any(first < end and begin <= last for begin, end in ranges)


def _milliseconds(day: date) -> int:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return (begin - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
