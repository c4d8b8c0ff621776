"""``tidegate.yaml``: the settings of a project, and the folders that they name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths, find_cache
from tidegate.spec import errors
from tidegate.spec.checks import check_alerts, check_settings
from tidegate.spec.document import Document, Finding, KeyPath
from tidegate.spec.environment import fill_from_environment
from tidegate.spec.faults import SpecError
from tidegate.spec.model import build_model
from tidegate.spec.models import NAME_PATTERN, PipelineSpec, ProjectS3Spec, ProjectSpec
from tidegate.spec.option_checks import check_client_options
from tidegate.spec.source_checks import describe_unusable_path, describe_unusable_place
from tidegate.spec.spark_settings import check_packages, check_spark_conf, parse_master
from tidegate.spec.yaml_file import parse_document

PROJECT_FILE = "tidegate.yaml"
_SERVER = re.compile(r"https?://[^\s/?#@<>\"']+/?")
_NUMBERS = re.compile(r"https?://(\d+(\.\d+){3}|\[[0-9a-fA-F:.]+\])(:\d+)?/?")
"""A server by its IP address."""
_WEB_ADDRESS = re.compile(r"https?://[^\s/?#@<>\"']+(/[^\s?#<>\"']*)?")
_SHORTEST_LEASE_SECONDS = 5
_LONGEST_POOL_NAME = 256
_BAD = "BAD_PROJECT"
_MAY_NAME_TABLE = re.compile(rb"table['\"]?\s*:[\s\S]*?path")


@dataclass(frozen=True)
class Project:
    """A project: its root (the folder of ``tidegate.yaml``) and its settings, environment already filled in."""

    root: Path
    spec: ProjectSpec

    def place(self, text: str) -> Path:
        """The folder, or the prefix of an object store, that a path of ``tidegate.yaml`` or of a spec means."""
        return self.root / storage.parse_path(text)

    @property
    def warehouse(self) -> Path:
        """Folder of the tables."""
        return self.place(self.spec.warehouse)

    @property
    def state(self) -> Path:
        """Folder of checkpoints, staging, run reports and leases."""
        return self.place(self.spec.state)

    @property
    def quarantine(self) -> Path:
        """Folder of the quarantine tables."""
        return self.place(self.spec.quarantine)

    @property
    def jobs(self) -> Path:
        """Folder of the pipelines' specs and transforms."""
        return self.root / "jobs"

    @property
    def fetched_jars(self) -> Path:
        """Folder of the jars of ``spark.packages``."""
        return self.root / ".tools" / "packages"

    def own_table(self, name: str) -> Path:
        """The place of a pipeline's table in the warehouse, whatever its spec says."""
        return self.warehouse / name

    def table_at(self, path: str) -> Path:
        """The folder that ``table.path`` of a spec means."""
        return storage.normalise(self.place(path))

    def _named_table(self, name: str) -> Path | None:
        """The folder that the spec of pipeline ``name`` names, None for its own place in the warehouse."""
        if re.fullmatch(NAME_PATTERN, name) is None:
            return None
        file = self.jobs / name / "pipeline.yaml"
        try:
            found = file.stat()
            path = _table_path_in(str(file), (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        except OSError as error:
            if (failed := storage.name_failure(error, file)) is not None:
                raise failed from error  # or the rows would go into another table
            return None
        return None if path is None else self.table_at(path)

    def suite_path(self, name: str) -> Path:
        """The Great Expectations suite of pipeline ``name``; it need not exist."""
        return self.root / "expectations" / f"{name}.yaml"

    def on_master(self, master: str) -> Project:
        """The same project with another Spark master: a DAG takes it from its connection."""
        spark = self.spec.spark.replace(master=master)
        return replace(self, spec=self.spec.replace(spark=spark))

    def for_pipeline(self, spec: PipelineSpec) -> Project:
        """The same project with the Spark master of a pipeline, where that has one."""
        return self if spec.spark.master is None else self.on_master(spec.spark.master)

    def paths(self, name: str) -> PipelinePaths:
        """Every path of pipeline ``name``; its table's folder is where its spec says, if that can be read."""
        state, mirror = self.state / name, None
        if isinstance(state, storage.ObjectPath):
            from tidegate.core.storage.mirror import mirror_of  # late: most projects do without

            mirror = mirror_of(state, find_cache())
            state = mirror.local
        return PipelinePaths(
            name=name,
            job=self.jobs / name,
            table=self.own_table(name) if (named := self._named_table(name)) is None else named,
            quarantine=self.quarantine / name,
            state=state,
            mirror=mirror,
        )


@lru_cache(maxsize=4096)
def _table_path_in(file: str, _stamp: tuple[int, ...]) -> str | None:
    """``table.path`` of a spec. Read once for each state of the file: a look at many pipelines asks for each again."""
    data = Path(file).read_bytes()
    if _MAY_NAME_TABLE.search(data) is None:  # most do not: spares parsing the file twice
        return None
    document = parse_document(data, "pipeline.yaml").data
    table = document.get("table") if isinstance(document, dict) else None
    path = table.get("path") if isinstance(table, dict) else None
    return path if isinstance(path, str) and path.strip() else None


def load_project(folder: Path | str | None = None, environment: Mapping[str, str] | None = None) -> Project:
    """The project in ``folder``; without one, the nearest project at or above the working folder.

    ``environment`` fills ``${VAR}``, and its ``TIDEGATE__...`` go over the file; by default the process's own. Raises
    UsageError: NO_PROJECT, BAD_PROJECT_PATH, or a SpecError (BAD_PROJECT, STORAGE_NOT_SUPPORTED) with every fault of
    ``tidegate.yaml`` and of these variables.
    """
    root = _find_root(folder)
    unusable = describe_unusable_path(str(root))
    if unusable:
        raise errors.BAD_PROJECT_PATH(where=str(root).replace("\n", "\\n"), unusable=unusable, root=str(root))
    try:
        data = (root / PROJECT_FILE).read_bytes()
    except OSError as error:
        if (failed := storage.name_failure(error, root / PROJECT_FILE)) is not None:
            raise failed from error
        path = str(root / PROJECT_FILE)
        raise errors.BAD_PROJECT(where=path, strerror=error.strerror, quoted_path=shlex.quote(path)) from error
    document = parse_document(data, PROJECT_FILE)
    spec = _check_project(document, root, os.environ if environment is None else environment)
    if document.faults or spec is None:
        raise SpecError(document.faults, fix="correct the lines above, then: tidegate validate")
    storage.use_settings(_store_settings(root, spec.s3), spec.s3.connection)
    return Project(root=root, spec=spec)


def _store_settings(root: Path, s3: ProjectS3Spec) -> dict[str, str]:
    """The settings of S3 under the names that clients know from the environment."""
    found = {
        "AWS_ENDPOINT_URL": s3.endpoint and s3.endpoint.rstrip("/"),
        "AWS_ALLOW_HTTP": "true" if s3.endpoint and s3.endpoint.startswith("http:") else None,
        "AWS_REGION": s3.region,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if s3.path_style else "true",
        storage.CA_VARIABLE: s3.ca_file and str(root / s3.ca_file),
    }
    return {name: value for name, value in found.items() if value}


def _find_root(folder: Path | str | None) -> Path:
    start = Path(os.path.abspath(folder if folder is not None else os.getcwd()))
    candidates = [start] if folder is not None else [start, *start.parents]
    for candidate in candidates:
        if (candidate / PROJECT_FILE).is_file():
            return candidate
    reach = "" if folder is not None else " nor in any folder above it"
    raise errors.NO_PROJECT(where=str(start), start=start, reach=reach)


def _check_project(document: Document, root: Path, environment: Mapping[str, str]) -> ProjectSpec | None:
    fill_from_environment(document, environment, _BAD)
    spec = build_model(document, ProjectSpec, _BAD)
    if spec is not None:
        document.add_findings(_find_faults(document, root, spec), _BAD)
    document.faults = [replace(fault, code=_BAD) if fault.code == "BAD_SPEC" else fault for fault in document.faults]
    return spec


def _find_faults(document: Document, root: Path, spec: ProjectSpec) -> Iterator[Finding]:
    folders: dict[str, Path] = {}
    for key in ("warehouse", "state", "quarantine"):
        value, shown = getattr(spec, key), document.show((key,))
        if unusable := describe_unusable_place(value):
            what, fix, code = unusable
            yield Finding((key,), f"the path {what}: {shown}", fix or f"write a path: {key}: data/{key}", code)
        else:
            folders[key] = storage.normalise(root / storage.parse_path(value))
    yield from _check_apart(folders)
    yield from _check_values(document, spec, root)
    yield from check_settings(spec.maintenance)
    yield from check_alerts(spec.alerts)
    yield from check_packages(("spark", "packages"), spec.spark.packages)
    yield from check_spark_conf(("spark", "conf"), spec.spark.conf)
    yield from check_client_options(spec.kafka.options)


def _check_values(document: Document, spec: ProjectSpec, root: Path) -> Iterator[Finding]:
    """Check keys one by one: (key, whether it is wrong, what is wrong with its value, what to write)."""
    pool, history, s3 = spec.airflow.pool, spec.ui.spark_history, spec.s3
    checks: list[tuple[KeyPath, bool, str, str]] = [
        (
            ("lease", "expires_after"),
            spec.lease.expires_after < _SHORTEST_LEASE_SECONDS,
            "is too short for a heartbeat",
            f"write at least {_SHORTEST_LEASE_SECONDS} seconds",
        ),
        (
            ("airflow", "slots"),
            spec.airflow.slots < 1,
            "is not allowed: at least one slot is needed",
            "write 1 or more",
        ),
        (
            ("airflow", "pool"),
            pool is not None and not 0 < len(pool.strip()) <= _LONGEST_POOL_NAME,
            "cannot be the name of a pool",
            "write a name, or null for Airflow's default pool",
        ),
        (
            ("ui", "spark_history"),
            history is not None and _WEB_ADDRESS.fullmatch(history) is None,
            "is not the address of a web page",
            "write http://host:port, without a user or a query",
        ),
        (
            ("s3", "endpoint"),
            s3.endpoint is not None and _SERVER.fullmatch(s3.endpoint) is None,
            "is not the address of a server",
            "write https://host:port, without a user, a path or a query",
        ),
        (
            ("s3", "path_style"),
            not s3.path_style and _NUMBERS.fullmatch(s3.endpoint or "") is not None,
            "would have the name of the bucket before an IP address",
            "write path_style: true, or an endpoint with the name of the server",
        ),
        (("s3", "region"), s3.region == "", "is empty", "write the name of a region, or null"),
        (
            ("s3", "ca_file"),
            s3.ca_file is not None and not (root / s3.ca_file).is_file(),
            "is not a file",
            "name a file with certificates in PEM",
        ),
        (("s3", "connection"), not s3.connection.strip(), "is empty", "write the id of a connection"),
    ]
    for path, is_wrong, reason, fix in checks:
        if is_wrong:
            yield Finding(path, f"{document.show(path)} {reason}", fix)
    if not spec.kafka.bootstrap_servers.strip():
        yield Finding(("kafka", "bootstrap_servers"), "the list of brokers is empty", "write host:port")
    try:
        parse_master(spec.spark.master)
    except ValueError as error:
        yield Finding(("spark", "master"), f"the master {error}", 'write one of these, such as "local[*]"')


def check_table_path(project: Project, spec: PipelineSpec, names: Sequence[str]) -> list[Finding]:
    """What is wrong with ``table.path`` of a spec; ``names`` are the project's pipelines.

    A table needs its own folder: readers would read other files there as rows.
    """
    here, value = ("table", "path"), spec.table.path or ""
    if unusable := describe_unusable_place(value):
        what, fix, code = unusable
        return [Finding(here, f"the path {what}", fix, code)]
    path = project.table_at(value)
    others = {f"the table of pipeline {name}": project.paths(name).table for name in names if name != spec.name}
    others |= {"state": project.state, "quarantine": project.quarantine, "jobs": project.jobs}
    for name, source in spec.file_sources.items():
        top = re.split(r"[*?\[{]", source.path)[0]
        others[f"the path of source {name}"] = project.place(top)
    # In the warehouse, but not all of it.
    within = {"the project": project.root, "the warehouse": project.warehouse}
    found = [
        f"{path} and {what} ({other}) are inside of one another"
        for what, other in ((what, storage.normalise(other)) for what, other in others.items())
        if path.is_relative_to(other) or other.is_relative_to(path)
    ]
    found += [
        f"{path} holds {what} ({other})"
        for what, other in ((what, storage.normalise(other)) for what, other in within.items())
        if other.is_relative_to(path)
    ]
    return [Finding(here, message, "name the folder of this table alone") for message in found[:1]]


def check_readers(project: Project, spec: PipelineSpec) -> Iterator[Finding]:
    """Refuse a table on an object store that replaces rows for readers without the log: a store has no way to exchange
    files while they are read, so such a reader would miss rows, or find a listed file gone."""
    path = spec.table.path
    table = project.own_table(spec.name) if path is None else project.table_at(path)
    if storage.is_object(table) and spec.output_mode != "append" and spec.table.readers == "both":
        message = f"output_mode: {spec.output_mode} replaces files, and {table} is on an object store, where a reader "
        message += "that has listed a file can find it gone; so all readers must go by the table's log"
        yield Finding(("table", "readers"), message, "write readers: delta, if all readers of the table read Delta")


def _example(place: Path, key: str) -> str:
    """A folder for ``key`` where ``place`` is."""
    return f"{place.scheme}://{place.bucket}/{key}" if isinstance(place, storage.ObjectPath) else f"data/{key}"


def _check_apart(folders: dict[str, Path]) -> list[Finding]:
    """Tables, state and quarantine must be apart: a reader of the one would find files of the other."""
    keys = list(folders)
    return [
        Finding(
            (key,),
            f"{key} ({folders[key]}) and {other} ({folders[other]}) are inside of one another",
            f"give each its own folder, such as {key}: {_example(folders[key], key)}",
        )
        for index, key in enumerate(keys)
        for other in keys[:index]
        if folders[key].is_relative_to(folders[other]) or folders[other].is_relative_to(folders[key])
    ]
