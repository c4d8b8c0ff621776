"""The Java that Spark starts with."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from tidegate.spark import errors

OLDEST_JAVA = 17
"""The oldest Java that Spark starts with."""
_VERSION_SECONDS = 20.0


def find_java_home() -> Path | None:
    """The JDK that ``spark-submit`` will use: ``JAVA_HOME``, or the one whose ``java`` is on the path."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    java = shutil.which("java")
    return Path(java).resolve().parents[1] if java else None


def find_java_version(java: Path) -> tuple[int, str] | None:
    """The version of a ``bin/java``, such as (17, "17.0.2"), by the file ``release`` or else by what it prints.

    None where it is another program.
    """
    with contextlib.suppress(OSError):
        release = (java.resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
        if (match := re.search(r'^JAVA_VERSION="((?:1\.)?(\d+)[^"]*)"', release, re.MULTILINE)) is not None:
            return int(match[2]), match[1]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [str(java), "-version"]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_VERSION_SECONDS)
        if (match := re.search(r' version "((?:1\.)?(\d+)[^"]*)"', said.stderr)) is not None and not said.returncode:
            return int(match[2]), match[1]
    return None


def check_java() -> None:
    """Raise UsageError JAVA_MISSING where Spark would not find a Java that it can use."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    where = f"the environment variable {'JAVA_HOME' if home else 'PATH'}"
    why = ""
    if home and not (Path(home) / "bin/java").exists():
        why = f"JAVA_HOME is {home}, which is not a Java installation: it has no bin/java"
    elif not home and on_path is None:
        why = "there is no `java` on PATH"
    else:
        java = Path(home) / "bin/java" if home else Path(str(on_path))
        version = find_java_version(java)
        if version is None:
            why = f"{java} is another program: it prints no version of Java"
        elif version[0] < OLDEST_JAVA:
            why = f"{java} is Java {version[1]}"
    if why:
        raise errors.JAVA_MISSING(where=where, task="Spark needs", why=why)
