"""Versions that maintenance makes: small files become larger ones, and old partitions leave the table.

Compaction changes no row, in versions of bounded size. The figures of a run are read from its commits, which are found
by its run id, so they are the same after a kill, a resume or a repeated command.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.rework import errors
from tidegate.rework.backfill.held import find_held_partitions
from tidegate.rework.maintain.rewrite import Layout, Rewritten, rewrite_bin
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.recovery.context import RunContext
from tidegate.spec.models import MaintenanceSpec
from tidegate.state.manifest import StagedFile
from tidegate.table.log.commit import refuse_gone
from tidegate.table.log.files import is_inside
from tidegate.table.log.snapshot import Partition, partition_of
from tidegate.table.log.state import (
    DataFile,
    TableState,
    find_commit,
    list_data_files,
    read_commit_metadata,
    read_table_state,
)
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.plan import ABANDONED, Changes, Rework, plan_rework
from tidegate.table.schema import fields_of

PART_FILES = 10_000
PART_BYTES = 1 << 30
"""The limits of one version: the most work that a kill or a lost lease can waste."""
KIND = "maintain"
WORK = "tidegate.maintenance"
"""In a commit: ``compact``, or ``expire`` for partitions that left the table."""
Work = Literal["compact", "expire"]
_MAINTAINED = "maintained"
_AT_ONCE = 2
"""Bins that are rewritten in parallel: pyarrow encodes a file in one thread."""


def find_small(files: Iterable[DataFile], below: int, excluded: Collection[str] = ()) -> list[list[DataFile]]:
    """Find the files smaller than ``below`` bytes of each partition that has two or more of them, oldest first.

    Hidden files, files outside of the table's folder (another program may have logged them) and the paths in
    ``excluded`` do not count.
    """
    small: dict[Partition, list[DataFile]] = {}
    for file in files:
        if file.size_bytes >= below or file.path in excluded:
            continue
        if is_inside(file.path) and not Path(file.path).name.startswith((".", "_")):
            small.setdefault(partition_of(file.partition), []).append(file)
    return [
        sorted(found, key=lambda file: (file.modified_at_ms, file.path))
        for _, found in sorted(small.items(), key=lambda one: [(name, value or "") for name, value in one[0]])
        if len(found) > 1
    ]


def without_partitions(files: Sequence[DataFile], held: set[Partition]) -> list[DataFile]:
    """The files that are not in a held partition."""
    return [file for file in files if partition_of(file.partition) not in held] if held else list(files)


def choose_part(bins: Sequence[Sequence[DataFile]]) -> list[list[DataFile]]:
    """Choose as many of these small files of partitions as fit into one version, in order; the last one may be cut."""
    chosen: list[list[DataFile]] = []
    room_files, room_bytes = PART_FILES, PART_BYTES
    for one in bins:
        taken: list[DataFile] = []
        for file in one:
            # At least two files, however large: otherwise they would never be compacted.
            if len(taken) >= 2 and (room_files <= 0 or room_bytes < file.size_bytes):
                break
            taken.append(file)
            room_files, room_bytes = room_files - 1, room_bytes - file.size_bytes
        chosen.append(taken)
        if room_files <= 1 or room_bytes <= 0 or len(taken) < len(one):
            break
    return chosen


def publish_changes(context: RunContext, make: Callable[[Rework, Sequence[DataFile]], Changes | None]) -> bool:
    """Publish one version, which ``make`` creates from the next part and the table's files; returns whether there was
    anything to do."""
    work = Rework(context.name, KIND, context.report.run_id)
    state = read_table_state(context.paths.table, (work.app_id,))
    if state is None:
        return False
    work = replace(work, part=state.txns.get(work.app_id, -1) + 1)

    def plan() -> PublishIntent | None:
        table = read_table_state(context.paths.table, (work.app_id,))
        files = list_data_files(context.paths.table)
        change = make(work, files)
        if change is None or table is None:
            return None
        return plan_rework(work, table, replace(change, table_files=files))

    first = plan()
    if first is None:
        return False
    plans = [first]

    def next_plan() -> PublishIntent:
        planned = plans.pop() if plans else plan()
        if planned is None:  # another program has replaced all files meanwhile
            refuse_gone(context.paths.table, [file.path for file in first.files_to_remove])
        assert planned is not None, "no other tidegate process changes the table's files while we hold the lease"
        return planned

    publish_plan(context, next_plan)
    prepared = context.paths.attempts(work.app_id, work.part)
    storage.remove_tree(prepared)
    storage.remove_empty_folder(prepared.parent)
    return True


def new_folder(context: RunContext, work: Rework, token: str) -> Path:
    """Create the folder in which a part is prepared; files there that no intent names are removed by the next run."""
    folder = context.paths.attempts(work.app_id, work.part) / token
    storage.make_folder(folder)
    return folder


def count_done(table_path: Path, pipeline: str, run_id: str) -> dict[Work, Counter[str]]:
    """Add up the figures of this maintenance run's commits by kind of work, with the newest ``version``."""
    app_id = Rework(pipeline, KIND, run_id).app_id
    state = read_table_state(table_path, (app_id,))
    done: dict[Work, Counter[str]] = {}
    for part in range(-1 if state is None else state.txns.get(app_id, -1), -1, -1):
        version = find_commit(table_path, app_id, part)
        if version is None:
            continue
        info = read_commit_metadata(table_path, version)
        if info.get("tidegate.outcome") == ABANDONED:
            continue
        counts = done.setdefault(info.get(WORK, "compact"), Counter())
        version_before = counts["version"]
        counts.update(json.loads(info.get("tidegate.figures", "{}")))
        counts["commits"] += 1
        counts["version"] = max(version_before, version)
    return done


