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
import json
import os
import shutil
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.jars import GROUPS, ensure_jars
from tools.processes import (
    choose_free_port,
    is_port_used,
    read_start_ticks,
    refuse_used_port,
    start_process,
    tail_log,
    wait_until,
)

DEFAULT_FOLDER = REPO_ROOT / ".kafka"
READY_TIMEOUT_SECONDS = 90
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
class Broker:
    """A broker that runs in ``folder``; made by :func:`start_broker` or :func:`find_broker`."""

    folder: Path
    port: int
    pid: int
    start_ticks: int
    tied: bool
    overrides: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """Where the broker writes what it does."""
        return self.folder / "server.log"

    def is_running(self) -> bool:
        """Whether this very process still runs."""
        if self.process is not None:
            self.process.poll()
        return read_start_ticks(self.pid) == self.start_ticks

    def stop(self, timeout_seconds: float = 20) -> None:
        """An orderly end; a broker that takes longer than ``timeout_seconds`` is killed."""
        if self.is_running():
            os.kill(self.pid, signal.SIGTERM)
            if not wait_until(lambda: not self.is_running(), timeout_seconds):
                self.kill()
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it. The data stay; :meth:`restart` goes on with them."""
        if self.is_running():
            os.kill(self.pid, signal.SIGKILL)
            wait_until(lambda: not self.is_running(), 10)
        self._forget()

    def restart(self) -> None:
        """Starts a broker that was stopped or killed again: same data, same port, same overrides."""
        again = start_broker(self.folder, self.port, overrides=self.overrides, tied=self.tied)
        self.pid, self.start_ticks, self.process = again.pid, again.start_ticks, again.process

    def _forget(self) -> None:
        # A killed JVM holds its port until its last thread has ended.
        wait_until(lambda: not is_port_used(self.port), 10)
        (self.folder / "broker.json").unlink(missing_ok=True)


def start_broker(
    folder: Path, port: int | None = None, *, overrides: Mapping[str, str] | None = None, tied: bool = True
) -> Broker:
    """Starts a broker with its data in ``folder`` and waits until it answers.

    ``port`` None: a free one. ``overrides`` are server.properties settings. ``tied``: it dies with the calling thread.
    Raises :class:`ToolError` when the port is taken, a broker runs in ``folder`` already, or it does not come up.
    """
    ensure_jars(["kafka-broker"])
    folder = folder.resolve()
    if find_broker(folder) is not None:
        raise ToolError(f"a broker is running in {folder} already", "python -m tools.broker stop")
    tries = 1 if port is not None else 3  # somebody may take a free port between the look and the use
    for attempt in range(tries):
        chosen = port if port is not None else choose_free_port()
        refuse_used_port(
            chosen, "the Kafka broker", "end that program, or choose another port: KAFKA_PORT=9192 make run"
        )
        try:
            return _start_on(folder, chosen, dict(overrides or {}), tied)
        except ToolError:
            if attempt == tries - 1 or "Address already in use" not in tail_log(folder / "server.log"):
                raise
    raise AssertionError("unreachable")


def find_broker(folder: Path = DEFAULT_FOLDER) -> Broker | None:
    """The broker that runs in ``folder``, if one does."""
    try:
        noted = json.loads((folder / "broker.json").read_text())
    except (OSError, ValueError):
        return None
    broker = Broker(folder.resolve(), noted["port"], noted["pid"], noted["start_ticks"], False, noted["overrides"])
    return broker if broker.is_running() else None


def _start_on(folder: Path, port: int, overrides: dict[str, str], tied: bool) -> Broker:
    java = shutil.which("java")
    if java is None:
        raise ToolError("no `java` on PATH", "install Java 17 (Debian: apt install openjdk-17-jre-headless)")
    folder.mkdir(parents=True, exist_ok=True)
    properties = _write_settings(folder, port, overrides)
    log_path = folder / "server.log"
    base = [java, *JVM_OPTIONS, f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"]
    base += ["-cp", str(GROUPS["kafka-broker"].folder / "*")]
    if not (folder / "data" / "meta.properties").exists():
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if identity.startswith("-"):
            identity = "A" + identity[1:]  # or it would be taken for an option
        done = subprocess.run(
            [*base, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ToolError(f"the broker's storage in {folder} cannot be formatted:\n{done.stdout}{done.stderr}")
    process = start_process([*base, "kafka.Kafka", str(properties)], log_path, cwd=folder, tied=tied)
    ticks = read_start_ticks(process.pid)
    broker = Broker(folder, port, process.pid, ticks or 0, tied, overrides, process)
    try:
        if not wait_until(lambda: not broker.is_running() or _answers(broker), READY_TIMEOUT_SECONDS, 0.1):
            raise ToolError(f"the Kafka broker did not answer in {READY_TIMEOUT_SECONDS} s:\n{tail_log(log_path)}")
        if not broker.is_running():
            raise ToolError(
                f"the Kafka broker ended at once:\n{tail_log(log_path)}",
                f"read {log_path}; remove {folder} to start afresh",
            )
    except BaseException:
        broker.kill()
        raise
    (folder / "broker.json").write_text(
        json.dumps({"pid": broker.pid, "start_ticks": broker.start_ticks, "port": port, "overrides": overrides})
    )
    return broker


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


def _answers(broker: Broker) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    with contextlib.suppress(KafkaException):
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}, logger=_SILENT)
        return bool(client.list_topics(timeout=2).brokers)
    return False


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
