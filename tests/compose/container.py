"""What runs as process 1 of a container of the tests: python container.py SPEC, under ``unshare`` (see engine.py).

It builds the container's file system (this machine's folders, read-only, with the image's own ones over them), waits
for a line on standard input (the network is there), and runs the command as the image's user, in a user namespace of
its own. As ``init: true`` does it hands signals on and reaps orphans; with its end the kernel ends all that is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_RDONLY, _REMOUNT, _BIND, _REC, _DETACH = 1, 32, 4096, 16384, 2
_KEPT_FLAGS = {os.ST_NOSUID: 2, os.ST_NODEV: 4, os.ST_NOEXEC: 8, os.ST_NOATIME: 1024, os.ST_RELATIME: 1 << 21}
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2)."""
    words = [source.encode(), target.encode(), kind.encode() if kind else None]
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode()):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}: {os.strerror(ctypes.get_errno())}")


def bind(source: str, target: str, *, read_only: bool) -> None:
    """``source`` and what is mounted in it, at ``target``."""
    mount(source, target, None, _BIND | _REC)
    if read_only:
        there = os.statvfs(target).f_flag
        kept = sum(flag for known, flag in _KEPT_FLAGS.items() if there & known)  # those this user may not take away
        mount(source, target, None, _BIND | _REMOUNT | _RDONLY | kept)


def lay_out(folder: str, root: str, parents: set[str], own: set[str]) -> None:
    """``folder`` of this machine below ``root``: links and mounts of what is in it, real folders for ``parents``."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        target = root + path
        if path in own:
            continue
        try:
            if os.path.islink(path):
                os.symlink(os.readlink(path), target)
            elif path in parents:
                os.mkdir(target)
                lay_out(path, root, parents, own)
            elif os.path.isdir(path):
                os.mkdir(target)
                bind(path, target, read_only=path not in ("/dev", "/sys"))
            elif os.path.isfile(path):
                Path(target).touch()
                bind(path, target, read_only=True)
        except PermissionError:
            continue  # a folder that this user may not enter is of no use to the service


def build_root(spec: dict[str, Any]) -> None:
    """The container's file system, and the change into it."""
    root = spec["root"]
    own = {"/proc", "/tmp", *spec["tmpfs"], *(target for _, target, _ in spec["binds"])}
    parents = {str(parent) for path in own for parent in Path(path).parents} - {"/"}
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    lay_out("/", root, parents, own | {"/etc"})
    lay_out_etc(root, spec["etc"])
    for path in sorted(own, key=lambda path: path.count("/")):
        source = next((source for source, target, _ in spec["binds"] if target == path), None)
        if source is not None and os.path.isfile(source):
            Path(root + path).parent.mkdir(parents=True, exist_ok=True)
            Path(root + path).touch()
        else:
            os.makedirs(root + path, exist_ok=True)
        if source is not None:
            bind(source, root + path, read_only=next(ro for _, target, ro in spec["binds"] if target == path))
        elif path != "/proc":
            mount("tmpfs", root + path, "tmpfs", 0, "mode=1777")
    mount("tmpfs", root + "/dev/shm", "tmpfs", 0, "mode=1777")
    mount("proc", root + "/proc", "proc", 0)
    os.mkdir(root + "/.old")
    subprocess.run(["pivot_root", root, root + "/.old"], check=True)
    os.chdir("/")
    if _libc.umount2(b"/.old", _DETACH):
        raise OSError(ctypes.get_errno(), "umount /.old")


def lay_out_etc(root: str, files: dict[str, str]) -> None:
    """/etc of this machine, with ``files`` in the place of its own."""
    os.mkdir(root + "/etc")
    lay_out("/etc", root, set(), {f"/etc/{name}" for name in (*files, "hosts")})
    for name, text in files.items():
        Path(root, "etc", name).write_text(text)


def main() -> int:
    """Build, wait, run; the command's exit code."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(spec["id"])
    build_root(spec)
    if not sys.stdin.readline():
        return 1  # who started this has gone
    user = str(spec["user"])
    command = ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", "--", *spec["command"]]
    child = subprocess.Popen(command, env=spec["environment"], cwd=spec["folder"], stdin=subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: child.send_signal(number))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main())
