"""Arbitrary state across runs: by pandas, with timers, and looked at from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.streams.joins import event
from tests.support.streaming import make_streaming, source
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.spark.catalyst.state import StateStores, find_missing_state
from tidegate.spark.inspection.show_state import read_state
from tidegate.spark.session.executors import Executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMED = {"event_time": "dt", "watermark": "10 minutes"}

_COUNTER = """\
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class Counter(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState('total', 'total LONG')

    def handleInputRows(self, key, rows, timerValues):
        count = sum(len(batch) for batch in rows)
        if not self.total.exists():
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 3_600_000)
        before = self.total.get()[0] if self.total.exists() else 0
        self.total.update((before + count,))
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        total = self.total.get()[0]
        self.total.clear()
        yield pd.DataFrame({'id': [key[0]], 'total': [total]})

    def close(self):
        pass


def transform(events):
    return events.groupBy('id').transformWithStateInPandas(Counter(), 'id STRING, total LONG', 'append', 'EventTime')
"""


def test_timers_fire_across_runs(spark: SparkSession, tmp_path: Path) -> None:
    """A timer an hour after the watermark of a key's first row, three runs later, by RocksDB's state."""
    spec = "sources:\n" + source("events", "id STRING, dt TIMESTAMP", **TIMED)
    flow = make_streaming(tmp_path, spark, spec, _COUNTER)
    flow.offer("events", event("warm", "10:00"))
    flow.run()
    flow.offer("events", event("a", "10:10"), event("a", "10:11"))
    flow.run()
    flow.offer("events", event("a", "10:30"), event("b", "10:40"))
    flow.run()
    flow.expect("id total", [("warm", 1)])  # its timer: an hour after 1970
    total, timers = read_state(flow.project, "flow", spark=spark)["operators"]
    assert total["store"] == "total" and timers["store"] == "timers"
    assert {row["key"]["id"]: row["value"]["total"] for row in total["rows"]} == {"a": 3, "b": 1}
    assert {row["key"]["id"] for row in timers["rows"]} == {"a", "b"}
    flow.offer("events", event("end", "12:00"))
    flow.run()
    flow.expect("id total", [("warm", 1), ("a", 3), ("b", 1), ("end", 1)])  # the watermark: from 10:30 to 11:50
    assert "RocksDB" in (flow.state / "checkpoint/offsets/0").read_text()


_TOTALS = """\
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout


def add(key, batches, state):
    total = (state.get[0] if state.exists else 0) + sum(len(batch) for batch in batches)
    state.update((total,))
    yield pd.DataFrame({'id': [key[0]], 'total': [total]})


def transform(events):
    made = events.groupBy('id')
    return made.applyInPandasWithState(
        add, 'id STRING, total LONG', 'total LONG', 'update', GroupStateTimeout.NoTimeout
    )
"""


def test_state_by_pandas_in_update_mode(spark: SparkSession, tmp_path: Path) -> None:
    keys = "output_mode: update\ntable: {keys: [id]}\nsources:\n" + source("events", "id STRING, dt TIMESTAMP")
    flow = make_streaming(tmp_path, spark, keys, _TOTALS)
    for number in range(1, 4):
        flow.offer("events", event("a", "10:00"), event(f"b{number}", "10:00"))
        flow.run()
        flow.expect("id total", [("a", number), *((f"b{one}", 1) for one in range(1, number + 1))])
    rows = read_state(flow.project, "flow", spark=spark)["operators"][0]["rows"]
    assert {row["key"]["id"] for row in rows} == {"a", "b1", "b2", "b3"}


def test_an_offset_log_without_the_number_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.2.0 leaves it out of the first batch of a query that is the first of its session."""
    keys = "output_mode: update\ntable: {keys: [id]}\nsources:\n" + source("events", "id STRING, dt TIMESTAMP")
    flow = make_streaming(tmp_path, spark, keys, _TOTALS)
    flow.offer("events", event("a", "10:00"))
    flow.run()
    entry = flow.project.paths("flow").checkpoint / "offsets" / "0"
    version, settings, *offsets = entry.read_text().split("\n")
    value = json.loads(settings)
    value["conf"].pop("spark.sql.shuffle.partitions", None)
    entry.write_text("\n".join([version, json.dumps(value), *offsets]))
    (entry.parent / ".0.crc").unlink(missing_ok=True)
    before = entry.read_bytes()
    rows = read_state(flow.project, "flow", spark=spark)["operators"][0]["rows"]
    assert [row["key"]["id"] for row in rows] == ["a"]
    assert entry.read_bytes() == before


def test_a_python_error_in_a_state_function(spark: SparkSession, tmp_path: Path) -> None:
    """The user's file and line are named; the run after the correction is complete and nothing counts twice."""
    keys = "output_mode: update\ntable: {keys: [id]}\nsources:\n" + source("events", "id STRING, dt TIMESTAMP")
    flow = make_streaming(tmp_path, spark, keys, _TOTALS)
    flow.offer("events", event("a", "10:00"))
    flow.run()
    text = (tmp_path / "jobs/flow/transform.py").read_text()
    broken = text.replace("    state.update", "    1 // (3 - len(key[0]) - 2)\n    state.update")
    flow.write("jobs/flow/transform.py", broken)
    flow.offer("events", event("a", "10:01"))
    with pytest.raises(UsageError, match="ZeroDivisionError") as caught:
        flow.run()
    line = 1 + broken.split("\n").index("    1 // (3 - len(key[0]) - 2)")
    assert f"transform.py:{line}" in str(caught.value.where)
    flow.write("jobs/flow/transform.py", text)
    flow.run()
    flow.expect("id total", [("a", 2)])


