"""The conditions of what people look at."""

from __future__ import annotations

from tidegate.core.errors import Condition, DefectError, DisagreementError, UsageError

NOT_CHANGED = Condition(
    "NOT_CHANGED",
    UsageError,
    "{missing} cannot be acknowledged: neither a changed file nor a file or partition with lost rows; not acknowledged "
    "yet: {open}",
    next_run="is not affected; nothing was acknowledged",
    fix="name them as `tidegate status {name}` does, or omit the paths for all of them",
)

NO_SUCH_RUN = Condition(
    "NO_SUCH_RUN",
    UsageError,
    "pipeline {name} {missing}",
    next_run="is not affected",
    fix="name another run: `tidegate status {name}` lists the newest",
)

REPORT_UNREADABLE = Condition(
    "REPORT_UNREADABLE",
    DisagreementError,
    "{why}",
    next_run="continues as usual, unless this run left something unfinished: then it stops and names the file",
    fix="restore the file from a backup, or move it away: no row of the table depends on it",
)

STATUS_UNREADABLE = Condition(
    "STATUS_UNREADABLE",
    DefectError,
    "the state of the pipeline cannot be read: {error}",
    next_run="may fail at the same place",
    fix="tidegate plan {name} shows more",
)

DATA_DOCS_FOLDER = Condition(
    "DATA_DOCS_FOLDER",
    UsageError,
    "the folder contains other files than Data Docs",
    next_run="is not affected; nothing was written",
    fix="name an empty folder, or one that holds Data Docs already: --to DIR",
)
