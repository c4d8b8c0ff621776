"""Fixtures that every folder of tests shares. What is slow to start is started once a session, and only on demand."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.left_to_sweep import LEFT_TO_SWEEP
from tests.recovery.small_disk import why_no_mount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.object_servers import Bucket
    from tests.support.topics import Topics
    from tools.broker import Broker
    from tools.object_servers import AzureServer, S3Server

# Both go by the wall clock: on a machine that is busy with other tests a property would fail for nothing.
settings.register_profile("tidegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidegate")

_ROOM = (
    # With C1 alone a JVM has 48 MB for compiled code, which a hundred tests fill: from then on it throws code away and
    # compiles it again, which was a quarter of all that it did.
    "-XX:ReservedCodeCacheSize=256m",
    # Collections of the young generation cost what lives, however much was thrown away since the last one.
    "-Xmn320m",
)
"""What a JVM needs that does not end after one run."""


def pytest_unconfigure() -> None:
    """Thaw what a run in this process has frozen: duckdb says at the end what of it was not freed."""
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make sweep` runs, unless it is running or the test was named."""
    if os.environ.get("TIDEGATE_SWEEP", "0") != "0" or any("::" in argument for argument in config.args):
        return
    names = tuple(f"tests/{name}" for name in LEFT_TO_SWEEP)
    left = [item for item in items if item.nodeid.startswith(names)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.nodeid.startswith(names)]


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Kafka broker for the session; it dies with the session, also when that is killed.

    Tests make topics of their own names on it. A test that stops the broker must restart it before it ends.
    """
    from tools.broker import start_broker

    # Everything is allowed, until a test forbids something of its own.
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    cleaner = {
        "log.cleaner.enable": "true",  # compacts the topics that ask for it
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.dedupe.buffer.size": "2097152",
    }
    broker = start_broker(tmp_path_factory.mktemp("kafka"), overrides=rights | cleaner)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def topics(kafka_broker: Broker) -> Topics:
    """The means to set up and harm topics."""
    from tests.support.topics import Topics

    return Topics(kafka_broker.bootstrap_servers)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server for the session. A test that stops it must restart it before it ends."""
    from tests.support.object_servers import running_s3_server

    with running_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket of the test's own; the environment leads to its server."""
    from tests.support.object_servers import make_bucket

    return make_bucket(s3_server, monkeypatch)


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A real Azure Blob server for the session."""
    from tools.object_servers import AzureServer

    server = AzureServer.start_in(tmp_path_factory.mktemp("azure"), None, True)
    yield server
    server.stop()


@pytest.fixture
def azure_container(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A container of the test's own; the environment leads to its server."""
    from tests.support.object_servers import make_bucket

    return make_bucket(azure_server, monkeypatch)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of all tests, with the settings that every run has, the Kafka source's jars
    and a JDBC driver.

    One, because a process can only have one: whichever folder asked first would decide for the others.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tidegate.spark.driver.jvm import jvm_options
    from tidegate.spark.driver.jvm_archive import find_archive
    from tools.jars import GROUPS, ensure_jars

    # Settings given to a JVM at its start hold for every session in it.
    assert SparkContext._gateway is None, "a test before has started Spark in this process, with other settings"
    groups = ["kafka-source", "jdbc-driver"]
    ensure_jars(groups)
    jars = ",".join(str(path) for group in groups for path in sorted(GROUPS[group].folder.glob("*.jar")))
    archive = find_archive()
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("tidegate-tests")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
        .config("spark.sql.streaming.offsetLog.formatVersion", "2")
        .config("spark.sql.streaming.checkUnfinishedRepartitionOnRestart", "false")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.driver.extraJavaOptions", " ".join([*jvm_options(0, archive), *_ROOM]))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    with pytest.MonkeyPatch.context() as patch:  # or its workers are whatever `python3` is on PATH
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
    yield session
    session.stop()
    # py4j says at the interpreter's end that connections are closed, to a stream that pytest has closed by then.
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture
def other_device(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than ``tmp_path``, so that no hard link leads from one to the other."""
    for root in map(Path, ("/dev/shm", "/var/tmp", "/tmp")):
        if os.access(root, os.W_OK) and root.stat().st_dev != tmp_path.stat().st_dev:
            folder = Path(tempfile.mkdtemp(prefix="tidegate-test-", dir=root))
            yield folder
            shutil.rmtree(folder)
            return
    pytest.skip("there is no second file system")


@pytest.fixture
def can_mount(tmp_path: Path) -> None:
    """Skip, saying why, where nothing can be mounted."""
    why = why_no_mount(tmp_path)
    if why is not None:
        pytest.skip(why)
