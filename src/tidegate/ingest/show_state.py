"""``tidegate state``: what a query keeps between runs, read from its checkpoint by Spark's own state reader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidegate.errors import DisagreementError, UsageError
from tidegate.project import Project
from tidegate.spec.load import load_pipeline
from tidegate.staging.birth import read_birth
from tidegate.staging.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_MOST = 100


def read_state(
    project: Project, name: str, *, limit: int = ROWS_AT_MOST, spark: SparkSession | None = None
) -> dict[str, Any]:
    """{"pipeline", "batch", "operators": [{"operator", "store", "rows": [{"key", "value", "partition"}], "count"}]}, at
    most ``limit`` rows a store. Starts a small local Spark session unless one is given.

    Raises UsageError NO_STATE for a query without state, DisagreementError STATE_UNREADABLE.
    """
    load_pipeline(project, name)
    paths = project.paths(name)
    checkpoint, birth = read_checkpoint(paths.checkpoint), read_birth(paths)
    if birth is None or not birth.keeps_state or checkpoint.last_commit is None:
        raise UsageError(
            "NO_STATE",
            f"the query of {name} keeps no state" if birth is not None and birth.state == [] else "no run has made any",
            where=str(paths.checkpoint),
            fix=f"tidegate status {name}",
        )
    from pyspark.sql import functions as F

    session = spark if spark is not None else _session()
    _ = session.streams.active  # the reader needs the coordinator of state stores, which only this brings up
    value: dict[str, Any] = {"pipeline": name, "batch": checkpoint.last_commit, "operators": []}
    try:
        stores = session.read.format("state-metadata").load(str(paths.checkpoint)).collect()
        for store in sorted(stores, key=lambda row: (row["operatorId"], row["stateStoreName"])):
            reader = session.read.format("statestore").option("operatorId", store["operatorId"])
            if store["stateStoreName"] != "default":
                reader = reader.option("storeName", store["stateStoreName"])
            frame = reader.load(str(paths.checkpoint))
            told = frame.limit(limit).select(F.to_json(F.struct("key", "value", "partition_id")).alias("row")).collect()
            rows = [json.loads(one["row"]) for one in told]
            value["operators"].append(
                {
                    "operator": store["operatorName"],
                    "store": store["stateStoreName"],
                    "count": frame.count(),
                    "rows": [
                        {"key": row.get("key"), "value": row.get("value"), "partition": row.get("partition_id")}
                        for row in rows
                    ],
                }
            )
    except Exception as error:
        raise DisagreementError(
            "STATE_UNREADABLE",
            f"the state of {name} cannot be read: {str(error).splitlines()[0][:400]}",
            where=str(paths.checkpoint / "state"),
            next_run="fails in the same way while it reads the state; nothing is lost",
            fix=f"restore the pipeline's state folder from a backup; or `tidegate repair {name} --rebuild`",
        ) from error
    return value


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from tidegate.ingest.jvm import driver_conf, jvm_options

    builder = SparkSession.builder.master("local[1]").appName("tidegate state")
    for key, setting in {
        **driver_conf(0, 0, 1),
        "spark.driver.extraJavaOptions": " ".join(jvm_options(0, None)),
    }.items():
        builder = builder.config(key, setting)
    return builder.getOrCreate()
