"""Print for people what a run, a try or maintenance did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING

from tidegate.cli.lines import (
    cell,
    show_hindrance,
    show_lines,
    show_options,
    show_table,
    source_line,
    source_notes,
    state_line,
)
from tidegate.core.errors import TidegateError
from tidegate.core.words import count_of, escape_line, list_first
from tidegate.runs.reports.report import ROW_KEYS
from tidegate.spark.driver.progress import READING, describe_event
from tidegate.table.schema import describe_columns

if TYPE_CHECKING:
    from tidegate.core import outputs
    from tidegate.spec.models import FilesSource, KafkaSource

_EXAMPLE_AT_MOST = 200
"""Characters of a record that are shown as an example."""
_PARTITIONS_AT_MOST = 5
_WAITING_AT_MOST = 5
_TRIED_AT_MOST = 20
"""Rows of a try that are shown."""
_TRIED: tuple[outputs.RowKey, ...] = ("read", "malformed", "late", "transformed", "rejected", "staged")
"""Counts of a try that are shown."""
_RARE = ("late", "superseded", "duplicates")
"""Counts that are shown only when they are not 0."""
_MAINTENANCE = {
    "expire": "partitions leave the table",
    "compact": "small files are put together",
    "replaced": "replaced files go",
    "log": "commits of the log get a compaction file",
    "staging": "dead staging goes",
    "reports": "old reports, progress and driver logs go",
    "backups": "old backups of repairs go",
    "checkpoints": "checkpoints of queries that are over go",
    "source": "files that were read are archived or deleted",
}


def show_report(report: outputs.RunReport) -> None:
    """Print a run report."""
    rows = report["rows"]
    print(f"{report['pipeline']}  run {report['run_id']}  {report['outcome'] or 'in progress'}")
    for name, source in report["sources"].items():
        print(f"  source {name}: {source_line(source)}")
        for line in source_notes(source):
            print(f"    {line}")
    if report["outcome"] != "nothing_new" and report["mode"] not in ("maintain", "rollback"):
        # "entered" is the difference of the two before it, or the run has failed.
        shown = [key for key in ROW_KEYS if key != "entered" and (rows[key] or key not in _RARE)]
        counts = "  ".join(f"{key} {rows[key]:,}" for key in shown)
        print(f"  rows: {counts}")
        _show_quality(report["quality"])
    if report["state"]:
        print(f"  state: {state_line(report['state'])}, watermark {report['watermark'] or 'none yet'}")
    _show_table(report)
    show_lines("note", report["notes"])
    show_sinks(report["sinks"])
    if report["adopted_runs"]:
        print(f"  finished what these runs had begun: {', '.join(report['adopted_runs'])}")
    if report["published_by"]:
        print(f"  published by run {report['published_by']}")
    if report["accepted_loss"] is not None:
        print(f"  accepted loss: {report['accepted_loss']['reason']}")
    if (decision := report["decision"]) is not None:
        print(f"  {decision['decision']} by {decision['who']}: {decision['reason']}")
    if seconds := report["duration_seconds"]:
        print("  seconds: " + "  ".join(f"{step} {value:.1f}" for step, value in seconds.items()))
    if requests := report["requests"]:
        print("  requests to object stores: " + "  ".join(f"{step} {number:,}" for step, number in requests.items()))


def _show_table(report: outputs.RunReport) -> None:
    """Print the version that a run made, what a rollback removed, and what a backfill replaced."""
    table = report["table"]
    if table.get("version") is not None:
        print(f"  table: {table['path']}  version {table['version']}  {_changed_line(report)}")
    if "rolled_back_to" in table:
        print(
            f"  rolled back to version {table['rolled_back_to']}: "
            f"-{count_of(table['rows_removed'], 'row')} in {count_of(table['files_removed'], 'file')}"
        )
    if report["rebuilt"]:
        print(
            f"  rebuilt: {list_first(report['rebuilt'], _PARTITIONS_AT_MOST)}, in the place of "
            f"{count_of(table.get('rows_removed', 0), 'row')} in {count_of(table.get('files_removed', 0), 'file')}"
        )
    if "columns" in table:
        print(f"  columns: {describe_columns(table['columns']['before'], table['columns']['after'] or {})}")


def _changed_line(report: outputs.RunReport) -> str:
    table = report["table"]
    if report["mode"] != "maintain":
        return f"+{count_of(table['rows_added'], 'row')} in {count_of(table['files_added'], 'file')}"
    rows = f"  -{count_of(table['rows_removed'], 'row')}" if table["rows_removed"] else ""
    return f"+{count_of(table['files_added'], 'file')}  -{count_of(table['files_removed'], 'file')}{rows}"


def show_maintenance(value: outputs.Maintenance) -> None:
    """Print what ``maintain`` would do."""
    print(f"{value['pipeline']}: {'a maintenance would do this' if value['items'] else 'nothing to do'}")
    for item in value["items"]:
        parts = [count_of(item["files"], "file")]
        parts += [count_of(item["bytes"], "byte")] if item["bytes"] else []
        parts += [count_of(item["rows"], "row")] if item["rows"] else []
        parts += [f"in {count_of(item['partitions'], 'partition')}"] if item["partitions"] else []
        print(f"  {item['of']}: {_MAINTENANCE[item['work']]}: {', '.join(parts)}")
    show_lines("note", value["notes"])
    show_hindrance(value["hindrance"])


def show_sinks(sinks: Sequence[outputs.Sink]) -> None:
    """Print how far each sink is."""
    for sink in sinks:
        had = "nothing yet" if sink["version"] is None else f"up to version {sink['version']}"
        behind = "an unknown number of versions" if sink["behind"] is None else count_of(sink["behind"], "version")
        print(f"  sink {sink['name']}: {had}" + (f", behind: {behind}" if sink["behind"] != 0 else ""))
        if sink["error"]:
            print(indent(sink["error"], "    "))


def _show_quality(quality: outputs.Quality) -> None:
    results = quality.get("results") or []
    rules = f", {count_of(len(results), 'rule')}" if results else ""
    print(f"  quality: {quality.get('verdict') or 'not judged yet'}{rules}")
    for result in results:
        if not result["success"]:
            count = result["unexpected_count"]
            observed = "does not hold" if result["observed_value"] is None else f"saw {result['observed_value']}"
            seen = count_of(count, "row") if count is not None else observed
            print(f"    {result['severity']}: {result['rule']} ({result['type']}): {seen}")
        elif result.get("quarantined"):
            print(f"    {result['rule']} ({result['type']}): {count_of(result['quarantined'], 'row')} rejected")
    for warning in quality.get("warnings") or ():
        print(f"    warning: {warning}")


def show_logs(value: outputs.Logs) -> None:
    """Print a run's output, oldest first."""
    print(f"{value['pipeline']}  run {value['run_id']}  {value['outcome'] or 'unfinished'}")
    print(f"  report: {value['report']}")
    for event in value["progress"]:
        if event.get("event") == "session":
            print(f"  Spark application {event.get('application')} on {event.get('master')}")
            continue
        if event.get("event") == READING:
            if event is value["progress"][-1]:
                print(f"  {describe_event(event)}")
            continue
        rows = event.get("rows", event.get("numInputRows"))
        count = count_of(rows, "row") if isinstance(rows, int) else f"{rows} rows"
        when = f"{event['timestamp']} " if event.get("timestamp") else ""
        print(f"  {when}batch {event.get('batchId')} {event['event']}: {count}")
    if value["error"]:
        print(indent(str(TidegateError.from_dict(value["error"])), "  "))
    for log in value["logs"]:
        print(f"--- {log['step']}: {log['path']}")
        text, is_cut = fold_log(log["text"])
        print(text)
        if is_cut:
            print(f"parts were omitted; the whole log: {log['path']}")
    if not value["logs"]:
        print("no driver log is kept: a driver's log is removed when its step succeeds, or no driver was started")


