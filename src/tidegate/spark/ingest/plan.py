"""The plan of one micro-batch: parsed records -> counted -> good ones -> transform -> row rules -> rows for the table.

The same functions build the streaming plan and, where more records were quarantined than a metric can carry, the second
look at one batch. Counts come from ``observe`` in the same pass that writes the rows: `numInputRows` and
`numRowsDroppedByWatermark` are not counts of records (both measured on Spark 4.2.0).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidegate.core.hive_names import NULL_NAME
from tidegate.quality.row_rules import RowRule
from tidegate.spark import errors
from tidegate.spark.catalyst.carry import PROVENANCE, carry_column
from tidegate.spark.ingest.apply import TransformContext, apply_transform, find_broken_text
from tidegate.spark.reading.parts import FRAMEWORK_COLUMNS, JSON_OF_ROWS
from tidegate.spec.ddl import quote_column, read_json
from tidegate.spec.models import PipelineSpec
from tidegate.state.files import TEXT_MARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


Within = Mapping[str, Sequence[str]]
"""{partition column: values as folders have them}: partitions of the table."""

REJECTED = f"{PROVENANCE}_rejected"
_RULE = f"{PROVENANCE}_rule_"
"""Flags of a row: whether any row rule rejects it, and each rule by its number. A transform has no such columns."""

CAPTURED_AT_MOST = 4096
"""Quarantined records that travel in the metrics themselves; more than these need a second look at the batch, which
reads it again: a third of a large run."""

SHORT_CHARACTERS = 1024
_LONG_CAPTURED_AT_MOST = 64
_LONG_CHARACTERS = 16384
"""Of records longer than 1,024 characters only 64 travel in the metrics, and none longer than 16,384. So a metric holds
5 Mi characters at most, and each running task another one."""

_PLACES_AT_MOST = 64
_NAMES_AT_MOST = 64
_NAME_CHARACTERS = 256
_KINDS = 4
"""Of records with unknown fields the metrics report some that differ: 64 as they come, and of each of so many groups by
their names the first and the last. A name is cut after 256 characters, and a record reports 64 names."""

_GOOD, _BAD = "good:", "bad:"
_COUNTED_AT_MOST = 100_000
"""Different values that Spark's approx_top_k returns at most."""


def observe_source(parsed: DataFrame, source: str, files: int = 0) -> DataFrame:
    """``parsed`` with counts of records read and malformed, and a sample of the malformed, as metric ``source:<name>``;
    where ``files`` are given, with the counts of each of so many files as well.
    """
    of_file = F.concat(F.when(F.col("_malformed"), F.lit(_BAD)).otherwise(F.lit(_GOOD)), link_name("_position"))
    names = F.transform(F.slice("_unknown", 1, _NAMES_AT_MOST), lambda name: F.left(name, F.lit(_NAME_CHARACTERS)))
    has_unknown = F.coalesce(F.size("_unknown") > 0, F.lit(False))
    place = F.struct(names.alias("_unknown"), F.col("_position"))
    kinds = [F.when(has_unknown & (F.pmod(F.hash("_unknown"), F.lit(_KINDS)) == kind), place) for kind in range(_KINDS)]
    return parsed.observe(
        f"source:{source}",
        F.count(F.lit(1)).alias("read"),
        F.count(F.when(F.col("_malformed"), 1)).alias("malformed"),
        *_captured(F.col("_malformed"), malformed_columns(source)),
        F.count(F.when(has_unknown, 1)).alias("with_unknown"),
        _some(has_unknown, place, _PLACES_AT_MOST).alias("unknown_places"),
        *(F.min(one).alias(f"unknown_first_{kind}") for kind, one in enumerate(kinds)),
        *(F.max(one).alias(f"unknown_last_{kind}") for kind, one in enumerate(kinds)),
        *([_count_by(of_file, 2 * files).alias("by_file")] if 0 < 2 * files <= _COUNTED_AT_MOST else []),
    )


def observe_entered(good: DataFrame, source: str) -> DataFrame:
    """``good`` with the count of records that enter the transform, as metric ``entered:<name>``.

    Without it the balance of what was read could not fail: a plan that loses records between the two would go unseen.
    It is also a barrier: no filter of the transform is pushed below it.
    """
    return good.observe(f"entered:{source}", F.count(F.lit(1)).alias("entered"))


