"""From what Spark throws to an error that an operator can act on."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from tidegate.errors import DefectError, DisagreementError, SourceLostError, TidegateError, TryAgainError, UsageError
from tidegate.storage import disk_full
from tidegate.transform.text import first_lines

_PYTHON_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Exit|Interrupt|Warning)\b")
# What SQL calls a data exception: a value that an expression cannot take, such as a division by zero.
_DATA_EXCEPTION = re.compile(r"SQLSTATE: 22\w{3}")

_READ_FAULTS = ("FAILED_READ_FILE", "FileNotFoundException", "EOFException", "ZipException", "CSV header")


def is_read_fault(error: BaseException) -> bool:
    """Whether Spark stumbled over a file it could not read."""
    text = str(error)
    return any(word in text for word in _READ_FAULTS)


def explain(error: BaseException, name: str, job_folder: Path, state: Path) -> TidegateError:
    """The error to report. A TidegateError stays what it is."""
    if isinstance(error, TidegateError):
        return error
    text = str(error)
    if (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)) or "No space left" in text:
        return disk_full(state)
    if "CONCURRENT_STREAM_LOG_UPDATE" in text or "ConcurrentModificationException" in text:
        return TryAgainError(
            "CHECKPOINT_BUSY",
            "another process wrote the checkpoint of this pipeline at the same time",
            where=str(state),
            next_run="goes on from what was committed; nothing is lost or doubled",
            fix=f"`tidegate status {name}` shows who holds the lease; then run again",
        )
    if "KAFKA_DATA_LOSS" in text or "OffsetOutOfRange" in text or "UnknownTopicOrPartition" in text:
        return SourceLostError(
            "KAFKA_RECORDS_LOST",
            f"the broker no longer has what this run planned to read: {first_lines(error)}",
            next_run="compares the offsets owed with those retained, and names the exact ranges",
            fix=f'`tidegate plan {name}` shows what is gone; `tidegate run {name} --accept-loss "reason"` goes on',
        )
    if "TimeoutException" in text and "kafka" in text.lower():
        return TryAgainError(
            "BROKER_AWAY",
            f"the Kafka broker stopped answering: {first_lines(error)}",
            next_run="goes on from the last staged batch",
            fix="bring the broker back, then run again",
        )
    if "CANNOT_LOAD_STATE_STORE" in text or ("STATE_STORE" in text and "CHECKSUM" in text):
        causes = [line.strip() for line in text.splitlines() if line.startswith("Caused by") or "STATE_STORE" in line]
        return DisagreementError(
            "STATE_UNREADABLE",
            f"the state of the query cannot be read: {(causes[-1] if causes else first_lines(error))[:400]}",
            where=str(state / "checkpoint" / "state"),
            next_run="fails in the same way; nothing was published, and nothing is lost as long as the sources have it",
            fix=f"restore state, table and quarantine of {name} from the same time; or `tidegate repair {name} "
            "--rebuild` (`--dry-run` tells what that reads)",
        )
    if "PythonException" in text or "PYTHON_EXCEPTION" in text or "Traceback (most recent call last)" in text:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), lines[-1])
        return _transform_failed(f"Python code of the transform failed on a row: {cause[:400]}", text, name, job_folder)
    if _DATA_EXCEPTION.search(text):
        told = next((line for line in text.splitlines() if _DATA_EXCEPTION.search(line)), first_lines(error))
        start = max(told.rfind(" ["), told.rfind(": [")) + 1
        return _transform_failed(f"a row does not fit the transform: {told[start:400].strip()}", text, name, job_folder)
    if isinstance(error, FileNotFoundError) or "FileNotFoundException" in text or "FILE_NOT_EXIST" in text:
        return TryAgainError(
            "FILE_VANISHED",
            f"a file vanished before it was read: {first_lines(error)}",
            next_run="names the files that are gone for good",
            fix="run again",
        )
    return DefectError(
        "INGEST_FAILED",
        first_lines(error, 1500),
        where=f"{type(error).__name__} in the ingest driver of {name}",
        next_run="reads the same batch again; nothing is lost",
        fix="the Spark log above has the whole trace; correct the cause, or report it, then run again",
    )


def _transform_failed(message: str, text: str, name: str, job_folder: Path) -> UsageError:
    named = re.findall(rf"({re.escape(str(job_folder))}/[^\s\":]+)(?:\", line |:)(\d+)", text)
    return UsageError(
        "TRANSFORM_FAILED",
        message,
        where=":".join(named[-1]) if named else str(job_folder),
        next_run="reads the same batch again and fails in the same way; nothing is lost",
        fix=f"correct the transform, then `tidegate run {name}`",
    )
