"""Taking over a table of 10,000 files that a plain Spark job has written."""

from __future__ import annotations

import json
import shutil
import uuid
from datetime import date, timedelta
from typing import TYPE_CHECKING

from benchmarks.figures import Row
from benchmarks.meter import measure
from benchmarks.workbench import BIN, BenchmarkError, Workbench

if TYPE_CHECKING:
    from benchmarks.cases import Size

FILES = 10_000
_DAYS = 100
_ROWS = 10
_NAME = "adopted"
_COLUMNS = {"id": "BIGINT", "city": "STRING", "amount": "DOUBLE", "count": "BIGINT"} | {
    f"text_{number}": "STRING" for number in range(6)
}
_SPARK = {"BIGINT": "long", "STRING": "string", "DOUBLE": "double"}


def run_adopt(bench: Workbench, size: Size) -> list[Row]:
    """`adopt` of a table of 10,000 files in 100 partitions, with Spark's list of its files."""
    table = bench.project / "data" / "warehouse" / _NAME
    schema = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    job = bench.project / "jobs" / _NAME
    job.mkdir()
    (job / "pipeline.yaml").write_text(
        f"version: 1\nname: {_NAME}\nsources:\n  s: {{type: files, path: data/inbox/{_NAME}, format: json, start: now,"
        f' schema: "{schema}, day DATE"}}\ntable: {{partition_by: [day]}}\n'
    )
    (bench.project / "data" / "inbox" / _NAME).mkdir()
    costs = []
    for number in range(size.repeats):
        shutil.rmtree(table, ignore_errors=True)
        shutil.rmtree(bench.project / "data" / "state" / _NAME, ignore_errors=True)
        _make_table(bench, size.rows(FILES))
        command = [str(BIN / "tidegate"), "--project", str(bench.project), "adopt", _NAME]
        cost = measure([*command, "--table", str(table), "--run-id", f"a{number}"], cwd=bench.folder, env=bench.env)
        report = bench.last_report(_NAME)
        if cost.exit_code or report["table"]["files_added"] != size.rows(FILES):
            raise BenchmarkError(f"adopt ended with {cost.exit_code}: {report['error']}, {report['table']}")
        costs.append(cost)
    cost = sorted(costs, key=lambda one: one.cpu_seconds)[len(costs) // 2]
    work = f"adopt a table of {size.rows(FILES):,} files"
    return [
        Row(work, "CPU seconds", cost.cpu_seconds, 10.0, cost),
        Row(work, "JVMs started", float(cost.java_processes), 0.0),
    ]


def _make_table(bench: Workbench, files: int) -> None:
    """The files of one batch of a file sink, and its list."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = bench.project / "data" / "warehouse" / _NAME
    fields = [{"name": n, "type": _SPARK[k], "nullable": True, "metadata": {}} for n, k in _COLUMNS.items()]
    row = json.dumps({"type": "struct", "fields": fields})
    values = {name: ["x"] * _ROWS if kind == "STRING" else list(range(_ROWS)) for name, kind in _COLUMNS.items()}
    types = {"BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64()}
    columns = pa.schema([(name, types[kind]) for name, kind in _COLUMNS.items()])
    rows = pa.table(values, columns.with_metadata({"org.apache.spark.sql.parquet.row.metadata": row}))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    data = sink.getvalue().to_pybytes()
    lines = ["v1"]
    for number in range(files):
        folder = table / f"day={date(2026, 1, 1) + timedelta(number % _DAYS)}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        path.write_bytes(data)
        lines.append(json.dumps({"path": f"file://{path}", "size": len(data), "action": "add"}))
    log = table / "_spark_metadata" / "0"
    log.parent.mkdir()
    log.write_text("\n".join(lines))
