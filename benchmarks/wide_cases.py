"""Records with many columns, beside a plain job that writes the same rows."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Row, compare_costs
from benchmarks.meter import Cost
from benchmarks.workbench import BenchmarkError, Workbench, alternate

if TYPE_CHECKING:
    from benchmarks.cases import Size

ROWS = 1_000
RULES = 100
PLAIN = "plain job"

_MIXED: dict[str, Callable[[random.Random], Any]] = {
    "STRING": lambda rng: f"v{rng.randrange(1000)}",
    "BIGINT": lambda rng: rng.randrange(1 << 40),
    "DOUBLE": lambda rng: rng.random(),
    "TIMESTAMP": lambda rng: f"2026-03-01T10:{rng.randrange(60):02}:00Z",
    "DECIMAL(12,2)": lambda rng: rng.randrange(1_000_000) / 100,
    "BOOLEAN": lambda rng: rng.random() < 0.5,
    "DATE": lambda rng: f"2026-03-{rng.randrange(1, 29):02}",
}
_NESTED: dict[str, Callable[[random.Random], Any]] = {
    "deep STRUCT<b: STRUCT<c: STRUCT<d: STRUCT<e: STRUCT<value: DOUBLE, at: TIMESTAMP>>>>>": lambda rng: {
        "b": {"c": {"d": {"e": {"value": rng.random(), "at": "2026-03-01T10:00:00Z"}}}}
    },
    "lines ARRAY<STRUCT<sku: STRING, price: DECIMAL(8,2), seen: TIMESTAMP>>": lambda rng: [
        {"sku": f"s{number}", "price": rng.randrange(10_000) / 100, "seen": "2026-03-01T10:00:00Z"}
        for number in range(rng.randrange(4))
    ],
}

_SPEC = """\
version: 1
name: wide
schedule: null
sources:
  records: {type: files, path: data/inbox/wide, format: json, schema: "%s"}
"""


def run_wide_doubles(bench: Workbench, size: Size) -> list[Row]:
    """20 columns of DOUBLE."""
    return _run(bench, size, "20 columns of DOUBLE", ["DOUBLE"] * 20, 1.0, nested=False)


def run_wide_50(bench: Workbench, size: Size) -> list[Row]:
    """50 columns of seven types, 5 levels of nesting, an array of structs, 100 rules."""
    return _run_mixed(bench, size, 50, 1.0)


def run_wide_300(bench: Workbench, size: Size) -> list[Row]:
    """The same with 300 columns."""
    return _run_mixed(bench, size, 300, 0.8)


def run_wide_1000(bench: Workbench, size: Size) -> list[Row]:
    """The same with 1,000 columns."""
    return _run_mixed(bench, size, 1000, 1.0)


def _run_mixed(bench: Workbench, size: Size, columns: int, limit: float) -> list[Row]:
    types = list(_MIXED)
    work = f"{columns:,} mixed columns, 5 levels, an array of structs"
    return _run(bench, size, work, [types[number % len(types)] for number in range(columns)], limit, nested=True)


def _run(bench: Workbench, size: Size, work: str, types: list[str], limit: float, *, nested: bool) -> list[Row]:
    names = [f"c{number:04}" for number in range(len(types))]
    fields = [f"{name} {type_}" for name, type_ in zip(names, types, strict=True)] + (list(_NESTED) if nested else [])
    rng = random.Random(work)
    lines = []
    for _ in range(ROWS):
        record = {name: _MIXED[type_](rng) for name, type_ in zip(names, types, strict=True)}
        record |= {field.split()[0]: make(rng) for field, make in _NESTED.items()} if nested else {}
        lines.append(json.dumps(record))
    inbox = bench.folder / "records"
    inbox.mkdir()
    (inbox / "records.json").write_text("\n".join(lines) + "\n")
    rules = _make_rules(dict(zip(names, types, strict=True)))
    work = f"{ROWS:,} rows, {work}, {RULES} rules"
    return compare_with_plain_job(bench, size.repeats, work, ", ".join(fields), rules, inbox, ROWS, limit)


def compare_with_plain_job(
    bench: Workbench,
    repeats: int,
    work: str,
    schema: str,
    rules: list[dict[str, Any]],
    inbox: Path,
    published: int,
    limit: float,
) -> list[Row]:
    """The first run of a pipeline over the files of ``inbox``, in a project of its own, and the plain job's."""
    ddl = bench.folder / "schema.ddl"
    ddl.write_text(schema)

    def run_ours(number: int) -> Cost:
        fresh = Workbench(bench.folder / f"ours-{number}")
        job = fresh.project / "jobs" / "wide"
        job.mkdir()
        (job / "pipeline.yaml").write_text(_SPEC % schema)
        suite = {"name": "wide", "expectations": rules}
        (fresh.project / "expectations" / "wide.yaml").write_text(json.dumps(suite))  # JSON is YAML too
        shutil.copytree(inbox, fresh.project / "data/inbox/wide")
        cost = fresh.run("wide")
        report = fresh.last_report("wide")
        if report["rows"]["published"] != published:
            raise BenchmarkError(f"expected {published} rows published, the report says {report['rows']}")
        return cost

    def run_theirs(number: int) -> Cost:
        fresh = Workbench(bench.folder / f"theirs-{number}")
        folders = (str(fresh.plain_table()), str(fresh.folder / "plain" / "checkpoint"))
        return fresh.run_plain("plain_wide_job.py", str(inbox), *folders, str(ddl))

    ours, plain = alternate(repeats, run_ours, run_theirs)
    return compare_costs(work, ours, plain, PLAIN, limit, None)


def _make_rules(columns: dict[str, str]) -> list[dict[str, Any]]:
    """100 rules: one for each column, then bounds of the DOUBLE columns by turns."""
    doubles = [name for name, type_ in columns.items() if type_ == "DOUBLE"]
    rules: list[dict[str, Any]] = [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": name}} for name in columns
    ]
    rules += [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": doubles[number % len(doubles)], "min_value": 0, "max_value": number + 1},
        }
        for number in range(RULES)
    ]
    for number, rule in enumerate(rules):
        rule |= {"severity": "critical", "meta": {"rule": f"rule_{number}", "on_failure": "quarantine"}}
    return rules[:RULES]
