"""A YAML file as plain data that keeps the line of each key.

YAML is read as version 1.2 has it: only ``true`` and ``false`` are truth values, a time stamp is text, ``010`` is ten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from tidegate.spec.faults import Fault, show_value, sounds_secret

KeyPath = tuple[str | int, ...]
T = TypeVar("T")

_LARGEST_BYTES = 1 << 20
_MOST_VALUES = 100_000
_DEEPEST = 64
_TOO_DEEP = f"the values are nested more than {_DEEPEST} levels deep"
_SHORTEST_HIDDEN = 4
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """The safe loader with YAML 1.2's plain scalars."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("merge", r"^<<$", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


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

    ``written`` keeps the text of values as they stand in the file where the environment filled something in, so that
    no error ever shows what came from the environment. ``variables`` names the variables that set one key,
    in place of a line.
    """

    file: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)
    variables: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

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
        self.faults.append(Fault(file, line, name_path(path), self.hide_filled(message), fix, code))

    def add_findings(self, findings: Iterable[Finding], code: str = "BAD_SPEC") -> None:
        """Note what checks across keys found, except at keys that have a fault already."""
        noted = {fault.key for fault in self.faults}
        for path, message, fix, own_code in findings:
            if name_path(path) not in noted:
                self.add_fault(path, message, self.hide_filled(fix), own_code or code)

    def hide_filled(self, text: str) -> str:
        """``text`` with values that came from the environment as they are written in the file: ``${VAR}``.

        A plain word such as ``local`` is left alone outside of quotes, unless its key holds a secret: it is as often a
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


def read_document(path: Path, file: str) -> Document:
    """Read a YAML file whose top level is a mapping. ``file`` is the name that faults carry.

    Never raises for what is in the file: the faults are in the result. Raises OSError when it cannot be read.
    """
    data = path.read_bytes()
    return parse_document(data, file)


def parse_document(data: bytes, file: str) -> Document:
    """As :func:`read_document`, from bytes."""
    document = Document(file)

    def refuse(message: str, fix: str, line: int | None = None) -> Document:
        document.faults.append(Fault(file, line, "", message, fix))
        return document

    if len(data) > _LARGEST_BYTES:
        return refuse(f"the file has {len(data)} bytes", f"keep it under {_LARGEST_BYTES} bytes")
    try:
        node = yaml.compose(data.decode("utf-8-sig"), Loader=_Loader)
    except UnicodeDecodeError as error:
        return refuse("the file is not UTF-8 text", "save it as UTF-8", data.count(b"\n", 0, error.start) + 1)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else None
        return refuse(f"not YAML: {message}", "correct the line, or quote the text", line)
    except RecursionError:
        return refuse(_TOO_DEEP, "correct the file")
    except yaml.YAMLError as error:
        return refuse(f"not YAML: {error}".splitlines()[0], "correct the file")
    document.lines[()] = 1
    if node is None:
        document.data = {}
        return document
    if not isinstance(node, yaml.MappingNode):
        return refuse("the file is not a mapping", "write it as `key: value` lines", node.start_mark.line + 1)
    _Reader(document).read_root(node)
    return document


class _Reader:
    """Walks the nodes once, noting lines and faults."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._open: set[int] = set()
        self._count = 0

    def read_root(self, node: yaml.Node) -> None:
        try:
            self._document.data = self._read(node, ())
        except OverflowError:
            self._fault(node, (), "the anchors of the file repeat themselves without end", "write the values out")
        except RecursionError:
            self._fault(node, (), _TOO_DEEP, "correct the file")

    def _fault(self, node: yaml.Node, path: KeyPath, message: str, fix: str) -> None:
        self._document.faults.append(
            Fault(self._document.file, node.start_mark.line + 1, name_path(path), message, fix)
        )

    def _read(self, node: yaml.Node, path: KeyPath) -> object:
        self._count += 1
        if id(node) in self._open or self._count > _MOST_VALUES:
            raise OverflowError
        if len(path) > _DEEPEST:
            raise RecursionError
        if isinstance(node, yaml.ScalarNode):
            return self._read_scalar(node, path)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return self._read_list(node, path)
            assert isinstance(node, yaml.MappingNode), "there is no fourth kind"
            return self._read_mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _read_list(self, node: yaml.SequenceNode, path: KeyPath) -> list[object]:
        result = []
        for index, item in enumerate(node.value):
            self._document.lines[(*path, index)] = item.start_mark.line + 1
            result.append(self._read(item, (*path, index)))
        return result

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        result: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged = {**self._read_merge(value_node, path), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a key is a list or a mapping", "write a name as the key")
                continue
            key = key_node.value
            here = (*path, key)
            if key in result:
                first = self._document.lines[here]
                self._fault(key_node, here, f"the key is written twice, first in line {first}", "keep one of the two")
                continue
            self._document.lines[here] = line
            result[key] = self._read(value_node, here)
        for key, value in merged.items():
            result.setdefault(key, value)
        return result

    def _read_merge(self, node: yaml.Node, path: KeyPath) -> dict[str, object]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for part in parts:
            value = self._read(part, path)
            if not isinstance(value, dict):
                self._fault(part, path, f"<< names {show_value(value)}", "merge a mapping: `<<: *anchor`")
                continue
            for key, item in value.items():
                result.setdefault(key, item)
        return result

    def _read_scalar(self, node: yaml.ScalarNode, path: KeyPath) -> object:
        kind = node.tag.rpartition(":")[2]
        text = node.value
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            if kind == "int":
                return int(text)
            if kind == "float":
                return float(text)
        except ValueError:
            kind = ""
        if kind != "str":
            self._fault(node, path, f"the tag {node.tag} is not allowed", "write a plain value")
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
