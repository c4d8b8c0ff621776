"""The jars that pip cannot bring, fetched once from Maven Central and checked against ``tools/jars.lock``.

    python -m tools.jars fetch [GROUP...]   fetch what is missing (default: kafka-source, kafka-broker)
    python -m tools.jars check [GROUP...]   verify what is there, fetch nothing
    python -m tools.jars lock [GROUP...]    resolve groups (default: all) again, write tools/jars.lock (for developers)

The Ivy that ships with pyspark does the download, so Java is all that is needed. Every file is compared with the
committed sha256 before it gets its place; ``MAVEN_ROOT`` in the environment names a mirror to take instead of Maven
Central.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tools.console import REPO_ROOT, ToolError, run_main, say

LOCK_PATH = REPO_ROOT / "tools" / "jars.lock"
TOOLS_FOLDER = REPO_ROOT / ".tools"
FETCH_TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Group:
    """Jars that live in one folder. ``roots`` are what ``lock`` starts from; not transitive means: exactly these."""

    folder: Path
    roots: tuple[str, ...]
    transitive: bool


# What hadoop-aws needs of the AWS SDK, whose `bundle` has 686 MB. The other libraries of these modules (netty,
# httpclient, slf4j) come with Spark.
_AWS_SDK = """
annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core
endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi json-utils
metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager sdk-core sts
third-party-jackson-core utils utils-lite
"""

GROUPS = {
    # Spark's Kafka source, for the plain jobs that tests and benchmarks compare with. The token provider of 4.2.0
    # cannot be had everywhere; that of 4.0.0 has the same interface.
    "kafka-source": Group(
        TOOLS_FOLDER / "jars",
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
        transitive=False,
    ),
    # A real broker for `make run` and the tests.
    "kafka-broker": Group(
        TOOLS_FOLDER / "kafka" / "libs",
        (
            "org.apache.kafka:kafka_2.13:4.1.1",
            "org.apache.kafka:kafka-tools:4.1.1",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",  # without it the broker logs nothing
        ),
        transitive=True,
    ),
    # Spark as a Delta reader, for tests that compare readers.
    "delta-reader": Group(
        TOOLS_FOLDER / "delta",
        (
            "io.delta:delta-spark_4.2_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
            "io.delta:delta-kernel-unitycatalog:4.4.0",
        ),
        transitive=False,
    ),
    # The JDBC driver of the example in docs/how-to/feed-further-sinks.md.
    "jdbc-driver": Group(TOOLS_FOLDER / "jdbc", ("org.xerial:sqlite-jdbc:3.50.3.0",), transitive=False),
    # s3a paths for the plain job that the benchmarks compare with; the version is that of Spark's Hadoop.
    "s3a": Group(
        TOOLS_FOLDER / "s3a",
        (
            "org.apache.hadoop:hadoop-aws:3.5.0",
            *(f"software.amazon.awssdk:{module}:2.35.4" for module in _AWS_SDK.split()),
            "software.amazon.eventstream:eventstream:1.0.1",
            "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
            "org.reactivestreams:reactive-streams:1.0.4",
        ),
        transitive=False,
    ),
}
DEFAULT_GROUPS = ("kafka-source", "kafka-broker")


@dataclass(frozen=True)
class Jar:
    """One locked jar: ``coordinate`` is organisation:name:version."""

    coordinate: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The name the jar has in its folder."""
        _, name, version = self.coordinate.split(":")
        return f"{name}-{version}.jar"


def read_lock(path: Path = LOCK_PATH) -> dict[str, list[Jar]]:
    """The locked jars of each group."""
    groups: dict[str, list[Jar]] = {}
    jars: list[Jar] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("["):
            jars = groups.setdefault(line.strip("[]"), [])
            continue
        try:
            coordinate, sha256, size = line.split()
            jars.append(Jar(coordinate, sha256.removeprefix("sha256:"), int(size)))
        except ValueError:
            raise ToolError(
                f"{path.name}:{number}: not a locked jar: {line!r}", "git checkout tools/jars.lock"
            ) from None
    return groups


