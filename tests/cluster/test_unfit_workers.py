"""Workers that cannot do what a run needs: each is found out, named, and costs no record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING

import pytest

import tidegate
from tests.cluster.conftest import make_clustered
from tests.support.scene import NAME, Scene
from tidegate.core.outputs import Finding
from tidegate.spark.driver.submit import run_spark_submit
from tidegate.views import doctor
from tools.processes import choose_free_port
from tools.spark_cluster import SparkCluster, start_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UDF = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
{imports}

def transform(orders: DataFrame) -> DataFrame:
    @F.udf("int")
    def same(amount):
        {body}

    return orders.withColumn("amount", same("amount"))
"""

_HIDING = {
    "another folder": "mount -t tmpfs none {root}/data",
    "read only": "mount --bind {root}/data {root}/data && mount -o remount,bind,ro {root}/data",
    "writes stay on the worker": (
        "mount -t tmpfs none {root}.upper && mkdir {root}.upper/u {root}.upper/w && "
        "mount -t overlay overlay -o lowerdir={root}/data,upperdir={root}.upper/u,workdir={root}.upper/w {root}/data"
    ),
}
_TOLD = {
    "another folder": "those on 127.0.0.1 have other folders",
    "read only": "one of those on 127.0.0.1 said: ",
    "writes stay on the worker": "those on 127.0.0.1 have other folders",
}


