"""The command line. stdout is the result, stderr everything else; exit codes are those of :mod:`tidegate.errors`."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, TypeVar

import typer

from tidegate import __version__
from tidegate.cli.grouped import DECIDE, LOOK, REPAIR, START, STEPS, GroupedCommands
from tidegate.errors import TidegateError, TryAgainError, catalogue
from tidegate.words import count_of

if TYPE_CHECKING:
    from tidegate.driver.progress import Event
    from tidegate.driver.submit import SubmitPlan
    from tidegate.outputs import BackfillPlan, RunReport
    from tidegate.project import Project
    from tidegate.quarantine.filters import QuarantineFilter

app = typer.Typer(
    name="tidegate",
    cls=GroupedCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Streaming on a schedule: drain what arrived, check it, publish it, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
quarantine_app = typer.Typer(
    help="Quarantined records: list, show, export, and replay, which puts them through again.", no_args_is_help=True
)

_BY_WEIGHT = (0, 75, 64, 65, 66, 78, 70)
"""Exit codes from the one that needs nobody to the one that needs us."""

_T = TypeVar("_T")


@dataclass
class _State:
    """What one command line shares with what prints its end."""

    project: Path | None = None
    printed: bool = False


_state = _State()


def _complete_name(incomplete: str) -> list[str]:
    """The pipelines of the project of this folder, for the shell."""
    from tidegate.pipeline import list_pipelines
    from tidegate.project import load_project

    try:
        return [name for name in list_pipelines(load_project(None)) if name.startswith(incomplete)]
    except (TidegateError, OSError):
        return []


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.", autocompletion=_complete_name)]
RunId = Annotated[str, typer.Option("--run-id", help="The run this step belongs to.")]
HeldRun = Annotated[str, typer.Argument(metavar="RUN_ID", help="The held run, as status names it.")]
WorkId = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        help="A name for this piece of work. Safe to repeat: with the same one it goes on, or is done already.",
    ),
]
Then = Literal["reread", "leave-out"]
AcceptLoss = Annotated[
    str | None,
    typer.Option("--accept-loss", help="After exit 66: go on without what was lost; the reason is recorded."),
]
OfReason = Annotated[str | None, typer.Option("--reason", help="Only this reason: malformed, late, or a rule.")]
OfRule = Annotated[str | None, typer.Option("--rule", help="Only rows that break this rule, alone or among others.")]
OfRun = Annotated[str | None, typer.Option("--run-id", help="Only records of this run.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COLUMN=TEXT",
        help="Only where the column is TEXT, or with COLUMN~TEXT contains it; repeatable.",
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is recorded with who decided.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    project: Annotated[
        Path | None, typer.Option("--project", help="The project's folder (default: found upwards from here).")
    ] = None,
) -> None:
    _state.project = project


def main() -> NoReturn:
    """Entry point: runs a command, prints an error as people read it, and exits with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that the terminal lacks must not end a command
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, _stop)  # typer would end a command without a word
    try:
        code = app(standalone_mode=False)  # what typer.Exit carried is returned here, not raised
    except TidegateError as error:
        _fail(error)
    except typer.Exit as leaving:
        raise SystemExit(leaving.exit_code) from None
    except typer.Abort:
        raise SystemExit(75) from None
    except Exception as error:  # noqa: BLE001 - every error ends as a message and an exit code
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # click's own: wrong use
            error.show()
            raise SystemExit(64) from None
        from tidegate.extras import explain_missing
        from tidegate.storage import name_cause

        if (known := explain_missing(error) or name_cause(error, Path.cwd())) is not None:
            _fail(known)
        import traceback

        traceback.print_exc()
        raise SystemExit(70) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _fail(error: TidegateError) -> NoReturn:
    if "--json" in sys.argv and not _state.printed:  # one document: a failed run's report holds its error already
        print(_dump({"error": error.to_dict()}))
    print(str(error), file=sys.stderr)
    raise SystemExit(error.exit_code)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise _stopped(signal.Signals(signum).name)


def _stopped(how: str) -> TryAgainError:
    return catalogue.COMMAND_STOPPED(where=f"project {_state.project or Path.cwd()}", how=how)


