"""Passwords from the environment are used, and are nowhere else: no file, no output, no command line has them.

The broker is a real one that wants a login. One canary is its password, another stands in a Spark setting. What runs
pass and what runs fail are both looked at, with the command lines of every process meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import REPOSITORY
from tests.support.readers import read_agreed
from tests.support.topics import Topics
from tidegate.core import storage
from tidegate.core.storage import ObjectPath

if TYPE_CHECKING:
    from tests.support.object_servers import Bucket
    from tools.broker import Broker
    from tools.object_servers import S3Server

PASSWORD = "canary-Pa55-of-the-broker"
WRONG_PASSWORD = "canary-wr0ng-of-the-broker"
SPARK_SECRET = "canary-s3cret-of-spark"
CANARIES = tuple(text.encode() for text in (PASSWORD, WRONG_PASSWORD, SPARK_SECRET))

_PROJECT = """\
version: 1
spark:
  master: "local[2]"
  conf:
    spark.hadoop.fs.s3a.secret.key: "${CANARY_SPARK}"
    spark.tidegate.test.plain: "${CANARY_SPARK}"
kafka:
  bootstrap_servers: "${CANARY_SERVERS}"
  options:
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
    sasl.username: reader
    sasl.password: "${CANARY_PASSWORD}"
"""
_CLICKS = """\
version: 1
name: clicks
schedule: null
sources:
  clicks: {type: kafka, topics: [clicks], format: json, schema: "id STRING, amount INT", starting_offsets: earliest}
"""
_ORDERS = """\
version: 1
name: orders
schedule: null
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id STRING, amount INT"}
transform: transform.py
"""
_FAILING_TRANSFORM = """\
from pyspark.sql import functions as F


def transform(orders):
    settings = orders.sparkSession.conf.get("spark.tidegate.test.plain")
    assert settings, "the setting did not arrive"
    return orders.withColumn("amount", F.udf(lambda amount: amount // 0, "int")("amount"))
"""


@dataclass
class Watched:
    """The project, and every command line and output that was seen while commands ran in it."""

    root: Path
    environment: dict[str, str]
    outputs: bytearray = field(default_factory=bytearray)
    command_lines: set[bytes] = field(default_factory=set)

    def run(self, *command: str, **environment: str) -> int:
        """Run a command with processes watched; its exit code."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli.main", "--project", str(self.root), *command],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,))
        watcher.start()
        try:
            out, _ = process.communicate(timeout=180)
        finally:
            process.kill()
            done.set()
            watcher.join()
        self.outputs += out
        return process.returncode

    def _watch(self, done: threading.Event) -> None:
        mark = f"TEST_SCENE={self.root}".encode()
        while not done.wait(0.05):
            for entry in os.listdir("/proc"):
                if entry.isdigit() and int(entry) != os.getpid():
                    try:
                        line = Path(f"/proc/{entry}/cmdline").read_bytes()
                        if mark in Path(f"/proc/{entry}/environ").read_bytes():
                            self.command_lines.add(line)
                    except OSError:
                        continue

    def check(self, *more: bytes) -> None:
        """No canary anywhere but in the environment."""
        said = self.outputs.decode("utf-8", "replace")
        for canary in (*CANARIES, *more):
            assert canary not in self.outputs, f"{canary!r} was printed: {_around(said, canary.decode())}"
            for line in self.command_lines:
                assert canary not in line, f"{canary!r} is in a command line: {line!r}"
            for path in self.root.rglob("*"):
                if path.is_file():
                    assert canary not in path.read_bytes(), f"{canary!r} is in {path.relative_to(self.root)}"
        programs = {line.split(b"\0")[0].rpartition(b"/")[2] for line in self.command_lines}
        assert b"java" in programs and len(self.command_lines) >= 3, f"no JVM was watched: {programs}"


def _around(text: str, word: str) -> str:
    at = text.find(word)
    return text[max(at - 200, 0) : at + 200]


