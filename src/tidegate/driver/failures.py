"""From what Spark throws to an error that an operator can act on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tidegate.driver.causes import Cause, read_causes
from tidegate.driver.spark_text import first_lines
from tidegate.errors import DefectError, DisagreementError, SourceLostError, TidegateError, TryAgainError, UsageError
from tidegate.sources.values.readable_values import NOT_UTF8
from tidegate.storage import disk_full, name_cause, not_permitted

_PYTHON_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Exit|Interrupt|Warning)\b")
_DATA_EXCEPTION = "22"
"""The class of SQLSTATE for a value that an expression cannot take, such as a division by zero."""

_CONTEXT_ENDED = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")

_OTHER_SPARK = re.compile(
    r"java\.\S*(?:InvalidClassException|NoSuchMethodError|ClassNotFoundException|NoClassDefFoundError)"
    r"[^\n]{0,40}?org[./]apache[./]spark[^\n]{0,200}"
)

_PARTITION_FOLDER = re.compile(r"/([^/=\s]+)=([^/]*)")
_LONGEST_VALUE = 200

_MEMORY_ERRORS = ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError")
_NO_PERMISSION = ("java.nio.file.AccessDeniedException", "org.apache.hadoop.security.AccessControlException")
_DENIED = ("(Permission denied)", "Mkdirs failed to create")
"""The words of the operating system, and of Hadoop where it hides them."""

_OFFSETS_GONE = ("OffsetOutOfRangeException",)
_KAFKA_AWAY = ("TimeoutException", "DisconnectException", "NetworkException", "UnknownTopicOrPartitionException")


def is_read_fault(error: BaseException) -> bool:
    """Whether Spark stumbled over a file it could not read."""
    causes = read_causes(error)
    return any(one.condition.startswith(("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")) for one in causes)


def is_row_fault(error: BaseException) -> bool:
    """Whether the transform failed on a row: its Python code, an error it raises, a value that does not convert."""
    if explain_python(str(error), "") is not None:
        return False
    return any(one.is_of_user or one.sql_state.startswith(_DATA_EXCEPTION) for one in read_causes(error))


def name_row_fault(error: BaseException, job_folder: Path) -> str:
    """A fault of a row in few words, the same for all rows that fail alike: Spark's error condition, or the exception
    that Python code raised, with the line of the transform where it is known. The value is left to the record."""
    causes, text = read_causes(error), str(error)
    if any(one.is_of_python_code for one in causes):
        told = _PYTHON_ERROR.match(_last_python_error(text))
        what = told[0] if told else "PYTHON_EXCEPTION"
    else:
        cause = next(one for one in causes if one.is_of_user or one.sql_state.startswith(_DATA_EXCEPTION))
        raised = _text_raised(cause.text)
        what = raised if raised.endswith(NOT_UTF8) else f"[{cause.condition}]"
    line = _line_of_transform(text, job_folder)
    return what if line is None else f"{what} at {Path(line).name}"


class RowFailed(Exception):
    """A fault of a row, its cause; ``record`` says in words which one, ``remedy`` what else the fix may be."""

    def __init__(self, record: str, remedy: str = "") -> None:
        super().__init__(record)
        self.record, self.remedy = record, remedy


def explain(
    error: BaseException, name: str, job_folder: Path, state: Path, *, on_cluster: bool = False
) -> TidegateError:
    """The error to report. A TidegateError stays what it is."""
    if isinstance(error, TidegateError):
        return error
    if isinstance(error, RowFailed) and error.__cause__ is not None:
        fault = explain(error.__cause__, name, job_folder, state, on_cluster=on_cluster)
        fault.message = f"{fault.message}; {error.record}"
        fault.fix = "; ".join(filter(None, (fault.fix, error.remedy)))
        return fault
    causes = read_causes(error)
    if any(one.is_of_user for one in causes):
        known = explain_python(str(error), name) if on_cluster else None
        return known or _explain_transform(causes, str(error), name, job_folder)
    return (
        _explain_memory(causes, name)
        or _explain_storage(error, causes, name, state)
        or _explain_kafka(error, causes, name, on_cluster=on_cluster)
        or (explain_cluster(str(error), name) if on_cluster else None)
        or _explain_value(causes, str(error), name, job_folder)
        or _explain_vanished(error, causes)
        or _explain_partition(causes, name)
        or DefectError(
            "INGEST_FAILED",
            first_lines(error, 1500),
            where=f"{type(error).__name__} in the ingest driver of {name}",
            next_run="reads the same batch again; nothing is lost",
            fix="the Spark log above has the whole trace; correct the cause, or report it, then run again",
        )
    )


def _explain_memory(causes: Sequence[Cause], name: str) -> UsageError | None:
    """Too little memory; the step that started the driver knows how much it had (``driver/memory.py``)."""
    told = next((one for one in causes if one.kind in _MEMORY_ERRORS), None)
    if told is None:
        return None
    return UsageError(
        "OUT_OF_MEMORY",
        f"Spark ran out of memory: {told.text[:200]}",
        where=f"pipeline {name}",
        next_run="reads the same batch again, and fails again with the same memory; nothing is lost",
        fix=f"raise `spark.driver.memory` (on a cluster `spark.executor.memory`), then `tidegate run {name}`",
    )


def _named_paths(causes: Sequence[Cause], state: Path) -> list[Path]:
    """The paths of the state folder that errors of the operating system name, the innermost first; else the folder."""
    inside = rf"{re.escape(str(state))}[^\s:(]*"
    return [Path(path) for one in reversed(causes) for path in re.findall(inside, one.text)] or [state]


def _explain_storage(error: BaseException, causes: Sequence[Cause], name: str, state: Path) -> TidegateError | None:
    """A full disk, a checkpoint that somebody else writes, state that cannot be read."""
    if (known := name_cause(error, state, state)) is not None:
        return known
    if any("No space left on device" in one.text or "Disk quota exceeded" in one.text for one in causes):
        return disk_full(state)  # the operating system's own words, which Java hands on
    if any(one.kind in _NO_PERMISSION or any(words in one.text for words in _DENIED) for one in causes):
        # A folder that cannot have its name, Hadoop reports in the words of one that may not be made.
        return _explain_partition(causes, name) or not_permitted(_named_paths(causes, state), state)
    if any(one.condition.startswith("CONCURRENT_STREAM_LOG_UPDATE") for one in causes):
        return TryAgainError(
            "CHECKPOINT_BUSY",
            "another process wrote the checkpoint of this pipeline at the same time",
            where=str(state),
            next_run="goes on from what was committed; nothing is lost or doubled",
            fix=f"`tidegate status {name}` shows who holds the lease; then run again",
        )
    unreadable = [
        one
        for one in causes
        if one.condition.startswith("CANNOT_LOAD_STATE_STORE")
        or ("STATE_STORE" in one.condition and "CHECKSUM" in one.condition)
    ]
    if unreadable:
        return DisagreementError(
            "STATE_UNREADABLE",
            f"the state of the query cannot be read: {causes[-1].text[:400]}",
            where=str(state / "checkpoint" / "state"),
            next_run="fails again; nothing was published, and nothing is lost as long as the sources have it",
            fix=f"restore state, table and quarantine of {name} from the same time; or `tidegate repair {name} "
            f"--rebuild` (`tidegate repair {name} --rebuild --dry-run` tells what that reads)",
        )
    return None


def _explain_kafka(
    error: BaseException, causes: Sequence[Cause], name: str, *, on_cluster: bool
) -> TidegateError | None:
    if any(one.condition.startswith("KAFKA_DATA_LOSS") or one.kind.endswith(_OFFSETS_GONE) for one in causes):
        return SourceLostError(
            "KAFKA_RECORDS_LOST",
            f"the broker no longer has what this run planned to read: {first_lines(error)}",
            next_run="compares the offsets owed with those retained, and names the exact ranges",
            fix=f"`tidegate plan {name}` shows what is gone, and the command that goes on without it",
        )
    # A broker that starts again does not know its topics for a moment; a topic that is gone is told by the next run.
    if any(one.from_kafka and one.kind.endswith(_KAFKA_AWAY) for one in causes):
        return TryAgainError(
            "BROKER_AWAY",
            f"the Kafka broker stopped answering: {first_lines(error)}",
            next_run="compares offsets and topics with the broker's, then goes on from the last staged batch",
            fix="bring the broker back, then run again"
            + ("; executors must reach it under the same address as this machine" if on_cluster else ""),
        )
    return None


def _explain_transform(causes: Sequence[Cause], text: str, name: str, job_folder: Path) -> UsageError:
    """Python code of the transform that failed, or an error that the transform raises on purpose."""
    if any(one.is_of_python_code for one in causes):
        told = _last_python_error(text)
        return _transform_failed(f"Python code of the transform failed on a row: {told[:400]}", text, name, job_folder)
    raised = next(one.text for one in causes if one.is_of_user)
    told = _text_raised(raised)
    if told.endswith(NOT_UTF8):
        said = f"the transform makes text that other readers of the table cannot decode: {told}"
    else:
        said = f"the transform raised an error for a row: {told[:400]}"
    return _transform_failed(said, text, name, job_folder)


def _text_raised(text: str) -> str:
    return re.sub(
        r"^\[USER_RAISED_EXCEPTION[^\]]*\] | SQLSTATE: \w{5}\s*$", "", text.split("\n==", 1)[0].strip()
    ).strip()


def _last_python_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), lines[-1] if lines else "")


def _explain_value(causes: Sequence[Cause], text: str, name: str, job_folder: Path) -> UsageError | None:
    told = next((one.text for one in causes if one.sql_state.startswith(_DATA_EXCEPTION)), None)
    if told is None:
        return None
    said = re.sub(r" SQLSTATE: \w{5}$", "", told.splitlines()[0][:400].strip())
    known = _transform_failed(f"a row does not fit the transform: {said}", text, name, job_folder)
    known.fix = (
        "let the transform give null for such a value (try_cast, try_to_timestamp, try_divide) and a rule set its row "
        f"aside (docs/how-to/your-own-data.md), then `tidegate run {name}`"
    )
    return known


def _explain_vanished(error: BaseException, causes: Sequence[Cause]) -> TryAgainError | None:
    is_gone = isinstance(error, FileNotFoundError) or any(
        one.kind == "java.io.FileNotFoundException" or one.condition.endswith("FILE_NOT_EXIST") for one in causes
    )
    if not is_gone:
        return None
    return TryAgainError(
        "FILE_VANISHED",
        f"a file vanished before it was read: {first_lines(error)}",
        next_run="names the files that are gone for good",
        fix="run again",
    )


def _explain_partition(causes: Sequence[Cause], name: str) -> UsageError | None:
    """A value of a partition column that cannot be the name of a folder: too long (255 bytes), or with a NUL in it."""
    found = [folder for one in causes for folder in _PARTITION_FOLDER.findall(one.text)]
    failing = [one for one in found if len(one[1].encode()) > _LONGEST_VALUE or "%00" in one[1] or "\0" in one[1]]
    if not failing:
        return None
    column, value = failing[-1]
    return UsageError(
        "PARTITION_VALUE",
        f"a value of the partition column {column} cannot be the name of a folder: it has {len(value.encode())} bytes "
        f"there, and begins with {value[:60]!r}",
        where=f"a row of pipeline {name}",
        next_run="reads the same batch again and fails again; nothing is lost",
        fix="shorten the value in the transform, partition by something else, or set such rows aside with "
        "expect_column_value_lengths_to_be_between and `on_failure: quarantine`; then `tidegate run " + name + "`",
    )


def is_other_spark(text: str) -> bool:
    """Whether an executor could not make sense of what this driver's Spark sent it."""
    return _OTHER_SPARK.search(text) is not None


