"""Results as people read them: plain aligned text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from tidegate.cli.log_text import fold_log
from tidegate.errors import TidegateError
from tidegate.outputs import (
    Acknowledged,
    Adoption,
    BackfillPlan,
    CatalogEntry,
    Error,
    FilesBacklog,
    Finding,
    KafkaBacklog,
    Logs,
    Maintenance,
    OpenState,
    Plan,
    Quality,
    QuarantineCount,
    QuarantinedRecord,
    Repair,
    ReplayPlan,
    Reread,
    Rollback,
    RowKey,
    RunReport,
    Sink,
    SourceReport,
    State,
    Status,
    Trial,
    TriedRecord,
)
from tidegate.preflight.definition import Change
from tidegate.reports.report import ENDED_WITHOUT_REPORT, ROW_KEYS
from tidegate.staging.manifest import UNKNOWN_NAMES_AT_MOST
from tidegate.words import count_of

if TYPE_CHECKING:
    from tidegate.scaffold.write import Scaffold


_EXAMPLE_AT_MOST = 200
"""Characters of a record that are shown as an example."""
_OPTIONS_FOR = {
    "not a DATE": "options: {dateFormat: dd/MM/yyyy}, in the form that they have",
    "not a TIMESTAMP": "options: {timestampFormat: dd/MM/yyyy HH:mm}, in the form that they have",
    "not valid UTF-8": "options: {encoding: ...}, such as UTF-16 or windows-1252",
}
"""What a source may lack where its records are malformed for this."""
_FILES_AT_MOST = 20
"""Files that are listed by name."""
_WAITING_AT_MOST = 5
_TRIED_AT_MOST = 20
"""Rows of a try that are shown."""
_TRIED: tuple[RowKey, ...] = ("read", "malformed", "late", "transformed", "rejected", "staged")
"""Counts of a try that are shown."""
_RARE = ("late", "superseded", "duplicates")
"""Counts that are shown when they are not 0."""


def show_report(report: RunReport) -> None:
    """A run report on stdout."""
    rows = report["rows"]
    print(f"{report['pipeline']}  run {report['run_id']}  {report['outcome'] or 'in progress'}")
    for name, source in report["sources"].items():
        print(f"  source {name}: {_source_line(source)}")
        for line in _source_notes(source):
            print(f"    {line}")
    if report["outcome"] != "nothing_new" and report["mode"] not in ("maintain", "rollback"):
        # What entered the transform is the difference of the two before it, or the run has failed.
        told = [key for key in ROW_KEYS if key != "entered" and (rows[key] or key not in _RARE)]
        counts = "  ".join(f"{key} {rows[key]:,}" for key in told)
        print(f"  rows: {counts}")
        _show_quality(report["quality"])
    if report["state"]:
        print(f"  state: {_state_line(report['state'])}, watermark {report['watermark'] or 'none yet'}")
    _show_table(report)
    for note in report["notes"]:
        print(f"  note: {note}")
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


def _show_table(report: RunReport) -> None:
    """The version that a run made, what a rollback took out, and what a backfill has put in the place of what."""
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
            f"  rebuilt: {', '.join(report['rebuilt'])}, in the place of "
            f"{count_of(table.get('rows_removed', 0), 'row')} in {count_of(table.get('files_removed', 0), 'file')}"
        )


def _changed_line(report: RunReport) -> str:
    table = report["table"]
    if report["mode"] != "maintain":
        return f"+{count_of(table['rows_added'], 'row')} in {count_of(table['files_added'], 'file')}"
    rows = f"  -{count_of(table['rows_removed'], 'row')}" if table["rows_removed"] else ""
    return f"+{count_of(table['files_added'], 'file')}  -{count_of(table['files_removed'], 'file')}{rows}"


def _state_line(state: OpenState) -> str:
    windows = state["open_windows"]
    line = f"{count_of(state['rows'], 'row')}, {count_of(state['memory_bytes'], 'byte')}"
    if not windows:
        return line
    return f"{line}, {count_of(len(windows), 'window')} open from {windows[0][0]} to {windows[-1][1]}"


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


def show_maintenance(value: Maintenance) -> None:
    """What a maintenance would do."""
    print(f"{value['pipeline']}: {'a maintenance would do this' if value['items'] else 'nothing to do'}")
    for item in value["items"]:
        parts = [count_of(item["files"], "file")]
        parts += [count_of(item["bytes"], "byte")] if item["bytes"] else []
        parts += [count_of(item["rows"], "row")] if item["rows"] else []
        parts += [f"in {count_of(item['partitions'], 'partition')}"] if item["partitions"] else []
        print(f"  {item['of']}: {_MAINTENANCE[item['work']]}: {', '.join(parts)}")
    for note in value["notes"]:
        print(f"  note: {note}")
    if (error := value["hindrance"]) is not None:
        print(f"  refused: {error['code']}: {error['message']}")
        print(f"    fix: {error['fix']}")


def show_sinks(sinks: Sequence[Sink]) -> None:
    """How far each sink is."""
    for sink in sinks:
        had = "nothing yet" if sink["version"] is None else f"up to version {sink['version']}"
        behind = "an unknown number of versions" if sink["behind"] is None else count_of(sink["behind"], "version")
        print(f"  sink {sink['name']}: {had}" + (f", behind: {behind}" if sink["behind"] != 0 else ""))
        if sink["error"]:
            print(indent(sink["error"], "    "))


def _source_line(source: SourceReport) -> str:
    parts = [count_of(source.get("rows", 0), "row")]
    if "files" in source:
        parts.append(count_of(source["files"], "file"))
    if source.get("bytes"):
        parts.append(count_of(source["bytes"], "byte"))
    if source.get("offsets"):
        spans = [
            f"{topic}[{partition}] {span[0]}..{span[1]}"
            for topic, partitions in source["offsets"].items()
            for partition, span in partitions.items()
            if span[0] != span[1]
        ]
        parts.append(", ".join(spans))
    return ", ".join(part for part in parts if part)


def _source_notes(source: SourceReport) -> list[str]:
    notes = []
    if source.get("schema"):
        kept = "not known yet: the first run infers them" if source["schema"] == "infer" else source["schema"]
        notes.append(f"columns: {kept}")
    if unknown := source.get("unknown_fields"):
        named = [f"{field} (seen in {place})" if place else field for field, place in unknown.items()]
        is_cut = len(named) >= UNKNOWN_NAMES_AT_MOST
        notes.append(_first_of("fields the schema does not have", named, "at least " if is_cut else ""))
    if before := source.get("before_start"):
        size = f"{count_of(before['files'], 'file')}, {count_of(before['bytes'], 'byte')}"
        what = f"there before the start ({before['start']}), not read: {size}"
        first = ", ".join(before.get("paths", ())[:5])
        notes.append(f"{what}, first {first}" if first else what)
    changed = [
        f"{one['path']} ({one['how']}, {count_of(one['unread_bytes'], 'byte')})" for one in source.get("changed", ())
    ]
    for what, files in (
        ("left alone", [f"{one['path']} ({one['why']})" for one in source.get("skipped", ())]),
        ("still settling", [f"{one['path']} ({one['why']})" for one in source.get("settling", ())]),
        ("changed after it was read; not read again", changed),
        ("vanished after it was taken", source.get("vanished", [])),
        ("gone before it was read", source.get("lost", [])),
    ):
        if files:
            notes.append(_first_of(what, files))
    return notes


def _first_of(what: str, named: Sequence[str], least: str = "") -> str:
    more = f" and {least}{len(named) - 5} more" if len(named) > 5 else ""
    return f"{what}: {', '.join(named[:5])}{more}"


def _show_quality(quality: Quality) -> None:
    results = quality.get("results") or []
    told = f", {count_of(len(results), 'rule')}" if results else ""
    print(f"  quality: {quality.get('verdict') or 'not judged yet'}{told}")
    for result in results:
        if not result["success"]:
            count = result["unexpected_count"]
            observed = "does not hold" if result["observed_value"] is None else f"saw {result['observed_value']}"
            seen = count_of(count, "row") if count is not None else observed
            print(f"    {result['severity']}: {result['rule']} ({result['type']}): {seen}")
    for warning in quality.get("warnings") or ():
        print(f"    warning: {warning}")


def show_plan(value: Plan) -> None:
    """What the next run would read."""
    print(f"{value['pipeline']}: {value['summary']}")
    for name, source in value["sources"].items():
        print(f"  source {name}: {_plan_line(source)}")
        for line in _source_notes(source):
            print(f"    {line}")
    if value["changes"]:
        print(f"  changed since run {value['changes_since']}, the last that read something:")
    for change in value["changes"]:
        print(f"    {Change(**change)}")
    _show_errors(value["errors"])
    for note in value["notes"]:
        print(indent(note, "  "))


def _show_errors(errors: Sequence[Error]) -> None:
    for error in errors:
        print(indent(f"would refuse: {TidegateError.from_dict(error)}", "  "))


def _plan_line(source: SourceReport) -> str:
    if "files" in source:
        return f"{count_of(source['files'], 'file')}, {count_of(source['bytes'], 'byte')}"
    return f"{count_of(source['pending_offsets'], 'offset')} " + _source_line(source).partition(", ")[2]


def show_status(value: Sequence[Status]) -> None:
    """Every pipeline with what waits, what is wrong, and its last runs."""
    if not value:
        print("no pipelines; `tidegate new NAME` writes one")
    for pipeline in value:
        table = pipeline["table"]
        version = f"table version {table['version']}" if table else "no table yet"
        print(f"{pipeline['pipeline']}: {version}, backlog: {_backlog_text(pipeline)}")
        for trouble in pipeline["trouble"]:
            if trouble["kind"] == "behind":
                print(f"  {trouble['message']}")
        _show_errors(pipeline["errors"])
        for note in pipeline["notes"]:
            print(indent(note, "  "))
        if (state := pipeline["state"]) is not None:
            print(f"  state: {_state_line(state)}, watermark {pipeline['watermark'] or 'none yet'}")
        show_sinks(pipeline["sinks"])
        for run in pipeline["runs"]:
            _show_run(run)


def _backlog_text(pipeline: Status) -> str:
    if pipeline["backlog"] is None:
        unknown = pipeline["backlog_unknown"]
        return f"unknown ({unknown['code']})" if unknown else "unknown"  # what is wrong stands below in full
    return ", ".join(f"{source} {_backlog_of(one)}" for source, one in pipeline["backlog"].items())


def _backlog_of(one: FilesBacklog | KafkaBacklog) -> str:
    return count_of(one["files"], "file") if "files" in one else count_of(one["offsets"], "offset")


def _show_run(run: RunReport) -> None:
    rows = run["rows"]
    seconds = run["duration_seconds"].get("ingest") or 0
    rate = f" ({rows['read'] / seconds:,.1f}/s)" if rows["read"] and seconds else ""
    aside = rows["malformed"] + rows["late"] + rows["rejected"]
    print(
        f"  {run['started_at'][:19]}  {run['outcome'] or 'unfinished':<12} read {rows['read']:,}{rate}  "
        f"quarantined {aside:,}  published {rows['published']:,}  {run['run_id']}"
    )
    for warning in run["quality"].get("warnings") or ():
        print(f"    warning: {warning}")
    for note in run["notes"]:
        if ENDED_WITHOUT_REPORT in note:
            print(f"    note: {note}")
    if run["error"]:
        print(indent(f"{run['error']['code']}: {run['error']['message']}", "    "))


def show_catalog(value: Sequence[CatalogEntry]) -> None:
    """The pipelines, one a line."""
    if not value:
        print("no pipelines; `tidegate new NAME` writes one")
        return
    rows = [
        {
            "pipeline": one["pipeline"],
            "schedule": one["schedule"] or "(by hand)",
            "sources": ", ".join(f"{name}: {kind}" for name, kind in one["sources"].items()),
            "description": one["description"] or "",
        }
        if one["error"] is None
        else {"pipeline": one["pipeline"], "schedule": "", "sources": "", "description": one["error"]["code"]}
        for one in value
    ]
    show_table(rows)


def show_logs(value: Logs) -> None:
    """What is kept of a run's output, oldest first."""
    print(f"{value['pipeline']}  run {value['run_id']}  {value['outcome'] or 'unfinished'}")
    print(f"  report: {value['report']}")
    for event in value["progress"]:
        rows = event.get("rows", event.get("numInputRows"))
        told = count_of(rows, "row") if isinstance(rows, int) else f"{rows} rows"
        when = f"{event['timestamp']} " if event.get("timestamp") else ""
        print(f"  {when}batch {event.get('batchId')} {event['event']}: {told}")
    if value["error"]:
        print(indent(str(TidegateError.from_dict(value["error"])), "  "))
    for log in value["logs"]:
        print(f"--- {log['step']}: {log['path']}")
        text, is_cut = fold_log(log["text"])
        print(text)
        if is_cut:
            print(f"parts were left out; the whole log: {log['path']}")
    if not value["logs"]:
        print("no driver log is kept: a driver's log is removed when its step succeeds, or no driver was started")