def compact_table(context: RunContext) -> list[DataFile]:
    """Compact until no small files remain that can be combined; return the files that were left as they are.

    A kill wastes at most one version. Raises what
    :func:`tidegate.runs.gate.increment.publish_plan` and :func:`tidegate.rework.maintain.rewrite.rewrite_bin` do.
    """
    left: dict[str, DataFile] = {}
    held = find_held_partitions(context.paths)

    def make(work: Rework, files: Sequence[DataFile]) -> Changes | None:
        return _rewrite_part(context, work, without_partitions(files, held), left)

    while publish_changes(context, make):
        pass
    return list(left.values())


def _rewrite_part(
    context: RunContext, work: Rework, files: Sequence[DataFile], left: dict[str, DataFile]
) -> Changes | None:
    paths = context.paths
    layout = Layout(context.spec.table.cluster_by, context.spec.maintenance.compact_below)
    while chosen := choose_part(find_small(files, layout.below, left)):
        token = secrets.token_hex(6)
        folder = new_folder(context, work, token)

        def rewrite(place: int, one: Sequence[DataFile], folder: Path = folder) -> Rewritten:
            context.lease.check()
            new_paths = (folder / f"{place:05d}-{number:05d}.parquet" for number in itertools.count())
            return rewrite_bin(one, paths.table, new_paths, paths.state, layout)

        replaced: list[DataFile] = []
        carried: list[StagedFile] = []
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rewrite") as pool:
            rewritten = list(pool.map(rewrite, itertools.count(), chosen))
        for done in rewritten:
            replaced += done.replaced
            carried += done.files
            left.update({file.path: file for file in done.left})
        storage.sync_names_in(folder, paths.state)
        if replaced:
            return Changes(
                token,
                carried=carried,
                remove=replaced,
                outcome=_MAINTAINED,
                metadata={WORK: "compact"},
                rearranges=True,
            )
        storage.remove_tree(folder)
    return None


def expire_partitions(context: RunContext, table: TableState, now: datetime) -> bool:
    """Remove partitions that are too old from the table, and return whether there were any. Their files stay, hidden,
    for ``keep_versions``.

    Raises UsageError NO_DATE_PARTITION, and what :func:`tidegate.runs.gate.increment.publish_plan` does.
    """
    column = find_date_column(context.name, table, context.spec.maintenance)
    if column is None:
        return False
    age = context.spec.maintenance.expire.partitions or 0.0
    held = find_held_partitions(context.paths)

    def make(_work: object, files: Sequence[DataFile]) -> Changes | None:
        old = find_expired(without_partitions(files, held), column, age, now)
        return Changes(remove=old, outcome=_MAINTAINED, metadata={WORK: "expire"}) if old else None

    return publish_changes(context, make)


def find_date_column(name: str, table: TableState, settings: MaintenanceSpec) -> str | None:
    """The first partition column of type date; None without retention, or if only the project's defaults ask for it and
    the table has no such column. Raises UsageError NO_DATE_PARTITION if the pipeline's own spec asks for it."""
    if settings.expire.partitions is None:
        return None
    types = {field["name"]: field["type"] for field in fields_of(table.schema_json)}
    dates = [column for column in table.partition_columns if types.get(column) == "date"]
    if dates:
        return dates[0]
    if "partitions" in settings.expire.fields_set:
        named = ", ".join(f"{one} {str(types.get(one)).upper()}" for one in table.partition_columns) or "nothing"
        raise errors.NO_DATE_PARTITION(
            where=f"jobs/{name}/pipeline.yaml, maintenance.expire.partitions", columns=named, name=name
        )
    return None


def find_expired(files: Sequence[DataFile], column: str, age_seconds: float, now: datetime) -> list[DataFile]:
    """Find the files of partitions whose day ended ``age_seconds`` ago, in UTC; a partition without a date stays."""
    found = []
    for file in files:
        value = next((value for name, value in file.partition.items() if name.lower() == column.lower()), None)
        try:
            day = date.fromisoformat(value or "")
        except ValueError:  # none, or before the year 1 or after 9999, which Spark allows
            continue
        begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
        if begins <= now - timedelta(seconds=age_seconds, days=1):
            found.append(file)
    return found
