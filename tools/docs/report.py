"""``report.md``: the fields of the run report, checked against the code that fills them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Sink
from tidegate.core.paths import PipelinePaths
from tidegate.quality.engine import RuleResult
from tidegate.quality.verdict import Verdict
from tidegate.runs.recovery.finish import Increment, table_figures
from tidegate.runs.reports.report import ROW_KEYS, RunReport
from tools.docs.markdown import MADE, code, table

REPORT = {
    "pipeline": "the pipeline's name",
    "run_id": "the run: `--run-id`, Airflow's run id, or one that tidegate made",
    "mode": "`incremental`; `reread` when a held increment was read again under its run id; else the command: "
    "`adopt`, `backfill`, `maintain`, `refresh`, `rollback`, `replay` (of quarantine)",
    "outcome": "`published`, `nothing_new`, `held`, `discarded` or `failed`; null while the steps run, and when the "
    "run died between them",
    "started_at": "ISO time stamp, UTC",
    "ended_at": "the same; null during the run",
    "duration_seconds": "seconds by step: `ingest`, `audit`, `publish`, `deliver`; a retried step's last try",
    "requests": "requests to object stores by step, repeated ones included; without those with which Spark's workers "
    "read the objects of a source; empty where all is on a file system",
    "sources": "by source: see below",
    "batches": "micro-batches of the increment",
    "watermark": "the watermark that the last batch worked with, ISO, UTC; null without one",
    "rows": "counts of the increment: see below",
    "quality": "the verdict: see below",
    "table": "what was committed: see below; empty before",
    "state": "of a query with state: `{rows, memory_bytes, open_windows: [[start, end]], event_times: {source: ...}}`; "
    "empty for others",
    "sinks": "by further sink: see below; how far each was when the run ended",
    "error": "null, or the error that ended the run: see below. `SINK_FAILED` with `published`: the table is out, a "
    "sink is behind",
    "adopted_runs": "runs that staged batches and died before publishing; this run checks and publishes them",
    "published_by": "another run that published what this run had staged, or null",
    "accepted_loss": "null, or `{run_id, at, reason, sources}`: what `--accept-loss` put on record, with the ranges",
    "decision": "null, or `{decision, who, reason, at}` of `release`, `discard` or `reread`",
    "asked": "what a backfill, a refresh, a replay or a rollback was given for, as options: a retry with this "
    "run id must ask for the same; null for others, and in reports of earlier versions",
    "rebuilt": "the partitions that a backfill has rebuilt so far; `the whole table` of a refresh, or `the table, but "
    "for its older part`",
    "notes": "remarks for a reader",
}
ROWS = {
    "read": "records that came out of the sources, malformed ones included",
    "malformed": "records that do not parse or do not fit the schema; all are in quarantine",
    "entered": "records that were counted in front of the transform: what was read without the malformed ones",
    "late": "records that came after everything they belong to was closed; all are in quarantine",
    "transformed": "rows that left the transform",
    "rejected": "rows that broke a rule with `on_failure: quarantine`; all are in quarantine",
    "staged": "rows that were written to staging",
    "published": "new rows of the table's commit; 0 for a held or discarded increment",
    "duplicates": "rows that a deduplication dropped, by Spark's count",
    "superseded": "staged rows that a newer row replaced, in the same increment or, with `table.order_by`, in the "
    "table; 0 for a run in append mode",
}
SOURCE = {
    "rows": "records read from this source",
    "malformed": "of these, malformed",
    "files": "files read (file sources)",
    "bytes": "size of these files on disk",
    "offsets": "`{topic: {partition: [from, until]}}`, `until` exclusive (Kafka)",
    "pending_offsets": "offsets that were pending when the run began (Kafka)",
    "backlog": "left for a later run: files that are still settling, or offsets that were pending when the run began",
    "unknown_fields": "`{field: position}`: JSON fields that the schema does not have, and where each was seen first",
    "skipped": "`[{path, why, fix}]`: what is in the folder and is not read (hidden, empty, still written to, ...); "
    "`fix` only where a person has to change something before it can be read",
    "settling": "`[{path, age_seconds, why}]`: changed more recently than `settle`, or its last line is still open",
    "changed": "`[{path, was, now, how, unread_bytes, policy}]`: changed after it was taken, and not read again",
    "vanished": "`[path]`: taken by an earlier run, and no longer there",
    "schema": "the columns that were inferred and are kept (`schema: infer`); `infer` before a run has read a file",
    "replayable": "false for `rate` and `socket`; absent where records can be read again",
    "late": "records that came too late, where there were some",
    "partly_late": "records that came too late for some of their windows and not for others: they are in the table",
    "static": "a static source: the version that the run read",
    "lost": "`[path]`: taken, and gone before it was read",
}
QUALITY = {
    "suite": "name of the suite; null when the pipeline has none",
    "verdict": "`passed`, `warned` (a warning failed), `failed` (a critical rule failed) or `unchecked` (no suite)",
    "results": "one entry per rule, and one named `max_quarantine_share` when the spec sets that limit, or when more "
    "than half of many records are malformed or rejected",
    "warnings": "what passes and should be looked at: without that limit, how many records are malformed or rejected, "
    "and what most of them are quarantined for",
}
RESULT = {
    "rule": "the rule's name: `meta.rule` of the suite, else made from type and columns",
    "type": "Great Expectations' type; `tidegate` for `max_quarantine_share`",
    "severity": "`critical`, `warning` or `info`",
    "success": "whether the rule holds for the staged rows",
    "unexpected_count": "offending rows; null for rules that have none",
    "quarantined": "of a rule with `on_failure: quarantine`: the rows that it put into quarantine, so that they are "
    "not among those judged; else null. A report of an earlier version does not have it",
    "observed_value": "the figure an aggregate rule saw; never a value of a row",
}
TABLE = {
    "path": "folder of the table",
    "version": "the version of the table's log that holds the increment",
    "files_added": "parquet files of the commit, those included that hold what stays of a file that was taken out",
    "files_removed": "files the commit took out; 0 for a run in append mode",
    "rows_added": "new rows of the commit",
    "rows_removed": "rows the commit replaced; 0 for a run in append mode",
}
SINK = {
    "type": "`kafka`, `foreach_batch`, `foreach` or `console`",
    "name": "what is fed: `kafka:TOPIC` (`kafka:*` where each row names its topic), `foreach:FILE:NAME`, "
    "`foreach_batch:FILE:NAME`, `console`",
    "version": "the version of the table up to which it was fed; null: none yet",
    "behind": "published versions that it has not had; null when the table's log no longer shows it",
    "error": "null, or why it could not be fed",
}
ERROR = {
    "code": "stable name: [errors.md](errors.md)",
    "message": "what happened, with values",
    "where": "file and line, topic, batch, or run",
    "next_run": "what the next run will do",
    "fix": "the command or the act that fixes it",
    "exit_code": "64, 65, 66, 70, 75 or 78",
}


def render_report() -> str:
    """The page. Raises KeyError when a field of the code is not described here, or the other way round."""
    nowhere = PipelinePaths("x", Path("x"), Path("x"), Path("x"), Path("x"))
    parts = [
        MADE,
        "# The run report\n",
        "One JSON file per run, `<state>/<pipeline>/runs/<run id>.json`. `tidegate run --json` prints it, each Airflow "
        "task returns it as its XCom, the asset event carries it (with long lists cut), and the UI shows it.\n",
        "`rows` balances, or the run fails (`UNBALANCED`): read = malformed + entered; "
        "transformed = rejected + staged; published + superseded = staged once the increment is in the table. The "
        "figures come from the batch manifests and the table's log, never from a process's memory, so a retry reports "
        "the same.\n",
        _fields(REPORT, [field.name for field in fields(RunReport)]),
        "## rows\n",
        _fields(ROWS, ROW_KEYS),
        "## sources.NAME\n",
        "Keys without a value are absent.\n",
        _fields(SOURCE, SOURCE),
        "## quality\n",
        _fields(QUALITY, Verdict("passed", None).quality),
        "### quality.results[]\n",
        _fields(RESULT, [field.name for field in fields(RuleResult)]),
        "## table\n",
        _fields(TABLE, table_figures(nowhere, [], Increment("r", [], []), published=True, whole=True)),
        "A rollback adds `rolled_back_to`, the version whose rows the table has again, and with `--then leave-out` "
        "`left_out`: `{records, rows, batches: [[query id, first, last]]}`, what stays taken and is not in the "
        "table. A refresh or backfill that changed the columns of the table adds `columns`: `{before, after}`, each "
        "`{name: type}`.\n",
        "## sinks[]\n",
        _fields(SINK, Sink.__annotations__),
        "## error\n",
        _fields(ERROR, TidegateError("X", "x").to_dict()),
        "A SpecError also has `faults`: `[{code, file, line, key, message, fix}]`.\n",
    ]
    return "\n".join(parts)


def _fields(described: Mapping[str, str], names: Iterable[str]) -> str:
    if wrong := set(described) ^ set(names):
        raise KeyError(f"fields and their descriptions differ in {sorted(wrong)}: correct tools/docs/report.py")
    return table(["field", "holds"], [[code(name), text] for name, text in described.items()])