def _project() -> Project:
    from tidegate.project import load_project

    return load_project(_state.project)


def _print(value: _T, as_json: bool, show: Callable[[_T], None]) -> None:
    if as_json:
        _state.printed = True
        print(_dump(value))
    else:
        show(value)


def _dump(value: object, indent: int | None = 1) -> str:
    """``value`` as JSON, in letters that stdout has."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def _submit(plan: SubmitPlan, *, then_audit: bool = False) -> int:
    from tidegate.audit.gx_import import AHEAD_AT_MOST_BYTES, import_gx_ahead
    from tidegate.cli.progress import ProgressLine
    from tidegate.driver.submit import run_spark_submit

    with ProgressLine() as line:

        def on_event(event: Event) -> None:
            line.show(event)
            if event["event"] == "session" and then_audit and plan.pending_bytes <= AHEAD_AT_MOST_BYTES:
                import_gx_ahead()

        return run_spark_submit(plan, on_event)


def _finish_run(report: RunReport, as_json: bool) -> None:
    from tidegate.cli.show import show_report

    _print(report, as_json, show_report)


def _step(act: Callable[[], RunReport], project: Project, name: str, run_id: str, as_json: bool) -> None:
    """Run a step; when it fails, the report is printed anyway, and the error after it."""
    from tidegate.reports.report import load_report

    try:
        report = act()
    except TidegateError:
        failed = load_report(project.paths(name), run_id)
        if failed is not None and failed.error is not None:
            _finish_run(failed.to_json(), as_json)
        raise
    _finish_run(report, as_json)


@app.command(rich_help_panel=START)
def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new project's folder.")]) -> None:
    """Write a new project that runs as it is."""
    from tidegate.cli.show import show_scaffold
    from tidegate.scaffold.write import init_project

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
    from tidegate.cli.show import show_scaffold
    from tidegate.scaffold.infer_columns import FORMATS
    from tidegate.scaffold.write import new_bare_pipeline, new_pipeline, new_topic_pipeline

    project = _project()
    if format_ is not None and format_ not in FORMATS.values():
        raise catalogue.UNKNOWN_FORMAT(format=format_)
    topic = from_.removeprefix("kafka:") if from_ is not None and from_.startswith("kafka:") else None
    if topic is not None and format_ not in (None, "json"):
        raise catalogue.TOPIC_FORMAT(format=format_)
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
        typer.Argument(metavar="NAME", help="Pipelines (default: all).", autocompletion=_complete_name),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Also have Spark analyse the query.")] = False,
    upgrade_suite: Annotated[
        bool, typer.Option("--upgrade-suite", help="First rewrite suites of Great Expectations before 1.0.")
    ] = False,
    json_: Json = False,
) -> None:
    """Check specs, suites and transforms."""
    from tidegate.sources.files.starts import list_changed_starts
    from tidegate.validate.command import upgrade_suites, validate_pipelines

    project = _project()
    if upgrade_suite:
        for path, kept in upgrade_suites(project, names or None):
            print(f"rewrote {path}; as it was: {kept}", file=sys.stderr)
    faults = validate_pipelines(project, names or None, with_spark=spark)
    for note in list_changed_starts(project, names or None):
        print(f"note: {note}", file=sys.stderr)
    if json_:
        print(_dump([fault.to_dict() for fault in faults]))
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
    from tidegate.cli.show import show_trial
    from tidegate.operate.trial import try_pipeline

    value = try_pipeline(_project(), name, rows=rows, submit=_submit)
    _print(value, json_, show_trial)
    if value["held"] is not None:
        raise typer.Exit(65)


@app.command(rich_help_panel=START)
def doctor(json_: Json = False) -> None:
    """Check everything a run needs: Java, versions, jars, brokers, folders. Exit 1 when something is missing."""
    from tidegate.cli.show import show_findings
    from tidegate.operate.doctor import examine

    findings = [finding.to_dict() for finding in examine(_project())]
    _print(findings, json_, show_findings)
    if not all(finding["ok"] for finding in findings):
        raise typer.Exit(1)


@app.command(rich_help_panel=START)
def jars() -> None:
    """Fetch missing jars, those of spark.packages and of Spark's Kafka source, and compare each with its checksum."""
    from tidegate.driver.packages import choose_mirror, describe_misfits, fetch_packages, write_line
    from tidegate.driver.submit import find_kafka_jars
    from tidegate.operate.catalog import reads_kafka

    def say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    project = _project()
    for package, path, sha256 in fetch_packages(project, say, choose_mirror()):
        if package.sha256 is None:
            print(f"{write_line(package, sha256)}  # tidegate.yaml, spark.packages: no run starts without the checksum")
        else:
            print(f"{package.jar}: {path}")
    if reads_kafka(project):
        for path in find_kafka_jars(project, say):
            print(path)
    for misfit in describe_misfits(project):
        print(f"note: {misfit}; take the version of this Spark if there is one", file=sys.stderr)