def show_trial(value: outputs.Trial, sources: Mapping[str, FilesSource | KafkaSource]) -> None:
    """Print the result of ``try``."""
    counts = value["counts"]
    shown = [key for key in _TRIED if counts[key] or key == "read"]
    print(f"{value['pipeline']}: " + "  ".join(f"{key} {counts[key]:,}" for key in shown))
    show_table([{name: cell(one) for name, one in row.items()} for row in value["rows"][:_TRIED_AT_MOST]])
    if len(value["rows"]) > _TRIED_AT_MOST:
        print(f"and {count_of(len(value['rows']) - _TRIED_AT_MOST, 'row')} more (--json has them)")
    causes: dict[tuple[str, str | None], list[outputs.TriedRecord]] = {}
    for record in value["set_aside"]:
        causes.setdefault((record["reason"], record["detail"]), []).append(record)
    for (reason, detail), records in causes.items():
        print(escape_line(f"quarantined, {len(records)} as {reason}: {detail or ''}"))
        print(escape_line(f"  like {records[0]['position']}: {str(records[0]['raw'])[:_EXAMPLE_AT_MOST]}"))
        show_options(detail, records[0]["raw"], sources.get(records[0]["source"] or ""))
    _show_quality(value["quality"])
    if value["held"]:
        print(f"the gate would hold this: {value['held']}")
    elif counts["read"]:
        print("the gate would let this pass")
    else:
        print("no record was read, so schema, transform and gate were not tried")
        for name, source in value["looked"].items():
            waiting = [*source["settling"], *source["skipped"]]
            print(
                f"  source {name}: {count_of(source['files'], 'file')} to read in {source['path']}, "
                f"{len(source['settling']):,} settling, {len(source['skipped']):,} skipped"
            )
            for file in waiting[:_WAITING_AT_MOST]:
                print(escape_line(f"    {file['path']}: {file['why']}"))
            if len(waiting) > _WAITING_AT_MOST:
                print(f"    and {len(waiting) - _WAITING_AT_MOST:,} more (--json has them)")
    print("nothing was written")


