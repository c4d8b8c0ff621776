"""From what Spark throws to an error that an operator can act on."""

from __future__ import annotations

import contextlib
import errno
import re
import shlex
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING

from tidegate import __version__
from tidegate.core.errors import TidegateError, TryAgainError, UsageError
from tidegate.core.storage import disk_full, name_cause, name_java_cause, not_permitted
from tidegate.sources import errors as sources_errors
from tidegate.sources.kafka.offsets import recreated_error
from tidegate.sources.readers.unreadable import DEFECT, REPLACED, PartUnreadable, RangeFault, RangeProblem, StoreFault
from tidegate.spark import errors
from tidegate.spark.driver.order import emit, write_result

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject


def user_line(error: BaseException, path: Path) -> str:
    """``file:line`` of the last frame of ``error`` that lies in the folder of the user's file, else the file alone."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).parent == path.parent:
            return f"{frame.filename}:{frame.lineno}"
    return str(path)


def first_lines(error: BaseException, limit: int = 600) -> str:
    """The head of an exception's text, without the Java trace or the query plan."""
    text = str(error).split("\n\tat ")[0].split("JVM stacktrace")[0].strip()
    lines = [line for line in text.splitlines() if line.strip()]
    kept = []
    for line in lines:
        if line.lstrip().startswith(("'Project", "Project [", "+-", "~", "== SQL", "Traceback")):
            break
        kept.append(line)
    return (" ".join(kept) or text)[:limit]


_LONGEST_CHAIN = 20
_PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"


@dataclass(frozen=True)
class Cause:
    """One error of the chain. ``kind`` is its class by its full name, ``condition`` Spark's error condition (such as
    ``FAILED_READ_FILE.NO_HINT``) and ``sql_state`` the SQLSTATE, "" where it has none."""

    kind: str
    condition: str
    sql_state: str
    text: str

    @property
    def is_of_python_code(self) -> bool:
        """Return whether it comes from Python code that ran on rows: its text is that code's."""
        if any(fault is not None for fault in (self.part_fault, self.range_fault, self.store_fault)):
            return False
        return self.kind == _PYTHON_EXCEPTION or self.condition.startswith("PYTHON_EXCEPTION")

    @property
    def part_fault(self) -> PartUnreadable | None:
        """The fault of a file that one of our readers could not read; None for another error."""
        return PartUnreadable.find(self.text)

    @property
    def range_fault(self) -> RangeFault | None:
        """Why records of a topic cannot be read; None for another error."""
        return RangeFault.find(self.text)

    @property
    def store_fault(self) -> StoreFault | None:
        """What an object store did not do for a worker; None for another error."""
        return StoreFault.find(self.text)

    @property
    def is_of_user(self) -> bool:
        """Return whether the transform threw it: Python code, ``raise_error``, or ``assert_true``."""
        return self.is_of_python_code or self.condition.startswith("USER_RAISED_EXCEPTION")


def read_causes(error: BaseException) -> list[Cause]:
    """The chain of causes of ``error``, from the outside in: the JVM's for what Spark threw, else Python's."""
    thrown = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if thrown is not None:
        return _read_java(thrown)
    causes: list[Cause] = []
    seen: BaseException | None = error
    while seen is not None and len(causes) < _LONGEST_CHAIN:
        if seen is not error and (getattr(seen, "_origin", None) or getattr(seen, "java_exception", None)) is not None:
            break  # another error of Spark's, in whose handling this one was raised
        kind = f"{type(seen).__module__}.{type(seen).__qualname__}"
        causes.append(Cause(kind, _ask(seen, "getCondition"), _ask(seen, "getSqlState"), str(seen)))
        seen = seen.__cause__
    return causes


def _read_java(thrown: JavaObject) -> list[Cause]:
    causes: list[Cause] = []
    while thrown is not None and len(causes) < _LONGEST_CHAIN:
        kind = str(thrown.getClass().getName())
        condition, sql_state = _ask(thrown, "getCondition"), _ask(thrown, "getSqlState")
        causes.append(Cause(kind, condition, sql_state, str(thrown.getMessage() or "")))
        thrown = thrown.getCause()
    return causes


