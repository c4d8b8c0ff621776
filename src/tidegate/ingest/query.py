"""From a pipeline's parsed sources to the rows that are staged, and every check that Spark's analysis allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.audit.row_rules import RowRule, row_rules
from tidegate.audit.suite import SuiteSpec, check_columns, load_suite
from tidegate.ingest import plan
from tidegate.project import Project
from tidegate.spec.models import PipelineSpec
from tidegate.table.schema import check_partition_columns, check_schema_change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PreparedQuery:
    """``rows`` are those for the table; ``schema_json`` is their schema as the table's log keeps it."""

    rows: DataFrame
    suite: SuiteSpec | None
    rules: Sequence[RowRule]
    schema_json: str
    keeps_provenance: bool
    """Whether a rejected row is kept as it came, with its position; else as it left the transform."""


def prepare_query(
    spark: SparkSession,
    project: Project,
    spec: PipelineSpec,
    parsed: Mapping[str, DataFrame],
    run_id: str,
    table_schema_json: str | None,
    table_partition_by: list[str] | None,
) -> PreparedQuery:
    """The streaming plan over ``parsed``, {source: records with the framework's columns}. Nothing is started or read.

    Raises UsageError for a transform that fails, keeps state or gives columns that cannot be written, a suite with
    columns that the rows lack, and a change that the table does not allow (its schema and partition columns; None:
    there is no table).
    """
    suite = load_suite(project, spec.name)
    rules = row_rules(suite) if suite is not None else []
    good = {
        name: plan.good_records(plan.observe_source(frame, name), name, with_provenance=bool(rules))
        for name, frame in parsed.items()
    }
    out = plan.transformed_rows(spark, spec, project.paths(spec.name).job, good, run_id)
    rows = plan.staged_rows(plan.observe_rules(plan.flag_rules(out, rules), rules))
    if suite is not None:
        check_columns(suite, dict(rows.dtypes))
    schema_json = plan.nullable_schema_json(rows.schema)
    check_partition_columns(list(spec.table.partition_by), schema_json, table_partition_by)
    if table_schema_json is not None:
        check_schema_change(table_schema_json, schema_json)
    return PreparedQuery(rows, suite, rules, schema_json, plan.PROVENANCE in out.columns or not rules)
