"""How each sink is affected when rows of the table are replaced, as dry runs of commands print it."""

from __future__ import annotations

from typing import Literal

from tidegate.core.paths import PipelinePaths
from tidegate.sinks.progress import find_fed
from tidegate.sinks.user_code import has_replaces
from tidegate.spec.models import ConsoleSink, KafkaSink, PipelineSpec, SinkSpec
from tidegate.table.log.state import TableState

Change = Literal["rebuilt partitions", "partitions that change", "whole table", "more rows"]
_GETS: dict[Change, str] = {
    "rebuilt partitions": "gets all rows of the rebuilt partitions, each interval as one version that replaces what it "
    "has of them",
    "partitions that change": "gets all rows of the partitions that change as one version that replaces what it has of "
    "them, with the next run or `tidegate deliver {pipeline}`",
    "whole table": "gets the whole new table as one version{above}, which replaces all that it has",
    "more rows": "gets these records as one more version",
}


def describe_effects(paths: PipelinePaths, spec: PipelineSpec, table: TableState | None, change: Change) -> list[str]:
    """Describe the effect on each sink in a sentence. ``table`` is the current one."""
    return [f"sink {sink.name} {_describe(paths, spec, sink, table, change)}" for sink in spec.sinks]


def _describe(
    paths: PipelinePaths, spec: PipelineSpec, sink: SinkSpec, table: TableState | None, change: Change
) -> str:
    fed = None if table is None else find_fed(paths, sink.name, table)
    if table is not None and fed is None:
        return "was not fed yet: it starts with the next version"
    above = f" with a number above {fed.number}" if fed is not None and fed.number >= 0 else ""
    gets = _GETS[change].format(pipeline=spec.name, above=above)
    if change == "more rows" or isinstance(sink, ConsoleSink):
        return gets
    if isinstance(sink, KafkaSink):
        return f"{gets}; the records that are replaced stay in the topic, for consumers that follow `replaces`"
    if has_replaces(paths.job, sink):
        return gets
    return f"{gets}; but its code does not take `replaces`, so the rows that are replaced stay in it"