def _ask(error: object, method: str) -> str:
    """Call a method of a Spark error; "" for an error without the method or without a result."""
    try:
        return str(getattr(error, method)() or "")
    except Exception:  # noqa: BLE001 - py4j asks the JVM, and no answer of it may replace the error that is explained
        return ""


_PYTHON_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Exit|Interrupt|Warning)\b")
NOT_UTF8 = "not valid UTF-8"
"""The end of the message for a text that a transform made of bytes."""
_DATA_EXCEPTION = "22"
"""The class of SQLSTATE for a value that an expression cannot take, such as a division by zero."""

_CONTEXT_ENDED = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")

_OTHER_SPARK = re.compile(
    r"java\.\S*(?:InvalidClassException|NoSuchMethodError|ClassNotFoundException|NoClassDefFoundError)"
    r"[^\n]{0,40}?org[./]apache[./]spark[^\n]{0,200}"
)

_OTHER_PYTHON = re.compile(r"^\s*pyspark\.\S*Error: \[PYTHON_VERSION_MISMATCH\]", re.MULTILINE)
"""At the beginning of a line: in the middle of one it may be a value that a transform quotes."""

_OTHER_TIDEGATE = re.compile(
    r"^\s*(?:ImportError: tidegate (\S+) is not the driver's"
    r"|AttributeError: Can't get attribute '\w+' on <module 'tidegate\.)",
    re.MULTILINE,
)
_NOT_IMPORTED = re.compile(r"^\s*(?:ModuleNotFoundError|ImportError|pyspark\.\S*ImportError): (.+)", re.MULTILINE)

_PARTITION_FOLDER = re.compile(r"/([^/=\s]+)=([^/]*)")
_LONGEST_VALUE = 200

_MEMORY_ERRORS = ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError")
_NO_PERMISSION = ("java.nio.file.AccessDeniedException", "org.apache.hadoop.security.AccessControlException")
_DENIED = ("(Permission denied)", "Mkdirs failed to create")
"""The words of the operating system, and of Hadoop where it hides them."""

_WORKER_LOST = ("Python worker exited unexpectedly", "PythonWorkerFactory.createWorker")
"""The one in the middle of its task, the other while it was started."""


def is_read_fault(error: BaseException) -> bool:
    """Return whether a file could not be read."""
    causes = read_causes(error)
    return any(
        one.part_fault is not None or one.condition.startswith(("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER"))
        for one in causes
    )


def is_object_fault(error: BaseException) -> bool:
    """Return whether a file that could not be read may be an object that was replaced or removed."""
    faults = [one.part_fault for one in read_causes(error)]
    return any(fault is not None and fault.errno in (REPLACED, errno.ENOENT) for fault in faults)


def is_row_fault(error: BaseException) -> bool:
    """Return whether the transform failed on a row: Python code, a raised error, a value that does not convert."""
    if explain_python(str(error), "") is not None:
        return False
    return any(one.is_of_user or one.sql_state.startswith(_DATA_EXCEPTION) for one in read_causes(error))


def name_row_fault(error: BaseException, job_folder: Path) -> str:
    """A fault of a row in few words, the same for all rows that fail alike: Spark's error condition, or the exception
    that Python code raised, with the line of the transform where it is known. The value is left to the record."""
    causes, text = read_causes(error), str(error)
    if any(one.is_of_python_code for one in causes):
        error_line = _PYTHON_ERROR.match(_last_python_error(text))
        what = error_line[0] if error_line else "PYTHON_EXCEPTION"
    else:
        cause = next(one for one in causes if one.is_of_user or one.sql_state.startswith(_DATA_EXCEPTION))
        raised = _text_raised(cause.text)
        what = raised if raised.endswith(NOT_UTF8) else f"[{cause.condition}]"
    line = _line_of_transform(text, job_folder)
    return what if line is None else f"{what} at {Path(line).name}"


