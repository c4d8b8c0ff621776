"""Lineage of a run: the datasets that it read and wrote, named by the rules of OpenLineage, with figures.

Names: files have the namespace ``file`` and the path of their folder, topics ``kafka://HOST:PORT`` of the first broker
and their name, the table ``file`` and its folder. Generated and received sources (rate, socket) have no name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import RunReport, SourceReport
from tidegate.quality.engine import read_column_types
from tidegate.quality.suite import load_suite
from tidegate.spec.models import KafkaSink, PipelineSpec
from tidegate.spec.project import Project
from tidegate.spec.source_checks import list_columns
from tidegate.table.log.state import read_table_state

_KAFKA_PORT = "9092"


@dataclass(frozen=True)
class Dataset:
    """An input or output of a run. Unknown values are None or empty."""

    namespace: str
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    storage: tuple[str, str] | None = None
    """Layer and format of the files."""
    version: int | None = None
    change: Literal["CREATE", "OVERWRITE"] | None = None
    assertions: Sequence[Mapping[str, object]] = ()
    """The results of rules, with the keys of OpenLineage."""


@dataclass(frozen=True)
class Lineage:
    """The inputs and outputs of a task."""

    inputs: Sequence[Dataset] = ()
    outputs: Sequence[Dataset] = ()


def of_publish(project: Project, spec: PipelineSpec, report: RunReport) -> Lineage:
    """The lineage from the sources to the table; empty for a run that did not publish."""
    if report["outcome"] != "published":
        return Lineage()
    inputs = [one for name in spec.sources for one in _list_source(project, spec, name, report["sources"].get(name))]
    return Lineage(inputs, [_table_of(project, spec, report)])


def of_audit(project: Project, spec: PipelineSpec, report: RunReport) -> Lineage:
    """The table with the results of its rules, for an increment that passed or was released.

    Empty for one that is held or discarded: the table has none of its rows."""
    if report["outcome"] not in (None, "published") or not report["quality"]["results"]:
        return Lineage()
    rows = report["rows"]["staged"]
    return Lineage(
        [Dataset(*_name_table(project, spec), rows=rows, assertions=_list_assertions(project, spec, report))]
    )


def of_delivery(project: Project, spec: PipelineSpec, report: RunReport) -> Lineage:
    """The lineage from the table to the topics that were fed."""
    well = {sink["name"] for sink in report["sinks"] if sink["error"] is None}
    fed = [sink.topic for sink in spec.sinks if isinstance(sink, KafkaSink) and sink.topic and sink.name in well]
    if not fed:
        return Lineage()
    table = Dataset(*_name_table(project, spec), version=report["table"].get("version"))
    broker = name_broker(project.spec.kafka.bootstrap_servers)
    return Lineage([table], [Dataset(broker, topic) for topic in fed])


def name_broker(bootstrap_servers: str) -> str:
    """The namespace of a cluster's topics: its first broker."""
    first = bootstrap_servers.split(",")[0].strip().rpartition("://")[2]
    return f"kafka://{first}" if re.search(r":\d+$", first) else f"kafka://{first}:{_KAFKA_PORT}"


def name_folder(project: Project, path: str) -> tuple[str, str]:
    """The namespace and the name of the files of a source: its folder, or the part of its path before a pattern."""
    if isinstance(prefix := storage.parse_path(re.split(r"/[^/]*[*?\[]", path)[0]), storage.ObjectPath):
        return f"{prefix.scheme}://{prefix.bucket}", prefix.key or "/"
    whole = os.path.normpath(project.root / path.removeprefix("file://"))
    fixed = re.split(r"[*?\[{]", whole)[0]
    return "file", whole if fixed == whole else os.path.normpath(fixed.rpartition("/")[0] or "/")


def _list_source(project: Project, spec: PipelineSpec, name: str, report: SourceReport | None) -> Iterator[Dataset]:
    source, found = spec.sources[name], report or {}
    columns = {column.name: column.type for column in list_columns(source) or ()}
    if source.folder is not None:
        yield Dataset(
            *name_folder(project, source.folder),
            columns,
            found.get("rows"),
            found.get("bytes"),
            found.get("files"),
            ("file", str(getattr(source, "format", ""))),
        )
        return
    topics = sorted({*source.topic_names, *found.get("offsets", {})})
    # Of several topics only the sum of their records is known.
    rows = found.get("rows") if len(topics) == 1 else None
    broker = name_broker(project.spec.kafka.bootstrap_servers)
    yield from (Dataset(broker, topic, columns, rows) for topic in topics)


def _name_table(project: Project, spec: PipelineSpec) -> tuple[str, str]:
    return "file", os.path.normpath(project.paths(spec.name).table)


def _table_of(project: Project, spec: PipelineSpec, report: RunReport) -> Dataset:
    figures = report["table"]
    state = read_table_state(project.paths(spec.name).pinned().table)
    version = figures.get("version")
    change: Literal["CREATE", "OVERWRITE"] | None = "CREATE" if version == 0 else None
    if report["mode"] == "refresh" or (spec.output_mode == "complete" and version):
        change = "OVERWRITE"
    return Dataset(
        *_name_table(project, spec),
        columns={} if state is None else read_column_types(state.schema_json),
        rows=figures.get("rows_added"),
        files=figures.get("files_added"),
        storage=("delta", "parquet"),
        version=version,
        change=change,
    )


def _list_assertions(project: Project, spec: PipelineSpec, report: RunReport) -> list[dict[str, object]]:
    columns = _columns_of(project, spec)
    return [
        {
            "name": result["rule"],
            "assertion": result["type"],
            "success": result["success"],
            "severity": "error" if result["severity"] == "critical" else "warn",
            "column": columns.get(result["rule"]),
            "actual": _describe_actual(result["unexpected_count"], result["observed_value"]),
        }
        for result in report["quality"]["results"]
    ]


def _columns_of(project: Project, spec: PipelineSpec) -> dict[str, str]:
    """{rule: its column} by the current suite, for rules about one column."""
    try:
        suite = load_suite(project, spec.name)
    except TidegateError:
        return {}
    rules = () if suite is None else suite.rules
    return {rule.rule: rule.kwargs["column"] for rule in rules if isinstance(rule.kwargs.get("column"), str)}


def _describe_actual(unexpected: int | None, observed: object) -> str | None:
    if unexpected is not None:
        return f"{unexpected} unexpected"
    return None if observed is None else str(observed)
