"""Find the partitions that a backfill rebuilds: days of the table's partition column, or named partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.core.errors import UsageError
from tidegate.rework import errors
from tidegate.table.log.state import DataFile

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_HAS_TIME = re.compile(r"[T ]\d")
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Interval:
    """Partitions that are rebuilt in one version: rows that have one of the values in ``within`` for each column.

    Without a column it is the whole table (``but_older``: without the older part, see
    :mod:`tidegate.rework.backfill.examine`). ``joined`` are the days that it consists of, each an increment of its own
    for the gate; none where it was not joined.
    """

    within: dict[str, list[str]]
    but_older: bool = False
    joined: tuple[Interval, ...] = ()

    @property
    def days(self) -> tuple[Interval, ...]:
        """The intervals that it was joined of; itself where it was not."""
        return self.joined or (self,)

    @property
    def is_whole_table(self) -> bool:
        """Return whether it is the whole table."""
        return not self.within

    @property
    def replaces_all(self) -> bool:
        """Return whether no row of the table stays."""
        return self.is_whole_table and not self.but_older

    @property
    def label(self) -> str:
        """The name in reports: ``day=2026-01-01``, with ``..`` between the first and the last of consecutive days, and
        commas between other values."""
        if self.is_whole_table:
            return "the table, but for its older part" if self.but_older else "the whole table"
        return " ".join(f"{column}={_shorten(values)}" for column, values in self.within.items())

    def holds(self, partition: dict[str, str | None]) -> bool:
        """Return whether rows of this partition are rebuilt."""
        return all(partition.get(column) in values for column, values in self._values.items())

    @cached_property
    def _values(self) -> dict[str, frozenset[str]]:
        return {column: frozenset(values) for column, values in self.within.items()}


def join_intervals(intervals: Sequence[Interval]) -> Interval:
    """All the intervals as one."""
    if len(intervals) == 1:
        return intervals[0]
    within: dict[str, dict[str, None]] = {}
    for interval in intervals:
        for column, values in interval.within.items():
            within.setdefault(column, {}).update(dict.fromkeys(values))
    days = tuple(day for one in intervals for day in one.days)
    return Interval({column: list(values) for column, values in within.items()}, joined=days)


def _shorten(values: Sequence[str]) -> str:
    """Some values of a column, consecutive days as their first and last one."""
    spans: list[list[str]] = []
    for value in values:
        if spans and _next_day(spans[-1][-1]) == value:
            spans[-1].append(value)
        else:
            spans.append([value])
    return ",".join(one[0] if len(one) == 1 else f"{one[0]}..{one[-1]}" for one in spans)


def _next_day(value: str) -> str | None:
    try:
        return (date.fromisoformat(value) + ONE_DAY).isoformat() if _DAY.fullmatch(value) else None
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Wanted:
    """The arguments as given: ``start`` and ``end`` both dates or both time stamps, or partitions ``k=v``."""

    start: str | None = None
    end: str | None = None
    partitions: Sequence[str] = ()
    zone: str | None = None


def find_span(
    wanted: Wanted, name: str, *, schema_json: str, partition_by: Sequence[str], files: Sequence[DataFile]
) -> list[Interval]:
    """Find the requested partitions of pipeline ``name``, each day as one interval. ``files`` are the table's.

    Dates include the last one; time stamps are half-open and must be the beginnings of days, in UTC or ``zone``. Raises
    UsageError BACKFILL_ARGUMENTS or BACKFILL_ONLY_WHOLE.
    """
    _parse_zone(wanted.zone)  # a misspelt zone is refused also where it is not needed
    if not partition_by:
        raise _unpartitioned(name)
    if wanted.partitions:
        if wanted.start is not None or wanted.end is not None:
            raise _unusable("--partition was given as well as --from or --to")
        return [_named(wanted.partitions, partition_by)]
    if wanted.start is None or wanted.end is None:
        raise _unusable("--from and --to belong together; without them --partition is needed")
    first, last = _days(wanted.start, wanted.end, wanted.zone)
    column = _day_column(schema_json, partition_by, files)
    count = (last - first).days + 1
    return [Interval({column: [(first + ONE_DAY * number).isoformat()]}) for number in range(count)]


def list_days(name: str, schema_json: str, partition_by: Sequence[str], files: Sequence[DataFile]) -> list[str]:
    """The days with rows in the table, in order. Raises UsageError BACKFILL_ONLY_WHOLE or BACKFILL_ARGUMENTS where it
    is not partitioned by days."""
    if not partition_by:
        raise _unpartitioned(name)
    column = _day_column(schema_json, partition_by, files)
    return sorted({day for file in files if (day := file.partition.get(column)) is not None})


def check_known(wanted: Interval, partitions: Sequence[dict[str, str | None]]) -> None:
    """Raise UsageError BACKFILL_NO_SUCH_PARTITION where none of ``partitions``, which the table has or had, matches."""
    if any(wanted.holds(partition) for partition in partitions):
        return
    column = next(iter(wanted.within))
    known = sorted({str(partition.get(column)) for partition in partitions})
    raise errors.BACKFILL_NO_SUCH_PARTITION(
        wanted=wanted.label, column=column, known=f"{known[0]} to {known[-1]}" if known else "none"
    )


def _unpartitioned(name: str) -> UsageError:
    why = "it has no partitions (`table: {partition_by: [...]}` and `tidegate repair NAME --rebuild` make some)"
    return errors.BACKFILL_ONLY_WHOLE(where=f"pipeline {name}", why=why, way=f"refresh {name}")


def _unusable(fault: str) -> UsageError:
    return errors.BACKFILL_ARGUMENTS(fault=fault)


def _days(start: str, end: str, zone: str | None) -> tuple[date, date]:
    """The first and the last day of a range of dates, or of time stamps."""
    if _DAY.fullmatch(start) and _DAY.fullmatch(end):
        first, last = _parse_day(start), _parse_day(end)
        if last < first:
            raise _unusable(f"it ends at {end}, which is not after its start, {start}")
        return first, last
    where = _parse_zone(zone)
    begin, until = _parse_time(start, where), _parse_time(end, where)
    if until <= begin:
        raise _unusable(f"it ends at {end}, which is not after its start, {start}")
    first, behind = begin.date(), until.date()
    if any(one.time() != time.min for one in (begin, until)):
        last = behind if until.time() != time.min else behind - ONE_DAY
        raise _unusable(
            f"{start} to {end} does not begin and end with whole days in {zone or 'UTC'}, but the table's partitions "
            f"are whole days: `--from {first} --to {last}` has them all"
        )
    return first, behind - ONE_DAY


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise _unusable(f"{text!r} is neither a day nor a time stamp") from error


def _parse_time(text: str, zone: tzinfo) -> datetime:
    if not (_DAY.fullmatch(text) or _HAS_TIME.search(text)):  # 20260131 would be the beginning of that day
        raise _unusable(f"{text!r} is neither a day nor a time stamp")
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise _unusable(f"{text!r} is neither a day nor a time stamp") from error
    return at.replace(tzinfo=zone) if at.tzinfo is None else at.astimezone(zone)


def _parse_zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _unusable(f"{name!r} is not a time zone") from error


def _day_column(schema_json: str, partition_by: Sequence[str], files: Sequence[DataFile]) -> str:
    """The partition column whose values are days: of type DATE, or a string column with only dates."""
    types = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
    found = [column for column in partition_by if types.get(column) == "date"]
    if not found:
        found = [column for column in partition_by if types.get(column) == "string" and _holds_days(column, files)]
    if len(found) != 1:
        columns = ", ".join(f"{column} {types.get(column)}" for column in partition_by)
        example = f"{partition_by[0]}={next((file.partition.get(partition_by[0]) for file in files), 'VALUE')}"
        raise _unusable(
            f"the table is partitioned by {columns}, and none of these columns, or more than one, holds days: name the "
            f"partitions, such as `--partition {example}`"
        )
    return found[0]


def _holds_days(column: str, files: Sequence[DataFile]) -> bool:
    values = {file.partition.get(column) for file in files}
    return bool(values) and all(value is not None and _DAY.fullmatch(value) for value in values)


def _named(partitions: Sequence[str], partition_by: Sequence[str]) -> Interval:
    """Parse ``k=v`` arguments; several values of one column are alternatives."""
    spelled = {column.lower(): column for column in partition_by}
    within: dict[str, list[str]] = {}
    for one in partitions:
        column, equals, value = one.partition("=")
        if not equals:
            raise _unusable(f"--partition {one} has no value: write --partition {partition_by[0]}=VALUE")
        if column.lower() not in spelled:
            raise _unusable(
                f"{one!r} is not a partition of the table, which is partitioned by {', '.join(partition_by)}"
            )
        within.setdefault(spelled[column.lower()], []).append(value)
    return Interval(within)