def _free_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture(scope="module")
def login_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A broker with a second door that wants a login; the address of that door."""
    from tools.broker import start_broker

    plain, control, door = _free_port(), _free_port(), _free_port()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    overrides: Mapping[str, str] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control},LOGIN://127.0.0.1:{door}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{door}",
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{login} user_reader="{PASSWORD}";',
    }
    broker = start_broker(tmp_path_factory.mktemp("login"), plain, overrides=overrides)
    yield broker, f"127.0.0.1:{door}"
    broker.stop()


@pytest.fixture
def watched(tmp_path: Path, login_broker: tuple[Broker, str]) -> Watched:
    """A project with one pipeline on Kafka and one on files."""
    root = tmp_path / "project"
    for name, spec in (("clicks", _CLICKS), ("orders", _ORDERS)):
        (root / "jobs" / name).mkdir(parents=True)
        (root / "jobs" / name / "pipeline.yaml").write_text(spec)
    (root / "data/inbox").mkdir(parents=True)
    (root / "tidegate.yaml").write_text(_PROJECT)
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    environment |= {
        "TEST_SCENE": str(root),
        "CANARY_PASSWORD": PASSWORD,
        "CANARY_SPARK": SPARK_SECRET,
        "CANARY_SERVERS": login_broker[1],
    }
    return Watched(root, environment)


def test_nowhere(watched: Watched, login_broker: tuple[Broker, str]) -> None:
    from confluent_kafka import Producer

    address = login_broker[0].bootstrap_servers
    Topics(address).create("clicks")
    producer = Producer({"bootstrap.servers": address})
    for number in range(5):
        producer.produce("clicks", json.dumps({"id": f"c{number}", "amount": number}))
    producer.produce("clicks", "not json")
    assert producer.flush(10) == 0
    (watched.root / "data/inbox/a.json").write_text('{"id": "o1", "amount": 1}\n')

    assert watched.run("validate") == 64  # the transform of orders is missing
    (watched.root / "jobs/orders/transform.py").write_text(_FAILING_TRANSFORM)
    assert watched.run("validate") == 0
    assert watched.run("plan", "clicks") == 0
    # A wrong password, at first sight and for Spark; then the right one.
    assert watched.run("run", "clicks", CANARY_PASSWORD=WRONG_PASSWORD) == 64
    assert watched.run("run", "clicks", "--run-id", "good", "--json") == 0
    assert {row["id"] for row in read_agreed(watched.root / "data/warehouse/clicks")} == {f"c{n}" for n in range(5)}
    # A driver that fails keeps its log.
    assert watched.run("run", "orders", "--run-id", "bad") == 64
    assert list(watched.root.glob("data/state/orders/orders/*/*.log")), "no driver log was kept"
    (watched.root / "jobs/orders/transform.py").write_text("def transform(orders):\n    return orders\n")
    assert watched.run("run", "orders", "--json") == 0
    assert watched.run("status", "--json") == 0
    watched.check()


def test_keys_of_a_store(tmp_path: Path, s3_server: S3Server, s3_bucket: Bucket) -> None:
    """The driver has them too: it is started while the bucket is open."""
    root = tmp_path / "project"
    (root / "jobs/orders").mkdir(parents=True)
    (root / "jobs/orders/pipeline.yaml").write_text(_ORDERS.replace("transform: transform.py\n", ""))
    (root / "data/inbox").mkdir(parents=True)
    (root / "data/inbox/a.json").write_text('{"id": "o1", "amount": 1}\nnot json\n')
    settings = f"s3: {{endpoint: '{s3_server.endpoint}', region: us-east-1}}"
    places = f"warehouse: {s3_bucket.url}/tables\nquarantine: {s3_bucket.url}/quarantine"
    (root / "tidegate.yaml").write_text(f'version: 1\n{places}\n{settings}\nspark: {{master: "local[2]"}}\n')
    keys = {"AWS_ACCESS_KEY_ID": "tidegate", "AWS_SECRET_ACCESS_KEY": s3_server.secret}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "AWS_"))}
    watched = Watched(root, {**environment, **keys, "TEST_SCENE": str(root)})
    assert watched.run("validate", AWS_SECRET_ACCESS_KEY=WRONG_PASSWORD) == 64
    assert watched.run("run", "orders", AWS_SECRET_ACCESS_KEY=WRONG_PASSWORD) == 64
    assert watched.run("validate") == 0
    assert watched.run("doctor", "--json") == 0
    assert watched.run("run", "orders", "--json") == 0
    assert watched.run("status", "--json") == 0
    watched.check(s3_server.secret.encode())
    kept = [storage.read(path) for path in storage.list_tree(ObjectPath(s3_bucket.url))]
    assert len(kept) > 3 and not any(s3_server.secret.encode() in data for data in kept)


def test_in_faults_of_the_settings(watched: Watched) -> None:
    """A setting that is refused, or a variable that is not set, is named without its value."""
    text = (watched.root / "tidegate.yaml").read_text()
    settings = watched.root / "tidegate.yaml"
    settings.write_text(text.replace("sasl.password:", "sasl.pasword:"))
    assert watched.run("status") == 64
    settings.write_text(text.replace("SASL_PLAINTEXT", "${CANARY_PASSWORD}"))
    assert watched.run("run", "clicks") == 64
    settings.write_text(text.replace("sasl.mechanism: PLAIN", 'sasl.jaas.config: "${CANARY_PASSWORD}"'))
    assert watched.run("run", "clicks") == 64
    settings.write_text(text.replace('"local[2]"', '["${CANARY_SPARK}"]'))
    assert watched.run("plan", "clicks") == 64
    settings.write_text(text.replace("version: 1", "version: ${CANARY_PASSWORD}"))
    assert watched.run("plan", "clicks") == 64
    said = watched.outputs.decode()
    for canary in (PASSWORD, SPARK_SECRET):
        assert canary not in said, _around(said, canary)
