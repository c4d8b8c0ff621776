"""Further sinks through the command line: fed with what was published, and a sink that fails holds up nothing else."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.conftest import MakePipeline, Pipeline
from tests.support.project import in_session
from tests.support.scene import NAME
from tidegate.core.errors import TryAgainError
from tidegate.runs.gate_steps import audit_run, publish_run
from tidegate.runs.recovery.context import Submit
from tidegate.runs.reports.report import load_report
from tidegate.runs.steps import ingest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics

_SOURCE = """
path: data/inbox
format: csv
schema: id STRING, amount INT, kind STRING
"""
_SINKS = """\
table: {partition_by: [kind]}
sinks:
  - {type: foreach, writer: "sinks.py:Writer"}
  - {type: foreach_batch, function: "sinks.py:write"}
  - {type: console}
"""
_CODE = """\
import json
from pathlib import Path

HERE = Path(__file__).parent

def say(name, record):
    with (HERE / name).open("a") as out:
        out.write(json.dumps(record) + "\\n")

def broken(name):
    return (HERE / f"{name} is broken").exists()

class Writer:
    def process(self, row):
        print("on stdout")
        if broken("foreach"):
            raise RuntimeError("the foreach sink is away")
        say("foreach.jsonl", [row.id, row.amount, row.kind, row._run_id, row._version])

def write(df, batch_id):
    if broken("foreach_batch"):
        raise RuntimeError("the foreach_batch sink is away")
    for row in df.collect():
        say("foreach_batch.jsonl", [row.id, row.amount, row.kind, row._run_id, row._version])
        assert row._version == batch_id
"""
_JDBC_SINK = """\
sinks:
  - {type: foreach_batch, function: "sinks.py:write"}
"""
_JDBC_CODE = """\
import json
from pathlib import Path

HERE = Path(__file__).parent
DRIVER = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}

def write(df, batch_id):
    url = f"jdbc:derby:{HERE / 'database'};create=true"
    df.select("id", "amount").coalesce(1).write.mode("append").jdbc(url, "orders", properties=DRIVER)
    spark = df.sparkSession
    written = spark.read.jdbc(url, "orders", properties=DRIVER).count()
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.getResource("of_the_project.txt") is not None
    with (HERE / "counted.jsonl").open("a") as out:
        out.write(json.dumps([written, found]) + "\\n")