@app.command(rich_help_panel=START)
def run(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="One pipeline, or several, one after another.", autocompletion=_complete_name
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
    from tidegate.reports.run_ids import new_run_id

    project = _project()
    chosen = new_run_id() if run_id is None else run_id  # an empty one is wrong, not none
    if len(names) == 1:
        _step(lambda: _run_one(project, names[0], chosen, accept_loss), project, names[0], chosen, json_)
        return
    if accept_loss is not None:
        raise catalogue.ONE_AT_A_TIME(number=len(names))
    code = _run_several(project, list(dict.fromkeys(names)), chosen, json_)
    if code:
        raise typer.Exit(code)


def _run_one(project: Project, name: str, run_id: str, accept_loss: str | None = None) -> RunReport:
    from tidegate.run.steps import run_pipeline

    submit = partial(_submit, then_audit=project.suite_path(name).exists())
    return run_pipeline(project, name, run_id, submit=submit, accept_loss=accept_loss)


def _run_several(project: Project, names: list[str], run_id: str, as_json: bool) -> int:
    """Run each, whatever became of the one before; the exit code of the worst."""
    from tidegate.cli.show import show_report
    from tidegate.reports.report import failed_report, load_report

    reports, codes = [], [0]
    for name in names:
        try:
            report = _run_one(project, name, run_id)
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
        _print(reports, as_json, lambda value: None)
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
    from tidegate.cli.show import show_report
    from tidegate.operate.stream import stream_pipeline
    from tidegate.spec.models import parse_duration

    if continuous is not None:
        raise catalogue.NOT_SUPPORTED_YET(name=name)
    try:
        seconds = None if every is None else parse_duration(every)
    except ValueError as error:
        raise catalogue.BAD_DURATION(error=error) from error
    project = _project()
    submit = partial(_submit, then_audit=project.suite_path(name).exists())

    def tell(report: RunReport) -> None:
        if json_:
            print(_dump(report, indent=None), flush=True)
        else:
            show_report(report)

    def complain(error: TidegateError) -> None:
        print(error, file=sys.stderr, flush=True)

    stream_pipeline(project, name, every_seconds=seconds, submit=submit, tell=tell, complain=complain)


@app.command("list", rich_help_panel=LOOK)
def list_(json_: Json = False) -> None:
    """The pipelines, with schedule and sources."""
    from tidegate.cli.show import show_catalog
    from tidegate.operate.catalog import catalog_pipelines

    _print(catalog_pipelines(_project()), json_, show_catalog)


@app.command(rich_help_panel=LOOK)
def plan(name: Name, json_: Json = False) -> None:
    """What the next run would read, and what is held. No JVM, nothing written."""
    from tidegate.cli.show import show_plan
    from tidegate.operate.outlook import plan_pipeline

    _print(plan_pipeline(_project(), name), json_, show_plan)


@app.command(rich_help_panel=LOOK)
def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The pipeline (default: all).", autocompletion=_complete_name),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only pipelines that need a person.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="How many runs of each to show (default: 10 of one, 3 of all).")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit 1 when a pipeline needs a person: held, failing, behind its schedule, ..."),
    ] = False,
    json_: Json = False,
) -> None:
    """Last runs, backlog, held increments, changed files, table version, the worst first. No JVM."""
    from tidegate.cli.show import show_status
    from tidegate.operate.status import project_status
    from tidegate.operate.trouble import needs_a_person, summarise

    rows = project_status(_project(), name, limit)
    shown = [row for row in rows if row["trouble"]] if failed else rows
    if shown or json_ or not rows:
        _print(shown, json_, show_status)
    elif name is not None:
        print(f"{name}: nothing needs a person")
    if name is None and rows and not json_:
        print(summarise(rows))
    if check and (found := needs_a_person(rows)):
        print("\n".join(found), file=sys.stderr)
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def logs(
    name: Name,
    run_id: Annotated[str | None, typer.Argument(metavar="RUN_ID", help="The run (default: the newest).")] = None,
    json_: Json = False,
) -> None:
    """What a run printed: the progress of its batches, and the Spark driver's log, kept until a run succeeds."""
    from tidegate.cli.show import show_logs
    from tidegate.operate.logs import read_logs

    _print(read_logs(_project(), name, run_id), json_, show_logs)


