"""``tidegate reset``: a new checkpoint where nothing disagrees, starting where the old one stopped, or a new table.

What it does is a repair (:mod:`tidegate.runs.restart.repair`) that a person asked for. It shows its plan first, and
acts only when the pipeline's name is given once more.
"""

from __future__ import annotations

from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.outputs import Repair
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.verdicts import find_hold
from tidegate.runs.restart.rebuild import query_keeps_state
from tidegate.runs.restart.repair import look_at_repair, no_repair, repair_pipeline
from tidegate.runs.restart.repair_plan import RepairPlan
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.open_state import describe_open_state, read_open_state
from tidegate.table.log.state import has_log


def reset_pipeline(project: Project, name: str, *, from_beginning: bool, dry_run: bool, confirm: str | None) -> Repair:
    """The plan (``dry_run``), or what was done. ``from_beginning`` sets table and quarantine aside and reads everything
    again; without it the new checkpoint starts where the table's log ends, and the table stays.

    Raises UsageError RESET_UNCONFIRMED, with the plan, unless ``confirm`` is the pipeline's name; RESET_STATE for a
    query with state that is to start where it stopped; what :func:`tidegate.runs.restart.repair.repair_pipeline` does.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec, needs_log=not from_beginning)
    if facts.birth is None and not facts.checkpoint.exists and not has_log(paths.table):
        return no_repair(name, "it has not run yet, and there is no checkpoint to reset", dry_run=dry_run)
    if not from_beginning and query_keeps_state(facts, spec):
        raise _lose_state(paths, facts, name)
    value, plan = look_at_repair(project, spec, paths, from_beginning, dry_run=True, asked=errors.RESET())
    if facts.table is not None and not from_beginning:
        kept = f"keep the table as it is, at version {facts.table.version}, and what is in quarantine"
        value["actions"].append(kept)
    value["next_run"] += _describe_more(project, spec, paths, facts, plan, from_beginning)
    if dry_run:
        return value
    if confirm != name:
        option = " --from-beginning" if from_beginning else ""
        plan_text = "; ".join([*value["actions"], *(f"the next run {one}" for one in value["next_run"])])
        raise errors.RESET_UNCONFIRMED(where=f"pipeline {name}", name=name, plan=plan_text, option=option)
    return repair_pipeline(project, name, dry_run=False, rebuild=from_beginning, asked=errors.RESET())


def _lose_state(paths: PipelinePaths, facts: Facts, name: str) -> UsageError:
    note = read_open_state(paths, facts.query_id)
    kept = "how much of it, no run has noted"
    if note is not None:
        windows = count_of(len(describe_open_state(note)["open_windows"]), "open window")
        kept = f"{count_of(note.rows, 'row')}, {windows}, {count_of(note.memory_bytes, 'byte')}"
    return errors.RESET_STATE(where=f"pipeline {name}", name=name, kept=kept)


def _describe_more(
    project: Project,
    spec: PipelineSpec,
    paths: PipelinePaths,
    facts: Facts,
    plan: RepairPlan | None,
    from_beginning: bool,
) -> list[str]:
    """What the next run does with state and held increments, and what the sources no longer have."""
    sentences = []
    if from_beginning:
        sentences.append(
            "builds state again from what is read" if query_keeps_state(facts, spec) else "has no state to build"
        )
    if (hold := find_hold(paths, facts.unpublished)) is not None:
        sentences.append(f"reads again and judges again what is held under run {hold.run_id}")
    sources = open_sources(project, paths, spec)
    for name, start in ({} if plan is None else plan.starts).items():
        try:
            gone = sources[name].find_gone(start)
        except TidegateError as error:
            gone = [f"it cannot be asked now ({error.code})"]
        sentences += [f"does not find all of source {name} again: {one}" for one in gone]
    return sentences
