"""``tidegate adopt``: preview an adoption, or carry it out under the pipeline's lease.

The plan is written first (``state/<name>/adoption.json``); while this file exists no run starts, and the same command
resumes where it was stopped. Readers see the same rows before and after every step: files that do not count are hidden,
Spark's list of files is moved away (Spark then lists the folder, which has just these files), folders get unambiguous
names, and one commit creates the log or continues the existing one.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import outputs, storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.adopt.found import FoundTable, hide_sink_log, look_at_delta, look_at_parquet, read_known
from tidegate.rework.adopt.old_checkpoint import (
    METADATA,
    RETIRED,
    OldCheckpoint,
    check_same,
    is_retired,
    plan_hand_over,
    read_old_checkpoint,
    retire,
)
from tidegate.runs.preflight.agreement import adoption_unfinished
from tidegate.runs.preflight.table_log import Adopted, write_adopted
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import last_taken
from tidegate.runs.reports.report import unjudged
from tidegate.runs.restart.new_query import settings_at_birth
from tidegate.runs.rework import end_with_nothing, is_over, open_rework
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.port import HandOver
from tidegate.sources.registry import Connections, open_sources
from tidegate.spec.as_read import read_spec
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import new_birth, read_birth, write_birth
from tidegate.state.published import Published, read_published, write_published
from tidegate.table.log.commit import AlreadyCommittedError, Commit, commit_files, sync_log
from tidegate.table.log.files import LOG_FOLDER
from tidegate.table.log.state import DataFile, has_log, read_log, read_table_state
from tidegate.table.publish.plan import Rework
from tidegate.table.publish.replace import hidden_name, hide_files
from tidegate.table.schema import column_texts

KIND = "adopt"
_PAUSE = (
    "pause the old job first (its DAG, its cron entry): what it writes afterwards is in the table twice, and runs "
    "refuse to continue; --retire-old also keeps Spark from starting its query"
)
_UNCHECKED = "the existing rows were not checked by the gate: the suite checks the rows of later runs"


@dataclass(frozen=True)
class _Findings:
    """What an adoption finds and changes."""

    table: FoundTable
    old: OldCheckpoint | None
    sources: list[HandOver]

    @property
    def notes(self) -> list[str]:
        """Notes for the person who adopts the table."""
        return [*self.table.notes, *(note for one in self.sources for note in one.notes)]


def preview_adoption(
    project: Project, name: str, table: Path, checkpoint: Path | None, *, retire_old: bool = False
) -> outputs.Adoption:
    """Show what ``adopt`` would do, without changing anything. Raises what :func:`adopt_table` does."""
    spec, paths, checkpoint = _check_arguments(project, name, table, checkpoint)
    retires = _to_retire(name, checkpoint, retire_old)
    if _is_adopted(paths):
        if retires is not None:
            check_same(paths, retires)
        return _describe_adopted(name, paths, retires)
    if storage.read_json(paths.adoption) is None:
        _need_new(paths)
    look = _look(project, paths, spec, checkpoint)
    return _describe(name, paths, look, retires)


def adopt_table(
    project: Project, name: str, run_id: str, table: Path, checkpoint: Path | None, *, retire_old: bool = False
) -> outputs.RunReport:
    """Adopt the table, and the progress in the checkpoint of a plain Spark job; return the report. With ``retire_old``
    Spark refuses to start that job's query afterwards, also where the table was adopted before.

    Raises UsageError: ADOPT_TABLE_NOT_NAMED, ADOPT_NOT_A_TABLE, ADOPT_NOT_NEW, ADOPT_NO_START, ADOPT_COMPLETE,
    ADOPT_NOTHING_TO_RETIRE;
    DisagreementError: ADOPT_FILES_DO_NOT_FIT, ADOPT_SINK_LOG, ADOPT_LOG_NOT_TAKEN_OVER, ADOPT_CHECKPOINT, ADOPT_STATE,
    ADOPT_BATCH_UNKNOWN, ADOPT_SOURCES, ADOPTION_UNFINISHED. Nothing was changed then.
    """
    spec, paths, checkpoint = _check_arguments(project, name, table, checkpoint)
    retires = _to_retire(name, checkpoint, retire_old)
    if has_log(paths.table):
        read_known(paths.table)  # before other code reads it, with a less clear error
    with open_rework(project, name, run_id, KIND) as context:
        begun = storage.read_json(paths.adoption)
        if begun is None and is_over(context):
            return context.report.to_json()
        if begun is None and _is_adopted(paths):
            if retires is not None:
                check_same(paths, retires)
                _retire(context, retires)
            end_with_nothing(context, _adopted_before(paths))
            return context.report.to_json()
        if not _has_commit(paths):
            if begun is None:
                _need_new(paths)
            look = _look(project, paths, spec, checkpoint)
            if retires is not None:  # first: if that fails, nothing was changed
                _retire(context, retires)
            _take_over(context, look, checkpoint)
        elif retires is not None:
            _retire(context, retires)
        _finish(context)
        return context.report.to_json()


def _check_arguments(
    project: Project, name: str, table: Path, checkpoint: Path | None
) -> tuple[PipelineSpec, PipelinePaths, Path | None]:
    spec, paths = load_pipeline(project, name), project.paths(name)
    given = os.path.abspath(table)
    if given != os.path.abspath(paths.table) and storage.real_path(table) != storage.real_path(paths.table):
        inside = os.path.relpath(given, project.root)
        line = given if inside.startswith("..") else inside
        raise errors.ADOPT_TABLE_NOT_NAMED(
            where=f"jobs/{name}/pipeline.yaml",
            name=name,
            own=paths.table,
            given=given,
            spec=f"jobs/{name}/pipeline.yaml",
            line=json.dumps(line, ensure_ascii=False),
            quoted_own=shlex.quote(str(paths.table)),
        )
    if spec.output_mode == "complete":
        raise errors.ADOPT_COMPLETE(where=f"jobs/{name}/pipeline.yaml: output_mode", name=name)
    checkpoint = None if checkpoint is None else Path(os.path.abspath(checkpoint))
    begun = storage.read_json(paths.adoption)
    if begun is not None and begun["checkpoint"] != (None if checkpoint is None else str(checkpoint)):
        raise adoption_unfinished(begun, name)
    return spec, paths, checkpoint


def _to_retire(name: str, checkpoint: Path | None, retire_old: bool) -> Path | None:
    if retire_old and checkpoint is None:
        raise errors.ADOPT_NOTHING_TO_RETIRE(where=f"pipeline {name}", why="no --checkpoint was given")
    return checkpoint if retire_old else None


def _need_new(paths: PipelinePaths) -> None:
    """Raise UsageError ADOPT_NOT_NEW for a pipeline that has read or published something."""
    has_taken = False
    if storage.exists(paths.ledger):
        with open_ledger(paths, read_only=True) as ledger:
            has_taken = ledger.last_id() > 0
    found = [
        ("a table was published", read_published(paths) is not None),
        ("it has a checkpoint", storage.exists(paths.pinned().checkpoint / "metadata")),
        ("it has a birth record", read_birth(paths.pinned()) is not None),
        ("files were taken", has_taken),
    ]
    reasons = [words for words, is_so in found if is_so]
    if reasons:
        raise errors.ADOPT_NOT_NEW(where=f"pipeline {paths.name}", name=paths.name, what=reasons[0], state=paths.state)


def _look(project: Project, paths: PipelinePaths, spec: PipelineSpec, checkpoint: Path | None) -> _Findings:
    table = look_at_delta(paths.table, spec) if has_log(paths.table) else look_at_parquet(paths.table, spec)
    old = None if checkpoint is None else read_old_checkpoint(checkpoint, table)
    sources = open_sources(project, paths, read_spec(spec, paths.spool, {}))
    return _Findings(table, old, plan_hand_over(spec, sources, old))


def _work(paths: PipelinePaths) -> Rework:
    """The adoption in the log, without a run id: any run may finish it."""
    return Rework(paths.name, KIND, "")


def _has_commit(paths: PipelinePaths) -> bool:
    """Return whether the log says that this pipeline adopted the table."""
    state = read_table_state(paths.table, (_work(paths).app_id,))
    return state is not None and _work(paths).app_id in state.txns


def _is_adopted(paths: PipelinePaths) -> bool:
    return storage.read_json(paths.adoption) is None and read_published(paths) is not None and _has_commit(paths)


def _adopted_before(paths: PipelinePaths) -> str:
    return f"the table was adopted before: {paths.table}"


# -- adoption --


def _retire(context: RunContext, checkpoint: Path) -> None:
    context.lease.check()
    retire(checkpoint, context.name)
    context.report.add_note(
        f"the old checkpoint is retired: Spark refuses to start its query; the original of {checkpoint / METADATA} is "
        f"{RETIRED} next to it"
    )


def _take_over(context: RunContext, look: _Findings, checkpoint: Path | None) -> None:
    """Do everything up to the commit. Every step may be repeated."""
    paths, lease = context.paths, context.lease
    lease.check()
    # The last batch of each query that has written to the table: its later commits are refused.
    batches = {query: batch for query, batch in look.table.txns.items() if "#" not in query}
    if look.old is not None:
        batches[look.old.query_id] = look.old.batch
    begun = {
        "table": str(paths.table),
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "run_id": context.report.run_id,
        "at": now_text(),
        "notes": look.notes,
        "batches": batches,
    }
    storage.put_if_absent(paths.adoption, storage.dump_json(begun))
    _hand_over(context, look)
    hide_files([(paths.table / name, paths.table / hidden_name(name)) for name in look.table.hide], lease.check)
    log = paths.table / LOG_FOLDER
    hide_files([(log / name, log / f".{name}.adopted") for name in look.table.hide_in_log], lease.check)
    lease.check()
    hide_sink_log(paths.table)
    for old, new in look.table.renames:
        lease.check()
        storage.move(paths.table / old, paths.table / new)
    _sync(paths, look)
    lease.check()
    _commit(context, look)


def _hand_over(context: RunContext, look: _Findings) -> None:
    """Record what was read where runs look for it: in the ledger, and for offsets in the birth record."""
    paths, spec = context.paths, context.spec
    if spec.file_streams:
        with open_ledger(paths, lease=context.lease) as ledger:
            sources = open_sources(context.project, paths, spec, Connections(ledger=ledger))
            for one in look.sources:
                sources[one.name].note_hand_over(one, _work(paths).app_id)
    starts = {one.name: one.start for one in look.sources}
    if any(starts.values()):
        context.lease.check()
        write_birth(paths, new_birth(paths, spec, starts, settings_at_birth(context.project, spec)))


def _sync(paths: PipelinePaths, look: _Findings) -> None:
    """Sync the files of the commit, and the log that it continues: Spark syncs nothing, and after the adoption the
    sources of these rows may be removed."""
    named = [paths.table / file.path for file in look.table.files]
    if look.table.kind == "delta":
        named += storage.list_folder(paths.table / LOG_FOLDER)
    storage.sync_files(named)
    storage.sync_names_above(named, paths.table.parent)


def _commit(context: RunContext, look: _Findings) -> None:
    """Commit one version that adds the files of a plain table, or marks the end of the old log.

    It is not marked as rework of published rows, because its rows came from elsewhere.
    """
    paths, table, work = context.paths, look.table, _work(context.paths)
    new = table.files if table.kind == "parquet" else []
    checkpoint = {"query": look.old.query_id, "batch": look.old.batch} if look.old is not None else {}
    try:
        commit_files(
            paths.table,
            Commit(
                work.app_id,
                add=new,
                schema_json=table.schema_json,
                partition_by=table.partition_by,
                custom_metadata={
                    "tidegate.pipeline": paths.name,
                    "tidegate.run_id": context.report.run_id,
                    "tidegate.outcome": "adopted",  # it has no rows for sinks
                    "tidegate.adopted": json.dumps({"kind": table.kind, **checkpoint}),
                },
            ),
        )
    except AlreadyCommittedError:
        context.lease.check()  # a stale process ends here; its successor has committed


def _finish(context: RunContext) -> None:
    """Write the records by which runs know the table, and the report; then end the adoption."""
    paths, report = context.paths, context.report
    log = read_log(paths.table)
    state = read_table_state(paths.table)
    assert state is not None, "the commit is there"
    sync_log(paths.table, state.version)
    if read_published(paths) is None:
        context.lease.check()
        write_published(paths, Published(state.table_id, state.version, None, -1, last_taken(paths, context.spec)))
    files = log.files()
    rows = sum(file.rows for file in files)
    begun = storage.read_json(paths.adoption) or {}
    report.outcome, report.error = "published", None
    report.rows["published"] = rows
    report.quality = unjudged("unchecked")
    report.table = {
        "path": str(paths.table),
        "version": state.version,
        "files_added": len(files),
        "files_removed": 0,
        "rows_added": rows,
        "rows_removed": 0,
    }
    for note in (*begun.get("notes", ()), _UNCHECKED):
        report.add_note(note)
    report.ended_at = now_text()
    context.save()
    context.lease.check()
    note = Adopted(str(begun.get("at", now_text())), begun.get("checkpoint"), begun.get("batches", {}))
    write_adopted(paths, note)
    storage.remove(paths.adoption)


# -- output --


def _describe_retiring(checkpoint: Path) -> str:
    if is_retired(checkpoint):
        return f"leave the checkpoint retired, as it is: {checkpoint}"
    return (
        f"retire the checkpoint: {checkpoint / METADATA} becomes unreadable for Spark, which then refuses to start the "
        f"query; the original stays next to it as {RETIRED}"
    )


def _describe(name: str, paths: PipelinePaths, look: _Findings, retires: Path | None) -> outputs.Adoption:
    table = look.table
    actions = [] if retires is None else [_describe_retiring(retires)]
    actions += [f"take over {count_of(len(table.files), 'file')} with {count_of(table.rows, 'row')} where they are"]
    if table.hide:
        actions.append(
            f"hide {count_of(len(table.hide), 'file')} that {'does' if len(table.hide) == 1 else 'do'} not count"
        )
    if table.hide_in_log:
        actions.append(f"hide {', '.join(table.hide_in_log)} of the log, which can be read without")
    if table.sink_log is not None:
        actions.append("move _spark_metadata to a hidden name")
    if table.renames:
        old, new = table.renames[0]
        more = f" and {len(table.renames) - 1:,} more" if len(table.renames) > 1 else ""
        actions.append(f"rename the folder {old} to {new}{more}, so that no reader takes text for a number or a date")
    actions.append("commit version 0 of a Delta log" if table.kind == "parquet" else "continue its Delta log")
    for one in look.sources:
        if "offsets" in one.summary:
            actions.append(f"source {one.name}: continue at {json.dumps(one.summary['offsets'])}")
        elif one.summary:
            summary = one.summary
            read = f"{count_of(summary['files_taken'], 'file')} count as read, {summary['files_gone']} of them gone"
            actions.append(f"source {one.name}: {read}; the next run reads {summary['files_waiting']}")
    return {
        **_describe_table(name, paths, table.files, table.schema_json, table.partition_by),
        "kind": table.kind,
        "query_id": None if look.old is None else look.old.query_id,
        "batch": None if look.old is None else look.old.batch,
        "sources": {one.name: one.summary for one in look.sources},
        "actions": actions,
        "notes": [_PAUSE, *look.notes, _UNCHECKED],
        "adopted": False,
    }


def _describe_adopted(name: str, paths: PipelinePaths, retires: Path | None) -> outputs.Adoption:
    log = read_log(paths.table)
    described = _describe_table(name, paths, log.files(), log.schema_json, log.partition_columns)
    described["actions"] = [] if retires is None else [_describe_retiring(retires)]
    described["notes"] = [_adopted_before(paths)]
    return described


def _describe_table(
    name: str, paths: PipelinePaths, files: Sequence[DataFile], schema_json: str, partition_by: list[str]
) -> outputs.Adoption:
    """The table as one that was adopted before."""
    return {
        "pipeline": name,
        "table": str(paths.table),
        "kind": "delta",
        "files": len(files),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.size_bytes for file in files),
        "columns": column_texts(schema_json),
        "partition_by": partition_by,
        "query_id": None,
        "batch": None,
        "sources": {},
        "actions": [],
        "notes": [],
        "adopted": True,
    }
