"""A Spark master URL: which kind of place it names, and where its master listens."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple

from tidegate.spec.document import Finding, KeyPath
from tidegate.spec.faults import show_value
from tidegate.spec.models import PackageSpec

MASTER_FORMS = "local[N], spark://HOST:PORT, k8s://URL or yarn"

_LOCAL = re.compile(r"local(\[(?P<cores>\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?")
_STANDALONE = re.compile(r"spark://(?P<addresses>[A-Za-z0-9._-]+:\d{1,5}(,[A-Za-z0-9._-]+:\d{1,5})*)")
_KUBERNETES = re.compile(r"k8s://(https?://)?[A-Za-z0-9._\[\]:-]+(/\S*)?")


@dataclass(frozen=True)
class Master:
    """A master. ``addresses`` are those of a standalone master and its standbys; ``local_cores`` is None for all."""

    url: str
    kind: Literal["local", "standalone", "yarn", "kubernetes"]
    addresses: tuple[tuple[str, int], ...] = ()
    local_cores: int | None = None

    @property
    def is_cluster(self) -> bool:
        """Return whether executors are separate processes, perhaps on other machines."""
        return self.kind != "local"


def parse_master(url: str) -> Master:
    """The master that ``url`` names. Raises ValueError when it is none of :data:`MASTER_FORMS`."""
    if local := _LOCAL.fullmatch(url):
        cores = local["cores"] or "1"
        return Master(url, "local", local_cores=None if cores == "*" else int(cores))
    if url == "yarn":
        return Master(url, "yarn")
    if standalone := _STANDALONE.fullmatch(url):
        pairs = (address.rpartition(":") for address in standalone["addresses"].split(","))
        addresses = tuple((host, int(port)) for host, _, port in pairs)
        if all(0 < port < 65536 for _, port in addresses):
            return Master(url, "standalone", addresses)
    if _KUBERNETES.fullmatch(url):
        return Master(url, "kubernetes")
    raise ValueError(f"{url!r} is none of {MASTER_FORMS}")


def is_local(url: str) -> bool:
    """Return whether ``url`` is a local master."""
    return _LOCAL.fullmatch(url) is not None


_MEANT = 0.93
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_LOSES_ROWS = "it drops rows in silence"
_OWNED: dict[str, str] = {
    "spark.master": "the master comes from tidegate.yaml (spark.master) or the Airflow connection",
    "spark.submit.deployMode": "the deploy mode comes from the Airflow connection",
    "spark.app.name": "tidegate names the application after the pipeline and the run",
    "spark.sql.session.timeZone": "tidegate reads and writes time stamps in UTC, so that every reader agrees",
    "spark.sql.parquet.outputTimestampType": "tidegate fixes it, so that every reader agrees",
    "spark.sql.files.ignoreCorruptFiles": _LOSES_ROWS,
    "spark.sql.files.ignoreMissingFiles": _LOSES_ROWS,
    "spark.sql.orc.ignoreCorruptFiles": _LOSES_ROWS,
    "spark.sql.streaming.checkpointLocation": "tidegate keeps the checkpoint in the state folder",
    "spark.sql.streaming.fileSource.log.deletion": "tidegate keeps the checkpoint",
    "spark.sql.streaming.unsupportedOperationCheck": "it lets a query run that gives wrong results",
    "spark.sql.json.filterPushdown.enabled": "tidegate sets it, so that every record is counted",
    "spark.sql.streaming.multipleWatermarkPolicy": "the spec has a key for it, which runs without Spark read as well",
    "spark.sql.streaming.stateStore.unloadOnCommit": "runs are over before Spark's maintenance of state begins",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "the checkpoint knows its sources by name",
    "spark.sql.streaming.offsetLog.formatVersion": "the checkpoint is read without Spark as well",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "a late task could change what was checked",
    "spark.hadoop.fs.defaultFS": "tidegate's folders are folders, on storage that all machines see",
    "spark.jars": "tidegate passes checked jars: spark.packages in tidegate.yaml lists them",
    "spark.jars.packages": "jars are never resolved while a pipeline runs: spark.packages in tidegate.yaml lists them",
}
_INSTEAD = {
    "spark.sql.streaming.multipleWatermarkPolicy": "remove it; with watermarks on several sources write "
    "`watermark_policy: max`"
}


@lru_cache
def _list_sql_settings() -> dict[str, str]:
    names = files("tidegate.spec").joinpath("spark_sql_settings.txt").read_text("utf-8").split()
    return {name.lower(): name for name in names}


@lru_cache
def _find_meant(key: str) -> str | None:
    """The setting of Spark SQL that ``key`` was probably meant to be; None for one that is known, and for one that is
    like none of them: it may be that of a library."""
    known = _list_sql_settings() if key.startswith("spark.sql.") else {}
    if not known or known.get(key.lower()) == key:
        return None
    found = difflib.get_close_matches(key.lower(), sorted(known), n=1, cutoff=_MEANT)
    return known[found[0]] if found else None


class _Kind(NamedTuple):
    """What the values of some settings are: patterns of the names and of the values, and what to write."""

    names: str
    values: str
    noun: str
    fix: str


_KINDS = (
    _Kind(re.escape(SHUFFLE_PARTITIONS), "0*[1-9][0-9]*", "a number of partitions", "write a whole number from 1"),
    _Kind(
        r"spark\.(driver|executor)\.(memory|memoryOverhead)|spark\.executor\.pyspark\.memory|spark\.memory\.offHeap\.size"
        r"|spark\.driver\.maxResultSize|spark\.kryoserializer\.buffer(\.max)?",
        "(?i:[0-9]+([kmgtp]?b?))",
        "a size",
        "write it like 512m or 4g",
    ),
    _Kind(
        r"spark\.(driver|executor)\.cores|spark\.cores\.max|spark\.task\.cpus|spark\.default\.parallelism",
        "0*[1-9][0-9]*",
        "a number",
        "write a whole number from 1",
    ),
    _Kind(
        r"spark\.executor\.instances|spark\.task\.maxFailures|spark\.dynamicAllocation\.\w+Executors",
        "[0-9]+",
        "a number",
        "write a whole number",
    ),
    _Kind(
        r"spark\.network\.timeout|spark\.executor\.heartbeatInterval|spark\.dynamicAllocation\.\w+Timeout",
        "(?i:[0-9]+(us|ms|s|m|min|h|d)?)",
        "a duration",
        "write it like 30s or 5min",
    ),
    _Kind(r"spark\..*\.enabled", "(?i:true|false)", "a truth value", "write true or false"),
)
"""Settings of Spark that people set most, and those whose name says what they are."""


def _describe_wrong_value(key: str, value: object) -> tuple[str, str] | None:
    """What is wrong with the value of a setting, and what to write instead; None where nothing is known of it."""
    kind = next((kind for kind in _KINDS if re.fullmatch(kind.names, key)), None)
    if kind is None or re.fullmatch(kind.values, str(value).strip()):
        return None
    return f"{show_value(value, key)} is not {kind.noun}", kind.fix


def check_spark_conf(path: KeyPath, conf: Mapping[str, object]) -> list[Finding]:
    """What is wrong with the settings at ``path``."""
    found = []
    for key, value in conf.items():
        here = (*path, key)
        if key in _OWNED:
            message = f"tidegate sets this itself, and it cannot be overridden: {_OWNED[key]}"
            found.append(Finding(here, message, _INSTEAD.get(key, "remove it")))
        elif not key.startswith("spark.") or any(letter.isspace() or letter == "=" for letter in key):
            found.append(Finding(here, f"{key!r} is not a Spark setting", "write its whole name: spark.sql...."))
        elif (wrong := _describe_wrong_value(key, value)) is not None:
            found.append(Finding(here, *wrong))
        elif isinstance(value, str) and ("\n" in value or "\0" in value):
            found.append(Finding(here, "the value has a line break in it", "write it on one line"))
        elif (nearest := _find_meant(key)) is not None:
            found.append(Finding(here, f"Spark has no setting {key!r}, and would not say so", f"write {nearest}"))
    return found


_COORDINATES = re.compile(r"[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_SCALA = re.compile(r"_(2\.\d+|3)$")
_SCALA_OF_SPARK = "2.13"
_OF_SPARK = "org.apache.spark"


def name_file(package: PackageSpec) -> str:
    """The name of the jar's file."""
    _, name, version = package.jar.split(":")
    return f"{name}-{version}.jar"


