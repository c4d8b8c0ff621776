"""``tidegate quarantine replay``: process quarantined records again, with the current schema, transform and suite.

The same gate judges them, and the step that publishes them removes them from quarantine.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.backfill.build import Reading, build_rows, read_built
from tidegate.rework.replay.choose import Choice, Selection, check_pipeline, choose
from tidegate.rework.replay.publish import publish_replay
from tidegate.runs.drive import Load
from tidegate.runs.gate.increment import judge_side_job
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
    """Replay the selected records and return the report. A retry with the same run id changes nothing.

    Raises UsageError REPLAY_NOT_APPEND, REPLAY_REFUSED, REPLAY_NOT_THERE, REPLAY_SEVERAL_ROWS or QUARANTINE_UNKNOWN,
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
    from tidegate.rework.replay.texts import TextFiles

    paths, facts = context.paths, context.facts
    assert facts is not None
    check_agreement(facts, context.name)
    check_pipeline(facts, context.spec)
    work = Rework(context.name, "replay", context.report.run_id)
    folder = f"replays/{work.app_id}/{secrets.token_hex(4)}"
    _clear(context)  # an attempt that had begun to publish is finished by now
    job = replace(context, paths=paths.beside(folder), spec=as_texts(context.spec), facts=None)
    texts = TextFiles(job.paths)
    choice = choose(context.project, paths, context.spec, facts, selection, texts.take)
    texts.flush()
    if not choice.records:
        _end_without(context, choice, selection)
        return
    manifests = _read(context, job, choice, texts, folder, submit)
    verdict = judge_side_job(job, manifests, counts_quarantined=False)
    context.report.quality = verdict.quality
    if not verdict.passed:
        where = f"run {context.report.run_id} of pipeline {context.name}"
        raise errors.REPLAY_HELD(where=where, reasons="; ".join(verdict.reasons), name=context.name)
    publish_replay(context, choice, manifests, verdict, folder)
    _clear(context)


def _clear(context: RunContext) -> None:
    """Remove what attempts of replays have left. They are listed before the lease is checked, and each has a unique
    name: so a stale process does not remove another process's replay."""
    works = storage.list_folders(context.paths.replays)
    attempts = [one for work in works for one in storage.list_folders(work)]
    context.lease.check()
    for one in attempts:
        storage.remove_tree(one)
    for folder in (*works, context.paths.replays):
        storage.remove_empty_folder(folder)


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
        partition_columns=texts.partition_columns,
        load=Load(texts.bytes, sum(map(len, texts.links.values()))),
        of_texts=True,
        one_row_each=choice.has_rejected,
    )
    build_rows(context, job, folder, reading, submit)
    manifests = read_built(job)
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
        rows, records = count_of(transformed, "row"), count_of(entered, "record")
        raise errors.REPLAY_SEVERAL_ROWS(where=where, transformed=rows, entered=records, name=name)


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
