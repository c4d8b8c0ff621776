"""pipeline.yaml: what is accepted, and every kind of fault with its line and fix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tidegate.core.errors import UsageError
from tidegate.spec.faults import SpecError, name_nearest, show_value
from tidegate.spec.models import CloseWhen, FilesSource, KafkaSource, PipelineSpec, ProjectSpec
from tidegate.spec.pipeline import check_name, list_pipelines, load_pipeline, read_pipeline
from tidegate.spec.project import Project

GOOD = """\
version: 1
name: orders
sources:
  orders:
    type: files
    path: data/inbox/orders
    format: json
    schema: id BIGINT, name STRING, at TIMESTAMP
"""
GOOD_KAFKA = """\
version: 1
name: orders
sources:
  clicks:
    type: kafka
    topics: [clicks]
    format: json
    schema: id BIGINT
"""


TICKS = "version: 1\nname: orders\nsources:\n  ticks:\n    type: rate\n"


def write(tmp_path: Path, text: str, name: str = "orders") -> Project:
    folder = tmp_path / "jobs" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(dedent(text), encoding="utf-8")
    return Project(root=tmp_path, spec=ProjectSpec())


def load(tmp_path: Path, text: str) -> PipelineSpec:
    return load_pipeline(write(tmp_path, text), "orders")


def faults_of(tmp_path: Path, text: str) -> list[str]:
    """`line: key: message | fix` of every fault."""
    _, faults = read_pipeline(write(tmp_path, text), "orders")
    return [f"{fault.line}: {fault.key}: {fault.message} | {fault.fix}" for fault in faults]


def one_fault(tmp_path: Path, text: str) -> str:
    faults = faults_of(tmp_path, text)
    assert len(faults) == 1, faults
    return faults[0]


def test_a_good_file(tmp_path):
    spec = load(tmp_path, GOOD + "schedule: '*/10 * * * *'\ntrigger: once\n")
    source = spec.sources["orders"]
    assert isinstance(source, FilesSource)
    assert (source.format, source.settle, source.unknown_fields) == ("json", None, "report")
    assert (spec.schedule, spec.trigger, spec.transform) == ("*/10 * * * *", "once", None)


def test_a_good_kafka_file(tmp_path):
    spec = load(
        tmp_path,
        GOOD_KAFKA.replace("topics: [clicks]", "assign: {clicks: [0, 1]}")
        + "    starting_offsets: {clicks: {0: 5, 1: -2}}\n    metadata: true\n    event_time: _timestamp\n",
    )
    source = spec.sources["clicks"]
    assert isinstance(source, KafkaSource)
    assert source.starting_offsets == {"clicks": {"0": 5, "1": -2}}


def test_durations_are_seconds(tmp_path):
    assert load(tmp_path, GOOD + "    settle: 90 seconds\n").sources["orders"].settle == 90.0  # type: ignore[union-attr]
    assert load(tmp_path, GOOD + "    settle: 2 minutes\n").sources["orders"].settle == 120.0  # type: ignore[union-attr]


def test_what_is_kept_is_the_pipelines_own_word_or_the_projects(tmp_path):
    project = write(tmp_path, GOOD)
    assert load_pipeline(project, "orders").maintenance.keep_versions == 7 * 86_400
    spec = ProjectSpec.read({"maintenance": {"keep_versions": "1 hour"}})
    project = Project(root=tmp_path, spec=spec)
    assert load_pipeline(project, "orders").maintenance.keep_versions == 3600
    write(tmp_path, GOOD + "maintenance: {keep_versions: 0 seconds}\n")
    assert load_pipeline(project, "orders").maintenance.keep_versions == 0


def test_maintenance_is_the_pipelines_word_key_by_key_over_the_projects(tmp_path):
    said = {"keep_versions": 0, "compact_below": "8 MiB", "expire": {"reports": "9 days"}, "schedule": "0 3 * * *"}
    project = Project(root=tmp_path, spec=ProjectSpec.read({"maintenance": said}))
    dated = GOOD.replace("name STRING", "day DATE") + "table: {partition_by: [day]}\n"
    write(tmp_path, dated + "maintenance: {schedule: null, expire: {partitions: 30 days}}\n")
    own = load_pipeline(project, "orders").maintenance
    assert (own.schedule, own.keep_versions, own.compact_below, own.source) == (None, 0, 8 << 20, "keep")
    assert (own.expire.reports, own.expire.partitions) == (9 * 86_400, 30 * 86_400)
    assert own.fields_set == {"schedule", "expire"} and own.expire.fields_set == {"partitions"}


def test_anchors_and_merges(tmp_path):
    text = GOOD.replace("  orders:\n", "  orders: &base\n").replace("format: json", "format: &f json")
    assert load(tmp_path, text).sources["orders"].path == "data/inbox/orders"  # type: ignore[union-attr]
    merged = (
        "version: 1\nname: orders\ntable: {partition_by: [id]}\nsources:\n  orders:\n    <<: {type: files, path: a}\n"
    )
    merged += "    path: b\n    format: json\n    schema: id INT, x INT\n"
    assert load(tmp_path, merged).sources["orders"].path == "b"  # type: ignore[union-attr]


def test_golden_error_text(tmp_path):
    project = write(
        tmp_path,
        """\
        version: 1
        name: orderz
        schedul: "* * * * *"
        sources:
          trades:
            type: files
            path: data/inbox
            formt: json
            format: jsn
            schema: a INT, b STRNG
            options: {maxFilesPerTriger: 5, mode: PERMISSIVE}
            settle: 5 mins
        quality: {max_quarantine_share: 3}
        table: {partition_by: [day]}
        """,
    )
    with pytest.raises(SpecError) as caught:
        load_pipeline(project, "orders")
    expected = """\
