"""The causes of an error that Spark throws: a chain, each cause with its class and Spark's error condition.

Texts are for people. They also hold messages of the user's code, so nothing is decided by a word in them: a
transform that fails with "Kafka TimeoutException" is itself at fault, not a broker that is away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.sources.readers.unreadable import PartUnreadable, RangeFault

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

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
        """Whether it comes from Python code that ran on rows: its text is that code's."""
        if self.part_fault is not None or self.range_fault is not None:
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
    def is_of_user(self) -> bool:
        """Whether the transform threw it: Python code, ``raise_error``, or ``assert_true``."""
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
