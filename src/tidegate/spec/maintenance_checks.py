"""Checks of ``maintenance:``: what of it a pipeline cannot have."""

from __future__ import annotations

from tidegate.spec.cron import describe_unusable_schedule
from tidegate.spec.faults import show_value
from tidegate.spec.findings import Finding
from tidegate.spec.models import MaintenanceSpec, PipelineSpec
from tidegate.spec.source_checks import list_columns

COMPACT_BELOW_AT_MOST = 1 << 30
_HERE = ("maintenance",)


def check_settings(settings: MaintenanceSpec) -> list[Finding]:
    """What is wrong with ``maintenance:`` of a project or a pipeline by itself."""
    found = []
    if settings.schedule is not None and (reason := describe_unusable_schedule(settings.schedule)):
        fix = 'write five fields, "0 3 * * *", or null for by hand only'
        message = f"{show_value(settings.schedule)} is not a cron schedule: {reason}"
        found.append(Finding((*_HERE, "schedule"), message, fix))
    if settings.compact_below > COMPACT_BELOW_AT_MOST:
        message = f"files of {settings.compact_below:,} bytes are not small"
        found.append(Finding((*_HERE, "compact_below"), message, "write 1 GiB or less"))
    return found


def check_maintenance(spec: PipelineSpec) -> list[Finding]:
    """What is wrong with ``maintenance:`` of a pipeline."""
    settings = spec.maintenance
    found = check_settings(settings)
    if settings.source != "keep":
        found += _check_source(spec)
    if settings.expire.partitions is not None:
        found += _check_retention(spec)
    return found


def _check_source(spec: PipelineSpec) -> list[Finding]:
    here, word = (*_HERE, "source"), spec.maintenance.source
    if not spec.file_streams:
        return [Finding(here, f"{word} is for files, and no source that streams is files", "remove it")]
    return [
        Finding(
            here,
            f"{word} and sources.{name}.on_change: reread_tail do not go together: lines may still be appended to a "
            "file that was read",
            "write source: keep, or another on_change",
        )
        for name, source in spec.file_streams.items()
        if source.on_change == "reread_tail"
    ]


def _check_retention(spec: PipelineSpec) -> list[Finding]:
    here = (*_HERE, "expire", "partitions")
    if spec.output_mode == "complete":
        message = "with output_mode: complete each run replaces the whole table: what expired would come back"
        return [Finding(here, message, "remove it, and filter in the transform")]
    if not spec.table.partition_by:
        fix = "add table: {partition_by: [day]} with a DATE column, or remove it"
        return [Finding(here, "the table has no partitions", fix)]
    if spec.transform is not None or len(spec.sources) != 1:
        return []
    columns = list_columns(next(iter(spec.sources.values())))
    if columns is None:
        return []
    kinds = {column.name: column.type for column in columns}
    if any(kinds.get(name, "date") == "date" for name in spec.table.partition_by):
        return []
    named = ", ".join(f"{name} {kinds[name].upper()}" for name in spec.table.partition_by)
    return [Finding(here, f"no column of table.partition_by is a DATE: {named}", "partition by a DATE, or remove it")]
