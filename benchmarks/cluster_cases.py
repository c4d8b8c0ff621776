"""The same input on one machine and on a standalone cluster of one and two workers with a core each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Row
from benchmarks.meter import Cost
from benchmarks.workbench import BenchmarkError, Workbench, take_median
from tidegate.examples.command import Draw
from tidegate.examples.make_orders import make_orders
from tools.spark_cluster import SparkCluster, start_cluster

_TICKS = os.sysconf("SC_CLK_TCK")


def measure_cluster(bench: Workbench, rows: dict[str, int], repeats: int) -> list[Row]:
    """``rows``: {what the work is called: how many rows of JSON}. Each is done on local[2], on one worker, on two, and
    on two by the plain job; in turns, the median of ``repeats``.

    A cluster's figures have the executors' CPU in them; the workers and the master themselves run on.
    """
    # What Spark calls this machine otherwise may be an address that changes with the network.
    bench.env["SPARK_LOCAL_IP"] = "127.0.0.1"
    clusters = {
        workers: start_cluster(bench.folder / f"cluster-{workers}", workers=workers, env={"PATH": bench.env["PATH"]})
        for workers in (1, 2)
    }
    try:
        found: list[Row] = []
        for number, (work, count) in enumerate(rows.items()):
            source = bench.folder / f"input-{number}"
            make_orders(source, count, Draw(faults=0.001), files=8 if count > 100_000 else 1)
            found += _compare(bench, work, source, count, clusters, repeats)
        return found
    finally:
        for cluster in clusters.values():
            cluster.stop()


def _compare(
    bench: Workbench, work: str, source: Path, rows: int, clusters: dict[int, SparkCluster], repeats: int
) -> list[Row]:
    costs: dict[str, list[Cost]] = {}
    for _ in range(repeats):
        for name, master, cluster in [
            ("local[2]", "local[2]", None),
            *((f"{workers} workers", cluster.master_url, cluster) for workers, cluster in clusters.items()),
        ]:
            fresh = _make_project(bench, source, master)
            costs.setdefault(name, []).append(measure_on(cluster, fresh.run))
            report = fresh.last_report()
            if report["rows"]["read"] != rows or report["outcome"] != "published":
                raise BenchmarkError(f"expected {rows} rows published on {name}, the report says {report['rows']}")
        fresh = _make_project(bench, source, "local[2]")
        arguments = [str(fresh.inbox), str(fresh.plain_table()), str(fresh.folder / "plain" / "checkpoint")]
        submit = ("--master", clusters[2].master_url)

        def run_plain(
            fresh: Workbench = fresh, arguments: list[str] = arguments, submit: tuple[str, ...] = submit
        ) -> Cost:
            return fresh.run_plain("plain_files_job.py", *arguments, submit=submit)

        costs.setdefault("plain", []).append(measure_on(clusters[2], run_plain))
    local, one, two, plain = (take_median(costs[name]) for name in ("local[2]", "1 workers", "2 workers", "plain"))
    return [
        Row(f"{work}: one worker", "wall ratio", one.wall_seconds / local.wall_seconds, None, one, local, "local[2]"),
        Row(f"{work}: two workers", "wall ratio", two.wall_seconds / local.wall_seconds, None, two, local, "local[2]"),
        Row(f"{work}: two workers", "CPU ratio", two.cpu_seconds / local.cpu_seconds, None),
        Row(
            f"{work}: two workers, against the plain job there", "CPU ratio", two.cpu_seconds / plain.cpu_seconds, None,
            two, plain, "plain job, two workers",
        ),
    ]  # fmt: skip


def _make_project(bench: Workbench, source: Path, master: str) -> Workbench:
    fresh = Workbench(bench.folder / f"project-{len(list(bench.folder.glob('project-*')))}")
    fresh.env = bench.env
    settings = fresh.project / "tidegate.yaml"
    settings.write_text(settings.read_text().replace("local[*]", master))
    for path in source.iterdir():
        os.link(path, fresh.inbox / path.name)
    return fresh


def measure_on(cluster: SparkCluster | None, run: Callable[[], Cost]) -> Cost:
    """What ``run`` costs, with the executors of ``cluster``."""
    before = _executor_seconds(cluster)
    cost = run()
    return replace(cost, cpu_seconds=cost.cpu_seconds + _executor_seconds(cluster, settled=True) - before)


def _executor_seconds(cluster: SparkCluster | None, settled: bool = False) -> float:
    """CPU of all executors that have ended: a worker has waited for each."""
    if cluster is None:
        return 0.0
    from tools.processes import wait_until

    if settled and not wait_until(lambda: not cluster.list_executors(), 30, 0.05):
        raise BenchmarkError("executors outlive their run")
    total = 0
    for worker in cluster.workers:
        fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[13]) + int(fields[14])
    return total / _TICKS
