"""The figures of the cases, kept in results.json and shown as the table of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.meter import Cost

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
MARK = "<!-- figures: written by `make bench`, not by hand -->"


@dataclass(frozen=True)
class Row:
    """One line of the table. ``limit`` is what the figure ``value`` may be at most; both are plain numbers."""

    work: str
    measured: str
    value: float
    limit: float | None
    ours: Cost | None = None
    other: Cost | None = None
    other_name: str = ""
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the limit holds; None where there is none."""
        return None if self.limit is None else self.value <= self.limit


@dataclass
class Results:
    """The last figures of each case."""

    cores: int
    cases: dict[str, list[Row]] = field(default_factory=dict)


def read_results(path: Path = RESULTS) -> Results:
    """What was measured so far; empty when nothing was."""
    if not path.exists():
        return Results(cores=os.cpu_count() or 1)
    value = json.loads(path.read_text())
    return Results(
        cores=value["cores"],
        cases={name: [_read_row(row) for row in rows] for name, rows in value["cases"].items()},
    )


def _read_row(value: dict[str, object]) -> Row:
    costs = {key: Cost(**value[key]) if value[key] else None for key in ("ours", "other")}  # type: ignore[arg-type]
    return Row(**{**value, **costs})  # type: ignore[arg-type]


def write_results(results: Results, path: Path = RESULTS, page: Path = PAGE) -> None:
    """Keep the figures, and write them into the page below its mark."""
    path.write_text(json.dumps(asdict(results), indent=1) + "\n")
    text = page.read_text() if page.exists() else ""
    above = text.partition(MARK)[0]
    page.write_text(f"{above}{MARK}\n\n{show_results(results)}")


def show_results(results: Results) -> str:
    """The table in Markdown."""
    lines = [
        f"Measured on {results.cores} cores. CPU is user and system time of the whole process tree, in seconds.",
        "",
        "| case | work | figure | value | at most | tidegate: CPU, wall, peak | other: CPU, wall, peak | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in results.cases.items():
        for row in rows:
            other = f"{row.other_name}: {show_cost(row.other)}" if row.other else ""
            limit = "" if row.limit is None else f"{row.limit:g}"
            met = {None: "", True: "yes", False: "**no**"}[row.is_met]
            cells = [name, row.work, row.measured, f"{row.value:.2f}", limit, show_cost(row.ours), other, met]
            lines.append("| " + " | ".join(cells) + " |")
    notes = [f"- {name}: {row.note}" for name, rows in results.cases.items() for row in rows if row.note]
    return "\n".join([*lines, "", *dict.fromkeys(notes)]) + "\n"


def show_cost(cost: Cost | None) -> str:
    """One cost in a cell."""
    if cost is None:
        return ""
    return f"{cost.cpu_seconds:.2f} s, {cost.wall_seconds:.2f} s, {cost.peak_rss_bytes / 2**20:.0f} MiB"


def compare_costs(
    work: str,
    ours: Cost,
    other: Cost,
    other_name: str,
    cpu_limit: float | None,
    wall_limit: float | None,
    note: str = "",
) -> list[Row]:
    """The lines of a case that is a ratio to another way of doing the same work."""
    if wall_limit is not None:
        wall = [Row(work, "wall ratio", ours.wall_seconds / other.wall_seconds, wall_limit)]
    else:
        wall = [Row(work, "wall ratio", ours.wall_seconds / other.wall_seconds, None)]
    return [
        Row(work, "CPU ratio", ours.cpu_seconds / other.cpu_seconds, cpu_limit, ours, other, other_name, note),
        *wall,
    ]
