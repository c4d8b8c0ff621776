"""Files that a table's log counts and that are gone, or are not what was published: taken out of the log, on record.

Then all readers agree again, and what the files held can be built again from the sources: a backfill or a refresh goes
by the commits that brought the rows, which stay in the log. What is left of a damaged file is backed up.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs.preflight.damage import damage_error
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.lost_rows import note_lost_rows
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.restart.rebuild import query_keeps_state
from tidegate.spec.models import PipelineSpec
from tidegate.state.lease import Lease
from tidegate.table.damage import Damage, examine_table, find_damage
from tidegate.table.log.commit import commit_files
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import DataFile, has_log, read_table_state
from tidegate.table.publish.intent import Target
from tidegate.table.publish.rework import REWORK

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


def describe_first(paths: PipelinePaths, found: Damages) -> DisagreementError | None:
    """The error of a run for what was found."""
    for path, damages in found.items():
        return damage_error(paths, path == paths.table, list(damages))
    return None


def files_of(damages: Sequence[Damage]) -> list[DataFile]:
    """The files that can be taken out of the log."""
    return [one.file for one in damages if one.file is not None]


def needs_new_table(found: Damages) -> bool:
    """Whether versions of a log are gone or torn: no other version puts that right."""
    return any(one.kind.startswith("commit") for damages in found.values() for one in damages)


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
        return [f"`{command.text}`: a new table from all that the sources still have"]
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
            "tidegate.spec.pipeline": paths.name,
            "tidegate.run_id": run_id,
            "tidegate.outcome": "damaged",
            "tidegate.damaged": json.dumps({one.path: one.found for one in damages if one.file}, ensure_ascii=False),
        }
        commit_files(
            path,
            schema_json=state.schema_json,
            partition_by=state.partition_columns,
            add=[],
            remove=files,
            app_id=run_id,
            app_version=0,
            app_version_before=-1,
            custom_metadata={**metadata, REWORK: "repair"} if is_table else metadata,
        )
