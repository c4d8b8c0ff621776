"""The Spark side of a Kafka source: a stream from exact offsets, and exact ranges once more as a batch.

Every frame carries, beside the declared columns, what the accounting needs: ``_raw`` (the value as text; base64 where
it is none), ``_position`` ({"topic", "partition", "offset"} as JSON), ``_malformed``, ``_detail`` and ``_unknown``.

A record that is too large (:mod:`tidegate.sources.bounds`) is malformed, and only its first characters go on: the
parser would hold it many times over, and the next run would meet it again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.reading.parts import FRAMEWORK_COLUMNS, parse_texts
from tidegate.sources.bounds import CUT_CHARACTERS, LONGEST_RECORD_BYTES
from tidegate.sources.files.forms import form_of_texts
from tidegate.sources.kafka.offsets import KafkaBirth, settings_of
from tidegate.spec.ddl import quote_column
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.staging.topics import OffsetRanges, offsets_to_json, partitions_to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""The columns of ``metadata: true``: _key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP,
_headers ARRAY<STRUCT<key: STRING, value: BINARY>>."""

_TOO_LARGE = "_tidegate_too_large"
_HEADERS_SIZE = (
    "aggregate(headers, 0L, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0))"
)

_LIMITS = ("maxOffsetsPerTrigger",)

_KAFKA_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

_STAND_IN_COLUMNS = (
    "CAST(NULL AS BINARY) AS key",
    "CAST(NULL AS BINARY) AS value",
    "CAST(NULL AS STRING) AS topic",
    "CAST(NULL AS INT) AS partition",
    "CAST(NULL AS BIGINT) AS offset",
    "timestamp",
    "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
)

# A broker that stops answering is reported within a minute, not after Spark's and Kafka's own two minutes each.
_PATIENCE = {
    "kafkaConsumer.pollTimeoutMs": "30000",
    "kafka.request.timeout.ms": "15000",
    "kafka.default.api.timeout.ms": "20000",
}


def read_kafka(
    spark: SparkSession,
    project_kafka: ProjectKafkaSpec,
    source_name: str,
    spec: KafkaSource,
    birth: KafkaBirth,
    *,
    unlimited: bool = False,
    is_assigned: bool = False,
) -> DataFrame:
    """The stream of the topics that ``birth`` names, from its offsets where the checkpoint has none yet; of its
    partitions alone where ``is_assigned``.

    ``unlimited`` takes all that is there as one batch (trigger ``once``). Committed records only; offsets that are gone
    fail the query (the error is KAFKA_DATA_LOSS).
    """
    options = _PATIENCE | settings_of(project_kafka, spec).spark
    if unlimited:
        options = {name: value for name, value in options.items() if name not in _LIMITS}
    reader = spark.readStream.name(source_name).format("kafka").options(**options)
    reader = reader.options(**_subscription(spec, birth, is_assigned=is_assigned))
    reader = reader.option("startingOffsets", json.dumps(offsets_to_json(birth.offsets)))
    return shape_records(_load(reader, spec), spec)


def read_range(
    spark: SparkSession,
    project_kafka: ProjectKafkaSpec,
    spec: KafkaSource,
    ranges: OffsetRanges,
) -> DataFrame:
    """The records of ``ranges`` as a batch, same columns."""
    if not ranges:
        return shape_records(empty_records(spark), spec)
    options = _PATIENCE | settings_of(project_kafka, spec).spark
    options = {name: value for name, value in options.items() if name not in _LIMITS}
    begins = {partition: one.begin for partition, one in ranges.items()}
    ends = {partition: one.end for partition, one in ranges.items()}
    reader = (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps(partitions_to_json(ranges)))
        .option("startingOffsets", json.dumps(offsets_to_json(begins)))
        .option("endingOffsets", json.dumps(offsets_to_json(ends)))
    )
    return shape_records(_load(reader, spec), spec)


def empty_stream(spark: SparkSession, source_name: str) -> DataFrame:
    """A stream that never has a record, with the columns of Spark's Kafka source; needs neither jars nor a broker."""
    frame = spark.readStream.name(source_name).format("rate").load()  # stands in for Kafka's
    return frame.where("false").selectExpr(*_STAND_IN_COLUMNS)


