"""What ``doctor --spark`` says of executors: whom it asks, with which settings, and what an answer comes to."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from platform import python_version
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from tests.unit.settled_projects import make_project, write_spec
from tidegate import __version__
from tidegate.spark import errors as spark_errors
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spark.inspection import probe
from tidegate.spec.project import Project, load_project
from tidegate.views import doctor
from tidegate.views.doctor import OF_KAFKA, READERS_NEED, Finding, judge_answers

_RANGES = {"pyarrow": SpecifierSet(">=21"), "babel": SpecifierSet(">=2.18,<3")}
_HAS = {"tidegate": __version__, "babel": "2.18.0", "pyarrow": "21.0.0"}


def answer(python: str = python_version(), *faults: str, **versions: str) -> str:
    """What an executor's Python prints."""
    return json.dumps({"python": python, "path": "/bin/python3", "versions": _HAS | versions, "faults": faults})


@pytest.mark.parametrize(
    ("text", "found", "fix"),
    [
        ("null", "PYTHON_MISSING: an executor has no python3, but", "install it on each worker"),
        ("", "python3 does not work: it gave no answer", "install it on each worker"),
        ("bash: oh: no", "python3 does not work: bash: oh: no", "install it on each worker"),
        (
            answer("3.9.1"),
            f"PYTHON_DIFFERS: the executors run Python 3.9.1, this driver runs {python_version()}",
            "`spa",
        ),
        (
            answer(python_version(), "No module named 'msgspec'"),
            "MODULE_MISSING: .*: No module named 'msgspec'",
            "install this version of tidegate",
        ),
        (
            answer(tidegate="0.0.9"),
            f"VERSION_DIFFERS: the executors have tidegate 0.0.9, this driver has {__version__}",
            f"`pip install tidegate=={__version__}` on each worker",
        ),
        (
            answer(babel="2.9.0", pyarrow="19.0.0"),
            "MODULE_MISSING: .*: babel is 2.9.0, <3,>=2.18 is needed; pyarrow is 19.0.0, >=21 is needed",
            "install this version of tidegate",
        ),
    ],
)
def test_what_an_executor_lacks_in_words(text: str, found: str, fix: str) -> None:
    [one] = judge_answers("executors", [("a/10.0.0.1", text)], "python3", _RANGES)
    assert not one.ok and re.match(f"a/10.0.0.1: {found}", one.found), one.found
    assert one.fix is not None and one.fix.startswith(fix)


def test_hosts_that_have_the_same_are_one_finding() -> None:
    hosts = [(f"h{number}", answer()) for number in range(7)] + [("odd", "null")]
    good, bad = judge_answers("executors", hosts, "python3", _RANGES)
    versions = f"tidegate {__version__}, babel 2.18.0, pyarrow 21.0.0"
    told = f"h0, h1, h2, h3, h4 and 2 more: Python {python_version()} (/bin/python3) with {versions}"
    assert good == Finding("executors", True, told)
    assert bad.found.startswith("odd: PYTHON_MISSING") and not bad.ok


def make_clustered(root: Path, master: str, **confs: str) -> Project:
    """A project on that master, with a pipeline for each of ``confs``, which is its ``spark.conf``."""
    project = make_project(root)
    (root / "tidegate.yaml").write_text(f"version: 1\nspark: {{master: '{master}', conf: {{spark.archives: a.zip}}}}\n")
    for name, conf in confs.items():
        write_spec(project, name, "{type: files, path: inbox, format: csv, schema: id STRING}")
        spec = project.paths(name).spec
        spec.write_text(spec.read_text() + f"\nspark: {{conf: {conf}}}\n")
    return load_project(root)


def submits(seen: list[SubmitPlan], result: dict[str, Any] | None, code: int = 0) -> Callable[[SubmitPlan], int]:
    """A ``submit`` that notes its plan and leaves the driver's ``result``, if any."""

    def submit(plan: SubmitPlan) -> int:
        seen.append(plan)
        order = json.loads(Path(plan.application_args[0]).read_bytes())
        assert order["kind"] == "executors" and order["modules"] == ["tidegate", *READERS_NEED]
        if result is not None:
            Path(order["result"]).write_text(json.dumps(result))
        return code

    return submit


