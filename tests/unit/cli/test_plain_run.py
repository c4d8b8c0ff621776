"""Which command lines are read without typer, and that a run is the same whoever reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.commands import app
from tidegate.cli.plain_run import PlainRun, read_plain_run


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("run flow", PlainRun("flow", None, None, None, False)),
        ("run --json flow", PlainRun("flow", None, None, None, True)),
        ("--project p run flow --run-id a", PlainRun("flow", Path("p"), "a", None, False)),
        ("run --run-id a --accept-loss b flow --json", PlainRun("flow", None, "a", "b", True)),
        ("run run", PlainRun("run", None, None, None, False)),
    ],
)
def test_a_run_of_one_pipeline(line: str, read: PlainRun) -> None:
    assert read_plain_run(line.split()) == read


@pytest.mark.parametrize(
    "line",
    [
        *(
            "",
            "run",
            "run a b",
            "run --help",
            "run flow -h",
            "run flow --jsn",
            "run -- flow",
            "runs flow",
            "status flow",
        ),
        *("run flow --run-id", "run flow --run-id --json", "run flow --run-id=a", "run flow --run-id a --run-id b"),
        *("--project", "--project p", "--project=p run flow", "--project -p run flow", "--version run flow"),
    ],
)
def test_anything_else_is_left_to_typer(line: str) -> None:
    assert read_plain_run(line.split()) is None
    assert read_plain_run(["--project", "", "run", "flow"]) is None
    assert read_plain_run(["run", ""]) is None


@pytest.mark.parametrize(
    "arguments",
    [["flow"], ["flow", "--json"], ["flow", "--run-id", ""], ["Flow", "--json"], ["flow", "--accept-loss", " "]],
)
def test_a_run_says_the_same(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    folder = ["--project", str(tmp_path)]
    by_typer = CliRunner().invoke(app, [*folder, "run", *arguments])
    plain = subprocess.run(
        [sys.executable, "-m", "tidegate", *folder, "run", *arguments], capture_output=True, text=True, check=False
    )
    error = by_typer.exception
    assert plain.returncode == getattr(error, "exit_code", None) == 64
    assert plain.stderr.strip() == str(error)
    if "--json" in arguments:
        assert json.loads(plain.stdout)["error"]["code"] == getattr(error, "code", None)


def test_whoever_reads_the_result_has_gone() -> None:
    code = "from tidegate.cli import main as m\ndef gone(): raise BrokenPipeError\nm._run = gone\nm.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
