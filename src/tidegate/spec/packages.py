"""``spark.packages``: jars that a project gives to Spark, by their coordinates, each with its checksum."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate.spec.document import KeyPath
from tidegate.spec.findings import Finding
from tidegate.spec.models import PackageSpec

_COORDINATES = re.compile(r"[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_SCALA = re.compile(r"_(2\.\d+|3)$")
_SCALA_OF_SPARK = "2.13"
_OF_SPARK = "org.apache.spark"


def name_file(package: PackageSpec) -> str:
    """The name of the jar's file."""
    _, name, version = package.jar.split(":")
    return f"{name}-{version}.jar"


def check_packages(path: KeyPath, packages: Sequence[PackageSpec]) -> list[Finding]:
    """What is wrong with the jars listed at ``path``."""
    found: list[Finding] = []
    names: dict[str, str] = {}
    for number, package in enumerate(packages):
        here = (*path, number)
        if _COORDINATES.fullmatch(package.jar) is None or ".." in package.jar:
            message = f"{package.jar!r} does not name a jar"
            found.append(Finding((*here, "jar"), message, "write group:name:version: org.xerial:sqlite-jdbc:3.50.3.0"))
            continue
        if package.sha256 is not None and _SHA256.fullmatch(package.sha256) is None:
            message = f"{package.sha256!r} is not a SHA-256 checksum, which has 64 hexadecimal digits"
            fix = "leave the key out: `tidegate jars` prints the checksum"
            found.append(Finding((*here, "sha256"), message, fix))
        name = package.jar.split(":")[1]
        scala = _SCALA.search(name)
        if scala is not None and scala[1] != _SCALA_OF_SPARK:
            message = f"{name} is made for Scala {scala[1]}, and this Spark for Scala {_SCALA_OF_SPARK}"
            fix = f"write {name[: scala.start()]}_{_SCALA_OF_SPARK}"
            found.append(Finding((*here, "jar"), message, fix))
        library = package.jar.rpartition(":")[0]
        other = names.setdefault(library, package.jar)
        if other is not package.jar:
            message = f"{library} is listed twice: {other} and {package.jar}"
            found.append(Finding((*here, "jar"), message, "keep one of them"))
        elif any(name_file(package) == name_file(one) for one in packages[:number] if _is_named(one)):
            message = f"the file {name_file(package)} would be that of another jar of this list too"
            found.append(Finding((*here, "jar"), message, "keep one of them"))
    return found


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