BAD_SPEC: 10 faults in jobs/orders/pipeline.yaml
  jobs/orders/pipeline.yaml:2: name: the folder is named 'orders', the pipeline 'orderz'
      fix: write name: orders
  jobs/orders/pipeline.yaml:3: schedul: unknown key 'schedul'
      fix: write schedule; allowed: version, name, description, owner, tags, schedule, sources, transform, \
on_row_error, trigger, output_mode, watermark_policy, close_windows, table, quality, sinks, maintenance, alerts, spark
  jobs/orders/pipeline.yaml:8: sources.trades.formt: unknown key 'formt'
      fix: write format; allowed: type, path, format, schema, event_time, watermark, settle, on_change, \
follow_links, start, list_all_every, notifications, unknown_fields, values, static, options
  jobs/orders/pipeline.yaml:9: sources.trades.format: 'jsn' is not allowed
      fix: write json; allowed: json, csv, text, xml, parquet, orc, avro
  jobs/orders/pipeline.yaml:10: sources.trades.schema: not a schema in Spark's DDL: column b: there is no type 'STRNG'
      fix: write STRING
  jobs/orders/pipeline.yaml:11: sources.trades.options.maxFilesPerTriger: 'maxFilesPerTriger' is not a reader option \
for json files
      fix: write maxFilesPerTrigger
  jobs/orders/pipeline.yaml:11: sources.trades.options.mode: the option mode cannot be set: tidegate keeps \
