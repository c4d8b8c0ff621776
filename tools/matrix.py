"""The lower and the upper end of the ranges in pyproject.toml: an environment of each, and a choice of tests in it.

    python -m tools.matrix [oldest|newest|spark]... [--python PYTHON] [--fresh] [-- PYTEST_ARGUMENT...]

``oldest`` has the versions of tools/oldest.txt, ``newest`` those of requirements.lock, ``spark`` those as well, but the
newest Spark, for which there is no pyspark-client, and so no Airflow. All get the test tools of requirements.lock, and
tidegate as a wheel. Each extra in an empty environment: tests/e2e/test_extras.py. ``--python`` names another
interpreter than 3.11 (3.12, 3.13). An environment is kept under .tools/matrix and made again when its versions have
changed, or with ``--fresh``. What is left to the resolver is what the registry has today: this is a look now and then,
not a part of `make test`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main, say

ENDS = ("oldest", "newest", "spark")
NEWEST_SPARK = "4.3.0"
FOLDER = REPO_ROOT / ".tools" / "matrix"
OLDEST = REPO_ROOT / "tools" / "oldest.txt"
LOCK = REPO_ROOT / "requirements.lock"
TEST_TOOLS = ("pytest", "duckdb", "hypothesis", "requests", "jsonschema", "setuptools")
CHOSEN = (
    "tests/unit/quality/test_audit_suite.py",
    "tests/unit/cli/test_command_line.py",
    "tests/unit/spark/driver/test_spark_installed.py",
    "tests/unit/table/test_publish.py",
    "tests/unit/cli/scaffold/test_scaffold.py",
    "tests/spark/test_audit_engines.py",
    "tests/spark/test_table_readers.py",
    "tests/streams/test_modes.py",
    "tests/streams/test_windows.py",
    "tests/streams/test_twice.py",
    "tests/spark/test_private_api.py",
    "tests/streams/test_changes.py",
    "tests/e2e/test_kafka_runs.py",
    "tests/airflow/test_connection.py",
    "tests/airflow/test_driver_hook.py",
    "tests/airflow/test_parsing.py",
    "tests/airflow/test_pool.py",
    "tests/airflow/live",
)
"""What meets Spark, Great Expectations, deltalake, the Kafka client and Airflow where they differ between versions."""
_NOT_WITH_SPARK_ALONE = [one for one in CHOSEN if re.search("airflow|kafka", one)]


def list_wanted(end: str) -> list[str]:
    """The requirements of an environment. Raises ToolError when the lock lacks a test tool."""
    locked = re.findall(r"^([a-z0-9_.-]+)==(\S+)", LOCK.read_text(), re.MULTILINE)
    if end == "spark":
        without = ("uv", "pyspark", "pyspark-client")
        kept = [one for one in locked if one[0] not in without and not one[0].startswith("apache-airflow")]
        return [f"{name}=={version}" for name, version in [*kept, ("pyspark", NEWEST_SPARK)]]
    if end == "newest":
        return [f"{name}=={version}" for name, version in locked if name != "uv"]
    tools = [f"{name}=={version}" for name, version in locked if name in TEST_TOOLS]
    if len(tools) != len(TEST_TOOLS):
        raise ToolError("requirements.lock lacks a test tool", "correct TEST_TOOLS in tools/matrix.py")
    return [*re.findall(r"^[a-z0-9-]+==\S+", OLDEST.read_text(), re.MULTILINE), *tools]


def make_environment(end: str, interpreter: str, *, fresh: bool) -> Path:
    """The Python of the environment ``end``, which is made when it is not there."""
    wanted = list_wanted(end)
    key = hashlib.sha256("\n".join([interpreter, *wanted]).encode()).hexdigest()
    folder = FOLDER / f"{end}-{Path(interpreter).name}"
    stamp, python = folder / "made-from", folder / "bin" / "python"
    if not fresh and stamp.is_file() and stamp.read_text() == key:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    say(f"matrix: making {folder.relative_to(REPO_ROOT)}")
    _run([interpreter, "-m", "venv", str(folder)])
    listed = folder / "wanted.txt"
    listed.write_text("\n".join(wanted) + "\n")
    uv = str(Path(sys.executable).parent / "uv")
    _run([uv, "pip", "install", "--quiet", "--python", str(python), "--compile-bytecode", "-r", str(listed)])
    stamp.write_text(key)
    return python


def install_wheel(python: Path) -> None:
    """Build the package as it is and install it, without what it depends on: these are there."""
    wheel = build_wheel(python.parents[1] / "dist")
    uv = str(Path(sys.executable).parent / "uv")
    command = [uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps", "--reinstall", "--offline"]
    _run([*command, str(wheel)])
    # The makers of the examples' data, which some tests use, are not part of the wheel.
    site = next((python.parents[1] / "lib").glob("python3.*/site-packages")) / "tidegate" / "examples"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(REPO_ROOT / "src" / "tidegate" / "examples", site)


def build_wheel(folder: Path, source: Path = REPO_ROOT) -> Path:
    """The wheel, built from a copy of ``source`` by the setuptools of this Python: nothing is downloaded."""
    shutil.rmtree(folder, ignore_errors=True)
    copy = folder / "source"
    copy.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(source / name, copy)
    shutil.copytree(source / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    _run([sys.executable, "-c", code, str(folder)], cwd=copy)
    [wheel] = folder.glob("*.whl")
    return wheel


def _run(command: Sequence[str], cwd: Path = REPO_ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        told = (done.stdout + done.stderr).strip().splitlines()[-20:]
        raise ToolError(f"{' '.join(command[:4])} ... failed:\n" + "\n".join(f"  | {line}" for line in told))


def run_tests(python: Path, arguments: Sequence[str]) -> int:
    """Run the tests with this Python; its programs stand first on PATH, as in an environment that is activated."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run([str(python), "-m", "pytest", *arguments], cwd=REPO_ROOT, env=environment).returncode


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    chosen: list[str] = list(CHOSEN)
    if "--" in arguments:
        place = arguments.index("--")
        arguments, chosen = arguments[:place], arguments[place + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ends", nargs="*", metavar="END", help="oldest, newest or spark (default: all)")
    parser.add_argument("--python", default="python3.11", help="the interpreter (default: python3.11)")
    parser.add_argument("--fresh", action="store_true", help="make the environments again")
    options = parser.parse_args(arguments)
    if unknown := set(options.ends) - set(ENDS):
        raise ToolError(f"no such end: {', '.join(sorted(unknown))}", f"one of {', '.join(ENDS)}")
    interpreter = shutil.which(options.python)
    if interpreter is None:
        raise ToolError(f"there is no {options.python} on PATH", "name one with --python")
    codes = {}
    for end in options.ends or ENDS:
        began = time.monotonic()
        tests = [one for one in chosen if one not in _NOT_WITH_SPARK_ALONE] if end == "spark" else chosen
        python = make_environment(end, interpreter, fresh=options.fresh)
        install_wheel(python)
        say(f"matrix: {end}: tests")
        codes[end] = run_tests(python, tests)
        say(f"matrix: {end}: {'passed' if codes[end] == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s")
    return max(codes.values())


if __name__ == "__main__":
    run_main(main)