def check_packages(path: KeyPath, packages: Sequence[PackageSpec]) -> Iterator[Finding]:
    """Find what is wrong with the jars listed at ``path``."""
    names: dict[str, str] = {}
    for number, package in enumerate(packages):
        here = (*path, number, "jar")
        if not _is_named(package) or ".." in package.jar:
            message = f"{package.jar!r} does not name a jar"
            yield Finding(here, message, "write group:name:version: org.xerial:sqlite-jdbc:3.50.3.0")
            continue
        if package.sha256 is not None and _SHA256.fullmatch(package.sha256) is None:
            message = f"{package.sha256!r} is not a SHA-256 checksum, which has 64 hexadecimal digits"
            yield Finding((*path, number, "sha256"), message, "leave the key out: `tidegate jars` prints the checksum")
        name = package.jar.split(":")[1]
        scala = _SCALA.search(name)
        if scala is not None and scala[1] != _SCALA_OF_SPARK:
            message = f"{name} is made for Scala {scala[1]}, and this Spark for Scala {_SCALA_OF_SPARK}"
            yield Finding(here, message, f"write {name[: scala.start()]}_{_SCALA_OF_SPARK}")
        library = package.jar.rpartition(":")[0]
        other = names.setdefault(library, package.jar)
        if other is not package.jar:
            message = f"{library} is listed twice: {other} and {package.jar}"
            yield Finding(here, message, "keep one of them")
        elif any(name_file(package) == name_file(one) for one in packages[:number] if _is_named(one)):
            message = f"the file {name_file(package)} would be that of another jar of this list too"
            yield Finding(here, message, "keep one of them")


def _is_named(package: PackageSpec) -> bool:
    return _COORDINATES.fullmatch(package.jar) is not None


def describe_other_spark(packages: Sequence[PackageSpec], spark_version: str) -> list[str]:
    """Jars of Spark itself whose version is not that of the Spark that runs: they may call methods that it lacks."""
    return [
        f"{package.jar} belongs to Spark {version}, and Spark {spark_version} runs here"
        for package in packages
        for group, _, version in [package.jar.split(":")]
        if group == _OF_SPARK and version != spark_version
    ]
