"""``tidegate state``: what a query keeps between runs, read from its checkpoint by Spark's own state reader."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate.core import storage
from tidegate.core.outputs import State, StateRow
from tidegate.sources import errors as sources_errors
from tidegate.spark import errors
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.jvm import driver_conf, jvm_options
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import read_birth
from tidegate.state.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS_AT_MOST = 100


def read_state(project: Project, name: str, *, limit: int = ROWS_AT_MOST, spark: SparkSession | None = None) -> State:
    """Read the query's state, at most ``limit`` rows a store. Starts a small local Spark session unless one is given.

    Raises UsageError NO_STATE for a query without state, DisagreementError STATE_UNREADABLE, CHECKPOINT_TORN.
    """
    load_pipeline(project, name)
    paths = project.paths(name)
    checkpoint, birth = read_checkpoint(paths.checkpoint), read_birth(paths)
    if birth is not None and birth.keeps_state and birth.query_id is not None and not checkpoint.exists:
        faults = f"the checkpoint of query {birth.query_id} is gone"
        raise sources_errors.CHECKPOINT_TORN(where=str(paths.checkpoint), name=name, faults=faults)
    if birth is None or not birth.keeps_state or checkpoint.last_commit is None:
        is_stateless = birth is not None and birth.state == []
        reason = "its query does not keep any" if is_stateless else "no run has written any yet"
        raise errors.NO_STATE(where=str(paths.checkpoint), reason=reason, name=name)
    session = spark if spark is not None else _session()
    _ = session.streams.active  # the reader needs the coordinator of state stores, which only this brings up
    value: State = {"pipeline": name, "batch": checkpoint.last_commit, "operators": []}
    try:
        stores = session.read.format("state-metadata").load(str(paths.checkpoint)).collect()
        for store in sorted(stores, key=lambda row: (row["operatorId"], row["stateStoreName"])):
            with _with_partitions(paths.checkpoint, checkpoint.last_commit, store["numPartitions"]) as folder:
                for part, frame in _read_store(session, folder, store):
                    shown = frame.limit(limit).select(F.to_json(F.struct("*")).alias("row")).collect()
                    value["operators"].append(
                        {
                            "operator": store["operatorName"],
                            "store": part,
                            "count": frame.count(),
                            "rows": [_row_of(json.loads(one["row"])) for one in shown],
                        }
                    )
    except SPARK_ERRORS as error:
        raise errors.STATE_UNREADABLE(
            where=str(paths.checkpoint / "state"), name=name, error=str(error).splitlines()[0][:400]
        ) from error
    return value


@contextlib.contextmanager
def _with_partitions(checkpoint: Path, batch: int, partitions: int) -> Iterator[str]:
    """A folder that leads to the checkpoint, in whose offset log the number of partitions is: Spark's reader of state
    ends with None.get without it, and Spark 4.2.0 leaves it out of a query's first entries (SPARK-59919)."""
    with tempfile.TemporaryDirectory(prefix="tidegate-state-") as name:
        folder = Path(name)
        for one in ("metadata", "commits", "state"):
            (folder / one).symlink_to((checkpoint / one).absolute())
        version, settings, *offsets = storage.read(checkpoint / "offsets" / str(batch)).decode().split("\n")
        value = json.loads(settings)
        value["conf"].setdefault("spark.sql.shuffle.partitions", str(partitions))
        (folder / "offsets").mkdir()
        (folder / "offsets" / str(batch)).write_text("\n".join([version, json.dumps(value), *offsets]))
        yield str(folder)


def _read_store(session: SparkSession, checkpoint: str, store: Row) -> Iterator[tuple[str, DataFrame]]:
    """Name and rows of what a store holds: one part, or of transformWithState one for each variable and the timers."""

    def read(**options: str) -> DataFrame:
        reader = session.read.format("statestore").option("operatorId", store["operatorId"])
        return reader.options(**options).load(checkpoint)

    if not str(store["operatorName"]).startswith("transformWithState"):
        name = store["stateStoreName"]
        yield name, read() if name == "default" else read(storeName=name)
        return
    properties = json.loads(store["operatorProperties"])
    variables = properties["stateVariables"]
    for variable in json.loads(variables) if isinstance(variables, str) else variables:
        if not variable["stateName"].startswith("$"):  # Spark's own, which keep the timers
            yield variable["stateName"], read(stateVarName=variable["stateName"])
    if str(properties.get("timeMode")).lower() not in ("none", "notime"):
        yield "timers", read(readRegisteredTimers="true")


def _row_of(row: dict[str, object]) -> StateRow:
    key, partition = row.pop("key", None), row.pop("partition_id", None)
    number = partition if isinstance(partition, int) else None
    return {"key": key, "value": row.get("value", row), "partition": number}


def _session() -> SparkSession:
    builder = SparkSession.builder.master("local[1]").appName("tidegate state")
    for key, setting in {
        **driver_conf(0, 0, 1),
        "spark.driver.extraJavaOptions": " ".join(jvm_options(0, None)),
    }.items():
        builder = builder.config(key, setting)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")  # it warns of each store that it loads
    return session