def of_executors(project: Project, submit: Callable[[SubmitPlan], int] | None) -> list[Finding]:
    """What ``doctor`` finds of the master and its executors."""
    return [one for one in doctor.examine(project, submit) if one.check.startswith(("executors", "spark master"))]


def test_one_job_asks_for_all_pipelines_whose_executors_have_the_same_python(tmp_path: Path) -> None:
    confs = {"small": "{spark.executor.memory: 2g}", "large": "{}", "other": "{spark.pyspark.python: ./env/bin/python}"}
    project, seen = make_clustered(tmp_path, "k8s://https://10.0.0.1", **confs), list[SubmitPlan]()
    found = of_executors(project, submits(seen, {"error": None, "answers": [["h", "null"]]}))
    assert [one.check for one in found] == ["spark master", "executors of large, small", "executors of other"]
    assert "has no python3" in found[1].found and "has no ./env/bin/python" in found[2].found
    assert [plan.conf["spark.archives"] for plan in seen] == ["a.zip", "a.zip"]
    assert {plan.master for plan in seen} == {"k8s://https://10.0.0.1"}
    assert not Path(seen[0].application_args[0]).exists(), "it leaves nothing behind"


def test_a_project_without_pipelines_is_asked_once(tmp_path: Path) -> None:
    seen: list[SubmitPlan] = []
    ended = spark_errors.APPLICATION_ENDED(master="the cluster", reason="", name="NAME").to_dict()
    found = of_executors(make_clustered(tmp_path, "k8s://a"), submits(seen, {"error": ended}, 75))
    assert len(seen) == 1 and found[1].found.startswith("APPLICATION_ENDED: k8s://a ended this run")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (75, r"NO_EXECUTORS: k8s://a gave no executor for 120 s \(asked for: all cores and 1g each"),
        (1, "DRIVER_DIED: .* ended with code 1"),
    ],
)
def test_a_driver_without_a_result(tmp_path: Path, code: int, found: str) -> None:
    one = of_executors(make_clustered(tmp_path, "k8s://a"), submits([], None, code))[1]
    assert re.match(found, one.found) and one.fix, one


def test_nobody_is_asked_in_local_mode_or_where_the_master_is_away(tmp_path: Path) -> None:
    seen: list[SubmitPlan] = []
    project = make_clustered(tmp_path, "local[2]", flow="{}")
    assert of_executors(project, None) == []
    assert of_executors(project, submits(seen, None)) == [
        Finding("executors", True, "local[2]: this Python, with the packages above")
    ]
    [away] = of_executors(make_clustered(tmp_path, "spark://127.0.0.1:1"), submits(seen, None))
    assert away.found.startswith("MASTER_AWAY") and not seen
    [quick] = of_executors(make_clustered(tmp_path, "k8s://a"), None)
    assert quick.ok and "`tidegate doctor --spark` asks its executors" in quick.found


def ask(*options: str, of_kafka: bool = False) -> dict[str, Any]:
    """What this Python answers as an executor's would."""
    modules = ["tidegate", *READERS_NEED, *([OF_KAFKA] if of_kafka else [])]
    command = [sys.executable, *options, "-c", Path(probe.__file__).read_text(), *modules]
    answered: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return answered


def test_the_probe_of_a_python_with_and_without_packages() -> None:
    has = ask()
    assert (has["python"], has["faults"]) == (python_version(), []) and has["versions"]["tidegate"] == __version__
    assert list(has["versions"]) == ["tidegate", *READERS_NEED]
    assert OF_KAFKA in ask(of_kafka=True)["versions"]
    lacks = ask("-S")
    assert lacks["versions"] == {}
    assert lacks["faults"] == ["No module named " + ", ".join(map(repr, ["tidegate", *READERS_NEED]))]


def test_the_modules_asked_for_are_those_that_readers_import() -> None:
    code = (
        "import importlib, pkgutil, sys; import tidegate.sources.readers as r\n"
        "for one in pkgutil.iter_modules(r.__path__): importlib.import_module('tidegate.sources.readers.' + one.name)\n"
        "print(*(m.__file__ for name, m in sys.modules.items() if name.split('.')[0] == 'tidegate'))"
    )
    files = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    imported: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(node, ast.Import):
                imported |= {one.name.split(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    imported -= {"tidegate", *sys.stdlib_module_names}
    assert imported == {*READERS_NEED, OF_KAFKA}
