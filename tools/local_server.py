"""A server on this machine that can be stopped, killed and started again on the same data and port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Self

from tools.console import ToolError
from tools.processes import (
    choose_free_port,
    is_port_used,
    read_start_ticks,
    refuse_used_port,
    start_process,
    tail_log,
    wait_until,
)


@dataclass
class LocalServer(ABC):
    """A server with its data in ``folder``; :meth:`start_in` makes one that runs, :meth:`find` finds one."""

    folder: Path
    port: int
    tied: bool
    """Whether it dies with the thread that started it."""
    pid: int = field(default=0, kw_only=True)
    start_ticks: int = field(default=0, kw_only=True)
    process: subprocess.Popen[bytes] | None = field(default=None, kw_only=True, repr=False)

    TITLE: ClassVar[str]
    """Its name in messages."""
    NOTE: ClassVar[str]
    """The file in its folder that describes the running process."""
    PORT_FIX: ClassVar[str]
    """What to do when the port is taken."""
    READY_TIMEOUT_SECONDS: ClassVar[float] = 90

    @property
    def log_path(self) -> Path:
        """Where the server writes its output."""
        return self.folder / "server.log"

    @abstractmethod
    def launch(self) -> None:
        """Start the process with :meth:`run_program`."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether clients are served."""

    def is_running(self) -> bool:
        """Whether this very process still runs."""
        if self.process is not None:
            self.process.poll()
        return read_start_ticks(self.pid) == self.start_ticks

    def stop(self, timeout_seconds: float = 20) -> None:
        """End it in order; a server that takes longer than ``timeout_seconds`` is killed."""
        if self.is_running():
            os.kill(self.pid, signal.SIGTERM)
            if not wait_until(lambda: not self.is_running(), timeout_seconds):
                self.kill()
        self._forget()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would. The data stay, and :meth:`restart` continues with them."""
        if self.is_running():
            os.kill(self.pid, signal.SIGKILL)
            wait_until(lambda: not self.is_running(), 10)
        self._forget()

    def restart(self) -> None:
        """Start a server that was stopped or killed again: same data, same port, same settings."""
        if self.find(self.folder) is not None:
            raise ToolError(f"{self.TITLE} is running in {self.folder} already", "stop it, or choose another folder")
        refuse_used_port(self.port, self.TITLE, self.PORT_FIX)
        self.launch()

    @classmethod
    def start_in(cls, folder: Path, port: int | None, tied: bool, **settings: object) -> Self:
        """Start a server with its data in ``folder`` and wait until it answers; ``port`` None: a free one.

        Raises:
            ToolError: The port is taken, a server runs in ``folder`` already, or it does not answer.
        """
        tries = 1 if port is not None else 3  # somebody may take a free port between the look and the use
        for attempt in range(tries):
            chosen = port if port is not None else choose_free_port()
            server = cls(folder.resolve(), chosen, tied, **settings)  # type: ignore[arg-type]
            try:
                server.restart()
                return server
            except ToolError:
                if attempt == tries - 1 or "address already in use" not in tail_log(server.log_path).lower():
                    raise
        raise AssertionError("unreachable")

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The server that runs in ``folder``, if one does."""
        try:
            noted = json.loads((folder / cls.NOTE).read_text())
        except (OSError, ValueError):
            return None
        server = cls(folder.resolve(), tied=False, **noted)
        return server if server.is_running() else None

    def run_program(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start ``command`` as the server's process and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = start_process(command, self.log_path, cwd=self.folder, env=env, tied=self.tied)
        self.pid, self.start_ticks = self.process.pid, read_start_ticks(self.process.pid) or 0
        try:
            if not wait_until(lambda: not self.is_running() or self.answers(), self.READY_TIMEOUT_SECONDS):
                seconds = f"{self.READY_TIMEOUT_SECONDS:g}"
                raise ToolError(f"{self.TITLE} did not answer in {seconds} s:\n{tail_log(self.log_path)}")
            if not self.is_running():
                raise ToolError(
                    f"{self.TITLE} ended at once:\n{tail_log(self.log_path)}",
                    f"read {self.log_path}; remove {self.folder} to start afresh",
                )
        except BaseException:
            self.kill()
            raise
        noted = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("folder", "tied", "process"):
            del noted[name]
        (self.folder / self.NOTE).write_text(json.dumps(noted))

    def _forget(self) -> None:
        # A killed process holds its port until its last thread has ended.
        wait_until(lambda: not is_port_used(self.port), 10)
        (self.folder / self.NOTE).unlink(missing_ok=True)
