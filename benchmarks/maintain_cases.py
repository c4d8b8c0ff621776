"""Maintenance: small files put together, beside a plain copy of the same data, and what reading costs afterwards."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Row
from benchmarks.meter import Cost, measure
from benchmarks.workbench import BIN, BenchmarkError, Workbench, take_median

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.cases import Size
    from tidegate.core.paths import PipelinePaths

NAME = "measured"
FILES = 10_000
ROWS_PER_FILE = 2_000
DAYS = 10
RUNS = 1_000
ROWS_PER_RUN = 2_000
QUERY = str(uuid.UUID(int=7))

_SPEC = f"""version: 1
name: {NAME}
sources:
  events: {{type: kafka, topics: [events], format: json,
    schema: "id BIGINT, city STRING, amount DOUBLE, at TIMESTAMP, comment STRING, day DATE"}}
table: {{partition_by: [day]}}
"""
_SCHEMA = {"id": "long", "city": "string", "amount": "double", "at": "timestamp", "comment": "string", "day": "date"}
_COPY = """
import sys
import duckdb
with duckdb.connect() as connection:
    rows = f"SELECT * FROM read_parquet('{sys.argv[1]}/*/*.parquet', hive_partitioning = true)"
    connection.execute(f"COPY ({rows}) TO '{sys.argv[2]}' (FORMAT parquet, PARTITION_BY (day))")
"""


def run_compaction(bench: Workbench, size: Size) -> list[Row]:
    """10,000 small files put together by `tidegate maintain`, beside a plain copy of them by DuckDB, which
    keeps the old ones as well."""
    paths = _make_pipeline(bench)
    files = max(int(FILES * size.scale), 2 * DAYS)
    original = bench.folder / "original"
    _write_table(paths, files, ROWS_PER_FILE, commits=1)
    os.rename(paths.table, original)
    ours, others = [], []
    for number in range(max(size.repeats, 3)):
        copied = bench.folder / f"copy-{number}"
        others.append(measure([sys.executable, "-c", _COPY, str(original), str(copied)], cwd=bench.folder))
        shutil.rmtree(copied)
        shutil.copytree(original, paths.table, copy_function=os.link)
        _note_published(paths, files - 1)
        ours.append(_maintain(bench))
        shutil.rmtree(paths.table)
    our, other = take_median(ours), take_median(others)
    work = f"compaction of {files:,} files of {ROWS_PER_FILE} rows"
    name = "DuckDB COPY"
    return [
        Row(work, "wall, of a plain copy's", our.wall_seconds / other.wall_seconds, 1 / 0.8, our, other, name),
        Row(work, "CPU, of a plain copy's", our.cpu_seconds / other.cpu_seconds, None, our, other, name),
    ]


def run_maintained_reads(bench: Workbench, size: Size) -> list[Row]:
    """Reading a table of 1,000 runs that was maintained, beside the same rows written at once."""
    from tidegate.table.log.state import list_data_files

    paths = _make_pipeline(bench, "maintenance: {keep_versions: 0}\n")
    runs = max(int(RUNS * size.scale), DAYS)
    _write_table(paths, runs, ROWS_PER_RUN, commits=runs)
    before = _time_reads(paths.table)
    cost = _maintain(bench)
    after = _time_reads(paths.table)
    left = len(list_data_files(paths.table))
    shutil.rmtree(paths.table)
    _write_table(paths, DAYS, runs * ROWS_PER_RUN // DAYS, commits=1)
    at_once = _time_reads(paths.table)
    rows = []
    for reader, limit in (("plain DuckDB", 1.1), ("tidegate's own look at the log", None), ("deltalake", None)):
        told = f"{before[reader]:.3f} s before, {after[reader]:.3f} s after, {at_once[reader]:.3f} s written at once"
        work = f"a table of {runs:,} runs, maintained ({left} files): {reader}"
        ratio = after[reader] / at_once[reader]
        rows.append(Row(work, "time, of one written at once", ratio, limit, cost, note=told))
    return rows


def _make_pipeline(bench: Workbench, more: str = "") -> PipelinePaths:
    from tidegate.spec.project import load_project

    folder = bench.project / "jobs" / NAME
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(_SPEC + more)
    return load_project(bench.project).paths(NAME)


def _maintain(bench: Workbench) -> Cost:
    log = bench.folder / "maintain.log"
    argv = [str(BIN / "tidegate"), "--project", str(bench.project), "maintain", NAME, "--json"]
    cost = measure(argv, cwd=bench.folder, env=bench.env, log=log)
    if cost.exit_code:
        raise BenchmarkError(f"maintain ended with {cost.exit_code}: {log.read_text()[-2000:]}")
    return cost


def _write_table(paths: PipelinePaths, files: int, rows_per_file: int, *, commits: int) -> None:
    """A table as so many runs leave it, and the note of the last of them."""
    import pyarrow.parquet as pq

    from tests.support.staged import make_schema
    from tidegate.table.log.commit import Commit, commit_files
    from tidegate.table.log.state import DataFile

    added: list[DataFile] = []
    for number in range(files):
        day = f"2026-01-{1 + number % DAYS:02d}"
        path = f"day={day}/part-{number:08d}-00000.parquet"
        (paths.table / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_make_rows(number, rows_per_file), paths.table / path, store_schema=False)
        size = (paths.table / path).stat().st_size
        added.append(DataFile(path, rows_per_file, size, {"day": day}, number))
        if commits > 1 or number == files - 1:
            commit_files(
                paths.table,
                Commit(
                    schema_json=make_schema(**_SCHEMA),
                    partition_by=["day"],
                    add=added,
                    app_id=QUERY,
                    app_version=number,
                    app_version_before=number - 1 if commits > 1 else -1,
                    custom_metadata={"tidegate.query_id": QUERY, "tidegate.outcome": "published"},
                ),
            )
            added = []
    _note_published(paths, files - 1)


def _note_published(paths: PipelinePaths, last_batch: int) -> None:
    """As the last run has noted its publish."""
    from tidegate.state.published import Published, write_published
    from tidegate.table.log.state import read_table_state

    state = read_table_state(paths.table)
    assert state is not None
    write_published(paths, Published(state.table_id, state.version, QUERY, last_batch), only=True)


def _make_rows(seed: int, count: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(seed)
    moments = random.integers(1_760_000_000_000_000, 1_767_000_000_000_000, count)
    return pa.table(
        {
            "id": np.arange(seed * count, (seed + 1) * count),
            "city": [f"city {number}" for number in random.integers(0, 50, count)],
            "amount": random.random(count),
            "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "comment": [f"comment number {number}" for number in random.integers(0, 10**9, count)],
        }
    )


def _time_reads(table: Path) -> dict[str, float]:
    """Seconds of each reader, the median of seven."""
    import duckdb
    from deltalake import DeltaTable

    from tidegate.table.log.state import read_log

    def plain() -> None:
        query = 'SELECT count(*), sum(id), max(city), sum(amount), max("at"), max(comment), max(day)'
        with duckdb.connect() as connection:
            connection.execute(f"{query} FROM read_parquet('{table}/**/*.parquet', union_by_name = true)").fetchall()

    readers: dict[str, Callable[[], object]] = {
        "plain DuckDB": plain,
        "tidegate's own look at the log": lambda: read_log(table).files(),
        "deltalake": lambda: DeltaTable(str(table)).to_pyarrow_table(columns=["id"]),
    }
    return {name: statistics.median(_time(read) for _ in range(7)) for name, read in readers.items()}


def _time(read: Callable[[], object]) -> float:
    began = time.perf_counter()
    read()
    return time.perf_counter() - began
