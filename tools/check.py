"""All checks of the repository, and what became of each.

    python -m tools.check all|lint|unit

Every step runs, also after one has failed; the exit code is 1 if any failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main

TEST_ORDER = ("unit", "spark", "kafka", "airflow", "recovery", "e2e")
"""From quick to slow, so that a simple fault shows early."""


def list_test_folders() -> list[str]:
    """The folders of tests in their order; one that :data:`TEST_ORDER` does not know comes last, none is left out."""
    present = {path.parent for path in (REPO_ROOT / "tests").rglob("test_*.py")}
    top = {path.relative_to(REPO_ROOT / "tests").parts[0] for path in present if path != REPO_ROOT / "tests"}
    ordered = [name for name in TEST_ORDER if name in top] + sorted(top - set(TEST_ORDER))
    loose = sorted(str(path.relative_to(REPO_ROOT)) for path in (REPO_ROOT / "tests").glob("test_*.py"))
    return loose + [f"tests/{name}" for name in ordered]


def list_steps(what: str) -> list[tuple[str, list[str]]]:
    """Name and command of each step of ``what`` (all, lint or unit)."""
    python = sys.executable
    lint = [
        ("ruff check", [python, "-m", "ruff", "check", "."]),
        ("ruff format", [python, "-m", "ruff", "format", "--check", "."]),
        ("mypy", [python, "-m", "mypy"]),
        ("import rules", [str(Path(python).parent / "lint-imports"), "--no-logo"]),
        ("schemas", [python, "-m", "tidegate.spec.json_schema", "--check"]),
        ("reference docs", [python, "-m", "tools.docs", "--check"]),
    ]
    pytest = [python, "-m", "pytest"]
    if what == "lint":
        return lint
    if what == "unit":
        return [("pytest", [*pytest, "tests/unit"])]
    if what == "all":
        return [*lint, ("pytest", [*pytest, *list_test_folders()])]
    raise ToolError(f"unknown checks: {what!r}", "python -m tools.check all|lint|unit")


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    steps = list_steps(arguments[0] if arguments else "all")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    rows = []
    for name, command in steps:
        print(f"== {name}", flush=True)
        started = time.monotonic()
        code = subprocess.run(command, cwd=REPO_ROOT, env=environment).returncode
        rows.append((name, code, time.monotonic() - started))
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
