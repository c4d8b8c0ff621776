"""``tidegate quarantine replay``: process quarantined records again, with the current schema, transform and suite.

The same gate judges them, and the step that publishes them removes them from quarantine: quarantine files are rewritten
without the replayed records, records that were quarantined again are added there, and the rows are added to the table.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.backfill.side_job import (
    Reading,
    build_rows,
    clear_attempts,
    plan_quarantine_half,
    plan_rows,
)
from tidegate.rework.replay.choose import Choice, Selection, check_pipeline, choose
from tidegate.runs.deliver import deliver_run
from tidegate.runs.gate.increment import judge_staged, publish_plan
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.tables import check_quarantine
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport, check_balance, fill_from_manifests, unjudged
from tidegate.runs.reports.verdicts import StoredVerdict
from tidegate.runs.restart.new_query import settings_at_birth
from tidegate.runs.rework import describe_options, end_with_nothing, is_over, open_rework
from tidegate.sinks.user_code import describe_effects
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.port import Chosen
from tidegate.spark import errors as spark_errors
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN, as_texts
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import Start, as_read, new_birth, read_birth
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.log.state import DataFile, list_data_files
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.origins import EDITED, REPLAYED
from tidegate.table.publish.plan import Changes, Rework
from tidegate.table.upsert.rewrite import copy_rows

_BUFFERED_CHARACTERS = 16 << 20
_OF_FILES = ("files", "bytes", "offsets")
"""Figures of a source that was read, which a replay has not done."""


def read_edits(path: Path) -> dict[str, str]:
    """Read {id: text} from a file of edited records. Raises UsageError REPLAY_FILE, with the line and the fault."""
    edits: dict[str, str] = {}
    lines: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                id_, raw = _read_edit(line, path, number)
                if id_ in edits:
                    raise _edit_fault(path, number, f"the id {id_} is in line {lines[id_]} too")
                edits[id_], lines[id_] = raw, number
    except OSError as error:
        raise _edit_fault(path, None, str(error.strerror or error)) from error
    except UnicodeDecodeError as error:
        raise _edit_fault(path, None, f"it is not UTF-8 ({error.reason} at byte {error.start})") from error
    return edits


def _read_edit(line: str, path: Path, number: int) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise _edit_fault(path, number, f"it is not JSON ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise _edit_fault(path, number, "it has no `id`, a text")
    raw = value.get("raw")
    if not isinstance(raw, str):
        hint = "; a record of a JSON source is a text here, in quotes" if isinstance(raw, dict | list) else ""
        raise _edit_fault(path, number, f"its `raw` is not a text{hint}")
    if not raw.strip():
        raise _edit_fault(
            path, number, "its `raw` is empty: remove the line of a record that should stay in quarantine"
        )
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        raise _edit_fault(path, number, "its `raw` has half of a character (a lone surrogate)") from error
    return str(value["id"]), raw


def _edit_fault(path: Path, number: int | None, fault: str) -> UsageError:
    place = str(path) if number is None else f"{path}:{number}"
    return errors.REPLAY_FILE(where=place, fault=fault)


class TextFiles:
    """Files of texts in the intakes of a job. ``links`` are the written files, as in an order."""

    def __init__(self, paths: PipelinePaths) -> None:
        self._paths = paths
        self._buffered: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
        self._characters = 0
        self._written = 0
        self.links: dict[str, dict[str, LinkedFile]] = {}

    def take(self, source: str, folder: str, text: str, position: str | None) -> None:
        """Add one text; texts are buffered, and written after some millions of characters."""
        self._buffered.setdefault((source, folder), []).append((text, position))
        self._characters += len(text)
        if self._characters >= _BUFFERED_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered texts."""
        schema = pa.schema([(TEXT_COLUMN, pa.string()), (PLACE_COLUMN, pa.string())])
        for (source, folder), rows in self._buffered.items():
            name = f"{self._written:08d}.parquet"
            link = f"{folder}/{name}" if folder else name
            path = self._paths.intake(source) / link
            columns = {TEXT_COLUMN: [text for text, _ in rows], PLACE_COLUMN: [place for _, place in rows]}
            with storage.create(path) as handle:
                pq.write_table(pa.table(columns, schema=schema), handle)
            size = storage.stat(path)
            file: LinkedFile = {"path": link, "size": size.size_bytes, "mtime_ns": size.modified_ns}
            self.links.setdefault(source, {})[link] = file
            self._written += 1
        self._buffered, self._characters = {}, 0


def publish_replay(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], verdict: StoredVerdict, folder: str
) -> None:
    """Publish what the job in ``folder`` (below the state folder) has staged, and add it to the report."""
    report = _final_report(context, choice, manifests, verdict)
    result = publish_plan(context, partial(_plan_publish, context, choice, manifests, folder, report))
    report.table["version"] = result.version
    context.report = report


