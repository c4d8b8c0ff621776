"""``spark.packages``: what is listed, found, compared and fetched; nothing here goes to the network."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.jar_files import CONTENT
from tidegate.cli.commands import app
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.spark.driver.packages import choose_mirror, fetch_packages, find_packages, is_whole_jar, run_ivy
from tidegate.spark.driver.submit import Load, find_spark_submit, plan_submit
from tidegate.spec.faults import SpecError
from tidegate.spec.project import Project, load_project
from tidegate.views.doctor import examine

REPOSITORY = Path(__file__).parents[4]
SUM = hashlib.sha256(CONTENT).hexdigest()
DRIVER = "org.example:driver:1.2"


def project_with(root: Path, *packages: dict[str, str]) -> Project:
    (root / "tidegate.yaml").write_text(json.dumps({"version": 1, "spark": {"packages": packages}}))
    return load_project(root)


def put(root: Path, name: str, content: bytes = CONTENT) -> Path:
    path = root / ".tools" / "packages" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refused(project: Project) -> UsageError:
    with pytest.raises(UsageError) as caught:
        find_packages(project)
    return caught.value


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ([{"jar": "sqlite-jdbc"}], "does not name a jar"),
        ([{"jar": "a:b:../../c"}], "does not name a jar"),
        ([{"jar": "a:b:1@jar"}], "does not name a jar"),
        ([{"jar": DRIVER, "sha256": "abc"}], "not a SHA-256 checksum"),
        ([{"jar": "org.apache.spark:spark-avro_2.12:4.2.0"}], "made for Scala 2.12"),
        ([{"jar": DRIVER}, {"jar": "org.example:driver:1.3"}], "org.example:driver is listed twice"),
        ([{"jar": DRIVER}, {"jar": DRIVER}], "org.example:driver is listed twice"),
        ([{"jar": DRIVER}, {"jar": "org.other:driver:1.2"}], "driver-1.2.jar would be that of another"),
        ([{"jar": DRIVER, "url": "x"}], "url"),
    ],
)
def test_a_fault_of_the_list_is_named_with_its_line(tmp_path: Path, packages: list[dict[str, str]], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        project_with(tmp_path, *packages)
    assert all(fault.file == "tidegate.yaml" and fault.line == 1 and fault.fix for fault in caught.value.faults)


def test_a_jar_reaches_spark_only_with_the_listed_checksum(tmp_path: Path) -> None:
    project = project_with(tmp_path, {"jar": DRIVER, "sha256": SUM.upper()})
    missing = refused(project)
    assert (
        missing.code == "PACKAGE_MISSING"
        and DRIVER in missing.message
        and str(missing.fix) == "tidegate jars, which fetches it"
    )
    jar = put(tmp_path, "driver-1.2.jar", b"another")
    differs = refused(project)
    assert differs.code == "PACKAGE_DIFFERS" and hashlib.sha256(b"another").hexdigest() in differs.message
    jar.write_bytes(CONTENT)
    assert find_packages(project) == [jar]
    unchecked = refused(project_with(tmp_path, {"jar": DRIVER}))
    assert unchecked.code == "PACKAGE_UNCHECKED" and f"- {{jar: {DRIVER}, sha256: {SUM}}}" in str(unchecked.fix)


def test_every_driver_gets_the_jars_and_none_starts_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", tmp_path / "jobs")
    brought = tmp_path / "brought"
    brought.mkdir()
    (brought / "driver-1.2.jar").write_bytes(CONTENT)
    project = project_with(tmp_path, {"jar": DRIVER, "sha256": SUM})

    def jars() -> list[str]:
        plan = plan_submit(
            project,
            order_path=tmp_path / "order.json",
            log_path=tmp_path / "log",
            pipeline_conf={},
            load=Load(0, 1),
            settings={},
        )
        return sorted(Path(jar).name for jar in plan.jars)

    with pytest.raises(UsageError, match="jars are not fetched while a pipeline runs"):
        jars()
    monkeypatch.setenv("TIDEGATE_JARS", str(brought))
    assert jars() == ["driver-1.2.jar"]


def test_doctor_names_a_missing_jar_and_one_of_another_spark(tmp_path: Path) -> None:
    avro = "org.apache.spark:spark-avro_2.13:4.1.1"
    project = project_with(tmp_path, {"jar": avro, "sha256": SUM})
    [finding] = [one for one in examine(project) if one.check == "jars"]
    assert (
        not finding.ok and finding.found.startswith("PACKAGE_MISSING") and str(finding.fix).startswith("tidegate jars")
    )
    put(tmp_path, "spark-avro_2.13-4.1.1.jar")
    [finding] = [one for one in examine(project) if one.check == "jars"]
    assert finding.ok and f"{avro} belongs to Spark 4.1.1" in finding.found


def test_a_fetched_jar_gets_its_place_only_with_the_listed_checksum(tmp_path: Path) -> None:
    """Ivy itself, from a registry that is a folder."""
    registry = tmp_path / "registry"
    for version in ("1.2", "1.3"):
        folder = registry / "org/example" / "driver" / version
        folder.mkdir(parents=True)
        (folder / f"driver-{version}.jar").write_bytes(CONTENT)
    mirror = registry.as_uri()
    said: list[str] = []
    project = project_with(tmp_path, {"jar": DRIVER, "sha256": SUM})
    [(_, path, found)] = fetch_packages(project, said.append, mirror)
    assert (path, found, said) == (find_packages(project)[0], SUM, [f"fetching {DRIVER}"])
    assert [one.name for one in path.parent.iterdir()] == ["driver-1.2.jar"], "nothing else is left behind"
    again = project_with(tmp_path, {"jar": DRIVER, "sha256": SUM.upper()})
    fetch_packages(again, said.append, "https://nowhere.invalid/")
    assert len(said) == 1, "what is there is not fetched again"

    other = project_with(tmp_path, {"jar": "org.example:driver:1.3", "sha256": "0" * 64})
    with pytest.raises(UsageError, match="is not the listed one") as differs:
        fetch_packages(other, said.append, mirror)
    assert differs.value.code == "PACKAGE_DIFFERS" and [one.name for one in path.parent.iterdir()] == ["driver-1.2.jar"]
    absent = project_with(tmp_path, {"jar": "org.example:driver:9", "sha256": SUM})
    with pytest.raises(UsageError, match="the registry has no org"):
        fetch_packages(absent, said.append, mirror)


def test_jars_prints_the_line_of_a_jar_without_a_checksum(tmp_path: Path) -> None:
    project_with(tmp_path, {"jar": DRIVER})
    put(tmp_path, "driver-1.2.jar")
    done = CliRunner().invoke(app, ["--project", str(tmp_path), "jars"], catch_exceptions=False)
    assert done.exit_code == 0 and done.stdout.startswith(f"- {{jar: {DRIVER}, sha256: {SUM}}}")


def test_a_mirror_is_asked_by_https_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAVEN_ROOT", "http://mirror.example/maven2")
    with pytest.raises(UsageError, match="does not begin with https"):
        choose_mirror()
    monkeypatch.setenv("MAVEN_ROOT", "https://mirror.example/maven2")
    assert choose_mirror() == "https://mirror.example/maven2"


def test_a_jar_that_was_cut_off_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "driver.jar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("Driver.class", bytes(range(256)) * 40)
    whole = path.read_bytes()
    assert is_whole_jar(path) and not is_whole_jar(tmp_path / "nothing.jar")
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert not is_whole_jar(path), length
    path.write_bytes(whole[:60] + b"????" + whole[64:])
    assert not is_whole_jar(path)


def test_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    project = project_with(tmp_path, {"jar": DRIVER, "sha256": SUM})
    with pytest.raises(TryAgainError, match=f"PACKAGES_NOT_FETCHED: {DRIVER} could not be fetched"):
        fetch_packages(project, lambda said: None, "https://localhost:1/maven2/")


def test_what_starts_a_driver_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="JAVA_MISSING: jars are fetched by pyspark's Ivy with Java 17"):
        run_ivy(tmp_path, DRIVER, None)
    with pytest.raises(UsageError, match="JAVA_MISSING: Spark needs Java 17"):
        find_spark_submit()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        UsageError, match=f"JAVA_MISSING: Spark needs Java 17, and JAVA_HOME is {tmp_path}, which .* no bin/java"
    ):
        find_spark_submit()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho prog version 11\n")
    java.chmod(0o755)
    with pytest.raises(UsageError, match=f"JAVA_MISSING: .* {java} is another program") as refused:
        find_spark_submit()
    assert (refused.value.exit_code, refused.value.where) == (64, "the environment variable JAVA_HOME")
    for version, fits in (("1.8.0_392", False), ("11.0.2", False), ("17.0.2", True), ("25", True)):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026' >&2\n")
        if fits:
            assert find_spark_submit()
        else:
            with pytest.raises(UsageError, match=f"JAVA_MISSING: .* {java} is Java {version}"):
                find_spark_submit()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match="SPARK_SUBMIT_MISSING"):
        find_spark_submit()
