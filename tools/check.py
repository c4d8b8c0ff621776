"""All checks of the repository, and what became of each.

    python -m tools.check all|lint|unit

Every step runs, also after one has failed; the exit code is 1 if any failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.console import REPO_ROOT, ToolError, run_main
from tools.errors_seen import record_to

LANES = {
    "streams": ("streams",),
    "failures": ("recovery", "kafka"),
    "protocol": ("model", "spark"),
    "services": ("airflow", "stores"),
    "units": ("unit",),
    "commands": ("e2e", "cluster"),
}
"""The folders of tests in lanes that run concurrently, each in one process, and of about the same length. Six on two
cores: tests of services and of processes that are killed or frozen wait as much as they work."""

NOT_IN_MAKE_TEST = ("compose",)
"""Folders of tests with a command of their own: `make compose-test` needs a container engine, and half an hour."""

_NEEDED_MEMORY = {"unit": 2 << 30, "all": 8 << 30}
"""Bytes that must be free in memory for what tests write there; else they write to the disk."""

_UNIT_HALF = ("core", "quality", "runs", "sources", "table")

Step = tuple[str, list[str]]
"""Name and command."""


def list_test_folders() -> dict[str, list[str]]:
    """What each lane runs, in order; a folder that :data:`LANES` does not know comes last, none is left out."""
    tests = REPO_ROOT / "tests"
    present = {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")}.difference(NOT_IN_MAKE_TEST)
    lanes = {lane: [name for name in folders if name in present] for lane, folders in LANES.items()}
    lanes[list(LANES)[-1]] += sorted(present.difference(*LANES.values()))
    return {lane: [f"tests/{name}" for name in names] for lane, names in lanes.items()}


def list_steps(what: str) -> list[list[Step]]:
    """The steps of ``what`` (all, lint or unit): groups one after the other, the steps of a group beside each other."""
    python = sys.executable
    check_jsonschema = [python, "-m", "check_jsonschema"]
    lint: list[list[Step]] = [
        [("ruff check", [python, "-m", "ruff", "check", "."])],
        [("ruff format", [python, "-m", "ruff", "format", "--check", "."])],
        [("mypy", [python, "-m", "mypy"])],
        [("import rules", [str(Path(python).parent / "lint-imports"), "--no-logo"])],
        [("schemas", [python, "-m", "tidegate.spec.json_schema", "--check"])],
        [("output schemas", [python, "-m", "tidegate.cli.outputs", "--check"])],
        [("reference docs", [python, "-m", "tools.docs", "--check"])],
        [("bundle of the pages", [python, "-m", "tools.ui", "check"])],
        [("compose file", [*check_jsonschema, "--builtin-schema", "vendor.compose-spec", "docker-compose.yaml"])],
    ]
    pytest = [python, "-m", "pytest"]
    if what == "lint":
        return lint
    if what == "unit":
        # Two halves of about the same length; what is in neither runs with the second.
        others = [part for folder in _UNIT_HALF for part in ("--ignore", f"tests/unit/{folder}")]
        first = [*pytest, *(f"tests/unit/{folder}" for folder in _UNIT_HALF)]
        return [[("first half", first), ("second half", [*pytest, "tests/unit", *others])]]
    if what == "all":
        lanes = [(lane, [*pytest, *folders]) for lane, folders in list_test_folders().items()]
        # Built beside the tests, so that those which need it seldom wait.
        servers = ("object servers", [python, "-m", "tools.object_servers", "build"])
        return [*lint, [servers, *lanes], [("errors seen", [python, "-m", "tools.errors_seen"])]]
    raise ToolError(f"unknown checks: {what!r}", "python -m tools.check all|lint|unit")


@dataclass(frozen=True)
class Outcome:
    """What became of a step; ``failures`` are the lines in which pytest names a test that failed."""

    name: str
    code: int
    seconds: float
    failures: tuple[str, ...] = ()


def _run(step: Step, environment: dict[str, str], *, alone: bool) -> Outcome:
    """Run a step. Beside another, each line of its output begins with its name."""
    name, command = step
    started = time.monotonic()
    failures = []
    print(f"== {name}", flush=True)
    if alone:
        code = subprocess.run(command, cwd=REPO_ROOT, env=environment).returncode
    else:
        process = subprocess.Popen(
            command,
            cwd=REPO_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name}: {line}", end="", flush=True)
            if line.startswith(("FAILED ", "ERROR ")):
                failures.append(line.strip()[:300])
        code = process.wait()
    return Outcome(name, code, time.monotonic() - started, tuple(failures))


def _find_memory(needed_bytes: int) -> str | None:
    """A folder in memory, where nothing waits for a disk to sync; None where there is none, or too little room."""
    folder = "/dev/shm"
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > needed_bytes else None


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    what = arguments[0] if arguments else "all"
    steps = list_steps(what)
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    outcomes: list[Outcome] = []
    memory = None if what == "lint" else _find_memory(_NEEDED_MEMORY[what])
    with TemporaryDirectory(dir=memory) as folder:
        environment |= record_to(Path(folder) / "errors")
        if memory is not None:
            os.chmod(folder, 0o711)  # some tests look as another user
            environment["TMPDIR"] = folder
        for group in steps:
            with ThreadPoolExecutor(len(group)) as pool:
                outcomes += pool.map(partial(_run, environment=environment, alone=len(group) == 1), group)
    print("== summary")
    for outcome in outcomes:
        word, code = ("FAILED", f"  (exit {outcome.code})") if outcome.code else ("ok    ", "")
        print(f"  {word} {outcome.name:15} {outcome.seconds:7.1f} s{code}")
        for line in outcome.failures:
            print(f"    {line}")
    failed = [outcome.name for outcome in outcomes if outcome.code]
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    run_main(main)