def show_trial(value: Trial) -> None:
    """What would become of some records."""
    counts = value["counts"]
    told = [key for key in _TRIED if counts[key] or key == "read"]
    print(f"{value['pipeline']}: " + "  ".join(f"{key} {counts[key]:,}" for key in told))
    show_table([{name: _cell(one) for name, one in row.items()} for row in value["rows"][:_TRIED_AT_MOST]])
    if len(value["rows"]) > _TRIED_AT_MOST:
        print(f"and {count_of(len(value['rows']) - _TRIED_AT_MOST, 'row')} more (--json has them)")
    causes: dict[tuple[str, str | None], list[TriedRecord]] = {}
    for record in value["set_aside"]:
        causes.setdefault((record["reason"], record["detail"]), []).append(record)
    for (reason, detail), records in causes.items():
        print(f"quarantined, {len(records)} as {reason}: {detail or ''}")
        print(f"  like {records[0]['position']}: {str(records[0]['raw'])[:_EXAMPLE_AT_MOST]}")
        _show_options(detail)
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
                print(f"    {file['path']}: {file['why']}")
            if len(waiting) > _WAITING_AT_MOST:
                print(f"    and {len(waiting) - _WAITING_AT_MOST:,} more (--json has them)")
    print("nothing was written")


def _show_options(detail: str | None) -> None:
    """The options of the source by which records that are malformed for ``detail`` may be read as they are."""
    for fault, options in _OPTIONS_FOR.items():
        if fault in (detail or ""):
            print(f"  if they are right as they are: {options} (docs/how-to/your-own-data.md)")