def entered_metric(spec: PipelineSpec, source: str) -> str:
    """The metric with the count of records of ``source`` that enter the transform, and the topmost one below it."""
    return f"time:{source}" if source in spec.watermarks else f"entered:{source}"


def observe_static(parsed: DataFrame, source: str) -> DataFrame:
    """``parsed`` of a static source with its malformed records as metric ``static:<name>``: a batch that saw one fails.

    The metric also keeps the conditions of a join above it, which would pass over a malformed record in silence.
    """
    malformed = F.col("_malformed")
    return parsed.observe(
        f"static:{source}",
        F.count(F.when(malformed, 1)).alias("malformed"),
        F.min(F.when(malformed, F.struct("_position", "_detail", "_raw"))).alias("first"),
    )


def _count_by(value: Column, different: int) -> Column:
    """How often each value occurs, if so many differ at most: then the counts of approx_top_k are exact."""
    return F.call_function("approx_top_k", value, F.lit(different), F.lit(2 * different))


def read_counts(counts: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """{value: its count} of a metric of :func:`_count_by`; rows without a value are not counted."""
    return {str(one["item"]): int(str(one["count"])) for one in counts if one.get("item") is not None}


def count_file(counts: Mapping[str, int], link: str, whole: int) -> tuple[int, int]:
    """How many records of the file behind a link were read, and how many of these are malformed, by the ``counts`` of
    the metric ``by_file``. ``whole`` is 1 for a file in quarantine whole, which counts as one record."""
    good, bad = (counts.get(f"{mark}{link.rpartition('/')[2]}", 0) for mark in (_GOOD, _BAD))
    return good + bad + whole, bad + whole


def link_name(position: str) -> Column:
    """Of the position of a record of a file: the last part of its link's name, which is unique."""
    return F.element_at(F.split(F.substring_index(position, "#", 1), "/"), -1)


def demand_event_time(parsed: DataFrame, event_time: str) -> DataFrame:
    """``parsed`` with records without an event time marked malformed: Spark's windows drop them in silence."""
    missing = F.col(quote_column(event_time)).isNull() & ~F.col("_malformed")
    detail = F.when(missing, F.lit(f"{event_time}, the event time, is empty")).otherwise(F.col("_detail"))
    return parsed.withColumns({"_detail": detail, "_malformed": F.col("_malformed") | missing})


def good_records(parsed: DataFrame, source: str, *, with_provenance: bool) -> DataFrame:
    """The records that enter the transform, with :data:`PROVENANCE` if wanted and no other column of ours."""
    data = [F.col(quote_column(name)) for name in parsed.columns if name not in FRAMEWORK_COLUMNS]
    good = parsed.where(~F.col("_malformed"))
    if with_provenance:
        origin = F.struct(
            F.lit(source).alias("source"), F.col("_position").alias("position"), F.col("_raw").alias("raw")
        )
        data.append(origin.alias(PROVENANCE))
    return good.select(*data)


def with_watermark(good: DataFrame, source: str, event_time: str, delay_seconds: float) -> DataFrame:
    """``good`` under a watermark, with the event times' ends and the count of records as metric ``time:<name>``.

    The metric also keeps filters of the transform above the watermark: rows that they remove move it nevertheless.
    """
    marked = good.withWatermark(event_time, f"{round(delay_seconds * 1000)} milliseconds")
    moment = F.unix_millis(F.col(quote_column(event_time)))
    return marked.observe(
        f"time:{source}",
        F.max(moment).alias("max_ms"),
        F.min(moment).alias("min_ms"),
        F.count(F.lit(1)).alias("entered"),
    )


def transformed_rows(
    spark: SparkSession, spec: PipelineSpec, job_folder: Path, frames: dict[str, DataFrame], run_id: str
) -> DataFrame:
    """The rows that leave the user's transform, checked: possible operations, distinct column names, writable types.

    The transform sees no column of ours; where a row came from is put back below it, where that can be.
    """
    context = TransformContext(pipeline=spec.name, run_id=run_id)
    visible = {name: frame.drop(PROVENANCE) if PROVENANCE in frame.columns else frame for name, frame in frames.items()}
    out = apply_transform(spark, job_folder, spec.transform, visible, context, spec.output_mode)
    where = job_folder / (spec.transform or "pipeline.yaml")
    ours = [name for name in out.columns if name.lower().startswith(PROVENANCE)]
    out = out if ours else carry_column(out, PROVENANCE)
    names = [name.lower() for name in out.columns if name != PROVENANCE]
    twice = sorted({name for name in names if names.count(name) > 1})
    void = [field.name for field in out.schema.fields if field.dataType.typeName() == "void"]
    named = (*spec.table.partition_by, *spec.table.keys, *spec.table.ordering)
    missing = [column for column in dict.fromkeys(named) if column.lower() not in names]
    columns = ", ".join(out.columns)
    checks = (
        ("have two columns with one name", twice, "rename one of them"),
        (
            "have columns whose names tidegate reserves for its own",
            ours,
            f"rename them: their names must not begin with {PROVENANCE}",
        ),
        ("have columns without a type", void, "cast them, e.g. lit(None).cast('string')"),
        (
            "lack columns that partition_by, keys or order_by name",
            missing,
            "add them in the transform, or correct `table:`",
        ),
    )
    for fault, refused, fix in checks:
        if refused:
            rows = f"the transform's rows {fault}: {', '.join(refused)} (columns: {columns})"
            raise errors.TRANSFORM_FAILED(where=str(where), fault=rows, fix=fix, pipeline=spec.name)
    return _refuse_broken_text(out) if any(_holds_bytes(frame.schema) for frame in visible.values()) else out


def _holds_bytes(schema: StructType) -> bool:
    return any(node.kind == "binary" for node in read_json(schema.jsonValue()).walk())


def _refuse_broken_text(out: DataFrame) -> DataFrame:
    """``out``, failing at a text that is not UTF-8: Spark casts bytes to one, and writes it, without a look at them."""
    columns = []
    for name, node in read_json(out.schema.jsonValue()).fields:
        value = quote_column(name)
        broken = None if name == PROVENANCE else find_broken_text(node, value, name)
        checked = value if broken is None else f"CASE WHEN {broken} IS NULL THEN {value} ELSE raise_error({broken}) END"
        columns.append(F.expr(checked).alias(name))
    return out.select(*columns)


def flag_rules(out: DataFrame, rules: Sequence[RowRule], within: Within | None = None) -> DataFrame:
    """``out`` with a boolean column per rule (true: the row offends) and one for all of them.

    Rows outside of ``within`` offend none: they are those of partitions that this job does not rebuild.
    """
    counts = _is_within(within)
    flags = [
        (F.coalesce(F.expr(rule.sql), F.lit(False)) & counts).alias(f"{_RULE}{number}")
        for number, rule in enumerate(rules)
    ]
    # One text, which Spark parses to a balanced tree: a chain of `|` is as deep as there are rules.
    rejected = " OR ".join(["false", *(f"{_RULE}{number}" for number in range(len(rules)))])
    return out.select("*", *flags).withColumn(REJECTED, F.expr(rejected))


def _is_within(within: Within | None) -> Column:
    """Return whether a row belongs to one of the partitions; a null belongs to none."""
    is_in = F.lit(True)
    for column, values in (within or {}).items():
        is_in = is_in & F.col(quote_column(column)).cast("string").isin(list(values))
    return F.coalesce(is_in, F.lit(False))


def observe_rules(flagged: DataFrame, rules: Sequence[RowRule], days: Sequence[Within] = ()) -> DataFrame:
    """``flagged`` with counts of rows, rejected rows and offences per rule, as metric ``rules``; and of rejected rows
    per day, where a side job has several ``days``."""
    day = [F.when(F.col(REJECTED), F.col(quote_column(name)).cast("string")) for one in days[:1] for name in one]
    return flagged.observe(
        "rules",
        F.count(F.lit(1)).alias("transformed"),
        F.count(F.when(F.col(REJECTED), 1)).alias("rejected"),
        *(F.count(F.when(F.col(f"{_RULE}{number}"), 1)).alias(f"rule_{number}") for number in range(len(rules))),
        *_captured(F.col(REJECTED), _rejected_columns(flagged, rules)),
        *(_count_by(one, len(days) + 1).alias("by_day") for one in day),  # one more, for null
    )


def rejected_rows(flagged: DataFrame, rules: Sequence[RowRule]) -> DataFrame:
    """The rejected rows as records for quarantine, with positions as the readers gave them."""
    return flagged.where(F.col(REJECTED)).select(*_rejected_columns(flagged, rules))


def without_flags(flagged: DataFrame) -> list[str]:
    """The names of the transform's own columns among those of ``flagged``."""
    return [name for name in flagged.columns if not name.startswith(PROVENANCE)]


def staged_rows(flagged: DataFrame) -> DataFrame:
    """The rows for the table: no rule rejected them."""
    columns = [F.col(quote_column(name)) for name in without_flags(flagged)]
    return flagged.where(~F.col(REJECTED)).select(*columns)


def nullable_schema_json(schema: StructType) -> str:
    """The schema as Delta's schema string, every column nullable: a table outlives one transform's guarantees."""
    value = json.loads(schema.json())

    def relax(node: object) -> None:
        if isinstance(node, dict):
            for key in ("nullable", "containsNull", "valueContainsNull"):
                if key in node:
                    node[key] = True
            for child in node.values():
                relax(child)
        elif isinstance(node, list):
            for child in node:
                relax(child)

    relax(value)
    return json.dumps(value, separators=(",", ":"))


def malformed_columns(source: str) -> list[Column]:
    """A parsed record of ``source`` as a malformed one (:class:`tidegate.table.quarantined.CapturedRecord`)."""
    return _quarantine_columns(
        F.lit(source), F.col("_position"), F.col("_raw"), reason=F.lit("malformed"), detail=F.col("_detail")
    )


def _rejected_columns(flagged: DataFrame, rules: Sequence[RowRule]) -> list[Column]:
    broken = F.array_compact(
        F.array(*(F.when(F.col(f"{_RULE}{number}"), F.lit(rule.rule)) for number, rule in enumerate(rules)))
    )
    if PROVENANCE in flagged.columns:
        origin = [F.col(PROVENANCE)[name] for name in ("source", "position", "raw")]
    else:
        own = [F.col(quote_column(name)) for name in without_flags(flagged)]
        unknown = F.lit(None).cast("string")
        origin = [unknown, unknown, F.to_json(F.struct(*own), JSON_OF_ROWS)]
    detail = F.concat(F.lit("breaks "), F.array_join(broken, ", "))
    return _quarantine_columns(*origin, reason=F.get(broken, F.lit(0)), detail=detail)


def _quarantine_columns(
    source: Column, position: Column, raw: Column, *, reason: Column, detail: Column
) -> list[Column]:
    values = {"source": source, "position": position, "raw": raw, "reason": reason, "detail": detail}
    return [value.alias(name) for name, value in values.items()]


def _captured(condition: Column, columns: Sequence[Column]) -> list[Column]:
    """The records that meet ``condition``, as far as their number and length allow: short ones and long ones."""
    record = F.struct(*columns)
    length = F.coalesce(F.length(record["raw"]), F.lit(0))
    is_long = (length > SHORT_CHARACTERS) & (length <= _LONG_CHARACTERS)
    return [
        _some(condition & (length <= SHORT_CHARACTERS), record, CAPTURED_AT_MOST).alias("captured"),
        _some(condition & is_long, record, _LONG_CAPTURED_AT_MOST).alias("captured_long"),
    ]


def _some(condition: Column, record: Column, at_most: int) -> Column:
    """Up to ``at_most`` of the records that meet ``condition``: max_by with a count is the one bounded collector."""
    return F.call_function("max_by", F.when(condition, record), F.when(condition, F.lit(1)), F.lit(at_most))


def mark_texts(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """``frame`` with a mark behind texts that begin like the name of NULL's folder, to be written by Spark.

    :func:`tidegate.state.files.partition_value` takes it away, and so does :func:`unmark_texts`.
    """
    return _change(frame, partition_by, lambda text: F.concat(text, F.lit(TEXT_MARK)))


def unmark_texts(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Rows as they were before :func:`mark_texts`, read by Spark from folders of such names."""
    return _change(frame, partition_by, lambda text: F.substring(text, 1, F.length(text) - len(TEXT_MARK)))


def _change(frame: DataFrame, partition_by: Sequence[str], change: Callable[[Column], Column]) -> DataFrame:
    wanted = {name.lower() for name in partition_by}
    changed = {}
    for one in frame.schema:
        if one.name.lower() in wanted and isinstance(one.dataType, StringType):
            text = F.col(quote_column(one.name))
            changed[one.name] = F.when(text.startswith(NULL_NAME), change(text)).otherwise(text)
    return frame.withColumns(changed) if changed else frame
