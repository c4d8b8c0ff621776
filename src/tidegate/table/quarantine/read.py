"""Quarantined records without Spark or pandas: read, counted, and written where there are few.

The id of a record is a digest of its content. It does not change while the record is in quarantine, even if its file is
rewritten because other records left. Equal records of the same time differ only by a number; it does not matter which
of them leaves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.core.outputs import QuarantineCount, QuarantinedRecord
from tidegate.table import errors
from tidegate.table.log.state import list_data_files
from tidegate.table.quarantine.filters import WITHOUT_RULE, QuarantineFilter
from tidegate.table.quarantined import TEXT_COLUMNS, TIME_COLUMN, QuarantineRow

TIME = pa.timestamp("us", tz="UTC")
_OF_ID = ("run_id", "source", "position", "raw", "reason", TIME_COLUMN)
_RECORDS_AT_ONCE = 256
_BUFFER_BYTES = 1 << 20
_ID_BYTES = 10
_NUMBER = "_number"
_HELD = "held"
_EXAMPLE_AT_MOST = 200
"""Characters of a record that are shown as an example."""
_DETAILS_AT_ONCE = 1 << 14
_FOUND_BY = ["run_id", "source", "reason", "detail", TIME_COLUMN]
_EXISTS = "it is there already, and an export overwrites nothing"


@dataclass(frozen=True)
class Found:
    """A record: ``file`` as in the table's log, and its ``number`` in it, from 0."""

    file: str
    number: int
    id: str
    row: QuarantineRow


def _make_tests(wanted: QuarantineFilter) -> list[pc.Expression]:
    """The conditions of a filter as pyarrow expressions."""
    tests = [pc.field(name) == value for name in ("run_id", "reason") if (value := getattr(wanted, name))]
    if wanted.rule:
        # The detail of a rejected row is "breaks a, b"; that of a malformed record may look the same.
        listed = pc.match_substring_regex(pc.field("detail"), rf"^breaks (.*, )?{re.escape(wanted.rule)}(, |$)")
        is_rejected = ~pc.field("reason").isin(list(WITHOUT_RULE))
        tests.append((pc.field("reason") == wanted.rule) | (is_rejected & listed))
    for one in wanted.where:
        column = pc.field(one.column)
        tests.append(pc.match_substring(column, one.value) if one.contains else column == one.value)
    return tests


