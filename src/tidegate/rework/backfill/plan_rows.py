"""The publish of rows that a backfill, a refresh or a replay has built: one intent, with a half for each table.

Whoever finishes it does both: rows come into the table, perhaps in the place of others, and records come into
quarantine or leave it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tidegate.core.paths import PipelinePaths
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import RunReport
from tidegate.state.manifest import BatchManifest, StagedFile, joined_rule
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.origins import ORIGINS, Batch, tell_origins
from tidegate.table.publish.rework import Rework, plan_rework
from tidegate.table.quarantine.schema import QUARANTINE_SCHEMA_JSON

PlanQuarantine = Callable[[Rework, str], PublishIntent | None]
"""Plans the half in quarantine of a work, with the token that names its files; None where there is none."""


def plan_rows(
    context: RunContext,
    *,
    new: Sequence[StagedFile],
    table_files: Sequence[DataFile],
    manifests: Sequence[BatchManifest],
    report: RunReport,
    metadata: Mapping[str, str],
    plan_quarantine: PlanQuarantine,
    remove: Sequence[DataFile] = (),
) -> PublishIntent:
    """The publish of ``new`` files, which are of ``manifests``, in the place of ``remove``. ``report`` is the one that
    the work is done with, ``table_files`` are what the plan was made for."""
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    table, aside = (read_table_state(path, (work.app_id,)) for path in (paths.table, paths.quarantine))
    before = -1 if table is None else table.txns.get(work.app_id, -1)
    # Past what either log has: a try that was stopped between the two, or given up, is not taken for this one.
    work = replace(work, part=max(before, -1 if aside is None else aside.txns.get(work.app_id, -1)) + 1)
    token = secrets.token_hex(6)
    return plan_rework(
        work,
        target="table",
        table=table,
        table_files=table_files,
        token=token,
        new=new,
        remove=remove,
        outcome="published",
        metadata={
            **metadata,
            "tidegate.partitioned": json.dumps(joined_rule(manifests)),
            "tidegate.rows": json.dumps(report.rows),
            "tidegate.verdict": str(report.quality.get("verdict")),
        },
        report=report.to_json(),  # type: ignore[arg-type]
        schema_json=manifests[-1].schema_json if new else None,
        before=before,
        companion=plan_quarantine(work, token),
    )


def plan_quarantine_half(
    paths: PipelinePaths,
    work: Rework,
    token: str,
    *,
    new: Sequence[StagedFile],
    of: Collection[Batch],
    remove: Sequence[DataFile] = (),
    carried: Sequence[tuple[StagedFile, Collection[Batch]]] = (),
) -> PublishIntent:
    """The half in quarantine: ``new`` files, which are ``of`` some batches, come in, ``remove`` leave; ``carried`` are
    what remains of those, each with its batches."""
    state = read_table_state(paths.quarantine, (work.app_id,))
    plan = plan_rework(
        work,
        target="quarantine",
        table=state,
        table_files=list_data_files(paths.quarantine) if remove else None,
        token=token,
        new=new,
        carried=[file for file, _ in carried],
        remove=remove,
        outcome="published",
        schema_json=QUARANTINE_SCHEMA_JSON,
        before=-1 if state is None else state.txns.get(work.app_id, -1),
    )
    made = [file.path for file in plan.files_to_add]
    rest = [([path], batches) for path, (_, batches) in zip(made[len(new) :], carried, strict=True)]
    plan.custom_metadata[ORIGINS] = tell_origins([(made[: len(new)], of), *rest])
    return plan
