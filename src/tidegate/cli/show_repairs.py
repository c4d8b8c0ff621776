"""Print for people what a repair did or would do."""

from __future__ import annotations

from tidegate.cli.lines import show_hindrance, show_lines, source_line
from tidegate.core import outputs
from tidegate.core.words import count_of
from tidegate.rework.backfill.older import describe_older
from tidegate.table.schema import describe_columns

_FILES_AT_MOST = 20
"""Files that are listed by name."""


def show_repair(value: outputs.Repair) -> None:
    """Print what ``repair`` found, and did or would do."""
    print(f"{value['pipeline']}: {value['found']}")
    show_lines("choice", value["choices"])
    show_lines("would" if value["dry_run"] else "did", value["actions"])
    show_lines("next run", value["next_run"])


def _describe_margin(margin: outputs.BackfillMargin) -> str:
    """Describe what is read only because records of other times may need it."""
    counts = f"{count_of(margin['files'], 'file')} ({count_of(margin['bytes'], 'byte')})"
    counts += f" and {count_of(margin['offsets'], 'offset')}" if margin["offsets"] else ""
    if margin["is_known"]:
        return f"{counts} of these for windows that reach over its ends"
    return f"all that runs have taken, {counts} of it for joins and windows that may need records of other times"


def show_backfill(value: outputs.BackfillPlan) -> None:
    """Print what a backfill would read and replace, and what prevents it."""
    print(f"{value['pipeline']}: {count_of(len(value['intervals']), 'interval')}")
    for one in value["intervals"]:
        now = f"{count_of(one['rows_now'], 'row')} in {count_of(one['files_now'], 'file')} now"
        read = [f"{count_of(one['files'], 'file')} ({count_of(one['bytes'], 'byte')})"] if one["files"] else []
        read += [count_of(one["offsets"], "offset")] if one["offsets"] else []
        days = f" ({count_of(len(one['days']), 'day')})" if len(one["days"]) > 1 else ""
        print(f"  {one['partitions']}{days}: {now}; read again: {', '.join(read) or 'nothing'}")
        if one["margin"] is not None and read:
            print(f"    {_describe_margin(one['margin'])}")
        if one["rows_of_others"]:
            print(f"    these hold {count_of(one['rows_of_others'], 'row')} of other partitions too, which stay")
        if one["stays_in_quarantine"]:
            print(f"    in quarantine, where it stays: {count_of(one['stays_in_quarantine'], 'record')} of these")
        if one["stays_discarded"]:
            print(f"    {count_of(one['stays_discarded'], 'record')} of discarded increments stay out")
        if (older := one["older"]) is not None:
            print(f"    {describe_older(older)}")
    if (columns := value["columns"]) is not None:
        before, after = columns["before"], columns["after"]
        unknown = "unknown, since there is no file to infer them from"
        print(f"  columns: {unknown if after is None else describe_columns(before, after)}")
    if value["hindrance"] is None:
        each = "each interval" if len(value["intervals"]) > 1 else "it"
        print(f"  would: rebuild {each} with one Spark driver, in one version of the table, if it passes the gate")
    for line in value["sinks"]:
        print(f"  {line}")
    show_hindrance(value["hindrance"])


def show_rollback(value: outputs.Rollback) -> None:
    """Print what ``rollback`` would change, and the choices."""
    print(f"{value['pipeline']}: back from version {value['from_version']} to version {value['to_version']}")
    print(
        f"  table: {count_of(value['files_back'], 'file')} ({count_of(value['rows_back'], 'row')}) would come back, "
        f"{count_of(value['files_leave'], 'file')} ({count_of(value['rows_leave'], 'row')}) would leave"
    )
    for one in value["versions"]:
        version = f"  version {one['version']}: {one['kind']} {one['run_id']}, {one['outcome'].replace('_', ' ')}"
        print(f"{version}: {count_of(one['records'], 'record')} read, {count_of(one['rows'], 'row')}")
    for line in value["sinks"]:
        print(f"  {line}")
    show_lines("note", value["notes"])
    for choice in value["choices"]:
        print(f"  choice: --then {choice['then']}")
        for line in choice["does"]:
            print(f"    {line}")
        show_hindrance(choice["hindrance"], "    ")
    if all(choice["then"] != "reread" for choice in value["choices"]):
        print("  no record was read in between: no --then is needed")
    show_hindrance(value["hindrance"])


def show_adoption(value: outputs.Adoption) -> None:
    """Print what there is to adopt, and what ``adopt`` would do."""
    size = f"{count_of(value['files'], 'file')}, {count_of(value['rows'], 'row')}, {count_of(value['bytes'], 'byte')}"
    print(f"{value['pipeline']}: {value['kind']} table {value['table']}: {size}")
    for name, kind in value["columns"].items():
        print(f"  column {name} {kind}{'  (folders)' if name in value['partition_by'] else ''}")
    if value["query_id"] is not None:
        print(f"  checkpoint: query {value['query_id']}, in the table up to batch {value['batch']}")
    show_lines("would", value["actions"])
    show_lines("note", value["notes"])


def show_reread(value: outputs.Reread) -> None:
    """Print what ``reread`` would read again, and what prevents it."""
    print(f"{value['pipeline']}: run {value['run_id']} is held: {'; '.join(value['held'])}")
    for name, source in value["sources"].items():
        files = source.get("files")
        counts: outputs.SourceReport = {"rows": source["rows"]}
        if files is not None:
            counts["files"] = len(files)
        if "offsets" in source:
            counts["offsets"] = source["offsets"]
        print(f"  source {name}: {source_line(counts)}")
        for file in (files or ())[:_FILES_AT_MOST]:
            print(f"    {file}")
        if files is not None and len(files) > _FILES_AT_MOST:
            print(f"    and {len(files) - _FILES_AT_MOST:,} more")
    if value["decided"] is not None:
        decided = value["decided"]
        print(
            f"  decided, not carried out yet: {decided['who']} decided at {decided['at']} to {decided['decision']} it"
        )
    if value["hindrance"] is None:
        print(f"  would: read {count_of(value['rows'], 'record')} again, check them, and publish what passes")
    show_hindrance(value["hindrance"])


def show_replay(value: outputs.ReplayPlan) -> None:
    """Print what a replay would publish, and what stays in quarantine."""
    edited = f", {value['edited']:,} of them edited" if value["edited"] else ""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in value["reasons"].items())
    print(f"{value['pipeline']}: {count_of(value['records'], 'record')}{f' ({reasons})' if reasons else ''}{edited}")
    for one in value["stay"]:
        print(f"  {count_of(one['records'], 'record')} would stay: {one['why']}")
    if value["hindrance"] is not None:
        show_hindrance(value["hindrance"])
    elif value["records"]:
        print("  would: replay these as one version of the table, after the gate has passed them")
        for line in value["sinks"]:
            print(f"  {line}")
    else:
        print("  nothing to replay")
