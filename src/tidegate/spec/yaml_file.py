"""Reads YAML files.

YAML is read as version 1.2 has it: only ``true`` and ``false`` are truth values, a time stamp is text, ``010`` is ten.
Apart from :mod:`tidegate.spec.document`: Spark's workers have models, and read no YAML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tidegate.spec.document import Document, KeyPath, name_path
from tidegate.spec.faults import Fault, show_value

_LARGEST_BYTES = 1 << 20
_MOST_VALUES = 100_000
_DEEPEST = 64
_TOO_DEEP = f"the values are nested more than {_DEEPEST} levels deep"

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
        line = mark.line + 1 if mark else None
        if line and re.search(rb"^ *\t", b"".join(data.splitlines()[line - 1 : line])):
            return refuse("not YAML: the line is indented with a tab", "use spaces", line)
        message = " ".join(part for part in (error.context, error.problem) if part)
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