class RowFailed(Exception):
    """The transform failed on a row: ``record`` describes the record, ``remedy`` a further fix."""

    def __init__(self, record: str, remedy: str = "") -> None:
        super().__init__(record)
        self.record, self.remedy = record, remedy


def explain(
    error: BaseException, name: str, job_folder: Path, state: Path, *, on_cluster: bool = False
) -> TidegateError:
    """The error to report for ``error``. A TidegateError is returned as it is."""
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
        next((TidegateError.from_dict(failed.error) for one in causes if (failed := one.store_fault)), None)
        or _explain_part(causes, state)
        or _explain_topic(causes, name, on_cluster=on_cluster)
        or _explain_memory(causes, name)
        or _explain_storage(error, causes, name, state)
        or (explain_cluster(str(error), name) if on_cluster else None)
        or _explain_value(causes, str(error), name, job_folder)
        or _explain_lost(error, causes, name)
        or _explain_partition(causes, name)
        or errors.INGEST_FAILED(
            where=f"{type(error).__name__} in the ingest driver of {name}", error=first_lines(error, 1500)
        )
    )


def answer(
    result: Path, work: Callable[[], Mapping[str, object]], explain_error: Callable[[BaseException], TidegateError]
) -> int:
    """Do the work of a driver, and write its figures or its error to ``result``; the exit code is the error's, or 0."""
    try:
        figures = work()
    except BaseException as error:  # noqa: BLE001 - however the driver ends, the step that started it gets an answer
        known = explain_error(error)
        emit("error", **known.to_dict())
        with contextlib.suppress(TidegateError, OSError):  # on a full disk there is no room for the answer either
            write_result(result, known)
        if not isinstance(error, TidegateError) and name_cause(error, result.parent) is None:
            traceback.print_exc()
        return known.exit_code
    write_result(result, None, **figures)
    emit("result", **figures)
    return 0


def _explain_memory(causes: Sequence[Cause], name: str) -> UsageError | None:
    """Too little memory; the step that started the driver knows how much it had (``spark/driver/submit.py``)."""
    cause = next((one for one in causes if one.kind in _MEMORY_ERRORS), None)
    if cause is None:
        return None
    fix = "raise `spark.driver.memory` (on a cluster `spark.executor.memory`)"
    return errors.OUT_OF_MEMORY(where=f"pipeline {name}", fault=cause.text[:200], fix=fix, name=name)


def _explain_part(causes: Sequence[Cause], state: Path) -> TidegateError | None:
    """The error of the operating system for a file that one of our readers was to read, or of the reader itself."""
    fault = next((found for one in causes if (found := one.part_fault) is not None), None)
    if fault is None or fault.errno is None:
        return None
    if fault.errno == DEFECT:
        fix = (
            "the file; to continue without it, move it out of the source's folder and remove its link (rm "
            f"{shlex.quote(fault.path)}), then run again: the file is then treated as deleted before it was read"
        )
        return errors.READER_FAILED(where=fault.path, input="this file", error=fault.reason, fix=fix)
    if fault.errno == errno.ENOENT:
        return errors.FILE_VANISHED(error=f"{fault.path}: {fault.reason}")
    if fault.errno == REPLACED:
        return sources_errors.FILE_CHANGING(changes=fault.reason)
    return name_cause(OSError(fault.errno, fault.reason, fault.path), state, state)


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
    for one in causes:
        if not one.is_of_user and (failed := name_java_cause(one.text, _named_paths(causes, state)[0])) is not None:
            return failed
    if any(one.condition.startswith("CONCURRENT_STREAM_LOG_UPDATE") for one in causes):
        return errors.CHECKPOINT_BUSY(where=str(state), name=name)
    unreadable = [
        one
        for one in causes
        if one.condition.startswith("CANNOT_LOAD_STATE_STORE")
        or ("STATE_STORE" in one.condition and "CHECKSUM" in one.condition)
    ]
    if unreadable:
        return errors.STATE_UNREADABLE(
            where=str(state / "checkpoint" / "state"), error=causes[-1].text[:400], name=name
        )
    return None