def empty_records(spark: SparkSession) -> DataFrame:
    """No record, with the columns of Spark's Kafka source; needs neither jars nor a broker."""
    return spark.createDataFrame([], _KAFKA_SCHEMA)


def _load(reader: DataFrameReader | DataStreamReader, spec: KafkaSource) -> DataFrame:
    frame: DataFrame = (
        reader.option("failOnDataLoss", "true").option("includeHeaders", str(spec.metadata).lower()).load()
    )
    return frame


def _subscription(spec: KafkaSource, birth: KafkaBirth, *, is_assigned: bool) -> dict[str, str]:
    """The topics of the birth record by name, also for a pattern: one that appears now waits for the next run, which
    records its id first."""
    if spec.assign is not None or is_assigned:
        return {"assign": json.dumps(partitions_to_json(birth.offsets))}
    return {"subscribe": ",".join(sorted({topic for topic, _ in birth.offsets}))}


def shape_records(frame: DataFrame, spec: KafkaSource) -> DataFrame:
    """Kafka's own columns (value, topic, partition, offset, and those of ``metadata: true``) as this module's frame."""
    frame = _cut(frame, spec)
    position = F.expr(
        """concat('{"topic":"', topic, '","partition":', CAST(partition AS STRING), ',"offset":', """
        """CAST(offset AS STRING), '}')"""
    ).alias("_position")
    metadata = [F.col(name[1:]).alias(name) for name in METADATA_COLUMNS] if spec.metadata else []
    if spec.format == "raw":
        return frame.select(
            F.col("value"),
            *metadata,
            F.base64("value").alias("_raw"),
            position,
            F.col(_TOO_LARGE).isNotNull().alias("_malformed"),
            F.col(_TOO_LARGE).alias("_detail"),
            F.lit(None).cast("array<string>").alias("_unknown"),
        )
    kept = [*(METADATA_COLUMNS if spec.metadata else ()), _TOO_LARGE]
    text = frame.select(F.col("value").alias("_raw"), position, *metadata, _TOO_LARGE)
    parsed = parse_texts(text, form_of_texts(spec), kept)
    own = [name for name in parsed.columns if name not in (*kept, *FRAMEWORK_COLUMNS)]
    too_large = F.col(_TOO_LARGE).isNotNull()
    return parsed.select(
        *(F.col(quote_column(name)) for name in own),
        *(METADATA_COLUMNS if spec.metadata else ()),
        "_raw",
        "_position",
        (F.col("_malformed") | too_large).alias("_malformed"),
        F.coalesce(F.col(_TOO_LARGE), F.col("_detail")).alias("_detail"),
        F.when(~too_large, F.col("_unknown")).alias("_unknown"),
    )


def _cut(frame: DataFrame, spec: KafkaSource) -> DataFrame:
    """``frame`` with :data:`_TOO_LARGE`, why a record is too large (null where it is not), and no more of such a value
    or key than its begin; headers that are too large together are left out."""
    begin = f"substring(value, 1, {CUT_CHARACTERS})"
    unit = "bytes"
    if spec.format != "raw":  # no character is cut in two
        begin, unit = f"CAST(left(CAST(value AS STRING), {CUT_CHARACTERS}) AS BINARY)", "characters"
    cuts = {"value": (begin, f"; raw has its first {CUT_CHARACTERS:,} {unit}")}
    if spec.metadata:
        cuts["key"] = (f"substring(key, 1, {CUT_CHARACTERS})", "")
        cuts["headers"] = ("filter(headers, one -> false)", "")
    sizes = {name: _HEADERS_SIZE if name == "headers" else f"octet_length({name})" for name in cuts}
    large = {name: f"coalesce({sizes[name]} > {LONGEST_RECORD_BYTES}, false)" for name in cuts}
    limit = f"the limit is {LONGEST_RECORD_BYTES:,} bytes, and only the topic has all of it"
    why = " ".join(
        f"WHEN {large[name]} THEN concat('{name} of ', format_number({sizes[name]}, 0), ' bytes; {limit}{kept}')"
        for name, (_, kept) in cuts.items()
    )
    frame = frame.withColumn(_TOO_LARGE, F.expr(f"CASE {why} END"))
    cut = {name: F.expr(f"CASE WHEN {large[name]} THEN {begin} ELSE {name} END") for name, (begin, _) in cuts.items()}
    return frame.withColumns(cut)
