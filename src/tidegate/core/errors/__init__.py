"""The classes of errors, and how an entry of the catalogue (:mod:`tidegate.core.errors.catalogue`) becomes an error.

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

import string
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

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
        return "\n".join(lines)

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
    """An entry of the catalogue: an error with fields, ``{name}``, in its texts. Called with their values it makes the
    error; ``where`` is the file, line, topic or batch, which only the caller knows."""

    def __init__(
        self, code: str, kind: type[E], message: str, *, next_run: str | None = None, fix: str | None = None
    ) -> None:
        self.code, self.kind = code, kind
        self.message, self.next_run, self.fix = message, next_run, fix

    @property
    def fields(self) -> set[str]:
        """The names of the values that a call must give; tests/unit/core/errors compares every call."""
        texts = filter(None, (self.message, self.next_run, self.fix))
        return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}

    def __call__(self, *, where: str | None = None, **values: object) -> E:
        """The error, to be raised."""
        return self.kind(
            self.code,
            self.message.format(**values),
            where=where,
            next_run=None if self.next_run is None else self.next_run.format(**values),
            fix=None if self.fix is None else self.fix.format(**values),
        )
