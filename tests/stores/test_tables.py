"""Tables and quarantine on an S3 server: each kind of run, through readers that are not ours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from obstore.fsspec import FsspecStore

from tests.support.object_servers import Bucket
from tests.support.project import PipelineProject, in_session
from tests.support.readers import open_duckdb
from tidegate.core.errors import HeldError
from tidegate.rework.backfill.command import backfill_table, refresh_table
from tidegate.rework.backfill.span import Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]

SPEC = """\
version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, day DATE, amount DOUBLE"}
table: {partition_by: [day]}
"""
SUITE = """\
name: orders
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    severity: critical
    meta: {rule: id_present, on_failure: quarantine}
  - type: expect_column_max_to_be_between
    kwargs: {column: amount, max_value: 1000}
    severity: critical
"""


class StoredTable:
    """The project of a test, with its tables in a bucket."""

    def __init__(self, root: Path, bucket: Bucket, spec: str = SPEC) -> None:
        self.bucket = bucket
        self.scene = PipelineProject(root)
        self.scene.create(f"warehouse: {bucket.url}/lake/tables\nquarantine: {bucket.url}/lake/quarantine\n")
        self.scene.write("jobs/orders/pipeline.yaml", spec)
        self.scene.write("expectations/orders.yaml", SUITE)
        self.spec = spec
        self.files = 0

    def run(self, spark: SparkSession, run_id: str | None = None) -> dict[str, Any]:
        """A run in the session of all tests; its report."""
        return self.scene.run(run_id, submit=in_session(spark))

    def offer(self, rows: Iterable[dict[str, Any]]) -> None:
        """A new file in the inbox."""
        self.files += 1
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.scene.write(f"data/inbox/{self.files:03d}.json", text)

    def list_keys(self, prefix: str = "") -> list[str]:
        """All keys with a prefix."""
        return [meta["path"] for page in obstore.list(self.bucket.client, prefix) for meta in page]

    def list_plain(self, table: str = "tables") -> list[str]:
        """The keys that a reader takes which goes by ``**/*.parquet`` and skips hidden names."""
        prefix = f"lake/{table}/orders/"
        keys = self.list_keys(prefix)
        parts = {key: key.removeprefix(prefix).split("/") for key in keys if key.endswith(".parquet")}
        return [key for key, names in parts.items() if not any(name.startswith((".", "_")) for name in names)]

    def read_plain(self, table: str = "tables") -> Rows:
        """The rows of these files, read with pyarrow one by one."""
        found = list[dict[str, Any]]()
        for key in self.list_plain(table):
            rows = pq.read_table(pa.BufferReader(self.bucket.client.get(key).bytes().to_bytes()))
            values = dict(part.split("=", 1) for part in key.split("/") if "=" in part)
            found += [{**row, **values} for row in rows.to_pylist()]
        return found

    def read_all(self) -> Rows:
        """The rows of the table, which three readers agree on."""
        url = f"{self.bucket.url}/lake/tables/orders"
        by_log = DeltaTable(url).to_pyarrow_table().to_pylist()
        with open_duckdb() as connection:
            if not connection.filesystem_is_registered("s3"):
                connection.register_filesystem(FsspecStore("s3"))
            files = [f"{self.bucket.url}/{key}" for key in self.list_plain()]
            query = f"SELECT * FROM read_parquet({files}, union_by_name = true, hive_partitioning = true)"
            by_glob = connection.sql(query).to_arrow_table().to_pylist()
        found = [
            sorted((row["id"], str(row["day"]), row["amount"]) for row in rows)
            for rows in (by_log, by_glob, self.read_plain())
        ]
        assert found[0] == found[1] == found[2]
        return [{"id": id_, "day": day, "amount": amount} for id_, day, amount in found[0]]


def rows_of(first: int, count: int) -> Rows:
    return [{"id": n, "day": f"2026-01-{n % 3 + 1:02d}", "amount": float(n % 100)} for n in range(first, first + count)]


@pytest.fixture
def stored(tmp_path: Path, s3_bucket: Bucket) -> StoredTable:
    return StoredTable(tmp_path / "p", s3_bucket)


def test_runs_publish_to_the_store(stored: StoredTable, spark: SparkSession) -> None:
    stored.offer(rows_of(0, 100))
    stored.offer([{"id": None, "day": "2026-01-01", "amount": 1.0}])
    asked = stored.bucket.server.count_requests(stored.bucket.name)
    report = stored.scene.run()
    assert report["outcome"] == "published"
    assert set(report["requests"]) == {"ingest", "audit", "publish"}
    assert sum(report["requests"].values()) == sum(asked.counts().values())
    assert report["rows"]["published"] == 100
    assert stored.read_all() == rows_of(0, 100)
    assert len(stored.read_plain("quarantine")) == 1
    stored.offer(rows_of(100, 50))
    stored.run(spark)
    assert stored.read_all() == rows_of(0, 150)
    stored.run(spark)  # its cache has the versions of the table now
    asked.mark()
    report = stored.run(spark)
    assert asked.counts() == {"ListObjectsV2": 2}, "an idle run lists the table and quarantine"
    assert report["requests"] == {"ingest": 2}
    assert not list(stored.scene.root.rglob("s3:*"))


def test_a_held_increment_is_released_or_discarded(stored: StoredTable, spark: SparkSession) -> None:
    stored.offer(rows_of(0, 10))
    stored.run(spark)
    stored.offer([{"id": 100, "day": "2026-01-01", "amount": 5000.0}])
    with pytest.raises(HeldError):
        stored.run(spark, "held")
    assert stored.read_all() == rows_of(0, 10)
    stored.scene.call("release", "orders", "held", "--reason", "checked")
    assert stored.scene.call("status", "orders")
    stored.run(spark)
    assert len(stored.read_all()) == 11
    stored.offer([{"id": 101, "day": "2026-01-02", "amount": 5000.0}])
    with pytest.raises(HeldError):
        stored.run(spark, "second")
    stored.scene.call("discard", "orders", "second", "--reason", "wrong")
    stored.run(spark)
    assert len(stored.read_all()) == 11


def test_a_table_on_a_store_is_kept_up(stored: StoredTable, spark: SparkSession) -> None:
    """Maintenance, a rollback, a replay of quarantined records, the check of all files; no leftovers."""
    for number in range(3):
        stored.offer([*rows_of(10 * number, 10), {"id": None, "day": "2026-01-01", "amount": 1.0 + number}])
        stored.run(spark)
    assert len(stored.list_plain()) == 9
    report = stored.scene.report("maintain", "orders")
    assert report["outcome"] == "published"
    assert len(stored.list_plain()) == 3, "compacted"
    assert stored.read_all() == rows_of(0, 30)
    stored.scene.call("verify", "orders")
    stored.scene.call("rollback", "orders", "--to-version", "1", "--then", "leave-out")
    assert stored.read_all() == rows_of(0, 20)
    stored.scene.call("verify", "orders")
    listed = json.loads(stored.scene.call("quarantine", "show", "orders", "--json"))
    assert [record["reason"] for record in listed] == ["id_present"] * 3
    edited = [{"id": record["id"], "raw": json.dumps({**json.loads(record["raw"]), "id": 77})} for record in listed[:1]]
    file = stored.scene.write("edited.jsonl", "\n".join(map(json.dumps, edited)))
    stored.scene.report("quarantine", "replay", "orders", "--file", str(file))
    assert [row["id"] for row in stored.read_all()] == [*range(20), 77]
    assert len(stored.read_plain("quarantine")) == 2
    assert [key for key in stored.list_keys() if key.endswith((".incoming", ".probe"))] == []


def test_partitions_are_built_again(stored: StoredTable, spark: SparkSession) -> None:
    stored.offer(rows_of(0, 30))
    stored.run(spark)
    stored.scene.write("jobs/orders/transform.sql", "SELECT id, day, amount * 2 AS amount FROM orders")
    stored.scene.write("jobs/orders/pipeline.yaml", f"{stored.spec}transform: transform.sql\n")
    project, submit = stored.scene.project, in_session(spark)
    backfill_table(project, "orders", "again", Wanted("2026-01-02", "2026-01-02"), submit=submit)
    expected = [{**row, "amount": row["amount"] * (2 if row["day"] == "2026-01-02" else 1)} for row in rows_of(0, 30)]
    assert stored.read_all() == expected
    refresh_table(project, "orders", "fresh", submit=submit)
    assert stored.read_all() == [{**row, "amount": row["amount"] * 2} for row in rows_of(0, 30)]


def test_changed_rows_are_replaced_for_readers_of_the_log(
    tmp_path: Path, s3_bucket: Bucket, spark: SparkSession
) -> None:
    plain = SPEC.replace("table: {", "output_mode: update\ntable: {keys: [id], ")
    stored = StoredTable(tmp_path / "p", s3_bucket, plain)
    assert "write readers: delta" in stored.scene.tidegate("validate", "orders", expect=64)
    stored.scene.write("jobs/orders/pipeline.yaml", plain.replace("keys: [id]", "keys: [id], readers: delta"))
    stored.offer(rows_of(0, 30))
    stored.run(spark)
    changed = [{**row, "amount": 500.0} for row in rows_of(10, 10)]
    stored.offer(changed)
    stored.run(spark)
    expected = [*rows_of(0, 10), *changed, *rows_of(20, 10)]
    by_log = DeltaTable(f"{s3_bucket.url}/lake/tables/orders").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["amount"]) for row in by_log) == [(row["id"], row["amount"]) for row in expected]
