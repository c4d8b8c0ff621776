"""The class archive (AppCDS) that makes the driver's JVM start at half the cost: built once, kept in the user's cache.

Building takes about 30 s on an idle machine (a warm-up job of 6 s, then the dump) and 180 MB. The archive is keyed by
the JDK and the list of Spark's jars; a new key is a new archive. ``TIDEGATE_JVM_ARCHIVE=off`` does without.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import on_failure
from tidegate.core.paths import find_cache
from tidegate.core.process.tree import bind_to_parent
from tidegate.spark.driver.java import find_java_home
from tidegate.spark.driver.jvm import driver_conf, jvm_options

SWITCH = "TIDEGATE_JVM_ARCHIVE"
WARM_UP_JOB = Path(__file__).parents[1] / "session" / "warmup_job.py"
"""A run in small, inside Spark: the classes that it loads are those of the archive."""
_FORM = "3"
"""Raise it when the way an archive is made changes: old ones are then no longer found."""
_FREE_BYTES_WANTED = 1 << 30
_WARM_UP_SECONDS = 180.0
_DUMP_SECONDS = 300.0
_KEPT_ARCHIVES = 4
_WITHOUT = "no class archive (runs work without it, but take about 4 CPU-seconds more)"
_RETRIED_AFTER_SECONDS = 86_400.0


def find_spark_home() -> Path | None:
    """Spark's folder: ``SPARK_HOME``, or the installed pyspark (found without importing it)."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec and spec.origin else None


