"""From a fresh clone to everything that is needed: checks, .venv from the locks, the package, the jars.

    python3.11 -m tools.setup           what `make setup` calls; a second call costs a moment
    python -m tools.setup --lock        resolve requirements.lock, docker/requirements.lock and tools/bootstrap.lock
                                        again (for developers)

Runs on the standard library alone. The steps: check Python, Java and disk space; make .venv; pip installs uv and
setuptools from ``tools/bootstrap.lock``; uv installs exactly ``requirements.lock``; the package is installed editable;
everything is compiled once (imports cost up to three times as much without); the jars of ``tools/jars.lock`` are
fetched. Every download is hashed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tools.console import REPO_ROOT, ToolError, run_main, say

VENV = REPO_ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
_UV_PIP = [str(VENV / "bin" / "uv"), "pip"]
STAMP = VENV / ".setup-stamp.json"
PACKAGE_INPUTS = ("requirements.lock", "tools/bootstrap.lock")
NEEDED_BYTES = 4_000_000_000
"""2.4 GB for .venv and jars, the rest for what uv unpacks on the way and for the first runs."""
JAVA_HINT = "install Java 17: Debian/Ubuntu `apt install openjdk-17-jre-headless`, macOS `brew install openjdk@17`"
PYTHON_HINT = "install Python 3.11: Debian/Ubuntu `apt install python3.11 python3.11-venv`, or uv python install 3.11"


def set_up() -> None:
    """Does what is still to do; nothing when the stamp says that all is done."""
    _check_python()
    if not _is_done():
        _check_java()
        _check_disk()
        (REPO_ROOT / ".tools").mkdir(exist_ok=True)
        with (REPO_ROOT / ".tools" / ".setup-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_done():
                _install()
    _run([str(VENV_PYTHON), "-m", "tools.jars", "fetch"], "jars", quiet=False)


def _install() -> None:
    done, wanted = _read_stamp(), _sum_inputs()
    if not VENV_PYTHON.exists() or done.get("packages") != wanted["packages"]:
        STAMP.unlink(missing_ok=True)
        _install_packages()
    say("setup: installing tidegate (editable)")
    target = ["--python", str(VENV_PYTHON), "--no-build-isolation"]
    _run([*_UV_PIP, "install", *target, "--no-deps", "--offline", "--editable", "."], "tidegate")
    # A file that does not compile is for `make lint` to tell, not a reason to have no environment.
    subprocess.run([str(VENV_PYTHON), "-m", "compileall", "-qq", "src"], cwd=REPO_ROOT)
    STAMP.write_text(json.dumps(wanted))


def _install_packages() -> None:
    if not VENV_PYTHON.exists():
        say("setup: making .venv")
        _run([sys.executable, "-m", "venv", str(VENV)], "venv", fix=f"remove .venv; {PYTHON_HINT}")
    say("setup: installing uv")
    network = "check the network and pip's settings, then make setup; what arrived is kept in the cache"
    pip = [str(VENV_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    _run([*pip, "--require-hashes", "-r", "tools/bootstrap.lock"], "uv", fix=network)
    count = len(re.findall(r"^\S+==", (REPO_ROOT / "requirements.lock").read_text(), re.MULTILINE))
    say(f"setup: installing {count} packages of requirements.lock (2.1 GB; a minute or more the first time)")
    # No build isolation: source packages are built with the locked setuptools, not with whatever is newest today.
    target = ["--python", str(VENV_PYTHON), "--no-build-isolation"]
    _run(
        [*_UV_PIP, "sync", *target, "--require-hashes", "--compile-bytecode", "requirements.lock"],
        "packages",
        fix=network,
    )
    _check_spark_pair()


def _is_done() -> bool:
    return VENV_PYTHON.exists() and _read_stamp() == _sum_inputs()


def _read_stamp() -> dict[str, str]:
    try:
        return dict(json.loads(STAMP.read_text()))
    except (OSError, ValueError):
        return {}


def _sum_inputs() -> dict[str, str]:
    """What the environment is made from: the packages, and how tidegate itself is installed beside them."""
    # The place is part of it: an environment that was moved or copied has wrong paths in its scripts.
    packages = hashlib.sha256(str(REPO_ROOT).encode())
    for name in PACKAGE_INPUTS:
        packages.update((REPO_ROOT / name).read_bytes())
    import tomllib  # a Python before 3.11 must get as far as the message that says so

    settings = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text())
    told = [settings["project"], settings["build-system"], settings.get("tool", {}).get("setuptools")]
    project = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    return {"packages": packages.hexdigest(), "project": project.hexdigest()}


def _check_python() -> None:
    if sys.version_info[:2] != (3, 11):
        raise ToolError(f"Python 3.11 is needed, this is {sys.version.split()[0]} ({sys.executable})", PYTHON_HINT)
    if not VENV_PYTHON.exists():
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError:
            raise ToolError("this Python has no venv module", "Debian/Ubuntu: apt install python3.11-venv") from None


def _check_java() -> None:
    java = shutil.which("java")
    if java is None:
        raise ToolError("Java 17 is needed, and there is no `java` on PATH", JAVA_HINT)
    done = subprocess.run([java, "-version"], capture_output=True, text=True)
    found = re.search(r'version "((\d+)[^"]*)"', done.stderr + done.stdout)
    if done.returncode or not found:
        raise ToolError(f"`java -version` does not work: {(done.stderr or done.stdout).strip()[:300]}", JAVA_HINT)
    if int(found[2]) < 17:
        raise ToolError(f"Java 17 is needed, {java} is {found[1]}", JAVA_HINT)


def _check_disk() -> None:
    free = shutil.disk_usage(REPO_ROOT).free
    here = sum(path.stat().st_size for path in VENV.rglob("*") if path.is_file()) if VENV.exists() else 0
    if free + here < NEEDED_BYTES:
        raise ToolError(
            f"{NEEDED_BYTES / 1e9:.1f} GB are needed on the disk of {REPO_ROOT}, {(free + here) / 1e9:.1f} GB are free",
            f"free space (df -h {REPO_ROOT}), then make setup",
        )


def _check_spark_pair() -> None:
    """pyspark and pyspark-client install into one folder: at two versions one silently overwrites the other."""
    script = "from importlib.metadata import version as v; print(v('pyspark'), v('pyspark-client'))"
    spark, client = subprocess.run(
        [str(VENV_PYTHON), "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    if spark != client:
        raise ToolError(
            f"pyspark {spark} and pyspark-client {client} overwrite each other's files",
            "give both the same version in the extra `pinned` of pyproject.toml, then make lock setup",
        )


def _run(command: Sequence[str], step: str, *, fix: str | None = None, quiet: bool = True) -> None:
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV), "UV_NO_PROGRESS": "1"}
    done = subprocess.run(command, cwd=REPO_ROOT, env=environment, capture_output=quiet, text=True)
    if done.returncode:
        if not quiet:  # it has said why
            raise SystemExit(done.returncode)
        lines = (done.stdout + done.stderr).strip().splitlines()[-25:]
        raise ToolError(f"setup: the step `{step}` failed:\n" + "\n".join(f"  | {line}" for line in lines), fix)


def lock_requirements() -> None:
    """Writes requirements.lock, docker's and tools/bootstrap.lock again; pins that still fit are kept."""
    compile_command = [str(VENV / "bin" / "uv"), "pip", "compile", "--quiet", "--generate-hashes", "--no-header"]
    compile_command += ["--no-annotate", "--python-version", "3.11"]
    # The ranges of the package would let everything drift: its extra `pinned` holds what decides how it behaves.
    _run([*compile_command, "--extra", "dev", "-o", "requirements.lock", "pyproject.toml"], "lock")
    # The image has what the tests have run with, less what only developers need.
    image = [
        "--extra",
        "all",
        "--extra",
        "pinned",
        "--extra",
        "postgres",
        "-c",
        "requirements.lock",
        "-o",
        "docker/requirements.lock",
    ]
    _run([*compile_command, *image, "pyproject.toml"], "lock")
    first = REPO_ROOT / ".tools" / "bootstrap.in"
    first.write_text("uv\nsetuptools\n")
    _run([*compile_command, "-c", "requirements.lock", "-o", "tools/bootstrap.lock", str(first)], "lock")
    say("lock: wrote requirements.lock, docker/requirements.lock and tools/bootstrap.lock")


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    if arguments == ["--lock"]:
        lock_requirements()
    elif arguments:
        raise ToolError(f"unknown arguments: {' '.join(arguments)}", "python3.11 -m tools.setup [--lock]")
    else:
        set_up()
    return 0


if __name__ == "__main__":
    run_main(main)
