"""What another job has written into an adopted table, taken out again, so that each record is there once.

Data files that no log names and a new ``_spark_metadata`` become a backup. What the old query has committed to the
Delta log leaves the table in a version of its own. What these rows were made of the pipeline reads itself, or has read;
only files that are gone from a source before it read them are lost to it, and they are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.runs.preflight.old_job import SINK_LOG, OldJob, list_later_batches, read_adopted, write_adopted
from tidegate.runs.recovery.hand_over import finish_work
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.take_over import TakenNames
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.lease import Lease
from tidegate.state.spark_logs import newest_batch, read_log_entries
from tidegate.table.footer import read_footer
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.rework import Rework, plan_rework

KIND = "repair"
_NAMED_AT_MOST = 20
_PLANS_AT_MOST = 3


@dataclass(frozen=True)
class _Committed:
    """What the old query has committed since: ``there`` are the files of it that are in the table now, ``elsewhere``
    the names of those that are not, whose rows a compaction may have put into other files."""

    there: Sequence[DataFile]
    elsewhere: Sequence[str]


def describe_undoing(paths: PipelinePaths, found: OldJob) -> list[str]:
    """What is done about it, a sentence for each step."""
    sentences = []
    if found.has_sink_log:
        sentences.append(f"back up {SINK_LOG}, so that Spark lists the table's folder again")
    if found.files:
        rows = [read_footer(paths.table / name) for name in found.files]
        torn = sum(one is None for one in rows)
        sentences.append(
            f"back up {count_of(len(found.files), 'data file')} with "
            f"{count_of(sum(one.rows for one in rows if one is not None), 'row')}"
            f"{f' ({torn:,} cannot be read)' if torn else ''}: {list_first(found.files, _NAMED_AT_MOST, ', ')}"
        )
    if found.has_sink_log or found.files:
        sentences[-1] += f"; backups are kept in {paths.set_aside}"
    for query, (counts, last) in found.batches.items():
        committed = _list_committed(paths, {query: counts})
        rows_there = sum(file.rows for file in committed.there)
        sentences.append(
            f"take {count_of(len(committed.there), 'file')} with {count_of(rows_there, 'row')} out of the table, which "
            f"query {query} has committed after batch {counts}, up to batch {last}; they stay for older versions"
        )
        if committed.elsewhere:
            sentences.append(
                f"leave {count_of(len(committed.elsewhere), 'file')} of that query as found: a later version has "
                "replaced it, by a compaction or otherwise, and its rows may be in other files of the table now: "
                f"compare versions, then roll back or delete them: {list_first(committed.elsewhere, 5, ', ')}"
            )
    return sentences


def describe_reading(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> list[str]:
    """Which records of the old job the pipeline reads itself, and which it cannot."""
    sentences = ["reads itself what those rows were made of, as far as it has not read it yet"]
    if lost := _list_gone(project, spec, paths):
        are = "is" if len(lost) == 1 else "are"
        sentences.append(
            f"does not find {count_of(len(lost), 'file')} that the old job has read and the pipeline has not, and that "
            f"{are} gone: {list_first(lost, _NAMED_AT_MOST, ', ')}; their rows are only in what is backed up"
        )
    return sentences


def undo_old_job(paths: PipelinePaths, found: OldJob, aside: Path, lease: Lease) -> None:
    """Do it. Killed anywhere, what is left is found again."""
    names = [*found.files, *([SINK_LOG] if found.has_sink_log else ())]
    for name in names:
        lease.check()
        path, checksum = paths.table / name, f".{Path(name).name}.crc"  # Hadoop's, which Spark puts next to a file
        if storage.exists(path.with_name(checksum)):
            storage.move(path.with_name(checksum), (aside / "table" / name).with_name(checksum))
        storage.move(path, aside / "table" / name)
        storage.remove_empty_folder(path.parent)
    for _ in range(_PLANS_AT_MOST if found.batches else 0):
        if not _take_out(paths, found, lease):
            break
    note = read_adopted(paths)
    if note is not None and found.batches:
        lease.check()
        write_adopted(paths, replace(note, batches={**note.batches, **_newest(found)}))


def _newest(found: OldJob) -> dict[str, int]:
    return {query: last for query, (_, last) in found.batches.items()}


def _take_out(paths: PipelinePaths, found: OldJob, lease: Lease) -> bool:
    """Publish the version without those files; whether it has to be planned again, as the table has changed."""
    committed = _list_committed(paths, {query: counts for query, (counts, _) in found.batches.items()})
    table = read_table_state(paths.table)
    if not committed.there or table is None:
        return False
    run_id = new_run_id(KIND)
    intent = plan_rework(
        Rework(paths.name, KIND, run_id),
        target="table",
        table=table,
        table_files=list_data_files(paths.table),
        token="",
        remove=committed.there,
        outcome="taken_back",  # so that no sink is fed
    )
    lease.check()
    return finish_work(paths, write_intent(paths, replace(intent, writer=lease.number)), lease).outdated


def _list_committed(paths: PipelinePaths, batches: dict[str, int]) -> _Committed:
    later = list_later_batches(paths.table, batches)
    names = {
        name
        for query, versions in later.items()
        for _, batch, added in versions
        if batch > batches[query]
        for name in added
    }
    there = [file for file in list_data_files(paths.table) if file.path in names]
    return _Committed(there, sorted(names - {file.path for file in there}))


def _list_gone(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> list[str]:
    """The files that the old job's checkpoint lists, that are gone, and that the pipeline has not taken."""
    note = read_adopted(paths)
    if note is None or note.checkpoint is None or not spec.file_streams:
        return []
    gone: list[str] = []
    for folder in storage.list_folders(Path(note.checkpoint) / "sources"):
        try:
            entries = list(read_log_entries(folder, folder.name, newest_batch(folder)))
        except ValueError:
            continue  # a torn log of a job that is over: what is in it is not needed
        gone += [entry.path for entry in entries if not storage.exists(Path(entry.path))]
    if not gone:
        return []
    names = {source: TakenNames(project, one) for source, one in spec.file_streams.items()}
    with open_ledger(paths, read_only=True) as ledger:
        found = [(source, one.of_ledger(path)) for path in gone for source, one in names.items() if one.knows(path)]
        return sorted({path for source, path in found if path not in ledger.known(source, [path])})