def spark_differs(text: str, name: str) -> UsageError:
    """The error for it."""
    told = _OTHER_SPARK.search(text)
    return UsageError(
        "SPARK_DIFFERS",
        f"the executors run another Spark than this driver, which is {version('pyspark')}: {told[0] if told else ''}",
        where=f"an executor of pipeline {name}",
        next_run="fails again; nothing was read or written",
        fix=f"install Spark {version('pyspark')} on master and workers",
    )


def explain_cluster(text: str, name: str) -> TidegateError | None:
    """What goes wrong only where executors are processes of their own; None for all else."""
    if any(words in text for words in _CONTEXT_ENDED):
        return application_ended(name)
    if is_other_spark(text):
        return spark_differs(text, name)
    if known := explain_python(text, name):
        return known
    if "ExecutorLostFailure" in text or "Lost executor" in text or "FetchFailed" in text:
        return executors_lost(name, f"again and again: {_line_with('ExecutorLostFailure', text)}")
    return None


def explain_python(text: str, name: str) -> UsageError | None:
    """An executor whose Python is missing, is another one, or lacks a module; None for all else."""
    page = "docs/how-to/from-machine-to-cluster.md"
    if "PYTHON_VERSION_MISMATCH" in text:
        return UsageError(
            "PYTHON_DIFFERS",
            f"the executors run another Python than this driver: {_line_with('PYTHON_VERSION_MISMATCH', text)}",
            where=f"an executor of pipeline {name}",
            next_run="reads the same batch again and fails; nothing is lost",
            fix=f"`spark.pyspark.python` under spark.conf names the executors' Python ({page})",
        )
    if missing := re.search(r'Cannot run program "([^"]+)"', text):
        return UsageError(
            "PYTHON_MISSING",
            f"an executor has no {missing[1]}, and the transform needs Python there",
            where=f"an executor of pipeline {name}",
            next_run="reads the same batch again and fails; nothing is lost",
            fix=f"install it on each worker, or let `spark.pyspark.python` under spark.conf name theirs ({page})",
        )
    lost_module = re.search(r"ModuleNotFoundError: (No module named '[^']+')", text)
    if lost_module:
        return UsageError(
            "MODULE_MISSING",
            f"an executor lacks what the transform imports: {lost_module[1]}",
            where=f"an executor of pipeline {name}",
            next_run="reads the same batch again and fails; nothing is lost",
            fix=f"install it on each worker, or send it along with `spark.archives` ({page})",
        )
    return None


