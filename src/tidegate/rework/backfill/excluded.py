"""Find the quarantined records of a rebuild, which are not read again.

They stay in quarantine, where a replay finds them. A record is identified by its position and text
(:mod:`tidegate.spark.ingest.read`). The job must meet as many as were counted, so a changed text is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.lineage import Lineage
from tidegate.sources.files.ledger import shown_path
from tidegate.state.topics import OffsetRanges, TopicPartition
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.origins import FOREIGN, read_origins
from tidegate.table.quarantined import QuarantineRow

_RECORDS_AT_ONCE = 4096
_COLUMNS = ["source", "position", "raw", "reason"]


@dataclass
class Excluded:
    """How many of the records that are read again are in quarantine, by source; ``unplaced``: rows of these runs in
    quarantine whose records are unknown."""

    records: dict[str, int] = field(default_factory=dict)
    unplaced: int = 0
    rejected: int = 0
    """How many of these are rows that a rule rejected: other rows of the same record may be in the table."""

    @property
    def total(self) -> int:
        """The number of excluded records."""
        return sum(self.records.values())


def find_excluded(quarantine: Path, choice: Choice, target: Path | None = None) -> Excluded:
    """Count the quarantined records of ``choice``. With ``target``, list them durably in that new parquet file (source,
    position, digest). Holds some thousands of records at a time."""
    found = Excluded()
    schema = pa.schema([(name, pa.string()) for name in ("source", "position", "digest")])
    writer = None
    try:
        for keys in _find(quarantine, choice, found):
            if target is not None and keys:
                if writer is None:
                    storage.make_folder(target.parent)
                    writer = pq.ParquetWriter(storage.address(target), schema)
                writer.write_table(pa.Table.from_pylist(keys, schema))
    finally:
        if writer is not None:
            writer.close()
    if writer is not None and target is not None:
        storage.sync_file(target)
    return found


def quarantined_before(quarantine: Path, choice: Choice) -> tuple[list[DataFile], int]:
    """Return the quarantine files whose records are all read again, which a rebuild of the whole table removes, and the
    number of rows in files whose records are read again in part, or of which this is unknown."""
    batches = choice.batches
    files = list_data_files(quarantine)
    origins = read_origins(quarantine, [file.path for file in files])
    whole, mixed = [], 0
    for file in files:
        of = origins.get(file.path, frozenset())
        if of and of <= batches:
            whole.append(file)
        elif not of or of & batches:
            mixed += file.rows
    return whole, mixed


def find_missing_versions(quarantine: Path, lineage: Lineage) -> list[int]:
    """The versions of quarantine whose commits are gone, where they are needed to know which records are in some files:
    the name of a file that a side job wrote does not contain its batch."""
    state = read_table_state(quarantine)
    gone = [] if state is None else sorted(set(range(state.version + 1)) - set(list_versions(quarantine)))
    if not gone:
        return []
    queries = {one.query_id[:8] for one in lineage.increments} | {FOREIGN[0]}
    paths = [file.path for file in list_data_files(quarantine)]
    origins = read_origins(quarantine, paths)
    is_known = all(path in origins and {query for query, _ in origins[path]} <= queries for path in paths)
    return [] if is_known else gone


def _find(quarantine: Path, choice: Choice, found: Excluded) -> Iterator[list[dict[str, str]]]:
    links: dict[tuple[str, str], list[str]] = {}
    for source, rows in choice.files.items():
        for row in rows:
            links.setdefault((source, shown_path(row.path)), []).append(row.link.rsplit("/", 1)[-1])
    batches = choice.batches
    files = list_data_files(quarantine)
    origins = read_origins(quarantine, [file.path for file in files])
    for file in files:
        is_ours = not batches.isdisjoint(origins.get(file.path, ()))
        with pq.ParquetFile(storage.open_input(quarantine / file.path)) as parquet:
            for piece in parquet.iter_batches(_RECORDS_AT_ONCE, columns=_COLUMNS, use_threads=False):
                keys: list[dict[str, str]] = []
                for record in piece.to_pylist():
                    places = _places(record, links, choice.ranges)
                    if places is None and choice.may_hold is not None:
                        found.unplaced += choice.may_hold(record["raw"])
                    elif places is None:
                        found.unplaced += is_ours
                    elif places:
                        found.rejected += record["reason"] not in ("malformed", "late")
                        name = str(record["source"])
                        found.records[name] = found.records.get(name, 0) + 1
                        keys += [{"source": name, "position": one, "digest": digest} for one, digest in places]
                yield keys


def _places(
    record: QuarantineRow,
    links: Mapping[tuple[str, str], Sequence[str]],
    ranges: Mapping[str, Sequence[OffsetRanges]],
) -> list[tuple[str, str]] | None:
    """Return each (position, digest) at which a job would read the record; [] where it does not read it, None where the
    record is unknown."""
    source, position = record["source"], record["position"]
    try:
        at = json.loads(position or "")
    except ValueError:
        return None
    if source is None or not isinstance(at, dict):
        return None
    if "offset" in at:
        partition = TopicPartition(at["topic"], at["partition"])
        is_read = any(
            partition in one and one[partition].begin <= at["offset"] < one[partition].end
            for one in ranges.get(source, ())
        )
        text = f'{{"topic":"{partition.topic}","partition":{partition.partition},"offset":{at["offset"]}}}'
        return [(text, "")] if is_read else []
    digest = hashlib.sha256((record["raw"] or "").encode("utf-8", "surrogatepass")).hexdigest()
    return [(name, digest) for name in links.get((source, str(at.get("file"))), ())]