"""
_KINDS = ["a", "01", "x{y}*", ""]


class Fed(Pipeline):
    """What the sinks wrote down."""

    def said(self, name: str) -> list[list[Any]]:
        path = self.root / "jobs" / NAME / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def breaks(self, name: str) -> Path:
        path = self.root / "jobs" / NAME / f"{name} is broken"
        path.touch()
        return path


def _offer(pipeline: Pipeline, number: int) -> list[list[Any]]:
    rows = [[f"{number}-{index}", index, kind] for index, kind in enumerate(_KINDS)]
    pipeline.put(f"{number}.csv", "".join(f"{key},{amount},{kind}\n" for key, amount, kind in rows))
    return [[key, amount, kind or None] for key, amount, kind in rows]


def test_sinks_are_fed_and_a_broken_one_holds_up_nothing_else(make_pipeline: MakePipeline, spark: SparkSession) -> None:
    """What drivers and exit codes show by the command line, the rest in the shared session."""
    pipeline, submit = Fed(make_pipeline(_SOURCE, more=_SINKS).root), in_session(spark)
    (pipeline.root / "jobs" / NAME / "sinks.py").write_text(_CODE)

    first = _offer(pipeline, 1)
    report = pipeline.run("one", submit=submit)
    assert report["outcome"] == "published" and report["error"] is None
    assert [(sink["name"], sink["version"], sink["behind"]) for sink in report["sinks"]] == [
        ("foreach:sinks.py:Writer", 0, 0),
        ("foreach_batch:sinks.py:write", 0, 0),
        ("console", 0, 0),
    ]
    wanted = sorted([*row, "one", 0] for row in first)
    assert sorted(pipeline.said("foreach")) == sorted(pipeline.said("foreach_batch")) == wanted

    # Both kinds of user code fail: the table is published, the run says which sink is behind and ends with 75.
    broken = [pipeline.breaks("foreach"), pipeline.breaks("foreach_batch")]
    second = _offer(pipeline, 2)
    report = pipeline.report("run", NAME, "--run-id", "two", expect=75)
    assert report["outcome"] == "published" and report["rows"]["published"] == len(second)
    error = report["error"]
    assert error["code"] == "SINK_FAILED" and f"tidegate deliver {NAME}" in error["fix"]
    for sink, line in (("foreach", 17), ("foreach_batch", 22)):
        assert f"version 1: RuntimeError: the {sink} sink is away" in error["message"]
        assert f"jobs/{NAME}/sinks.py:{line}" in error["where"]
    assert [(sink["type"], sink["version"], sink["behind"]) for sink in report["sinks"]] == [
        ("foreach", 0, 1),
        ("foreach_batch", 0, 1),
        ("console", 1, 0),
    ]
    [status] = json.loads(pipeline.call("status", NAME, "--json"))
    assert [sink["behind"] for sink in status["sinks"]] == [1, 1, 0]
    assert "sink foreach:sinks.py:Writer is 1 version behind" in " ".join(status["notes"])

    # A run with nothing new delivers the pending versions first; one that still fails keeps failing, with nothing_new.
    report = _fail(pipeline, "idle", submit)
    assert report["outcome"] == "nothing_new" and report["error"]["code"] == "SINK_FAILED"
    broken[1].unlink()
    report = _fail(pipeline, "two", submit)  # a retry of the run that published
    assert report["outcome"] == "published" and [sink["behind"] for sink in report["sinks"]] == [1, 0, 0]
    wanted += [[*row, "two", 1] for row in second]
    assert sorted(pipeline.said("foreach_batch")) == sorted(wanted)

    # Step by step, as a DAG's tasks do it; an ingest tries the pending version first and goes on without it.
    third = _offer(pipeline, 3)
    report = ingest_run(pipeline.project, NAME, "three", submit=submit)
    assert report["outcome"] is None and report["sinks"][0]["error"].startswith("version 1: RuntimeError")
    audit_run(pipeline.project, NAME, "three")
    report = publish_run(pipeline.project, NAME, "three")
    assert [sink["behind"] for sink in report["sinks"]] == [2, 1, 1]
    broken[0].unlink()
    report = pipeline.report("deliver", NAME, "--run-id", "three")
    assert report["outcome"] == "published" and report["error"] is None
    assert [(sink["version"], sink["behind"]) for sink in report["sinks"]] == [(2, 0)] * 3
    wanted += [[*row, "three", 2] for row in third]
    for name in ("foreach", "foreach_batch"):
        assert sorted(pipeline.said(name)) == sorted(wanted)
    assert [row[-1] for row in pipeline.said("foreach")] == [0] * 4 + [1] * 4 + [2] * 4
    report = pipeline.report("deliver", NAME)
    assert report["outcome"] == "nothing_new"
    pipeline.expect_rows({"id": key, "amount": amount, "kind": kind} for key, amount, kind, *_ in wanted)
    pipeline.check()


def _fail(pipeline: Pipeline, run_id: str, submit: Submit) -> dict[str, Any]:
    """A run that cannot feed its sinks; its report."""
    with pytest.raises(TryAgainError, match="SINK_FAILED"):
        pipeline.run(run_id, submit=submit)
    report = load_report(pipeline.project.paths(NAME), run_id)
    assert report is not None
    return dict(report.to_json())


def test_code_that_is_missing_is_refused_before_anything_is_read(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(_SOURCE, more=_SINKS)
    _offer(pipeline, 1)
    report = pipeline.report("run", NAME, expect=64)
    assert report["error"]["code"] == "BAD_SINK" and f"jobs/{NAME}/sinks.py" in report["error"]["message"]
    assert report["outcome"] == "failed" and not pipeline.table.exists()
    said = pipeline.call("validate", expect=64)
    assert "the file is not there" in said


def test_a_driver_that_dies_and_an_increment_that_is_released(make_pipeline: MakePipeline) -> None:
    held = """\
  - type: expect_column_max_to_be_between
    kwargs: {column: amount, max_value: 0}
    severity: critical
