"""Records on which the transform fails, in files and in topics that one query reads together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.page_outputs import shown
from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source
from tidegate.spark.ingest import failing_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics

COLUMNS = "id INT, at STRING, by INT, name STRING"
TRANSFORM = """
@F.udf("string")
def _strict(text):
    return text.encode("ascii").decode()


def transform(orders, trades):
    both = orders.unionByName(trades)
    return both.where("id >= 0").select(
        "id",
        F.col("at").cast("int").alias("at"),
        F.expr("100 DIV by AS share"),
        _strict("name").alias("name"),
    )
"""
BAD = {
    17: ({"at": "soon"}, "[CAST_INVALID_INPUT] at transform.py:14"),
    18: ({"by": 0}, "[DIVIDE_BY_ZERO]"),
    450: ({"name": "\u00e9"}, "UnicodeEncodeError at transform.py:7"),
    999: ({"by": 0, "at": "soon"}, ""),
    1200: ({"at": "n/a"}, "[CAST_INVALID_INPUT] at transform.py:14"),
    1201: ({"by": 0}, "[DIVIDE_BY_ZERO]"),
    1999: ({"name": "\u00e9"}, "UnicodeEncodeError at transform.py:7"),
}


@pytest.fixture(autouse=True)
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end the search."""
    monkeypatch.setattr(failing_record, "SEARCH_ALL_SECONDS", 3600.0)


def test_seven_of_two_thousand(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"id": number, "at": str(number), "by": 1 + number % 5, "name": "n", **BAD.get(number, ({}, ""))[0]}
        for number in range(2000)
    ]
    topic = topics.create(partitions=2)
    kafka = json.dumps({"type": "kafka", "topics": [topic], "format": "json", "schema": COLUMNS})
    spec = f"on_row_error: quarantine\nsources:\n{source('orders', COLUMNS)}  trades: {kafka}\n"
    flow = make_streaming(tmp_path, spark, spec, TRANSFORM)
    flow.write(
        "tidegate.yaml",
        f'version: 1\nspark: {{master: "local[2]"}}\nkafka: {{bootstrap_servers: "{topics.address}"}}\n',
    )
    places: dict[int, dict[str, Any]] = {}
    for start in range(0, 1000, 250):
        part = records[start : start + 250]
        file = flow.offer("orders", *part).relative_to(tmp_path)
        places |= {one["id"]: {"file": str(file), "line": line + 1} for line, one in enumerate(part)}
    for partition in (0, 1):
        part = records[1000 + partition : 2000 : 2]
        topics.send(topic, [json.dumps(one) for one in part], partition=partition)
        places |= {
            one["id"]: {"topic": topic, "partition": partition, "offset": offset} for offset, one in enumerate(part)
        }
    report = flow.run()
    flow.expect(
        "id at share name",
        [(one["id"], int(one["at"]), 100 // one["by"], "n") for one in records if one["id"] not in BAD],
    )
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (2000, 7, 1993)
    rows = read_agreed(tmp_path / "data/quarantine/flow", spark)
    assert len(rows) == 7
    for row in rows:
        raw = json.loads(row["raw"])
        number = raw["id"]
        assert raw == records[number]
        assert json.loads(row["position"]) == places[number]
        assert row["reason"] == "malformed"
        assert row["source"] == ("orders" if number < 1000 else "trades")
        assert row["detail"].startswith("the transform fails on it: ")
        assert row["detail"].endswith(BAD[number][1])
    assert set(shown("rows in quarantine").splitlines()) <= {row["detail"] for row in rows}
    # The next run begins where this one ended.
    topics.send(topic, [json.dumps({**records[5], "id": 2000})])
    assert flow.run()["rows"]["read"] == 1
    assert len(flow.rows("id")) == 1994


def test_one_of_three(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, ["1", "soon", "3"])
    kafka = json.dumps({"type": "kafka", "topics": [topic], "format": "text", "starting_offsets": "earliest"})
    transform = 'def transform(trades):\n    return trades.selectExpr("CAST(value AS INT) AS n")\n'
    flow = make_streaming(tmp_path, spark, f"on_row_error: quarantine\nsources:\n  trades: {kafka}\n", transform)
    settings = tmp_path / "tidegate.yaml"
    settings.write_text(settings.read_text() + f"kafka: {{bootstrap_servers: '{topics.address}'}}\n")
    flow.run()
    flow.expect("n", [(1,), (3,)])
    [row] = read_agreed(tmp_path / "data/quarantine/flow", spark)
    assert json.loads(row["position"]) == {"topic": topic, "partition": 0, "offset": 1} and row["raw"] == "soon"
