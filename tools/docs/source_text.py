"""Texts as they stand in the sources: f-strings and joined literals, with what they fill in as ``{name}``."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_DEEP = 6


def find_local_values(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """Names that are assigned once, with what is assigned."""
    found: dict[str, ast.expr] = {}
    twice = set()
    for node in nodes:
        target, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        if isinstance(target, ast.Name) and value is not None:
            if target.id in found:
                twice.add(target.id)
            found[target.id] = value
    return {name: value for name, value in found.items() if name not in twice}


class Renderer:
    """Renders expressions that make a text; names in ``local`` are looked up where they hold a text."""

    def __init__(self, local: dict[str, ast.expr]) -> None:
        self._local = local

    def render(self, node: ast.expr, deep: int = 0) -> str:
        """The text that ``node`` makes, as far as the source tells."""
        if deep > _DEEP:
            return "…"
        if isinstance(node, ast.Constant):
            return "" if node.value is None else str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._part(part, deep) for part in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.render(node.left, deep + 1) + self.render(node.right, deep + 1)
        if isinstance(node, ast.IfExp):
            return self._either(node, deep)
        if isinstance(node, ast.Name) and _is_text(self._local.get(node.id)):
            return self.render(self._local[node.id], deep + 1)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("format", "replace")
        ):
            return self.render(node.func.value, deep + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "scrub":
            return self.render(node.args[0], deep + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "count_of":
            noun = self.render(node.args[-1], deep + 1)  # the plural, where one is given
            return f"{_placeholder(node.args[0])} {noun}{'s' if len(node.args) == 2 else ''}"
        return _placeholder(node)

    def _part(self, part: ast.expr, deep: int) -> str:
        if not isinstance(part, ast.FormattedValue):
            return self.render(part, deep)
        inner = part.value
        if isinstance(inner, ast.IfExp):
            return self._either(inner, deep)
        if isinstance(inner, ast.Name) and _is_text(self._local.get(inner.id)):
            return self.render(self._local[inner.id], deep + 1)
        if isinstance(inner, ast.Call):
            return self.render(inner, deep)
        return _placeholder(inner)

    def _either(self, node: ast.IfExp, deep: int) -> str:
        body, other = self.render(node.body, deep + 1), self.render(node.orelse, deep + 1)
        if not body.strip() or not other.strip():
            return f"[{(body or other).strip()}]" + (" " if (body or other).endswith(" ") else "")
        return f"({body.strip()} / {other.strip()})" if len(body) + len(other) < 120 else f"{body} / {other}"


def _is_text(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _is_text(node.left))


def _placeholder(node: ast.expr) -> str:
    name = _name(node)
    return f"{{{name}}}" if name else "…"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id.strip("_").lower()
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_").lower()
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Call):
        return _name_of_call(node)
    return ""


def _name_of_call(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
        if node.func.attr == "join" and node.args:
            return _name(node.args[0])
        return _name(node.func.value) if not node.args else ""
    if isinstance(node.func, ast.Name) and node.args and node.func.id in ("len", "sum"):
        return "number"
    if isinstance(node.func, ast.Name) and len(node.args) == 2 and node.func.id == "map":
        return _name(node.args[1])
    return _name(node.args[0]) if node.args else ""
