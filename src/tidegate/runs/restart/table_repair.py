"""Files that a table's log counts and that are gone, or are not what was published: taken out of the log, on record.

Then all readers agree again, and what the files held can be built again from the sources: a backfill or a refresh goes
by the commits that brought the rows, which stay in the log. What is left of a damaged file is backed up.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.runs.preflight.facts import Facts, query_keeps_state
from tidegate.runs.preflight.table_log import SINK_LOG, OldJob, list_later_batches, read_adopted, write_adopted
from tidegate.runs.recovery.lost_rows import note_lost_rows
from tidegate.runs.recovery.side_jobs import finish_work
from tidegate.runs.reports.report import new_run_id
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.source import TakenNames
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.lease import Lease
from tidegate.state.spark_logs import newest_batch, read_log_entries
from tidegate.table.damage import Damage, examine_table, find_damage
from tidegate.table.footer import read_footer
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import DataFile, has_log, list_data_files, read_table_state
from tidegate.table.publish.intent import Target, write_intent
from tidegate.table.publish.plan import REWORK, Changes, Rework, plan_rework

_PARTITIONS_AT_MOST = 20
"""So many are named in a command; a refresh builds more."""

Damages = Mapping[Path, Sequence[Damage]]


def list_damage(paths: PipelinePaths, *, deep: bool) -> Damages:
    """What is damaged of table and quarantine; ``deep``: every file is read."""
    found: dict[Path, Sequence[Damage]] = {}
    for path in (paths.table, paths.quarantine):
        damages = examine_table(path)[0] if deep and has_log(path) else find_damage(path)
        # A file that no log counts may be of a publish of another program: nothing is taken from under it.
        if damages := [one for one in damages if one.kind != "not_in_log"]:
            found[path] = damages
    return found


def files_of(damages: Sequence[Damage]) -> list[DataFile]:
    """The files that can be taken out of the log."""
    return [one.file for one in damages if one.file is not None]


def describe_taking_out(paths: PipelinePaths, found: Damages) -> list[str]:
    """What the repair does."""
    sentences = []
    for path, damages in found.items():
        files, what = files_of(damages), "the table" if path == paths.table else "quarantine"
        if files:
            size = f"{count_of(len(files), 'file')} ({count_of(sum(file.rows for file in files), 'row')})"
            sentences.append(f"take {size} out of the log of {what}, on record, in one version")
        if left := [one for one in damages if one.kind != "gone"]:
            sentences.append(f"back up {count_of(len(left), 'damaged file')} of {what}, below {paths.set_aside}")
    return sentences


def describe_sinks(paths: PipelinePaths, spec: PipelineSpec, found: Damages) -> list[str]:
    """What the sinks have afterwards: only a version that replaces the rows takes them out there."""
    if not spec.sinks or not files_of(found.get(paths.table, ())):
        return []
    return ["sends the sinks nothing for this: they keep the rows of these files until these are rebuilt"]


def name_rebuilding(paths: PipelinePaths, spec: PipelineSpec, facts: Facts, found: Damages) -> list[str]:
    """What rebuilds the rows of these files, as repair prints it."""
    if not any(map(files_of, found.values())):
        return []
    files = files_of(found.get(paths.table, ()))
    command = rebuilding_command(paths, spec, facts, [one.partition for one in files], paths.quarantine in found)
    if command.builds == "a new table":
        return [f"`{command.text}`: a new table from all records still in the sources"]
    return [
        f"`{command.text}`: builds {command.builds} again from the records that runs have read, as far as the sources "
        "still have them (with --dry-run it says so)"
    ]


class Rebuilding(NamedTuple):
    """A command that rebuilds rows, and what it builds."""

    text: str
    builds: Literal["a new table", "the table", "these partitions"]


def rebuilding_command(
    paths: PipelinePaths,
    spec: PipelineSpec,
    facts: Facts,
    partitions: Sequence[Mapping[str, str | None]],
    of_quarantine: bool,
) -> Rebuilding:
    """The command that rebuilds the rows of lost files, as far as the sources still have their records.

    ``partitions`` are those of the files of the table; ``of_quarantine`` is whether quarantine lost files too. Rows of
    an adopted table, and those of source files that were removed, are not in the sources. Where commits of the log are
    gone, a backfill or a refresh is refused (BACKFILL_LOG_CUT).
    """
    name, keeps_state = spec.name, query_keeps_state(facts, spec)
    if spec.output_mode != "append" and not keeps_state:
        return Rebuilding(f"tidegate repair {name} --rebuild", "a new table")
    if facts.table is not None and len(list_versions(paths.table)) <= facts.table.version:
        return Rebuilding(f"tidegate reset {name} --from-beginning", "a new table")
    named = sorted({(column, value) for one in partitions for column, value in one.items()}, key=str)
    is_part = named and all(value is not None for _, value in named) and len(named) <= _PARTITIONS_AT_MOST
    if not is_part or keeps_state or of_quarantine:
        return Rebuilding(f"tidegate refresh {name}", "the table")
    options = " ".join(f"--partition {shlex.quote(f'{column}={value}')}" for column, value in named)
    return Rebuilding(f"tidegate backfill {name} {options}", "these partitions")


def take_out(paths: PipelinePaths, lease: Lease, found: Damages) -> None:
    """Back up what is left of the files, then take them out of the logs. Killed in between, they are found again."""
    aside = paths.set_aside / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    for path, damages in found.items():
        files, is_table = files_of(damages), path == paths.table
        for one in damages:
            if not one.kind.startswith("commit"):
                lease.check()
                with contextlib.suppress(FileNotFoundError):
                    storage.move(path / one.path, aside / ("table" if is_table else "quarantine") / one.path)
        state = read_table_state(path)
        if not files or state is None:
            continue
        run_id = new_run_id("repair")
        target: Target = "table" if is_table else "quarantine"
        note_lost_rows(paths, lease, target, files, run_id=run_id, version=state.version)
        lease.check()
        metadata = {
            "tidegate.pipeline": paths.name,
            "tidegate.run_id": run_id,
            "tidegate.outcome": "damaged",
            "tidegate.damaged": json.dumps({one.path: one.found for one in damages if one.file}, ensure_ascii=False),
        }
        metadata |= {REWORK: "repair"} if is_table else {}
        commit_files(path, Commit(run_id, remove=files, custom_metadata=metadata))


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
            f"{f' ({torn:,} cannot be read)' if torn else ''}: {list_first(found.files, _NAMED_AT_MOST)}"
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
                f"compare versions, then roll back or delete them: {list_first(committed.elsewhere)}"
            )
    return sentences


def describe_reading(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> list[str]:
    """Which records of the old job the pipeline reads itself, and which it cannot."""
    sentences = ["reads itself what those rows were made of, as far as it has not read it yet"]
    if lost := _list_gone(project, spec, paths):
        are = "is" if len(lost) == 1 else "are"
        sentences.append(
            f"does not find {count_of(len(lost), 'file')} that the old job has read and the pipeline has not, and that "
            f"{are} gone: {list_first(lost, _NAMED_AT_MOST)}; their rows are only in what is backed up"
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
        newest = {query: last for query, (_, last) in found.batches.items()}
        write_adopted(paths, replace(note, batches={**note.batches, **newest}))


def _take_out(paths: PipelinePaths, found: OldJob, lease: Lease) -> bool:
    """Publish the version without those files; whether it has to be planned again, as the table has changed."""
    committed = _list_committed(paths, {query: counts for query, (counts, _) in found.batches.items()})
    table = read_table_state(paths.table)
    if not committed.there or table is None:
        return False
    # By this outcome no sink is fed.
    changes = Changes(remove=committed.there, table_files=list_data_files(paths.table), outcome="taken_back")
    intent = plan_rework(Rework(paths.name, KIND, new_run_id(KIND)), table, changes)
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
