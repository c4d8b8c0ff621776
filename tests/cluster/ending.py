"""Ending processes of a cluster."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def end(process: subprocess.Popen[bytes], expect: int) -> str:
    """Wait for a command's end; what it wrote on stderr."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == expect, f"exited {process.returncode}\n{out.decode()}\n{err.decode()}"
    return err.decode()
