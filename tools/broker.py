"""A local Kafka broker (KRaft, one node) for `make run` and the tests.

    python -m tools.broker start|stop|status [--dir .kafka] [--port 9092]

From Python::

    broker = start_broker(tmp_path, overrides={"log.retention.ms": "1000"})   # a free port
    ... broker.bootstrap_servers ...
    broker.kill(); broker.restart()      # the same data, the same port
    broker.stop()

The command line's broker lives on after the command; one started from Python dies with the thread that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.jars import GROUPS, ensure_jars
from tools.local_server import LocalServer
from tools.processes import choose_free_port

DEFAULT_FOLDER = REPO_ROOT / ".kafka"
JVM_OPTIONS = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the broker can register again once its old session has run out.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Retention is looked at twice a second, so that a test that loses records to it need not wait for minutes.
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.enable": "false",
}
_LOGGING = """status=warn
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p %m (%c{1})%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""


@dataclass
class Broker(LocalServer):
    """A broker that runs in ``folder``; made by :func:`start_broker` or :func:`find_broker`."""

    overrides: dict[str, str] = field(default_factory=dict)

    TITLE = "the Kafka broker"
    NOTE = "broker.json"
    PORT_FIX = "end that program, or choose another port: KAFKA_PORT=9192 make run"

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Format the storage of a new broker, then start it."""
        ensure_jars(["kafka-broker"])
        java = shutil.which("java")
        if java is None:
            raise ToolError("no `java` on PATH", "install Java 17 (Debian: apt install openjdk-17-jre-headless)")
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = _write_settings(self.folder, self.port, self.overrides)
        base = [java, *JVM_OPTIONS, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        base += ["-cp", str(GROUPS["kafka-broker"].folder / "*")]
        if not (self.folder / "data" / "meta.properties").exists():
            identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            if identity.startswith("-"):
                identity = "A" + identity[1:]  # or it would be taken for an option
            done = subprocess.run(
                [*base, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                said = f"{done.stdout}{done.stderr}"
                raise ToolError(f"the broker's storage in {self.folder} cannot be formatted:\n{said}")
        self.run_program([*base, "kafka.Kafka", str(properties)])

    def answers(self) -> bool:
        """Whether it lists its brokers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with contextlib.suppress(KafkaException):
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0}, logger=_SILENT)
            return bool(client.list_topics(timeout=2).brokers)
        return False


def start_broker(
    folder: Path, port: int | None = None, *, overrides: Mapping[str, str] | None = None, tied: bool = True
) -> Broker:
    """Starts a broker with its data in ``folder`` and waits until it answers.

    ``port`` None: a free one. ``overrides`` are server.properties settings. ``tied``: it dies with the calling thread.
    Raises :class:`ToolError` when the port is taken, a broker runs in ``folder`` already, or it does not come up.
    """
    return Broker.start_in(folder, port, tied, overrides=dict(overrides or {}))


def find_broker(folder: Path = DEFAULT_FOLDER) -> Broker | None:
    """The broker that runs in ``folder``, if one does."""
    return Broker.find(folder)


def _write_settings(folder: Path, port: int, overrides: Mapping[str, str]) -> Path:
    controller = choose_free_port()
    settings = {
        **SETTINGS,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        **overrides,
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (folder / "log4j2.properties").write_text(_LOGGING)
    return path


def _make_silent_logger() -> object:
    import logging

    logger = logging.getLogger("tools.broker.client")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


_SILENT = _make_silent_logger()


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.broker", description="A local Kafka broker.")
    parser.add_argument("action", choices=("start", "stop", "status"))
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="its data and log (default: .kafka)")
    parser.add_argument("--port", type=int, default=int(os.environ.get("KAFKA_PORT", "9092")), help="default: 9092")
    options = parser.parse_args(arguments)
    broker = find_broker(options.dir)
    if options.action == "stop":
        if broker is not None:
            broker.stop()
            say("broker: stopped")
        return 0
    if options.action == "start" and broker is None:
        say("broker: starting")
        broker = start_broker(options.dir, options.port, tied=False)
    print(f"{'running at ' + broker.bootstrap_servers if broker else 'not running'}")
    return 0 if broker else 1


if __name__ == "__main__":
    run_main(main)
