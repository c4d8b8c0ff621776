"""Counts of the house: lines, rooms, arrows between them, circles, local imports, ``Any``, broad excepts, conditions.

    python -m tools.house [--source FOLDER] [--draw FILE.svg]

``--source`` is another checkout's ``src``; ``--draw`` writes the rooms by floors, each arrow a line to a room below,
and those that close a circle in red.

A room is a folder or a module directly under ``src/tidegate``; an arrow is that one room imports another, in whatever
place and for whatever reason. The figures are for ARCHITECTURE.md's readers and for those who change the layout.
"""

from __future__ import annotations

import argparse
import ast
import html
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tools.console import REPO_ROOT, run_main

SOURCE = REPO_ROOT / "src"
LONG_LINES = 60
_BOX_X, _BOX_Y = 108, 62
_LIGHT_EDGES = ("tidegate.cli", "tidegate.airflow", "tidegate.spark.application")

Graph = Mapping[str, set[str]]
"""Module or room -> the ones it imports."""


def find_modules(source: Path = SOURCE) -> dict[str, Path]:
    """{dotted name: file} of every module of the package."""
    modules = {}
    for path in sorted((source / "tidegate").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
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


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Return whether an ``except`` catches every error."""
    names = [] if handler.type is None else [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)]
    return handler.type is None or not {"Exception", "BaseException"}.isdisjoint(names)


def find_codes(nodes: Iterable[ast.AST]) -> list[str]:
    """The code of each ``Condition("CODE", ...)``."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found = [call.args[0] for call in calls if call.func.id == "Condition" and call.args]  # type: ignore[attr-defined]
    return [str(code.value) for code in found if isinstance(code, ast.Constant)]


def find_floors(rooms: Graph) -> dict[str, int]:
    """{room: its floor}: 0 imports nothing, each other stands above all it imports; a circle stands on one floor."""
    circles = {room: tuple(circle) for circle in find_circles(rooms) for room in circle}
    floors: dict[str, int] = {}

    def floor_of(room: str) -> int:
        if room not in floors:
            together = circles.get(room, (room,))
            below = {target for one in together for target in rooms.get(one, ())} - set(together)
            floor = 1 + max(map(floor_of, sorted(below)), default=-1)
            floors.update(dict.fromkeys(together, floor))
        return floors[room]

    for room in sorted(rooms):
        floor_of(room)
    return floors


def draw(rooms: Graph) -> str:
    """The rooms by floors as SVG."""
    floors = find_floors(rooms)
    rows = [sorted(room for room in rooms if floors[room] == floor) for floor in range(max(floors.values()), -1, -1)]
    width = max(map(len, rows)) * _BOX_X + 40
    place = {
        room: ((width - len(row) * _BOX_X) / 2 + column * _BOX_X + _BOX_X / 2, 30 + number * _BOX_Y)
        for number, row in enumerate(rows)
        for column, room in enumerate(row)
    }
    lines, boxes = [], []
    for room, targets in sorted(rooms.items()):
        x, y = place[room]
        for target in sorted(targets):
            to_x, to_y = place[target]
            colour, strength = ("#c0392b", 2) if to_y <= y else ("#9db4c6", 1)
            lines.append(
                f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}" stroke="{colour}" '
                f'stroke-width="{strength}"/>'
            )
        boxes.append(
            f'<rect x="{x - 46:.0f}" y="{y - 12:.0f}" width="92" height="24" rx="4" fill="#f4f8fb" stroke="#34607f"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{html.escape(room)}</text>'
        )
    height = 60 + (len(rows) - 1) * _BOX_Y
    font = 'font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *lines, *boxes, "</svg>", ""])


def main(arguments: list[str]) -> int:
    """Print the counts; the exit code is 1 when there is a circle."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--draw", type=Path)
    options = parser.parse_args(arguments)
    modules = find_modules(options.source)
    graph = read_imports(modules)
    rooms = join_rooms(graph)
    circles = [*find_circles(graph), *find_circles(rooms)]
    if options.draw:
        options.draw.write_text(draw(rooms), encoding="utf-8")
    edge, other = count_local_imports(modules)
    functions = [(label, (node.end_lineno or 0) - node.lineno + 1) for label, node in find_functions(modules)]
    long = sorted((length, label) for label, length in functions if length > LONG_LINES)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules.values())
    print(f"lines            {lines}")
    print(f"modules          {len(modules)}")
    print(f"rooms            {len(rooms)}")
    print(f"arrows           {sum(map(len, rooms.values()))}")
    print(f"circles          {len(circles)}")
    for circle in circles:
        print(f"                 {' '.join(circle)}")
    print(f"local imports    {edge} at the light edges (cli, airflow, application), {other} elsewhere")
    nodes = [node for path in modules.values() for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    print(f"Any              {sum(isinstance(node, ast.Name) and node.id == 'Any' for node in nodes)} annotations")
    print(f"broad excepts    {sum(isinstance(node, ast.ExceptHandler) and is_broad(node) for node in nodes)}")
    codes = find_codes(nodes)
    print(f"conditions       {len(set(codes))} codes in {len(codes)} forms")
    print(f"long functions   {len(long)} of more than {LONG_LINES} lines")
    for length, label in long:
        print(f"                 {length} {label}")
    return 1 if circles else 0


if __name__ == "__main__":
    run_main(main)