def application_ended(name: str) -> TryAgainError:
    """The error when the cluster has ended the driver's application; why stands in the driver's log alone, which the
    step that started it reads."""
    return TryAgainError(
        "APPLICATION_ENDED",
        "the cluster ended this run",
        next_run="goes on from the last staged batch; nothing is lost or doubled",
        fix=f"look at the master's page, then `tidegate run {name}`",
    )


def executors_lost(name: str, how: str) -> TryAgainError:
    """The error when executors do not last as long as a batch."""
    return TryAgainError(
        "EXECUTOR_LOST",
        f"executors were lost {how}",
        where=f"pipeline {name}",
        next_run="goes on from the last staged batch; nothing is lost or doubled",
        fix="look for what ends them in the workers' logs (memory: spark.executor.memory), then run again",
    )


def _line_with(word: str, text: str) -> str:
    return next((line.strip()[:400] for line in text.splitlines() if word in line), text[:400])


def _transform_failed(message: str, text: str, name: str, job_folder: Path) -> UsageError:
    return UsageError(
        "TRANSFORM_FAILED",
        message,
        where=_line_of_transform(text, job_folder) or str(job_folder),
        next_run="reads the same batch again and fails; nothing is lost",
        fix=f"correct the transform, then `tidegate run {name}`",
    )


def _line_of_transform(text: str, job_folder: Path) -> str | None:
    """The last file and line of the pipeline's folder that ``text`` names."""
    named = re.findall(rf"({re.escape(str(job_folder))}/[^\s\":]+)(?:\", line |:)(\d+)", text)
    return ":".join(named[-1]) if named else None
