"""``errors.md``: every error code that the sources can raise, with its message and its fix, read from their syntax."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tidegate import errors
from tools.console import REPO_ROOT
from tools.docs.markdown import MADE, code, table
from tools.docs.source_text import Renderer, find_local_values

SOURCES = REPO_ROOT / "src" / "tidegate"
_CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_FAULT = re.compile(r"BAD_(SPEC|PROJECT|SUITE|TRANSFORM|SINK)|\w+_NOT_SUPPORTED|NOT_SUPPORTED_YET|LITERAL_SECRET")
_CLASSES = {
    kind.__name__: kind.exit_code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.TidegateError)
}
FILE_FAULTS = {
    "BAD_SPEC": "`pipeline.yaml` cannot be used; every fault is listed with its line, the value and what to write",
    "BAD_PROJECT": "`tidegate.yaml` cannot be used; every fault is listed with its line, the value and what to write",
    "BAD_SUITE": "`expectations/<pipeline>.yaml` cannot be used: a type that Great Expectations does not know, a wrong "
    "argument, an empty suite; every fault is listed with its line",
    "BAD_TRANSFORM": "`transform.py` or `transform.sql` does not fit the spec; every fault is listed with its line",
    "BAD_SINK": "a file that a sink names does not fit (it is missing, no Python, or lacks the function or class), or "
    "the rows lack a column that a sink takes, or have it in another type; "
    "every fault is listed with its line",
    "NOT_SUPPORTED_YET": "the spec is sound, but asks for something this version does not do; see spec.md",
    "LITERAL_SECRET": "`validate` alone: a secret is written out in `tidegate.yaml`, or stands in a `pipeline.yaml`, "
    "where the environment is not filled in; write it in `tidegate.yaml` as `${VAR}`",
    "STORAGE_NOT_SUPPORTED": "a path is a URI; only folders of the local file system are supported",
}
"""Codes of faults of files: they are raised together as one SpecError (exit code 64), with the lines as message."""


@dataclass(frozen=True)
class RaiseSite:
    """One place that makes an error."""

    code: str
    exit_code: int
    message: str
    fix: str


def find_raise_sites(root: Path = SOURCES) -> list[RaiseSite]:
    """Every call of an error class with a code, also through a module's own function that passes the code on."""
    sites: list[RaiseSite] = []
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        sites += _Module(tree).sites()
    return sorted(set(sites), key=lambda site: (site.exit_code, site.code, site.message, site.fix))


def list_fault_codes(root: Path = SOURCES) -> set[str]:
    """Codes that stand in the sources as faults of a file, not as errors of their own."""
    found = set()
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FAULT.fullmatch(node.value):
                found.add(node.value)
    return found


def render_errors() -> str:
    """The page."""
    sites = find_raise_sites()
    parts = [
        MADE,
        "# Errors\n",
        "Every error has a code, says what happened, where, what the next run will do, and what fixes it. The same "
        "text stands on stderr, at the end of an Airflow task's log, in the run report (`error`) and, with `--json`, "
        "on stdout. `{name}` stands for a value, `…` for a longer part of the text that depends on the case.\n",
        "What to do at night: [how-to/recover.md](../how-to/recover.md).\n",
    ]
    headings = {
        64: "64: wrong use, or a bad spec",
        65: "65: held by the gate",
        66: "66: the source lost, or never had, what is asked",
        70: "70: a defect of tidegate",
        75: "75: try again",
        78: "78: checkpoint, table and spec disagree",
    }
    exit_codes = sorted({site.exit_code for site in sites} | {64})
    for exit_code in exit_codes:
        parts.append(f"## {headings[exit_code]}\n")
        mine = [site for site in sites if site.exit_code == exit_code]
        if exit_code == 64:
            parts += ["Faults of files, all of a file at once:\n", table(["code", "says"], _fault_rows())]
        rows = []
        last = ""
        for site in mine:
            shown = code(site.code) if site.code != last else ""
            last = site.code
            rows.append([shown, site.message, site.fix])
        parts.append(table(["code", "message", "fix"], rows))
    return "\n".join(parts)


def _fault_rows() -> list[list[str]]:
    found = list_fault_codes()
    if missing := found ^ set(FILE_FAULTS):
        raise KeyError(f"fault codes and their descriptions differ in {sorted(missing)}: correct tools/docs/errors.py")
    return [[code(name), text] for name, text in FILE_FAULTS.items()]


class _Module:
    """The error calls of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._constants = find_local_values(tree.body)
        self._wrappers = self._find_wrappers()

    def sites(self) -> list[RaiseSite]:
        found: list[RaiseSite] = []
        for function, call in _calls(self._tree):
            local = self._constants | (find_local_values(ast.walk(function)) if function is not None else {})
            name = _called_name(call)
            if name in _CLASSES:
                found += self._site(name, _arguments(call, ("code", "message")), local)
            elif name in self._wrappers:
                wrapper, kind, inner = self._wrappers[name]
                given = _arguments(call, tuple(argument.arg for argument in wrapper.args.args))
                given |= {key: value for key, value in inner.items() if key not in given}
                found += self._site(kind, given, local)
        return found

    def _site(self, kind: str, arguments: dict[str, ast.expr], local: dict[str, ast.expr]) -> list[RaiseSite]:
        first = arguments.get("code")
        codes = _codes(first, local) if first is not None else []
        texts = Renderer(local)
        message = texts.render(arguments["message"]) if "message" in arguments else ""
        fix = texts.render(arguments["fix"]) if "fix" in arguments else ""
        return [RaiseSite(one, _CLASSES[kind], message, fix) for one in codes]

    def _find_wrappers(self) -> dict[str, tuple[ast.FunctionDef, str, dict[str, ast.expr]]]:
        """Functions with a parameter ``code`` that they hand to an error class: (function, class, arguments)."""
        found = {}
        for function, call in _calls(self._tree):
            name = _called_name(call)
            if function is None or name not in _CLASSES or not call.args or not isinstance(call.args[0], ast.Name):
                continue
            parameters = [argument.arg for argument in function.args.args]
            if call.args[0].id == "code" and "code" in parameters:
                inner = _arguments(call, ("code", "message"))
                found[function.name] = (
                    function,
                    name,
                    {k: v for k, v in inner.items() if k not in ("code", "message")},
                )
        return found


def _calls(tree: ast.Module) -> list[tuple[ast.FunctionDef | None, ast.Call]]:
    """Every call with the innermost function around it."""
    found: list[tuple[ast.FunctionDef | None, ast.Call]] = []

    def visit(node: ast.AST, function: ast.FunctionDef | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                found.append((function, child))
            visit(child, child if isinstance(child, ast.FunctionDef) else function)

    visit(tree, None)
    return found


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    given = dict(zip(names, call.args, strict=False))
    return given | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _codes(node: ast.expr, local: dict[str, ast.expr]) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value] if _CODE.fullmatch(node.value) else []
    if isinstance(node, ast.IfExp):
        return _codes(node.body, local) + _codes(node.orelse, local)
    if isinstance(node, ast.Name) and node.id in local and node.id != "code":
        return _codes(local[node.id], {})
    return []
