"""Errors met while something of a pipeline is read to be shown: each is described, and the rest is shown."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Error
from tidegate.core.storage import name_cause
from tidegate.spec.project import Project
from tidegate.views import errors

UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file with arbitrary content may raise."""

STATE_FAULTS = (TidegateError, *UNREADABLE)
"""What reading the state of a pipeline may raise."""

Unchecked: TypeAlias = Mapping[str, Any]
"""A part of a report as its file has it: another version or a person may have written it."""

REPORT_AT_MOST = 64 << 20
"""Bytes of the largest report that is read; tidegate's own are smaller."""


def to_error(project: Project, name: str, error: Exception) -> Error:
    """Convert an exception met while a pipeline was read to an error of ``--json``."""
    named = name_cause(error, project.root) or error
    if isinstance(named, TidegateError):
        return named.to_dict()
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    return errors.STATUS_UNREADABLE(where=f"state of pipeline {name}", error=text, name=name).to_dict()


def check_report_size(size_bytes: int) -> None:
    """Raise OSError EFBIG for a file that is too large to be a report."""
    if size_bytes > REPORT_AT_MOST:
        raise OSError(errno.EFBIG, "too large")


def describe_unreadable(error: Exception) -> str:
    """Describe why the report of a run cannot be shown."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"the report is larger than {REPORT_AT_MOST >> 20} MiB, and tidegate writes none so large"
    if isinstance(error, OSError):
        return f"the report cannot be read: {error.strerror or type(error).__name__}"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "the report is cut off or not JSON"
    return "the report was written by another version of tidegate"


def name_unreadable(path: Path, why: str) -> Error:
    """The error of a report that cannot be shown."""
    return errors.REPORT_UNREADABLE(where=str(path), why=why).to_dict()