every record that does not parse, raw, in the quarantine
      fix: remove it
  jobs/orders/pipeline.yaml:12: sources.trades.settle: '5 mins' is not a duration
      fix: write it like "20 minutes" or "60 seconds"
  jobs/orders/pipeline.yaml:13: quality.max_quarantine_share: 3 is not valid here
      fix: write a number from 0 to 1
  where: jobs/orders/pipeline.yaml:2
  next run: fails again until this is fixed; nothing was read or written
  fix: correct the lines above, then: tidegate validate orders"""
    assert str(caught.value) == expected.replace("10 faults", "9 faults")
    assert caught.value.exit_code == 64
    value = caught.value.to_dict()
    assert [fault["line"] for fault in value["faults"]] == [2, 3, 8, 9, 10, 11, 11, 12, 13]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "name: orders\n", "9: name: the key is written twice, first in line 2 | keep one of the two"),
        ("version: 1\nname: [a\n", "3: : not YAML: while parsing a flow sequence did not find expected ',' or ']'"),
        ("- a\n- b\n", "1: : the file is not a mapping | write it as `key: value` lines"),
        (GOOD + "tags: !!python/object:os.system [x]\n", None),
        (GOOD + "description: !secret x\n", "9: description: the tag !secret is not allowed | write a plain value"),
        (GOOD + "? [a, b]\n: 1\n", "9: : a key is a list or a mapping | write a name as the key"),
    ],
)
def test_yaml_faults(tmp_path, text, expected):
    faults = faults_of(tmp_path, text)
    if expected is not None:
        assert faults[0].startswith(expected)
    for fault in faults:
        assert "Traceback" not in fault


def test_an_empty_file_lists_what_is_missing(tmp_path):
    keys = {fault.split(": ")[1] for fault in faults_of(tmp_path, "")}
    assert keys == {"version", "name", "sources"}


def test_a_file_that_is_no_text(tmp_path):
    project = write(tmp_path, GOOD)
    (tmp_path / "jobs/orders/pipeline.yaml").write_bytes(b"version: 1\nname: \xff\xfe\n")
    with pytest.raises(SpecError, match=r"pipeline\.yaml:2: the file is not UTF-8 text"):
        load_pipeline(project, "orders")


def test_anchors_without_end_are_refused(tmp_path):
    assert "without end" in one_fault(tmp_path, "version: 1\nname: &a [*a]\n")
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8))
    assert "without end" in one_fault(tmp_path, bomb)


def test_yaml_is_read_as_version_1_2(tmp_path):
    spec = load(tmp_path, GOOD + "description: 2026-01-01\ntags: [yes, on, 0x10]\n")
    assert spec.description == "2026-01-01"
    assert spec.tags == ["yes", "on", "0x10"]
    text = GOOD_KAFKA + "    starting_offsets: 2026-01-01T00:00:00Z\n"
    assert load(tmp_path, text).sources["clicks"].starting_offsets == "2026-01-01T00:00:00Z"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("type: files", "type: file"),
            "5: sources.orders.type: 'file' is not a type of source | write files; allowed:",
        ),
        (("version: 1", "version: 2"), "1: version: 2 is not allowed | allowed: 1"),
        (("    type: files\n", ""), "4: sources.orders.type: the key is missing | add `type: ...`; allowed: files"),
        (("    path: data/inbox/orders\n", ""), "4: sources.orders.path: the key is missing | add `path: ...`"),
        (("format: json", "format: 1"), "7: sources.orders.format: 1 is not allowed | allowed: json, csv"),
        (("path: data/inbox/orders", "path: null"), "6: sources.orders.path: nothing (null) is not valid here"),
        (
            ("path: data/inbox/orders", "path: s3a://bucket/x"),
            "6: sources.orders.path: the path is a URI, and only s3://, gs://, az:// and local paths",
        ),
        (("path: data/inbox/orders", "path: file:/x"), "6: sources.orders.path: the path is a URI, and only"),
        (("path: data/inbox/orders", "path: ~/x"), "6: sources.orders.path: the path starts with ~"),
        (("path: data/inbox/orders", "path: ''"), "6: sources.orders.path: the path is empty"),
        (("path: data/inbox/orders", 'path: "a\\nb"'), "6: sources.orders.path: the path has a line break"),
        (("path: data/inbox/orders", "path: '${HOME}/x'"), "6: sources.orders.path: the environment is filled in in"),
        (("  orders:\n", "  Orders:\n"), "4: sources.Orders: the name 'Orders' is not allowed | use lower-case"),
        (("  orders:\n", "  class:\n"), "4: sources.class: a source cannot be named 'class': Python cannot have it"),
        (("  orders:\n", "  context:\n"), "4: sources.context: a source cannot be named 'context': it is the name of"),
        (
            ("    schema: id BIGINT, name STRING, at TIMESTAMP\n", ""),
            "4: sources.orders.schema: json needs a schema | add",
        ),
        (
            ("schema: id BIGINT", "schema: _Tidegate_x INT, id BIGINT"),
            "8: sources.orders.schema: the column _Tidegate_x is",
        ),
        (
            ("format: json\n    schema: id BIGINT", "format: csv\n    schema: id ARRAY<INT>"),
            "csv cannot hold array<int>",
        ),
        (("format: json", "format: text"), "8: sources.orders.schema: text gives its lines in the column value"),
        (
            ("format: json", "format: csv\n    unknown_fields: rescue"),
            "unknown_fields: rescue is for json and xml; csv",
        ),
        (
            ("format: json", "format: json\n    event_time: att"),
            "8: sources.orders.event_time: there is no column 'att' |",
        ),
        (
            ("format: json", "format: json\n    event_time: id"),
            "the column id is BIGINT, not TIMESTAMP | declare it as",
        ),
        (
            (", at TIMESTAMP\n", "\ntable: {partition_by: [id, name]}\n"),
            "every column is named, so none is left for the files",
        ),
        (("name: orders", "name: Orders"), "2: name: 'Orders' is not allowed | use 3 to 63 lower-case letters"),
        (("name: orders", "name: 7"), "2: name: 7 is not valid here | write text; quote it"),
    ],
)
def test_faults_of_a_files_source(tmp_path, change, expected):
    text = GOOD.replace(*change)
    assert text != GOOD
    assert expected in one_fault(tmp_path, text)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("transform: ../other/transform.py", "9: transform: '../other/transform.py' is not a file in the folder"),
        ("transform: /etc/x.py", "9: transform: '/etc/x.py' is not a file in the folder"),
        ("transform: transform.txt", "9: transform: 'transform.txt' is not a file in the folder"),
        (
            "schedule: '* * * *'",
            "9: schedule: '* * * *' is not a cron schedule: it has 4 fields, cron has 5 | write five",
        ),
        ("tags: ['']", "9: tags[0]: '' cannot be a tag in Airflow"),
        ("tags: a", "9: tags: 'a' is not valid here | write a list: [a, b]"),
        ("table: {partition_by: [dya]}", "9: table.partition_by: there is no column 'dya' | the columns are: id, name"),
        ("table: {partition_by: [am]}", "there is no column 'am' | the columns are: id, name, at"),
        ("table: {partition_by: [nam]}", "9: table.partition_by: there is no column 'nam' | write name"),
        ("table: {partition_by: [id, id]}", "9: table.partition_by: 'id' is named more than once"),
        (
            "table: {partition_by: [at]}",
            "9: table.partition_by: the column at is TIMESTAMP: readers disagree on such values in folder names | "
            "partition by a column of STRING, DATE, TINYINT, SMALLINT, INT, BIGINT",
        ),
        ("table: {keys: [id]}", "9: table.keys: keys are for output_mode: update, and this is append | remove it"),
        (
            "table: {order_by: at}",
            "9: table.order_by: order_by is for output_mode: update, and this is append | remove it, or write "
            "output_mode: update and table.keys",
        ),
        ("table: {order_by: 5}", "9: table.order_by: 5 is not valid here | write the name of a column, or a list"),
        (
            "output_mode: update\ntable: {keys: [id], order_by: [at, ID]}",
            "10: table.order_by: the column ID is in keys: rows that replace each other have the same value in it | "
            "name the column that tells which of several changes is newer",
        ),
        ("output_mode: update\ntable: {keys: [id], order_by: att}", "there is no column 'att' | write at"),
        ("output_mode: update\ntable: {keys: [id], order_by: [at, AT]}", "is named more than once"),
        ("maintenance: {schedule: hourly}", "is not a cron schedule"),
        ("maintenance: {compact_below: 32}", "32 is not a size"),
        ("maintenance: {compact_below: 2 GiB}", "files of 2,147,483,648 bytes are not small"),
        ("maintenance: {keep_versions: 7}", "7 is not a duration"),
        ("maintenance: {source: move}", "'move' is not allowed"),
        ("maintenance: {expire: {report: 1 day}}", "unknown key 'report'"),
        ("maintenance: {expire: {partitions: 1 day}}", "the table has no partitions"),
        (
            "maintenance: {expire: {partitions: 1 day}}\ntable: {partition_by: [id]}",
            "no column of table.partition_by is a DATE",
        ),
        (
            "    on_change: reread_tail\nmaintenance: {source: archive}",
            "archive and sources.orders.on_change: reread_tail do not go together",
        ),
        ("table: {cluster_by: [nope]}", "there is no column 'nope'"),
        ("table: {cluster_by: [id, ID]}", "is named more than once"),
        ("table: {partition_by: [id], cluster_by: [id]}", "the column id is in partition_by"),
        (
            "    options: {maxFilesPerTrigger: 5}\ntrigger: once",
            "trigger: once takes everything in one batch",
        ),
        ("    follow_links: [s3a://bucket/x]", "is a URI"),
        ("    follow_links: [s3://bucket/x]", "an object store has no symbolic links"),
        ("    list_all_every: 1 day", "a folder is listed whole in each run"),
        ("    notifications: {topic: s3-events}", "only those of S3 (s3://) are understood"),
        ("trigger: onc", "9: trigger: 'onc' is not allowed | write once; allowed: available_now, once"),
        (
            "spark: {conf: {spark.master: x}}",
            "9: spark.conf.spark.master: tidegate sets this itself, and it cannot be overridden: the master",
        ),
        (
            "spark: {conf: {spark.sql.streaming.multipleWatermarkPolicy: max}}",
            "| remove it; with watermarks on several sources write `watermark_policy: max`",
        ),
        ("spark: {conf: {spark.sql.shuffle.partitions: 0}}", "0 is not a number of partitions | write a whole"),
        ("spark: {conf: {spark.executor.memory: lots}}", "'lots' is not a size | write it like 512m or 4g"),
        ("spark: {conf: {spark.driver.memory: 1.5g}}", "'1.5g' is not a size"),
        ("spark: {conf: {spark.executor.cores: 1.5}}", "1.5 is not a number | write a whole number from 1"),
        ("spark: {conf: {spark.executor.instances: many}}", "'many' is not a number | write a whole number"),
        ("spark: {conf: {spark.network.timeout: soon}}", "'soon' is not a duration | write it like 30s or 5min"),
        ("spark: {conf: {spark.sql.ansi.enabled: 1}}", "1 is not a truth value | write true or false"),
        ("spark: {conf: {executor.memory: 1g}}", "'executor.memory' is not a Spark setting"),
        ("spark: {conf: {spark.sql.files.ignoreCorruptFiles: true}}", "it drops rows in silence | remove it"),
        (
            "quality: {on_critcal: hold}",
            "9: quality.on_critcal: unknown key 'on_critcal' | write on_critical; allowed:",
        ),
        ("quality: []", "9: quality: an empty list is not valid here | write a mapping"),
        (
            "    options: {x: [1]}",
            "9: sources.orders.options.x: a list is not valid here | write a text, a number",
        ),
    ],
)
def test_faults_of_the_pipeline(tmp_path, lines, expected):
    assert expected in one_fault(tmp_path, GOOD + lines + "\n")


_ON_COLUMNS = "table: {partition_by: [tag], keys: [a], cluster_by: [b]}\noutput_mode: update\n"
_ON_SOURCES = "close_windows: at_end\nmaintenance: {source: archive}\n"
_UNREADABLE = ("null", "[]", "[{type: files}]", "x", "{}", "{s: {type: spark}}", "{s: [1]}", "{s: [1], t: 1}")


@pytest.mark.parametrize("sources", _UNREADABLE)
def test_nothing_is_said_of_what_depends_on_sources_that_cannot_be_read(tmp_path: Path, sources: str) -> None:
    policy = "" if sources in _UNREADABLE[5:7] else "watermark_policy: max\n"
    text = f"version: 1\nname: orders\nsources: {sources}\n{_ON_COLUMNS}{_ON_SOURCES}{policy}"
    sinks = "sinks: [{type: kafka, topic: t, key: k}, {type: kafka, value: columns}]\n"
    assert {fault.split(":")[0] for fault in faults_of(tmp_path, text + sinks)} == {"3"}


def test_an_entry_behind_one_that_cannot_be_read_keeps_its_place(tmp_path: Path) -> None:
    sinks = "sinks: [{type: x}, {type: kafka, topic: t}, {type: 1}, {type: kafka, topic: a b}]\n"
    told = sorted(fault.split(":")[1] for fault in faults_of(tmp_path, GOOD + sinks))
    assert told == [" sinks[0].type", " sinks[2].type", " sinks[3].topic"]


def test_a_source_that_cannot_be_read_may_be_what_another_lacks(tmp_path: Path) -> None:
    static = "s: {type: files, path: in, format: json, schema: id BIGINT, static: true}"
    text = f"version: 1\nname: orders\ntransform: transform.py\nsources: {{{static}, t: {{type: 1}}}}\n"
    text += f"watermark_policy: max\n{_ON_SOURCES}"
    assert [fault.split(":")[1] for fault in faults_of(tmp_path, text)] == [" sources.t.type", " watermark_policy"]
    whole = "t: {type: files, path: in, format: json, schema: id BIGINT}"
    told = faults_of(tmp_path, text.replace("t: {type: 1}", whole))
    assert sorted(fault.split(":")[1] for fault in told) == [" close_windows", " watermark_policy"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("    topics: [clicks]\n", ""), "4: sources.clicks.topics: there is none of topics, topic_pattern and assign"),
        (
            ("topics: [clicks]", "topics: [clicks]\n    topic_pattern: a.*"),
            "7: sources.clicks.topic_pattern: there are",
        ),
        (("topics: [clicks]", "topics: []"), "6: sources.clicks.topics: there is no topic | name at least one"),
        (("topics: [clicks]", "topics: [a*]"), "'a*' cannot be the name of a topic | use letters"),
        (("topics: [clicks]", "topics: [a, a]"), "a topic is named twice"),
        (
            ("topics: [clicks]", "topics: clicks"),
            "6: sources.clicks.topics: 'clicks' is not valid here | write a",
        ),
        (
            ("topics: [clicks]", "topic_pattern: 'a('"),
            "6: sources.clicks.topic_pattern: not a regular expression: missing",
        ),
        (
            ("topics: [clicks]", "assign: {clicks: []}"),
            "6: sources.clicks.assign.clicks: an empty list (clicks) is not a",
        ),
        (("topics: [clicks]", "assign: {clicks: [0, 0]}"), "is not a list of partitions | write each partition once"),
        (
            ("schema: id BIGINT", "schema: id BIGINT\nmaintenance: {source: delete}"),
            "delete is for files, and no source that streams is files",
        ),
        (("format: json", "format: raw"), "8: sources.clicks.schema: raw has one column, value BINARY, and no schema"),
        (("id BIGINT", "id BIGINT, _key STRING\n    metadata: true"), "the column _key is tidegate's own"),
    ],
)
def test_faults_of_a_kafka_source(tmp_path, change, expected):
    assert expected in one_fault(tmp_path, GOOD_KAFKA.replace(*change))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("earlist", "'earlist' is not a place to start | write earliest"),
        ("yesterday", "'yesterday' is not a place to start | write earliest, latest, an ISO time stamp"),
        ("2026-01-01T00:00:00", "has no time zone | write 2026-01-01T00:00:00Z for UTC"),
        ("{}", "it names no topic"),
        ("{click: {0: 1}}", "the topic 'click' is not read by this source | write clicks"),
        ("{clicks: {}}", "it names no partition"),
        ("{clicks: {a: 1}}", "'a': 1 is not a valid partition/offset pair | write 0: 123"),
        ("{clicks: {0: -3}}", "'0': -3 is not a valid partition/offset pair"),
        ("{clicks: 4}", "starting_offsets.clicks: 4 is not valid here | write a mapping"),
        ("{clicks: {0: x}}", "starting_offsets.clicks.0: 'x' is not valid here | write a whole number"),
        ("5", "5 is not valid here | write earliest, latest, an ISO time stamp, or {topic"),
    ],
)
def test_starting_offsets(tmp_path, value, expected):
    faults = faults_of(tmp_path, GOOD_KAFKA + f"    starting_offsets: {value}\n")
    assert any(expected in fault for fault in faults), faults
    assert "clicks." not in expected or len(faults) == 1


@pytest.mark.parametrize("value", ["earliest", "latest", "2026-01-01T00:00:00+02:00", "{clicks: {0: 7}}"])
def test_starting_offsets_that_are_good(tmp_path, value):
    assert faults_of(tmp_path, GOOD_KAFKA + f"    starting_offsets: {value}\n") == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("[id, ID]", "table.keys: 'id' is named more than once | name each column once"),
        ("[nam]", "table.keys: there is no column 'nam' | write name"),
        ("[ratio]", "table.keys: the column ratio is double: values of this type cannot be compared reliably"),
        ("[tags]", "table.keys: the column tags is array<string>"),
        ("['']", "table.keys: a column has no name | remove it"),
        ("[]", "table.keys: keys are needed: output_mode: update replaces the rows that have the keys of a new one"),
    ],
)
def test_keys_that_cannot_tell_rows_apart(tmp_path, keys, expected):
    text = GOOD.replace("id BIGINT", "id BIGINT, ratio DOUBLE, tags ARRAY<STRING>")
    faults = faults_of(tmp_path, f"{text}output_mode: update\ntable: {{keys: {keys}}}\n")
    assert any(expected in fault for fault in faults), faults


WATERMARK = "    event_time: at\n    watermark: 5 minutes\n"
STATIC = "  more: {type: files, path: b, format: text, static: true}\n"
MORE = "  more: {type: files, path: b, format: json, schema: at TIMESTAMP, event_time: at, watermark: 1 hour}\n"
JOINED = "transform: transform.py\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "output_mode: update\ntable: {keys: [id]}\n",
        GOOD + "output_mode: complete\n",
        GOOD + WATERMARK,
        GOOD + WATERMARK + "close_windows: at_end\n",
        GOOD + WATERMARK + "close_windows: {when: 2 hours}\n",
        GOOD + STATIC + JOINED,
        GOOD + MORE + JOINED,
        GOOD + WATERMARK + MORE + JOINED + "watermark_policy: max\n",
        GOOD + WATERMARK + "watermark_policy: min\n",
        GOOD.replace("schema: id BIGINT, name STRING, at TIMESTAMP", "schema: infer"),
        TICKS + "    event_time: timestamp\n    watermark: 5 minutes\n",
        TICKS + STATIC + JOINED,
    ],
)
def test_queries_with_state_and_several_sources_load(tmp_path, text):
    assert faults_of(tmp_path, text) == []
    assert load(tmp_path, text)


def test_what_streams_is_told_from_what_is_read_whole(tmp_path):
    others = MORE.replace("more:", "others:")
    spec = load(tmp_path, GOOD + WATERMARK + STATIC + others + JOINED + "close_windows: {when: 2 hours}\n")
    assert (list(spec.streams), list(spec.statics)) == (["orders", "others"], ["more"])
    assert spec.watermarks == {"orders": 300.0, "others": 3600.0}
    assert isinstance(spec.close_windows, CloseWhen) and spec.close_windows.when == 7200.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GOOD + "    static: true\n",
            "3: sources: every source is static, so nothing is ever new | add one that streams",
        ),
        (
            GOOD + "    static: true\n" + STATIC + JOINED,
            "3: sources: every source is static, so nothing is ever new | add one that streams",
        ),
        (
            GOOD + MORE,
            "3: sources: 2 sources and no transform that says how they come together | add `transform: transform.py`, "
            "or keep one source",
        ),
        (
            GOOD + STATIC,
            "3: sources: 2 sources and no transform that says how they come together | add `transform: transform.py`, "
            "or keep one source",
        ),
        (
            GOOD + MORE.replace("type:", "static: true, type:") + JOINED,
            "9: sources.more.watermark: a static source has no watermark: it is read whole in each run | remove it",
        ),
        (
            GOOD + STATIC.replace("format: text", "format: csv, schema: infer") + JOINED,
            "9: sources.more.schema: the columns of a static source are not inferred: its files change from run to run "
            "| write the columns: schema: id BIGINT",
        ),
        (
            GOOD + "close_windows: at_end\n",
            "9: close_windows: close_windows moves a watermark, and no source has one | give a source `event_time` and "
            "`watermark`, or remove it",
        ),
        (
            GOOD + "close_windows: {when: 1 hour}\n",
            "9: close_windows: close_windows moves a watermark, and no source has one | give a source `event_time` and "
            "`watermark`, or remove it",
        ),
        (
            GOOD + "watermark_policy: max\n",
            "9: watermark_policy: watermark_policy chooses between watermarks, and there are not two | remove it",
        ),
        (
            GOOD + WATERMARK + "watermark_policy: max\n",
            "11: watermark_policy: watermark_policy chooses between watermarks, and there are not two | remove it",
        ),
        (
            GOOD + "output_mode: update\ntable: {partition_by: [name]}\n",
            "10: table.keys: keys are needed: output_mode: update replaces the rows that have the keys of a new one | "
            "write the columns that tell the rows apart: keys: [id]",
        ),
        (
            GOOD + "output_mode: complete\ntable: {keys: [id]}\n",
            "10: table.keys: keys are for output_mode: update, and this is complete | remove it",
        ),
        (
            GOOD + "    watermark: 5 minutes\n",
            "9: sources.orders.watermark: a watermark needs event_time | add `event_time: column`",
        ),
    ],
)
def test_streams_that_do_not_fit_together(tmp_path, text, expected):
    assert one_fault(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{after: 1 hour}", "11: close_windows.after: unknown key 'after' | write when"),
        ("{wen: 1 hour}", "11: close_windows.wen: unknown key 'wen' | write when"),
        ("{when: 1 hour, also: 2}", "11: close_windows.also: unknown key 'also' | allowed: when"),
        ("{}", "11: close_windows.when: the key is missing | add `when: ...`"),
        (
            "{when: soon}",
            '11: close_windows.when: \'soon\' is not a duration | write it like "20 minutes" or "60 seconds"',
        ),
        ("at_ende", "11: close_windows: 'at_ende' is not allowed | write at_end; allowed: at_end, {when: ...}"),
        ("1 hour", "11: close_windows: '1 hour' is not allowed | allowed: at_end, {when: ...}"),
        ("[at_end]", "11: close_windows: a list is not allowed | write at_end; allowed: at_end, {when: ...}"),
    ],
)
def test_faults_of_a_key_that_is_a_word_or_a_mapping(tmp_path: Path, written: str, expected: str) -> None:
    assert one_fault(tmp_path, GOOD + WATERMARK + f"close_windows: {written}\n") == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("watermark: 5 minutes", "'watermark' | it belongs to a source: write it in sources.orders"),
        ("keys: [id]", "'keys' | it belongs to table: write `table: {keys: ...}`"),
        ("topics: [t]", "'topics' | it belongs to a source: write it in sources.NAME"),
        (
            "path: x",
            "'path' | it belongs to a source: write it in sources.orders; or to table: write `table: {path: ...}`",
        ),
        ("conf: {a: b}", "'conf' | it belongs to spark: write `spark: {conf: ...}`"),
    ],
)
def test_a_key_that_belongs_elsewhere(tmp_path: Path, written: str, expected: str) -> None:
    assert one_fault(tmp_path, GOOD + written + "\n") == f"9: {written.partition(':')[0]}: unknown key {expected}"


def test_a_watermark_of_a_static_source_is_none_of_the_query(tmp_path):
    text = GOOD + WATERMARK + MORE.replace("type:", "static: true, type:") + JOINED + "watermark_policy: max\n"
    keys = {fault.split(": ")[1] for fault in faults_of(tmp_path, text)}
    assert keys == {"sources.more.watermark", "watermark_policy"}


def test_later_increments_pass_a_held_one_only_where_their_order_does_not_count(tmp_path):
    assert load(tmp_path, GOOD + "quality: {on_critical: continue}\n").quality.on_critical == "continue"
    text = GOOD + "quality: {on_critical: continue}\noutput_mode: update\ntable: {keys: [a]}\n"
    (fault,) = [one for one in faults_of(tmp_path, text) if "on_critical" in one]
    assert "in output_mode: update: rows replace those of the increments before, so the order counts" in fault


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "", "ab", "A_b", "abc\n", "abc\0", "a" * 64, "_abc", "1abc", ".", "abc;rm", "$(x)", "äöü"]
)
def test_hostile_names(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        load_pipeline(Project(root=tmp_path, spec=ProjectSpec()), name)
    assert caught.value.code == "BAD_NAME"


def test_good_names():
    assert [check_name(name) for name in ("abc", "a" * 63, "a_1")] == ["abc", "a" * 63, "a_1"]


def test_no_such_pipeline(tmp_path):
    project = write(tmp_path, GOOD)
    assert list_pipelines(project) == ["orders"]
    with pytest.raises(UsageError, match="there is no pipeline 'order'; there are: orders") as caught:
        load_pipeline(project, "order")
    assert caught.value.code == "NO_SUCH_PIPELINE"
    assert caught.value.fix == "write orders, or create it: tidegate new order"


def test_a_secret_is_never_shown(tmp_path):
    text = GOOD_KAFKA + '    options: {kafka.sasl.jaas.config: "canary-5f3", kafka.ssl.key.password: [canary-5f3]}\n'
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert "canary" not in str(caught.value) + str(caught.value.to_dict())
    assert "a secret does not belong in pipeline.yaml" in str(caught.value)


def test_nearest_names():
    assert name_nearest("partitionBy", ["partition_by", "keys"]) == "partition_by"
    assert name_nearest("zzz", ["partition_by", "keys"]) is None
    assert len(show_value("x" * 500)) == 80


def test_loading_stays_light(tmp_path):
    """Neither Spark nor any other heavy library is imported on the way to a spec."""
    write(tmp_path, GOOD + "schedule: '*/5 * * * *'\n")
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    program = (
        "import sys; from pathlib import Path; from tidegate.spec.project import load_project; "
        "from tidegate.spec.pipeline import load_pipeline; from tidegate.views.validate import validate_project; "
        "p = load_project(Path(sys.argv[1])); load_pipeline(p, 'orders'); assert validate_project(p) == []; "
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'great_expectations', 'airflow', 'croniter', 'deltalake'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("format: json", "format: parquet"), "parquet has none"),
        (("format: json", "format: text\n    options: {wholetext: true}"), "with wholetext a line is not a record"),
        (("format: json", "format: csv\n    options: {multiLine: true}"), "with multiLine a line is not a record"),
        (("format: json", "format: csv\n    options: {encoding: UTF-16LE}"), "cannot find the lines of UTF-16LE"),
        (("format: json", "format: xml\n    options: {rowTag: o}"), "in xml a line is not a record"),
        (("format: json", "format: json\n    static: true"), "read afresh in each run"),
    ],
)
def test_reread_tail_is_refused_where_there_is_no_tail(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    text = GOOD.replace(*change) + "    on_change: reread_tail\n"
    faults = [fault for fault in faults_of(tmp_path, text) if "on_change" in fault]
    assert len(faults) == 1 and told in faults[0] and " | " in faults[0], faults


def test_folders_that_links_may_lead_to(tmp_path: Path) -> None:
    source = load(tmp_path, GOOD + "    follow_links: [/mnt/archive, ../other]\n").sources["orders"]
    assert isinstance(source, FilesSource) and source.follow_links == ["/mnt/archive", "../other"]


@pytest.mark.parametrize(
    ("key", "typo"),
    [("format", "fromat"), ("path", "paht"), ("type", "tpye")],
)
def test_behind_a_misspelt_key_that_is_needed_the_rest_is_checked_too(tmp_path: Path, key: str, typo: str) -> None:
    text = GOOD.replace(f"    {key}:", f"    {typo}:").replace("at TIMESTAMP", "price DOUBEL")
    found = [line.partition(" | ")[0] for line in faults_of(tmp_path, text + "    options: {encodign: UTF-8}\n")]
    assert [line.partition(": ")[2] for line in found] == [
        f"sources.orders.{typo}: unknown key '{typo}'",
        "sources.orders.schema: not a schema in Spark's DDL: column price: there is no type 'DOUBEL'",
        "sources.orders.options.encodign: 'encodign' is not a reader option for json files",
    ]


def test_what_a_misspelt_key_of_many_holds_is_told_with_its_value_and_line(tmp_path: Path) -> None:
    text = GOOD.replace("sources:", "surces:").replace("format: json", "format: jsno").replace("name: orders", "nme: 5")
    assert [line.partition(" | ")[0] for line in faults_of(tmp_path, text)] == [
        "2: nme: unknown key 'nme'",
        "3: surces: unknown key 'surces'",
        "7: sources.orders.format: 'jsno' is not allowed",
    ]


def test_a_secret_in_a_misspelt_key_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_FORMAT", "hidden-value-1")
    (only, inner) = faults_of(tmp_path, GOOD.replace("sources:", "surces:").replace("json", "${ORDERS_FORMAT}"))
    assert "unknown key 'surces'" in only and "'${ORDERS_FORMAT}' is not allowed" in inner
    assert "hidden-value-1" not in only + inner


@pytest.mark.parametrize(
    "change",
    [
        ("schema:", "shema:"),  # json needs one
        ("sources:", "sorces:"),
        ("version:", "vrsion:"),
        ("name:", "nme:"),
        ("name: orders", "nme: 5"),
        ("path: data/inbox/orders", "pth: 5"),
        ("format: json", "formt: {a: 1}"),
        ("type: files", "typ: filez"),
    ],
)
def test_one_misspelt_key_is_one_fault(tmp_path: Path, change: tuple[str, str]) -> None:
    assert change[0] in GOOD
    assert "unknown key" in one_fault(tmp_path, GOOD.replace(*change))


def test_a_key_that_is_not_known_takes_nothing_from_one_that_is_there(tmp_path: Path) -> None:
    found = faults_of(tmp_path, GOOD + "    setle: 5 mins\n    setlle: 6 mins\n    formatt: 7\n")
    assert [line.partition(" | ")[0].partition(": ")[2] for line in found] == [
        f"sources.orders.{key}: unknown key {key!r}" for key in ("setle", "setlle", "formatt")
    ]


@pytest.mark.parametrize(
    ("more", "key", "message", "fix"),
    [
        ("quality: {max_quarantine_share: true}", "quality.max_quarantine_share", "true", "write a number"),
        ("alerts: {quarantine_share: false}", "alerts.quarantine_share", "false", "write a number"),
        ("alerts: {notify: [{notifer: a.B}]}", "alerts.notify[0].notifer", "unknown key", "write notifier"),
        ("source: {}", "source", "unknown key 'source'", "write sources"),
        (f"description: {'[' * 200}{']' * 200}", "", "nested more than 64 levels deep", "correct the file"),
        (
            "maintenance: {keep_versions: 60000 weeks}",
            "maintenance.keep_versions",
            "not a duration",
            "at most 52000 weeks",
        ),
    ],
)
def test_what_users_wrote(tmp_path, more, key, message, fix):
    text = GOOD if not more.startswith("source:") else GOOD.replace("sources:", "source:")
    write(tmp_path, text + ("" if more.startswith("source:") else f"{more}\n"))
    _, faults = read_pipeline(Project(root=tmp_path, spec=ProjectSpec()), "orders")
    found = [(one.key, one.message, one.fix) for one in faults]
    assert any(at == key and message in said and fix in way for at, said, way in found), found


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", None),
        ("    on_change: reread_tail\n", "nothing is appended to an object"),
        ("    follow_links: [data/other]\n", "an object store has no symbolic links"),
        ("    list_all_every: 1 day\n", None),
        ("    list_all_every: 1 day\n    notifications: {topic: s3-events}\n", None),
        ("    list_all_every: 1 day\n    notifications: {path: data/events}\n", None),
        ("    list_all_every: 1 day\n    notifications: {}\n", "exactly one of topic and path"),
        ("    list_all_every: 1 day\n    notifications: {path: 's3://'}\n", "names no bucket"),
        ("    notifications: {topic: s3-events}\n", "never be read | add `list_all_every: 1 day`"),
        (
            "    list_all_every: 1 day\n    notifications: {topic: 's3 events'}\n",
            "'s3 events' cannot be the name of a topic",
        ),
        ("maintenance: {source: delete}\n", "the sources are on an object store | remove it, and use a lifecycle rule"),
        ("table: {path: 's3://bucket/in'}\n", "are inside of one another"),
    ],
)
def test_a_source_on_a_store(tmp_path, more, expected):
    text = GOOD.replace("path: data/inbox/orders", "path: 's3://bucket/in/day=*/*.json'") + more
    if expected is None:
        assert load(tmp_path, text).sources["orders"].is_on_store
    else:
        assert expected in one_fault(tmp_path, text)


def test_messages_are_not_among_the_records(tmp_path):
    text = GOOD.replace("path: data/inbox/orders", "path: 's3://bucket/in/'") + "    list_all_every: 1 day\n"
    for path in ("s3://bucket/in/events", "s3://bucket/in"):
        assert "is inside of the source" in one_fault(tmp_path, f"{text}    notifications: {{path: '{path}'}}\n")
    spec = load(tmp_path, f"{text}    notifications: {{path: 's3://bucket/in-events'}}\n")
    assert spec.sources["orders"].notifications.place == "s3://bucket/in-events"


@pytest.mark.parametrize(("path", "why"), [("s3://", "names no bucket"), ("s3://b/../x", "has `..` in it")])
def test_paths_that_no_object_has(tmp_path, path, why):
    assert why in one_fault(tmp_path, GOOD.replace("path: data/inbox/orders", f"path: {path}"))
