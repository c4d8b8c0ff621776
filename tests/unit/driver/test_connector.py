"""The jars of Spark's Kafka source, from a wheel alone: listed with the package, fetched into a cache on first use."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.fake_kafka import make_project
from tests.unit.jar_files import CONTENT
from tidegate import extras
from tidegate.cli.commands import app
from tidegate.driver import connector, submit
from tidegate.driver.connector import ConnectorJar, cache_folder, fetch_into, find_connector, list_connector
from tidegate.driver.jvm_archive import why_no_archive
from tidegate.driver.submit import find_kafka_jars
from tidegate.errors import TryAgainError, UsageError
from tidegate.extras import check_spark, explain_missing
from tidegate.operate import doctor
from tidegate.project import Project
from tidegate.spec.models import ProjectSpec


def put_into_registry(registry: Path, name: str, content: bytes = CONTENT) -> ConnectorJar:
    """A registry that is a folder, with one jar more; the jar as a list has it."""
    folder = registry / "org/example" / name / "1.0"
    folder.mkdir(parents=True)
    (folder / f"{name}-1.0.jar").write_bytes(content)
    return ConnectorJar(f"org.example:{name}:1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def test_the_jars_of_this_spark_are_listed() -> None:
    names = [jar.file_name for jar in list_connector()]
    spark = version("pyspark").rpartition(".")[0]
    assert [name for name in names if name.startswith("spark-sql-kafka")] == [
        f"spark-sql-kafka-0-10_2.13-{spark}.0.jar"
    ]
    assert {name.rpartition("-")[0] for name in names} >= {"kafka-clients", "commons-pool2"}
    assert list_connector(f"{spark}.9") == list_connector(), "a list is for all patches of a version"
    with pytest.raises(UsageError, match=r"no list of the Kafka jars for Spark 3\.5\.1") as caught:
        list_connector("3.5.1")
    assert caught.value.code == "KAFKA_JARS_UNKNOWN" and "TIDEGATE_JARS" in str(caught.value.fix)


def test_the_cache_is_the_user_s_unless_a_variable_names_another(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "tidegate" / "jars"
    assert cache_folder({}) == Path.home() / ".cache" / "tidegate" / "jars"
    assert cache_folder({"XDG_CACHE_HOME": "/x", "TIDEGATE_JAR_CACHE": str(tmp_path)}) == tmp_path


def test_jars_are_fetched_once_with_a_line_each_and_a_damaged_one_again(tmp_path: Path) -> None:
    jars = [put_into_registry(tmp_path / "registry", name) for name in ("one", "two")]
    mirror, folder, said = (tmp_path / "registry").as_uri(), tmp_path / "cache", []
    paths = fetch_into(folder, jars, said.append, mirror)
    assert [path.read_bytes() for path in paths] == [CONTENT, CONTENT]
    assert said[0].startswith("fetching the 2 jars of Spark's Kafka source") and len(said) == 3
    assert {path.name for path in folder.iterdir()} == {"one-1.0.jar", "two-1.0.jar", ".lock"}
    paths[1].write_bytes(b"cut off")
    fetch_into(folder, jars, said.append, mirror)
    assert said[3].startswith("fetching the 1 jars") and paths[1].read_bytes() == CONTENT
    fetch_into(folder, jars, said.append, "https://nowhere.invalid/")
    assert len(said) == 5, "what is there is not fetched again"


def test_two_that_come_at_once_fetch_once(tmp_path: Path) -> None:
    jars, said = [put_into_registry(tmp_path / "registry", "one")], []
    mirror = (tmp_path / "registry").as_uri()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(fetch_into, tmp_path / "cache", jars, said.append, mirror) for _ in range(2)]
        assert asked[0].result() == asked[1].result()
    assert len(said) == 2


def test_another_file_than_the_listed_one_is_not_kept(tmp_path: Path) -> None:
    jar = put_into_registry(tmp_path / "registry", "one")
    other = ConnectorJar(jar.coordinates, "0" * 64, jar.size_bytes)
    with pytest.raises(UsageError, match="is not the listed one") as differs:
        fetch_into(tmp_path / "cache", [other], lambda message: None, (tmp_path / "registry").as_uri())
    absent = ConnectorJar("org.example:absent:1.0", jar.sha256, jar.size_bytes)
    with pytest.raises(TryAgainError, match="could not be fetched") as missing:
        fetch_into(tmp_path / "cache", [absent], lambda message: None, (tmp_path / "registry").as_uri())
    assert (differs.value.code, missing.value.code) == ("KAFKA_JARS_DIFFER", "KAFKA_JARS_NOT_FETCHED")
    assert "absent-1.0.jar" in str(missing.value.fix), "how to do without a network"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_project_takes_what_is_there_first_and_doctor_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "project")
    monkeypatch.setattr(doctor, "_check_brokers", lambda project, specs: [])
    own = project.root / ".tools" / "jars"
    monkeypatch.setenv("TIDEGATE_JAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(submit, "_PACKAGE", tmp_path / "elsewhere/lib/tidegate")
    asked: list[str] = []
    for module in (connector, submit):
        monkeypatch.setattr(module, "fetch_connector", lambda say: [tmp_path / "fetched.jar"])
    assert {path.parent for path in find_kafka_jars(project, asked.append)} == {own}
    for path in own.iterdir():
        path.unlink()
    assert find_connector() is None
    with pytest.raises(UsageError, match="are not there yet") as missing:
        find_kafka_jars(project)
    assert missing.value.code == "KAFKA_JARS_MISSING" and "tidegate jars" in str(missing.value.fix)
    [finding] = [one for one in doctor.examine(project) if one.check == "kafka jars"]
    assert not finding.ok and "tidegate jars" in str(finding.fix)
    assert find_kafka_jars(project, asked.append) == [tmp_path / "fetched.jar"]
    done = CliRunner().invoke(app, ["--project", str(project.root), "jars"], catch_exceptions=False)
    assert done.stdout.splitlines() == [str(tmp_path / "fetched.jar")]


def test_two_versions_of_spark_s_packages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip takes the newest of each, and not every pyspark has a pyspark-client."""
    check_spark()
    monkeypatch.setattr(extras, "version", {"pyspark": "4.2.1", "pyspark-client": "4.2.0"}.__getitem__)
    with pytest.raises(UsageError, match=r"pyspark 4\.2\.1 and pyspark-client 4\.2\.0 overwrite") as caught:
        check_spark()
    assert caught.value.code == "SPARK_VERSIONS_DIFFER"
    assert '"pyspark==4.2.0" "pyspark-client==4.2.0"' in str(caught.value.fix)


