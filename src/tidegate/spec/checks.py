"""Checks across the keys of a pipeline, and of the parts that projects have as well."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from keyword import iskeyword

from tidegate.spec.cron import describe_unusable_schedule
from tidegate.spec.ddl import PARTITION_TYPES, is_infer
from tidegate.spec.document import Finding, KeyPath
from tidegate.spec.faults import show_value, sounds_secret
from tidegate.spec.models import AlertsSpec, MaintenanceSpec, PipelineSpec
from tidegate.spec.sink_checks import check_sinks
from tidegate.spec.source_checks import check_source, find_row_types, no_such_column
from tidegate.spec.spark_settings import check_spark_conf, is_local

COMPACT_BELOW_AT_MOST = 1 << 30
SHORTEST_BEHIND_SECONDS = 60.0
_TRANSFORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(py|sql)")
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_RESERVED_SOURCES = {"context": "it is the name of the transform's extra argument"}
_NESTED = ("array<", "map<", "struct<")
"""How the names of nested types begin."""


def check_pipeline(spec: PipelineSpec) -> list[Finding]:
    """Everything wrong with ``spec`` that no single key shows."""
    return [
        *_check_schedule(("schedule",), spec.schedule, '"*/10 * * * *", or null for manual runs only'),
        *_check_sources(spec),
        *_check_streams(spec),
        *_check_table(spec),
        *check_settings(spec.maintenance),
        *_check_maintenance(spec),
        *check_alerts(spec.alerts),
        *check_sinks(spec),
        *check_spark_conf(("spark", "conf"), spec.spark.conf),
        *_check_master(("spark", "master"), spec.spark.master),
    ]


def _check_master(here: KeyPath, master: str | None) -> Iterator[Finding]:
    """Refuse a cluster of a pipeline's own: a test of the pipeline would start there too."""
    if master is not None and not is_local(master):
        message = f"{show_value(master)} is not a local master; the cluster is that of tidegate.yaml or the connection"
        yield Finding(here, message, 'write "local[*]", or leave the line out')


def _check_schedule(here: KeyPath, schedule: str | None, example: str) -> Iterator[Finding]:
    if schedule is not None and (reason := describe_unusable_schedule(schedule)):
        fix = f"write five fields or a preset such as @hourly: {example}"
        yield Finding(here, f"{show_value(schedule)} is not a cron schedule: {reason}", fix)


def _check_sources(spec: PipelineSpec) -> Iterator[Finding]:
    for name, source in spec.sources.items():
        if name in _RESERVED_SOURCES or iskeyword(name):
            reason = _RESERVED_SOURCES.get(name, "Python cannot have it as the name of an argument")
            yield Finding(("sources", name), f"a source cannot be named {name!r}: {reason}", "rename it")
        yield from check_source(name, source, spec)


def _check_streams(spec: PipelineSpec) -> Iterator[Finding]:
    if spec.transform is not None and not _TRANSFORM.fullmatch(spec.transform):
        message = f"{show_value(spec.transform)} is not a file in the folder of the pipeline"
        yield Finding(("transform",), message, "write transform.py or transform.sql")
    if not spec.streams:
        yield Finding(("sources",), "every source is static, so nothing is ever new", "add one that streams")
    if len(spec.sources) > 1 and spec.transform is None:
        message = f"{len(spec.sources)} sources and no transform that says how they come together"
        yield Finding(("sources",), message, "add `transform: transform.py`, or keep one source")
    for name, source in spec.statics.items():
        if is_infer(source.schema):
            message = "the columns of a static source are not inferred: its files change from run to run"
            yield Finding(("sources", name, "schema"), message, "write the columns: schema: id BIGINT")
        if source.watermark is not None:
            message = "a static source has no watermark: it is read whole in each run"
            yield Finding(("sources", name, "watermark"), message, "remove it")
    if spec.close_windows is not None and not spec.watermarks:
        message = "close_windows moves a watermark, and no source has one"
        yield Finding(("close_windows",), message, "give a source `event_time` and `watermark`, or remove it")
    if spec.watermark_policy == "max" and len(spec.watermarks) < 2:
        message = "watermark_policy chooses between watermarks, and there are not two"
        yield Finding(("watermark_policy",), message, "remove it")
    for index, tag in enumerate(spec.tags):
        if not 1 <= len(tag) <= 100:
            yield Finding(("tags", index), f"{show_value(tag)} cannot be a tag in Airflow", "use 1 to 100 characters")
    if spec.quality.on_critical == "continue" and spec.output_mode != "append":
        message = (
            f"later increments cannot pass a held one in output_mode: {spec.output_mode}: rows replace those of the "
            "increments before, so the order counts"
        )
        yield Finding(("quality", "on_critical"), message, "write hold, which is the default")


