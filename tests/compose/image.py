"""The content of the project's image, made by docker/install.sh as docker/Dockerfile has it made, below ``.tools``.

The packages are kept as long as the locks are the same; tidegate itself is built anew each time.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.examples import REPOSITORY

FOLDER = REPOSITORY / ".tools" / "image"
_INPUTS = ("docker/install.sh", "docker/requirements.lock", "tools/bootstrap.lock", "tools/jars.lock")


def ensure_image() -> Path:
    """A folder with what /opt of the image has: venv, jars, kafka."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(b"".join((REPOSITORY / name).read_bytes() for name in _INPUTS)).hexdigest()
    packages, stamp, whole = FOLDER / "packages", FOLDER / "stamp", FOLDER / "opt"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(packages, ignore_errors=True)
            packages.mkdir()
            _install("packages", packages)
            _install("jars", packages)
            stamp.write_text(wanted)
        shutil.rmtree(whole, ignore_errors=True)
        subprocess.run(["cp", "-al", packages, whole], check=True)
        _install("tidegate", whole)
    return whole


def _install(step: str, folder: Path) -> None:
    """One step of docker/install.sh into /opt, which is ``folder`` for it alone: scripts name their interpreter."""
    script = 'mount --bind "$1" /opt && exec docker/install.sh "$2" /opt'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(folder), step]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, f"docker/install.sh {step}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
