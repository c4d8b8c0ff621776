"""All checks of the repository, and what became of each.

    python -m tools.check all|lint|unit

Every step runs, also after one has failed; the exit code is 1 if any failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main

LANES = {
    "services": ("unit", "model", "spark", "kafka", "airflow", "compose", "e2e"),
    "streams": ("streams", "cluster", "recovery"),
}
"""The folders of tests in two lanes that run beside each other, each in one process and from quick to slow."""

Step = tuple[str, list[str]]
"""Name and command."""


def list_test_folders() -> dict[str, list[str]]:
    """What each lane runs, in order; a folder that :data:`LANES` does not know comes last, none is left out."""
    tests = REPO_ROOT / "tests"
    present = {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")}
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
        [("reference docs", [python, "-m", "tools.docs", "--check"])],
        [("compose file", [*check_jsonschema, "--builtin-schema", "vendor.compose-spec", "docker-compose.yaml"])],
    ]
    pytest = [python, "-m", "pytest"]
    if what == "lint":
        return lint
    if what == "unit":
        return [[("pytest", [*pytest, "tests/unit"])]]
    if what == "all":
        return [*lint, [(lane, [*pytest, *folders]) for lane, folders in list_test_folders().items()]]
    raise ToolError(f"unknown checks: {what!r}", "python -m tools.check all|lint|unit")


def _run(step: Step, environment: dict[str, str], *, alone: bool) -> tuple[str, int, float]:
    """Run a step; its name, exit code and seconds. Beside another, each line of its output begins with its name."""
    name, command = step
    started = time.monotonic()
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
        code = process.wait()
    return name, code, time.monotonic() - started


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    steps = list_steps(arguments[0] if arguments else "all")
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    rows = []
    for group in steps:
        with ThreadPoolExecutor(len(group)) as pool:
            rows += pool.map(partial(_run, environment=environment, alone=len(group) == 1), group)
    print("== summary")
    for name, code, seconds in rows:
        print(
            f"  {'ok    ' if code == 0 else 'FAILED'} {name:15} {seconds:7.1f} s" + (f"  (exit {code})" if code else "")
        )
    failed = [name for name, code, _ in rows if code]
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    run_main(main)
