"""The classes of errors, and how a condition becomes an error; each room has its conditions in `errors.py`.

The tree (exit code in brackets)::

    TidegateError
    ├── UsageError [64]            wrong use, or a bad spec, suite, transform or project file
    ├── HeldError [65]             the gate holds the increment, or an earlier one waits for a decision
    ├── SourceLostError [66]       the source lost, or never had, the requested records
    ├── DefectError [70]           a defect of tidegate: a figure that does not balance, an impossible state
    ├── TryAgainError [75]         busy, broker away, killed: the same command may work later
    └── DisagreementError [78]     checkpoint, table and spec disagree: a person must choose
"""

from __future__ import annotations

import contextlib
import string
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from tidegate.core.words import escape_controls

if TYPE_CHECKING:
    from tidegate.core.outputs import Error


class TidegateError(Exception):
    """An error with everything that an operator needs.

    ``code`` is a stable UPPER_SNAKE name, ``message`` says what happened, with values; ``where`` names the file, line,
    topic or batch; ``next_run`` says what the next run will do; ``fix`` is the command, or action, that fixes it.
    """

    exit_code = 70
    retry = False
    """Whether the same command may succeed later without a person: Airflow retries only these."""

    def __init__(
        self, code: str, message: str, *, where: str | None = None, next_run: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.next_run = next_run
        self.fix = fix

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next_run:
            lines.append(f"  next run: {self.next_run}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return escape_controls("\n".join(lines))

    def to_dict(self) -> Error:
        """The error as the run report and ``--json`` carry it."""
        return {
            "code": self.code,
            "message": self.message,
            "where": self.where,
            "next_run": self.next_run,
            "fix": self.fix,
            "exit_code": self.exit_code,
        }

    @staticmethod
    def from_dict(value: Error) -> TidegateError:
        """Restore an error that a step in another process wrote down, as the class of its exit code."""
        kind = _BY_EXIT_CODE.get(int(value.get("exit_code", 70)), DefectError)
        return kind(
            value["code"],
            value["message"],
            where=value.get("where"),
            next_run=value.get("next_run"),
            fix=value.get("fix"),
        )


class UsageError(TidegateError):
    """Wrong use of a command, or a spec, suite, transform or project file that cannot be used."""

    exit_code = 64


class HeldError(TidegateError):
    """The gate holds an increment; nothing was published."""

    exit_code = 65


class SourceLostError(TidegateError):
    """The source lost, or never had, records that this pipeline has not read yet."""

    exit_code = 66


class DefectError(TidegateError):
    """tidegate itself is wrong: a run that does not balance, a state that cannot be."""

    exit_code = 70


class TryAgainError(TidegateError):
    """Something is busy or away, or the run was stopped: nothing is lost and the next run continues."""

    exit_code = 75
    retry = True


class DisagreementError(TidegateError):
    """Checkpoint, manifests, table and spec do not fit together; a person must choose."""

    exit_code = 78


_BY_EXIT_CODE: dict[int, type[TidegateError]] = {
    kind.exit_code: kind
    for kind in (UsageError, HeldError, SourceLostError, DefectError, TryAgainError, DisagreementError)
}


class Caught:
    """Keep any error of a block, so that it does not end what surrounds the block: a page, a command, a task.

    ``error`` is None where the block ended well. What is not an Exception, such as SystemExit, is raised all the same.
    """

    error: Exception | None = None

    @property
    def text(self) -> str | None:
        """The error in short, ``CODE: message``; None without one."""
        if isinstance(self.error, TidegateError):
            return escape_controls(f"{self.error.code}: {self.error.message}")
        return None if self.error is None else escape_controls(f"{type(self.error).__name__}: {self.error}")

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return isinstance(error, Exception)


@contextlib.contextmanager
def on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` when the block raises, whatever ends it: also a signal that stops the process."""
    try:
        yield
    except BaseException:
        undo()
        raise


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was raised from, each once."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and not any(one is other for other in seen):
        yield one
        seen.append(one)
        one = one.__cause__


E = TypeVar("E", bound=TidegateError)


class Condition(Generic[E]):
    """An error with fields, ``{name}``, in its texts. Called with their values it makes the error.

    ``where`` is the file, line, topic or batch, which only the caller knows.
    """

    def __init__(self, code: str, kind: type[E], message: str, *, next_run: str, fix: str) -> None:
        self.code, self.kind = code, kind
        self.message, self.next_run, self.fix = message, next_run, fix

    @property
    def fields(self) -> set[str]:
        """The names of the values that a call must give; tests/unit/core/test_errors.py compares every call."""
        texts = (self.message, self.next_run, self.fix)
        return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}

    def __call__(self, *, where: str | None = None, **values: object) -> E:
        """The error, to be raised."""
        return self.kind(
            self.code,
            self.message.format(**values),
            where=where,
            next_run=self.next_run.format(**values),
            fix=self.fix.format(**values),
        )


# The environment and the storage

RESUMED = "completes what was begun, if anything was; nothing is lost"
AFTER_THE_FIX = f"fails again until this is fixed, then {RESUMED}"

EXTRA_MISSING = Condition(
    "EXTRA_MISSING",
    UsageError,
    "{subject} is needed for this, and the Python package `{module}` is not installed",
    next_run="fails again until this is fixed; nothing was read or written",
    fix='pip install "tidegate[{extra}]"',
)

SPARK_HOME_INVALID = Condition(
    "SPARK_HOME_INVALID",
    UsageError,
    "SPARK_HOME is {home}, which is not a Spark installation: it has no {missing}",
    next_run="fails again until this is fixed; nothing was read",
    fix="unset SPARK_HOME: the Spark of the installed pyspark is then used; or set it to a Spark installation",
)

SPARK_VERSIONS_DIFFER = Condition(
    "SPARK_VERSIONS_DIFFER",
    UsageError,
    "pyspark {spark} and pyspark-client {client} overwrite each other's files",
    next_run="fails again until this is fixed; nothing was read",
    fix='pip install --force-reinstall --no-deps "pyspark=={client}" "pyspark-client=={client}"',
)

BROKER_TOOK_NOTHING = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "the Kafka broker at {bootstrap_servers} accepted no record: {reason}",
    next_run="is not affected; the records that the broker has taken stay",
    fix="start the broker (make run starts one), or name another with --bootstrap",
)

NOT_PERMITTED = Condition(
    "NOT_PERMITTED",
    UsageError,
    "user {user} may not {use} {path}{reason}",
    next_run=AFTER_THE_FIX,
    fix="{command}, then run the same command again",
)

DISK_FULL = Condition(
    "DISK_FULL",
    TryAgainError,
    "no space left on the device that holds {path}",
    next_run=RESUMED,
    fix="free space (df -h {parent}), then run again",
)

PATH_UNUSABLE = Condition(
    "PATH_UNUSABLE",
    UsageError,
    "cannot use {name}: {strerror}",
    next_run=AFTER_THE_FIX,
    fix="check the type and permissions of each folder on that path (namei -l {quoted_name}), or correct the path in "
    "tidegate.yaml; then run the same command again",
)

STORAGE_FAILED = Condition(
    "STORAGE_FAILED",
    TryAgainError,
    "the file system that holds {path} failed: {reason}",
    next_run=RESUMED,
    fix="check that the file system is mounted and healthy (findmnt -T {quoted_path}, dmesg), then run the same "
    "command again",
)

STORE_FAILED = Condition(
    "STORAGE_FAILED",
    TryAgainError,
    "the object store{server} did not serve requests for {path} for {seconds} seconds: {reason}",
    next_run=RESUMED,
    fix="check that the store can be reached from this machine (whether its address begins with http:// or https://, "
    "and the port), then run the same command again",
)

STORE_REFUSED = Condition(
    "STORE_REFUSED",
    UsageError,
    "{store} refused a request for {path}: {reason}",
    next_run=AFTER_THE_FIX,
    fix="check the name of the bucket (in tidegate.yaml, or of a source in its pipeline.yaml) and `s3: {{endpoint, "
    "region}}`, and that the credentials are valid and may read, write, list and delete there: `tidegate doctor` names "
    "a missing right; then run the same command again",
)

OBJECT_TOO_LARGE = Condition(
    "STORE_REFUSED",
    UsageError,
    "{file} is larger than 5 GiB, and S3 copies no such object",
    next_run=AFTER_THE_FIX,
    fix="set spark.sql.files.maxRecordsPerFile under spark.conf of the pipeline, remove the file, and let "
    "`tidegate repair NAME` read its batch again",
)

STORE_SETTINGS = Condition(
    "STORE_REFUSED",
    UsageError,
    "{store} cannot be reached with these settings: {reason}",
    next_run=AFTER_THE_FIX,
    fix="correct endpoint, region or ca_file under s3 in tidegate.yaml, or AWS_ENDPOINT_URL, AWS_REGION or "
    "AWS_CA_BUNDLE in the environment; then run the same command again",
)

STORE_UNSAFE = Condition(
    "STORE_UNSAFE",
    UsageError,
    "{store} {what}: without conditional writes two runs could overwrite each other's records",
    next_run="stops here again; nothing was changed",
    fix="use a store that honours If-None-Match and If-Match of a write: Amazon S3, Google Cloud Storage, Azure Blob "
    "Storage, or a server whose documentation says so; then correct {quoted} in tidegate.yaml",
)

TOO_MANY_OPEN_FILES = Condition(
    "TOO_MANY_OPEN_FILES",
    TryAgainError,
    "cannot open {path}: {reason}",
    next_run=RESUMED,
    fix="raise the limit of open files (ulimit -n of the process; /proc/sys/fs/file-max for the machine), then run the "
    "same command again",
)

NO_HARD_LINKS = Condition(
    "NO_HARD_LINKS",
    UsageError,
    "the file system that holds {folder} does not support hard links, which protect state and tables from concurrent "
    "writers",
    next_run="stops here again; nothing was changed",
    fix="move the state and table folders of tidegate.yaml to a file system with hard links: a local disk or NFS, not "
    "SMB, exFAT or FAT (findmnt -T {quoted_folder} names it)",
)

UNTIL_FIXED = "fails again until this is fixed; nothing was read or written"

RESTORE_CHECKPOINT = (
    "restore the state folder from the same time as the table; `tidegate repair {name} --dry-run` shows what else can "
    "be done"
)
