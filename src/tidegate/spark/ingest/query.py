"""From a pipeline's parsed sources to the rows that are staged, and every check that Spark's analysis allows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.extras import check_extra
from tidegate.quality.row_rules import RowRule, row_rules
from tidegate.quality.suite import SuiteSpec, check_columns, load_suite
from tidegate.spark import errors
from tidegate.spark.catalyst.carry import PROVENANCE
from tidegate.spark.catalyst.fingerprint import describe_columns, describe_state
from tidegate.spark.catalyst.operations import keeps_state, makes_several
from tidegate.spark.catalyst.plans import analysed_plan, nodes_of, read_once
from tidegate.spark.catalyst.state import observe_open
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest import plan
from tidegate.spec.as_read import origin_of
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.faults import SpecError
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec, is_static
from tidegate.spec.project import Project
from tidegate.state.manifest import SPAN
from tidegate.table.schema import check_partition_columns, extend_schema
from tidegate.table.sinks_fit import check_sinks_fit
from tidegate.table.upsert.columns import find_columns

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
    order: IngestOrder,
    parsed: Mapping[str, DataFrame],
) -> PreparedQuery:
    """The streaming plan over ``parsed``, {source: records with the framework's columns}. Nothing is started or read.

    ``parsed`` has the static sources too. Raises UsageError for a transform that fails, does what a streaming query
    cannot or gives columns that cannot be written, a suite with columns that the rows lack, columns that a sink cannot
    take, and a change that the table of ``order`` does not allow. Of a side job rules look at its partitions alone.
    """
    suite = load_suite(project, spec.name)
    rules = row_rules(suite) if suite is not None else []
    files = {name: len(links) for name, links in order.links.items() if order.days}
    good = {
        name: _good_records(spec, name, frame, files.get(name, 0), with_provenance=bool(rules))
        for name, frame in parsed.items()
    }
    out = plan.transformed_rows(spark, spec, project.paths(spec.name).job, good, order.run_id)
    if suite is not None:  # before its rules become columns: Spark would name neither suite nor rule
        check_columns(suite, {name: kind for name, kind in out.dtypes if name != PROVENANCE})
    has_state = keeps_state(out)
    if has_state:
        _check_row_errors(spec, project.paths(spec.name).job)
        out = observe_open(out)
    flagged = plan.observe_rules(plan.flag_rules(out, rules, order.within), rules, order.days)
    rows = plan.staged_rows(flagged)
    schema_json = plan.nullable_schema_json(rows.schema)
    check_partition_columns(list(spec.table.partition_by), schema_json, order.table_partition_by)
    if spec.output_mode == "update":
        find_columns(spec.table, schema_json)
    if order.table_schema_json is not None:
        extend_schema(order.table_schema_json, schema_json, spec.name)
    if suite is not None and suite.queries:
        _check_queries(suite, schema_json, order.table_schema_json)
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
        keeps_state=has_state,
        out=out,
        partitioned=_describe_partitions(project, spec, out),
    )


def _check_queries(suite: SuiteSpec, schema_json: str, table_schema_json: str | None) -> None:
    """Refuse custom SQL that cannot run on these rows. Raises SpecError, UsageError EXTRA_MISSING."""
    check_extra("duckdb")
    from tidegate.quality.queries import find_column_faults, find_query_faults

    faults = find_query_faults(suite) or find_column_faults(suite, schema_json, table_schema_json)
    if faults:
        raise SpecError(faults, fix=f"correct it, then: tidegate validate {suite.name} --spark")


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


def _good_records(spec: PipelineSpec, name: str, parsed: DataFrame, files: int, *, with_provenance: bool) -> DataFrame:
    source = spec.sources[name]
    if is_static(source):
        return plan.good_records(plan.observe_static(parsed, name), name, with_provenance=False)
    event_time, delay = spec.event_times.get(name), spec.watermarks.get(name)
    if event_time is None or delay is None:
        good = plan.good_records(plan.observe_source(parsed, name, files), name, with_provenance=with_provenance)
        return plan.observe_entered(good, name)
    whole = plan.demand_event_time(parsed, event_time)
    good = plan.good_records(plan.observe_source(whole, name, files), name, with_provenance=True)
    return plan.with_watermark(good, name, event_time, delay)


def _check_row_errors(spec: PipelineSpec, job_folder: Path) -> None:
    """A record cannot be taken out of a state that may have seen it."""
    if spec.on_row_error == "quarantine":
        raise errors.UNSUPPORTED_OPERATION(
            where=str(job_folder / "pipeline.yaml"),
            operation="on_row_error: quarantine",
            mode=spec.output_mode,
            why="the query keeps state (windows, duplicates, joins of streams), from which a record on which the "
            "transform fails cannot be removed",
            fix="remove on_row_error and let the transform give null for such values (try_cast, try_divide: "
            "docs/how-to/your-own-data.md), or convert them in a separate pipeline before this one",
        )


def _check_every_source_used(spec: PipelineSpec, job_folder: Path, out: DataFrame) -> None:
    """A stream that the result does not contain would never be read, and wait forever."""
    top = analysed_plan(out)
    unused = [name for name in spec.streams if not nodes_of(top, f"source:{name}")]
    if unused:
        raise errors.SOURCE_NOT_USED(
            where=str(job_folder / (spec.transform or "pipeline.yaml")), sources=", ".join(unused)
        )


_DATE = re.compile(
    r"\(*to_date\(\(*(?P<made>.*?)\)*(?:\.(?P<part>start|end))?\)*, None, Some\(UTC\), (?:true|false)\)*"
)
_NUMBERS = re.compile(r"- (?P<offset>-?\d+)\) % (?P<slide>\d+)\).* \+ (?P<length>\d+)\), LongType")
_DAY_MICROSECONDS = 86_400_000_000
_ALONE = {"Aggregate", "Deduplicate"}
"""Operators with state whose rows are of records of one event time, or of one window."""


def describe_span(made: Mapping[str, str], operators: Collection[str], spec: PipelineSpec) -> str | None:
    """:data:`tidegate.state.manifest.SPAN` of the columns ``made``, {column: what it is made of}; None where it is
    not known. ``operators`` keep the query's state."""
    if len(spec.streams) != 1 or set(operators) - _ALONE:
        return None
    source = next(iter(spec.streams))
    event_time = spec.event_times.get(source)
    if event_time is None or source not in spec.watermarks:
        return None
    for column, text in made.items():
        found = _DATE.fullmatch(text)
        if found is None:
            continue
        if found["made"] == f"{source}.{event_time}" and found["part"] is None:
            return json.dumps([column, source, 0, 0])
        windows = _windows(found["made"], f"{source}.{event_time}")
        if windows is not None and found["part"] is not None:
            return json.dumps([column, source, *windows.margins(found["part"])])
    return None


@dataclass(frozen=True)
class _Windows:
    """Windows that begin every ``slide``, by ``offset`` after 1970; all in microseconds."""

    offset: int
    slide: int
    length: int

    def margins(self, part: str) -> tuple[int, int]:
        """The milliseconds before and after a day in which records of windows that start, or end, in it can be."""
        is_aligned = _DAY_MICROSECONDS % self.slide == 0
        if part == "start":
            # The last that starts in the day does so by one slide before its end, or less for the offset's sake.
            spared = self.slide - self.offset % self.slide if is_aligned else 0
            return 0, _milliseconds(self.length - spared)
        spared = (self.offset + self.length) % self.slide if is_aligned else 0
        return _milliseconds(self.length - spared), 0


def _milliseconds(microseconds: int) -> int:
    return max(-(-microseconds // 1000), 0)


def _windows(text: str, event_time: str) -> _Windows | None:
    """The windows, tumbling or sliding, in a text."""
    numbers = _NUMBERS.search(text.partition(" | ")[0])
    if numbers is None:
        return None
    found = _Windows(*(int(numbers[name]) for name in ("offset", "slide", "length")))
    spelled = [_window(event_time, found, number) for number in range(-(-found.length // found.slide))]
    return found if text.rstrip(")") == " | ".join(spelled).rstrip(")") else None


def _window(event_time: str, windows: _Windows, number: int) -> str:
    """The window of an event time that began ``number`` slides before its last one, as Spark spells it."""
    slide = windows.slide
    at = f"precisetimestampconversion({event_time}, TimestampType, LongType)"
    past = f"(({at} - {windows.offset}) % {slide})"
    start = (
        f"(({at} - CASE WHEN ({past} < cast(0 as bigint)) THEN ({past} + {slide}) ELSE {past} END) - {number * slide})"
    )
    ends = [
        f"knownnullable(precisetimestampconversion({one}, LongType, TimestampType))"
        for one in (start, f"({start} + {windows.length})")
    ]
    return f"named_struct(start, {ends[0]}, end, {ends[1]})"
