"""``tidegate doctor``: check that everything is there that a run needs, and change nothing.

It starts a JVM only with ``--spark``, for a job that asks a cluster's executors."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from platform import python_version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tidegate import __version__
from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.core.extras import check_spark, explain_missing
from tidegate.core.storage.faults import StoreError
from tidegate.core.words import list_first
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.tables import OF_ONE, check_quarantine, damage_error
from tidegate.runs.recovery.context import Submit
from tidegate.runs.recovery.side_jobs import describe_work, list_unfinished_work
from tidegate.runs.recovery.upkeep import find_left, tables_of
from tidegate.sources.kafka.brokers import describe_brokers, one_topic
from tidegate.sources.kafka.settings import settings_of
from tidegate.spark import errors as spark_errors
from tidegate.spark.driver.cluster import BYTES_PER_CORE, CORES_AT_MOST, check_master, explain_end, no_executors
from tidegate.spark.driver.java import OLDEST_JAVA, find_java_home, find_java_version
from tidegate.spark.driver.jvm import own_settings
from tidegate.spark.driver.jvm_archive import why_no_archive
from tidegate.spark.driver.order import NO_PYTHON, ExecutorsOrder, write_order
from tidegate.spark.driver.packages import describe_mismatches, find_packages
from tidegate.spark.driver.submit import Load, driver_died, find_application, plan_submit
from tidegate.spec.literal_secrets import find_in_project
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.spark_settings import parse_master
from tidegate.table.damage import find_damage
from tidegate.views.buckets import list_places
from tidegate.views.outlook import list_unfinished
from tidegate.views.signals.alerts import use_notifier

_NEWEST_JAVA = 21
"""The versions that Spark 4 supports."""
_LOW_DISK_BYTES = 1 << 30
_EXTRAS = ("spark", "kafka", "airflow")


def examine(project: Project, submit: Submit | None = None) -> list[Finding]:
    """Check versions, Java, folders, buckets, specs, listed jars, and brokers where a pipeline reads Kafka.

    With ``submit``, which starts a Spark job, also check what the executors of a cluster have."""
    specs, faulty = _load_specs(project)
    needed = frozenset({"spark"}).union(*(spec.needs for spec in specs))
    findings = [*_check_packages(needed), _check_java(), _check_application(project), *_check_class_archive()]
    folders = {"warehouse": project.warehouse, "state": project.state, "quarantine": project.quarantine}
    local = {name: path for name, path in folders.items() if not storage.is_object(path)}
    findings += [_check_folder(name, path) for name, path in local.items()]
    if "state" in local:
        findings += [_check_one_device(local)] if len(local) > 1 else []
        findings.append(_check_disk(project.state))
    buckets = list(_check_buckets(project, specs))
    findings += buckets
    findings.append(_check_specs(specs, faulty))
    findings += _check_notifiers(project, specs)
    if all(found.ok for found in buckets):  # a store that is away would be waited for in each pipeline
        findings += [found for spec in specs for found in _check_unfinished(project, spec)]
    findings += [Finding("secrets", False, str(fault), fault.fix) for fault in find_in_project(project.root)]
    if "kafka" in needed:
        findings += _check_brokers(project, specs)
    if project.spec.spark.packages:
        findings.append(_check_jars(project))
    return [*findings, *_check_master(project, specs, submit)]


def _load_specs(project: Project) -> tuple[list[PipelineSpec], list[str]]:
    specs, faulty = [], []
    for name in list_pipelines(project):
        try:
            specs.append(load_pipeline(project, name))
        except TidegateError:
            faulty.append(name)
    return specs, faulty


def _check_packages(needed: frozenset[str] = frozenset({"spark"})) -> Iterator[Finding]:
    """Check the versions of packages: of the core and of the extras ``needed``, and of other extras if installed."""
    used = needed | ({"airflow"} if find_version("apache-airflow") is not None else set())
    wrong, right = [], []
    for name, (specifier, extras) in list_ranges(used).items():
        has = find_version(name)
        if has is None:
            if extras & {"", *needed}:
                wrong.append(f"{name} is not installed")
        elif specifier.contains(has, prereleases=True):
            right.append(f"{name} {has}")
        else:
            by = f" ({' and '.join(sorted(extras))})" if "" not in extras else ""
            wrong.append(f"{name} is {has}, {specifier} is needed{by}")
    fix = f'pip install --upgrade "tidegate[{",".join(sorted(used))}]", or in the repository: make setup'
    if not wrong:
        try:
            check_spark()
        except TidegateError as error:
            yield Finding.of("packages", error)
            return
    if wrong:
        yield Finding("packages", False, "; ".join(wrong), fix)
    else:
        yield Finding("packages", True, ", ".join(right))


def find_version(name: str) -> str | None:
    """The installed version of a package; None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def list_ranges(used: Collection[str]) -> dict[str, tuple[SpecifierSet, set[str]]]:
    """{package: (range, the extras that require it, "" for the core)}, as pip resolves ``tidegate[used]``.

    Packages of other extras are included, with the range of these: they may be installed too."""
    found: dict[bool, dict[str, tuple[SpecifierSet, set[str]]]] = {True: {}, False: {}}
    for text in requires("tidegate") or ():
        requirement = Requirement(text)
        marker, name = requirement.marker, canonicalize_name(requirement.name)
        extras = {one for one in _EXTRAS if marker is not None and marker.evaluate({"extra": one})}
        if marker is None or marker.evaluate({"extra": ""}):
            extras = {""}
        for extra in extras:
            ranges = found[extra in ("", *used)]
            specifier, by = ranges.get(name, (SpecifierSet(), set()))
            ranges[name] = (specifier & requirement.specifier, by | {extra})
    return {**found[False], **found[True]}