@pytest.fixture
def bare_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """A master without workers: the test starts those it needs."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    cluster = start_cluster(tmp_path / "cluster", workers=0)
    yield cluster
    cluster.stop()


def add_transform(scene: Scene, body: str, imports: str = "") -> None:
    """A transform whose Python runs on the executors."""
    (scene.root / "jobs/orders/transform.py").write_text(_UDF.format(body=body, imports=imports))
    spec = scene.root / "jobs/orders/pipeline.yaml"
    spec.write_text(spec.read_text() + "transform: transform.py\n")


def path_with(folder: Path | None) -> dict[str, str]:
    """An environment whose first `python3` is in ``folder``."""
    return {"PATH": os.pathsep.join(filter(None, [folder and str(folder), os.defpath]))}


@pytest.mark.parametrize("how", list(_HIDING))
def test_a_worker_without_the_storage_is_found_before_data_is_written(
    bare_cluster: SparkCluster, tmp_path: Path, spark: SparkSession, how: str
) -> None:
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url)
    Path(f"{scene.root}.upper").mkdir()
    hide = _HIDING[how].format(root=scene.root)
    tried = subprocess.run(["unshare", "-Urm", "sh", "-c", hide], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no right to mount in a namespace of one's own: {tried.stderr.strip()}")
    bare_cluster.start_worker(prefix=("unshare", "-Urm", "sh", "-c", f'{hide} && exec "$@"', "sh"))
    said = scene.start("run", NAME).communicate(timeout=120)[1].decode()
    assert "STORAGE_NOT_SHARED" in said and _TOLD[how] in said, said
    assert not list(scene.state.glob("manifests/**/*.json")) and not scene.table.exists()
    assert not list(scene.state.glob("state/**/*.parquet"))
    assert not list(scene.state.glob("unreadable/*"))
    bare_cluster.kill_worker(0)
    bare_cluster.start_worker()
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def test_a_source_that_only_the_driver_sees_is_read(
    bare_cluster: SparkCluster, tmp_path: Path, spark: SparkSession, other_device: Path
) -> None:
    """The source is on another device than the state, so the intake holds copies of its files."""
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url)
    shutil.copytree(scene.root / "data/inbox", other_device, dirs_exist_ok=True)
    spec = scene.root / "jobs/orders/pipeline.yaml"
    spec.write_text(spec.read_text().replace("path: data/inbox", f"path: {other_device}"))
    _start_blind_worker(bare_cluster, other_device)
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def test_a_file_that_only_the_worker_does_not_see_is_not_set_aside(
    bare_cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url)
    intake = scene.state / "intake"
    intake.mkdir(parents=True)
    _start_blind_worker(bare_cluster, intake)
    said = scene.start("run", NAME).communicate(timeout=120)[1].decode()
    assert "STORAGE_NOT_SHARED" in said and f"does not find {intake}/orders/" in said, said
    assert not list(scene.state.glob("unreadable/*")) and not scene.table.exists()
    bare_cluster.kill_worker(0)
    bare_cluster.start_worker()
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def _start_blind_worker(cluster: SparkCluster, folder: Path) -> None:
    """Start a worker that finds ``folder`` empty; skip the test where a namespace of one's own cannot mount."""
    hide = f"mount -t tmpfs none {folder}"
    tried = subprocess.run(["unshare", "-Urm", "sh", "-c", hide], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no right to mount in a namespace of one's own: {tried.stderr.strip()}")
    cluster.start_worker(prefix=("unshare", "-Urm", "sh", "-c", f'{hide} && exec "$@"', "sh"))


def test_another_python_on_the_executors_is_named(
    bare_cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    other = find_other_python()
    if other is None:
        pytest.skip("there is no Python but this one on the machine")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(other)
    bare_cluster.start_worker(env=path_with(tmp_path / "bin"))
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url)
    process = scene.start("run", NAME)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 64 and "PYTHON_DIFFERS" in said, said
    version = subprocess.run([other, "-c", "import sys; print(*sys.version_info[:2], sep='.')"], capture_output=True)
    assert f"run Python {version.stdout.decode().strip()}, this driver runs 3.11" in said, said
    assert "spark.pyspark.python" in said and "pyspark.errors" not in said
    own = {"spark_pyspark_python": sys.executable}
    settings = make_clustered(tmp_path / "settings", bare_cluster.master_url, **own).root / "tidegate.yaml"
    shutil.copy(settings, scene.root)
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def find_other_python() -> str | None:
    """A Python of another version, wherever version managers keep them."""
    names = [f"python3.{minor}" for minor in (10, 12, 13, 9) if minor != sys.version_info.minor]
    homes = [Path.home() / ".pyenv/versions", Path(sys.base_prefix).parent, Path("/usr"), Path("/usr/local")]
    found = [shutil.which(name) for name in names]
    found += [
        str(path) for home in homes for name in names for at in ("bin", "*/bin") for path in home.glob(f"{at}/{name}")
    ]
    works = [path for path in found if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0]
    return works[0] if works else None


def test_no_python_and_missing_modules_are_named_and_archives_bring_them(
    bare_cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    bare_cluster.start_worker(env=path_with(Path(sys.executable).parent))
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url, spark_pyspark_python="python-of-nowhere")
    add_transform(scene, "import pricing\n        import beside\n        return beside.same(pricing.same(amount))")
    # What lies beside the transform travels with it.
    (scene.root / "jobs/orders/beside.py").write_text("def same(value):\n    return value\n")
    process = scene.start("run", NAME)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 64 and "PYTHON_MISSING" in said and "python-of-nowhere" in said, said

    settings = scene.root / "tidegate.yaml"
    settings.write_text(settings.read_text().replace("python-of-nowhere", "python3"))
    process = scene.start("run", NAME)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 64 and "MODULE_MISSING" in said and "No module named 'pricing'" in said, said

    with zipfile.ZipFile(tmp_path / "wheels.zip", "w") as archive:
        archive.writestr("pricing.py", "def same(value):\n    return value\n")
    brought = f'"spark.archives": "{tmp_path}/wheels.zip#wheels", "spark.executorEnv.PYTHONPATH": "wheels", "spark.net'
    settings.write_text(settings.read_text().replace('"spark.net', brought, 1))
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def start_with_python(cluster: SparkCluster, folder: Path, command: str) -> None:
    """Start a worker that alone has ``python-x``, which runs ``command``."""
    folder.mkdir(exist_ok=True)
    (folder / "python-x").write_text(f'#!/bin/sh\n{command} "$@"\n')
    (folder / "python-x").chmod(0o755)
    cluster.start_worker(env=path_with(folder))


def test_doctor_asks_every_executor_and_names_what_each_lacks(
    bare_cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    older = tmp_path / "older/tidegate"
    shutil.copytree(Path(tidegate.__path__[0]), older)
    (older / "__init__.py").write_text('__version__ = "0.0.1"\n')
    bare_cluster.start_worker(env=path_with(None))
    start_with_python(bare_cluster, tmp_path / "whole", f"exec {sys.executable}")
    start_with_python(bare_cluster, tmp_path / "bare", f"exec {sys.executable} -S")
    start_with_python(bare_cluster, tmp_path / "old", f"PYTHONPATH={older.parent} exec {sys.executable}")
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url, spark_pyspark_python="python-x")
    found = ask_executors(scene)
    assert all("127.0.0.1: " in one["found"] and bool(one["fix"]) != one["ok"] for one in found), found
    said = sorted(one["found"].partition(": ")[2] for one in found)
    missing = "No module named " + ", ".join(map(repr, ("tidegate", *doctor.READERS_NEED)))
    beginnings = [
        f"MODULE_MISSING: an executor lacks a Python module: {missing}. ",
        "PYTHON_MISSING: an executor has no python-x, ",
        f"Python {python_version()} ({sys.executable}) with tidegate {tidegate.__version__}, babel ",
        f"VERSION_DIFFERS: the executors have tidegate 0.0.1, this driver has {tidegate.__version__}: ",
    ]
    assert len(said) == len(beginnings) and all(map(str.startswith, said, beginnings)), said
    assert not list((scene.root / "data").glob("state/*")), "it leaves nothing behind"

    for number in (0, 1, 2):
        bare_cluster.kill_worker(number)
    process = scene.start("run", NAME)
    told = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 64 and "VERSION_DIFFERS: the executors have tidegate 0.0.1, " in told, told
    bare_cluster.kill_worker(3)
    start_with_python(bare_cluster, tmp_path / "whole", f"exec {sys.executable}")
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def ask_executors(scene: Scene) -> list[Finding]:
    """What ``doctor --spark`` finds of executors that lack something."""
    process = scene.start("doctor", "--spark", "--json")
    told, said = process.communicate(timeout=150)
    assert process.returncode == 1, said.decode()
    return [one for one in json.loads(told) if one["check"] == "executors"]


def test_doctor_does_not_wait_for_ever_for_executors(bare_cluster: SparkCluster, tmp_path: Path) -> None:
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url)
    started = time.monotonic()
    [one] = doctor.ask_executors(scene.project, [], run_spark_submit, {}, seconds=10)
    assert time.monotonic() - started < 45
    assert one.found.startswith(f"NO_EXECUTORS: {bare_cluster.master_url} gave no executor for 10 s"), one


def test_executors_that_end_as_soon_as_they_are_started(bare_cluster: SparkCluster, tmp_path: Path) -> None:
    bare_cluster.start_worker(env={"SPARK_SCALA_VERSION": ""})  # a worker that cannot make an executor's command
    scene = make_clustered(tmp_path / "project", bare_cluster.master_url)
    process = scene.start("run", NAME)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 64 and "EXECUTORS_FAILED" in said, said
    assert "Master removed our application: FAILED" in said and "SPARK_LOCAL_HOSTNAME" in said


def test_a_master_that_is_away_is_told_in_seconds_without_a_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make_clustered(tmp_path / "project", f"spark://127.0.0.1:{choose_free_port()}")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # a driver could not start
    monkeypatch.setenv("PATH", str(tmp_path))
    started = time.monotonic()
    process = scene.start("run", NAME)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 75 and "MASTER_AWAY" in said and "Connection refused" in said, said
    assert time.monotonic() - started < 15
    assert scene.report("run", NAME, expect=75)["error"]["code"] == "MASTER_AWAY"
