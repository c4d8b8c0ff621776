"""JSON Schemas of ``tidegate.yaml`` and ``pipeline.yaml`` for editors, made from the models.

``python -m tidegate.spec.json_schema`` writes them; ``--check`` says whether they are current (exit 1 if not).
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

from tidegate.spec.cron import PRESETS
from tidegate.spec.model import (
    TRUTHS,
    Between,
    Matching,
    Model,
    NotEmpty,
    ParsedFromText,
    TaggedByType,
    models_by_type,
    models_in,
)
from tidegate.spec.models import PipelineSpec, ProjectSpec

_PRESETS = ", ".join(PRESETS)
_COMMON = {
    "type": "The type of source.",
    "format": "How the records are written.",
    "schema": "The columns in Spark's DDL (id BIGINT, tags ARRAY<STRING>).",
    "event_time": "The TIMESTAMP column that says when a record happened.",
    "watermark": "How late a record may arrive, for example `20 minutes`.",
    "unknown_fields": "What happens to fields, at any depth, that the schema does not have: named in the "
    "report, quarantined with their record, or kept in the column _rescued.",
    "values": "exact, the only value: a record with a value that its type cannot hold exactly is malformed.",
    "static": "A static source, read again in full in each run.",
    "options": "Options of the reader, by the names that they have in Spark.",
    "conf": "Spark settings by their full names (spark.sql....).",
}
_BY_MODEL = {
    "SparkSpec": {
        "master": "A local master, such as local[*]: the driver of this pipeline has no executors. By default the "
        "master is the project's, or that of the connection.",
    },
    "FilesSource": {
        "path": "A folder or a pattern, relative to tidegate.yaml; or a prefix of an object store: s3://, gs://, az://.",
        "schema": "The columns in Spark's DDL (id BIGINT, tags ARRAY<STRING>), or `infer`: the first run finds "
        "them, and they are kept.",
        "settle": "Take a file only after it has not changed for this long. Default: 10 seconds for a text file whose "
        "last line has no line break, and none for others.",
        "on_change": "A file that changed after it was read: report (also in status, until it is acknowledged), fail "
        "(66), or reread_tail, which takes the lines that were appended.",
        "start": "What the first run reads of the files that are there: all, now (none of them), or an ISO time stamp "
        "with its zone (those changed at or after it). The others count as taken. Later runs read every new file.",
        "list_all_every": "For objects: list all keys only this often, and in the other runs those after the last one "
        "that was taken (where names sort by time), or that notifications name. Default: list all keys in each run.",
        "notifications": "Where the bucket's event notifications arrive, {topic: NAME} or {path: FOLDER}: runs that do "
        "not list all keys (list_all_every) look at the objects that these name, in place of a list.",
        "follow_links": "Folders outside the source's own that its symbolic links may lead to.",
    },
    "Notifications": {
        "topic": "A Kafka topic, on the brokers of tidegate.yaml; each record is a message.",
        "path": "A folder, or a prefix of an object store; each file is a message, or each of its lines.",
    },
    "KafkaSource": {
        "topics": "The topics to read. One of topics, topic_pattern and assign is needed.",
        "topic_pattern": "A regular expression on the names of topics.",
        "assign": "Partitions by topic: {clicks: [0, 1]}.",
        "starting_offsets": "Where the first run starts: earliest, latest, an ISO time stamp with its zone, or "
        "{topic: {partition: offset}} (-2 earliest, -1 latest).",
        "schema": "The columns of the value in Spark's DDL; text and raw have none, but the one column value.",
        "metadata": "Adds _key, _topic, _partition, _offset, _timestamp and _headers.",
    },
    "CloseWhen": {"when": "How long no new record must have arrived."},
    "RateSource": {
        "options": "rowsPerSecond; rampUpTime, the time until that rate is reached; numPartitions, into how many "
        "partitions Spark divides the rows of a run."
    },
    "SocketSource": {
        "options": "host and port of the peer; includeTimestamp adds the column timestamp; timeout is the silence "
        "after which a run stops listening.",
    },
    "KafkaSink": {
        "type": "The type of sink.",
        "topic": "The topic that is fed; it must exist. With value: columns, the topic of rows that name none in their "
        "column topic; it may be omitted if each row has one.",
        "key": "The column that is the record's key, as text; without it, records have none. Not with value: columns.",
        "value": "How a row is written. json: as a JSON object with all its columns; columns: from the columns value, "
        "key, topic, partition and headers, as Spark's Kafka sink takes them.",
    },
    "ForeachBatchSink": {
        "type": "The type of sink.",
        "function": "file.py:name in the folder of the pipeline, called as name(df, batch_id).",
    },
    "ForeachSink": {
        "type": "The type of sink.",
        "writer": "file.py:Name in the folder of the pipeline, a class with process(row); open and close are optional.",
    },
    "ConsoleSink": {"type": "The type of sink."},
    "TableSpec": {
        "path": "The folder of the table, where it is not the pipeline's own in the warehouse; relative to "
        "tidegate.yaml. For a table that was there before the pipeline: see `tidegate adopt`.",
        "partition_by": "Columns that become folders of the table.",
        "keys": "With output_mode update: the key that a changed row replaces.",
        "order_by": "With keys: the column, or columns, by which the newest of several changes of a key counts, within "
        "a batch and over runs. Without it the last one counts, and a batch may have one row of each key.",
        "cluster_by": "Columns that `tidegate maintain` sorts rows by where it puts small files together, so that "
        "readers skip what a filter on them rules out.",
        "readers": "both: plain readers (a glob over parquet files) and Delta readers see the same rows, and replaced "
        "files are hidden; delta: all readers go by the Delta log, and replaced files keep their names for "
        "maintenance.keep_versions, so that slow readers and time travel work.",
    },
    "QualitySpec": {
        "on_critical": "hold: later runs wait for a person's decision; continue (output_mode: append): this increment "
        "is deferred, later ones continue.",
        "max_quarantine_share": "A larger share of the records in quarantine (0 to 1) is a critical failure in itself. "
        "Default: more than half of at least 100 records malformed or rejected.",
    },
    "PipelineSpec": {
        "version": "The version of this file's format.",
        "name": "The name of the pipeline: the folder's name.",
        "description": "What the table holds, in a sentence.",
        "owner": "Who is responsible for the pipeline; the DAG's owner.",
        "tags": "Tags of the DAG.",
        "schedule": f"Cron with five fields, a preset ({_PRESETS}), or null for manual runs only.",
        "sources": "Where rows come from; the names are the argument names of the transform.",
        "transform": "transform.py or transform.sql in the folder of the pipeline; without it, rows pass unchanged.",
        "on_row_error": "What happens to a record on which the transform fails (a cast, a division by zero, Python "
        "code). fail: it ends the run. quarantine: it goes to quarantine as malformed, and the others continue; up to "
        "100 records of a batch, and not in a query with state.",
        "trigger": "available_now: batches within the sources' limits; once: one batch without limits.",
        "output_mode": "append: rows are added; update: a row replaces the one with its keys; complete: the result "
        "replaces the table.",
        "watermark_policy": "With watermarks on several sources: min waits for the slowest, max follows the fastest.",
        "close_windows": "Close open windows without waiting for newer data: at_end of each run, or when no new "
        "record has arrived for this long.",
        "table": "Where the table is, and how it is laid out.",
        "quality": "What a failed gate means.",
        "sinks": "Further sinks, fed in order with what was published.",
        "maintenance": "What is cleaned up, and when.",
        "alerts": "Who is notified, and of what, when the pipeline runs on Airflow.",
        "spark": "Spark settings of this pipeline.",
    },
    "ProjectSpec": {
        "version": "The version of this file's format.",
        "warehouse": "The folder of the tables, or a prefix such as s3://bucket/tables.",
        "state": "The folder of checkpoints, staging, run reports and leases.",
        "quarantine": "The folder of the quarantine tables, or a prefix such as s3://bucket/quarantine.",
        "spark": "How Spark is reached.",
        "kafka": "How the brokers are reached.",
        "s3": "How buckets (`s3://...`) are reached.",
        "lease": "One writer per pipeline.",
        "airflow": "How many Spark drivers Airflow runs at once.",
        "ui": "What the pages in Airflow show.",
        "maintenance": "What is cleaned up, and when; for pipelines that do not set it themselves.",
        "alerts": "Who is notified, and of what; for pipelines that do not set it themselves.",
    },
    "ProjectSparkSpec": {
        "connection": "The Airflow connection of type Spark that the DAGs use.",
        "master": "The Spark master that the command line uses.",
        "packages": "Jars for Spark, which `tidegate jars` fetches: `{jar: group:name:version, sha256: ...}` for each. "
        "Every driver of the project gets them; a jar's dependencies must be listed too.",
    },
    "PackageSpec": {
        "jar": "The coordinates of one jar: group:name:version.",
        "sha256": "The SHA-256 checksum of the file. Without it, `tidegate jars` prints it, and runs are refused.",
    },
    "ProjectKafkaSpec": {
        "bootstrap_servers": "host:port of the brokers, with commas between.",
        "options": "Settings of the Kafka client, from an allow-list (security.protocol, sasl.*, ssl.*, limits).",
    },
    "ProjectS3Spec": {
        "endpoint": "The address of an S3 server other than Amazon's, such as https://minio.example:9000.",
        "region": "The region of the buckets. Default: AWS_REGION of the environment, or us-east-1.",
        "path_style": "Whether the bucket is in the path of a request (true), or in the name of the host, which some "
        "servers require.",
        "ca_file": "A file with the certificates of authorities that are trusted in addition to the system's, in PEM; "
        "relative to tidegate.yaml.",
        "connection": "The Airflow connection of type `aws` with the credentials, on Airflow. Without one of this name "
        "the environment's are used; another name than aws_default must exist.",
    },
    "AirflowSpec": {
        "pool": "The Airflow pool of the tasks that may start a Spark driver; created when it is missing. null: "
        "Airflow's default pool.",
        "slots": "The slots of that pool when it is created; an existing pool keeps its slots.",
    },
    "UiSpec": {
        "show_data": "Whether the pages show texts of quarantined records and what is wrong with them, to all who may "
        "read the DAG's XComs. By default they show only counts.",
        "spark_history": "The address of Spark's history server, such as http://history:18080: the page of a run links "
        "to its Spark application there, where spark.conf has `spark.eventLog.enabled: true`.",
    },
    "MaintenanceSpec": {
        "schedule": f"When `tidegate maintain` runs, as a separate DAG: cron with five fields, a preset ({_PRESETS}), "
        "or null for by hand only. In pipeline.yaml, null leaves the pipeline out of the project's.",
        "keep_versions": "How long files are kept after a newer version of the table replaced them, and so how far "
        "the table can be rolled back. 0 seconds: until the next publish.",
        "compact_below": "Files of the table that are smaller than this are compacted, partition by partition: a "
        "size like `32 MiB`. 0: none are.",
        "expire": "How long things are kept.",
        "source": "Files of the source that were read, whose records are published, and that have not changed since, "
        "once keep_versions have passed. keep: they stay; archive: they move into the hidden folder .tidegate-archive "
        "in the source's folder; delete: they are removed.",
    },
    "ExpireSpec": {
        "reports": "How long the reports of runs are kept, and their other records: progress, logs of drivers, "
        "what repairs took out of use, checkpoints of queries that are over.",
        "partitions": "Partitions of the table with an older date are removed from it. null: none are. It needs a DATE "
        "column in table.partition_by.",
    },
    "AlertsSpec": {
        "notify": "The notifiers, each of which gets every alert. [] (the default): nobody is notified.",
        "held": "Alert when an increment, a backfill or a refresh is held and waits for a decision.",
        "failing": "Alert when a task has failed for good; not again while later runs fail for the same reason.",
        "behind": "Alert when a run has not ended well this long after it was queued, and no other has since: a "
        "deadline alert of the DAG. Needs a triggerer.",
        "quarantine_share": "Alert when a larger share of a run that is published is in quarantine (0 to 1); not again "
        "while later runs exceed it too.",
    },
    "NotifierSpec": {
        "notifier": "The import path of a class made from Airflow's BaseNotifier: a provider's, or one in the "
        "project's plugins folder.",
        "arguments": "The arguments that the class is created with. Texts may be templates: {{ alert.title }}, "
        "{{ alert.text }}, {{ alert.html }}. Secrets belong in an Airflow connection.",
    },
    "LeaseSpec": {"expires_after": "How long a lease holder without a heartbeat is assumed to be alive."},
}


def describe_key(model: str, key: str) -> str:
    """The sentence on ``key`` of a model. Raises KeyError when there is none."""
    own = _BY_MODEL.get(model, {})
    return own[key] if key in own else _COMMON[key]


FOLDER = Path(__file__).parent / "schemas"
_TYPES: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_AS_TEXT: dict[object, str] = {
    int: r"^\s*[-+]?[0-9]+\s*$",
    float: r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$",
    bool: f"^({'|'.join(TRUTHS)})$",
}
"""The texts that are read as a value of another type."""
_MODELS: dict[str, tuple[type[Model], str]] = {
    "pipeline.schema.json": (PipelineSpec, "pipeline.yaml"),
    "tidegate.schema.json": (ProjectSpec, "tidegate.yaml"),
}


def build_schemas() -> dict[str, dict[str, object]]:
    """The schemas by file name."""
    return {file: _build(model, title) for file, (model, title) in _MODELS.items()}


def render_schema(schema: dict[str, object]) -> str:
    """A schema as its file has it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def list_stale() -> list[str]:
    """The names of the schema files that are not what the models say."""
    return [
        file
        for file, schema in build_schemas().items()
        if not (FOLDER / file).is_file() or (FOLDER / file).read_text(encoding="utf-8") != render_schema(schema)
    ]


