"""The sinks of a pipeline.yaml: every fault with its line and what to write; user code is looked at, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.staged import make_schema
from tidegate.spec.faults import SpecError
from tidegate.spec.models import ConsoleSink, ForeachBatchSink, ForeachSink, KafkaSink
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.table.sinks_fit import check_sinks_fit
from tidegate.views.validate import validate_project

_SPEC = """\
version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: csv, schema: "id STRING, start TIMESTAMP"}
sinks:
"""
_CODE = """\
raise SystemExit("this file must not be run")

def write(df, batch_id): ...

def narrow(df): ...

async def later(df, batch_id): ...

class Writer:
    def process(self, row): ...

class Idle:
    def open(self, partition_id, epoch_id): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one pipeline and a file of user code."""
    (tmp_path / "jobs/orders").mkdir(parents=True)
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs/orders/sinks.py").write_text(_CODE)
    return load_project(tmp_path)


def _faults(project: Project, *sinks: str) -> list[str]:
    spec = _SPEC + "".join(f"  - {sink}\n" for sink in sinks)
    (project.jobs / "orders/pipeline.yaml").write_text(spec)
    return [f"{fault.where} {fault.key}: {fault.message} -> {fault.fix}" for fault in validate_project(project)]


def test_all_four_kinds(project: Project) -> None:
    good = (
        "{type: kafka, topic: prices, key: Start, value: json}",
        '{type: foreach_batch, function: "sinks.py:write"}',
    )
    assert _faults(project, *good, '{type: foreach, writer: "sinks.py:Writer"}', "{type: console}") == []
    sinks = load_pipeline(project, "orders").sinks
    assert [type(sink) for sink in sinks] == [KafkaSink, ForeachBatchSink, ForeachSink, ConsoleSink]
    names = ["kafka:prices", "foreach_batch:sinks.py:write", "foreach:sinks.py:Writer", "console"]
    assert [sink.name for sink in sinks] == names


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ("{type: kafkaa, topic: t}", "pipeline.yaml:6 sinks[0].type: 'kafkaa' is not a type of sink -> write kafka; "),
        (
            "{topic: t}",
            "sinks[0].type: the key is missing -> add `type: ...`; allowed: kafka, foreach_batch, foreach, ",
        ),
        ("{type: kafka}", "sinks[0].topic: the key is missing"),
        ("{type: kafka, topic: t, kee: id}", "sinks[0].kee: unknown key 'kee' -> write key; "),
        ("{type: kafka, topic: t, value: avro}", "sinks[0].value: 'avro' is not allowed -> allowed: json, columns"),
        ("{type: kafka, topic: a b}", "sinks[0].topic: 'a b' cannot be a topic"),
        ("{type: kafka, topic: t, key: strat}", "sinks[0].key: there is no column 'strat' -> write start"),
        ("{type: foreach, writer: Writer}", "sinks[0].writer: 'Writer' does not name a file in the folder of the "),
        ('{type: foreach, writer: "../x.py:Writer"}', "sinks[0].writer: "),
        ('{type: foreach, writer: "gone.py:Writer"}', "jobs/orders/gone.py : the file is not there -> create it with "),
        ('{type: foreach, writer: "sinks.py:Writr"}', "no class named Writr -> name Writer in pipeline.yaml"),
        ('{type: foreach, writer: "sinks.py:write"}', "jobs/orders/sinks.py : the file defines no class named write"),
        ('{type: foreach, writer: "sinks.py:Idle"}', "sinks.py:12 : Idle has no method process"),
        (
            '{type: foreach_batch, function: "sinks.py:narrow"}',
            "sinks.py:5 : narrow takes 1 arguments -> def narrow(df",
        ),
        ('{type: foreach_batch, function: "sinks.py:later"}', "sinks.py:7 : later is an async function"),
        ("console", "sinks"),
    ],
)
def test_faults(project: Project, sink: str, expected: str) -> None:
    faults = _faults(project, sink)
    assert len(faults) == 1 and expected in faults[0], faults


_HEADERS = "headers ARRAY<STRUCT<key STRING, value BINARY>>"


@pytest.mark.parametrize(
    ("columns", "sink"),
    [
        ("value STRING", "topic: t"),
        ("KEY BINARY, Value BINARY, topic STRING, partition INT, day DATE, " + _HEADERS, "topic: t"),
        ("value STRING, topic STRING", ""),
    ],
)
def test_columns_that_a_kafka_sink_takes(project: Project, columns: str, sink: str) -> None:
    assert _column_faults(project, columns, sink) == []


@pytest.mark.parametrize(
    ("columns", "sink", "expected"),
    [
        (
            "id STRING",
            "topic: t",
            "there is no column value, which a kafka sink with value: columns sends; the columns",
        ),
        ("vale STRING", "topic: t", "-> rename vale to value in the transform, or write value: json"),
        ("value STRING", "", "there is no column topic, and the sink names no topic; the columns are: value -> write"),
        (
            "value BIGINT",
            "topic: t",
            "the column value is BIGINT, and a kafka sink with value: columns wants STRING or",
        ),
        ("value STRING, Key INT", "topic: t", "the column Key is INT, and a kafka sink with value: columns wants STRI"),
        (
            "value STRING, topic BINARY",
            "",
            "the column topic is BINARY, and a kafka sink with value: columns wants STR",
        ),
        (
            "value STRING, partition BIGINT",
            "topic: t",
            "the column partition is BIGINT, and a kafka sink with value: c",
        ),
        (
            "value STRING, headers MAP<STRING, BINARY>",
            "topic: t",
            "the column headers is map<string,binary>, and a kafka sink with value: columns wants ARRAY<STRUCT<key: S",
        ),
        ("value STRING", "topic: t, key: value", "sinks[0].key: with value: columns the key of a record is the column"),
    ],
)
def test_columns_that_a_kafka_sink_does_not_take(project: Project, columns: str, sink: str, expected: str) -> None:
    faults = _column_faults(project, columns, sink)
    assert len(faults) == 1 and expected in faults[0], faults


def _column_faults(project: Project, columns: str, sink: str) -> list[str]:
    source = f"{{type: files, path: data/inbox, format: parquet, schema: '{columns}'}}"
    more = f", {sink}" if sink else ""
    spec = f"version: 1\nname: orders\nsources: {{orders: {source}}}\n"
    spec += f"sinks: [{{type: kafka, value: columns{more}}}]\n"
    (project.jobs / "orders/pipeline.yaml").write_text(spec)
    return [f"{fault.key}: {fault.message} -> {fault.fix}" for fault in validate_project(project)]


def test_a_sink_that_is_there_twice(project: Project) -> None:
    [fault] = _faults(project, "{type: console}", "{type: console}")
    assert "sinks[1]: console is there twice" in fault


def test_a_pipeline_must_not_feed_itself(project: Project) -> None:
    source = "{type: kafka, topic_pattern: 'pri.*', format: json, schema: id STRING}"
    spec = f"version: 1\nname: orders\nsources:\n  orders: {source}\nsinks: [{{type: kafka, topic: prices}}]\n"
    (project.jobs / "orders/pipeline.yaml").write_text(spec)
    [fault] = validate_project(project)
    assert "would feed itself" in fault.message and fault.key == "sinks[0].topic"


def test_columns_that_a_sink_adds_must_be_free(project: Project) -> None:
    (project.jobs / "orders/pipeline.yaml").write_text(
        _SPEC.replace("id STRING", "_version INT") + '  - {type: foreach, writer: "sinks.py:Writer"}\n'
    )
    [fault] = validate_project(project)
    assert "have a column _version" in fault.message


def test_code_that_is_no_python(project: Project) -> None:
    (project.jobs / "orders/sinks.py").write_text("def write(df, batch_id):\n  x = (\n")
    [fault] = _faults(project, '{type: foreach_batch, function: "sinks.py:write"}')
    assert "jobs/orders/sinks.py:2" in fault and "not Python" in fault


def test_what_a_table_lacks_may_come_with_an_edited_transform(project: Project) -> None:
    (project.jobs / "orders/pipeline.yaml").write_text(_SPEC + "  - {type: kafka, topic: t}\n")
    spec = load_pipeline(project, "orders")
    spec = spec.replace(sinks=[KafkaSink(type="kafka", topic="t", value="columns")])
    with pytest.raises(SpecError, match=r"sinks\[0\]: there is no column value") as caught:
        check_sinks_fit(spec, make_schema(id="string"))
    assert caught.value.code == "BAD_SINK"
    check_sinks_fit(spec, make_schema(id="string"), may_grow=True)
    with pytest.raises(SpecError, match="the column value is DATE"):
        check_sinks_fit(spec, make_schema(value="date"), may_grow=True)
    check_sinks_fit(spec, make_schema(id="string", value="binary", headers="headers"))
