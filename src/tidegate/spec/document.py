"""A YAML file as plain data that keeps the line of each key (:mod:`tidegate.spec.yaml_file` reads it)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tidegate.spec.faults import Fault, show_value, sounds_secret

KeyPath = tuple[str | int, ...]
T = TypeVar("T")

_SHORTEST_HIDDEN = 4
_OF_ANY_NAME = {("kafka", "options"), ("spark", "conf"), ("alerts", "notify")}
"""Mappings with names that are not ours: what their values are cannot be known."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Finding(NamedTuple):
    """What a check across keys found in a model, at ``path``; its line is added where the file is at hand."""

    path: KeyPath
    message: str
    fix: str
    code: str | None = None
    """The code of the fault, where it is not the one of the whole check."""


@dataclass
class Document:
    """What a file says. ``data`` is None when the file cannot be read as YAML; ``faults`` then says why.

    ``written`` keeps the text of values as they are in the file where the environment filled something in, so that
    no error shows what came from the environment, except the value that is wrong. ``variables`` names the variables
    that set one key, in place of a line.
    """

    file: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)
    variables: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    left_out: list[tuple[KeyPath, int]] = field(default_factory=list)
    """Entries of lists, in order, that could not be read: a model lacks them."""

    def find_place(self, path: KeyPath) -> tuple[str, int | None]:
        """Where a key was set: the file with the line, or the variable of the environment."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.variables:
                return f"environment variable {self.variables[path[:length]]}", None
        return self.file, self.find_line(path)

    def find_line(self, path: KeyPath) -> int | None:
        """The line of a key, or of the nearest key around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def find_value(self, path: KeyPath) -> object:
        """The value at ``path`` as written in the file. Raises LookupError when there is none."""
        if path in self.written:
            return self.written[path]
        value = self.data
        for part in path:
            is_inside = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
            if not is_inside:
                raise LookupError(path)
            value = value[part]
        return value

    def rename(self, old: KeyPath, new: KeyPath) -> None:
        """Call a key by another name from now on: it was misspelt, and what is in it stays in its place."""
        holder = self.data
        for part in old[:-1]:
            holder = holder[part]
        holder[new[-1]] = holder.pop(old[-1])
        self.lines = _rename(self.lines, old, new)
        self.written = _rename(self.written, old, new)
        self.variables = _rename(self.variables, old, new)

    def show(self, path: KeyPath) -> str:
        """The value at ``path`` as an error may show it."""
        try:
            return show_value(self.find_value(path), name_path(path))
        except LookupError:
            return "the default"

    def add_fault(self, path: KeyPath, message: str, fix: str, code: str = "BAD_SPEC") -> None:
        """Note a fault at a key."""
        file, line = self.find_place(path)
        message = self.hide_filled(message) + self._describe_filled(path)
        self.faults.append(Fault(file, line, name_path(path), message, fix, code))

    def _describe_filled(self, path: KeyPath) -> str:
        """The value that the environment gave a key; nothing where it may be, or hold, a secret."""
        written = self.written.get(path, "")
        if not written or path[:2] in _OF_ANY_NAME or sounds_secret(f"{name_path(path)} {written}"):
            return ""
        value = self.data
        for part in path:
            value = value[part]
        return "" if "@" in str(value) else f"; {written} is {show_value(value)}"

    def add_findings(self, findings: Iterable[Finding], code: str = "BAD_SPEC") -> None:
        """Note what checks across keys found, except at keys that have a fault already."""
        noted = {fault.key for fault in self.faults}
        for found, message, fix, own_code in findings:
            path = self._count_left_out(found)
            if name_path(path) not in noted:
                self.add_fault(path, message, self.hide_filled(fix), own_code or code)

    def _count_left_out(self, path: KeyPath) -> KeyPath:
        """The path in the file of an entry of a model."""
        for depth, part in enumerate(path):
            for holder, index in self.left_out:
                if holder == path[:depth] and isinstance(part, int) and index <= part:
                    part += 1
            path = (*path[:depth], part, *path[depth + 1 :])
        return path

    def hide_filled(self, text: str) -> str:
        """``text`` with values that came from the environment as they are written in the file: ``${VAR}``.

        A plain word such as ``local`` is not hidden outside of quotes, unless its key holds a secret: it is as often a
        word of the sentence.
        """
        for path, written in self.written.items():
            value = self.data
            for part in path:
                value = value[part]
            text = text.replace(repr(value), repr(written))
            if len(value) >= _SHORTEST_HIDDEN and (sounds_secret(name_path(path)) or not value.isalpha()):
                text = text.replace(value, written)
        return text


def _rename(known: dict[KeyPath, T], old: KeyPath, new: KeyPath) -> dict[KeyPath, T]:
    return {(*new, *path[len(old) :]) if path[: len(old)] == old else path: value for path, value in known.items()}


def name_path(path: KeyPath) -> str:
    """``("sources", "trades", "topics", 0)`` as ``sources.trades.topics[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def fill_variables(document: Document, environment: Mapping[str, str], code: str = "BAD_PROJECT") -> None:
    """Put the environment into every text of ``document``: ``${VAR}``, and ``${VAR:-default}`` for unset or empty.

    It happens after parsing, so nothing in a variable can add keys. A variable that is not set becomes a fault.
    """

    def fill(value: object, path: KeyPath) -> object:
        if isinstance(value, dict):
            return {key: fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value

        def replace(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            found = environment.get(name)
            if default is not None:
                return found or default
            if found is None:
                document.add_fault(
                    path,
                    f"the environment variable {name} is not set",
                    f"export {name}=..., or write ${{{name}:-default}}",
                    code,
                )
                return ""
            return found

        filled = _VARIABLE.sub(replace, value)
        if "${" in _VARIABLE.sub("", value):
            shown = show_value(value, name_path(path))
            document.add_fault(
                path, f"{shown} has a ${{ that names no variable", "write ${VAR} or ${VAR:-default}", code
            )
        if filled != value:
            document.written[path] = value
        return filled

    document.data = fill(document.data, ())


def names_variable(text: str) -> bool:
    """Return whether ``text`` holds a ``${VAR}``."""
    return _VARIABLE.search(text) is not None
