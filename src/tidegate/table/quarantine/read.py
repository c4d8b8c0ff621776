"""Reading quarantined records: their numbers by run and reason, and the records, without Spark or pandas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core import storage
from tidegate.core.outputs import QuarantineCount, QuarantinedRecord
from tidegate.table.log.state import has_log, list_data_files
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.records import as_table, read_pieces, walk_quarantine
from tidegate.table.quarantine.schema import TIME_COLUMN

_NUMBER = "number"
_HELD = "held"
_EXAMPLE_AT_MOST = 200
"""Characters of a record that are shown as an example."""
_DETAILS_AT_ONCE = 1 << 14
_FOUND_BY = ["run_id", "source", "reason", "detail", TIME_COLUMN]


def list_quarantine(
    table_path: Path, wanted: QuarantineFilter | None = None, staged: Sequence[Path] = ()
) -> list[QuarantineCount]:
    """Counts per run, source, reason and cause, newest first, then the most frequent cause first.

    The cause is the ``detail``, the example the raw text of one of its records. ``staged`` are files of held
    increments, whose records are not in the table yet and are marked as held. [] when nothing was ever quarantined.
    """
    keys = ["run_id", "source", "reason", "detail", _HELD]
    counted = None
    sums = [("records", "sum"), ("first_at", "min"), ("last_at", "max"), ("file", "first"), (_NUMBER, "first")]
    for batch, file in _find(table_path, wanted, staged):
        one = batch.append_column("records", pa.array([1] * len(batch), pa.int64()))
        one = one.append_column("first_at", batch[TIME_COLUMN]).append_column("last_at", batch[TIME_COLUMN])
        one = one.append_column("file", pa.array([file] * len(batch), pa.string()))
        one = one.select([*keys, *(name for name, _ in sums)])
        both = one if counted is None else pa.concat_tables([counted, one])
        grouped = both.group_by(keys, use_threads=False).aggregate(sums)  # "first" needs an order
        counted = grouped.rename_columns([*keys, *(name for name, _ in sums)])
    if counted is None:
        return []
    order = [(key, "descending") for key in ("last_at", "run_id", "reason", "records")]
    rows: list[dict[str, Any]] = counted.take(pc.sort_indices(counted, sort_keys=order)).to_pylist()
    places = [(row.pop("file"), row.pop(_NUMBER)) for row in rows]
    examples: dict[tuple[str, int], str | None] = {}
    for file in dict.fromkeys(file for file, _ in places):
        for place, record in _take(file, places):
            examples[place] = record["raw"] if record["raw"] is None else str(record["raw"])[:_EXAMPLE_AT_MOST]
    return [
        {
            "run_id": row["run_id"],
            "source": row["source"],
            "reason": row["reason"],
            "detail": row["detail"],
            "records": row["records"],
            "first_at": row["first_at"].isoformat(),
            "last_at": row["last_at"].isoformat(),
            "example": examples[place],
            "held": row[_HELD],
        }
        for row, place in zip(rows, places, strict=True)
    ]


def count_details(files: Sequence[Path]) -> list[tuple[tuple[str, str], int]]:
    """((reason, detail), how many records) of the data files ``files``, the most frequent first."""
    found = None
    for file in files:
        for batch in read_pieces(storage.address(file), ["reason", "detail"], _DETAILS_AT_ONCE):
            ones = pa.array([1] * len(batch), pa.int64())
            # Files differ in which columns are nullable, so create the fields again.
            one = pa.table({"reason": batch["reason"], "detail": batch["detail"], "records": ones})
            both = one if found is None else pa.concat_tables([found, one])
            keys = ["reason", "detail"]
            found = both.group_by(keys).aggregate([("records", "sum")]).rename_columns([*keys, "records"])
    rows = [] if found is None else found.to_pylist()
    counts = [((row["reason"] or "", row["detail"] or ""), int(row["records"])) for row in rows]
    return sorted(counts, key=lambda one: (-one[1], one[0]))


def show_quarantine(
    table_path: Path, wanted: QuarantineFilter | None = None, limit: int = 20, staged: Sequence[Path] = ()
) -> list[QuarantinedRecord]:
    """The newest ``limit`` records as JSON values, with ``position`` as a JSON object; [] when there are none.
    ``staged`` is as for :func:`list_quarantine`; records that are not in the table yet have no id.

    Only that many records and a piece of the table are in memory at a time: the newest are found by their times, and
    only these are read completely.
    """
    newest = None
    for batch, file in _find(table_path, wanted, staged):
        one = batch.append_column("file", pa.array([file] * len(batch), pa.string()))
        both = one if newest is None else pa.concat_tables([newest, one])
        order = pc.sort_indices(both, sort_keys=[(TIME_COLUMN, "descending"), ("run_id", "ascending")])
        newest = both.take(order[:limit])
    places = [] if newest is None else [(row["file"], row[_NUMBER]) for row in newest.to_pylist()]
    times = set() if newest is None else set(newest[TIME_COLUMN].to_pylist())
    rows = dict(_with_ids(table_path, wanted, set(places), times))
    for file in {file for file, _ in places} & {storage.address(path) for path in staged}:
        rows |= {place: to_record(None, row, held=True) for place, row in _take(file, places)}
    return [rows[place] for place in places]


def _with_ids(
    table_path: Path, wanted: QuarantineFilter | None, places: set[tuple[str, int]], times: set[datetime]
) -> Iterator[tuple[tuple[str, int], QuarantinedRecord]]:
    """The records at ``places``, which have these ``times``: an id depends on equal records, whose times are equal."""
    at_once = QuarantineFilter() if wanted is None else wanted
    for found in walk_quarantine(table_path, at_once, times):
        place = (storage.address(table_path / found.file), found.number)
        if place in places:
            yield place, to_record(found.id, found.row)


def to_record(id_: str | None, row: Mapping[str, Any], *, held: bool = False) -> QuarantinedRecord:
    """A record as it is printed."""
    return {
        "id": id_,
        "pipeline": row["pipeline"],
        "run_id": row["run_id"],
        "source": row["source"],
        "position": _parse_position(row["position"]),
        "raw": row["raw"],
        "reason": row["reason"],
        "detail": row["detail"],
        "quarantined_at": row["quarantined_at"].isoformat(),
        "held": held,
    }


def _find(table_path: Path, wanted: QuarantineFilter | None, staged: Sequence[Path]) -> Iterator[tuple[pa.Table, str]]:
    """(table, file) piece by piece: a pyarrow table of the wanted records' run_id, source, reason, detail, time, number
    in the file, and whether the file is one of ``staged``."""
    wanted = wanted or QuarantineFilter()
    tests, columns = wanted.tests(), sorted(wanted.columns)
    files = [table_path / file.path for file in list_data_files(table_path)] if has_log(table_path) else []
    for path, held in [
        *((storage.address(one), False) for one in files),
        *((storage.address(one), True) for one in staged),
    ]:
        number = 0
        for batch in read_pieces(path, columns):
            numbers = pa.array(range(number, number + len(batch)), pa.int64())
            number += len(batch)
            found = as_table(batch).append_column(_NUMBER, numbers)
            found = found.append_column(_HELD, pa.array([held] * len(batch), pa.bool_()))
            for test in tests:
                found = found.filter(test)
            if found.num_rows:
                # Files differ in which columns are nullable, so create the fields again.
                yield pa.table({name: found[name] for name in [*_FOUND_BY, _NUMBER, _HELD]}), path


def _take(file: str, places: Sequence[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """The records of ``file`` at ``places`` (file, number)."""
    numbers = sorted(number for one, number in places if one == file)
    start = 0
    for batch in read_pieces(file, None):
        held = [number for number in numbers if start <= number < start + len(batch)]
        if held:
            rows = batch.take([number - start for number in held]).to_pylist()
            yield from (((file, number), row) for number, row in zip(held, rows, strict=True))
        start += len(batch)


def _parse_position(text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def row_to_json(row: Mapping[str, object]) -> dict[str, object]:
    """Convert a row for JSON, see :func:`to_json`."""
    return {name: to_json(value) for name, value in row.items()}


def to_json(value: object) -> object:
    """Convert a value of a row for JSON: times to ISO format, decimals and bytes to text (escaped where not UTF-8)."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value
