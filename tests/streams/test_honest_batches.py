"""A batch is what Spark read: nothing is taken on trust between its listing, its counts and its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.streaming import Streaming, make_streaming, source
from tests.support.synced import Synced
from tidegate.core.errors import DefectError
from tidegate.spark.ingest import plan, stage
from tidegate.spark.ingest.stage import BatchStager
from tidegate.state.manifest import BatchManifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ORDERS = "sources:\n" + source("orders", "id INT")


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Streaming:
    return make_streaming(tmp_path, spark, _ORDERS)


def test_lines_that_are_appended_after_spark_has_listed_the_file(
    flow: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads the length it has listed (and the line that begins there), the manifest and the ledger would keep the
    longer one: lost for good."""
    path = flow.offer("orders", {"id": 1})
    real, appended = BatchStager._ranges, []

    def append_first(self: BatchStager, batch_id: int) -> Any:
        if not appended:
            with path.open("a") as handle:
                handle.write('{"id": 2}\n{"id": 3}\n')
            appended.append(batch_id)
        return real(self, batch_id)

    monkeypatch.setattr(BatchStager, "_ranges", append_first)
    flow.run()
    flow.expect("id", [(1,), (2,), (3,)])
    assert flow.run()["sources"]["orders"].get("changed", []) == []


def test_records_that_are_lost_in_front_of_the_transform(flow: Streaming, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that drops records where nothing may be dropped does not balance."""
    real = plan.good_records

    def drop_one(parsed: DataFrame, name: str, *, with_provenance: bool) -> DataFrame:
        return real(parsed, name, with_provenance=with_provenance).where(F.col("id") != 2)

    flow.offer("orders", {"id": 1}, {"id": 2}, {"id": 3}, {"id": "bad"})
    with monkeypatch.context() as patch:
        patch.setattr(plan, "good_records", drop_one)
        with pytest.raises(DefectError) as caught:
            flow.run()
    assert caught.value.code == "UNBALANCED"
    assert "source orders: read 4 != malformed 1 + entered 2" in caught.value.message
    report = flow.run()
    flow.expect("id", [(1,), (2,), (3,)])
    assert (report["rows"]["malformed"], report["rows"]["entered"]) == (1, 3)


@pytest.mark.parametrize("with_state", [False, True])
def test_what_a_manifest_speaks_of_is_on_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_state: bool
) -> None:
    transform = "def transform(orders):\n    return orders" + (".groupBy('id').count()" if with_state else "") + "\n"
    spec = "output_mode: update\ntable: {keys: [id]}\n" + _ORDERS if with_state else _ORDERS
    flow = make_streaming(tmp_path, spark, spec, transform)
    synced, found, real = Synced(monkeypatch), list[list[str]](), stage.write_manifest

    def missing(manifest: BatchManifest) -> list[str]:
        named = [file.path.removeprefix("state/") for file in manifest.files]
        staged = [line.partition(" of ")[2] for line in synced.missing(flow.state / "staging")]
        links = synced.missing(flow.state / "intake")
        return [
            *synced.missing(flow.state / "checkpoint"),
            *(path for path in staged if any(f"{name}/".startswith(f"{path}/") for name in named)),
            # Files are read again only for the state that they made.
            *(line for line in links if with_state or line.startswith("name")),
        ]

    def write_manifest(path: Path, manifest: BatchManifest) -> bool:
        found.append(missing(manifest))
        return real(path, manifest)

    monkeypatch.setattr(stage, "write_manifest", write_manifest)
    for number in range(2):
        flow.offer("orders", {"id": number})
        flow.run()
        assert synced.missing(flow.state / "checkpoint") == [], "after the run, with the last commit"
    assert found == [[], []]
