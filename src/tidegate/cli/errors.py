"""The conditions of the commands."""

from __future__ import annotations

from tidegate.core.errors import Condition, TryAgainError, UsageError

COMMAND_STOPPED = Condition(
    "STOPPED",
    TryAgainError,
    "the command was stopped ({how})",
    next_run="continues where this one stopped; nothing is lost or duplicated",
    fix="run it again",
)

BAD_OPTIONS = Condition(
    "BAD_OPTIONS",
    UsageError,
    "these options cannot be used: {fault}",
    next_run="is not affected; nothing was changed",
    fix="{fix}",
)

BAD_ARGUMENTS = Condition(
    "BAD_ARGUMENTS",
    UsageError,
    "{fault}",
    next_run="is not affected; nothing was read or changed",
    fix="{nearest}`{command} -h` shows how it is used",
)

CANNOT_INFER = Condition(
    "CANNOT_INFER",
    UsageError,
    "the columns of {name} cannot be inferred as {kind}: {why}",
    next_run="fails again until this is fixed; nothing was written",
    fix="{fix}",
)

BAD_NEW_PROJECT_PATH = Condition(
    "BAD_PROJECT_PATH",
    UsageError,
    "the path of the project {unusable}: {root!r}",
    next_run="fails again until this is fixed; nothing was written",
    fix="choose a folder with a plain name",
)

NO_SUCH_FILE = Condition(
    "NO_SUCH_FILE",
    UsageError,
    "{sample} is not a file",
    next_run="fails again until this is fixed; nothing was written",
    fix="name a file like those that will arrive, or a topic: --from kafka:orders",
)

CANNOT_WRITE = Condition(
    "CANNOT_WRITE",
    UsageError,
    "{path} cannot be written: {reason}",
    next_run="fails again until this is fixed",
    fix="choose a folder that you may write to",
)

FILE_EXISTS = Condition(
    "FILE_EXISTS",
    UsageError,
    "{taken} already {exist}; no existing file was changed",
    next_run="fails again until this is fixed",
    fix="choose another name, or remove what is there",
)