@app.command(rich_help_panel=LOOK)
def state(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", help="Rows to show of each store.")] = 20,
    json_: Json = False,
) -> None:
    """The query's state between runs: keys and values, read from its checkpoint (starts Spark)."""
    from tidegate.cli.show import show_state
    from tidegate.inspection.show_state import read_state

    _print(read_state(_project(), name, limit=limit), json_, show_state)


app.add_typer(quarantine_app, name="quarantine", rich_help_panel=LOOK)


@app.command(rich_help_panel=DECIDE)
def release(name: Name, run_id: HeldRun, reason: Reason, json_: Json = False) -> None:
    """Publish a held increment anyway."""
    _decide(name, run_id, "release", reason, json_)


@app.command(rich_help_panel=DECIDE)
def discard(name: Name, run_id: HeldRun, reason: Reason, json_: Json = False) -> None:
    """Leave a held increment out of the table for good."""
    _decide(name, run_id, "discard", reason, json_)


def _decide(name: str, run_id: str, decision: Literal["release", "discard"], reason: str, as_json: bool) -> None:
    from tidegate.backfill.held import decide_backfill, is_held_backfill
    from tidegate.run.steps import decide

    project = _project()
    if is_held_backfill(project, name, run_id):
        report = decide_backfill(project, name, run_id, decision=decision, reason=reason)
    else:
        report = decide(project, name, run_id, decision=decision, reason=reason, submit=_submit)
    _finish_run(report, as_json)


@app.command(rich_help_panel=DECIDE)
def reread(
    name: Name,
    run_id: HeldRun,
    reason: Reason = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read again and what prevents it; decide nothing.")
    ] = False,
    json_: Json = False,
) -> None:
    """Read a held increment again from the source, with schema, suite and transform as they are now, and go on."""
    from tidegate.run.steps import reread_run

    project = _project()
    if dry_run:
        from tidegate.cli.show import show_reread
        from tidegate.restart.reread import look_at_reread

        value = look_at_reread(project, name, run_id)
        _print(value, json_, show_reread)
        if value["hindrance"] is not None:
            raise typer.Exit(value["hindrance"]["exit_code"])
        return
    submit = partial(_submit, then_audit=project.suite_path(name).exists())
    _step(lambda: reread_run(project, name, run_id, reason=reason, submit=submit), project, name, run_id, json_)


@app.command(rich_help_panel=DECIDE)
def acknowledge(
    name: Name,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Files, as status names them (default: all).")
    ] = None,
    reason: Reason = "",
    json_: Json = False,
) -> None:
    """Confirm that you know which files changed after they were read. Their new content stays unread."""
    from tidegate.cli.show import show_acknowledged
    from tidegate.operate.acknowledge import acknowledge_changes

    _print(acknowledge_changes(_project(), name, files or (), reason=reason), json_, show_acknowledged)


