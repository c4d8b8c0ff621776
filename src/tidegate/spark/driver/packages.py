"""The jars of ``spark.packages``: found and compared with their checksums before Spark starts, and fetched by
``tidegate jars``. A run fetches nothing.

The Ivy that comes with pyspark does the download, so Java is all that is needed. ``MAVEN_ROOT`` in the environment
names a mirror to take instead of Maven Central.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tidegate.core import storage
from tidegate.core.errors import TidegateError, UsageError
from tidegate.spark import errors
from tidegate.spark.driver.java import find_java_home
from tidegate.spark.driver.jvm_archive import find_spark_home
from tidegate.spec.models import PackageSpec
from tidegate.spec.project import PROJECT_FILE, Project
from tidegate.spec.spark_settings import describe_other_spark, name_file

MIRROR = "MAVEN_ROOT"
_FETCH_TIMEOUT_SECONDS = 900
_WHERE = f"spark.packages in {PROJECT_FILE}"
_NOT_THERE = ("not found", "UNRESOLVED")
_NO_ANSWER = ("Server access", "UnknownHost", "timed out", "refused", "SSLException", "SSLHandshake")


def find_packages(project: Project) -> list[Path]:
    """The jars of ``spark.packages``, each with the listed checksum.

    Raises UsageError: PACKAGE_MISSING, PACKAGE_UNCHECKED (no checksum is listed), PACKAGE_DIFFERS.
    """
    return [_find(project, package) for package in project.spec.spark.packages]


def describe_mismatches(project: Project) -> list[str]:
    """Describe the packages that may not work with the installed Spark."""
    packages = project.spec.spark.packages
    return describe_other_spark(packages, version("pyspark")) if packages else []


def fetch_packages(
    project: Project, say: Callable[[str], None], mirror: str | None = None
) -> list[tuple[PackageSpec, Path, str]]:
    """Fetch missing or different jars from ``mirror`` or Maven Central; each package, its file, the file's checksum.

    A file gets its place only after its checksum was compared; one without a listed checksum gets it as it came, and
    no run takes it. Raises UsageError (PACKAGE_NOT_FOUND, PACKAGE_DIFFERS) and TryAgainError
    (PACKAGES_NOT_FETCHED).
    """
    packages = project.spec.spark.packages
    wanted = [package for package in packages if not _is_there(project, package)]
    if wanted:
        _fetch(project.fetched_jars, wanted, mirror, say)
    paths = [_locate(project, package) for package in packages]
    return [
        (package, path, storage.digest(path)) for package, path in zip(packages, paths, strict=True) if path is not None
    ]


def write_line(package: PackageSpec, sha256: str) -> str:
    """The package as ``tidegate.yaml`` lists it."""
    return f"- {{jar: {package.jar}, sha256: {sha256}}}"


def _locate(project: Project, package: PackageSpec) -> Path | None:
    """The jar's file: in the project, or in the folder of jars that an image brings."""
    places = [project.fetched_jars]
    if brought := os.environ.get("TIDEGATE_JARS"):
        places.append(Path(brought))
    return next((path for place in places if (path := place / name_file(package)).is_file()), None)


def _find(project: Project, package: PackageSpec) -> Path:
    path = _locate(project, package)
    if path is None:
        raise errors.PACKAGE_MISSING(where=str(project.fetched_jars / name_file(package)), jar=package.jar)
    found = storage.digest(path)
    if package.sha256 is None:
        line = write_line(package, found)
        raise errors.PACKAGE_UNCHECKED(where=_WHERE, jar=package.jar, project_file=PROJECT_FILE, path=path, line=line)
    if found != package.sha256.lower():
        raise _differs(package, str(path), found)
    return path


def _is_there(project: Project, package: PackageSpec) -> bool:
    path = _locate(project, package)
    return path is not None and (package.sha256 is None or package.sha256.lower() == storage.digest(path))


def _differs(package: PackageSpec, where: str, found: str) -> UsageError:
    return errors.PACKAGE_DIFFERS(
        where=where, jar=package.jar, found=found, project_file=PROJECT_FILE, sha256=package.sha256
    )


def choose_mirror() -> str | None:
    """The mirror that the environment names, or None. Raises UsageError BAD_MIRROR unless it is one by https."""
    mirror = os.environ.get(MIRROR) or None
    if mirror is not None and not mirror.startswith("https://"):
        raise errors.BAD_MIRROR(where=f"environment variable {MIRROR}")
    return mirror


def _fetch(folder: Path, packages: Sequence[PackageSpec], mirror: str | None, say: Callable[[str], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    faults: list[TidegateError] = []
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        for package in packages:
            say(f"fetching {package.jar}")
            path = Path(scratch) / name_file(package)
            log = run_ivy(Path(scratch), package.jar, mirror)
            if not is_whole_jar(path):
                faults.append(_explain(package, log))
                continue
            found = storage.digest(path)
            if package.sha256 is not None and found != package.sha256.lower():
                faults.append(_differs(package, "what the registry sent, which was not kept", found))
                continue
            storage.sync_file(path)
            storage.move(path, folder / path.name)
    if faults:  # what could be fetched is kept, so that the next try has less to do
        raise faults[0]


def is_whole_jar(path: Path) -> bool:
    """Return whether the archive is there to its end: Ivy, stopped or on a full disk, leaves its beginning."""
    try:
        with zipfile.ZipFile(path) as jar:
            return jar.testzip() is None
    except (OSError, zipfile.BadZipFile, EOFError, zlib.error):
        return False


def _explain(package: PackageSpec, log: str) -> TidegateError:
    telling = [line.strip() for line in log.splitlines() if any(word in line for word in (*_NO_ANSWER, *_NOT_THERE))]
    said = "; ".join(list(dict.fromkeys(telling))[:2]) or log.strip()[-300:]
    if any(word in log for word in _NO_ANSWER) or not telling:
        return errors.PACKAGES_NOT_FETCHED(where=_WHERE, jar=package.jar, error=said)
    return errors.PACKAGE_NOT_FOUND(where=_WHERE, jar=package.jar, package=name_file(package))


def run_ivy(scratch: Path, coordinates: str, mirror: str | None) -> str:
    """Let Ivy put one jar, without what it depends on, into ``scratch``; what it said."""
    java, spark = find_java_home(), find_spark_home()
    if java is None or spark is None:
        raise errors.JAVA_MISSING(
            where="the environment variable PATH",
            task="jars are fetched by pyspark's Ivy with",
            why="there is no `java` on PATH",
        )
    root = f" root={quoteattr(mirror)}" if mirror else ""
    settings, ivy = scratch / "settings.xml", scratch / "ivy.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(scratch / 'cache'))}/>"
        f'<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"{root}/></resolvers></ivysettings>'
    )
    group, name, wanted = coordinates.split(":")
    ivy.write_text(
        '<ivy-module version="2.0"><info organisation="tidegate" module="jars"/><configurations><conf name="default"/>'
        f'</configurations><dependencies><dependency org="{group}" name="{name}" rev="{wanted}" '
        'conf="default->default" transitive="false"/></dependencies></ivy-module>'
    )
    command = [str(java / "bin" / "java"), "-Xmx256m", "-cp", str(spark / "jars" / "*"), "org.apache.ivy.Main"]
    command += ["-settings", str(settings), "-ivy", str(ivy), "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", str(scratch / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"timed out after {_FETCH_TIMEOUT_SECONDS} s"
    return done.stdout + done.stderr
