"""``tidegate quarantine replay``: quarantined records put through once more, with schema, transform and suite as they
are now, judged by the same gate, and taken out of quarantine in the step that publishes them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError, catalogue
from tidegate.core.words import count_of
from tidegate.rework.backfill.build import Reading, build_rows, read_built
from tidegate.rework.replay.choose import Choice, Selection, check_pipeline, choose
from tidegate.rework.replay.publish import publish_replay
from tidegate.runs.drive import Load
from tidegate.runs.gate.increment import judge_beside
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.pinned import settings_at_birth
from tidegate.runs.preflight.quarantine import check_quarantine
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.rework import describe_options, end_with_nothing, is_over, open_rework
from tidegate.runs.steps import deliver_run
from tidegate.sinks.foresee import describe_effects
from tidegate.sources.port import Chosen
from tidegate.spec.as_read import as_texts
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import Start, as_read, new_birth, read_birth
from tidegate.state.manifest import BatchManifest
from tidegate.table.publish.rework import Rework

if TYPE_CHECKING:
    from tidegate.rework.replay.texts import TextFiles


def replay_records(
    project: Project, name: str, run_id: str, selection: Selection, *, submit: Submit
) -> outputs.RunReport:
    """Put the selected records through; the report. A retry with the same run id changes nothing.

    Raises UsageError REPLAY_NOT_APPEND, REPLAY_REFUSED, REPLAY_NOT_THERE, REPLAY_SEVERAL_ROWS or QUARANTINE_UNKNOWN,
    HeldError REPLAY_HELD, and what the ingest of a run raises: in each case nothing has changed.
    """
    with open_rework(project, name, run_id, "replay", asked=_describe_selection(selection)) as context:
        if not is_over(context):
            _replay(context, selection, submit)
        has_sinks = bool(context.spec.sinks) and context.report.outcome == "published"
    if has_sinks:
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def _describe_selection(selection: Selection) -> str:
    """What is meant, so that a retry is told from another command: of edited records, what the file says."""
    if selection.edits is not None:
        digest = hashlib.sha256(json.dumps(sorted(selection.edits.items())).encode()).hexdigest()
        return f"--file with {count_of(len(selection.edits), 'record')} (sha256 {digest[:16]})"
    wanted = selection.wanted
    where = [f"{one.column}{'~' if one.contains else '='}{one.value}" for one in wanted.where]
    return describe_options(reason=wanted.reason, rule=wanted.rule, run_id=wanted.run_id, where=where)


def _replay(context: RunContext, selection: Selection, submit: Submit) -> None:
    from tidegate.rework.replay.texts import TextFiles

    paths, facts = context.paths, context.facts
    assert facts is not None
    check_agreement(facts, context.name)
    check_pipeline(facts, context.spec)
    work = Rework(context.name, "replay", context.report.run_id)
    folder = f"replays/{work.app_id}/{secrets.token_hex(4)}"
    _clear(context)  # what was begun is finished by now
    beside = replace(context, paths=paths.beside(folder), spec=as_texts(context.spec), facts=None)
    texts = TextFiles(beside.paths)
    choice = choose(context.project, paths, context.spec, facts, selection, texts.take)
    texts.flush()
    if not choice.records:
        _end_without(context, choice, selection)
        return
    manifests = _read(context, beside, choice, texts, folder, submit)
    verdict = judge_beside(beside, manifests, counts_quarantined=False)
    context.report.quality = verdict.quality
    if not verdict.passed:
        where = f"run {context.report.run_id} of pipeline {context.name}"
        raise catalogue.REPLAY_HELD(where=where, reasons="; ".join(verdict.reasons), name=context.name)
    publish_replay(context, choice, manifests, verdict, folder)
    _clear(context)


def _clear(context: RunContext) -> None:
    """Remove what tries of replays have left. It is listed before the lease is looked at: whoever slept until another
    process was at a replay leaves that alone, for every try has a name of its own."""
    works = storage.list_folders(context.paths.replays)
    tries = [one for work in works for one in storage.list_folders(work)]
    context.lease.check()
    for one in tries:
        storage.remove_tree(one)
    for folder in (*works, context.paths.replays):
        storage.remove_empty_folder(folder)


def _end_without(context: RunContext, choice: Choice, selection: Selection) -> None:
    """Nothing can be put through: an error where something was meant."""
    _clear(context)
    if not choice.refused:
        if selection.wanted.run_id:
            context.report.add_note("--run-id chooses records by the run that quarantined them; --as names this replay")
        end_with_nothing(context, "there is no such record in quarantine: nothing to replay")
        return
    raise _refusal(context.name, choice)


def _refusal(name: str, choice: Choice) -> TidegateError:
    told = "; ".join(f"{count:,}: {why}" for why, count in choice.refused.most_common())
    count = count_of(choice.refused.total(), "record")
    return catalogue.REPLAY_REFUSED(where=f"pipeline {name}", count=count, reasons=told, name=name)


def _read(
    context: RunContext, beside: RunContext, choice: Choice, texts: TextFiles, folder: str, submit: Submit
) -> list[BatchManifest]:
    """Have Spark put the texts through into the job's own staging; the batches."""
    spec, side = context.spec, beside.paths
    starts: dict[str, Start] = {name: {} for name in spec.streams}
    reading = Reading(
        birth=new_birth(side, spec, starts, settings_at_birth(context.project, spec)),
        chosen={name: Chosen(texts.links.get(name, {}), {}, None, []) for name in spec.streams},
        links=texts.links,
        partition_columns=texts.partition_columns,
        load=Load(texts.bytes, sum(map(len, texts.links.values()))),
        of_texts=True,
        one_row_each=choice.has_rejected,
    )
    build_rows(context, beside, folder, reading, submit)
    manifests = read_built(beside)
    _check_read(context, beside, choice, manifests)
    return manifests


def _check_read(context: RunContext, beside: RunContext, choice: Choice, manifests: list[BatchManifest]) -> None:
    where, name = f"pipeline {context.name}", context.name
    birth = read_birth(beside.paths)
    if birth is not None and birth.keeps_state:
        raise catalogue.REPLAY_NOT_APPEND(where=where, why="the transform as it is now keeps state", name=name)
    read = sum(one.read for one in manifests)
    if read != choice.records:
        offered = count_of(choice.records, "record")
        run_id = context.report.run_id
        raise catalogue.REPLAY_OTHER_RECORDS(where=where, offered=offered, read=read, name=name, run_id=run_id)
    entered, transformed = sum(one.entered for one in manifests), sum(one.transformed for one in manifests)
    if choice.has_rejected and transformed > entered:
        told = count_of(transformed, "row"), count_of(entered, "record")
        raise catalogue.REPLAY_SEVERAL_ROWS(where=where, transformed=told[0], entered=told[1], name=name)


def look_at_replay(project: Project, name: str, selection: Selection) -> outputs.ReplayPlan:
    """``--dry-run``: what would be put through, and what stays and why. No JVM; raises UsageError as the replay does,
    for a selection that names what is not there."""
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
