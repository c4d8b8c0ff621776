"""Doctor judges versions by what pip was asked for: the ranges of each extra, as the wheel's metadata has them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.project import REPOSITORY
from tidegate.views import doctor

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
SETS = ([], ["spark"], ["spark", "kafka"], ["airflow"], ["spark", "kafka", "airflow"])


@pytest.fixture(autouse=True)
def metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the wheel says, also where an older build of it is installed."""
    told = [str(one) for one in CORE]
    told += [f"{one}; extra == '{name}'" for name, some in EXTRAS.items() for one in some]
    monkeypatch.setattr(doctor, "requires", lambda _: told)


def has(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """These packages in these versions, and the core's as they are; no other one is installed."""
    real, core = doctor.version, {one.name for one in CORE}

    def version(name: str) -> str:
        if name.replace("-", "_") in versions:
            return versions[name.replace("-", "_")]
        if name in core:
            return real(name)
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", version)


def judge(needed: Collection[str] = ("spark",)) -> doctor.Finding:
    [found] = doctor._check_packages(frozenset(needed))
    return found


@pytest.mark.parametrize("used", SETS, ids=lambda used: ",".join(used) or "core")
def test_the_ranges_are_those_that_pip_has_for_the_same_extras(used: list[str]) -> None:
    wanted: dict[str, SpecifierSet] = {}
    for one in [*CORE, *(one for extra in used for one in EXTRAS[extra])]:
        wanted[one.name] = wanted.get(one.name, SpecifierSet()) & one.specifier
    found = {name: specifier for name, (specifier, by) in doctor.list_ranges(used).items() if by & {"", *used}}
    assert found == wanted


@pytest.mark.parametrize("spark", ["4.2.0", "4.2.1", "4.3.0"])
def test_without_airflow_every_spark_of_the_extra_is_right(monkeypatch: pytest.MonkeyPatch, spark: str) -> None:
    has(monkeypatch, pyspark=spark)
    assert f"pyspark {spark}" in judge().found
    assert judge().ok


def test_beside_airflow_there_must_be_a_pyspark_client_of_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for spark in ("4.2.1", "4.3.0"):
        has(monkeypatch, pyspark=spark, apache_airflow="3.3.2")
        found = judge()
        assert not found.ok
        assert f"pyspark is {spark}, " in found.found and "(airflow and spark)" in found.found
        assert '"tidegate[airflow,spark]"' in str(found.fix)
    has(monkeypatch, pyspark="4.2.0", pyspark_client="4.2.0", apache_airflow="3.3.2")
    assert judge().ok


def test_what_is_needed_and_absent_is_named_and_what_is_not_needed_is_judged_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has(monkeypatch, pyspark="4.1.0", confluent_kafka="2.0.0")
    assert judge().found.count(" is needed") == 2
    has(monkeypatch)
    assert judge().found == "pyspark is not installed"
    has(monkeypatch, pyspark="4.2.0")
    assert judge(("spark", "kafka")).found == "confluent-kafka is not installed"