def _explain_topic(causes: Sequence[Cause], name: str, *, on_cluster: bool) -> TidegateError | None:
    """Records of a topic that could not be read. What the next run would name exactly is left to it."""
    fault = next((found for one in causes if (found := one.range_fault) is not None), None)
    if fault is None:
        return None
    where = f"{fault.where}, for pipeline {name}"
    problem = f"{fault.where}: {fault.reason}".removesuffix(": ")
    match fault.problem:
        case RangeProblem.LOST | RangeProblem.TRUNCATED:
            return errors.KAFKA_RECORDS_LOST(error=problem, name=name)
        case RangeProblem.TOPIC_RECREATED:
            return recreated_error(f"pipeline {name}", name, fault.where.topic)
        case RangeProblem.LOGIN:
            return sources_errors.KAFKA_LOGIN(where=where, address=fault.address, error=fault.reason)
        case RangeProblem.FORBIDDEN:
            return sources_errors.KAFKA_NOT_ALLOWED(
                where=where, attempt=f"read topic {fault.where.topic}", error=fault.reason
            )
        case RangeProblem.SETTINGS:
            return sources_errors.KAFKA_OPTIONS(where=where, faults=fault.reason)
        case RangeProblem.DAMAGED:
            return errors.KAFKA_DAMAGED(where=where, error=fault.reason)
        case RangeProblem.DEFECT:
            fix = "the records (kafka-console-consumer.sh --partition, --offset)"
            return errors.READER_FAILED(where=where, input="records of a topic", error=fault.reason, fix=fix)
        case RangeProblem.SILENT | RangeProblem.TOPIC_GONE:
            # A broker that starts again does not know its topics for a moment.
            hint = "; executors must reach it under the same address as this machine" if on_cluster else ""
            return errors.BROKER_STOPPED(where=f"pipeline {name}", error=problem, name=name, address_hint=hint)


def _explain_transform(causes: Sequence[Cause], text: str, name: str, job_folder: Path) -> UsageError:
    """Python code of the transform that failed, or an error that the transform raises on purpose."""
    if any(one.is_of_python_code for one in causes):
        failure, error = "Python code of the transform failed on a row", _last_python_error(text)[:400]
    else:
        error = _text_raised(next(one.text for one in causes if one.is_of_user))
        if error.endswith(NOT_UTF8):
            failure = "the transform makes text that other readers of the table cannot decode"
        else:
            failure, error = "the transform raised an error for a row", error[:400]
    return errors.TRANSFORM_FAILED_ON_ROW(where=_place(text, job_folder), failure=failure, error=error, name=name)


def _text_raised(text: str) -> str:
    return re.sub(
        r"^\[USER_RAISED_EXCEPTION[^\]]*\] | SQLSTATE: \w{5}\s*$", "", text.split("\n==", 1)[0].strip()
    ).strip()


def _last_python_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), lines[-1] if lines else "")


def _explain_value(causes: Sequence[Cause], text: str, name: str, job_folder: Path) -> UsageError | None:
    text_of_cause = next((one.text for one in causes if one.sql_state.startswith(_DATA_EXCEPTION)), None)
    if text_of_cause is None:
        return None
    message = re.sub(r" SQLSTATE: \w{5}$", "", text_of_cause.splitlines()[0][:400].strip())
    failure = "a row does not fit the transform"
    return errors.TRANSFORM_FAILED_ON_ROW(where=_place(text, job_folder), failure=failure, error=message, name=name)


