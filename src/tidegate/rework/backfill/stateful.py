"""Which records of a query with state give the published rows once more.

Runs of a stateful query have emitted the rows that the watermark of the last published batch closes, from all records
that were not late; late records are in quarantine. So a job that reads the other records in one batch, where none can
be late, and closes by exactly that watermark, gives the same rows; open windows stay with the runs. This holds for
operators whose result does not depend on how records are divided into batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date

from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.lineage import Increment, Lineage
from tidegate.rework.backfill.span import Interval
from tidegate.runs.preflight.facts import Facts
from tidegate.spark import errors as spark_errors
from tidegate.state.birth import KeptState
from tidegate.state.checkpoint import read_batch_watermark, read_checkpoint
from tidegate.state.manifest import SPAN

_JOINS = {"Inner", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi"}
_BY_ORDER = re.compile(
    r"\b(first|last|first_value|last_value|any_value|collect_list|array_agg|listagg|string_agg)\(", re.IGNORECASE
)
_SESSION = re.compile(r"session_window|named_struct\(start, (?!knownnullable\()")
"""The key of a session, whose start is an event time; the start of a window is computed."""
_ONE_DAY_MS = 86_400_000


def check_kept(facts: Facts, name: str) -> None:
    """Raise UsageError BACKFILL_STATE where no partition of such a query can be rebuilt exactly."""
    state = None if facts.birth is None else facts.birth.state
    why = "no run has recorded yet what its state consists of" if state is None else None
    for one in state or ():
        why = why or _why_not(one)
    if why is not None:
        raise spark_errors.BACKFILL_STATE(
            where=f"pipeline {name}", label="its partitions", why=why, possible="none", name=name
        )


def _why_not(kept: KeptState) -> str | None:
    operator = kept["operator"]
    if operator == "Aggregate":
        if any(_SESSION.search(key) for key in kept["keys"]):
            return "the end of a session depends on the order of its records"
        found = next((match[1] for value in kept["values"] if (match := _BY_ORDER.search(value))), None)
        return f"`{found}` depends on the order of records" if found else None
    if operator == "Join":
        return None if set(kept["values"]) <= _JOINS else f"a join {kept['values'][0]} depends on the order of records"
    if operator in ("Distinct", "Deduplicate"):
        return None
    return f"the state of {operator} depends on which records are in the same batch"


def closing_watermark(paths: PipelinePaths, lineage: Lineage, name: str) -> int:
    """The watermark, in milliseconds since 1970, that closed the rows in the table: that of the last batch in the log.
    Raises UsageError BACKFILL_STATE where the checkpoint does not contain it."""
    if not lineage.increments:
        return 0
    last = lineage.increments[-1]
    try:
        if read_checkpoint(paths.checkpoint).query_id != last.query_id:
            raise ValueError("it is of another query")
        return read_batch_watermark(paths.checkpoint, last.last)
    except (FileNotFoundError, ValueError) as error:
        why = f"the checkpoint does not contain the watermark of batch {last.last}: {error}"
        raise spark_errors.BACKFILL_STATE(
            where=f"pipeline {name}", label="its partitions", why=why, possible="none", name=name
        ) from error


def of_query(lineage: Lineage) -> list[Increment]:
    """The publishes of the current query."""
    last = lineage.increments[-1].query_id if lineage.increments else ""
    return [one for one in lineage.increments if one.query_id == last]


def why_not_exact(lineage: Lineage, rejected: int) -> str | None:
    """Explain why reading the runs' records again would not give the published rows; None where it would.

    ``rejected``: how many of the records are in quarantine by a rule."""
    own = of_query(lineage)
    if any(one not in own and not (one.is_excluded or one.is_replaced) for one in lineage.increments):
        return "its table has rows of more than one query, each with its own state"
    if lineage.replays:
        return "a replay has added records that the state does not contain"
    gone = next((one for one in own if one.is_excluded), None)
    if gone is not None:
        return (
            f"the rows of batches {gone.first} to {gone.last} were discarded, wait for a decision or were rolled back, "
            "and the state contains their records"
        )
    return "a rule has rejected rows whose records the state contains" if rejected else None


def pick_by_times(lineage: Lineage, interval: Interval, *, margin: bool) -> list[list[int]] | None:
    """Choose the batches of each publish (:func:`of_query`) by the event times that the interval needs.

    Without ``margin`` only the interval's own days count. None where event times are not known for all batches, so
    everything has to be read."""
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
    begins = [(day - date(1970, 1, 1)).days * _ONE_DAY_MS for day in days]
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