def _cell(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_findings(value: Sequence[Finding]) -> None:
    """What was looked at, and for each that is wrong the fix."""
    width = max(len(one["check"]) for one in value)
    for one in value:
        print(f"{'ok   ' if one['ok'] else 'WRONG'}  {one['check'].ljust(width)}  {one['found']}")
        if one["fix"]:
            print(f"       {' ' * width}  fix: {one['fix']}")
    wrong = sum(not one["ok"] for one in value)
    print(f"{wrong} of {len(value)} wrong" if wrong else f"all {len(value)} right")


def show_state(value: State) -> None:
    """What a query keeps."""
    print(f"{value['pipeline']}: state after batch {value['batch']}")
    for store in value["operators"]:
        print(f"  {store['operator']} ({store['store']}): {count_of(store['count'], 'row')}")
        for row in store["rows"]:
            print(f"    {json.dumps(row['key'], ensure_ascii=False)}: {json.dumps(row['value'], ensure_ascii=False)}")


def show_repair(value: Repair) -> None:
    """What repair found, and did or would do."""
    print(f"{value['pipeline']}: {value['found']}")
    for line in value["choices"]:
        print(f"  choice: {line}")
    for line in value["actions"]:
        print(f"  {'would' if value['dry_run'] else 'did'}: {line}")


def show_backfill(value: BackfillPlan) -> None:
    """What a backfill would read and replace, and what is in the way."""
    print(f"{value['pipeline']}: {count_of(len(value['intervals']), 'interval')}")
    for one in value["intervals"]:
        now = f"{count_of(one['rows_now'], 'row')} in {count_of(one['files_now'], 'file')} now"
        read = [f"{count_of(one['files'], 'file')} ({count_of(one['bytes'], 'byte')})"] if one["files"] else []
        read += [count_of(one["offsets"], "offset")] if one["offsets"] else []
        print(f"  {one['partitions']}: {now}; read again: {', '.join(read) or 'nothing'}")
        if one["rows_of_others"]:
            print(f"    these hold {count_of(one['rows_of_others'], 'row')} of other partitions too, which stay")
        if one["stays_in_quarantine"]:
            print(f"    {count_of(one['stays_in_quarantine'], 'record')} of these are in quarantine, and stay there")
        if one["stays_discarded"]:
            print(f"    {count_of(one['stays_discarded'], 'record')} of discarded increments stay left out")
    hindrance = value["hindrance"]
    if hindrance is None:
        print("  would: rebuild these, each in one version of the table, after the gate has passed it")
        return
    print(f"  cannot be done: {hindrance['message']}")
    if hindrance["fix"]:
        print(f"    fix: {hindrance['fix']}")


def show_rollback(value: Rollback) -> None:
    """What ``rollback`` would change, and the choices."""
    print(f"{value['pipeline']}: back from version {value['from_version']} to version {value['to_version']}")
    print(
        f"  table: {count_of(value['files_back'], 'file')} ({count_of(value['rows_back'], 'row')}) would come back, "
        f"{count_of(value['files_leave'], 'file')} ({count_of(value['rows_leave'], 'row')}) would leave"
    )
    for one in value["versions"]:
        told = f"  version {one['version']}: {one['kind']} {one['run_id']}, {one['outcome'].replace('_', ' ')}"
        print(f"{told}: {count_of(one['records'], 'record')} read, {count_of(one['rows'], 'row')}")
    for note in value["notes"]:
        print(f"  note: {note}")
    for choice in value["choices"]:
        print(f"  choice: --then {choice['then']}")
        for line in choice["does"]:
            print(f"    {line}")
        if (error := choice["hindrance"]) is not None:
            print(f"    in the way: {error['code']}: {error['message']}")
            print(f"      fix: {error['fix']}")
    if not value["choices"]:
        print("  no record was read in between: no --then is needed")
    if (error := value["hindrance"]) is not None:
        print(f"  in the way: {error['code']}: {error['message']}")
        print(f"    fix: {error['fix']}")


def show_adoption(value: Adoption) -> None:
    """What there is to adopt, and what adopting would do."""
    size = f"{count_of(value['files'], 'file')}, {count_of(value['rows'], 'row')}, {count_of(value['bytes'], 'byte')}"
    print(f"{value['pipeline']}: {value['kind']} table {value['table']}: {size}")
    for name, kind in value["columns"].items():
        print(f"  column {name} {kind}{'  (folders)' if name in value['partition_by'] else ''}")
    if value["query_id"] is not None:
        print(f"  checkpoint: query {value['query_id']}, in the table up to batch {value['batch']}")
    for line in value["actions"]:
        print(f"  would: {line}")
    for note in value["notes"]:
        print(f"  note: {note}")


def show_reread(value: Reread) -> None:
    """What ``reread`` would read again, and what is in the way."""
    print(f"{value['pipeline']}: run {value['run_id']} is held: {'; '.join(value['held'])}")
    for name, source in value["sources"].items():
        files = source.get("files")
        told: SourceReport = {"rows": source["rows"]}
        if files is not None:
            told["files"] = len(files)
        if "offsets" in source:
            told["offsets"] = source["offsets"]
        print(f"  source {name}: {_source_line(told)}")
        for file in (files or ())[:_FILES_AT_MOST]:
            print(f"    {file}")
        if files is not None and len(files) > _FILES_AT_MOST:
            print(f"    and {len(files) - _FILES_AT_MOST:,} more")
    if value["decided"] is not None:
        decided = value["decided"]
        print(f"  decided, and not done yet: {decided['who']} decided at {decided['at']} to {decided['decision']} it")
    hindrance = value["hindrance"]
    if hindrance is None:
        print(f"  would: read {count_of(value['rows'], 'record')} again, check them, and publish what passes")
        return
    print(f"  in the way: {hindrance['code']}: {hindrance['message']}")
    print(f"    fix: {hindrance['fix']}")


def show_replay(value: ReplayPlan) -> None:
    """What a replay would put through, and what stays."""
    edited = f", {value['edited']:,} of them edited" if value["edited"] else ""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in value["reasons"].items())
    print(f"{value['pipeline']}: {count_of(value['records'], 'record')}{f' ({reasons})' if reasons else ''}{edited}")
    for one in value["stay"]:
        print(f"  {count_of(one['records'], 'record')} would stay: {one['why']}")
    hindrance = value["hindrance"]
    if hindrance is not None:
        print(f"  cannot be done: {hindrance['message']}")
        if hindrance["fix"]:
            print(f"    fix: {hindrance['fix']}")
    elif value["records"]:
        print("  would: put these through as one version of the table, after the gate has passed them")
    else:
        print("  nothing to replay")


