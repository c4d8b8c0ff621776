"""``tidegate doctor``: check that everything is there that a run needs, and change nothing.

It starts a JVM only with ``--spark``, for a job that asks a cluster's executors."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tidegate.core.errors import TidegateError
from tidegate.core.extras import check_spark, explain_missing
from tidegate.runs.preflight.damage import OF_ONE, damage_error
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.quarantine import check_quarantine
from tidegate.runs.recovery.abandoned import describe_work, list_unfinished_work
from tidegate.runs.recovery.context import Submit
from tidegate.runs.recovery.upkeep import find_left, tables_of
from tidegate.sources.registry import BROKERS
from tidegate.spark.driver.jvm_archive import default_cache_dir, find_java_home, find_spark_home, why_no_archive
from tidegate.spark.driver.master import check_master
from tidegate.spark.driver.packages import describe_mismatches, find_packages
from tidegate.spark.driver.submit import find_application
from tidegate.spec.literal_secrets import find_in_project
from tidegate.spec.master import parse_master
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project
from tidegate.table.damage import find_damage
from tidegate.views.executors import ask_executors
from tidegate.views.findings import Finding
from tidegate.views.notifiers import make_notifier
from tidegate.views.unfinished import list_unfinished

_OLDEST_JAVA, _NEWEST_JAVA = 17, 21
"""The versions that Spark 4 supports."""
_LOW_DISK_BYTES = 1 << 30
_EXTRAS = ("spark", "kafka", "airflow")


def examine(project: Project, submit: Submit | None = None) -> list[Finding]:
    """Check versions, Java, folders, specs, listed jars, and brokers where a pipeline reads Kafka.

    With ``submit``, which starts a Spark job, also check what the executors of a cluster have."""
    specs, faulty = _load_specs(project)
    needed = frozenset({"spark"}).union(*(spec.needs for spec in specs))
    findings = [*_check_packages(needed), _check_java(), _check_application(project), *_check_class_archive()]
    folders = {"warehouse": project.warehouse, "state": project.state, "quarantine": project.quarantine}
    findings += [_check_folder(name, path) for name, path in folders.items()]
    findings += [_check_one_device(folders), _check_disk(project.state)]
    findings.append(_check_specs(specs, faulty))
    findings += _check_notifiers(project, specs)
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
    why = why_no_archive(default_cache_dir(), find_java_home(), find_spark_home())
    if why is None:
        return []
    cost = "each run costs about 4 CPU-seconds more; the build is tried again a day after it failed"
    return [Finding("class archive", True, f"not built: {why}; {cost}")]


def _check_java() -> Finding:
    fix = f"install a Java {_OLDEST_JAVA} runtime, or set JAVA_HOME to one"
    home = find_java_home()
    if home is None:
        return Finding("java", False, "there is no `java` on PATH, and JAVA_HOME is not set", fix)
    if not (home / "bin" / "java").exists():
        return Finding("java", False, f"{home} has no bin/java", fix)
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Finding("java", True, f"{home}, of an unknown version")
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)([^"]*)"', release, re.MULTILINE)
    if match is None:
        return Finding("java", True, f"{home}, of an unknown version")
    fits = _OLDEST_JAVA <= int(match[1]) <= _NEWEST_JAVA
    shown = f"Java {match[1]}{match[2]} in {home}"
    return Finding(
        "java", fits, shown if fits else f"{shown}; Spark needs {_OLDEST_JAVA} to {_NEWEST_JAVA}", None if fits else fix
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
        return Finding("file system", True, "state, warehouse and quarantine are on one")
    others = ", ".join(name for name in folders if devices[name] != devices["state"])
    return Finding(
        "file system", False, f"{others} and state are on different ones", "put the three folders on one file system"
    )


def _check_disk(folder: Path) -> Finding:
    folder = _nearest_existing(folder)
    free = shutil.disk_usage(folder).free
    fix = None if free >= _LOW_DISK_BYTES else f"make room on the file system of {folder}"
    return Finding("disk", fix is None, f"{free / (1 << 30):.1f} GiB free", fix)


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
            try:
                make_notifier(one)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a notifier may raise anything
                found = f"{one.notifier} cannot be made: {type(error).__name__}: {error}"
                fix = "correct alerts.notify, or install its package here and where tasks run"
                yield Finding("alerts", False, found, fix)
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
        for name, source in spec.sources.items():
            if type(source) not in BROKERS:
                continue
            try:
                broker = BROKERS[type(source)](project, source)
            except TidegateError as error:
                yield Finding.of(f"source {name} of {spec.name}", error)
                continue
            if broker.key not in asked:
                asked.add(broker.key)
                yield _ask("broker", broker.describe)


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