def _explain_lost(error: BaseException, causes: Sequence[Cause], name: str) -> TryAgainError | None:
    """A file that is gone, or a Python worker that ended in the middle of its task."""
    if isinstance(error, FileNotFoundError) or any(
        one.kind == "java.io.FileNotFoundException" or one.condition.endswith("FILE_NOT_EXIST") for one in causes
    ):
        return errors.FILE_VANISHED(error=first_lines(error))
    if any(not one.is_of_user and any(word in one.text for word in _WORKER_LOST) for one in causes):
        return errors.PYTHON_WORKER_LOST(where=f"pipeline {name}", name=name)
    return None


def _explain_partition(causes: Sequence[Cause], name: str) -> UsageError | None:
    """A value of a partition column that cannot be the name of a folder: too long (255 bytes), or with a NUL in it."""
    found = [folder for one in causes for folder in _PARTITION_FOLDER.findall(one.text)]
    failing = [one for one in found if len(one[1].encode()) > _LONGEST_VALUE or "%00" in one[1] or "\0" in one[1]]
    if not failing:
        return None
    column, value = failing[-1]
    return errors.PARTITION_VALUE(
        where=f"a row of pipeline {name}", column=column, size=len(value.encode()), beginning=value[:60], name=name
    )


def explain_other_spark(text: str, name: str) -> UsageError | None:
    """An executor that could not make sense of what this driver's Spark sent it; None for all else."""
    found = _OTHER_SPARK.search(text)
    if found is None:
        return None
    return errors.SPARK_DIFFERS(where=f"an executor of pipeline {name}", version=version("pyspark"), error=found[0])


def explain_cluster(text: str, name: str) -> TidegateError | None:
    """The error for a failure that only a cluster's executors can have; None for any other failure."""
    if any(words in text for words in _CONTEXT_ENDED):
        return application_ended(name)
    if known := explain_other_spark(text, name) or explain_python(text, name):
        return known
    if "ExecutorLostFailure" in text or "Lost executor" in text or "FetchFailed" in text:
        how = f"again and again: {_line_with('ExecutorLostFailure', text)}"
        return errors.EXECUTOR_LOST(where=f"pipeline {name}", how=how)
    return None


def explain_python(text: str, name: str) -> UsageError | None:
    """An executor whose Python or tidegate is missing or another one, or that lacks a module; None for all else."""
    if _OTHER_PYTHON.search(text):
        versions = re.search(r"version: (\S+) than that in driver: ([\d.]+\d)", text)
        there, here = versions.groups() if versions else ("another version", python_version())
        return errors.PYTHON_DIFFERS(where=f"an executor of pipeline {name}", there=there, here=here)
    if missing := re.search(r'Cannot run program "([^"]+)"', text):
        return errors.PYTHON_MISSING(where=f"an executor of pipeline {name}", first_missing=missing[1])
    if other := _OTHER_TIDEGATE.search(text):
        there = other[1] or "of another version"
        return errors.VERSION_DIFFERS(where=f"an executor of pipeline {name}", there=there, here=__version__)
    if lost_module := _NOT_IMPORTED.search(text):
        return errors.MODULE_MISSING(where=f"an executor of pipeline {name}", first_lost_module=lost_module[1])
    return None


def application_ended(name: str) -> TryAgainError:
    """The error when the cluster has ended the driver's application; the reason is only in the driver's log, which the
    step that started it reads."""
    return errors.APPLICATION_ENDED(master="the cluster", reason="", name=name)


def _line_with(word: str, text: str) -> str:
    return next((line.strip()[:400] for line in text.splitlines() if word in line), text[:400])


def _place(text: str, job_folder: Path) -> str:
    """The line of the transform that ``text`` names, or its file, or the folder where that is not clear."""
    files = [job_folder / name for name in ("transform.py", "transform.sql") if (job_folder / name).is_file()]
    return _line_of_transform(text, job_folder) or str(files[0] if len(files) == 1 else job_folder)


def _line_of_transform(text: str, job_folder: Path) -> str | None:
    """The last file and line of the pipeline's folder that ``text`` names."""
    named = re.findall(rf"({re.escape(str(job_folder))}/[^\s\":]+)(?:\", line |:)(\d+)", text)
    return ":".join(named[-1]) if named else None