def show_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Rows in columns. No line is broken or cut, however narrow the terminal is: run ids are there to be copied."""
    if not rows:
        print("nothing")
        return
    lines = [list(rows[0])]
    for row in rows:
        texts = {name: "" if value is None else str(value) for name, value in row.items()}
        lines.append([text[:19] if name.endswith("_at") else text for name, text in texts.items()])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def show_causes(rows: Sequence[QuarantineCount]) -> None:
    """Counts of quarantined records by cause, an example below each; what is long is not put into columns."""
    if not rows:
        print("nothing")
    for row in rows:
        print(f"{row['records']:,} {row['reason']}: {row['detail'] or ''}".rstrip(": "))
        times = f"{row['first_at'][:19]} to {row['last_at'][:19]}"
        held = ", held" if row["held"] else ""
        print(f"  run {row['run_id']}{held}, source {row['source'] or 'unknown'}, {times}")
        if row["example"] is not None:
            is_seen = any(char.isprintable() and not char.isspace() for char in row["example"])
            print(f"  like: {row['example'] if is_seen else repr(row['example'])}")
        _show_options(row["detail"])


def show_records(records: Sequence[QuarantinedRecord]) -> None:
    """Quarantined records, one block each: raw lines are long, and columns would break them."""
    if not records:
        print("nothing")
    for record in records:
        position = record["position"]
        if isinstance(position, Mapping):
            position = " ".join(f"{key} {value}" for key, value in position.items())
        print(f"{record['reason']}: {record['detail'] or ''}")
        print(f"  from: {record['source'] or 'unknown source'} {position or ''}")
        print(f"  raw:  {record['raw']}")
        held = ", held: not in the quarantine table yet" if record["held"] else ""
        print(f"  run:  {record['run_id']} at {record['quarantined_at']}{held}")
        if record["id"] is not None:
            print(f"  id:   {record['id']}")


def show_acknowledged(value: Acknowledged) -> None:
    """The changes that were acknowledged."""
    if not value["acknowledged"]:
        print(f"{value['pipeline']}: there is nothing to acknowledge")
    for change in value["acknowledged"]:
        unread = count_of(change["unread_bytes"], "byte stays", "bytes stay")
        print(f"acknowledged: {change['path']} {change['how']}, {unread} unread")
    if value["left"]:
        print(f"{count_of(value['left'], 'more is open', 'more are open')}")


def show_scaffold(written: Scaffold, folder: Path) -> None:
    """The files that were written, and what to do next."""
    for path in written:
        print(f"wrote {folder / path}")
    if written.columns:
        print(f"columns{f' (by {written.told_by})' if written.told_by else ''}: {written.columns}")
    for note in written.notes:
        print(f"note: {note}")
    print("next:")
    for command in written.next_commands:
        print(f"  {command}")
