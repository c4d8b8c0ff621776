"""Checks across the keys of a pipeline: what each key alone cannot tell."""

from __future__ import annotations

import re
from collections import Counter
from keyword import iskeyword

from tidegate.spec.alert_checks import check_alerts
from tidegate.spec.cron import describe_unusable_schedule
from tidegate.spec.ddl import PARTITION_TYPES, is_infer
from tidegate.spec.faults import name_nearest, show_value
from tidegate.spec.findings import Finding
from tidegate.spec.maintenance_checks import check_maintenance
from tidegate.spec.models import PipelineSpec
from tidegate.spec.sink_checks import check_sinks
from tidegate.spec.source_checks import check_source, list_columns
from tidegate.spec.spark_conf import check_spark_conf

_TRANSFORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(py|sql)")
_RESERVED_SOURCES = {"context": "it is the name of the transform's extra argument"}
_NESTED = ("array<", "map<", "struct<")
"""How the names of nested types begin."""


def check_pipeline(spec: PipelineSpec) -> list[Finding]:
    """Everything wrong with ``spec`` that no single key shows."""
    found: list[Finding] = []
    if spec.schedule is not None and (reason := describe_unusable_schedule(spec.schedule)):
        fix = 'write five fields, "*/10 * * * *", or null for manual runs only'
        found.append(Finding(("schedule",), f"{show_value(spec.schedule)} is not a cron schedule: {reason}", fix))
    for name, source in spec.sources.items():
        if name in _RESERVED_SOURCES or iskeyword(name):
            reason = _RESERVED_SOURCES.get(name, "Python cannot have it as the name of an argument")
            found.append(Finding(("sources", name), f"a source cannot be named {name!r}: {reason}", "rename it"))
        found += check_source(name, source, spec)
    if spec.transform is not None and not _TRANSFORM.fullmatch(spec.transform):
        message = f"{show_value(spec.transform)} is not a file in the folder of the pipeline"
        found.append(Finding(("transform",), message, "write transform.py or transform.sql"))
    found += _check_streams(spec)
    found += _check_tags(spec)
    found += _check_table(spec)
    found += check_maintenance(spec)
    found += check_alerts(spec.alerts)
    if spec.quality.on_critical == "continue" and spec.output_mode != "append":
        message = (
            f"later increments cannot pass a held one in output_mode: {spec.output_mode}: rows replace those of the "
            "increments before, so the order counts"
        )
        found.append(Finding(("quality", "on_critical"), message, "write hold, which is the default"))
    found += check_sinks(spec)
    found += check_spark_conf(("spark", "conf"), spec.spark.conf)
    return found


def _check_streams(spec: PipelineSpec) -> list[Finding]:
    found: list[Finding] = []
    if not spec.streams:
        found.append(Finding(("sources",), "every source is static, so nothing is ever new", "add one that streams"))
    if len(spec.sources) > 1 and spec.transform is None:
        message = f"{len(spec.sources)} sources and no transform that says how they come together"
        found.append(Finding(("sources",), message, "add `transform: transform.py`, or keep one source"))
    for name, source in spec.statics.items():
        if is_infer(source.schema):
            message = "the columns of a static source are not inferred: its files change from run to run"
            found.append(Finding(("sources", name, "schema"), message, "write the columns: schema: id BIGINT"))
        if source.watermark is not None:
            here = ("sources", name, "watermark")
            found.append(Finding(here, "a static source has no watermark: it is read whole in each run", "remove it"))
    if spec.close_windows is not None and not spec.watermarks:
        message = "close_windows moves a watermark, and no source has one"
        found.append(Finding(("close_windows",), message, "give a source `event_time` and `watermark`, or remove it"))
    if spec.watermark_policy == "max" and len(spec.watermarks) < 2:
        message = "watermark_policy chooses between watermarks, and there are not two"
        found.append(Finding(("watermark_policy",), message, "remove it"))
    return found


def _check_tags(spec: PipelineSpec) -> list[Finding]:
    return [
        Finding(("tags", index), f"{show_value(tag)} cannot be a tag in Airflow", "use 1 to 100 characters")
        for index, tag in enumerate(spec.tags)
        if not 1 <= len(tag) <= 100
    ]


