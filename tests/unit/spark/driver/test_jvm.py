"""Driver settings from what is pending, and the class archive's bookkeeping (no JVM is started here)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidegate.core.process.machine import read_process_start
from tidegate.spark.driver import jvm_archive
from tidegate.spark.driver.jvm import C1_AT_MOST_BYTES, driver_conf, jvm_options

MIB = 1 << 20


def tasks(pending_bytes: int, files: int, cores: int) -> int:
    """How many tasks read so much (:func:`tidegate.spark.reading.parts.count_tasks`)."""
    return int(driver_conf(pending_bytes, files, cores)["spark.sql.files.minPartitionNum"])


@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_ten_thousand_small_files_are_few_tasks(cores: int) -> None:
    assert tasks(220 * 10_000, 10_000, cores) == min(cores, 2)


def test_a_small_run_is_one_task_and_a_big_one_uses_every_core() -> None:
    assert tasks(200_000, 1, 8) == 1
    assert tasks(223 * MIB, 1, 2) == 2
    assert tasks(224 * MIB, 8, 8) == 7
    assert tasks(2230 * MIB, 10, 2) == 2


def test_settings_are_strings_and_nonsense_is_refused() -> None:
    conf = driver_conf(0, 0, 1)
    assert all(isinstance(value, str) for value in conf.values())
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"
    for wrong in ((-1, 0, 1), (0, -1, 1), (0, 0, 0)):
        with pytest.raises(ValueError, match="cores >= 1"):
            driver_conf(*wrong)


def test_c1_alone_only_for_short_runs_and_the_archive_only_when_there() -> None:
    assert "-XX:TieredStopAtLevel=1" in jvm_options(C1_AT_MOST_BYTES, None)
    assert "-XX:TieredStopAtLevel=1" not in jvm_options(C1_AT_MOST_BYTES + 1, None)
    assert not any("Shared" in option for option in jvm_options(0, None))
    assert "-XX:SharedArchiveFile=/c/a.jsa" in jvm_options(0, Path("/c/a.jsa"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "tidegate"


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JDK and a Spark whose programs are the shell scripts below: they do what the real ones leave behind."""
    java_home, spark_home = tmp_path / "jdk", tmp_path / "spark"
    for name, value in {"JAVA_HOME": java_home, "SPARK_HOME": spark_home, "XDG_CACHE_HOME": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv(jvm_archive.SWITCH)
    (spark_home / "jars").mkdir(parents=True)
    (spark_home / "jars" / "a.jar").write_text("a")
    find_archive_option = 'for a in "$@"; do case $a in -XX:SharedArchiveFile=*) f="${a#*=}";; esac; done'
    write_program(
        java_home / "bin" / "java", f'{find_archive_option}\ncase "$*" in *-Xshare:dump*) echo jsa > "$f";; esac'
    )
    write_program(
        spark_home / "bin" / "spark-submit",
        'echo "Spark Command: java -cp conf:jars/* -Xmx1g Main"\n'
        # the fourth argument holds the JVM's options
        'for a in $4; do case $a in *DumpLoadedClassList=*) echo x > "${a#*=}";; esac; done',
    )
    return spark_home


def write_program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_the_archive_is_built_once_and_found_again(cache: Path, spark_home: Path) -> None:
    said: list[str] = []
    assert jvm_archive.find_archive() is None

    def say(message: str) -> None:
        assert not [path for path in cache.glob("*") if path.suffix != ".lock"], "it is said before the build begins"
        said.append(message)

    built = jvm_archive.ensure_archive(say)
    assert built is not None and built.read_text() == "jsa\n"
    assert said == ["building the class archive, once for this Java and Spark: some minutes on a busy machine"]
    assert jvm_archive.ensure_archive(said.append) == built
    assert jvm_archive.find_archive() == built
    assert len(said) == 1
    assert not list(cache.glob(".*")), "the work folder is gone"


def test_another_jar_is_another_archive(cache: Path, spark_home: Path) -> None:
    before = jvm_archive.locate_archive()
    (spark_home / "jars" / "b.jar").write_text("b")
    assert jvm_archive.locate_archive() != before


@pytest.mark.parametrize(("name", "value"), [(jvm_archive.SWITCH, "off"), ("JAVA_HOME", "")])
def test_switched_off_or_without_java_there_is_none(
    cache: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(jvm_archive.shutil, "which", lambda program: None)
    assert jvm_archive.ensure_archive() is None
    assert not (cache).exists()


def test_for_a_java_home_without_a_java_none_is_tried(
    tmp_path: Path, cache: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What starts the driver refuses it by name; a build would fail first, in words of a shell script."""
    said: list[str] = []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jvm_archive.ensure_archive(said.append) is None
    assert not said and not (cache).exists()


def test_the_job_that_loads_the_classes_is_there() -> None:
    assert jvm_archive.WARM_UP_JOB.is_file()


def test_a_failed_build_says_why_once_and_is_tried_again_a_day_later(cache: Path, spark_home: Path) -> None:
    write_program(spark_home / "bin" / "spark-submit", "echo no memory; exit 1")
    said: list[str] = []
    for _ in range(2):
        assert jvm_archive.ensure_archive(said.append) is None
    assert len(said) == 2 and "no memory" in said[1]
    (failed,) = (cache).glob("*.failed")
    assert "no memory" in str(jvm_archive.why_no_archive())
    day_ago = time.time() - 86_401
    os.utime(failed, (day_ago, day_ago))
    assert jvm_archive.ensure_archive(said.append) is None
    assert len(said) == 4


def test_while_one_process_builds_another_goes_without(cache: Path, spark_home: Path) -> None:
    cache.mkdir()
    place = jvm_archive.locate_archive()
    assert place is not None
    lock = place.with_suffix(".lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl;h=open({str(lock)!r},'a');fcntl.flock(h,2);print(1,flush=True);input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        assert jvm_archive.ensure_archive() is None
    finally:
        holder.communicate(b"\n")
    assert jvm_archive.ensure_archive() is not None


def test_a_build_that_was_killed_leaves_nothing_running_and_nothing_behind(
    tmp_path: Path, cache: Path, spark_home: Path
) -> None:
    """The JVM of a build ends with the command that built; the next build removes what it had half made."""
    submit = (spark_home / "bin/spark-submit").read_text()
    write_program(spark_home / "bin/spark-submit", f'echo $$ > "{tmp_path}/pid"; exec sleep 600')
    build = "from tidegate.spark.driver.jvm_archive import ensure_archive; ensure_archive()"
    builder = subprocess.Popen([sys.executable, "-c", build])
    started = tmp_path / "pid"
    while not (started.exists() and started.read_text().endswith("\n")):
        assert builder.poll() is None
        time.sleep(0.05)
    jvm = int(started.read_text())
    mark = read_process_start(jvm)
    assert mark is not None
    builder.kill()
    builder.wait()
    until = time.monotonic() + 30
    while read_process_start(jvm) == mark:
        assert time.monotonic() < until, "it outlives its parent"
        time.sleep(0.05)
    assert list(cache.glob(".spark-*"))
    (spark_home / "bin/spark-submit").write_text(submit)
    assert jvm_archive.ensure_archive() is not None
    assert not list(cache.glob(".spark-*"))


def test_a_build_that_takes_too_long_leaves_nothing_running(tmp_path: Path) -> None:
    """Also not what a program started that ended itself."""
    program, started = tmp_path / "program", tmp_path / "pid"
    write_program(program, f'sleep 600 & echo $! > "{started}"')
    ok, said = jvm_archive._run([str(program)], tmp_path, seconds=1.0)
    assert (ok, said) == (False, "not done after 1 s")
    left = int(started.read_text())
    until = time.monotonic() + 5
    while read_process_start(left) is not None:
        assert time.monotonic() < until, "it outlives the build"
        time.sleep(0.05)


def test_only_the_archives_used_last_are_kept(cache: Path, spark_home: Path) -> None:
    cache.mkdir()
    for number in range(5):
        old = cache / f"spark-{number}.jsa"
        old.write_text("old")
        os.utime(old, (number, number))
    built = jvm_archive.ensure_archive()
    assert built is not None
    assert {path.name for path in cache.glob("*.jsa")} == {built.name, "spark-4.jsa", "spark-3.jsa", "spark-2.jsa"}


def test_the_driver_starts_without_the_zipped_pyspark_and_without_pandas() -> None:
    program = (
        "import sys\n"
        "from importlib.util import find_spec\n"
        "from pathlib import Path\n"
        "zips = Path(find_spec('pyspark').origin).parent / 'python' / 'lib'\n"
        "sys.path[:0] = [str(path) for path in zips.glob('*.zip')]\n"
        "from tidegate.spark.session.light_start import start_light\n"
        "start_light()\n"
        "import pyspark, pyspark.testing.utils\n"
        "assert not pyspark.__file__.count('.zip'), pyspark.__file__\n"
        "assert 'pandas' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "assert pyspark.testing.utils.have_numpy\n"
        "import pandas\n"
        "print('fine')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