def ensure_jars(groups: Sequence[str] = DEFAULT_GROUPS, *, fetch: bool = True) -> None:
    """Every jar of ``groups`` is in its folder with the locked sum, and nothing else is; what is missing is fetched.

    Costs a few stats when nothing changed. Safe to call at the same time from several processes.
    """
    locked = read_lock()
    for name in groups:
        if name not in GROUPS or name not in locked:
            raise ToolError(f"no group {name!r} in {LOCK_PATH.name}", f"one of: {', '.join(sorted(locked))}")
        group, jars = GROUPS[name], locked[name]
        if not _list_unproven(group.folder, jars):
            continue
        group.folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time():
            missing = _verify_folder(group.folder, jars)
            if not missing:
                continue
            if not fetch:
                raise ToolError(
                    f"{len(missing)} of {len(jars)} jars of {name} are missing, the first: {missing[0].file_name}",
                    "make setup",
                )
            _fetch_group(name, group.folder, missing, len(jars))
            _verify_folder(group.folder, jars)


def _seal_path(folder: Path) -> Path:
    return folder / ".verified.json"


def _stat_key(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _list_unproven(folder: Path, jars: list[Jar]) -> list[Jar]:
    """Jars not yet verified in the state (size, time, inode) in which they now are."""
    try:
        seal = json.loads(_seal_path(folder).read_text())
    except (OSError, ValueError):
        return jars
    unproven = []
    for jar in jars:
        try:
            if seal.get(jar.file_name) != [jar.sha256, *_stat_key(folder / jar.file_name)]:
                unproven.append(jar)
        except OSError:
            unproven.append(jar)
    if not unproven and {path.name for path in folder.glob("*.jar")} != {jar.file_name for jar in jars}:
        return jars
    return unproven


def _verify_folder(folder: Path, jars: list[Jar]) -> list[Jar]:
    """Checks every sum, removes jars that are not locked (an older version beside a newer one breaks a class path)."""
    missing, seal = [], {}
    for stale in {path.name for path in folder.glob("*.jar")} - {jar.file_name for jar in jars}:
        (folder / stale).unlink()
    for jar in jars:
        path = folder / jar.file_name
        if not path.exists():
            missing.append(jar)
            continue
        _refuse_mismatch(path, jar)
        seal[jar.file_name] = [jar.sha256, *_stat_key(path)]
    temporary = _seal_path(folder).with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(seal, indent=1))
    temporary.replace(_seal_path(folder))
    return missing


def _refuse_mismatch(path: Path, jar: Jar) -> None:
    found = _sum_file(path)
    if found != jar.sha256:
        raise ToolError(
            f"{path.name} is not the locked file: sha256 {found} ({path.stat().st_size} bytes), "
            f"expected {jar.sha256} ({jar.size_bytes} bytes)",
            f"remove {os.path.relpath(path)} and run make setup; if it comes back, do not use that registry",
        )


def _sum_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    TOOLS_FOLDER.mkdir(exist_ok=True)
    with (TOOLS_FOLDER / ".jars-lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_group(name: str, folder: Path, missing: list[Jar], total: int) -> None:
    size = sum(jar.size_bytes for jar in missing) / 1e6
    say(f"jars: fetching {len(missing)} of {total} jars of {name} ({size:.0f} MB)")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=TOOLS_FOLDER) as scratch:
        log = _run_ivy(Path(scratch), [jar.coordinate for jar in missing], transitive=False)
        arrived = [jar for jar in missing if (Path(scratch) / "out" / jar.file_name).exists()]
        # What did arrive is kept, so that the next try has less to do.
        for jar in arrived:
            path = Path(scratch) / "out" / jar.file_name
            _refuse_mismatch(path, jar)
            path.replace(folder / jar.file_name)
    if len(arrived) < len(missing):
        absent = [jar for jar in missing if jar not in arrived]
        raise ToolError(
            f"{len(absent)} of {len(missing)} jars of {name} could not be fetched, the first: {absent[0].coordinate}\n"
            + _explain_log(log),
            "check the network (a proxy goes into JAVA_TOOL_OPTIONS, a mirror into MAVEN_ROOT), then make setup; "
            "what arrived is kept",
        )


