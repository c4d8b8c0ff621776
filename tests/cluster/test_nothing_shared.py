"""A cluster whose executors see no folder of the driver's machine: only the object store is common to both."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.object_servers import Bucket, folder_of
from tests.support.project import PipelineProject
from tests.support.readers import read_with_deltalake, read_with_duckdb
from tidegate.core.storage import parse_path
from tidegate.spark.driver.jvm_archive import SWITCH
from tools.processes import wait_until
from tools.spark_cluster import SparkCluster, start_cluster

SCHEMA = (
    "id BIGINT, day DATE, born DATE, kind STRING, amount DECIMAL(12,2), at TIMESTAMP, share DOUBLE, "
    "small TINYINT, ok BOOLEAN, place STRUCT<city: STRING, codes: ARRAY<INT>>, tags MAP<STRING, BIGINT>"
)
SPEC = f"""\
version: 1
name: orders
sources:
  orders: {{type: files, path: "{{bucket}}/inbox", format: json, schema: "{SCHEMA}"}}
  cities: {{type: files, path: data/cities, format: csv, schema: "city STRING, country STRING", static: true}}
transform: transform.py
table: {{partition_by: [day, kind]}}
"""
SUITE = """\
name: orders
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    severity: critical
    meta: {rule: id_present, on_failure: quarantine}
  - type: expect_column_values_to_be_between
    kwargs: {column: share, min_value: 0, max_value: 1}
    severity: critical
"""
TRANSFORM = """\
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import doubling


def transform(orders: DataFrame, cities: DataFrame) -> DataFrame:
    twice = F.udf(doubling.twice, "bigint")
    return orders.join(cities, orders.place.city == cities.city, "left").drop("city").withColumn("twice", twice("id"))
"""
KINDS = ["plain", "a/b=c", "", None, "__HIVE_DEFAULT_PARTITION__x", "größe %"]
Rows = list[dict[str, Any]]


@pytest.fixture
def apart(tmp_path: Path, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """A cluster with one worker, which finds the project and the driver's working copies empty."""
    cache, project = tmp_path / "cache", tmp_path / "project"
    for folder in (cache, project):
        folder.mkdir()
    hide = f"mount -t tmpfs none {cache} && mount -t tmpfs none {project}"
    tried = subprocess.run(["unshare", "-Urm", "sh", "-c", hide], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no right to mount in a namespace of one's own: {tried.stderr.strip()}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv(SWITCH, "off")  # or the first run would build the class archive there
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    cluster = start_cluster(tmp_path / "cluster", workers=0, env={**keys, "PATH": path})
    cluster.start_worker(cores=2, prefix=("unshare", "-Urm", "sh", "-c", f'{hide} && exec "$@"', "sh"))
    yield cluster
    cluster.stop()


class Apart(PipelineProject):
    """A project with all that it keeps in a bucket."""

    def set_up(self, bucket: Bucket, master: str, spec: str = SPEC, prefix: str = "lake") -> None:
        """Write the files of the project."""
        self.bucket, self.prefix = bucket, prefix
        self.create()
        places = [f"{name}: {bucket.url}/{prefix}/{name}\n" for name in ("warehouse", "quarantine", "state")]
        self.write("tidegate.yaml", f"version: 1\nspark: {{master: '{master}'}}\n{''.join(places)}")
        self.write("jobs/orders/pipeline.yaml", spec.replace("{bucket}", bucket.url))
        self.write("jobs/orders/transform.py", TRANSFORM)
        self.write("jobs/orders/doubling.py", "def twice(number):\n    return None if number is None else 2 * number\n")
        self.write("expectations/orders.yaml", SUITE)
        self.write("data/cities/cities.csv", "Oslo,NO\nTromsø,NO\n" + "".join(f"c{n},x\n" for n in range(20_000)))

    def offer(self, name: str, rows: Iterable[dict[str, Any] | str]) -> None:
        """A new object of the source."""
        text = "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)
        data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        obstore.put(self.bucket.client, f"inbox/{name}", data)

    def stored(self, kind: str) -> Path:
        """The table or the quarantine as a path."""
        return parse_path(f"{self.bucket.url}/{self.prefix}/{kind}/orders")

    def read(self, kind: str = "warehouse") -> Rows:
        """Its rows, on which a plain reader and one of the log agree."""
        plain, by_log = read_with_duckdb(self.stored(kind)), read_with_deltalake(self.stored(kind))
        assert Counter(map(repr, map(_sorted, plain))) == Counter(map(repr, map(_sorted, by_log)))
        return by_log


def _sorted(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted((key, dict(value) if key == "tags" and value else str(value)) for key, value in row.items())


def make_row(number: int) -> dict[str, Any]:
    """A record of the source with a value of each type."""
    return {
        "id": number,
        "day": f"2026-03-0{1 + number % 3}",
        "kind": KINDS[number % len(KINDS)],
        "amount": f"{number}.25",
        "at": "2026-03-01T01:02:03.123456Z" if number % 2 else "0001-01-01T00:00:00Z",
        "born": "1580-05-06",
        "share": 0.5,
        "small": number % 100,
        "ok": number % 2 == 0,
        "place": {"city": "Tromsø" if number % 2 else None, "codes": [number, None]},
        "tags": {"n": number},
    }


def describe_files(table: Path) -> dict[str, Any]:
    """What files of a table are to other readers, and what its log says of them."""
    folder = folder_of(table)
    files = sorted(folder.rglob("*.parquet"))
    actions = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True)).to_pylist()
    varying = ("path", "size_bytes", "modification_time")
    return {
        "schemas": {str(pq.ParquetFile(file).schema).partition("{")[2] for file in files},
        "footers": [_parse_footer(pq.read_metadata(file).metadata) for file in files[:1]],
        "folders": Counter(str(file.relative_to(folder).parent) for file in files),
        "log": sorted(str({key: value for key, value in one.items() if key not in varying}) for one in actions),
    }


