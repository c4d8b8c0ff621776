"""What commands share, without typer: open the project, run a step, print the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport
    from tidegate.runs.recovery.context import Submit
    from tidegate.runs.reports.report import RunReport as KeptReport
    from tidegate.spark.driver.progress import Event
    from tidegate.spark.driver.submit import SubmitPlan
    from tidegate.spec.project import Project

_T = TypeVar("_T")


@dataclass
class CommandLine:
    """State of this command line, shared by the commands and the code that prints errors."""

    project: Path | None = None
    printed: bool = False


command_line = CommandLine()


def open_project() -> Project:
    """Load the project of ``--project``, or of the current folder. Raises ConfigError NO_PROJECT, or for its faults."""
    from tidegate.spec.project import load_project

    return load_project(command_line.project)


def name_work(kind: str, given: str | None) -> str:
    """Return the run id that was ``given``, or a new one. An empty id counts as given, and is refused later."""
    from tidegate.runs.reports.report import new_run_id

    return new_run_id(kind) if given is None else given


def print_value(value: _T, as_json: bool, show: Callable[[_T], None]) -> None:
    """Print the result of a command, for programs or for people."""
    if as_json:
        command_line.printed = True
        print(dump(value))
    else:
        show(value)


def dump(value: object, indent: int | None = 1) -> str:
    """Return ``value`` as JSON, with escapes if stdout lacks a character."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def submit(plan: SubmitPlan, *, then_audit: bool = False) -> int:
    """Start a Spark driver, show its progress, and return its exit code."""
    from tidegate.quality.gx_judge import AHEAD_AT_MOST_BYTES, import_gx_ahead
    from tidegate.spark.driver.submit import run_spark_submit

    with ProgressLine() as line:

        def on_event(event: Event) -> None:
            line.show(event)
            if event["event"] == "session" and then_audit and plan.pending_bytes <= AHEAD_AT_MOST_BYTES:
                import_gx_ahead()

        return run_spark_submit(plan, on_event)


def submit_before_audit(project: Project, name: str) -> Submit:
    """:func:`submit` for a job that audits this pipeline afterwards."""
    return partial(submit, then_audit=project.suite_path(name).exists())


def print_report(report: RunReport, as_json: bool) -> None:
    """Print the report of a run."""
    from tidegate.cli.show_runs import show_report

    print_value(report, as_json, show_report)


def run_step(act: Callable[[], RunReport], project: Project, name: str, run_id: str, as_json: bool) -> None:
    """Run a step and print its report, also when it fails."""
    from tidegate.runs.reports.report import load_report

    try:
        report = act()
    except TidegateError:
        failed = load_report(project.paths(name), run_id)
        if failed is not None and failed.error is not None:
            print_report(failed.to_json(), as_json)
        raise
    print_report(report, as_json)


def run_job(act: Callable[[], RunReport], project: Project, name: str, run_id: str, as_json: bool) -> None:
    """Run a side job as :func:`run_step` does, and say so if it had ended before and was therefore not repeated."""
    from tidegate.runs.reports.report import load_report

    ended = _note_ended(load_report(project.paths(name), run_id))
    if ended is None:
        run_step(act, project, name, run_id, as_json)
        return

    def act_noted() -> RunReport:
        report = act()
        return {**report, "notes": [*report["notes"], ended]}

    run_step(act_noted, project, name, run_id, as_json)
    print(f"note: {ended}", file=sys.stderr)


def _note_ended(before: KeptReport | None) -> str | None:
    """The note of a repeated job, from the report that there was ``before`` it; None if the job had not ended."""
    from tidegate.runs.reports.report import FINAL_OUTCOMES, RUN_ID_OPTIONS, RUN_STATES

    if before is None or before.outcome not in FINAL_OUTCOMES:
        return None
    return (
        f"run id {before.run_id} ended at {before.ended_at} ({RUN_STATES[before.outcome].text}), and was not repeated: "
        "edits made since then have no effect. To do it again with the current files, use another run id "
        f"({RUN_ID_OPTIONS.get(before.mode, '--run-id')}), or none"
    )


def run_one(project: Project, name: str, run_id: str, accept_loss: str | None = None) -> RunReport:
    """Run all steps for one pipeline."""
    from tidegate.runs.steps import run_pipeline

    submit = submit_before_audit(project, name)
    return run_pipeline(project, name, run_id, submit=submit, accept_loss=accept_loss)


class ProgressLine:
    """Shows the driver's events. As a context manager it ends the last line."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._width = 0

    def show(self, event: Event) -> None:
        """Show one event, except errors, which the command prints."""
        from tidegate.spark.driver.progress import describe_event

        if event["event"] in ("error", "result"):
            return
        text = describe_event(event)
        if self._live:
            # Not sys.stderr, whose control characters are escaped; ``text`` has none.
            print("\r" + text[:118].ljust(self._width), end="", file=sys.__stderr__, flush=True)
            self._width = min(len(text), 118)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live and self._width:
            print(file=sys.__stderr__)
