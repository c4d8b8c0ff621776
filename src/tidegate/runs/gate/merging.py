"""What update and complete mode add to the gate: what remains of an increment, and what it replaces in the table."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.verdicts import StoredVerdict, not_audited
from tidegate.state.digest import check_whole
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.state import digest_files, list_data_files, read_table_state
from tidegate.table.publish.fit import check_rows_fit
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.plan import plan_replacement
from tidegate.table.schema import merge_schemas
from tidegate.table.upsert.folded import Folded, find_folded, load_folded


def load_judged(
    context: RunContext, batches: Sequence[BatchManifest], verdict: StoredVerdict, *, decided: bool = False
) -> Folded | None:
    """What remains of the batches of one query, as the verdict saw it; None when it was judged in append mode.

    ``decided``: a person decided on these rows, under whatever mode and keys they were folded. Raises TryAgainError
    NOT_AUDITED when these were changed since and nobody decided, or the files are gone.
    """
    mode = context.spec.output_mode
    if not verdict.folds and (decided or mode == "append"):
        return None
    if decided or mode == "append":
        folded = find_folded(context.paths, batches) if decided else None
    else:
        folded = load_folded(context.paths, batches, mode, context.spec.table.keys)
    if folded is None or folded.token not in verdict.folds:
        raise not_audited(context.name, verdict.run_id)
    return folded


def plan_merge(
    context: RunContext,
    batches: Sequence[BatchManifest],
    folded: Folded,
    *,
    run_id: str,
    app_version_before: int,
    custom_metadata: Mapping[str, str],
) -> PublishIntent:
    """The publish of ``folded`` into the table as it is now; files that lose rows are copied without them first."""
    from tidegate.table.upsert.merge import replace_rows

    paths, last, token = context.paths, batches[-1], secrets.token_hex(6)
    partition_by = list(context.spec.table.partition_by)
    check_rows_fit(merge_schemas([m.schema_json for m in batches]), partition_by, read_table_state(paths.table))
    check_whole(paths.state, folded.files, context.name)  # their keys say what leaves the table
    table_files = list_data_files(paths.table)
    replacement = replace_rows(
        folded.mode,
        folded.files,
        folded.keys,
        table_path=paths.table,
        table_files=table_files,
        state=paths.state,
        folder=paths.merge_folder(last.query_id, last.batch_id, token),
    )
    return plan_replacement(
        batches,
        folded,
        replacement,
        token=token,
        table_files=digest_files(table_files),
        run_id=run_id,
        partition_by=partition_by,
        app_version_before=app_version_before,
        custom_metadata=dict(custom_metadata),
    )