def _parse_footer(texts: dict[bytes, bytes]) -> dict[str, Any]:
    return {key.decode(): json.loads(text) if text[:1] == b"{" else text.decode() for key, text in texts.items()}


def test_files_are_those_that_spark_writes(apart: SparkCluster, tmp_path: Path, s3_bucket: Bucket) -> None:
    """The same pipeline on the cluster and on this machine: equal rows, quarantine, schemas, folders and statistics."""
    far, near = (Apart(tmp_path / "project" / name) for name in ("far", "near"))
    far.set_up(s3_bucket, apart.master_url, prefix="far")
    near.set_up(s3_bucket, "local[2]", prefix="near")
    far.offer("one.json", map(make_row, range(60)))
    wrong = ['{"id": "no number"}', make_row(1) | {"id": None}]
    far.offer("two.json.gz", [*map(make_row, range(60, 120)), *wrong])
    reports = [flow.run() for flow in (far, near)]
    assert reports[0]["rows"] == reports[1]["rows"]
    rows = [sorted(map(repr, map(_sorted, flow.read()))) for flow in (far, near)]
    assert rows[0] == rows[1] and len(rows[0]) == 120
    kept = [
        sorted((row["reason"], row["raw"], row["position"]) for row in flow.read("quarantine")) for flow in (far, near)
    ]
    assert kept[0] == kept[1] and [reason for reason, *_ in kept[0]] == ["id_present", "malformed"]
    described = [describe_files(flow.stored("warehouse")) for flow in (far, near)]
    assert described[0] == described[1]
    assert far.run()["outcome"] == "nothing_new"


LOCAL_SPEC = """\
version: 1
name: orders
sources:
  orders: {type: files, path: "{bucket}/inbox", format: json, schema: "id BIGINT, share DOUBLE"}
  more: {type: files, path: data/more, format: json, schema: "id BIGINT, share DOUBLE"}
transform: transform.py
quality: {max_quarantine_share: 1.0}
sinks: [{type: foreach_batch, function: "sinks.py:write"}]
"""
IN_SPARK = """\
import tidegate.quality.engine as engine
from pyspark.sql import DataFrame

engine.PANDAS_MEMORY_BYTES = 0  # any increment is too large for pandas


def transform(orders: DataFrame, more: DataFrame) -> DataFrame:
    return orders.unionByName(more)
"""


