"""The one step in which a replayed record leaves quarantine and its rows come into the table.

Its intent has two halves, and whoever finishes it does both: the quarantine table's files are written anew without the
records that were put through, new files hold those that were quarantined again, and the rows are added to the table.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from functools import partial

from tidegate import storage
from tidegate.gate.increment import publish_plan
from tidegate.process.machine import now_text
from tidegate.quarantine.schema import QUARANTINE_SCHEMA_JSON
from tidegate.recovery.context import RunContext
from tidegate.replay.choose import Choice
from tidegate.reports.report import RunReport, check_balance, fill_from_manifests
from tidegate.reports.verdicts import StoredVerdict
from tidegate.staging.manifest import BatchManifest, StagedFile, joined_rule
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.origins import EDITED, ORIGINS, REPLAYED, tell_origins
from tidegate.table.publish.rework import Rework, plan_rework

_OF_FILES = ("files", "bytes", "offsets")
"""What a report says of a source that was read: a replay has read none."""


def publish_replay(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], verdict: StoredVerdict, folder: str
) -> None:
    """Publish what the job in ``folder`` (below the state folder) has made of the chosen records; the report has it."""
    report = _final_report(context, choice, manifests, verdict)
    publish_plan(context, partial(_plan, context, choice, manifests, folder, report))
    state = read_table_state(context.paths.table)
    report.table["version"] = None if state is None else state.version
    context.report = report


def _plan(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], folder: str, report: RunReport
) -> PublishIntent:
    paths, token = context.paths, secrets.token_hex(6)
    app_id = Rework(context.name, "replay", context.report.run_id).app_id
    table, aside = (read_table_state(path, (app_id,)) for path in (paths.table, paths.quarantine))
    before = -1 if table is None else table.txns.get(app_id, -1)
    # Past what either log has: a try that was given up is not taken for this one.
    part = max(before, -1 if aside is None else aside.txns.get(app_id, -1)) + 1
    work = Rework(context.name, "replay", context.report.run_id, part)
    return plan_rework(
        work,
        target="table",
        table=table,
        table_files=list_data_files(paths.table),
        token=token,
        new=[file.below(folder) for one in manifests for file in one.files],
        outcome="published",
        metadata={
            REPLAYED: json.dumps(sorted(choice.batches)),
            EDITED: str(choice.edited),
            "tidegate.partitioned": json.dumps(joined_rule(manifests)),
            "tidegate.rows": json.dumps(report.rows),
            "tidegate.verdict": str(report.quality.get("verdict")),
        },
        report=report.to_json(),  # type: ignore[arg-type]
        schema_json=manifests[-1].schema_json,
        before=before,
        companion=_plan_quarantine(context, work, choice, manifests, folder, token),
    )


def _plan_quarantine(
    context: RunContext,
    work: Rework,
    choice: Choice,
    manifests: Sequence[BatchManifest],
    folder: str,
    token: str,
) -> PublishIntent:
    """Out go the records that were put through, in come those that were quarantined again."""
    paths = context.paths
    files, state = list_data_files(paths.quarantine), read_table_state(paths.quarantine, (work.app_id,))
    losing = [file for file in files if file.path in choice.taken]
    new = [file.below(folder) for one in manifests for file in one.quarantine_files]
    carried, carried_of = [], []
    for number, file in enumerate(losing):
        if len(choice.taken[file.path]) < file.rows:
            carried.append(_copy_rest(context, file, choice.taken[file.path], f"{folder}/rest-{token}/{number:05d}"))
            carried_of.append(choice.origins[file.path])
    plan = plan_rework(
        work,
        target="quarantine",
        table=state,
        table_files=files,
        token=token,
        new=new,
        carried=carried,
        remove=losing,
        outcome="published",
        schema_json=QUARANTINE_SCHEMA_JSON,
        before=-1 if state is None else state.txns.get(work.app_id, -1),
    )
    names = [[file.path] for file in plan.files_to_add[len(new) :]]
    told = [([file.path for file in plan.files_to_add[: len(new)]], choice.batches)]
    plan.custom_metadata[ORIGINS] = tell_origins([*told, *zip(names, carried_of, strict=True)])
    return plan


def _copy_rest(context: RunContext, file: DataFile, taken: Sequence[int], target: str) -> StagedFile:
    """A file of the quarantine table without the rows of these numbers; ``target`` is relative to the state folder."""
    import pyarrow as pa

    from tidegate.table.upsert.rewrite import copy_rows

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
    """The report once this is published, but for the version."""
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
