"""The cases with state: windows, and keys that stay in the checkpoint from run to run."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Row, compare_costs
from benchmarks.meter import Cost
from benchmarks.workbench import BenchmarkError, Workbench, alternate
from tidegate.examples.make_bitcoin_prices import iter_trades

if TYPE_CHECKING:
    from benchmarks.cases import Size

MILLION = 1_000_000
KEYS = 20_000
NEW_ROWS = 1_000
PLAIN = "plain job"

_KEYED = """\
version: 1
name: keyed
schedule: null
sources:
  events: {type: files, path: data/inbox/keyed, format: json, schema: id LONG}
transform: transform.sql
output_mode: update
table: {keys: [id]}
"""


def run_windowed(bench: Workbench, size: Size) -> list[Row]:
    """A million trades into windows of 10 minutes that slide by 5, with a watermark."""
    rows = size.rows(MILLION)
    inbox = bench.folder / "trades"
    inbox.mkdir()
    lines = [text for text, _ in iter_trades(1, rows, seed=1, faults=0.001)]
    for number in range(8):
        (inbox / f"{number}.json").write_text("\n".join(lines[number::8]) + "\n")

    def run_ours(number: int) -> Cost:
        fresh = Workbench(bench.folder / f"ours-{number}")
        _link(inbox, fresh.project / "data/inbox/bitcoin_prices")
        _point_at(fresh, "bitcoin_prices", "data/inbox/bitcoin_prices")
        cost = fresh.run("bitcoin_prices")
        report = fresh.last_report("bitcoin_prices")
        if report["rows"]["read"] != rows:
            raise BenchmarkError(f"expected {rows} rows read, the report says {report['rows']}")
        return cost

    def run_theirs(number: int) -> Cost:
        fresh = Workbench(bench.folder / f"theirs-{number}")
        return fresh.run_plain(
            "plain_window_job.py", str(inbox), str(fresh.plain_table()), str(fresh.folder / "plain" / "checkpoint")
        )

    ours, plain = alternate(max(1, size.repeats // 3), run_ours, run_theirs)
    return compare_costs(f"windows over {rows:,} rows", ours, plain, PLAIN, 1.0, None)


def run_keys(bench: Workbench, size: Size) -> list[Row]:
    """20,000 keys of state: 100 short runs, and a run of the plain job on the same state."""
    late, early = _age(bench, KEYS, 100)
    folders = (str(bench.plain_table()), str(bench.folder / "plain" / "checkpoint"))
    inbox = str(bench.project / "data/inbox/keyed")
    bench.run_plain("plain_keys_job.py", inbox, *folders)
    _deliver(bench, KEYS, 101)
    plain = bench.run_plain("plain_keys_job.py", inbox, *folders)
    work = f"{KEYS:,} keys of state, {NEW_ROWS:,} rows a run"
    return [
        Row(work, "CPU ratio", late.cpu_seconds / plain.cpu_seconds, 0.3, late, plain, PLAIN),
        Row(f"{work}: runs 98 to 100 against 2 to 4", "CPU ratio", late.cpu_seconds / early.cpu_seconds, 1.1, late,
            early, "runs 2 to 4"),
    ]  # fmt: skip


def run_million_keys(bench: Workbench, size: Size) -> list[Row]:
    """A million keys of state, and runs of 1,000 new rows."""
    keys = size.rows(MILLION)
    late, early = _age(bench, keys, 14)
    work = f"{keys:,} keys of state, {NEW_ROWS:,} rows a run: runs 12 to 14 against 2 to 4"
    return [Row(work, "CPU ratio", late.cpu_seconds / early.cpu_seconds, 1.1, late, early, "runs 2 to 4")]


def _age(bench: Workbench, keys: int, runs: int) -> list[Cost]:
    """The last three of ``runs`` runs, and runs 2 to 4 of a fresh project: in turns, for the minutes between the first
    and the last run of one project are longer than a machine stays as fast as it was."""
    fresh = Workbench(bench.folder / "fresh")
    for one in (bench, fresh):
        job = one.project / "jobs/keyed"
        job.mkdir()
        (job / "pipeline.yaml").write_text(_KEYED)
        (job / "transform.sql").write_text("SELECT id, count(*) AS times FROM events GROUP BY id\n")
    for number in range(1, runs - 2):
        _run_keyed(bench, keys, number)
    _run_keyed(fresh, keys, 1)
    return alternate(
        3,
        lambda number: _run_keyed(bench, keys, runs - 2 + number),
        lambda number: _run_keyed(fresh, keys, 2 + number),
    )


def _run_keyed(bench: Workbench, keys: int, number: int) -> Cost:
    expected = _deliver(bench, keys, number)
    cost = bench.run("keyed")
    read = bench.last_report("keyed")["rows"]["read"]
    if read != expected:
        raise BenchmarkError(f"run {number}: expected {expected} rows read, the report says {read}")
    return cost


def _deliver(bench: Workbench, keys: int, number: int) -> int:
    """All keys once with the first delivery, then some of them; the rows that were written."""
    rng = random.Random(number)
    ids = range(keys) if number == 1 else [rng.randrange(keys) for _ in range(NEW_ROWS)]
    inbox = bench.project / "data/inbox/keyed"
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / f"{number:03d}.json").write_text("".join(f'{{"id": {one}}}\n' for one in ids))
    return len(ids)


def _link(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in source.iterdir():
        os.link(path, target / path.name)


def _point_at(bench: Workbench, pipeline: str, folder: str) -> None:
    import yaml

    path = bench.project / "jobs" / pipeline / "pipeline.yaml"
    spec = yaml.safe_load(path.read_text())
    next(iter(spec["sources"].values()))["path"] = folder
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