def test_inputs_of_this_machine_and_damaged_ones(apart: SparkCluster, tmp_path: Path, s3_bucket: Bucket) -> None:
    """Small and large local files, a truncated object, more malformed records than metrics carry, rules in Spark."""
    flow = Apart(tmp_path / "project" / "flow")
    flow.set_up(s3_bucket, apart.master_url, LOCAL_SPEC)
    flow.write("jobs/orders/transform.py", IN_SPARK)
    fed = tmp_path / "project" / "fed"
    sink = f"def write(df, batch_id):\n    open({str(fed)!r}, 'w').write(str(df.count()))\n"
    flow.write("jobs/orders/sinks.py", sink)
    ids = iter(range(100_000))

    def lines(count: int) -> list[str]:
        return [json.dumps({"id": next(ids), "share": 0.5, "filler": "x" * 20}) for _ in range(count)]

    flow.write("data/more/small.json", "".join(f"{line}\n" for line in lines(3)))
    flow.write("data/more/large.json", "".join(f"{line}\n" for line in lines(3_000)))
    flow.offer("bad.json", [f"no record {number}" for number in range(5_000)])
    whole = gzip.compress("".join(f"{line}\n" for line in lines(4_000)).encode())
    obstore.put(s3_bucket.client, "inbox/cut.json.gz", whole[: len(whole) // 2])
    report = flow.run()
    assert report["outcome"] == "published", report
    held = Counter(row["reason"] for row in flow.read("quarantine"))
    assert held == {"malformed": 5_001}
    found = Counter(row["id"] for row in flow.read())
    assert set(found.values()) == {1} and set(range(3_003)) < set(found)
    assert report["rows"]["published"] == len(found) == int(fed.read_text())
    verdict = report["quality"]
    assert verdict["verdict"] == "passed" and len(verdict["results"]) == 3


def _has_more(folder: Path, count: int) -> bool:
    return len(list(folder.glob("*"))) > count


def test_a_killed_run_is_completed(apart: SparkCluster, tmp_path: Path, s3_bucket: Bucket) -> None:
    flow = Apart(tmp_path / "project" / "flow")
    flow.set_up(s3_bucket, apart.master_url)
    objects = folder_of(parse_path(f"{s3_bucket.url}/lake/state/orders/blobs"))
    wanted = 0
    for batch in range(2):
        flow.offer(f"{batch}.json", map(make_row, range(wanted, wanted + 60)))
        wanted += 60
        enough = len(list(objects.glob("*"))) + batch
        process = flow.start("run", "orders")
        assert wait_until(partial(_has_more, objects, enough), 120, 0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert len(flow.read()) in (wanted - 60, wanted)
        flow.run()
        assert Counter(row["id"] for row in flow.read()) == Counter(range(wanted))
    assert flow.run()["outcome"] == "nothing_new"


def test_what_cannot_run_there(apart: SparkCluster, tmp_path: Path, s3_bucket: Bucket) -> None:
    """State of a query, and executors without keys: both are named, and nothing is lost."""
    kept, flow = (Apart(tmp_path / "project" / name) for name in ("kept", "flow"))
    kept.set_up(s3_bucket, apart.master_url, prefix="kept")
    kept.offer("one.json", map(make_row, range(6)))
    kept.write("jobs/orders/transform.py", TRANSFORM.replace("orders.join", 'orders.dropDuplicates(["id"]).join'))
    said = kept.report("run", "orders", expect=64)["error"]
    assert said["code"] == "STORAGE_NOT_SHARED" and "keeps state" in said["message"], said
    spec = kept.job / "pipeline.yaml"
    spec.write_text(spec.read_text() + 'spark: {master: "local[2]"}\n')
    assert kept.run()["rows"]["published"] == 6, "without executors"
    flow.set_up(s3_bucket, apart.master_url)
    apart.kill_worker(0)
    hide = f"mount -t tmpfs none {tmp_path}/cache && mount -t tmpfs none {tmp_path}/project"
    nothing = {name: "" for name in apart.env if name.startswith("AWS_") and "KEY" in name}
    apart.start_worker(cores=2, env=nothing, prefix=("unshare", "-Urm", "sh", "-c", f'{hide} && exec "$@"', "sh"))
    said = flow.report("run", "orders", expect=64)["error"]
    assert said["code"] == "STORE_REFUSED" and f"s3://{s3_bucket.name}" in said["message"], said
    apart.kill_worker(1)
    apart.start_worker(cores=2, prefix=("unshare", "-Urm", "sh", "-c", f'{hide} && exec "$@"', "sh"))
    flow.run()
    assert Counter(row["id"] for row in flow.read()) == Counter(range(6))


MOMENTS = """\
version: 1
name: orders
sources:
  orders: {type: files, path: data/in, format: json, schema: "id BIGINT, seconds BIGINT, share DOUBLE"}
transform: transform.py
"""
OF_ANY_YEAR = """\
import tidegate.quality.engine as engine
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

engine.PANDAS_MEMORY_BYTES = 0  # any increment is too large for pandas


def transform(orders: DataFrame) -> DataFrame:
    return orders.withColumn("at", F.timestamp_seconds("seconds")).drop("seconds")
"""


def test_no_value_that_spark_writes_escapes_a_rule(apart: SparkCluster, tmp_path: Path, s3_bucket: Bucket) -> None:
    """Milliseconds taken for seconds are a time after the year 9999, which our readers of sources do not take."""
    flow = Apart(tmp_path / "project" / "flow")
    flow.set_up(s3_bucket, apart.master_url, MOMENTS)
    flow.write("jobs/orders/transform.py", OF_ANY_YEAR)
    rows = [(1, 1_760_000_000, 0.5), (2, 1_760_000_000_000, 99.0)]
    lines = (json.dumps(dict(zip(("id", "seconds", "share"), row, strict=True))) + "\n" for row in rows)
    flow.write("data/in/a.json", "".join(lines))
    filler = "y" * 60_000
    for number in range(100):  # more bytes than are sent with the parts
        row = json.dumps({"id": 10 + number, "seconds": 1, "share": 0.5, "filler": filler})
        flow.write(f"data/in/{number}.json", f"{row}\n")
    report = flow.report("run", "orders", expect=65)
    assert "share" in report["error"]["message"] and "1 row breaks it" in report["error"]["message"], report["error"]
    assert report["rows"]["staged"] == 102 and not flow.read()