def _check_table(spec: PipelineSpec) -> Iterator[Finding]:
    table = spec.table
    folders = {name.lower() for name in table.partition_by}
    for key, names in (("partition_by", table.partition_by), ("keys", table.keys), ("cluster_by", table.cluster_by)):
        yield from _check_names(("table", key), names)
    for name in table.cluster_by:
        if name.lower() in folders:
            message = f"the column {name} is in partition_by: all rows of a file have the same value"
            yield Finding(("table", "cluster_by"), message, "remove it")
    if table.keys and spec.output_mode != "update":
        message = f"keys are for output_mode: update, and this is {spec.output_mode}"
        yield Finding(("table", "keys"), message, "remove it")
    if spec.output_mode == "update" and not table.keys:
        message = "keys are needed: output_mode: update replaces the rows that have the keys of a new one"
        yield Finding(("table", "keys"), message, "write the columns that tell the rows apart: keys: [id]")
    yield from _check_order(spec)
    types = find_row_types(spec)
    if types is None:
        return
    yield from _check_partition_columns(table.partition_by, types)
    why = "values of this type cannot be compared reliably"
    fix = "name a text, a whole number, a date or a time, or cast the column"
    yield from _check_types("keys", table.keys, types, (*_NESTED, "float", "double"), (why, fix))
    why, fix = "such values have no order", "name a column of a plain type"
    yield from _check_types("cluster_by", table.cluster_by, types, _NESTED, (why, fix))
    yield from _check_types("order_by", table.ordering, types, _NESTED, (why, fix))


def _check_order(spec: PipelineSpec) -> Iterator[Finding]:
    here, names, keys = ("table", "order_by"), spec.table.ordering, {name.lower() for name in spec.table.keys}
    yield from _check_names(here, names)
    if names and spec.output_mode != "update":
        message = f"order_by is for output_mode: update, and this is {spec.output_mode}"
        fix = "remove it, or write output_mode: update" + ("" if keys else " and table.keys")
        yield Finding(here, message, fix)
    for name in names:
        if name.lower() in keys:
            message = f"the column {name} is in keys: rows that replace each other have the same value in it"
            yield Finding(here, message, "name the column that tells which of several changes is newer")


def _check_names(here: KeyPath, names: list[str]) -> Iterator[Finding]:
    for name, count in Counter(name.lower() for name in names).items():
        if count > 1:
            yield Finding(here, f"{show_value(name)} is named more than once", "name each column once")
    if any(not name.strip() for name in names):
        yield Finding(here, "a column has no name", "remove it")


def _check_partition_columns(names: list[str], types: dict[str, str]) -> Iterator[Finding]:
    here = ("table", "partition_by")
    for name in names:
        if name not in types:
            yield no_such_column(here, name, types)
        elif types[name] not in PARTITION_TYPES:
            message = f"the column {name} is {types[name].upper()}: readers disagree on such values in folder names"
            yield Finding(here, message, f"partition by a column of {', '.join(PARTITION_TYPES).upper()}")
    if names and set(types) <= set(names):
        yield Finding(here, "every column is named, so none is left for the files", "name fewer columns")