@app.command(rich_help_panel=REPAIR)
def adopt(
    name: Name,
    table: Annotated[Path, typer.Option("--table", help="The folder of the table that is there.")],
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="The checkpoint of the plain Spark job that wrote it: what it has read."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is found and what would be done; change nothing.")
    ] = False,
    run_id: WorkId = None,
    json_: Json = False,
) -> None:
    """Take over a parquet or Delta table where it lies, and the checkpoint of the plain Spark job that wrote it."""
    from tidegate.adopt.adoption import adopt_table, look_at_adoption
    from tidegate.cli.show import show_adoption
    from tidegate.reports.run_ids import new_run_id

    project = _project()
    if dry_run:
        _print(look_at_adoption(project, name, table, checkpoint), json_, show_adoption)
        return
    own = run_id or new_run_id("adopt")
    _step(lambda: adopt_table(project, name, own, table, checkpoint), project, name, own, json_)


@app.command(rich_help_panel=REPAIR)
def repair(
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the choices and change nothing.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Back up the table and build a new one from everything the sources still have."),
    ] = False,
    json_: Json = False,
) -> None:
    """Where checkpoint, table and spec disagree: a new checkpoint that starts exactly where the table's log ends."""
    from tidegate.cli.show import show_repair
    from tidegate.restart.repair import repair_pipeline

    _print(repair_pipeline(_project(), name, dry_run=dry_run, rebuild=rebuild), json_, show_repair)


@app.command(rich_help_panel=REPAIR)
def backfill(
    name: Name,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="The first day, or a time stamp at which a day begins.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", help="The last day, which is included, or a time stamp, which is not."),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE", help="Partitions by name, instead of days; repeatable."),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", help="The time zone of time stamps without one, and of their days (UTC).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read and replaced, and what prevents it.")
    ] = False,
    run_id: WorkId = None,
    json_: Json = False,
) -> None:
    """Rebuild partitions from the source, with schema, suite and transform as they are now, and swap them in."""
    from tidegate.backfill.command import backfill_table, look_at_backfill
    from tidegate.backfill.span import Wanted
    from tidegate.reports.run_ids import new_run_id

    project = _project()
    wanted = Wanted(from_, to, tuple(partition or ()), zone)
    if dry_run:
        _show_backfill(look_at_backfill(project, name, wanted), json_)
        return
    chosen = new_run_id("backfill") if run_id is None else run_id
    submit = partial(_submit, then_audit=project.suite_path(name).exists())
    _step(lambda: backfill_table(project, name, chosen, wanted, submit=submit), project, name, chosen, json_)


@app.command(rich_help_panel=REPAIR)
def refresh(
    name: Name,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read and replaced, and what prevents it.")
    ] = False,
    run_id: WorkId = None,
    json_: Json = False,
) -> None:
    """Rebuild the whole table from all that runs have taken, beside the old one, check it, and swap it in."""
    from tidegate.backfill.command import look_at_backfill, refresh_table
    from tidegate.reports.run_ids import new_run_id

    project = _project()
    if dry_run:
        _show_backfill(look_at_backfill(project, name, None), json_)
        return
    chosen = new_run_id("refresh") if run_id is None else run_id
    submit = partial(_submit, then_audit=project.suite_path(name).exists())
    _step(lambda: refresh_table(project, name, chosen, submit=submit), project, name, chosen, json_)


def _show_backfill(value: BackfillPlan, as_json: bool) -> None:
    from tidegate.cli.show import show_backfill

    _print(value, as_json, show_backfill)
    if value["hindrance"] is not None:
        raise typer.Exit(value["hindrance"]["exit_code"])


@app.command(rich_help_panel=REPAIR)
def rollback(
    name: Name,
    to_version: Annotated[int, typer.Option("--to-version", help="The version whose rows the table gets.")],
    then: Annotated[
        Then | None,
        typer.Option(
            "--then",
            metavar="reread|leave-out",
            help="What becomes of the records in between: the next run reads them again, or not.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and both choices; change nothing.")
    ] = False,
    run_id: WorkId = None,
    json_: Json = False,
) -> None:
    """Give the table the rows of an earlier version, in one new version."""
    from tidegate.reports.run_ids import new_run_id
    from tidegate.run.rollback import look_at_rollback, roll_back

    project = _project()
    if dry_run:
        from tidegate.cli.show import show_rollback

        value = look_at_rollback(project, name, to_version)
        _print(value, json_, show_rollback)
        in_the_way = [value["hindrance"], *(one["hindrance"] for one in value["choices"] if one["then"] == then)]
        if code := next((error["exit_code"] for error in in_the_way if error is not None), 0):
            raise typer.Exit(code)
        return
    chosen = new_run_id("rollback") if run_id is None else run_id
    _step(lambda: roll_back(project, name, to_version, then, chosen), project, name, chosen, json_)


