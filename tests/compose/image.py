"""The content of the project's image, made as docker/Dockerfile has it made: its steps, on only what it copies.

Below ``.tools``. The packages are kept while what they are made from is the same; tidegate is built again each time.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from tests.compose.compose_file import DOCKERFILE_PATH
from tests.support.examples import REPOSITORY

FOLDER = REPOSITORY / ".tools" / "image"
CACHED_STEPS = ("packages", "jars")
Step = tuple[str, list[str]]
"""What is run (a step of docker/install.sh), and what was copied before it and after the step above it."""


def read_build_steps() -> list[Step]:
    """The steps of the Dockerfile's stage `build`, in their order."""
    [stage] = re.findall(r"^FROM base AS build\n(.*?)^FROM", DOCKERFILE_PATH.read_text(), re.MULTILINE | re.DOTALL)
    steps: list[Step] = []
    copied: list[str] = []
    for line in stage.splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY":
            copied += rest.split()[:-1]
        elif word == "RUN":
            [step] = re.findall(r"docker/install\.sh (\w+) /opt$", rest)
            steps.append((step, copied))
            copied = []
        else:
            assert word in ("", "#", "WORKDIR"), f"the tests do not know what this would do: {line}"
    return steps


def ensure_image() -> Path:
    """A folder with what /opt of the image has: venv, jars, kafka."""
    steps = read_build_steps()
    cached = [step for step in steps if step[0] in CACHED_STEPS]
    FOLDER.mkdir(parents=True, exist_ok=True)
    packages, stamp, whole, context = (FOLDER / name for name in ("packages", "stamp", "opt", "context"))
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(context, ignore_errors=True)
        if not stamp.exists() or stamp.read_text() != _sum_inputs(cached):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(packages, ignore_errors=True)
            packages.mkdir()
            _run_steps(cached, context, packages)
            stamp.write_text(_sum_inputs(cached))
        shutil.rmtree(whole, ignore_errors=True)
        subprocess.run(["cp", "-al", packages, whole], check=True)
        _run_steps(steps, context, whole, skipped=CACHED_STEPS)
    return whole


def _sum_inputs(steps: list[Step]) -> str:
    files = [REPOSITORY / name for _, copied in steps for name in copied]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _run_steps(steps: list[Step], context: Path, folder: Path, skipped: tuple[str, ...] = ()) -> None:
    for step, copied in steps:
        for name in copied:
            target = context / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (REPOSITORY / name).is_dir():
                shutil.copytree(REPOSITORY / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy2(REPOSITORY / name, target)
        if step == "jars":  # those of the checkout, so that they are not fetched twice; their sums are looked at again
            for group in ("jars", "kafka/libs"):
                shutil.copytree(REPOSITORY / ".tools" / group, context / ".tools" / group, dirs_exist_ok=True)
        if step not in skipped:
            _install(step, context, folder)


def _install(step: str, context: Path, folder: Path) -> None:
    """One step into /opt, which is ``folder`` for it alone: the scripts of packages name their interpreter."""
    script = 'mount --bind "$1" /opt && exec docker/install.sh "$2" /opt'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(folder), step]
    done = subprocess.run(command, cwd=context, capture_output=True, text=True)
    assert done.returncode == 0, f"docker/install.sh {step}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
