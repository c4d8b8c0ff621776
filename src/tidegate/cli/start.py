"""Commands to begin with: create, check and run a project and its pipelines; and the single steps of a run."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import errors
from tidegate.cli.app import START, STEPS, AcceptLoss, Json, Name, RunId, app, complete_name
from tidegate.cli.work import dump, name_work, open_project, print_value, run_one, run_step, submit, submit_before_audit
from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport
    from tidegate.spec.project import Project

_BY_WEIGHT = (0, 75, 64, 65, 66, 78, 70)
"""Exit codes, the most harmless first."""


@app.command(rich_help_panel=START)
def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new project's folder.")]) -> None:
    """Write a new project that runs as it is."""
    from tidegate.cli.scaffold.write import init_project
    from tidegate.cli.show_status import show_scaffold

    show_scaffold(init_project(folder), folder)


@app.command(rich_help_panel=START)
def new(
    name: Name,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE_OR_TOPIC",
            help="A file like those that will arrive, or kafka:TOPIC with JSON records: the columns are inferred.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="json, csv, text, parquet, orc or avro (default: by the file's name)."),
    ] = None,
    bare: Annotated[
        bool,
        typer.Option(
            "--bare",
            help="No example to empty: spec and DAG alone, whose columns the first run infers, or you write. "
            "--from writes no example either; its columns are the inferred ones.",
        ),
    ] = False,
) -> None:
    """Write a new pipeline: an example that runs as it is, one for the columns of a file or a topic, or a bare one."""
    from tidegate.cli.scaffold.infer_columns import FORMATS
    from tidegate.cli.scaffold.write import new_bare_pipeline, new_pipeline, new_topic_pipeline
    from tidegate.cli.show_status import show_scaffold

    project = open_project()
    if format_ is not None and format_ not in FORMATS.values():
        fault = f"--format: {format_!r} is not a format"
        raise errors.BAD_OPTIONS(fault=fault, fix="give json, csv, text, parquet, orc or avro")
    topic = from_.removeprefix("kafka:") if from_ is not None and from_.startswith("kafka:") else None
    if topic is not None and format_ not in (None, "json"):
        fault = f"--format {format_}: the columns of a topic are inferred from JSON records only"
        raise errors.BAD_OPTIONS(fault=fault, fix="omit --format, or write the source by hand: docs/how-to/kafka.md")
    if topic is not None:
        written = new_topic_pipeline(project, name, topic)
    elif from_ is None and not bare and format_ is None:
        written = new_pipeline(project, name)
    else:
        written = new_bare_pipeline(project, name, format_, None if from_ is None else Path(from_))
    show_scaffold(written, project.root)


@app.command(rich_help_panel=START)
def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Pipelines (default: all).", autocompletion=complete_name),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Also have Spark analyse the query.")] = False,
    upgrade_suite: Annotated[
        bool, typer.Option("--upgrade-suite", help="First rewrite suites of Great Expectations before 1.0.")
    ] = False,
    json_: Json = False,
) -> None:
    """Check specs, suites and transforms, and what may be done in buckets."""
    from tidegate.views.validate import find_in_buckets, list_notes, upgrade_suites, validate_pipelines

    project = open_project()
    if upgrade_suite:
        for path, kept in upgrade_suites(project, names or None):
            print(f"rewrote {path}; as it was: {kept}", file=sys.stderr)
    faults = validate_pipelines(project, names or None, with_spark=spark) + find_in_buckets(project, names or None)
    for note in list_notes(project, names or None):
        print(f"note: {note}", file=sys.stderr)
    if json_:
        print(dump([fault.to_dict() for fault in faults]))
    elif faults:
        for fault in faults:
            print(fault)
    else:
        command = " ".join(["tidegate validate", *(names or ()), "--spark"])
        sound = f"specs and suites are valid; columns and code were not checked: `{command}`"
        print("no problems found" if spark else sound)
    if faults:
        raise typer.Exit(64)


@app.command("try", rich_help_panel=START)
def try_(
    name: Name,
    rows: Annotated[int, typer.Option("--rows", min=1, help="About how many records to read of each source.")] = 100,
    json_: Json = False,
) -> None:
    """Read, transform and check the newest records: rows, rejects and verdict. Nothing is written; exit 65: held."""
    from tidegate.cli.show_runs import show_trial
    from tidegate.spec.pipeline import load_pipeline
    from tidegate.views.trial import try_pipeline
    from tidegate.views.validate import list_notes

    project = open_project()
    for note in list_notes(project, [name]):
        print(f"note: {note}", file=sys.stderr)
    value = try_pipeline(project, name, rows=rows, submit=submit)
    print_value(value, json_, partial(show_trial, sources=load_pipeline(project, name).record_streams))
    if value["held"] is not None:
        raise typer.Exit(65)


@app.command(rich_help_panel=START)
def doctor(
    spark: Annotated[
        bool, typer.Option("--spark", help="Also have a Spark job ask a cluster's executors for Python and packages.")
    ] = False,
    json_: Json = False,
) -> None:
    """Check everything a run needs: Java, versions, jars, brokers, folders. Exit 1 when something is missing."""
    from tidegate.cli.show_status import show_findings
    from tidegate.views.doctor import examine

    findings = [finding.to_dict() for finding in examine(open_project(), submit if spark else None)]
    print_value(findings, json_, show_findings)
    if not all(finding["ok"] for finding in findings):
        raise typer.Exit(1)


@app.command(rich_help_panel=START)
def jars() -> None:
    """Fetch the missing jars of spark.packages, and compare each with its checksum."""
    from tidegate.spark.driver.packages import choose_mirror, describe_mismatches, fetch_packages, write_line

    def say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    project = open_project()
    for package, path, sha256 in fetch_packages(project, say, choose_mirror()):
        if package.sha256 is None:
            print(f"{write_line(package, sha256)}  # tidegate.yaml, spark.packages: no run starts without the checksum")
        else:
            print(f"{package.jar}: {path}")
    for mismatch in describe_mismatches(project):
        print(f"note: {mismatch}; take the version of this Spark if there is one", file=sys.stderr)


@app.command(rich_help_panel=START)
def run(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="One pipeline, or several, one after another.", autocompletion=complete_name
        ),
    ],
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", help="A name for this run. Safe to repeat: a second run with this id does nothing."),
    ] = None,
    accept_loss: AcceptLoss = None,
    json_: Json = False,
) -> None:
    """Ingest, audit and publish new data. Of several pipelines the worst outcome is the exit code."""
    project = open_project()
    chosen = name_work("manual", run_id)
    if len(names) == 1:
        run_step(lambda: run_one(project, names[0], chosen, accept_loss), project, names[0], chosen, json_)
        return
    if accept_loss is not None:
        fault = f"--accept-loss abandons records of one pipeline, but {len(names)} were named"
        raise errors.BAD_OPTIONS(fault=fault, fix='name one: tidegate run NAME --accept-loss "..."')
    code = _run_several(project, list(dict.fromkeys(names)), chosen, json_)
    if code:
        raise typer.Exit(code)


def _run_several(project: Project, names: list[str], run_id: str, as_json: bool) -> int:
    """Run each, even if the one before has failed; returns the worst exit code."""
    from tidegate.cli.show_runs import show_report
    from tidegate.runs.reports.report import failed_report, load_report

    reports, codes = [], [0]
    for name in names:
        try:
            report = run_one(project, name, run_id)
        except TidegateError as error:
            if error.code == "STOPPED":
                raise
            stored = None if error.code in ("BAD_NAME", "LEASE_HELD") else load_report(project.paths(name), run_id)
            has_failed = stored is not None and stored.error is not None
            report = (stored if stored and has_failed else failed_report(name, run_id, error)).to_json()
            codes.append(error.exit_code)
            print(f"{name}: {error}", file=sys.stderr)
        reports.append(report)
        if not as_json:
            show_report(report)
    if as_json:
        print_value(reports, as_json, lambda value: None)
    return max(codes, key=_BY_WEIGHT.index)


@app.command(rich_help_panel=START)
def stream(
    name: Name,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            help='Interval between run starts, like "10 seconds" (default: none, one run right after another).',
        ),
    ] = None,
    continuous: Annotated[
        str | None, typer.Option("--continuous", hidden=True, help="Not supported; the error says what to use instead.")
    ] = None,
    json_: Json = False,
) -> None:
    """The same pipeline as a long-running command: one run after another, until it is stopped."""
    from tidegate.cli.show_runs import show_report
    from tidegate.spec.models import parse_duration
    from tidegate.views.stream import stream_pipeline

    if continuous is not None:
        raise errors.BAD_OPTIONS(
            fault="--continuous: Spark's continuous processing has no batches that could be checked and published as a "
            "whole",
            fix=f"tidegate stream {name}, which publishes within seconds; each batch exactly once",
        )
    try:
        seconds = None if every is None else parse_duration(every)
    except ValueError as error:
        raise errors.BAD_OPTIONS(fault=f"--every: {error}", fix='write --every "10 seconds"') from error
    project = open_project()
    submit = submit_before_audit(project, name)

    def print_one(report: RunReport) -> None:
        if json_:
            print(dump(report, indent=None), flush=True)
        else:
            show_report(report)

    def print_error(error: TidegateError) -> None:
        print(error, file=sys.stderr, flush=True)

    stream_pipeline(project, name, every_seconds=seconds, submit=submit, on_report=print_one, on_error=print_error)


@app.command(rich_help_panel=STEPS)
def ingest(
    name: Name,
    run_id: RunId,
    accept_loss: AcceptLoss = None,
    json_: Json = False,
) -> None:
    """One step: read new data into staging."""
    from tidegate.runs.steps import ingest_run

    project = open_project()
    run_step(
        lambda: ingest_run(project, name, run_id, submit=submit, accept_loss=accept_loss), project, name, run_id, json_
    )


@app.command(rich_help_panel=STEPS)
def audit(name: Name, run_id: RunId, json_: Json = False) -> None:
    """One step: check what is staged."""
    from tidegate.runs.gate_steps import audit_run

    project = open_project()
    run_step(lambda: audit_run(project, name, run_id), project, name, run_id, json_)


@app.command(rich_help_panel=STEPS)
def publish(name: Name, run_id: RunId, json_: Json = False) -> None:
    """One step: add what passed to the table."""
    from tidegate.runs.gate_steps import publish_run

    project = open_project()
    run_step(lambda: publish_run(project, name, run_id), project, name, run_id, json_)


@app.command(rich_help_panel=STEPS)
def deliver(
    name: Name,
    run_id: Annotated[str | None, typer.Option("--run-id", help="The run this step belongs to.")] = None,
    json_: Json = False,
) -> None:
    """One step: feed further sinks the versions they are behind, whichever run published them."""
    from tidegate.runs.deliver import deliver_run

    project = open_project()
    chosen = name_work("deliver", run_id)
    run_step(lambda: deliver_run(project, name, chosen, submit=submit), project, name, chosen, json_)