@app.command(rich_help_panel=REPAIR)
def reset(
    name: Name,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Back up the table and build a new one, and the state, from everything the sources still have.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    confirm: Annotated[str | None, typer.Option("--confirm", help="The pipeline's name once more, to do it.")] = None,
    json_: Json = False,
) -> None:
    """Start a pipeline's checkpoint anew: where it stopped, or from the beginning. Shows its plan before it acts."""
    from tidegate.cli.show import show_repair
    from tidegate.restart.reset import reset_pipeline

    value = reset_pipeline(_project(), name, from_beginning=from_beginning, dry_run=dry_run, confirm=confirm)
    _print(value, json_, show_repair)


@app.command(rich_help_panel=REPAIR)
def maintain(
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be done, and change nothing.")] = False,
    run_id: WorkId = None,
    json_: Json = False,
) -> None:
    """Put small files together, remove what nothing needs any more, and what is older than `maintenance:` keeps."""
    from tidegate.reports.run_ids import new_run_id

    project = _project()
    if dry_run:
        from tidegate.cli.show import show_maintenance
        from tidegate.maintain.foresee import foresee_maintenance

        value = foresee_maintenance(project, name)
        _print(value, json_, show_maintenance)
        if value["hindrance"] is not None:
            raise typer.Exit(value["hindrance"]["exit_code"])
        return
    from tidegate.maintain.command import maintain_pipeline

    chosen = new_run_id("maintain") if run_id is None else run_id
    _step(lambda: maintain_pipeline(project, name, chosen), project, name, chosen, json_)


@app.command(rich_help_panel=STEPS)
def ingest(
    name: Name,
    run_id: RunId,
    accept_loss: AcceptLoss = None,
    json_: Json = False,
) -> None:
    """One step: read new data into staging."""
    from tidegate.run.steps import ingest_run

    project = _project()
    _step(
        lambda: ingest_run(project, name, run_id, submit=_submit, accept_loss=accept_loss), project, name, run_id, json_
    )


@app.command(rich_help_panel=STEPS)
def audit(name: Name, run_id: RunId, json_: Json = False) -> None:
    """One step: check what is staged."""
    from tidegate.run.steps import audit_run

    project = _project()
    _step(lambda: audit_run(project, name, run_id), project, name, run_id, json_)


@app.command(rich_help_panel=STEPS)
def publish(name: Name, run_id: RunId, json_: Json = False) -> None:
    """One step: add what passed to the table."""
    from tidegate.run.steps import publish_run

    project = _project()
    _step(lambda: publish_run(project, name, run_id), project, name, run_id, json_)


@app.command(rich_help_panel=STEPS)
def deliver(
    name: Name,
    run_id: Annotated[str | None, typer.Option("--run-id", help="The run this step belongs to.")] = None,
    json_: Json = False,
) -> None:
    """One step: feed further sinks the versions they are behind, whichever run published them."""
    from tidegate.reports.run_ids import new_run_id
    from tidegate.run.steps import deliver_run

    project = _project()
    chosen = new_run_id("deliver") if run_id is None else run_id
    _step(lambda: deliver_run(project, name, chosen, submit=_submit), project, name, chosen, json_)


@quarantine_app.command("list")
def quarantine_list(
    name: Name,
    reason: OfReason = None,
    rule: OfRule = None,
    of_run: OfRun = None,
    where: Where = None,
    json_: Json = False,
) -> None:
    """How many records were quarantined, by run, reason and cause, with an example of each."""
    from tidegate.cli.show import show_causes
    from tidegate.operate.held_records import find_held_records
    from tidegate.quarantine.read import list_quarantine

    project = _project()
    wanted, paths = _filter(project, name, reason, rule, of_run, where), project.paths(name)
    found = list_quarantine(paths.quarantine, wanted, find_held_records(paths))
    _refuse_misspelt(project, name, wanted, found)
    _print(found, json_, show_causes)