def _check_table(spec: PipelineSpec) -> list[Finding]:
    found = _check_names(("table", "partition_by"), spec.table.partition_by)
    found += _check_names(("table", "keys"), spec.table.keys)
    found += _check_cluster_by(spec)
    if spec.table.keys and spec.output_mode != "update":
        message = f"keys are for output_mode: update, and this is {spec.output_mode}"
        found.append(Finding(("table", "keys"), message, "remove it"))
    if spec.output_mode == "update" and not spec.table.keys:
        message = "keys are needed: output_mode: update replaces the rows that have the keys of a new one"
        found.append(Finding(("table", "keys"), message, "write the columns that tell the rows apart: keys: [id]"))
    if spec.transform is not None or len(spec.sources) != 1:
        return found
    columns = list_columns(next(iter(spec.sources.values())))
    if columns is None:
        return found
    kinds = {column.name: column.type for column in columns}
    found += _check_partition_columns(spec.table.partition_by, kinds) + _check_keys(spec.table.keys, kinds)
    return found + _check_sortable(spec.table.cluster_by, kinds)


def _check_cluster_by(spec: PipelineSpec) -> list[Finding]:
    here = ("table", "cluster_by")
    folders = {name.lower() for name in spec.table.partition_by}
    return _check_names(here, spec.table.cluster_by) + [
        Finding(here, f"the column {name} is in partition_by: all rows of a file have the same value", "remove it")
        for name in spec.table.cluster_by
        if name.lower() in folders
    ]


def _check_sortable(names: list[str], kinds: dict[str, str]) -> list[Finding]:
    why, fix = "such values have no order", "name a column of a plain type"
    return _check_types(("table", "cluster_by"), names, kinds, _NESTED, why, fix)


def _check_types(
    here: tuple[str, ...], names: list[str], kinds: dict[str, str], refused: tuple[str, ...], why: str, fix: str
) -> list[Finding]:
    """Whether there are columns of these names, in whatever case, and none is of a type that begins as ``refused``."""
    spelt = {column.lower(): column for column in kinds}
    found = []
    for name in names:
        column = spelt.get(name.lower())
        if column is None:
            found.append(_no_such_column(here, name, kinds))
        elif kinds[column].startswith(refused):
            found.append(Finding(here, f"the column {name} is {kinds[column]}: {why}", fix))
    return found


def _check_names(here: tuple[str, ...], names: list[str]) -> list[Finding]:
    found = [
        Finding(here, f"{show_value(name)} is named more than once", "name each column once")
        for name, count in Counter(name.lower() for name in names).items()
        if count > 1
    ]
    if any(not name.strip() for name in names):
        found.append(Finding(here, "a column has no name", "remove it"))
    return found


def _check_partition_columns(names: list[str], kinds: dict[str, str]) -> list[Finding]:
    here = ("table", "partition_by")
    found = []
    for name in names:
        if name not in kinds:
            found.append(_no_such_column(here, name, kinds))
        elif kinds[name] not in PARTITION_TYPES:
            message = f"the column {name} is {kinds[name].upper()}: readers disagree on such values in folder names"
            found.append(Finding(here, message, f"partition by a column of {', '.join(PARTITION_TYPES).upper()}"))
    if names and set(kinds) <= set(names):
        found.append(Finding(here, "every column is named, so none is left for the files", "name fewer columns"))
    return found


def _check_keys(names: list[str], kinds: dict[str, str]) -> list[Finding]:
    why = "values of this type cannot be compared reliably"
    fix = "name a text, a whole number, a date or a time, or cast the column"
    return _check_types(("table", "keys"), names, kinds, (*_NESTED, "float", "double"), why, fix)


def _no_such_column(here: tuple[str, ...], name: str, kinds: dict[str, str]) -> Finding:
    nearest = name_nearest(name, kinds)
    fix = f"write {nearest}" if nearest else f"the columns are: {', '.join(kinds)}"
    return Finding(here, f"there is no column {show_value(name)}", fix)
