"""A foreach_batch sink is fed by a driver of its own, on the cluster like the ingest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.conftest import make_clustered
from tests.cluster.ending import end
from tests.support.scene import NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tools.spark_cluster import SparkCluster

_SINK = '''"""Feed a folder, row by row through Python on the executors; and say so."""

from pathlib import Path

HERE = Path(__file__).parent


def write(df, batch_id):
    """Count what comes, on the cluster."""
    with (HERE / "fed").open("a") as out:
        out.write(f"{batch_id} {df.count()} {df.sparkSession.sparkContext.master}\\n")
'''


def test_a_sink_is_fed_on_the_cluster_and_not_blamed_for_its_absence(
    cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    limit = {"spark_scheduler_maxRegisteredResourcesWaitingTime": "5s"}
    scene = make_clustered(tmp_path / "project", cluster.master_url, **limit)
    job = scene.root / "jobs/orders"
    (job / "sinks.py").write_text(_SINK)
    text = (job / "pipeline.yaml").read_text() + 'sinks: [{type: foreach_batch, function: "sinks.py:write"}]\n'
    (job / "pipeline.yaml").write_text(text)
    scene.tidegate("run", NAME)
    assert (job / "fed").read_text() == f"0 6 {cluster.master_url}\n"

    (job / "sinks.py").write_text(_SINK.replace("HERE / ", "HERE / 'nowhere' / "))  # owed, and not fed
    scene.offer()
    end(scene.start("run", NAME), 75)
    (job / "sinks.py").write_text(_SINK)
    for worker in cluster.workers:
        if worker.is_running():
            cluster.kill_worker(worker.number)
    said = end(scene.start("deliver", NAME), 75)
    assert "NO_EXECUTORS" in said and "SINK_FAILED" not in said
    cluster.start_worker()
    scene.tidegate("deliver", NAME)
    assert (job / "fed").read_text() == f"0 6 {cluster.master_url}\n1 6 {cluster.master_url}\n"
    scene.check_complete(spark)