def _check_class_archive() -> list[Finding]:
    """Check whether Spark's drivers start with a class archive; reported only when its build has failed."""
    why = why_no_archive()
    if why is None:
        return []
    cost = "each run costs about 4 CPU-seconds more; the build is tried again a day after it failed"
    return [Finding("class archive", True, f"not built: {why}; {cost}")]


def _check_java() -> Finding:
    fix = f"install a Java {OLDEST_JAVA} runtime, or set JAVA_HOME to one"
    home = find_java_home()
    if home is None:
        return Finding("java", False, "there is no `java` on PATH, and JAVA_HOME is not set", fix)
    if not (home / "bin" / "java").exists():
        return Finding("java", False, f"{home} has no bin/java", fix)
    version = find_java_version(home / "bin" / "java")
    if version is None:
        return Finding("java", False, f"{home / 'bin' / 'java'} is not Java: it prints no version", fix)
    fits = OLDEST_JAVA <= version[0] <= _NEWEST_JAVA
    shown = f"Java {version[1]} in {home}"
    return Finding(
        "java", fits, shown if fits else f"{shown}; Spark needs {OLDEST_JAVA} to {_NEWEST_JAVA}", None if fits else fix
    )


def _check_application(project: Project) -> Finding:
    return _ask("application", lambda: str(find_application(project)))


def _nearest_existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next((place for place in (folder, *folder.parents) if place.exists()), Path(folder.anchor))


def _check_folder(name: str, folder: Path) -> Finding:
    """Check that files can be created there, or in the nearest parent of a folder that a run will create."""
    place = _nearest_existing(folder)
    shown = str(folder) if place == folder else f"{folder} (made by the first run)"
    if not place.is_dir():
        return Finding(name, False, f"{place} is not a folder", f"remove it, or set {name} in tidegate.yaml")
    try:
        with tempfile.TemporaryFile(dir=place):
            return Finding(name, True, shown)
    except OSError as error:
        fix = f"give user {_user()} the right to write to {place}, or set {name} in tidegate.yaml"
        return Finding(name, False, f"{place}: {error.strerror}", fix)


def _check_one_device(folders: dict[str, Path]) -> Finding:
    """Check that a publish can rename files from state into the tables, which works only within one file system."""
    devices = {name: _nearest_existing(folder).stat().st_dev for name, folder in folders.items()}
    if len(set(devices.values())) == 1:
        return Finding("file system", True, f"{list_first(list(folders))} are on one")
    others = ", ".join(name for name in folders if devices[name] != devices["state"])
    return Finding(
        "file system", False, f"{others} and state are on different ones", "put the three folders on one file system"
    )


