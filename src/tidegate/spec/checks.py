"""Checks across the keys of a pipeline: what each key alone cannot tell."""

from __future__ import annotations

import re
from collections import Counter
from keyword import iskeyword

from tidegate.spec.cron import describe_unusable_schedule
from tidegate.spec.faults import name_nearest, show_value
from tidegate.spec.findings import Finding
from tidegate.spec.models import PipelineSpec
from tidegate.spec.sink_checks import check_sinks
from tidegate.spec.source_checks import check_source, list_columns
from tidegate.spec.spark_conf import check_spark_conf

_TRANSFORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(py|sql)")
_RESERVED_SOURCES = {"context": "it is the name of the transform's extra argument"}


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
    found += _check_tags(spec)
    found += _check_table(spec)
    found += check_sinks(spec)
    found += check_spark_conf(("spark", "conf"), spec.spark.conf)
    return found


def _check_tags(spec: PipelineSpec) -> list[Finding]:
    return [
        Finding(("tags", index), f"{show_value(tag)} cannot be a tag in Airflow", "use 1 to 100 characters")
        for index, tag in enumerate(spec.tags)
        if not 1 <= len(tag) <= 100
    ]


def _check_table(spec: PipelineSpec) -> list[Finding]:
    here = ("table", "partition_by")
    names = spec.table.partition_by
    found = [
        Finding(here, f"{show_value(name)} is named more than once", "name each column once")
        for name, count in Counter(names).items()
        if count > 1
    ]
    if any(not name.strip() for name in names):
        found.append(Finding(here, "a column has no name", "remove it"))
    if spec.table.keys and spec.output_mode != "update":
        message = f"keys are for output_mode: update, and this is {spec.output_mode}"
        found.append(Finding(("table", "keys"), message, "remove it"))
    if spec.transform is not None or len(spec.sources) != 1:
        return found
    columns = list_columns(next(iter(spec.sources.values())))
    if columns is None:
        return found
    kinds = {column.name: column.type for column in columns}
    for name in names:
        if name not in kinds:
            nearest = name_nearest(name, kinds)
            fix = f"write {nearest}" if nearest else f"the columns are: {', '.join(kinds)}"
            found.append(Finding(here, f"there is no column {show_value(name)}", fix))
        elif kinds[name].startswith(("array<", "map<", "struct<", "binary")):
            message = f"the column {name} is {kinds[name]}: no folder can be named after its values"
            found.append(Finding(here, message, "partition by a date, a number or a text"))
    if names and set(kinds) <= set(names):
        found.append(Finding(here, "every column is named, so none is left for the files", "name fewer columns"))
    return found