def test_state_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """A torn file of the state store: a clear error, nothing published, and a rebuild as the way on."""
    keys = "output_mode: update\ntable: {keys: [id]}\nsources:\n" + source("events", "id STRING, dt TIMESTAMP")
    counts = "def transform(events):\n    return events.groupBy('id').count()\n"
    flow = make_streaming(tmp_path, spark, keys, counts)
    flow.offer("events", event("a", "10:00"), event("b", "10:00"))
    flow.run()
    for path in (flow.state / "checkpoint/state/0").glob("*/*.delta"):
        path.write_bytes(path.read_bytes()[:7])
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    with pytest.raises(DisagreementError, match="STATE_UNREADABLE: the state of flow cannot be read"):
        read_state(flow.project, "flow", spark=spark)
    flow.offer("events", event("a", "10:01"))
    with pytest.raises(DisagreementError, match="the state of flow cannot be read"):
        flow.run()
    flow.expect("id count", [("a", 1), ("b", 1)])
    repair_pipeline(flow.project, "flow", dry_run=False, rebuild=True)
    flow.run()
    flow.expect("id count", [("a", 2), ("b", 1)])


_STATEFUL = {
    "keys": "append events.groupBy('id', 'dt').count()",
    "whole": "complete events.groupBy().count()",
    "once": "append events.dropDuplicates(['id', 'dt'])",
}


@pytest.mark.parametrize("kind", [*_STATEFUL, "join", "rocksdb"])
def test_state_that_a_task_wrote_elsewhere_is_missed(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch has written is all there; take a partition's newest file away, and it is the one that is named."""
    found: list[StateStores] = []

    def check_state(self: Executors, checkpoint: Path, stores: Sequence[StateStores]) -> None:
        found[:] = stores
        assert stores and find_missing_state(checkpoint, stores) == []

    monkeypatch.setattr(Executors, "check_state", check_state)
    sources = "sources:\n" + source("events", "id STRING, dt TIMESTAMP", **TIMED)
    if kind == "rocksdb":
        flow = make_streaming(tmp_path, spark, sources, _COUNTER)
    elif kind == "join":
        sources += source("others", "id STRING, dt TIMESTAMP", **TIMED)
        body = (
            "    near = (events.id == o.id) & (o.dt >= events.dt) & (o.dt <= events.dt + F.expr('interval 1 hour'))\n"
        )
        body = f"    o = others.alias('o')\n{body}    return events.join(o, near).select(events.id)\n"
        text = f"from pyspark.sql import functions as F\n\n\ndef transform(events, others):\n{body}"
        flow = make_streaming(tmp_path, spark, sources, text.replace("o = others.alias('o')", "o = others"))
        flow.offer("others", event("a", "10:10"))
    else:
        mode, body = _STATEFUL[kind].split(" ", 1)
        flow = make_streaming(
            tmp_path, spark, f"output_mode: {mode}\n{sources}", f"def transform(events):\n    return {body}\n"
        )
    flow.offer("events", event("a", "10:10"))
    flow.run()
    checkpoint, store = flow.state / "checkpoint", found[0]
    last = store.partitions - 1
    for file in (checkpoint / f"state/{store.operator_id}/{last}").rglob(f"{store.version}[._]*"):
        file.unlink()
    assert find_missing_state(checkpoint, [store]) == [f"state/{store.operator_id}/{last}"]


def test_state_of_rocksdb_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """As above, with the store behind timers and variables."""
    spec = "sources:\n" + source("events", "id STRING, dt TIMESTAMP", **TIMED)
    flow = make_streaming(tmp_path, spark, spec, _COUNTER)
    flow.offer("events", event("a", "10:10"))
    flow.run()
    torn = [
        *(flow.state / "checkpoint/state/0").rglob("*.zip"),
        *(flow.state / "checkpoint/state").rglob("*.changelog"),
    ]
    assert torn
    for path in torn:
        path.write_bytes(path.read_bytes()[:7])
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    with pytest.raises(DisagreementError, match="STATE_UNREADABLE: the state of flow cannot be read"):
        read_state(flow.project, "flow", spark=spark)
    flow.offer("events", event("a", "10:20"), event("end", "12:00"))
    with pytest.raises(DisagreementError, match="the state of flow cannot be read") as caught:
        flow.run()
    assert caught.value.code == "STATE_UNREADABLE"
    flow.expect("id total", [("a", 1)])  # its timer: an hour after 1970
    repair_pipeline(flow.project, "flow", dry_run=False, rebuild=True)
    flow.run()
    flow.expect("id total", [("a", 2), ("end", 1)])


def test_shuffle_partitions_are_the_users_at_birth_and_stay(spark: SparkSession, tmp_path: Path) -> None:
    """The number is read once, with the first batch of a checkpoint; a later one is named in the report."""
    count = "def transform(events):\n    return events.groupBy('id').count()\n"
    conf = "spark: {conf: {spark.sql.shuffle.partitions: 3}}\n"
    more = "output_mode: update\ntable: {keys: [id]}\n"
    flow = make_streaming(
        tmp_path, spark, f"sources:\n{source('events', 'id STRING, dt TIMESTAMP')}{more}{conf}", count
    )
    flow.offer("events", event("a", "10:00"))
    report = flow.run()
    assert report["notes"] == []
    state = next(flow.state.rglob("state/0"))
    assert sorted(path.name for path in state.iterdir() if path.name.isdigit()) == ["0", "1", "2"]
    spec = tmp_path / "jobs/flow/pipeline.yaml"
    spec.write_text(spec.read_text().replace("shuffle.partitions: 3", "shuffle.partitions: 5"))
    flow.offer("events", event("a", "11:00"))
    [note] = flow.run()["notes"]
    assert note.startswith("spark.sql.shuffle.partitions is 5 in spark.conf, and stays 3 for this checkpoint")
    flow.expect("id count", [("a", 2)])
