"""Topics as frames: the lines of batch files in, which workers expand to records in Python.

Every frame carries, beside the declared columns, what the accounting needs: ``_raw`` (the value as text; base64 where
it is none), ``_position`` ({"topic", "partition", "offset"} as JSON), ``_malformed``, ``_detail`` and ``_unknown``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidegate.reading.files import MAX_FILE_AGE
from tidegate.reading.parts import FRAMEWORK_COLUMNS, show_columns
from tidegate.sources.files.forms import form_of_texts
from tidegate.sources.kafka.offsets import settings_of
from tidegate.sources.readers.form import FRAMEWORK_DDL, RESCUED_DDL, Form
from tidegate.spec.ddl import parse_ddl, quote_column
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.staging.batch_files import BatchFiles
from tidegate.staging.topics import RangePart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""The columns of ``metadata: true``, as :data:`METADATA_DDL` has them."""
METADATA_DDL = (
    "_key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, "
    "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def stream_batches(
    spark: SparkSession, kafka: ProjectKafkaSpec, name: str, spec: KafkaSource, files: BatchFiles
) -> DataFrame:
    """The stream of what is in the batch files, one for each micro-batch; the checkpoint knows it as ``name``."""
    reader = spark.readStream.name(name).options(maxFilesPerTrigger=1, maxFileAge=MAX_FILE_AGE)
    return read_lines(reader.text(str(files.folder)), kafka, spec, _most_parts(files))


def read_parts_of_topics(
    spark: SparkSession, kafka: ProjectKafkaSpec, spec: KafkaSource, parts: Sequence[RangePart]
) -> DataFrame:
    """The records of some ranges, perhaps none, as a batch; same columns."""
    lines = spark.createDataFrame([(json.dumps(asdict(part)),) for part in parts], "value STRING")
    return read_lines(lines, kafka, spec, len(parts))


def empty_stream(spark: SparkSession, kafka: ProjectKafkaSpec, name: str, spec: KafkaSource) -> DataFrame:
    """A stream of the same columns that never has a record; asks nothing of the brokers."""
    nothing = spark.readStream.name(name).format("rate").load().where("false")
    return read_lines(nothing.selectExpr("CAST(NULL AS STRING) AS value"), kafka, spec, 1)


def read_lines(lines: DataFrame, kafka: ProjectKafkaSpec, spec: KafkaSource, parts: int) -> DataFrame:
    """The records of ``lines`` (value STRING) of batch files, which have about so many parts each."""
    from tidegate.sources.readers.kafka_worker import RangesReader

    tasks = min(parts, int(lines.sparkSession.sparkContext.defaultParallelism))
    if tasks > 1:  # the lines of a file are one partition
        lines = lines.repartition(tasks)
    form = form_of_records(spec)
    columns = parse_ddl(form.ddl)
    rescued = ["_rescued"] if form.policy == "rescue" else []
    metadata = METADATA_COLUMNS if spec.metadata else ()
    ddl = [show_columns(columns), *([RESCUED_DDL] if rescued else []), *([METADATA_DDL] if metadata else [])]
    patience_ms = spec.options.get("kafkaConsumer.pollTimeoutMs")
    patience = None if patience_ms is None else int(patience_ms) / 1000
    reader = RangesReader(form, settings_of(kafka, spec).reading, spec.metadata, patience)
    found = lines.select("value").mapInArrow(reader, ", ".join([*ddl, FRAMEWORK_DDL]))
    names = [quote_column(column.name) for column in columns]
    return found.select(*names, *rescued, *metadata, *FRAMEWORK_COLUMNS)


def form_of_records(spec: KafkaSource) -> Form:
    """How the values of records of ``spec`` become columns."""
    return Form("raw", "value BINARY") if spec.format == "raw" else form_of_texts(spec)


def _most_parts(files: BatchFiles) -> int:
    """How many parts a file has at most of those that Spark may take."""
    last = files.last_planned()  # perhaps of a batch in flight
    return max((len(files.read(number).parts) for number in files.numbers() if number >= last), default=1)