def _plan_publish(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], folder: str, report: RunReport
) -> PublishIntent:
    changes = Changes(
        new=[file.below(folder) for one in manifests for file in one.files],
        table_files=list_data_files(context.paths.table),
        metadata={REPLAYED: json.dumps(sorted(choice.batches)), EDITED: str(choice.edited)},
    )
    plan_quarantine = partial(_plan_quarantine, context, choice, manifests, folder)
    return plan_rows(context, manifests, changes, report, plan_quarantine)


def _plan_quarantine(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], folder: str, work: Rework, token: str
) -> PublishIntent:
    """Plan the quarantine half: remove the replayed records, add those that were quarantined again."""
    paths = context.paths
    losing = [file for file in list_data_files(paths.quarantine) if file.path in choice.taken]
    carried, carried_of = [], []
    for number, file in enumerate(losing):
        if len(choice.taken[file.path]) < file.rows:
            target = f"{folder}/rest-{token}/{number:05d}"
            carried.append(_copy_rest(context, file, choice.taken[file.path], target))
            carried_of.append(choice.origins[file.path])
    new = [file.below(folder) for one in manifests for file in one.quarantine_files]
    changes = Changes(token, new=new, carried=carried, remove=losing)
    return plan_quarantine_half(paths, work, changes, of=choice.batches, carried_of=carried_of)


def _copy_rest(context: RunContext, file: DataFile, taken: Sequence[int], target: str) -> StagedFile:
    """Copy a quarantine file without the ``taken`` row numbers; ``target`` is relative to the state folder."""
    gone = set(taken)
    keep = pa.chunked_array([pa.array([number not in gone for number in range(file.rows)], pa.bool_())])
    path = context.paths.state / f"{target}.parquet"
    copy_rows([(context.paths.quarantine / file.path, keep)], path)
    storage.sync_names_above([path], context.paths.state)
    size, digest = storage.stat(path).size_bytes, storage.digest(path)
    return StagedFile(f"{target}.parquet", file.rows - len(gone), size, {}, digest)


def _final_report(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], verdict: StoredVerdict
) -> RunReport:
    """The report after the publish, except for the version."""
    report = RunReport.from_json(context.report.to_json())
    fill_from_manifests(report, manifests)
    for name, source in report.sources.items():
        kept = {key: value for key, value in source.items() if key not in _OF_FILES}
        report.sources[name] = kept  # type: ignore[assignment]
    report.sources = {name: source for name, source in report.sources.items() if source["rows"]}
    report.rows["published"] = report.rows["staged"]
    check_balance(report.rows, published=True)
    files = sum(len(one.files) for one in manifests)
    report.quality = verdict.quality
    report.table = {
        "path": str(context.paths.table),
        "version": None,
        "files_added": files,
        "files_removed": 0,
        "rows_added": report.rows["staged"],
        "rows_removed": 0,
    }
    for note in choice.describe_refused():
        report.add_note(note)
    report.outcome, report.error, report.ended_at = "published", None, now_text()
    return report


def replay_records(
    project: Project, name: str, run_id: str, selection: Selection, *, submit: Submit
) -> outputs.RunReport:
    """Replay the selected records and return the report. A retry with the same run id changes nothing.

    Raises UsageError REPLAY_NOT_APPEND, REPLAY_REFUSED, REPLAY_FILE, REPLAY_SEVERAL_ROWS or QUARANTINE_UNKNOWN,
    HeldError REPLAY_HELD, and what the ingest of a run raises; nothing has changed then.
    """
    with open_rework(project, name, run_id, "replay", asked=_describe_selection(selection)) as context:
        if not is_over(context):
            _replay(context, selection, submit)
        has_sinks = bool(context.spec.sinks) and context.report.outcome == "published"
    if has_sinks:
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def _describe_selection(selection: Selection) -> str:
    """Describe the selection, so that a retry differs from another command; edited records by their content."""
    if selection.edits is not None:
        digest = hashlib.sha256(json.dumps(sorted(selection.edits.items())).encode()).hexdigest()
        return f"--file with {count_of(len(selection.edits), 'record')} (sha256 {digest[:16]})"
    wanted = selection.wanted
    where = [f"{one.column}{'~' if one.contains else '='}{one.value}" for one in wanted.where]
    return describe_options(reason=wanted.reason, rule=wanted.rule, run_id=wanted.run_id, where=where)