def write_schemas() -> None:
    """Write the schema files of the package."""
    FOLDER.mkdir(exist_ok=True)
    for file, schema in build_schemas().items():
        (FOLDER / file).write_text(render_schema(schema), encoding="utf-8")


def _build(model: type[Model], title: str) -> dict[str, object]:
    inner: dict[str, object] = {one.__name__: _model_schema(one) for one in _models_inside(model)}
    own = {"title": title, **{key: one for key, one in _model_schema(model).items() if key != "title"}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": dict(sorted(inner.items())), **own}


def _models_inside(model: type[Model]) -> set[type[Model]]:
    """The models that values inside of ``model`` are of."""
    found = {one for field in model.fields().values() for one in models_in(field.kind)}
    return found.union(*map(_models_inside, found))


def _model_schema(model: type[Model]) -> dict[str, object]:
    properties = {}
    for name, field in model.fields().items():
        default = field.default.to_json() if isinstance(field.default, Model) else field.default
        described = {"description": describe_key(model.__name__, name)}
        properties[name] = _schema_of(field.kind) | ({} if field.is_required else {"default": default}) | described
    needed = [name for name, field in model.fields().items() if field.is_required]
    return {
        "title": model.__name__,
        "description": inspect.getdoc(model),
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def _schema_of(kind: object) -> dict[str, object]:
    """The schema of a type of our models."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Model):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin is Literal:
        if not all(isinstance(word, str) for word in arguments):
            return {"enum": [form for word in arguments for form in (word, str(word))]}
        words = {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        return {"type": "string", **words}
    if origin is list:
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin is dict:
        key, value = map(_schema_of, arguments)
        if "pattern" in key:
            return {"type": "object", "patternProperties": {str(key["pattern"]): value}, "additionalProperties": False}
        return {"type": "object", "additionalProperties": value}
    if origin is Annotated:
        return _marked_schema(kind)
    if origin in (Union, types.UnionType):
        anyone: list[object] = []
        for one in map(_schema_of, arguments):
            inner = one.get("anyOf")
            anyone += inner if isinstance(inner, list) else [one]
        return {"anyOf": anyone}
    return {"type": [_TYPES[kind], "string"], "pattern": _AS_TEXT[kind]} if kind in _AS_TEXT else {"type": _TYPES[kind]}


def _marked_schema(kind: object) -> dict[str, object]:
    base, *marks = get_args(kind)
    found: dict[str, object] = {}
    for mark in marks:
        match mark:
            case ParsedFromText(pattern=pattern, takes_zero=takes_zero):
                text: dict[str, object] = {"type": "string", "pattern": pattern}
                return {"anyOf": [text, {"enum": [0, "0"]}]} if takes_zero else text
            case TaggedByType():
                one_of = [_schema_of(one) for one in models_in(base)]
                words = {word: f"#/$defs/{one.__name__}" for word, one in models_by_type(kind).items()}
                return {"oneOf": one_of, "discriminator": {"propertyName": "type", "mapping": words}}
            case Matching(pattern=pattern):
                found["pattern"] = pattern
            case Between(low=low, high=high):
                found |= {"minimum": low, "maximum": high}
            case NotEmpty():
                found["minProperties"] = 1
    return _schema_of(base) | found


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` compare them."""
    if arguments == ["--check"]:
        stale = list_stale()
        for file in stale:
            print(f"{file} is not current: python -m tidegate.spec.json_schema", file=sys.stderr)
        return 1 if stale else 0
    write_schemas()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