def _check_disk(folder: Path) -> Finding:
    folder = _nearest_existing(folder)
    free = shutil.disk_usage(folder).free
    fix = None if free >= _LOW_DISK_BYTES else f"make room on the file system of {folder}"
    return Finding("disk", fix is None, f"{free / (1 << 30):.1f} GiB free", fix)


def _check_buckets(project: Project, specs: list[PipelineSpec]) -> Iterator[Finding]:
    """Check that what a run does with buckets is allowed, and that they honour conditions."""
    for place in list_places(project, specs):
        if (error := place.find_fault()) is not None:
            yield Finding.of(place.name, error)
        else:
            yield Finding(place.name, True, f"{place.path} can be {place.uses}")


def _check_specs(specs: list[PipelineSpec], faulty: list[str]) -> Finding:
    if faulty:
        return Finding("pipelines", False, f"faults in {', '.join(faulty)}", "tidegate validate")
    return Finding("pipelines", True, f"{len(specs)} with a spec that can be read")


def _check_notifiers(project: Project, specs: list[PipelineSpec]) -> Iterator[Finding]:
    """Check that the notifiers of ``alerts:`` can be created, before one is needed."""
    named = {str(one): one for spec in specs for one in spec.alerts.notify}
    path, writes_no_bytecode = list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # doctor writes nothing
    # Airflow adds these folders, but this process may not be Airflow.
    sys.path += [str(home / "plugins") for home in (project.root, Path(os.environ.get("AIRFLOW_HOME", project.root)))]
    try:
        for one in named.values():
            if (why_not := use_notifier(one, lambda made: None)) is not None:
                fix = "correct alerts.notify, or install its package here and where tasks run"
                yield Finding("alerts", False, f"{one.notifier} cannot be made: {why_not}", fix)
            else:
                yield Finding("alerts", True, f"{one.notifier} can be made")
    finally:
        sys.path[:], sys.dont_write_bytecode = path, writes_no_bytecode


def _check_unfinished(project: Project, spec: PipelineSpec) -> Iterator[Finding]:
    """Find what stops a pipeline, or is unfinished in it, apart from faults of its spec."""
    name = spec.name
    try:
        paths = project.paths(name).pinned()
        check_quarantine(paths)
        for intent in list_unfinished_work(paths):
            fix = f"tidegate run {name}, then the same command again; or `tidegate repair {name}` abandons it"
            yield Finding(f"work of {name}", False, f"{describe_work(intent)} was stopped half-way", fix)
        for target, _, left in find_left(paths, spec, gather_facts(paths, spec, at_a_glance=True)):
            for line in left.describe():
                by_hand = line in left.describe_for_good()
                fix = "by hand, as it says" if by_hand else f"tidegate maintain {name}, or the next run, hides it"
                yield Finding(f"{target} of {name}", False, line, fix)
        for one in list_unfinished(paths):
            if one.is_certain:
                yield Finding(f"work of {name}", False, one.found, one.fix)
        for target, path in tables_of(paths):
            if damaged := find_damage(path, at_most=OF_ONE):
                yield Finding.of(f"{target} of {name}", damage_error(paths, path == paths.table, damaged))
    except TidegateError as error:
        yield Finding.of(f"quarantine of {name}", error)
    except NotADirectoryError:
        return  # the check of the folders reports it
    except StoreError as error:
        yield Finding.of(f"tables of {name}", error.named)
    except OSError as error:
        fix = f"give user {_user()} the right to read it"
        yield Finding(f"state of {name}", False, f"{error.filename}: {error.strerror}", fix)


def _check_jars(project: Project) -> Finding:
    def describe() -> str:
        jars = f"{len(find_packages(project))} of spark.packages, with the checksums of tidegate.yaml"
        return "; ".join([jars, *(f"but {mismatch}" for mismatch in describe_mismatches(project))])

    return _ask("jars", describe)


