"""Plan the publish of a side job: one intent for the table and for quarantine.

Recovery always finishes both halves: rows are added to the table or replace others, and records are added to quarantine
or removed.
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
from tidegate.table.publish.origins import ORIGINS, Batch, dump_origins
from tidegate.table.publish.rework import Rework, plan_rework
from tidegate.table.quarantine.schema import QUARANTINE_SCHEMA_JSON

PlanQuarantine = Callable[[Rework, str], PublishIntent | None]
"""Plans the quarantine half of a job, with the token in its file names; None where nothing changes in quarantine."""


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
    """Plan the publish of the ``new`` files of ``manifests``, replacing ``remove``. ``report`` is the final report,
    ``table_files`` are the files that the plan was made for."""
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    table, quarantine = (read_table_state(path, (work.app_id,)) for path in (paths.table, paths.quarantine))
    before = -1 if table is None else table.txns.get(work.app_id, -1)
    # Past both logs: an attempt that stopped between the two, or was abandoned, must not be taken for this one.
    work = replace(work, part=max(before, -1 if quarantine is None else quarantine.txns.get(work.app_id, -1)) + 1)
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
    """Plan the quarantine half: add the ``new`` files, which are ``of`` some batches, and remove the files ``remove``;
    ``carried`` are copies of their remaining records, each with its batches."""
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
    plan.custom_metadata[ORIGINS] = dump_origins([(made[: len(new)], of), *rest])
    return plan
