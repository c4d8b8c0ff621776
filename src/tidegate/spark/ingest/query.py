"""From a pipeline's parsed sources to the rows that are staged, and every check that Spark's analysis allows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.quality.row_rules import RowRule, row_rules
from tidegate.quality.suite import SuiteSpec, check_columns, load_suite
from tidegate.spark import errors
from tidegate.spark.catalyst.carry import PROVENANCE
from tidegate.spark.catalyst.fingerprint import describe_columns, describe_state
from tidegate.spark.catalyst.operations import keeps_state, makes_several
from tidegate.spark.catalyst.plans import analysed_plan, nodes_of, read_once
from tidegate.spark.catalyst.state import observe_open
from tidegate.spark.ingest import plan
from tidegate.spark.ingest.plan import Within
from tidegate.spark.ingest.spans import describe_span
from tidegate.spec.as_read import origin_of
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec, is_static
from tidegate.spec.project import Project
from tidegate.state.manifest import SPAN
from tidegate.table.schema import check_partition_columns, check_schema_change
from tidegate.table.sinks_fit import check_sinks_fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PreparedQuery:
    """``rows`` are those for the table; of a query with state and rules they are all rows, with what the rules say of
    each. ``schema_json`` is the schema of those for the table, as its log keeps it."""

    rows: DataFrame
    suite: SuiteSpec | None
    rules: Sequence[RowRule]
    schema_json: str
    keeps_provenance: bool
    """Whether a rejected row is kept as it came, with its position; else as it left the transform."""
    keeps_state: bool
    """Whether batches depend on earlier ones, so that a batch that is run again must be computed again."""
    out: DataFrame
    """The rows as they leave the transform."""
    partitioned: dict[str, str]
    """The rule for a row's partition (:attr:`tidegate.state.manifest.BatchManifest.partitioned`)."""


def prepare_query(
    spark: SparkSession,
    project: Project,
    spec: PipelineSpec,
    parsed: Mapping[str, DataFrame],
    run_id: str,
    table_schema_json: str | None,
    table_partition_by: list[str] | None,
    *,
    within: Within | None = None,
) -> PreparedQuery:
    """The streaming plan over ``parsed``, {source: records with the framework's columns}. Nothing is started or read.

    ``parsed`` has the static sources too. Raises UsageError for a transform that fails, does what a streaming query
    cannot or gives columns that cannot be written, a suite with columns that the rows lack, columns that a sink cannot
    take, and a change that the table does not allow (its schema and partition columns; None: there is no table).
    ``within`` are the partitions of a side job: rules look at their rows alone.
    """
    from tidegate.table.upsert.keys import check_keys

    suite = load_suite(project, spec.name)
    rules = row_rules(suite) if suite is not None else []
    good = {name: _good_records(spec, name, frame, with_provenance=bool(rules)) for name, frame in parsed.items()}
    out = plan.transformed_rows(spark, spec, project.paths(spec.name).job, good, run_id)
    if suite is not None:  # before its rules become columns: Spark would name neither suite nor rule
        check_columns(suite, {name: kind for name, kind in out.dtypes if name != PROVENANCE})
    has_state = keeps_state(out)
    if has_state:
        _check_row_errors(spec, project.paths(spec.name).job)
        out = observe_open(out)
    flagged = plan.observe_rules(plan.flag_rules(out, rules, within), rules)
    rows = plan.staged_rows(flagged)
    schema_json = plan.nullable_schema_json(rows.schema)
    check_partition_columns(list(spec.table.partition_by), schema_json, table_partition_by)
    if spec.output_mode == "update":
        check_keys(spec.table.keys, schema_json)
    if table_schema_json is not None:
        check_schema_change(table_schema_json, schema_json)
    check_sinks_fit(spec, schema_json)
    _check_every_source_used(spec, project.paths(spec.name).job, out)
    staged = flagged if has_state and rules else rows
    for name in spec.streams:
        staged = read_once(staged, plan.entered_metric(spec, name))
    return PreparedQuery(
        rows=staged,
        suite=suite,
        rules=rules,
        schema_json=schema_json,
        keeps_provenance=PROVENANCE in out.columns or not rules,
        keeps_state=has_state,
        out=out,
        partitioned=_describe_partitions(project, spec, out),
    )


def _describe_partitions(project: Project, spec: PipelineSpec, out: DataFrame) -> dict[str, str]:
    """The rule for the partition of a row. Two runs with one rule give a record's rows to the same partitions, even if
    the rest of the transform was changed."""
    columns = spec.table.partition_by
    if not columns:
        return {}
    made = describe_columns(out, columns)
    several = {"several": "yes"} if makes_several(out) else {}
    if len(made) < len(columns) or any(f"{name}." in text for name in spec.statics for text in made.values()):
        return several
    streams = {name: origin_of(source) for name, source in spec.streams.items()}  # a replay's texts are read as theirs
    parsed = {name: _describe_values(name, one, made.values()) for name, one in streams.items() if one is not None}
    conf = {**project.spec.spark.conf, **spec.spark.conf}
    rule = json.dumps([made, parsed, conf], sort_keys=True, default=str)
    own = {column: text for column, text in made.items() if text in {f"{name}.{column}" for name in spec.streams}}
    kept = [one["operator"] for one in describe_state(out)]
    span = describe_span(made, kept, spec) if kept else None
    return {
        **several,
        **own,
        **({} if span is None else {SPAN: span}),
        "rule": hashlib.sha256(rule.encode("utf-8", "surrogatepass")).hexdigest(),
    }


def _describe_values(name: str, source: FilesSource | KafkaSource, texts: Collection[str]) -> list[object]:
    """The settings that decide a record's values in the columns that these texts name; where columns go by position,
    the whole schema."""
    schema = source.schema or ""
    if source.format != "csv":
        columns = parse_ddl(schema) if schema else []
        schema = ", ".join(f"{one.name} {one.type}" for one in columns if any(f"{name}.{one.name}" in t for t in texts))
    return [source.format, schema, source.options, source.values]


def _good_records(spec: PipelineSpec, name: str, parsed: DataFrame, *, with_provenance: bool) -> DataFrame:
    source = spec.sources[name]
    if is_static(source):
        return plan.good_records(plan.observe_static(parsed, name), name, with_provenance=False)
    event_time, delay = spec.event_times.get(name), spec.watermarks.get(name)
    if event_time is None or delay is None:
        good = plan.good_records(plan.observe_source(parsed, name), name, with_provenance=with_provenance)
        return plan.observe_entered(good, name)
    whole = plan.demand_event_time(parsed, event_time)
    good = plan.good_records(plan.observe_source(whole, name), name, with_provenance=True)
    return plan.with_watermark(good, name, event_time, delay)


def _check_row_errors(spec: PipelineSpec, job_folder: Path) -> None:
    """A record cannot be taken out of a state that may have seen it."""
    if spec.on_row_error == "quarantine":
        raise errors.ROW_ERRORS_WITH_STATE(where=str(job_folder / "pipeline.yaml"))


def _check_every_source_used(spec: PipelineSpec, job_folder: Path, out: DataFrame) -> None:
    """A stream that the result does not contain would never be read, and wait forever."""
    top = analysed_plan(out)
    unused = [name for name in spec.streams if not nodes_of(top, f"source:{name}")]
    if unused:
        raise errors.SOURCE_NOT_USED(
            where=str(job_folder / (spec.transform or "pipeline.yaml")), sources=", ".join(unused)
        )
