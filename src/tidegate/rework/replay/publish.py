"""Publish a replay: remove its records from quarantine and add their rows to the table, in one step.

Its intent has two halves, and recovery always finishes both: quarantine files are rewritten without the replayed
records, records that were quarantined again are added there, and the rows are added to the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from tidegate.core import storage
from tidegate.core.process.machine import now_text
from tidegate.rework.backfill.plan_rows import plan_quarantine_half, plan_rows
from tidegate.rework.replay.choose import Choice
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import RunReport, check_balance, fill_from_manifests
from tidegate.runs.reports.verdicts import StoredVerdict
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.origins import EDITED, REPLAYED
from tidegate.table.publish.rework import Rework

_OF_FILES = ("files", "bytes", "offsets")
"""Figures of a source that was read, which a replay has not done."""


def publish_replay(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], verdict: StoredVerdict, folder: str
) -> None:
    """Publish what the job in ``folder`` (below the state folder) has staged, and add it to the report."""
    report = _final_report(context, choice, manifests, verdict)
    publish_plan(context, partial(_plan, context, choice, manifests, folder, report))
    state = read_table_state(context.paths.table)
    report.table["version"] = None if state is None else state.version
    context.report = report


def _plan(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], folder: str, report: RunReport
) -> PublishIntent:
    return plan_rows(
        context,
        new=[file.below(folder) for one in manifests for file in one.files],
        table_files=list_data_files(context.paths.table),
        manifests=manifests,
        report=report,
        metadata={REPLAYED: json.dumps(sorted(choice.batches)), EDITED: str(choice.edited)},
        plan_quarantine=partial(_plan_quarantine, context, choice, manifests, folder),
    )


def _plan_quarantine(
    context: RunContext, choice: Choice, manifests: Sequence[BatchManifest], folder: str, work: Rework, token: str
) -> PublishIntent:
    """Plan the quarantine half: remove the replayed records, add those that were quarantined again."""
    paths = context.paths
    losing = [file for file in list_data_files(paths.quarantine) if file.path in choice.taken]
    carried = []
    for number, file in enumerate(losing):
        if len(choice.taken[file.path]) < file.rows:
            rest = _copy_rest(context, file, choice.taken[file.path], f"{folder}/rest-{token}/{number:05d}")
            carried.append((rest, choice.origins[file.path]))
    new = [file.below(folder) for one in manifests for file in one.quarantine_files]
    return plan_quarantine_half(paths, work, token, new=new, of=choice.batches, remove=losing, carried=carried)


def _copy_rest(context: RunContext, file: DataFile, taken: Sequence[int], target: str) -> StagedFile:
    """Copy a quarantine file without the ``taken`` row numbers; ``target`` is relative to the state folder."""
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
