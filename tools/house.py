"""Counts of the house: rooms, arrows between them, circles, local imports, ``Any``, long functions.

    python -m tools.house

A room is a folder or a module directly under ``src/tidegate``; an arrow is that one room imports another, in whatever
place and for whatever reason. The figures are for ARCHITECTURE.md's readers and for those who change the layout.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.console import REPO_ROOT, run_main

SOURCE = REPO_ROOT / "src"
LONG_LINES = 60
_LIGHT_EDGES = ("tidegate.cli", "tidegate.airflow", "tidegate.application")

Graph = Mapping[str, set[str]]
"""Module or room -> the ones it imports."""


def find_modules() -> dict[str, Path]:
    """{dotted name: file} of every module of the package."""
    modules = {}
    for path in sorted((SOURCE / "tidegate").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def read_imports(modules: Mapping[str, Path]) -> Graph:
    """Which module imports which, type-only and function-local imports included."""
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name].update(alias.name for alias in node.names if alias.name in modules)
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    graph[name].add(inner if inner in modules else node.module)
        graph[name].discard(name)
    return graph


def room_of(module: str) -> str:
    """The room of a module: the first part below the package; the package itself is the room ``tidegate``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def join_rooms(graph: Graph) -> Graph:
    """The same graph between rooms."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        rooms[room_of(module)].update(room_of(target) for target in targets)
    return {room: targets - {room, "tidegate"} for room, targets in rooms.items() if room != "tidegate"}


def find_circles(graph: Graph) -> list[list[str]]:
    """The strongly connected parts of more than one node: who can be reached from whom, both ways."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(graph.get(node, ()))
        reach[start] = seen
    circles = {tuple(sorted({a, *(b for b in reach[a] if a in reach.get(b, ()))})) for a in graph if a in reach[a]}
    return [list(circle) for circle in sorted(circles)]


def find_functions(modules: Mapping[str, Path]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(``module:name``, definition) of every function and method."""
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield f"{name}:{node.name}", node


def count_local_imports(modules: Mapping[str, Path]) -> tuple[int, int]:
    """Imports inside functions: in the rooms that must start fast, and in all others."""
    edge = other = 0
    for label, function in find_functions(modules):
        local = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
        inner = sum(
            isinstance(node, ast.Import | ast.ImportFrom)
            for nested in ast.walk(function)
            if isinstance(nested, ast.FunctionDef) and nested is not function
            for node in ast.walk(nested)
        )
        if label.startswith(_LIGHT_EDGES):
            edge += local - inner
        else:
            other += local - inner
    return edge, other


def main(arguments: list[str]) -> int:
    """Print the counts; the exit code is 1 when there is a circle."""
    modules = find_modules()
    graph = read_imports(modules)
    rooms = join_rooms(graph)
    circles = [*find_circles(graph), *find_circles(rooms)]
    edge, other = count_local_imports(modules)
    text = "\n".join(path.read_text(encoding="utf-8") for path in modules.values())
    functions = [(label, (node.end_lineno or 0) - node.lineno + 1) for label, node in find_functions(modules)]
    long = sorted((lines, label) for label, lines in functions if lines > LONG_LINES)
    print(f"modules          {len(modules)}")
    print(f"rooms            {len(rooms)}")
    print(f"arrows           {sum(map(len, rooms.values()))}")
    print(f"circles          {len(circles)}")
    for circle in circles:
        print(f"                 {' '.join(circle)}")
    print(f"local imports    {edge} at the light edges (cli, airflow, application), {other} elsewhere")
    untyped = len(re.findall(r"\bAny\b", text))
    print(f"Any              {untyped}")
    print(f"long functions   {len(long)} of more than {LONG_LINES} lines")
    for lines, label in long:
        print(f"                 {lines} {label}")
    return 1 if circles else 0


if __name__ == "__main__":
    run_main(main)
