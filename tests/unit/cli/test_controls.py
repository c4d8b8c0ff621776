"""Text from outside is printed with its control characters escaped, by every command."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.held import NAME
from tests.unit.rework.replay.quarantined import Quarantined, at_work
from tidegate.cli.commands import app
from tidegate.cli.main import _escaped, main
from tidegate.cli.work import ProgressLine
from tidegate.core.words import escape_controls, escape_line
from tidegate.runs.reports.report import new_report, save_report

EVIL = "\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\u202egnp.exe\u2066\u2028x\x85y"
SEEN = escape_controls(EVIL)
_FORBIDDEN = re.compile("[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\u2028-\u202e\u2066-\u2069]")
_FILES = "watched"
_SPEC = """version: 1
name: watched
schedule: null
sources:
  s: {type: files, path: "inbox/*", format: json, schema: id BIGINT, settle: 0 seconds}
"""

SHOWN = {
    "plan": [_FILES],
    "status": [NAME],
    "logs": [NAME, "R9"],
    "audit": [NAME, "--run-id", "R9"],
    "publish": [NAME, "--run-id", "R9"],
    "quarantine list": [NAME],
    "quarantine show": [NAME],
    "quarantine export": [NAME],
    "quarantine replay": [NAME, "--dry-run"],
}
"""Commands that show what is stored, and their arguments. Every other command is given the text as its last argument,
which its error repeats."""
TAKEN = {
    "list": [],
    "verify": [NAME],
    "jars": [],
    "doctor": [],
    "run": [NAME, "--run-id", EVIL],
    "ingest": [NAME, "--run-id", EVIL],
    "deliver": [NAME, "--run-id", EVIL],
    "data-docs": [NAME, EVIL, "--to", "docs"],
    "release": [NAME, EVIL, "--reason", EVIL],
    "discard": [NAME, EVIL, "--reason", EVIL],
    "reread": [NAME, EVIL, "--reason", EVIL],
    "acknowledge": [NAME, EVIL],
    "adopt": [NAME, "--table", EVIL],
    "new": ["fresh", "--from", EVIL],
    "rollback": [NAME, "--to-version", EVIL],
}


def _leaves() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    return {
        f"{name} {leaf}".strip(): command
        for name, group in root.commands.items()
        for leaf, command in getattr(group, "commands", {"": group}).items()
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose records, file names, reasons, rules, errors and logs have control characters."""
    made = Quarantined(tmp_path_factory.mktemp("project"), detail=f"column {EVIL}\nnext: line")
    with at_work(made):
        made.bring("R1", [1], [(f"{{torn {EVIL}\nfix: it", "malformed"), ('{"n": -1}', f"rule {EVIL}")])
        report = new_report(NAME, "R9")
        report.outcome, report.sources = "failed", {"orders": {"rows": 1, "changed": [], "vanished": [EVIL]}}
        report.error = {"code": "X", "message": EVIL, "where": EVIL, "next_run": EVIL, "fix": EVIL, "exit_code": 75}
        report.notes = [EVIL]
        save_report(made.paths, report)
        made.paths.driver_log("R9").parent.mkdir(parents=True, exist_ok=True)
        made.paths.driver_log("R9").write_text(f"printed by the transform: {EVIL}\n")
        (made.root / f"jobs/{_FILES}").mkdir()
        (made.root / f"jobs/{_FILES}/pipeline.yaml").write_text(_SPEC)
        (made.root / "inbox" / f"folder{EVIL}").mkdir(parents=True)
        (made.root / "inbox" / f"folder{EVIL}" / f"name{EVIL}\udcff.tmp").write_bytes(b"x")
        (made.root / "jobs/broken").mkdir()
        (made.root / "jobs/broken/pipeline.yaml").write_text(json.dumps({"version": 1, "name": "broken", EVIL: EVIL}))
        yield made.root


def _call(root: Path, *words: str) -> list[str]:
    """What a command prints to stdout, and to stderr."""
    written = [io.BytesIO(), io.BytesIO()]
    streams = [io.TextIOWrapper(one, encoding="utf-8") for one in written]
    stop = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        patch.setattr(sys, "argv", ["tidegate", "--project", str(root), *words])
        patch.chdir(root)
        try:
            main()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, handler in stop.items():
                signal.signal(number, handler)
    return [one.getvalue().decode() for one in written]


@pytest.mark.parametrize("command", _leaves())
def test_no_command_prints_a_control_character(root: Path, command: str) -> None:
    given = SHOWN.get(command, TAKEN.get(command, [EVIL]))
    forms = [[], ["--json"]] if any(one.name == "json_" for one in _leaves()[command].params) else [[]]
    for form in forms:
        out, err = _call(root, *command.split(), *given, *form)
        assert _FORBIDDEN.findall(out + err) == []
        if command in SHOWN:
            assert SEEN in out + err
        if command in SHOWN and form:
            assert repr(EVIL)[1:-1] in str(json.loads(out)), "a program gets the text as it is"


def test_the_text_of_a_record_begins_no_line_of_a_command(root: Path) -> None:
    for words in (["quarantine", "show", NAME], ["quarantine", "list", NAME]):
        starts = {line[:5] for line in _call(root, *words)[0].splitlines()}
        assert not starts & {"fix: ", "next:"}


def test_a_line_of_progress_replaces_the_one_before_it_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", _escaped(terminal))
        patch.setattr(sys, "__stderr__", terminal)
        with ProgressLine() as line:
            line.show({"event": "progress", "note": f"a {EVIL}"})
            line.show({"event": "progress", "note": "b"})
        printed = ""
        while not printed.endswith("\r\n"):  # what was written comes in pieces
            printed += os.read(ours, 4096).decode()
    assert printed.count("\r") == 3 and printed.endswith("\r\n") and "\rprogress: note: b " in printed
    assert f"\rprogress: note: a {SEEN}" in printed
    os.close(ours)


def test_what_is_escaped() -> None:
    assert escape_controls("a\tb\nc \u00e4 \u0645 \U0001f600") == "a\tb\nc \u00e4 \u0645 \U0001f600"
    assert escape_controls("\r\x00\x1b\x7f\x9b\u2029\u202a\u2069\udc80") == (
        "\\u000d\\u0000\\u001b\\u007f\\u009b\\u2029\\u202a\\u2069\\udc80"
    )
    assert json.loads(escape_controls(json.dumps([EVIL, "\udc80"], ensure_ascii=False))) == [EVIL, "\udc80"]
    assert escape_line("a\nb\tc\x1b") == "a\\nb\\tc\\u001b"
