"""Topics as frames: the lines of batch files in, which workers expand to records in Python.

Besides the declared columns, each frame has what the accounting needs: ``_raw`` (the value as text, or as base64 when
it is not text), ``_position`` ({"topic", "partition", "offset"} as JSON), ``_malformed``, ``_detail`` and ``_unknown``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.sources.files.forms import form_of_texts
from tidegate.sources.kafka.offsets import settings_of
from tidegate.sources.readers.form import FRAMEWORK_DDL, RESCUED_DDL, Form
from tidegate.spark.reading.parts import FRAMEWORK_COLUMNS, show_columns
from tidegate.spec.ddl import parse_ddl, quote_column
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""The columns of ``metadata: true``, as :data:`METADATA_DDL` has them."""
METADATA_DDL = (
    "_key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, "
    "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def read_records(lines: DataFrame, kafka: ProjectKafkaSpec, spec: KafkaSource) -> DataFrame:
    """The records of the parts that ``lines`` (value STRING) name."""
    from tidegate.sources.readers.kafka_worker import RangesReader

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
    """Parse the values of records of ``spec`` into columns."""
    return Form("raw", "value BINARY") if spec.format == "raw" else form_of_texts(spec)