def _replay(context: RunContext, selection: Selection, submit: Submit) -> None:

    paths, facts = context.paths, context.facts
    assert facts is not None
    check_agreement(facts, context.name)
    check_pipeline(facts, context.spec)
    work = Rework(context.name, "replay", context.report.run_id)
    folder = f"replays/{work.app_id}/{secrets.token_hex(4)}"
    _clear(context)  # an attempt that had begun to publish is finished by now
    context.report.quality = unjudged()  # of an earlier attempt
    job = replace(context, paths=paths.beside(folder), spec=as_texts(context.spec), facts=None)
    texts = TextFiles(job.paths)
    choice = choose(context.project, paths, context.spec, facts, selection, texts.take)
    texts.flush()
    if not choice.records:
        _end_without(context, choice, selection)
        return
    manifests = _read(context, job, choice, texts, folder, submit)
    verdict = judge_staged(job, manifests, counts_quarantined=False)
    context.report.quality = verdict.quality
    if not verdict.passed:
        where = f"run {context.report.run_id} of pipeline {context.name}"
        raise errors.REPLAY_HELD(where=where, reasons="; ".join(verdict.reasons), name=context.name)
    publish_replay(context, choice, manifests, verdict, folder)
    _clear(context)


def _clear(context: RunContext) -> None:
    """Remove what attempts of replays have left."""
    clear_attempts(context, storage.list_folders(context.paths.replays))
    storage.remove_empty_folder(context.paths.replays)


def _end_without(context: RunContext, choice: Choice, selection: Selection) -> None:
    """End a replay without records: with an error where all selected records are refused."""
    _clear(context)
    if not choice.refused:
        if selection.wanted.run_id:
            context.report.add_note("--run-id chooses records by the run that quarantined them; --as names this replay")
        end_with_nothing(context, "there is no such record in quarantine: nothing to replay")
        return
    raise _refusal(context.name, choice)


def _refusal(name: str, choice: Choice) -> TidegateError:
    reasons = "; ".join(f"{count:,}: {why}" for why, count in choice.refused.most_common())
    count = count_of(choice.refused.total(), "record")
    return errors.REPLAY_REFUSED(where=f"pipeline {name}", count=count, reasons=reasons, name=name)


def _read(
    context: RunContext, job: RunContext, choice: Choice, texts: TextFiles, folder: str, submit: Submit
) -> list[BatchManifest]:
    """Let Spark process the texts into the job's own staging; return the manifests."""
    spec, side = context.spec, job.paths
    starts: dict[str, Start] = {name: {} for name in spec.streams}
    reading = Reading(
        birth=new_birth(side, spec, starts, settings_at_birth(context.project, spec)),
        chosen={name: Chosen(texts.links.get(name, {}), {}, None, []) for name in spec.streams},
        links=texts.links,
        of_texts=True,
        one_row_each=choice.has_rejected,
    )
    manifests = build_rows(context, job, folder, reading, submit)
    _check_read(context, job, choice, manifests)
    return manifests


def _check_read(context: RunContext, job: RunContext, choice: Choice, manifests: list[BatchManifest]) -> None:
    where, name = f"pipeline {context.name}", context.name
    birth = read_birth(job.paths)
    if birth is not None and birth.keeps_state:
        raise errors.REPLAY_NOT_APPEND(where=where, why="the transform as it is now keeps state", name=name)
    read = sum(one.read for one in manifests)
    if read != choice.records:
        offered = count_of(choice.records, "record")
        run_id = context.report.run_id
        raise errors.REPLAY_OTHER_RECORDS(where=where, offered=offered, read=read, name=name, run_id=run_id)
    entered, transformed = sum(one.entered for one in manifests), sum(one.transformed for one in manifests)
    if choice.has_rejected and transformed > entered:
        rows = f"{count_of(transformed, 'row')} from {count_of(entered, 'record')}"
        raise spark_errors.REPLAY_SEVERAL_ROWS(where=where, rows=rows, name=name)


def preview_replay(project: Project, name: str, selection: Selection) -> outputs.ReplayPlan:
    """``--dry-run``: show which records would be replayed, and which stay and why. Starts no JVM. Raises UsageError as
    the replay does, for a selection of something that does not exist."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec)
    hindrance: TidegateError | None = None
    choice = Choice()
    try:
        check_quarantine(paths)
        check_agreement(facts, name)
        check_pipeline(facts, spec)
        choice = choose(project, paths, spec, facts, selection, lambda *_: None)
        if not choice.records and choice.refused:
            hindrance = _refusal(name, choice)
    except TidegateError as error:
        hindrance = error
    return {
        "pipeline": name,
        "records": choice.records,
        "sources": dict(sorted(choice.sources.items())),
        "reasons": dict(choice.reasons.most_common()),
        "edited": choice.edited,
        "stay": [{"why": why, "records": count} for why, count in choice.refused.most_common()],
        "sinks": describe_effects(paths, spec, facts.table, "more rows") if choice.records else [],
        "hindrance": None if hindrance is None else hindrance.to_dict(),
    }
