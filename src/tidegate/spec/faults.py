"""Faults of a file that a person wrote: all of them at once, each with line, value, nearest allowed name and fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.errors import UsageError
from tidegate.core.words import count_of

if TYPE_CHECKING:
    from tidegate.core import outputs

STORAGE_NOT_SUPPORTED = "STORAGE_NOT_SUPPORTED"
_SHORT = 4
"""A word of so many letters is in many others: ``tag`` was not meant to be ``betrag``."""
_SECRET_WORDS = re.compile(
    r"passw|secret|token|credential|jaas|private|keystore\.key|(?:access|account|api)\.?key|sasl\.username",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fault:
    """One thing wrong in one file. ``file`` is relative to the project root, ``line`` counts from 1 (None: whole file).

    ``key`` is the dotted path of the key, ``message`` says what is wrong with the value in it, ``fix`` what to write.
    """

    file: str
    line: int | None
    key: str
    message: str
    fix: str
    code: str = "BAD_SPEC"

    @property
    def where(self) -> str:
        """``file:line``, the form editors and terminals make a link of."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        subject = f"{self.key}: " if self.key else ""
        return f"{self.where}: {subject}{self.message}\n    fix: {self.fix}"

    def to_dict(self) -> outputs.Fault:
        """The fault as ``--json`` carries it."""
        return {
            "code": self.code,
            "file": self.file,
            "line": self.line,
            "key": self.key,
            "message": self.message,
            "fix": self.fix,
        }


class SpecError(UsageError):
    """Files that cannot be used, with every fault found in them (``faults``, in the order of the lines)."""

    def __init__(self, faults: Iterable[Fault], *, fix: str) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: (fault.file, fault.line or 0)))
        codes = {fault.code for fault in self.faults}
        plain = codes - {STORAGE_NOT_SUPPORTED} or codes
        code = plain.pop() if len(plain) == 1 else "BAD_SPEC"
        files = sorted({fault.file for fault in self.faults})
        count = count_of(len(self.faults), "fault")
        lines = "\n".join(f"  {line}" for fault in self.faults for line in str(fault).splitlines())
        super().__init__(
            code,
            f"{count} in {', '.join(files)}\n{lines}",
            where=self.faults[0].where,
            next_run="fails again until this is fixed; nothing was read or written",
            fix=fix,
        )

    def to_dict(self) -> outputs.Error:
        """The error with its faults one by one."""
        return {**super().to_dict(), "faults": [fault.to_dict() for fault in self.faults]}


def name_nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that ``word`` was probably meant to be, or None."""
    names = list(allowed)
    folded = {name.lower().replace("_", "").replace("-", ""): name for name in reversed(names)}
    plain = word.lower().replace("_", "").replace("-", "")
    if plain in folded:
        return folded[plain]
    alike = [name for name in folded if min(len(name), len(plain)) > _SHORT or abs(len(name) - len(plain)) <= 1]
    found = difflib.get_close_matches(plain, alike, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def suggest(word: str, allowed: Collection[str], label: str = "allowed") -> str:
    """The fix for a name that is not known: the nearest one, or all of them."""
    nearest = name_nearest(word, allowed)
    return f"write {nearest}" if nearest else f"{label}: {', '.join(allowed)}"


def describe_allowed(word: str, allowed: Sequence[str]) -> str:
    """The fix for a name that is not known: the nearest one, and all of them when they are few."""
    nearest = name_nearest(word, allowed)
    if not allowed:
        return "remove it: nothing is allowed here"
    everything = f"allowed: {', '.join(allowed)}"
    return f"write {nearest}; {everything}" if nearest else everything


def show_value(value: object, key: str = "") -> str:
    """A value as an error may show it: short, on one line, and never a secret."""
    if sounds_secret(key):
        return "(hidden)"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def sounds_secret(name: str) -> bool:
    """Return whether the value of a setting, a variable or a key of this name must be hidden. Rather one too many."""
    return _SECRET_WORDS.search(re.sub(r"[_-]", ".", name)) is not None