@quarantine_app.command("show")
def quarantine_show(
    name: Name,
    reason: OfReason = None,
    rule: OfRule = None,
    of_run: OfRun = None,
    where: Where = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, newest first.")] = 20,
    json_: Json = False,
) -> None:
    """The records themselves, newest first."""
    from tidegate.cli.show import show_records
    from tidegate.operate.held_records import find_held_records
    from tidegate.quarantine.read import show_quarantine

    project = _project()
    wanted, paths = _filter(project, name, reason, rule, of_run, where), project.paths(name)
    found = show_quarantine(paths.quarantine, wanted, limit, find_held_records(paths))
    _refuse_misspelt(project, name, wanted, found)
    _print(found, json_, show_records)


@quarantine_app.command("export")
def quarantine_export(
    name: Name,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="A file that is not there yet (default: stdout).", show_default=False
        ),
    ] = None,
    reason: OfReason = None,
    rule: OfRule = None,
    of_run: OfRun = None,
    where: Where = None,
) -> None:
    """The records as JSON lines, each with its id: to be edited, and given to replay --file."""
    from tidegate.quarantine.export import export_quarantine

    project = _project()
    wanted = _filter(project, name, reason, rule, of_run, where)
    count = export_quarantine(project.paths(name).quarantine, wanted, to, sys.stdout)
    _refuse_misspelt(project, name, wanted, count)
    print(f"exported {count_of(count, 'record')}{f' to {to}' if to else ''}", file=sys.stderr)


@quarantine_app.command("replay")
def quarantine_replay(
    name: Name,
    reason: OfReason = None,
    rule: OfRule = None,
    of_run: OfRun = None,
    where: Where = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Edited records: JSON lines with the id and the raw text of each.",
            dir_okay=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be put through, and what stays and why.")
    ] = False,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="RUN_ID", help="A name for this replay. Safe to repeat.")
    ] = None,
    json_: Json = False,
) -> None:
    """Put quarantined records through again (default: all), with schema, suite and transform as they are now."""
    from tidegate.replay.choose import Selection
    from tidegate.replay.command import look_at_replay, replay_records
    from tidegate.replay.edits import read_edits
    from tidegate.reports.run_ids import new_run_id

    project = _project()
    selection = Selection(_filter(project, name, reason, rule, of_run, where))
    if file is not None:
        options = {"--reason": reason, "--rule": rule, "--run-id": of_run, "--where": where}
        if given := [option for option, value in options.items() if value]:
            raise catalogue.REPLAY_ARGUMENTS(where=f"pipeline {name}", given=", ".join(given))
        selection = Selection(edits=read_edits(file))
    if dry_run:
        from tidegate.cli.show import show_replay

        value = look_at_replay(project, name, selection)
        _print(value, json_, show_replay)
        if value["hindrance"] is not None:
            raise typer.Exit(value["hindrance"]["exit_code"])
        return
    chosen = new_run_id("replay") if as_ is None else as_
    submit = partial(_submit, then_audit=project.suite_path(name).exists())
    _step(lambda: replay_records(project, name, chosen, selection, submit=submit), project, name, chosen, json_)


def _filter(
    project: Project, name: str, reason: str | None, rule: str | None, run_id: str | None, where: list[str] | None
) -> QuarantineFilter:
    """What the options of a pipeline's quarantine mean. Raises UsageError when there is no such pipeline, or its spec
    cannot be read, and QUARANTINE_WHERE."""
    from tidegate.pipeline import load_pipeline
    from tidegate.quarantine.filters import QuarantineFilter, parse_where

    load_pipeline(project, name)
    return QuarantineFilter(run_id=run_id, reason=reason, rule=rule, where=parse_where(where or ()))


def _refuse_misspelt(project: Project, name: str, wanted: QuarantineFilter, found: object) -> None:
    """Raise UsageError QUARANTINE_UNKNOWN where nothing was found, because the reason, or the rule, is none."""
    from tidegate.replay.choose import check_names

    if not found:
        check_names(project, project.paths(name), name, wanted)


if __name__ == "__main__":
    main()
