"""``tidegate maintain --dry-run``: count what it would do, without changes and without a lease."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Maintenance, MaintenanceItem, MaintenanceWork
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import list_first
from tidegate.rework.maintain.bins import find_small, place_of
from tidegate.rework.maintain.command import LOG_VERSIONS_AT_LEAST, find_limit
from tidegate.rework.maintain.litter import find_litter
from tidegate.rework.maintain.retention import find_date_column, find_expired
from tidegate.rework.maintain.sources import SourceChores, find_chores
from tidegate.rework.maintain.waiting import find_held_partitions, without_partitions
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.clock import find_clock_fault
from tidegate.runs.recovery.upkeep import find_left, find_replaced_files, tables_of
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import read_lease
from tidegate.table.log.compaction import versions_since_compaction
from tidegate.table.log.state import DataFile, TableState, list_data_files, read_table_state
from tidegate.table.publish.intent import pending_intents


def preview_maintenance(project: Project, name: str) -> Maintenance:
    """Count what :func:`tidegate.rework.maintain.command.maintain_pipeline` would do now.

    Files that it replaces itself are not counted: they are removed after ``keep_versions``. Raises UsageError for a bad
    spec or NO_DATE_PARTITION, DisagreementError for a torn log."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec)
    hindrance: TidegateError | None = None
    try:
        check_table(facts, name)
    except TidegateError as error:
        hindrance = error
    items: list[MaintenanceItem] = []
    clock = find_clock_fault(paths, time.time())
    by_age = clock is None or not spec.maintenance.keep_versions
    table = read_table_state(paths.table)
    if table is not None:
        items += [one for one in _preview_table(paths, spec, table) if clock is None or one["work"] != "expire"]
    items += [one for one in _preview_space(paths, spec) if by_age or one["work"] != "replaced"]
    before = find_limit(spec.maintenance, is_sure=clock is None)
    items += [
        _item(litter.work, "state", litter.files, litter.bytes) for litter in find_litter(paths, facts, before=before)
    ]
    chores = find_chores(project, paths, spec, time.time()) if by_age else SourceChores()
    items += [_item("source", source, len(one.files), one.bytes) for source, one in chores.consumed.items()]
    notes = [*([] if clock is None else [clock]), *chores.notes]
    for source, one in chores.consumed.items():
        if one.files:
            which = list_first([file.path for file in one.files], 5)
            notes.append(
                f"source {source}: {'archived' if spec.maintenance.source == 'archive' else 'deleted'}: {which}"
            )
    for target, _, left in find_left(paths, spec, facts):
        notes += [f"the {target}: {line}" for line in left.describe()]
    lease = read_lease(paths)
    if lease is not None and lease.state in ("held", "parked"):
        notes.append(f"run {lease.holder.run_id} is at work: what it stages and publishes changes these figures")
    if pending_intents(paths):
        notes.append("a publish was begun and not finished: it is finished first, and changes these figures")
    found = [item for item in items if item["files"]]
    hindered = None if hindrance is None else hindrance.to_dict()
    return {"pipeline": name, "items": found, "notes": notes, "hindrance": hindered}


def _preview_table(paths: PipelinePaths, spec: PipelineSpec, table: TableState) -> list[MaintenanceItem]:
    settings = spec.maintenance
    files = without_partitions(list_data_files(paths.table), find_held_partitions(paths))
    column = find_date_column(spec.name, table, settings)
    expired: Sequence[DataFile] = ()
    if column is not None:
        expired = find_expired(files, column, settings.expire.partitions or 0.0, datetime.now(UTC))
    gone = {file.path for file in expired}
    bins = find_small(files, settings.compact_below, gone)
    small: list[DataFile] = []
    if bins:
        from tidegate.rework.maintain.rewrite import choose_alike

        small = [file for one in bins for file in choose_alike(one, paths.table)]
    return [_of_files("expire", expired), _of_files("compact", small)]


def _preview_space(paths: PipelinePaths, spec: PipelineSpec) -> list[MaintenanceItem]:
    items = []
    for target, path in tables_of(paths):
        state = read_table_state(path)
        if state is None:
            continue
        versions = versions_since_compaction(path)
        items.append(_item("log", target, versions if versions >= LOG_VERSIONS_AT_LEAST else 0, 0))
        after: int | None = None
        count = size = 0
        while True:
            found = find_replaced_files(paths, spec, target, state, after=after)
            count += len(found.files)
            size += sum(storage.stat(one).size_bytes for one in found.files)
            if found.done == found.before:
                break
            after = found.done
        items.append(_item("replaced", target, count, size))
    return items


def _of_files(work: MaintenanceWork, files: Iterable[DataFile]) -> MaintenanceItem:
    some = list(files)
    sizes, rows = sum(file.size_bytes for file in some), sum(file.rows for file in some)
    return _item(work, "table", len(some), sizes, rows, len({place_of(file) for file in some}))


def _item(work: MaintenanceWork, of: str, files: int, size: int, rows: int = 0, partitions: int = 0) -> MaintenanceItem:
    return {"work": work, "of": of, "files": files, "bytes": size, "rows": rows, "partitions": partitions}
