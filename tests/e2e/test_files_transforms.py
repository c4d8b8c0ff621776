"""What a transform may do, what it may not, and what it does wrong on a row."""

from __future__ import annotations

import json

from tests.e2e.conftest import RANGE_RULE, MakePipeline, Pipeline
from tests.support.scene import NAME

SOURCE = "path: data/inbox\nformat: json\nschema: id STRING, amount INT"

REFUSED = {
    "orders.groupBy('id').count()": "an aggregation without a watermark cannot work",
    "orders.orderBy('id')": "a sort cannot work",
    "orders.offset(1)": "an offset cannot work",
}


def _new_pipelines(first: Pipeline, transforms: dict[str, tuple[str, str]]) -> None:
    """More pipelines beside the first: {name: (file name, text)}."""
    spec = (first.root / "jobs" / NAME / "pipeline.yaml").read_text()
    for name, (file, text) in transforms.items():
        folder = first.root / "jobs" / name
        folder.mkdir()
        (folder / file).write_text(text)
        (folder / "pipeline.yaml").write_text(spec.replace(f"name: {NAME}\n", f"name: {name}\ntransform: {file}\n", 1))


def test_spark_finds_what_is_wrong_before_a_run(make_pipeline: MakePipeline) -> None:
    """``validate --spark`` analyses all pipelines in one session, reads nothing, and names the user's file and line."""
    pipeline = make_pipeline(SOURCE, rules=RANGE_RULE)
    cases: dict[str, tuple[str, str]] = {}
    wanted: dict[str, str] = {}
    for number, (body, what) in enumerate(REFUSED.items()):
        cases[f"state{number}"] = ("transform.py", f"def transform(orders):\n    return {body}\n")
        wanted[f"state{number}"] = what
    cases["raises"] = (
        "transform.py",
        "def helper(frame):\n    raise KeyError('no such key')\n\n\n"
        "def transform(orders):\n    return helper(orders)\n",
    )
    wanted["raises"] = "KeyError: 'no such key'"
    cases["no_column"] = ("transform.py", "def transform(orders):\n    return orders.select('idd')\n")
    wanted["no_column"] = "idd"
    cases["no_frame"] = ("transform.py", "def transform(orders):\n    return 5\n")
    wanted["no_frame"] = "not a DataFrame: transform returned int"
    cases["two_names"] = (
        "transform.py",
        "def transform(orders):\n    return orders.selectExpr('id', 'amount AS ID')\n",
    )
    wanted["two_names"] = "two columns with one name"
    cases["no_type"] = ("transform.sql", "SELECT id, NULL AS nothing FROM orders")
    wanted["no_type"] = "columns without a type: nothing"
    cases["bad_sql"] = ("transform.sql", "SELECT id, FROM orders WHERE")
    wanted["bad_sql"] = "Spark refuses the query"
    cases["sql_state"] = ("transform.sql", "SELECT id, count(*) AS times FROM orders GROUP BY id")
    wanted["sql_state"] = "an aggregation without a watermark cannot work"
    good = "def transform(orders, context):\n    return orders.selectExpr('*', f\"'{context.pipeline}' AS by\")\n"
    cases["with_context"] = ("transform.py", good)
    _new_pipelines(pipeline, cases)
    # A Kafka pipeline is analysed without a broker and without jars.
    kafka = pipeline.root / "jobs/from_kafka"
    kafka.mkdir()
    (kafka / "pipeline.yaml").write_text(
        "version: 1\nname: from_kafka\nschedule: null\ntransform: transform.sql\nsources:\n  clicks: {type: kafka, "
        "topics: [clicks], format: json, schema: 'id STRING', metadata: true}\n"
    )
    (kafka / "transform.sql").write_text("SELECT id, _topic, _offset + 'x' AS wrong, nope FROM clicks")
    wanted["from_kafka"] = "nope"

    faults = json.loads(pipeline.tidegate("validate", "--spark", "--json", expect=64))
    found = {fault["file"].split("/jobs/")[-1].removeprefix("jobs/").split("/")[0]: fault for fault in faults}
    assert set(found) == set(wanted), "orders and with_context are sound, the others are not"
    for name, message in wanted.items():
        assert message in found[name]["message"], (name, found[name])
    assert found["raises"]["line"] == 2 and found["no_column"]["line"] == 2
    assert not (pipeline.root / "data/state").exists(), "nothing was written"


def test_a_row_that_python_fails_on(make_pipeline: MakePipeline) -> None:
    """The user's file and line are named, nothing is lost, and the run after the correction is complete."""
    pipeline = make_pipeline(SOURCE, transform="")
    path = pipeline.write_transform(
        "from pyspark.sql import functions as F\n\n\n"
        "@F.udf('int')\ndef halve(amount):\n    return 100 // amount\n\n\n"
        "def transform(orders):\n    return orders.select('id', halve('amount').alias('half'))\n"
    )
    pipeline.put("a.json", '{"id": "one", "amount": 5}\n{"id": "two", "amount": 0}\n')
    failed = pipeline.report("run", NAME, expect=64)["error"]
    assert failed["code"] == "TRANSFORM_FAILED" and "ZeroDivisionError" in failed["message"]
    assert failed["where"] == f"{path}:6"
    assert failed["message"].endswith("; the record: data/inbox/a.json, line 2")
    pipeline.put("b.json", '{"id": "three", "amount": 2}\n')
    # A fault of the data in SQL is the transform's as well.
    pipeline.write_transform(
        "def transform(orders):\n    return orders.selectExpr('id', 'CAST(100 / amount AS INT) AS half')\n"
    )
    failed = pipeline.report("run", NAME, expect=64)["error"]
    assert failed["code"] == "TRANSFORM_FAILED" and "DIVIDE_BY_ZERO" in failed["message"]
    assert failed["message"].endswith("; the record: data/inbox/a.json, line 2")
    pipeline.write_transform(path.read_text().replace("100 / amount", "100 / nullif(amount, 0)"))
    pipeline.expect_rows([{"id": "one", "half": 20}, {"id": "two", "half": None}, {"id": "three", "half": 50}])
    pipeline.run()
    pipeline.check()