class Ids:
    """Gives records their ids in the order of the table; it must get all of several equal records."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._more: dict[bytes, int] = {}

    def of(self, row: QuarantineRow) -> str:
        """The id of the next record."""
        values = [value.isoformat() if isinstance(value, datetime) else value for value in map(row.get, _OF_ID)]
        digest = hashlib.sha256(json.dumps(values).encode()).digest()[:_ID_BYTES]
        if digest not in self._seen:
            self._seen.add(digest)
            return digest.hex()
        self._more[digest] = self._more.get(digest, 0) + 1
        return f"{digest.hex()}-{self._more[digest]}"


def walk_quarantine(
    table_path: Path, wanted: QuarantineFilter | None = None, times: Collection[datetime] | None = None
) -> Iterator[Found]:
    """The wanted records, file by file; only those of ``times``, if given. Some hundreds of records are in memory at a
    time, and ten bytes of each earlier one."""
    tests, ids = _make_tests(wanted or QuarantineFilter()), Ids()
    if times is not None:
        tests = [pc.field(TIME_COLUMN).isin(pa.array(times, TIME)), *tests]
    for file in list_data_files(table_path):
        for found in _scan(table_path / file.path, None, tests):
            for row in found.to_pylist():
                number = row.pop(_NUMBER)
                yield Found(file.path, number, ids.of(row), row)


def _scan(file: Path, columns: list[str] | None, tests: Sequence[pc.Expression]) -> Iterator[pa.Table]:
    """The wanted records of a file piece by piece, each with its number in the file."""
    start = 0
    for piece in read_pieces(file, columns):
        numbers = pa.array(range(start, start + len(piece)), pa.int64())
        start += len(piece)
        found = as_table(piece).append_column(_NUMBER, numbers)
        for test in tests:
            found = found.filter(test)
        if found.num_rows:
            yield found


def as_table(piece: pa.RecordBatch) -> pa.Table:
    """The records of a piece, with times converted to one unit: Spark writes another unit than we do."""
    table = pa.Table.from_batches([piece])
    place = table.schema.get_field_index(TIME_COLUMN)
    return table if place < 0 else table.set_column(place, TIME_COLUMN, table[TIME_COLUMN].cast(TIME))


def read_pieces(file: Path, columns: list[str] | None, at_once: int = _RECORDS_AT_ONCE) -> Iterator[pa.RecordBatch]:
    """Read the rows of a parquet file, ``at_once`` at a time."""
    with pq.ParquetFile(storage.open_input(file), buffer_size=_BUFFER_BYTES) as parquet:
        yield from parquet.iter_batches(at_once, columns=columns, use_threads=False)


def known_reasons(table_path: Path) -> tuple[set[str], set[str]]:
    """(the reasons, the rules) that the records of the table have."""
    found = [pair for pair, _ in count_details([table_path / file.path for file in list_data_files(table_path)])]
    return {reason for reason, _ in found}, {rule for pair in found for rule in _rules_of(*pair)}


def _rules_of(reason: str, detail: str) -> list[str]:
    """The rules that a rejected row breaks; [] for a record that is malformed or late."""
    if reason in WITHOUT_RULE or not detail.startswith("breaks "):
        return []
    return detail.removeprefix("breaks ").split(", ")


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
    rows = counted.take(pc.sort_indices(counted, sort_keys=order)).to_pylist()
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
        for batch in read_pieces(file, ["reason", "detail"], _DETAILS_AT_ONCE):
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
    found_in = {name for name, _ in places}
    for held in (path for path in set(staged) if str(path) in found_in):
        rows |= {place: to_record(None, row, held=True) for place, row in _take(held, places)}
    return [rows[place] for place in places]


def _with_ids(
    table_path: Path, wanted: QuarantineFilter | None, places: set[tuple[str, int]], times: set[datetime]
) -> Iterator[tuple[tuple[str, int], QuarantinedRecord]]:
    """The records at ``places``, which have these ``times``: an id depends on equal records, whose times are equal."""
    at_once = QuarantineFilter() if wanted is None else wanted
    for found in walk_quarantine(table_path, at_once, times):
        place = (str(table_path / found.file), found.number)
        if place in places:
            yield place, to_record(found.id, found.row)


def to_record(id_: str | None, row: QuarantineRow, *, held: bool = False) -> QuarantinedRecord:
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
    tests, columns = _make_tests(wanted), sorted(wanted.columns)
    files = [(table_path / file.path, False) for file in list_data_files(table_path)] + [(one, True) for one in staged]
    for path, held in files:
        for found in _scan(path, columns, tests):
            # Files differ in which columns are nullable, so create the fields again.
            table = pa.table({name: found[name] for name in [*_FOUND_BY, _NUMBER]})
            yield table.append_column(_HELD, pa.array([held] * len(found), pa.bool_())), str(path)


def _take(file: Path, places: Sequence[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], QuarantineRow]]:
    """The records of ``file`` at ``places`` (file, number)."""
    numbers = sorted(number for one, number in places if one == str(file))
    start = 0
    for batch in read_pieces(file, None):
        held = [number for number in numbers if start <= number < start + len(batch)]
        if held:
            rows = batch.take([number - start for number in held]).to_pylist()
            yield from (((str(file), number), row) for number, row in zip(held, rows, strict=True))
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


def write_quarantine_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    """Write the rows to the new parquet file ``path``, on disk when this returns; how many there were.

    Each row has the columns of the quarantine schema (missing ones are null, others are refused with KeyError);
    ``quarantined_at`` is an aware datetime, ``raw`` may be bytes: what is not UTF-8 in it is kept as ``\\xNN``.
    """
    columns: dict[str, list[object]] = {name: [] for name in (*TEXT_COLUMNS, TIME_COLUMN)}
    count = 0
    for row in rows:
        unknown = row.keys() - columns.keys()
        if unknown:
            raise KeyError(f"the quarantine table has no column {sorted(unknown)}")
        for name in TEXT_COLUMNS:
            columns[name].append(_to_text(row.get(name)))
        columns[TIME_COLUMN].append(row.get(TIME_COLUMN))
        count += 1
    schema = pa.schema([*((name, pa.string()) for name in TEXT_COLUMNS), (TIME_COLUMN, pa.timestamp("us", tz="UTC"))])
    table = pa.table(columns, schema=schema)
    with storage.create(path) as handle:
        pq.write_table(table, handle, compression="snappy")
    return count


def _to_text(value: object) -> str | None:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")  # lone surrogates
    return None if value is None else str(value)


def export_quarantine(table_path: Path, wanted: QuarantineFilter, to: Path | None, stdout: TextIO) -> int:
    """Write the records to the new file ``to``, or to ``stdout``; returns their number.

    Each line is a JSON object with the keys of ``quarantine show --json``. Some hundreds of records are in memory at a
    time. The file gets its name when it is complete. Raises UsageError EXPORT_PLACE.
    """
    if to is None:
        return _write_lines(table_path, wanted, stdout)
    if os.path.lexists(to):
        raise errors.EXPORT_PLACE(path=to, why=_EXISTS)
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    with _place_is_named(to):
        stream = part.open("x", encoding="utf-8")
    try:
        with stream:
            count = _write_lines(table_path, wanted, stream)
            stream.flush()
            os.fsync(stream.fileno())
        with _place_is_named(to):
            os.link(part, to)
    finally:
        part.unlink(missing_ok=True)
    return count


@contextlib.contextmanager
def _place_is_named(to: Path) -> Iterator[None]:
    """Turn errors about the export's file, which was named on the command line, into UsageError."""
    try:
        yield
    except FileExistsError as error:
        raise errors.EXPORT_PLACE(path=to, why=_EXISTS) from error
    except OSError as error:
        if storage.is_disk_full(error):
            raise
        raise errors.EXPORT_PLACE(path=to, why=error.strerror or error) from error


def _write_lines(table_path: Path, wanted: QuarantineFilter, stream: TextIO) -> int:

    count = 0
    for found in walk_quarantine(table_path, wanted):
        count += 1
        stream.write(json.dumps(to_record(found.id, found.row), ensure_ascii=False) + "\n")
    return count
