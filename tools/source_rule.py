"""Which places outside the source port ask a source for its kind, instead of leaving that to the port.

The models of the kinds and the checks of a spec (``spec``), the port (``sources``) and how Spark reads them
(``spark/reading/frames.py``) may: they are where a new kind is added.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

KINDS = {"FilesSource", "KafkaSource", "KeptSource", "RateSource", "SocketSource", "SpooledSource", "TextsSource"}
PORTS = {"FilesArrival", "FilesStream", "KafkaArrival", "KafkaStream", "ReceivedStream", "StaticFiles", "StaticTopics"}
MAY = ("spec/", "sources/", "spark/reading/frames.py")


def list_questions(source: Path) -> list[tuple[str, str, int]]:
    """(file, text, line) of each question for a kind below ``source``, the folder of the package."""
    found = []
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix()
        if not name.startswith(MAY):
            found += [(name, *one) for one in find_questions(ast.parse(file.read_text(encoding="utf-8")))]
    return found


def find_questions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(text, line) of each ``isinstance``, comparison of a type or ``match`` that names a kind; also by the key
    ``type`` of a spec, as a text."""
    for node in ast.walk(tree):
        asks = isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
        if (asks or isinstance(node, ast.Compare | ast.MatchClass)) and _names_kind(node):
            yield ast.unparse(node), node.lineno


def _names_kind(node: ast.AST) -> bool:
    names = {ast.unparse(one).rpartition(".")[2] for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
    is_type = isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(("source.type", "origin.type"))
    return bool(names & (KINDS | PORTS)) or is_type