def _check_brokers(project: Project, specs: list[PipelineSpec]) -> Iterator[Finding]:
    """Ask each broker once, however many sources have its settings."""
    asked = set()
    for spec in specs:
        named = {name: one_topic(topic) for name, topic in spec.notification_topics.items()}
        for name, source in (spec.topic_sources | named).items():
            try:
                settings = settings_of(project.spec.kafka, source)
            except TidegateError as error:
                yield Finding.of(f"source {name} of {spec.name}", error)
                continue
            key = frozenset(settings.client.items())
            if key not in asked:
                asked.add(key)
                yield _ask("broker", partial(describe_brokers, settings))


def _check_master(project: Project, specs: list[PipelineSpec], submit: Submit | None) -> list[Finding]:
    """Check that the master of a cluster answers and, with ``submit``, what its executors have.

    In local mode records are read by the Python of this process, whose packages are checked anyway."""
    master = parse_master(project.spec.spark.master)
    if not master.is_cluster:
        return [Finding("executors", True, f"{master.url}: this Python, with the packages above")] if submit else []

    def ask() -> str:
        check_master(master.url, "NAME")
        answers = f"{master.url} takes connections" if master.addresses else master.url
        return answers if submit else f"{answers}; `tidegate doctor --spark` asks its executors for their packages"

    found = _ask("spark master", ask)
    if submit is None or not found.ok:
        return [found]
    ranges = {name: specifier for name, (specifier, _) in list_ranges(()).items()}
    return [found, *ask_executors(project, specs, submit, ranges)]


def _ask(check: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, ask())
    except TidegateError as error:
        return Finding.of(check, error)
    except ImportError as error:
        if (known := explain_missing(error)) is None:
            raise
        return Finding.of(check, known)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``fix`` is the command or action that corrects it, None where nothing is wrong."""

    check: str
    ok: bool
    found: str
    fix: str | None = None

    @staticmethod
    def of(check: str, error: TidegateError) -> Finding:
        """The finding for an error."""
        return Finding(check, False, f"{error.code}: {error.message}", error.fix)

    def to_dict(self) -> outputs.Finding:
        """The finding as ``--json`` prints it."""
        return {"check": self.check, "ok": self.ok, "found": self.found, "fix": self.fix}


ANSWER_SECONDS = 120
"""How long the cluster has to start executors, and these to answer. A run waits longer: nobody watches it."""
READERS_NEED = ("babel", "msgspec", "numpy", "obstore", "pyarrow")
"""The modules that ``sources/readers`` imports, except tidegate's own and Kafka's."""
OF_KAFKA = "confluent_kafka"
_OF_PYTHON = re.compile(r"spark\.(pyspark\.python|archives|(executorEnv|yarn|kubernetes)\..*)")
"""Settings that decide which Python an executor has."""


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
            python, answers = _ask_job(project, some, submit, seconds)
        except TidegateError as error:
            findings.append(Finding.of(check, error))
        else:
            findings += judge_answers(check, answers, python, ranges)
    return findings


def _ask_job(
    project: Project, specs: Sequence[PipelineSpec], submit: Submit, seconds: int
) -> tuple[str, list[tuple[str, str]]]:
    """The Python that executors should start, and (host, text) of each answer."""
    with tempfile.TemporaryDirectory(prefix="tidegate-doctor-") as folder:
        order_path, result_path, log_path = (Path(folder) / name for name in ("order.json", "result.json", "log"))
        modules = ["tidegate", *READERS_NEED]
        if any(spec.topic_sources for spec in specs):
            modules.append(OF_KAFKA)
        write_order(order_path, ExecutorsOrder(str(project.root), str(result_path), modules, seconds))
        plan = plan_submit(
            project,
            order_path=order_path,
            log_path=log_path,
            pipeline_conf=specs[0].spark.conf if specs else {},
            load=Load(CORES_AT_MOST * BYTES_PER_CORE, 0),  # for the most executors that a run may take
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
    return [Finding(check, one.ok, f"{list_first(on)}: {one.found}", one.fix) for one, on in hosts.items()]


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