def _explain_log(log: str) -> str:
    telling = [
        line.strip()
        for line in log.splitlines()
        if any(
            word in line
            for word in ("UnknownHost", "timed out", "refused", "Server access error", "not found", "Exception")
        )
    ]
    return "\n".join(f"  {line}" for line in (telling or log.splitlines())[-4:])


def _run_ivy(scratch: Path, coordinates: Sequence[str], *, transitive: bool) -> str:
    """Lets Ivy put the jars of ``coordinates`` into ``scratch/out``; returns what it said."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise ToolError("pyspark is not installed in this Python, and its Ivy does the fetching", "make setup")
    java = shutil.which("java")
    if java is None:
        raise ToolError("no `java` on PATH", "install Java 17 (Debian: apt install openjdk-17-jre-headless)")
    mirror = os.environ.get("MAVEN_ROOT")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    # Without the poms of a locked list there is half as much to fetch.
    poms = "" if transitive else ' usepoms="false"'
    (scratch / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(scratch / 'cache'))}/>"
        f'<resolvers><ibiblio name="central" m2compatible="true"{poms}{root}/></resolvers></ivysettings>'
    )
    configuration = "default->compile,runtime,master" if transitive else "default->default"
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="{configuration}"'
        f' transitive="{str(transitive).lower()}"/>'
        for org, name, version in (coordinate.split(":") for coordinate in coordinates)
    )
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="tidegate" module="jars"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{dependencies}</dependencies></ivy-module>"
    )
    pattern = "[organisation]__[artifact]__[revision].[ext]" if transitive else "[artifact]-[revision].[ext]"
    command = [java, "-Xmx256m", "-cp", str(Path(pyspark.submodule_search_locations[0]) / "jars" / "*")]
    command += ["org.apache.ivy.Main", "-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml")]
    command += ["-confs", "default", "-types", "jar", "bundle", "-retrieve", str(scratch / "out" / pattern)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"timed out after {FETCH_TIMEOUT_SECONDS} s"
    return done.stdout + done.stderr


def write_lock(groups: Sequence[str] = (), path: Path = LOCK_PATH) -> None:
    """Resolves ``groups`` (default: all) from their roots and writes the lock; needs the registry."""
    locked = read_lock(path) if groups else {}
    for name in groups or GROUPS:
        say(f"jars: resolving {name}")
        group = GROUPS[name]
        with tempfile.TemporaryDirectory(prefix="jars-") as scratch:
            log = _run_ivy(Path(scratch), group.roots, transitive=group.transitive)
            files = sorted((Path(scratch) / "out").glob("*.jar"))
            if (not group.transitive and len(files) != len(group.roots)) or "UNRESOLVED" in log or not files:
                raise ToolError(f"{name} does not resolve:\n{_explain_log(log)}")
            by_name = {f"{root.split(':')[1]}-{root.split(':')[2]}": root for root in group.roots}
            locked[name] = [
                Jar(
                    file.stem.replace("__", ":") if group.transitive else by_name[file.stem],
                    _sum_file(file),
                    file.stat().st_size,
                )
                for file in files
            ]
    lines = ["# organisation:name:version sha256 bytes; written by `make lock`, checked at every use"]
    for name in GROUPS:
        lines += [f"\n[{name}]", *(f"{jar.coordinate} sha256:{jar.sha256} {jar.size_bytes}" for jar in locked[name])]
    path.write_text("\n".join(lines) + "\n")
    say(f"jars: wrote {path.relative_to(REPO_ROOT)}")


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.jars", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("fetch", "check", "lock"))
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help=f"default: {' '.join(DEFAULT_GROUPS)}")
    options = parser.parse_args(arguments)
    if options.action == "lock":
        write_lock(options.groups)
    else:
        ensure_jars(options.groups or DEFAULT_GROUPS, fetch=options.action == "fetch")
    return 0


if __name__ == "__main__":
    run_main(main)
