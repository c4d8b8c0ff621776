"""A device of a few megabytes that a test fills."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def why_no_mount(folder: Path) -> str | None:
    """Why this process cannot mount, or None when it can."""
    try:
        tried = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True)
    except FileNotFoundError:
        return "there is no mount command"
    if tried.returncode != 0:
        return f"no right to mount a file system of limited size: {tried.stderr.decode().strip()}"
    subprocess.run(["umount", folder], check=True)
    return None


@contextlib.contextmanager
def on_its_own_device(folder: Path, size: str = "64m") -> Iterator[None]:
    """The folder, with what is in it, on a file system of its own while the block runs."""
    kept = folder.with_name(folder.name + ".kept")
    shutil.copytree(folder, kept, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    try:
        shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(kept)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, leave_bytes: int) -> Path:
    """A file that takes all the space of the folder's device but ``leave_bytes``."""
    ballast = folder / "ballast"
    free = shutil.disk_usage(folder).free
    ballast.write_bytes(b"\0" * max(free - leave_bytes, 0))
    return ballast