@pytest.mark.parametrize("has_script", [True, False])
def test_a_spark_home_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_script: bool
) -> None:
    """spark-submit would say "bin/spark-class: not found", in the log of a driver that had died."""
    home, missing = tmp_path / "spark", "jars" if has_script else "bin/spark-submit"
    (home / "bin").mkdir(parents=True)
    if has_script:
        (home / "bin/spark-submit").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(UsageError, match=f"SPARK_HOME is {home}.* no {missing}") as caught:
        check_spark()
    assert caught.value.code == "SPARK_HOME_INVALID" and "unset SPARK_HOME" in str(caught.value.fix)
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = Project(tmp_path, ProjectSpec())
    [finding] = [one for one in doctor.examine(project) if one.check == "packages"]
    assert not finding.ok and "SPARK_HOME_INVALID" in finding.found
    assert why_no_archive(tmp_path / "cache", tmp_path, home) is None, "doctor asks for it too"


def test_an_error_behind_which_an_extra_is_missing() -> None:
    known = explain_missing(ModuleNotFoundError("no", name="confluent_kafka.admin"))
    assert known is not None and known.fix == 'pip install "tidegate[kafka]"'
    behind = RuntimeError("the driver")
    behind.__cause__ = ModuleNotFoundError("no", name="pyspark")
    assert explain_missing(behind) is not None
    assert explain_missing(ModuleNotFoundError("no", name="shop_rules")) is None, "a module of the user's own"
