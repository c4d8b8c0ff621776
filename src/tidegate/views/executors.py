"""``tidegate doctor --spark``: check that executors have what the readers need, by a small job that reads no data."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from platform import python_version

from packaging.specifiers import SpecifierSet

from tidegate import __version__
from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.core.words import list_first
from tidegate.runs.recovery.context import Submit
from tidegate.spark import errors as spark_errors
from tidegate.spark.driver.cluster import BYTES_PER_CORE, CORES_AT_MOST, no_executors
from tidegate.spark.driver.jvm import own_settings
from tidegate.spark.driver.master import explain_end
from tidegate.spark.driver.order import NO_PYTHON, ExecutorsOrder, write_order
from tidegate.spark.driver.submit import driver_died, plan_submit
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.views.findings import Finding

ANSWER_SECONDS = 120
"""How long the cluster has to start executors, and these to answer. A run waits longer: nobody watches it."""
READERS_NEED = ("babel", "msgspec", "numpy", "pyarrow")
"""The modules that ``sources/readers`` imports, except tidegate's own and Kafka's."""
OF_KAFKA = "confluent_kafka"
_OF_PYTHON = re.compile(r"spark\.(pyspark\.python|archives|(executorEnv|yarn|kubernetes)\..*)")
"""Settings that decide which Python an executor has."""
_HOSTS_NAMED_AT_MOST = 5


def ask_executors(
    project: Project,
    specs: Sequence[PipelineSpec],
    submit: Submit,
    ranges: Mapping[str, SpecifierSet],
    seconds: int = ANSWER_SECONDS,
) -> list[Finding]:
    """Ask the executors, as many as a large run gets, for their Python and the versions of their packages.

    The versions should be in ``ranges``. One Spark job serves all pipelines whose executors have the same Python."""
    alike: dict[str, list[PipelineSpec]] = {}
    for spec in specs:
        own = own_settings(project, spec.spark.conf)
        alike.setdefault(str(sorted(item for item in own.items() if _OF_PYTHON.fullmatch(item[0]))), []).append(spec)
    findings: list[Finding] = []
    for some in alike.values() or [[]]:
        names = ", ".join(spec.name for spec in some)
        check = f"executors of {names}" if len(alike) > 1 else "executors"
        try:
            python, answers = _ask(project, some, submit, seconds)
        except TidegateError as error:
            findings.append(Finding.of(check, error))
        else:
            findings += judge_answers(check, answers, python, ranges)
    return findings


def _ask(
    project: Project, specs: Sequence[PipelineSpec], submit: Submit, seconds: int
) -> tuple[str, list[tuple[str, str]]]:
    """The Python that executors should start, and (host, text) of each answer."""
    with tempfile.TemporaryDirectory(prefix="tidegate-doctor-") as folder:
        order_path, result_path, log_path = (Path(folder) / name for name in ("order.json", "result.json", "log"))
        modules = ["tidegate", *READERS_NEED]
        if any("kafka" in spec.needs for spec in specs):
            modules.append(OF_KAFKA)
        write_order(order_path, ExecutorsOrder(str(project.root), str(result_path), modules, seconds))
        plan = plan_submit(
            project,
            order_path=order_path,
            log_path=log_path,
            pipeline_conf=specs[0].spark.conf if specs else {},
            pending_bytes=CORES_AT_MOST * BYTES_PER_CORE,  # for the most executors that a run may take
            pending_files=0,
            settings={},
        )
        exit_code = submit(plan)
        result = storage.read_json(result_path)
        if result is None and exit_code == TryAgainError.exit_code:
            raise no_executors(plan.conf.get, str(project.root), plan.master, seconds)
        if result is None:
            raise driver_died("NAME", exit_code, log_path)
        if result["error"] is not None:
            raise explain_end(TidegateError.from_dict(result["error"]), log_path, plan.master, "NAME")
        return plan.conf["spark.pyspark.python"], result["answers"]


def judge_answers(
    check: str, answers: Sequence[tuple[str, str]], python: str, ranges: Mapping[str, SpecifierSet]
) -> list[Finding]:
    """Turn answers into findings; equal ones become one finding with all their hosts."""
    hosts: dict[Finding, list[str]] = {}
    for host, text in answers:
        hosts.setdefault(_judge(check, text, python, ranges), []).append(host)
    return [
        Finding(check, one.ok, f"{list_first(on, _HOSTS_NAMED_AT_MOST)}: {one.found}", one.fix)
        for one, on in hosts.items()
    ]


def _judge(check: str, text: str, python: str, ranges: Mapping[str, SpecifierSet]) -> Finding:
    where = "an executor"
    missing = spark_errors.PYTHON_MISSING(where=where, first_missing=python)
    if text == NO_PYTHON:
        return Finding.of(check, missing)
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return Finding(check, False, f"{python} does not work: {text[:300] or 'it gave no answer'}", missing.fix)
    there, versions = answer["python"], answer["versions"]
    if there.split(".")[:2] != python_version().split(".")[:2]:
        return Finding.of(check, spark_errors.PYTHON_DIFFERS(where=where, there=there, here=python_version()))
    if (other := versions.get("tidegate", __version__)) != __version__:
        return Finding.of(check, spark_errors.VERSION_DIFFERS(where=where, there=other, here=__version__))
    lacks = answer["faults"] + [
        f"{name} is {has}, {ranges[package]} is needed"
        for name, has in versions.items()
        if (package := name.replace("_", "-")) in ranges and not ranges[package].contains(has, prereleases=True)
    ]
    if lacks:
        return Finding.of(check, spark_errors.MODULE_MISSING(where=where, first_lost_module="; ".join(lacks)))
    packages = ", ".join(f"{name} {has}" for name, has in versions.items())
    return Finding(check, True, f"Python {there} ({answer['path']}) with {packages}")
