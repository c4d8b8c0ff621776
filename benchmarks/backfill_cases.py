"""Rebuilding days: many small ones, beside one day with as many rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.figures import Row
from benchmarks.meter import Cost, measure
from benchmarks.workbench import BIN, BenchmarkError, Workbench, alternate

if TYPE_CHECKING:
    from benchmarks.cases import Size

DAYS = 30
ROWS_PER_DAY = 1_000
MANY, ONE = "many_days", "one_day"

_SPEC = """version: 1
name: {name}
sources:
  events: {{type: files, path: data/inbox/{name}, format: json, schema: "id BIGINT, at TIMESTAMP, amount DOUBLE"}}
transform: transform.sql
table: {{partition_by: [day]}}
"""
_TRANSFORM = "SELECT *, to_date(at) AS day FROM events WHERE amount >= 0\n"
_SUITE = """name: {name}
expectations:
  - {{type: expect_column_values_to_not_be_null, kwargs: {{column: id}}, severity: critical, meta: {{rule: has_id}}}}
  - {{type: expect_column_values_to_be_unique, kwargs: {{column: id}}, severity: critical, meta: {{rule: one_each}}}}
  - type: expect_column_values_to_be_between
    kwargs: {{column: amount, max_value: 1000}}
    severity: critical
    meta: {{rule: small, on_failure: quarantine}}
  - type: expect_column_mean_to_be_between
    kwargs: {{column: amount, min_value: 1, max_value: 999}}
    severity: critical
    meta: {{rule: usual_mean}}
  - type: expect_table_row_count_to_be_between
    kwargs: {{min_value: 1}}
    severity: critical
    meta: {{rule: has_rows}}
"""


def run_backfill(bench: Workbench, size: Size) -> list[Row]:
    """`tidegate backfill` of 30 days of 1,000 rows, whose transform drops records, so that each day needs all files;
    beside one day of 30,000 rows."""
    rows = size.rows(ROWS_PER_DAY)
    for name in (MANY, ONE):
        _make_pipeline(bench, name, rows)
        bench.run(name)
    ours, other = alternate(
        size.repeats,
        lambda _: _rebuild(bench, MANY, f"2026-01-{DAYS}", DAYS * rows),
        lambda _: _rebuild(bench, ONE, "2026-01-01", DAYS * rows),
    )
    work = f"backfill of {DAYS} days of {rows:,} rows"
    return [Row(work, "CPU, of one day's", ours.cpu_seconds / other.cpu_seconds, 2.0, ours, other, "one day")]


def _make_pipeline(bench: Workbench, name: str, rows: int) -> None:
    job, inbox = bench.project / "jobs" / name, bench.project / "data" / "inbox" / name
    job.mkdir()
    inbox.mkdir()
    (job / "pipeline.yaml").write_text(_SPEC.format(name=name))
    (job / "transform.sql").write_text(_TRANSFORM)
    (bench.project / "expectations" / f"{name}.yaml").write_text(_SUITE.format(name=name))
    for number in range(DAYS):
        day = number + 1 if name == MANY else 1
        first = number * (rows + 1)
        records = [
            {"id": first + one, "at": f"2026-01-{day:02d}T12:00:00Z", "amount": one % 900 + 0.5} for one in range(rows)
        ]
        records.append({"id": first + rows, "at": f"2026-01-{day:02d}T12:00:00Z", "amount": -1.0})
        (inbox / f"{number}.json").write_text("".join(json.dumps(one) + "\n" for one in records))


def _rebuild(bench: Workbench, name: str, last: str, rows: int) -> Cost:
    log = bench.folder / "backfill.log"
    days = ["--from", "2026-01-01", "--to", last]
    argv = [str(BIN / "tidegate"), "--project", str(bench.project), "backfill", name, *days, "--json"]
    cost = measure(argv, cwd=bench.folder, env=bench.env, log=log)
    report = bench.last_report(name)
    if cost.exit_code or (report["mode"], report["rows"]["published"]) != ("backfill", rows):
        raise BenchmarkError(f"backfill ended with {cost.exit_code}: {log.read_text()[-2000:]}")
    return cost
