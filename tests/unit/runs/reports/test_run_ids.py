"""Run ids are free text from whoever may trigger a run: none can look like a file of another run, or be too long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.held import GOOD, NAME, Held, commands
from tests.support.staged import make_paths
from tests.support.sweep import examples
from tests.unit.verdicts import make_decision, make_verdict
from tidegate.cli.main import main
from tidegate.core.errors import HeldError, UsageError
from tidegate.core.paths import encode_run_id
from tidegate.runs import decide, deliver, gate_steps, steps
from tidegate.runs.reports.report import load_report, new_report, read_newest, save_report
from tidegate.runs.reports.verdicts import (
    Answer,
    find_hold,
    list_verdicts,
    load_decision,
    load_verdict,
    save_decision,
    save_verdict,
)

KINDS = (
    "verdict", "decision", "report", "progress", "order", "ingest_result", "driver_log", "driver_results",
    "delivery_order", "delivery_result", "delivery_log",
)  # fmt: skip
SUFFIXES = (
    ".json", ".decision", ".result", ".quality", ".delivery", ".log", ".progress", ".jsonl", ".tmp", ".state",
    "verdict-", "/", "\\", ".", "..", "%", "%-", "%2E", "%25", "night", "a", "A", " ", "ü", "é", "é", "😀",
    "x" * 60, "😀" * 20,
)  # fmt: skip
IDS = st.lists(st.sampled_from(SUFFIXES), min_size=1, max_size=12).map("".join).filter(lambda one: len(one) <= 250)
PLAIN = st.text(min_size=1, max_size=250).filter(str.isprintable)
LONG = st.integers(150, 250).map(lambda count: "😀" * count) | st.integers(190, 250).map(lambda count: "a" * count)


@given(one=IDS | PLAIN | LONG, other=IDS | PLAIN | LONG)
@example(one="night", other="night.decision")
@example(one="X", other="X.delivery")
@example(one="a" * 250, other="a" * 249)
@example(one="😀" * 250, other=encode_run_id("😀" * 250))
@example(one="a" * 200, other="a" * 201)
@settings(max_examples=examples(150), deadline=None)
def test_no_two_files_of_runs_have_one_name(one: str, other: str) -> None:
    paths = make_paths(Path("/p"))
    names = [getattr(paths, kind)(run_id) for run_id in {one, other} for kind in KINDS]
    assert len(set(names)) == len(names), "one file for two things"
    for path in names:
        beside = f".{path.name}.{'0' * 12}.tmp"
        assert all(len(part.encode()) <= 255 for part in (*path.parts, beside))
        assert path == Path(os.path.normpath(path)) and path.is_relative_to(paths.state)
        assert not any(path in other_path.parents for other_path in names), "a file where another has a folder"


@given(ids=st.lists(IDS | LONG, min_size=1, max_size=4, unique=True))
@settings(max_examples=examples(40), deadline=None)
def test_every_hold_is_found_whatever_its_run_is_called(ids: list[str]) -> None:
    with TemporaryDirectory() as folder:
        paths = make_paths(Path(folder))
        verdicts = {run_id: make_verdict(run_id, number, failed=True) for number, run_id in enumerate(ids)}
        for run_id, verdict in verdicts.items():
            save_verdict(paths, verdict)
            save_report(paths, new_report(NAME, run_id))
        decided = verdicts[ids[0]]
        save_decision(paths, make_decision(decided))
        assert {verdict.run_id: verdict for verdict in list_verdicts(paths)} == verdicts
        for run_id, verdict in verdicts.items():
            assert load_verdict(paths, run_id) == verdict
            assert (load_decision(paths, verdict) is None) is (run_id != ids[0])
            report = load_report(paths, run_id)
            assert report is not None and report.run_id == run_id
        for by_name in (False, True):
            found, unreadable = read_newest(paths, len(ids), by_name=by_name)
            assert {report.run_id for report in found} == set(ids) and not unreadable


@pytest.mark.parametrize("run_id", ["night.decision", "night.json", "night.decision.json", "😀" * 250, "a" * 250])
def test_a_hold_under_any_run_id_stops_the_next_run(tmp_path: Path, run_id: str) -> None:
    held = Held(tmp_path)
    with commands(lambda: held):
        held.hold(run_id)
        with pytest.raises(HeldError) as later:
            held.run("night", GOOD)
        assert later.value.code == "EARLIER_INCREMENT_HELD" and held.rows() == []
        assert find_hold(held.paths, []) is None
        assert held.decide("discard", run_id)["outcome"] == "discarded"
        assert held.run("night", GOOD)["rows"]["published"] == 4
        assert held.report(run_id) == ("discarded", 0)


def test_a_timed_run_id_that_is_too_long_for_a_name_is_still_among_the_newest(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    for number in range(30):
        report = new_report(NAME, f"scheduled__2026-01-01T00:{number:02d}:00+00:00" + "é" * 100 * (number % 2))
        report.started_at = f"2026-01-01T00:{number:02d}:00"
        save_report(paths, report)
    found, _ = read_newest(paths, 3, by_name=True)
    assert [report.run_id[:27] for report in found] == [f"scheduled__2026-01-01T00:{n}" for n in (29, 28, 27)]


REFUSED = ["a" * 255, "a" * 300, "a" * 1000, "😀" * 255, "a\nb", "a\u200db"]
TAKEN = ["a" * 200, "a" * 250, "😀" * 250, "it's $(id) ../.. %"]
COMMANDS = {
    "run": lambda i: ["run", NAME, "--run-id", i],
    "ingest": lambda i: ["ingest", NAME, "--run-id", i],
    "audit": lambda i: ["audit", NAME, "--run-id", i],
    "publish": lambda i: ["publish", NAME, "--run-id", i],
    "deliver": lambda i: ["deliver", NAME, "--run-id", i],
    "release": lambda i: ["release", NAME, i, "--reason", "r"],
    "discard": lambda i: ["discard", NAME, i, "--reason", "r"],
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an empty inbox: a run ends without Spark."""
    root = tmp_path_factory.mktemp("project")
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs" / NAME).mkdir(parents=True)
    (root / "data/inbox").mkdir(parents=True)
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING}\n"
    )
    return root


