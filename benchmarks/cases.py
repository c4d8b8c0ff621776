"""The cases: each takes an empty workbench and returns its lines of the table."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.adopt_cases import run_adopt
from benchmarks.backfill_cases import run_backfill
from benchmarks.cluster_cases import measure_cluster
from benchmarks.figures import Row, compare_costs
from benchmarks.fleet_cases import run_fleet_minute, run_fleet_status
from benchmarks.maintain_cases import run_compaction, run_maintained_reads
from benchmarks.meter import Cost
from benchmarks.nested_cases import run_nested, run_nested_dirty
from benchmarks.pages_cases import run_pages
from benchmarks.store_cases import run_store_cluster, run_store_idle, run_store_keys, run_store_million, run_store_small
from benchmarks.streaming_cases import run_keys, run_million_keys, run_windowed
from benchmarks.wide_cases import run_wide_50, run_wide_300, run_wide_1000, run_wide_doubles
from benchmarks.workbench import ROOT, BenchmarkError, Workbench, alternate, count_files, take_median
from tidegate.examples.command import Draw
from tidegate.examples.make_orders import make_orders

FAULTS = 0.001
SMALL_ROWS = 1000
MILLION = 1_000_000
PLAIN = "plain job"


@dataclass(frozen=True)
class Size:
    """How much is done: ``scale`` shrinks the rows of the heavy cases (for trying them out), 1 is the real thing."""

    repeats: int
    scale: float

    def rows(self, full: int) -> int:
        """``full`` rows, scaled."""
        return max(1, int(full * self.scale))


def _deliver(bench: Workbench, rows: int, *, files: int, start_id: int = 1) -> int:
    """Put orders into the inbox; the bytes that were written."""
    return make_orders(bench.inbox, rows, Draw(faults=FAULTS, start_id=start_id), files=files).bytes


def run_idle(bench: Workbench, size: Size) -> list[Row]:
    """A tick with nothing new."""
    _deliver(bench, SMALL_ROWS, files=1)
    bench.run()
    bench.expect_rows(SMALL_ROWS)
    bench.run()
    cost = take_median([bench.run() for _ in range(max(size.repeats, 5))])
    work = "idle tick: nothing new"
    return [
        Row(work, "CPU seconds", cost.cpu_seconds, 0.25, cost),
        Row(work, "JVMs started", float(cost.java_processes), 0.0),
    ]


def run_small(bench: Workbench, size: Size) -> list[Row]:
    """1,000 new rows a run, in projects that have run before."""
    start_ids = itertools.count(1, SMALL_ROWS)

    def deliver_and_run(_: int) -> Cost:
        _deliver(bench, SMALL_ROWS, files=1, start_id=next(start_ids))
        cost = bench.run()
        bench.expect_rows(SMALL_ROWS)
        return cost

    deliver_and_run(0)
    bench.run_plain_files()
    ours, plain = alternate(size.repeats, deliver_and_run, lambda _: bench.run_plain_files())
    return compare_costs(f"{SMALL_ROWS:,} rows, 10 expectations", ours, plain, PLAIN, 0.7, 0.8)


def _run_million(
    bench: Workbench, size: Size, run_other: Callable[[Workbench], Cost], *, is_checked: bool = True
) -> tuple[Cost, Cost, str]:
    rows = size.rows(MILLION)
    given = _deliver(bench, rows, files=8)

    def run_ours(number: int) -> Cost:
        fresh = Workbench(bench.folder / f"ours-{number}")
        fresh.receive(bench.inbox)
        if not is_checked:
            (fresh.project / "expectations" / "orders.yaml").unlink()
        cost = fresh.run()
        fresh.expect_rows(rows)
        return cost

    def run_theirs(number: int) -> Cost:
        fresh = Workbench(bench.folder / f"theirs-{number}")
        fresh.receive(bench.inbox)
        return run_other(fresh)

    ours, theirs = alternate(_heavy_repeats(size), run_ours, run_theirs)
    checks = "10 expectations, row rules" if is_checked else "without a check"
    return ours, theirs, f"{rows:,} rows of JSON ({given / 1e6:.0f} MB), {checks}"


def _heavy_repeats(size: Size) -> int:
    return max(1, size.repeats // 3)


def run_million(bench: Workbench, size: Size) -> list[Row]:
    """The first million, against the plain job."""
    ours, plain, work = _run_million(bench, size, Workbench.run_plain_files)
    return compare_costs(work, ours, plain, PLAIN, 0.85, None)


def run_million_unchecked(bench: Workbench, size: Size) -> list[Row]:
    """The first million without a suite, against the plain job."""
    ours, plain, work = _run_million(bench, size, Workbench.run_plain_files, is_checked=False)
    return compare_costs(work, ours, plain, PLAIN, 0.75, None)


def run_million_vs_gx(bench: Workbench, size: Size) -> list[Row]:
    """The first million, against the plain job with the same suite in its driver."""
    ours, plain, work = _run_million(bench, size, Workbench.run_plain_gx)
    return compare_costs(work, ours, plain, "plain job + GX on Spark", 0.5, None)


def run_many_files(bench: Workbench, size: Size) -> list[Row]:
    """10,000 files of one row; then an idle tick and a small run, beside the same two before."""
    start_ids = itertools.count(1, SMALL_ROWS)

    def run_small_once() -> Cost:
        _deliver(bench, SMALL_ROWS, files=1, start_id=next(start_ids))
        cost = bench.run()
        bench.expect_rows(SMALL_ROWS)
        return cost

    run_small_once()
    small_before = take_median([run_small_once() for _ in range(size.repeats)])
    idle_before = take_median([bench.run() for _ in range(size.repeats)])
    bench.run_plain_files()
    files, written = size.rows(10_000), count_files(bench.table(), "*.parquet")
    _deliver(bench, files, files=files, start_id=50_000_000)
    many = bench.run()
    bench.expect_rows(files)
    written = count_files(bench.table(), "*.parquet") - written
    plain = bench.run_plain_files()
    idle_after = take_median([bench.run() for _ in range(size.repeats)])
    small_after = take_median([run_small_once() for _ in range(size.repeats)])
    work = f"{files:,} one-row files"
    return [
        *compare_costs(work, many, plain, PLAIN, 0.2, None),
        Row(work, "output files", float(written), 8.0),
        _ratio(f"idle tick after {work}", idle_after, idle_before, "the same before", 1.1),
        _ratio(f"small run after {work}", small_after, small_before, "the same before", 1.1),
    ]


def _ratio(work: str, ours: Cost, other: Cost, other_name: str, limit: float) -> Row:
    return Row(work, "CPU ratio", ours.cpu_seconds / other.cpu_seconds, limit, ours, other, other_name)


def run_hundred(bench: Workbench, size: Size) -> list[Row]:
    """100 small runs: the last five against the third to seventh, and what lies in the folders by then."""
    runs = max(14, size.rows(100))
    costs: list[Cost] = []
    state_files: list[int] = []
    for number in range(runs):
        _deliver(bench, SMALL_ROWS, files=1, start_id=1 + number * SMALL_ROWS)
        costs.append(bench.run())
        bench.expect_rows(SMALL_ROWS)
        state_files.append(count_files(bench.state()) - count_files(bench.state() / "runs"))
    late, early = take_median(costs[-5:]), take_median(costs[2:7])
    middle = runs // 2
    # Sawtooth: logs are compacted every ten runs, so compare the largest count of two stretches.
    early_files, late_files = max(state_files[middle - 11 : middle]), max(state_files[-11:])
    data_files = count_files(bench.table(), "*.parquet")
    work = f"{runs} small runs"
    note = (
        f"after {runs} runs {late_files} files in the state folder without run reports "
        f"({count_files(bench.state() / 'runs')} of those), {data_files} data files and "
        f"{count_files(bench.table() / '_delta_log')} log files in the table folder"
    )
    return [
        _ratio(f"{work}: the last 5 against the 3rd to 7th", late, early, "the 3rd to 7th", 1.1),
        Row(work, "state files, at the end against half-way", late_files / early_files, 1.1, note=note),
    ]


def run_memory(bench: Workbench, size: Size) -> list[Row]:
    """Peak memory at ten million rows against one million."""
    peaks: list[Cost] = []
    for number, rows in enumerate((size.rows(MILLION), size.rows(10 * MILLION))):
        fresh = Workbench(bench.folder / f"rows-{number}")
        make_orders(fresh.inbox, rows, Draw(faults=FAULTS), files=8 * (1 if number == 0 else 10))
        peaks.append(fresh.run())
        fresh.expect_rows(rows)
    million, ten = peaks
    work = f"{size.rows(10 * MILLION):,} rows against {size.rows(MILLION):,}"
    return [Row(work, "peak memory ratio", ten.peak_rss_bytes / million.peak_rss_bytes, 1.05, ten, million, "1 M rows")]


def run_worker_memory(bench: Workbench, size: Size) -> list[Row]:
    """The largest Python worker while it reads one file: of 1 and of 5 million rows, and gzip, which is not split."""
    rows = []
    for number, (full, is_zipped) in enumerate(((MILLION, False), (5 * MILLION, False), (5 * MILLION, True))):
        fresh = Workbench(bench.folder / f"file-{number}")
        count = size.rows(full)
        given = _deliver(fresh, count, files=1)
        if is_zipped:
            for path in fresh.inbox.iterdir():
                subprocess.run(["gzip", "-1", str(path)], check=True)
        cost = fresh.run()
        fresh.expect_rows(count)
        work = f"one file of {given / 1e6:,.0f} MB{', gzip' if is_zipped else ''}"
        rows.append(Row(work, "MiB of the largest Python worker", cost.worker_rss_bytes / 2**20, 300.0, cost))
    return rows


def run_kafka(bench: Workbench, size: Size) -> list[Row]:
    """Two million messages of about 200 bytes in six partitions."""
    return _run_kafka(bench, size, 0.9, is_checked=True)


def run_kafka_unchecked(bench: Workbench, size: Size) -> list[Row]:
    """The same without a suite."""
    return _run_kafka(bench, size, 0.7, is_checked=False)


def _run_kafka(bench: Workbench, size: Size, limit: float, *, is_checked: bool) -> list[Row]:
    from tidegate.examples.make_clicks import make_clicks
    from tools.broker import start_broker

    rows = size.rows(2 * MILLION)
    broker = start_broker(bench.folder / "broker")
    try:
        make_clicks(broker.bootstrap_servers, rows, Draw(faults=FAULTS), partitions=6)
        jars = sorted(str(path) for path in (ROOT / ".tools" / "jars").glob("*.jar"))
        submit = ("--jars", ",".join(jars))

        def run_ours(number: int) -> Cost:
            fresh = Workbench(bench.folder / f"ours-{number}")
            fresh.env["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
            if not is_checked:
                (fresh.project / "expectations" / "clicks.yaml").unlink()
            cost = fresh.run("clicks")
            fresh.expect_rows(rows, "clicks")
            return cost

        def run_theirs(number: int) -> Cost:
            fresh = Workbench(bench.folder / f"theirs-{number}")
            out = (str(fresh.plain_table()), str(fresh.folder / "plain" / "checkpoint"))
            return fresh.run_plain("plain_kafka_job.py", broker.bootstrap_servers, "clicks", *out, submit=submit)

        ours, plain = alternate(_heavy_repeats(size), run_ours, run_theirs)
    finally:
        broker.stop()
    work = f"Kafka: {rows:,} messages, 6 partitions{'' if is_checked else ', without a check'}"
    return compare_costs(work, ours, plain, PLAIN, limit, None)


def run_killed(bench: Workbench, size: Size) -> list[Row]:
    """SIGKILL to the whole tree at half of the time that an undisturbed run takes, then another run; both sides."""
    rows = size.rows(MILLION)
    _deliver(bench, rows, files=8)
    numbers = itertools.count()

    def make_project() -> Workbench:
        fresh = Workbench(bench.folder / f"try{next(numbers)}")
        fresh.receive(bench.inbox)
        return fresh

    def measure_broken(run: Callable[..., Cost], table: Path, half_seconds: float, kept: int | None) -> Cost:
        end = time.monotonic() + half_seconds
        costs = [run(stop_when=lambda: time.monotonic() > end)]
        if costs[0].wall_seconds > 1.5 * half_seconds:
            raise BenchmarkError("the run was not killed at half of its time")
        costs.append(run())
        if kept is not None and count_rows(table) != kept:
            raise BenchmarkError("the table after the kill does not have the rows of the undisturbed one")
        return replace(
            costs[1],
            cpu_seconds=sum(cost.cpu_seconds for cost in costs),
            wall_seconds=sum(cost.wall_seconds for cost in costs),
            peak_rss_bytes=max(cost.peak_rss_bytes for cost in costs),
        )

    whole = make_project()
    undisturbed, plain_undisturbed = whole.run(), whole.run_plain_files()
    whole.expect_rows(rows)

    def break_ours(_: int) -> Cost:
        fresh, kept = make_project(), count_rows(whole.table())
        return measure_broken(fresh.run, fresh.table(), undisturbed.wall_seconds / 2, kept)

    def break_theirs(_: int) -> Cost:
        fresh = make_project()  # what the killed job left counts for whoever reads its folder
        return measure_broken(fresh.run_plain_files, fresh.plain_table(), plain_undisturbed.wall_seconds / 2, None)

    ours, plain = alternate(_heavy_repeats(size), break_ours, break_theirs)
    note = f"CPU-seconds when undisturbed: {undisturbed.cpu_seconds:.1f}, plain job {plain_undisturbed.cpu_seconds:.1f}"
    return compare_costs(f"killed at half of {rows:,} rows, run again", ours, plain, PLAIN, 0.9, None, note)


def run_cluster(bench: Workbench, size: Size) -> list[Row]:
    """1,000 and a million rows on local[2] and on a standalone cluster of one and two workers."""
    work = {f"{SMALL_ROWS:,} rows": SMALL_ROWS, f"{size.rows(MILLION):,} rows of JSON": size.rows(MILLION)}
    return measure_cluster(bench, work, size.repeats)


def count_rows(table: Path) -> int:
    """Rows of a table, from its parquet footers."""
    import pyarrow.parquet

    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in table.rglob("*.parquet"))


CASES: dict[str, Callable[[Workbench, Size], list[Row]]] = {
    "idle": run_idle,
    "small": run_small,
    "million": run_million,
    "million_unchecked": run_million_unchecked,
    "million_vs_gx": run_million_vs_gx,
    "many_files": run_many_files,
    "hundred": run_hundred,
    "memory": run_memory,
    "worker_memory": run_worker_memory,
    "kafka": run_kafka,
    "kafka_unchecked": run_kafka_unchecked,
    "killed": run_killed,
    "windowed": run_windowed,
    "keys": run_keys,
    "million_keys": run_million_keys,
    "cluster": run_cluster,
    "wide_doubles": run_wide_doubles,
    "wide_50": run_wide_50,
    "wide_300": run_wide_300,
    "wide_1000": run_wide_1000,
    "nested": run_nested,
    "nested_dirty": run_nested_dirty,
    "fleet_status": run_fleet_status,
    "fleet_minute": run_fleet_minute,
    "pages": run_pages,
    "adopt": run_adopt,
    "backfill": run_backfill,
    "compaction": run_compaction,
    "maintained_reads": run_maintained_reads,
    "store_idle": run_store_idle,
    "store_small": run_store_small,
    "store_million": run_store_million,
    "store_keys": run_store_keys,
    "store_cluster": run_store_cluster,
}
