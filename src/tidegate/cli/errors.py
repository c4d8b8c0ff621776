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

BAD_FORMAT = Condition(
    "BAD_FORMAT",
    UsageError,
    "--format{fault}",
    next_run="fails again until this is fixed; nothing was written",
    fix="{fix}",
)

ONE_AT_A_TIME = Condition(
    "ONE_AT_A_TIME",
    UsageError,
    "--accept-loss abandons records of one pipeline, but {number} were named",
    next_run="is not affected; nothing was run",
    fix='name one: tidegate run NAME --accept-loss "..."',
)

NOT_SUPPORTED_YET = Condition(
    "NOT_SUPPORTED_YET",
    UsageError,
    "--continuous: Spark's continuous processing has no batches that could be checked and published as a whole",
    fix="tidegate stream {name}, which publishes within seconds; each batch exactly once",
)

BAD_DURATION = Condition(
    "BAD_DURATION",
    UsageError,
    "--every: {error}",
    fix='write --every "10 seconds"',
)

FORMAT_UNKNOWN = Condition(
    "FORMAT_UNKNOWN",
    UsageError,
    "the format of {file} cannot be recognized by its name",
    next_run="fails again until this is fixed; nothing was written",
    fix="add --format json, csv, text, parquet, orc or avro; save a workbook of a spreadsheet program as csv first",
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

REPLAY_ARGUMENTS = Condition(
    "REPLAY_ARGUMENTS",
    UsageError,
    "--file names the records itself, so {given} cannot be given with it",
    next_run="is not affected; nothing was changed",
    fix="give one of them",
)
