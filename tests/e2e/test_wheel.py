"""The package as people install it: built from its sdist, in an environment of its own, far from the repository.

Nothing is downloaded: what the wheel depends on is lent by the environment of the tests, by links.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from sysconfig import get_path

import pytest

from tests.support.installed import Installed
from tests.support.project import REPOSITORY
from tests.support.topics import Topics
from tools.broker import Broker
from tools.matrix import build_wheel

EXTRAS = ("pyspark", "py4j", "confluent_kafka", "airflow")
"""What the core does without, as folders of site-packages."""
_OWN = re.compile(r"__pycache__|(__editable__\.)?tidegate.*|.*\.pth")
_OF_EXTRAS = re.compile(r"(pyspark|py4j|confluent_kafka|apache_airflow).*")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from a copy of what is in the repository."""
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    shutil.copytree(REPOSITORY / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    [path] = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist alone."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [source] = folder.iterdir()
    return build_wheel(tmp_path_factory.mktemp("wheel") / "dist", source)


def install(folder: Path, wheel: Path, *, left_out: re.Pattern[str] | None = None) -> Path:
    """A fresh environment with the wheel, and links to every package of this one, less what matches ``left_out``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    lent = folder / "lent"
    lent.mkdir()
    names = set()
    for entry in Path(get_path("purelib")).iterdir():
        if _OWN.fullmatch(entry.name) or (left_out and (left_out.fullmatch(entry.name) or entry.name in EXTRAS)):
            continue
        (lent / entry.name).symlink_to(entry)
        names.add(entry.name)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python3.*/site-packages"))
    (site / "lent.pth").write_text(f"{lent}\n")
    if "pyspark" in names:  # the programs that pip would have put there
        for program in Path(sys.executable).parent.iterdir():
            if "spark" in program.name:
                shutil.copy(program, folder / "bin")
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*uv, "--python", str(python), str(wheel)], check=True)
    return folder


@pytest.fixture(scope="module")
def complete(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """tidegate[all]."""
    folder = install(tmp_path_factory.mktemp("complete") / "venv", wheel)
    return Installed(folder, tmp_path_factory.mktemp("somewhere"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """tidegate without extras."""
    folder = install(tmp_path_factory.mktemp("core") / "venv", wheel, left_out=_OF_EXTRAS)
    return Installed(folder, tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture(scope="module")
def demo(complete: Installed) -> Iterator[Path]:
    """The project that `tidegate init` writes."""
    complete.tidegate("init", "demo")
    yield complete.work / "demo"


def test_what_the_wheel_holds(wheel: Path, sdist: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [message_from_bytes(archive.read(name)) for name in names if name.endswith(".dist-info/METADATA")]
    source = REPOSITORY / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "tidegate").rglob("*")
        if path.is_file() and not {"__pycache__", "examples"} & set(path.relative_to(source).parts)
    }
    assert {name for name in names if not name.startswith("tidegate-")} == wanted, "all of it, and no examples"
    assert {"tidegate/py.typed", "tidegate/__main__.py"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert set(metadata.get_all("Provides-Extra") or ()) >= {"spark", "kafka", "airflow", "all"}
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/examples" in name]


def test_the_command_the_module_and_the_shell_s_completion(complete: Installed, demo: Path) -> None:
    version = complete.tidegate("--version")
    assert re.fullmatch(r"tidegate \d+\.\d+\.\d+\n", version)
    assert complete.call("python", "-m", "tidegate", "--version").stdout == version
    where = complete.call("python", "-c", "import tidegate; print(tidegate.__file__)").stdout
    assert where.startswith(str(complete.folder)), "not the repository's"

    def finish(line: str) -> set[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        done = complete.call("tidegate", cwd=demo, _TIDEGATE_COMPLETE="complete_bash", **words)
        return set(done.stdout.split())

    assert finish("tidegate re") == {"refresh", "release", "repair", "reread", "reset"}
    assert finish("tidegate run ") == {"temperatures"}


def test_a_project_far_from_the_repository_runs(complete: Installed, demo: Path) -> None:
    assert not (demo / "jobs" / "tidegate_job.py").exists(), "the package's own application is used"
    assert "are valid" in complete.tidegate("validate", cwd=demo)
    report = json.loads(complete.tidegate("run", "temperatures", "--json", cwd=demo))
    assert (report["outcome"], report["rows"]["published"], report["rows"]["malformed"]) == ("published", 22, 1)
    doctor = complete.call("tidegate", "doctor", "--json", cwd=demo)
    findings = {one["check"]: one for one in json.loads(doctor.stdout)}
    assert findings["packages"]["ok"] and findings["application"]["ok"], findings
    assert str(complete.folder) in findings["application"]["found"]


def test_a_kafka_pipeline_needs_no_jars(complete: Installed, demo: Path, kafka_broker: Broker) -> None:
    from confluent_kafka import Producer

    pipeline = demo / "jobs" / "wheel_topic"
    pipeline.mkdir()
    (pipeline / "pipeline.yaml").write_text(
        "version: 1\nname: wheel_topic\nschedule: null\nsources:\n  topic: {type: kafka, topics: [wheel_topic], "
        "format: json, schema: id BIGINT, starting_offsets: earliest}\n"
    )
    brokers = {"TIDEGATE__KAFKA__BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers}
    client = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    Topics(kafka_broker.bootstrap_servers).create("wheel_topic")
    producer = Producer(client)
    for number in range(5):
        producer.produce("wheel_topic", json.dumps({"id": number}).encode())
    assert producer.flush(30) == 0
    report = json.loads(complete.tidegate("run", "wheel_topic", "--json", cwd=demo, **brokers))
    assert (report["outcome"], report["rows"]["published"]) == ("published", 5)


def test_the_dag_of_a_project_is_read(complete: Installed, demo: Path) -> None:
    code = (
        "import runpy, sys; dag = runpy.run_path(sys.argv[1])['dag']; print('DAG', dag.dag_id, *sorted(dag.task_ids))"
    )
    home = str(complete.work / "airflow")
    done = complete.call("python", "-c", code, "dags/temperatures.py", cwd=demo, AIRFLOW_HOME=home)
    assert "DAG temperatures audit ingest publish" in done.stdout, done.stdout + done.stderr


def test_the_core_needs_neither_spark_nor_airflow_nor_kafka(core: Installed) -> None:
    for name in EXTRAS:
        assert core.call("python", "-c", f"import {name}").returncode == 1, f"{name} is there: this test shows nothing"
    assert core.tidegate("--version") and "Start" in core.tidegate("--help")
    core.tidegate("init", "demo")
    project = core.work / "demo"
    assert "are valid" in core.tidegate("validate", cwd=project)
    core.tidegate("new", "second", cwd=project)
    (project / "sample.csv").write_text("id,name\n1,x\n")
    core.tidegate("new", "third", "--from", "sample.csv", cwd=project)
    assert len(json.loads(core.tidegate("list", "--json", cwd=project))) == 3
    assert "temperatures" in core.tidegate("plan", "temperatures", cwd=project)
    core.tidegate("status", cwd=project)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("run temperatures", "spark"),
        ("try temperatures", "spark"),
        ("validate --spark", "spark"),
        ("new more --from kafka:t", "kafka"),
        ("plan topic", "kafka"),
        ("run topic", "kafka"),
    ],
)
def test_a_command_that_needs_an_extra_says_which(core: Installed, command: str, extra: str) -> None:
    project = core.work / "lacking"
    if not project.exists():
        core.tidegate("init", "lacking")
        (project / "jobs" / "topic").mkdir()
        (project / "jobs" / "topic" / "pipeline.yaml").write_text(
            "version: 1\nname: topic\nschedule: null\nsources:\n  t: {type: kafka, topics: [t], format: text, "
            "starting_offsets: earliest}\n"
        )
    done = core.call("tidegate", *command.split(), cwd=project, TIDEGATE__KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:9")
    assert done.returncode == 64 and "Traceback" not in done.stderr, done.stderr
    assert "EXTRA_MISSING" in done.stderr and f'fix: pip install "tidegate[{extra}]"' in done.stderr


def test_doctor_says_what_the_core_lacks(core: Installed) -> None:
    core.tidegate("init", "bare")
    done = core.call("tidegate", "doctor", "--json", cwd=core.work / "bare")
    packages = next(one for one in json.loads(done.stdout) if one["check"] == "packages")
    assert done.returncode == 1 and "pyspark is not installed" in packages["found"]
    assert 'pip install --upgrade "tidegate[spark]"' in packages["fix"]
    assert "airflow" not in packages["found"], "which a project need not have"