def tidegate(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["tidegate", "--project", str(root), *arguments])
        patch.setattr("signal.signal", lambda *a: None)
        main()
    assert isinstance(ended.value.code, int)
    return (ended.value.code, *capsys.readouterr())


def test_a_process_of_its_own_refuses_a_long_run_id(project: Path) -> None:
    command = [sys.executable, "-m", "tidegate.cli.main", "--project", str(project), "run", NAME, "--run-id", "a" * 300]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.partition(":")[0]) == (64, "BAD_RUN_ID"), ended.stderr
    assert "it has 300 characters" in ended.stderr and "1 to 250 printable characters" in ended.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_the_same_run_ids(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for run_id in REFUSED:
        code, _, stderr = tidegate(capsys, project, *COMMANDS[name](run_id))
        assert (code, stderr.partition(":")[0]) == (64, "BAD_RUN_ID"), stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_same_run_ids(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    codes = {"run": 0, "ingest": 0, "audit": 75, "publish": 75, "deliver": 0, "release": 64, "discard": 64}
    for run_id in TAKEN:
        own = run_id[: -len(name)] + name  # each command gets runs of its own
        code, _, stderr = tidegate(capsys, project, *COMMANDS[name](own))
        assert code == codes[name] and "BAD_RUN_ID" not in stderr and "Traceback" not in stderr, stderr
        if name in ("run", "ingest"):
            assert own in tidegate(capsys, project, "status", NAME)[1]


def test_the_steps_refuse_without_the_command_line(project: Path) -> None:
    """As Airflow's operators call them."""
    from tidegate.spec.project import load_project

    loaded = load_project(project)
    calls: list[Callable[[str], Any]] = [
        lambda i: steps.ingest_run(loaded, NAME, i, submit=lambda plan: 1),
        lambda i: gate_steps.audit_run(loaded, NAME, i),
        lambda i: gate_steps.publish_run(loaded, NAME, i),
        lambda i: deliver.deliver_run(loaded, NAME, i, submit=lambda plan: 1),
        lambda i: decide.decide(loaded, NAME, i, Answer("release", "r")),
    ]
    for call in calls:
        for run_id in REFUSED:
            with pytest.raises(UsageError) as refused:
                call(run_id)
            assert (refused.value.code, refused.value.exit_code) == ("BAD_RUN_ID", 64)