"""
    code = "import os\n\ndef write(df, batch_id):\n    os._exit(3)\n"
    sinks = 'sinks: [{type: foreach_batch, function: "sinks.py:write"}]\n'
    pipeline = Fed(make_pipeline(_SOURCE, more=sinks, rules=held).root)
    path = pipeline.root / "jobs" / NAME / "sinks.py"
    path.write_text(code)
    offered = _offer(pipeline, 1)
    report = pipeline.report("run", NAME, "--run-id", "one", expect=65)
    assert report["outcome"] == "held"
    pipeline.tidegate("release", NAME, "one", "--reason", "looked at it", expect=75)
    [status] = json.loads(pipeline.tidegate("status", NAME, "--json"))
    report = status["runs"][0]
    assert report["outcome"] == "published" and report["decision"]["decision"] == "release"
    error = report["error"]
    assert error["code"] == "SINK_FAILED" and "the Spark driver ended with code 3 without a result" in error["message"]
    assert Path(error["where"]).exists()
    path.write_text(_CODE)
    assert pipeline.report("deliver", NAME)["sinks"][0]["behind"] == 0
    assert sorted(pipeline.said("foreach_batch")) == sorted([*row, "one", 0] for row in offered)


def test_a_topic_is_fed_and_no_log_holds_the_login(make_pipeline: MakePipeline, topics: Topics) -> None:
    from confluent_kafka import Consumer

    pipeline = make_pipeline(_SOURCE, more="sinks: [{type: kafka, topic: e2e-sink, key: kind}]\n")
    settings = pipeline.root / "tidegate.yaml"
    plain = settings.read_text()
    canary = "canary-8c11-password"
    login = (
        "  options: {security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: u,"
        f" sasl.password: {canary}}}\n"
    )
    brokers = f"kafka:\n  bootstrap_servers: {topics.address}\n"
    settings.write_text(plain + brokers + login)  # the broker knows no logins
    offered = _offer(pipeline, 1)
    process = pipeline.start("run", NAME, "--run-id", "one")
    out, err = process.communicate(timeout=180)
    assert process.returncode == 75 and b"SINK_FAILED" in err
    written = b"".join(path.read_bytes() for path in pipeline.state.rglob("*") if path.is_file())
    assert canary.encode() not in out + err + written

    settings.write_text(plain + brokers)
    report = pipeline.report("run", NAME, expect=75)
    assert "there is no topic 'e2e-sink'" in report["error"]["message"]
    topics.create("e2e-sink")
    assert pipeline.report("run", NAME)["sinks"] == [
        {"type": "kafka", "name": "kafka:e2e-sink", "version": 0, "behind": 0, "error": None}
    ]
    consumer = Consumer({"bootstrap.servers": topics.address, "group.id": "e2e", "auto.offset.reset": "earliest"})
    consumer.subscribe(["e2e-sink"])
    messages = consumer.consume(len(offered), timeout=30)
    consumer.close()
    found = sorted([*json.loads(message.value()).values()] for message in messages)
    assert found == sorted(offered)
    assert {message.key() for message in messages} == {b"a", b"01", b"x{y}*", None}
    assert all(dict(message.headers())["run_id"] == b"one" for message in messages)


def test_a_jar_of_the_project_is_there_for_a_sink_that_writes_by_jdbc(make_pipeline: MakePipeline) -> None:
    """The jar holds one file, which no jar of Spark has; Derby's driver is among those of Spark."""
    pipeline = Fed(make_pipeline(_SOURCE, more=_JDBC_SINK).root)
    (pipeline.root / "jobs" / NAME / "sinks.py").write_text(_JDBC_CODE)
    settings = pipeline.root / "tidegate.yaml"
    written = yaml.safe_load(settings.read_text())
    packages = [{"jar": "org.example:marked:1.0", "sha256": "0" * 64}]
    written.setdefault("spark", {})["packages"] = packages
    settings.write_text(json.dumps(written))
    _offer(pipeline, 1)
    error = pipeline.report("run", NAME, "--run-id", "refused", expect=64)["error"]
    assert error["code"] == "PACKAGE_MISSING" and error["fix"].startswith("tidegate jars")

    jar = pipeline.root / ".tools" / "packages" / "marked-1.0.jar"
    jar.parent.mkdir(parents=True)
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("of_the_project.txt", "here")
    packages[0]["sha256"] = hashlib.sha256(jar.read_bytes()).hexdigest()
    settings.write_text(json.dumps(written))
    report = pipeline.report("run", NAME, "--run-id", "one")
    assert [(sink["version"], sink["behind"]) for sink in report["sinks"]] == [(0, 0)]
    assert pipeline.said("counted") == [[len(_KINDS), True]]