def locate_archive() -> Path | None:
    """The place of the archive for this JDK and these jars (name, size, modification time, as the JVM checks them), in
    the user's cache; None without Java or Spark."""
    java_home, spark_home = find_java_home(), find_spark_home()
    if java_home is None or spark_home is None:
        return None
    digest = hashlib.sha256(f"{_FORM} {java_home} {spark_home}\n".encode())
    with contextlib.suppress(OSError):
        digest.update((java_home / "release").read_bytes())
    for entry in sorted(os.scandir(spark_home / "jars"), key=lambda entry: entry.name):
        stat = entry.stat()
        digest.update(f"{entry.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return find_cache() / "tidegate" / f"spark-{digest.hexdigest()[:20]}.jsa"


def find_archive() -> Path | None:
    """The archive that fits, or None when there is none yet or it is switched off. Costs a few milliseconds."""
    with contextlib.suppress(OSError):
        path = None if _is_off() else locate_archive()
        if path is not None and path.is_file():
            os.utime(path)  # the ones that were used last are kept
            return path
    return None


def ensure_archive(say: Callable[[str], None] = lambda message: None) -> Path | None:
    """The archive that fits, built when it is not there; None when it cannot be had, which only costs time later.

    Two processes never build the same one: the second goes without. A build that fails leaves ``<key>.failed`` with the
    reason, and is tried again a day later.
    """
    java_home, spark_home = find_java_home(), find_spark_home()
    found = find_archive()
    if found or _is_off() or java_home is None or spark_home is None:
        return found
    if not (java_home / "bin" / "java").exists():
        return None  # what starts the driver names it
    try:
        path = locate_archive()
        assert path is not None, "there is a Java and a Spark"
        failed = path.with_suffix(".failed")
        path.parent.mkdir(parents=True, exist_ok=True)
        if _failed_lately(failed) or shutil.disk_usage(path.parent).free < _FREE_BYTES_WANTED:
            return None
        with _lock(path.with_suffix(".lock")) as held:
            if not held:
                return None
            if not path.is_file():
                say("building the class archive, once for this Java and Spark: some minutes on a busy machine")
                reason = _build(path, java_home, spark_home)
                if reason is not None:
                    failed.write_text(reason)
                    say(f"{_WITHOUT}: {reason}")
                    return None
                failed.unlink(missing_ok=True)
                _forget_old(path)
        return path
    except OSError as error:
        say(f"{_WITHOUT}: {error}")
        return None


def why_no_archive() -> str | None:
    """Why the last build failed; None when the archive is there, no build was tried, or the reason is unknown."""
    try:
        path = locate_archive()
        failed = None if path is None else path.with_suffix(".failed")
        return failed.read_text() if path and failed and failed.exists() and not path.exists() else None
    except OSError:
        return None


def _failed_lately(failed: Path) -> bool:
    return failed.exists() and time.time() - failed.stat().st_mtime < _RETRIED_AFTER_SECONDS


def _is_off() -> bool:
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    with open(path, "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _build(path: Path, java_home: Path, spark_home: Path) -> str | None:
    """Make the archive at ``path``; None, or the reason why it could not be made."""
    for left in path.parent.glob(f".{path.stem}.*"):
        shutil.rmtree(left, ignore_errors=True)  # of a build that was killed: the lock is ours
    work = path.with_name(f".{path.stem}.{secrets.token_hex(4)}")
    work.mkdir()
    try:
        classes, draft = work / "classes.lst", work / "archive.jsa"
        ok, said = _run(_warm_up_command(spark_home, work, classes), work, _warm_up_env(java_home, spark_home))
        class_path = _launched_class_path(said)
        if not ok or not classes.is_file() or class_path is None:
            return f"the warm-up job failed: {_last_line(said)}"
        dump = [
            str(java_home / "bin" / "java"),
            "-Xshare:dump",
            "-XX:+UseSerialGC",
            f"-XX:SharedClassListFile={classes}",
            f"-XX:SharedArchiveFile={draft}",
            "-cp",
            class_path,
        ]
        ok, said = _run(dump, work, seconds=_DUMP_SECONDS)
        if not ok or not draft.is_file():
            return f"java -Xshare:dump failed: {_last_line(said)}"
        # The one proof that the archive is used: with -Xshare:on the JVM refuses to start without it.
        proof = [str(java_home / "bin" / "java"), "-Xshare:on", f"-XX:SharedArchiveFile={draft}", "-cp", class_path]
        ok, said = _run([*proof, "-XX:+UseSerialGC", "org.apache.spark.launcher.Main", "--help"], work)
        if "Unable to use shared archive" in said or "Error occurred during initialization" in said:
            return f"the archive is refused: {_last_line(said)}"
        storage.sync_file(draft)  # the JVM does not check an archive that a power cut has torn
        os.replace(draft, path)
        return None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _warm_up_command(spark_home: Path, work: Path, classes: Path) -> list[str]:
    options = [*jvm_options(0, None), f"-XX:DumpLoadedClassList={classes}"]
    conf = driver_conf(0, 1, 2)
    return [
        str(spark_home / "bin" / "spark-submit"),
        *("--master", "local[2]"),
        *("--driver-java-options", " ".join(options)),
        *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
        str(WARM_UP_JOB),
        str(work / "warmup"),
    ]


def _warm_up_env(java_home: Path, spark_home: Path) -> dict[str, str]:
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_PRINT_LAUNCH_COMMAND": "1",
    }


def _launched_class_path(said: str) -> str | None:
    """The driver's own ``-cp``: an archive is good for exactly this list, in this order."""
    for line in said.splitlines():
        words = line.split(" ")
        if line.startswith("Spark Command:") and "-cp" in words:
            return words[words.index("-cp") + 1]
    return None


def _run(
    command: list[str], cwd: Path, env: Mapping[str, str] | None = None, seconds: float = _WARM_UP_SECONDS
) -> tuple[bool, str]:
    """Run in a new process group, and leave no process behind. (whether it succeeded, its output)"""
    with subprocess.Popen(
        command,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=bind_to_parent(os.getpid()),
    ) as process:
        try:
            with on_failure(lambda: _kill_group(process.pid)):  # too slow, or a signal stops this process
                said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False, f"not done after {seconds:.0f} s"
        return process.returncode == 0, said


def _kill_group(group: int) -> None:
    """Kill a process group, also where its first process has ended and left others."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _forget_old(newest: Path) -> None:
    archives = sorted(newest.parent.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in [path for path in archives if path != newest][_KEPT_ARCHIVES - 1 :]:
        for suffix in (".jsa", ".lock"):
            path.with_suffix(suffix).unlink(missing_ok=True)
