"""The jars of Spark's Kafka source, where nobody has put them: fetched once into the user's cache, by what
``tidegate/jars/kafka.lock`` says, and compared with their checksums before every use.

``TIDEGATE_JAR_CACHE`` names another folder than ``$XDG_CACHE_HOME/tidegate/jars`` or ``~/.cache/tidegate/jars``.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from tidegate import storage
from tidegate.driver.jvm_archive import default_cache_dir
from tidegate.driver.packages import MIRROR, choose_mirror, is_whole_jar, run_ivy
from tidegate.errors import catalogue
from tidegate.extras import EXTRAS, missing_extra
from tidegate.spec.models import PackageSpec
from tidegate.spec.packages import name_file

CACHE = "TIDEGATE_JAR_CACHE"
_SAID_AT_MOST = 300


@dataclass(frozen=True)
class ConnectorJar:
    """One jar of the list."""

    coordinates: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return name_file(PackageSpec(jar=self.coordinates))


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where the jars are kept."""
    if env.get(CACHE):
        return Path(env[CACHE]).expanduser().absolute()
    return default_cache_dir(env) / "jars"


def list_connector(spark: str | None = None) -> list[ConnectorJar]:
    """The jars for this version of Spark (None: of the installed one). Raises UsageError KAFKA_JARS_UNKNOWN."""
    spark = spark or _find_version()
    sections = read_sections(files("tidegate.jars").joinpath("kafka.lock").read_text(encoding="utf-8"))
    found = sections.get(".".join(spark.split(".")[:2]))
    if found is None:
        raise catalogue.KAFKA_JARS_UNKNOWN(
            where="the Python environment that runs tidegate", spark=spark, sections=", ".join(sections)
        )
    return found


def read_sections(text: str) -> dict[str, list[ConnectorJar]]:
    """The jars of a list, by the version of Spark."""
    sections: dict[str, list[ConnectorJar]] = {}
    jars: list[ConnectorJar] = []
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if line.startswith("["):
            jars = sections.setdefault(line.strip("[]"), [])
        elif line:
            coordinates, sha256, size = line.split()
            jars.append(ConnectorJar(coordinates, sha256.removeprefix("sha256:"), int(size)))
    return sections


def find_connector() -> list[Path] | None:
    """The jars in the cache, each with its checksum; None when one is missing or differs."""
    folder, jars = cache_folder(), list_connector()
    return None if _list_missing(folder, jars) else [folder / jar.file_name for jar in jars]


def fetch_connector(say: Callable[[str], None]) -> list[Path]:
    """The jars in the cache; what is missing is fetched first, from Maven Central or the mirror of the environment.

    Raises TryAgainError KAFKA_JARS_NOT_FETCHED and UsageError KAFKA_JARS_DIFFER, KAFKA_JARS_UNKNOWN.
    """
    return fetch_into(cache_folder(), list_connector(), say, choose_mirror())


def fetch_into(
    folder: Path, jars: list[ConnectorJar], say: Callable[[str], None], mirror: str | None = None
) -> list[Path]:
    """The jars in ``folder``; a file gets its place when its checksum was compared. One process at a time."""
    if _list_missing(folder, jars):
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder):
            missing = _list_missing(folder, jars)  # another process may have been first
            if missing:
                size = sum(jar.size_bytes for jar in missing) / 1e6
                say(f"fetching the {len(missing)} jars of Spark's Kafka source ({size:.0f} MB, once) into {folder}")
            for number, jar in enumerate(missing, 1):
                say(f"  {number} of {len(missing)}: {jar.coordinates}")
                _fetch_one(folder, jar, mirror)
    return [folder / jar.file_name for jar in jars]


def _find_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise missing_extra("pyspark", *EXTRAS["pyspark"]) from None


def _list_missing(folder: Path, jars: list[ConnectorJar]) -> list[ConnectorJar]:
    return [jar for jar in jars if not _is_good(folder / jar.file_name, jar)]


def _is_good(path: Path, jar: ConnectorJar) -> bool:
    return path.is_file() and path.stat().st_size == jar.size_bytes and storage.digest(path) == jar.sha256


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_one(folder: Path, jar: ConnectorJar, mirror: str | None) -> None:
    by_hand = f"put {jar.file_name} into {folder} by hand, or set TIDEGATE_JARS to a folder that has all of them"
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        log = run_ivy(Path(scratch), jar.coordinates, mirror)
        path = Path(scratch) / jar.file_name
        if not is_whole_jar(path):
            raise catalogue.KAFKA_JARS_NOT_FETCHED(
                where=str(folder), coordinates=jar.coordinates, log=_tell(log), mirror=MIRROR, by_hand=by_hand
            )
        if not _is_good(path, jar):
            raise catalogue.KAFKA_JARS_DIFFER(
                where="what the registry sent, which was not kept",
                coordinates=jar.coordinates,
                found=storage.digest(path),
                sha256=jar.sha256,
                by_hand=by_hand,
            )
        storage.sync_file(path)
        storage.move(path, folder / jar.file_name)


def _tell(log: str) -> str:
    words = ("Server access", "UnknownHost", "timed out", "refused", "SSLException", "SSLHandshake", "not found")
    telling = [line.strip() for line in log.splitlines() if any(word in line for word in words)]
    return "; ".join(list(dict.fromkeys(telling))[:2])[:_SAID_AT_MOST] or log.strip()[-_SAID_AT_MOST:]
