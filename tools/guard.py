"""Runs a command and ends it, and everything that came from it, for sure.

    python -m tools.guard [--tied] [--patience SECONDS] -- COMMAND...

The guard adopts orphans of the command (it is their subreaper), so that a process which moved to another session or
lost its parent is found as well. It ends all of them when it gets SIGTERM or SIGINT, when the command ends by itself,
and, with ``--tied``, when its standard input closes: the pipe's other end is held by whoever started it, and closes
however that one dies.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

from tools.console import run_main
from tools.processes import die_with_parent, list_descendants, send_signal

_PR_SET_CHILD_SUBREAPER = 36
PATIENCE_SECONDS = 8
"""How long the command has for an orderly end, and then its descendants again, before they are killed."""


def guard_command(command: list[str], *, tied: bool, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Runs ``command`` until one of the ends above; returns its exit code, 0 when it was ended from outside."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(wake_write, b"x"))
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent)
    watched = [wake_read, *([sys.stdin.fileno()] if tied else [])]
    code: int | None = None
    while code is None:
        ready, _, _ = select.select(watched, [], [], 0.2)
        if ready:
            break
        code, _ = _reap(child.pid)
    if code is None:
        send_signal([child.pid], signal.SIGINT)  # the orderly end of a server in the foreground
        _wait_for_end(child.pid, patience_seconds, only_child=True)
    for number, seconds in ((signal.SIGTERM, patience_seconds), (signal.SIGKILL, 30)):
        send_signal(list_descendants(os.getpid()), number)
        if _wait_for_end(child.pid, seconds, again=number if number == signal.SIGKILL else None):
            break
    return code or 0


def _reap(child_pid: int) -> tuple[int | None, bool]:
    """Collects what has ended: the exit code of ``child_pid`` if it is among them, and whether any process is left.

    As the subreaper the guard is the parent of whatever lost its own, so no child means no descendant; a look through
    /proc may miss one that changes its parent just then.
    """
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if pid == 0:
            return code, True
        if pid == child_pid:
            code = os.waitstatus_to_exitcode(status)


def _wait_for_end(child_pid: int, seconds: float, *, only_child: bool = False, again: int | None = None) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        code, left = _reap(child_pid)
        if not left or (only_child and code is not None):
            return True
        if again is not None:  # a fork may have slipped through between the look and the signal
            send_signal(list_descendants(os.getpid()), again)
        time.sleep(0.05)
    return False


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.guard", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tied", action="store_true", help="end when standard input closes")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    return guard_command(options.command, tied=options.tied, patience_seconds=options.patience)


if __name__ == "__main__":
    run_main(main)