def _check_types(
    key: str, names: list[str], types: dict[str, str], refused: tuple[str, ...], texts: tuple[str, str]
) -> Iterator[Finding]:
    """Find names without a column, in whatever case, and columns of a type that begins as ``refused``, for which
    ``texts`` say why and what to do."""
    here, (why, fix) = ("table", key), texts
    spelt = {column.lower(): column for column in types}
    for name in names:
        column = spelt.get(name.lower())
        if column is None:
            yield no_such_column(here, name, types)
        elif types[column].startswith(refused):
            yield Finding(here, f"the column {name} is {types[column]}: {why}", fix)


def check_settings(settings: MaintenanceSpec) -> Iterator[Finding]:
    """Find what is wrong with ``maintenance:`` of a project or a pipeline by itself."""
    yield from _check_schedule(("maintenance", "schedule"), settings.schedule, '"0 3 * * *", or null for by hand only')
    if settings.compact_below > COMPACT_BELOW_AT_MOST:
        message = f"files of {settings.compact_below:,} bytes are not small"
        yield Finding(("maintenance", "compact_below"), message, "write 1 GiB or less")


def _check_maintenance(spec: PipelineSpec) -> Iterator[Finding]:
    here, word = ("maintenance", "source"), spec.maintenance.source
    if word != "keep" and not spec.file_streams:
        yield Finding(here, f"{word} is for files, and no source that streams is files", "remove it")
    elif word != "keep" and all(source.is_on_store for source in spec.file_streams.values()):
        message = f"{word} is for files of a file system, and the sources are on an object store"
        yield Finding(here, message, "remove it, and use a lifecycle rule of the bucket")
    for name, source in spec.file_streams.items():
        if word != "keep" and source.on_change == "reread_tail":
            message = (
                f"{word} and sources.{name}.on_change: reread_tail do not go together: lines may still be appended to "
                "a file that was read"
            )
            yield Finding(here, message, "write source: keep, or another on_change")
    if spec.maintenance.expire.partitions is not None:
        yield from _check_expiry(spec)


def _check_expiry(spec: PipelineSpec) -> Iterator[Finding]:
    here, names = ("maintenance", "expire", "partitions"), spec.table.partition_by
    types = find_row_types(spec)
    if spec.output_mode == "complete":
        message = "with output_mode: complete each run replaces the whole table: what expired would come back"
        yield Finding(here, message, "remove it, and filter in the transform")
    elif not names:
        fix = "add table: {partition_by: [day]} with a DATE column, or remove it"
        yield Finding(here, "the table has no partitions", fix)
    elif types is not None and not any(types.get(name, "date") == "date" for name in names):
        named = ", ".join(f"{name} {types[name].upper()}" for name in names)
        message = f"no column of table.partition_by is a DATE: {named}"
        yield Finding(here, message, "partition by a DATE, or remove it")


def check_alerts(alerts: AlertsSpec) -> Iterator[Finding]:
    """Find what is wrong with ``alerts:`` of a project or a pipeline by itself."""
    for index, notifier in enumerate(alerts.notify):
        here = ("alerts", "notify", index)
        if not _IMPORT_PATH.fullmatch(notifier.notifier):
            message = f"{show_value(notifier.notifier)} is not the import path of a class"
            fix = "write module.Class, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier"
            yield Finding((*here, "notifier"), message, fix)
        for name in notifier.arguments:
            if sounds_secret(name):
                message = f"{name} sounds like a secret, and this file is read by everybody"
                fix = "put it into an Airflow connection, and name that connection"
                yield Finding((*here, "arguments", name), message, fix)
    if alerts.behind is not None and alerts.behind < SHORTEST_BEHIND_SECONDS:
        yield Finding(("alerts", "behind"), "no run of a pipeline is over so soon", "write 1 minute or more")


def find_unheard(alerts: AlertsSpec) -> Iterator[Finding]:
    """Find the alerts of a pipeline that has no notifier. ``alerts`` has the project's part in it."""
    for key in ("behind", "quarantine_share"):
        if not alerts.notify and key in alerts.fields_set and getattr(alerts, key) is not None:
            message = "nobody is notified: alerts.notify is empty, here and in tidegate.yaml"
            yield Finding(("alerts", key), message, "add notify: [...]")