_LONGEST_LINE = 600
_SHOWN = 2
"""Lines that are kept of each folded block."""
_FRAME = re.compile(r"\s+at \S|\s*\.\.\. \d+ (?:more|common frames omitted)")
_PLAN = re.compile(r"[\s:|]*(?:\+- |:- |\*\(\d+\) )|[\s:|]*\S.*#\d+L?\b.*\[plan_id=\d+\]")
_CODE = re.compile(r"/\* \d{3,} \*/")
_KINDS = ((_FRAME, "of the stack trace"), (_PLAN, "of the query plan"), (_CODE, "of generated code"))


def fold_log(text: str) -> tuple[str, bool]:
    """Return ``text`` with long blocks and long lines cut short, and whether anything was cut."""
    kept: list[str] = []
    is_cut = False
    for kind, group in groupby(text.rstrip().split("\n"), _kind_of):
        lines = list(group)
        if kind is not None and len(lines) > _SHOWN + 1:
            left = len(lines) - _SHOWN
            lines = [*lines[:_SHOWN], f"    ... {left} more lines {kind}"]
            is_cut = True
        for line in lines:
            if len(line) > _LONGEST_LINE:
                line = f"{line[:_LONGEST_LINE]} ... {len(line) - _LONGEST_LINE:,} more characters"
                is_cut = True
            kept.append(line)
    return "\n".join(kept), is_cut


def _kind_of(line: str) -> str | None:
    return next((name for pattern, name in _KINDS if pattern.match(line)), None)


def show_causes(rows: Sequence[outputs.QuarantineCount], sources: Mapping[str, FilesSource | KafkaSource]) -> None:
    """Print counts of quarantined records by cause, with an example of each. ``sources`` are those of the spec."""
    if not rows:
        print("nothing")
    for row in rows:
        print(escape_line(f"{row['records']:,} {row['reason']}: {row['detail'] or ''}".rstrip(": ")))
        times = f"{row['first_at'][:19]} to {row['last_at'][:19]}"
        held = ", held" if row["held"] else ""
        print(f"  run {row['run_id']}{held}, source {row['source'] or 'unknown'}, {times}")
        if row["example"] is not None:
            is_seen = any(char.isprintable() and not char.isspace() for char in row["example"])
            print(f"  like: {_continue(row['example']) if is_seen else repr(row['example'])}")
        show_options(row["detail"], row["example"], sources.get(row["source"] or ""))


def _continue(text: str) -> str:
    """The text of a record, whose further lines cannot be taken for lines of the command."""
    return text.replace("\n", "\n        ")


def show_records(records: Sequence[outputs.QuarantinedRecord]) -> None:
    """Print quarantined records, a block each, since raw lines are too long for columns."""
    if not records:
        print("nothing")
    for record in records:
        position = record["position"]
        if isinstance(position, Mapping):
            position = " ".join(f"{key} {value}" for key, value in position.items())
        print(escape_line(f"{record['reason']}: {record['detail'] or ''}"))
        print(escape_line(f"  from: {record['source'] or 'unknown source'} {position or ''}"))
        if record["raw"] is not None:  # for a whole file, the detail says where it is kept
            print(f"  raw:  {_continue(record['raw'])}")
        held = ", held: not in the quarantine table yet" if record["held"] else ""
        print(f"  run:  {record['run_id']} at {record['quarantined_at']}{held}")
        if record["id"] is not None:
            print(f"  id:   {record['id']}")
