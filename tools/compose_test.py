"""The services of docker-compose.yaml on a container engine: what `make compose-test` calls.

    python -m tools.compose_test [ARGUMENTS OF PYTEST]

An engine is brought where none answers (tools/container_engine.py). The tests run a copy of this checkout under a
project name of its own: services of this checkout that are up stay as they are. The record of the run (times, what
was killed, who took over) is printed at the end.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tools.console import REPO_ROOT, run_main, say
from tools.container_engine import FOLDER, container_engine

RECORD_PATH = FOLDER / "record.txt"


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    started = time.monotonic()
    with container_engine() as engine:
        say(f"engine: {engine.describe()}")
        RECORD_PATH.write_text(engine.describe() + "\n")
        environment = engine.environment | {"TIDEGATE_COMPOSE_RECORD": str(RECORD_PATH), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "pytest", "tests/compose", "-x", *arguments]
        code = subprocess.run(command, cwd=REPO_ROOT, env=environment).returncode
    print(f"== record\n{RECORD_PATH.read_text()}{(time.monotonic() - started) / 60:.1f} minutes in all")
    return code


if __name__ == "__main__":
    run_main(main)
