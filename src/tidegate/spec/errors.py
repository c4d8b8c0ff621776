"""The conditions of the two YAML files."""

from __future__ import annotations

from tidegate.core.errors import (
    Condition,
    UsageError,
)

BAD_NAME = Condition(
    "BAD_NAME",
    UsageError,
    "{name} cannot be the name of a pipeline",
    next_run="fails again until this is fixed",
    fix="use 3 to 63 lower-case letters, digits and _, starting with a letter",
)

NO_SUCH_PIPELINE = Condition(
    "NO_SUCH_PIPELINE",
    UsageError,
    "there is no pipeline {name!r}; there are: {known}",
    next_run="fails again until this is fixed",
    fix="{nearest}tidegate new {name}",
)

BAD_PROJECT_PATH = Condition(
    "BAD_PROJECT_PATH",
    UsageError,
    "the path of the project {unusable}: {root!r}",
    next_run="fails again until this is fixed",
    fix="move the project to a folder with a plain name",
)

BAD_PROJECT = Condition(
    "BAD_PROJECT",
    UsageError,
    "tidegate.yaml cannot be read: {strerror}",
    next_run="fails again until this is fixed; nothing was read or written",
    fix="make it a file that this user may read: ls -l {quoted_path}",
)

NO_PROJECT = Condition(
    "NO_PROJECT",
    UsageError,
    "there is no tidegate.yaml in {start}{reach}",
    next_run="fails again until this is fixed",
    fix="create a project first: tidegate init DIR; if there is one, go to its folder or use --project DIR",
)

FILE_FAULTS = {
    "BAD_SPEC": "`pipeline.yaml` cannot be used; every fault is listed with its line, the value and what to write",
    "BAD_PROJECT": "`tidegate.yaml` cannot be used; every fault is listed with its line, the value and what to write",
    "BAD_SUITE": "`expectations/<pipeline>.yaml` cannot be used: a type that Great Expectations does not know, a wrong "
    "argument, an empty suite; every fault is listed with its line",
    "BAD_TRANSFORM": "`transform.py` or `transform.sql` does not fit the spec; every fault is listed with its line",
    "BAD_SINK": "a file that a sink names does not fit (it is missing, is not Python, or lacks the function or class), "
    "or the rows lack a column that a sink takes, or have it in another type; "
    "every fault is listed with its line",
    "LITERAL_SECRET": "`validate` alone: a secret is written out in `tidegate.yaml`, or is in a `pipeline.yaml`, "
    "where the environment is not filled in; write it in `tidegate.yaml` as `${VAR}`",
    "STORAGE_NOT_SUPPORTED": "a path is a URI of a kind that is not supported there",
}
"""Codes of faults of files: they are raised together as one SpecError (exit code 64), with the lines as message."""
