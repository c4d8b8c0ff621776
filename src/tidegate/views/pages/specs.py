"""Specs and suites of the pipelines: read once while their files do not change, and which pipelines feed each other."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, assert_never

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Error
from tidegate.quality.suite import RuleSpec, load_suite
from tidegate.spec.models import (
    ConsoleSink,
    ForeachBatchSink,
    ForeachSink,
    KafkaSink,
    PipelineSpec,
    ProjectSpec,
    SinkSpec,
    is_static,
)
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project

_SETTLED_NS = 3_000_000_000


def is_settled(found: storage.Stat) -> bool:
    """Return whether a file was changed long enough ago for its time to identify its content.

    One that changed just now may change again with the same time, if the file system's clock is coarse."""
    return time.time_ns() - found.modified_ns >= _SETTLED_NS


class Neighbour(NamedTuple):
    """Something that a pipeline reads or feeds: its ``kind`` and ``what`` it is; ``pipelines`` are those of the project
    on its other side."""

    name: str
    kind: str
    what: str
    is_static: bool
    pipelines: list[str]


_known: dict[Path, tuple[storage.Stat, ProjectSpec, PipelineSpec | Error]] = {}
"""{spec file: its stat and the project's settings when it was read, and the result}."""


def read_spec(project: Project, name: str) -> PipelineSpec | Error:
    """Read the spec of a pipeline, where its file or the settings have changed; an error has all its faults."""
    path = project.jobs / name / "pipeline.yaml"
    try:
        found = storage.stat(path)
    except OSError:
        found = None  # reading the spec reports what is wrong with the file
    known = _known.get(path)
    if known is not None and known[:2] == (found, project.spec):
        return known[2]
    value: PipelineSpec | Error
    try:
        value = load_pipeline(project, name)
    except TidegateError as error:
        value = error.to_dict()
    if found is not None and is_settled(found):
        _known[path] = found, project.spec, value
    return value


def read_specs(project: Project, names: list[str]) -> dict[str, PipelineSpec | Error]:
    """Read the specs of these pipelines."""
    return {name: read_spec(project, name) for name in names}


@dataclass(frozen=True)
class Map:
    """Which pipelines of the project write and read which tables and topics."""

    root: Path
    tables: dict[Path, str]
    feeders: dict[str, list[str]]
    followers: dict[str, list[str]]
    readers: dict[str, list[str]]

    @staticmethod
    def of(project: Project, specs: Mapping[str, PipelineSpec | Error]) -> Map:
        """The map of these pipelines."""
        known = {name: spec for name, spec in specs.items() if isinstance(spec, PipelineSpec)}
        tables = {_normal(_table_of(project, spec)): name for name, spec in known.items()}
        made = Map(project.root, tables, {}, {}, {})
        for name, spec in known.items():
            for sink in spec.sinks:
                if isinstance(sink, KafkaSink) and sink.topic:
                    made.feeders.setdefault(sink.topic, []).append(name)
            for source in spec.sources.values():
                for topic in source.topic_names:
                    made.followers.setdefault(topic, []).append(name)
                if (table := made.table_below(source.folder)) not in (None, name):
                    made.readers.setdefault(str(table), []).append(name)
        return made

    def table_below(self, path: str | None) -> str | None:
        """The pipeline whose table contains a source's path, or is that path."""
        if path is None:
            return None
        place = _normal(self.root / path)
        return next((self.tables[one] for one in (place, *place.parents) if one in self.tables), None)


def list_reads(spec: PipelineSpec, around: Map) -> list[Neighbour]:
    """List what a pipeline reads, with the pipelines of the project that write it."""
    found: list[Neighbour] = []
    for name, source in spec.sources.items():
        makers = {one for topic in source.topic_names for one in around.feeders.get(topic, ())}
        if (table := around.table_below(source.folder)) not in (None, spec.name):
            makers.add(str(table))
        found.append(Neighbour(name, source.type, source.place, is_static(source), sorted(makers)))
    return found


def list_feeds(spec: PipelineSpec, around: Map) -> list[Neighbour]:
    """List what a pipeline feeds: its sinks, and the pipelines of the project that read its table or its topics."""
    found: list[Neighbour] = []
    if readers := around.readers.get(spec.name):
        found.append(Neighbour("table", "table", spec.name, False, readers))
    for sink in spec.sinks:
        topic = sink.topic if isinstance(sink, KafkaSink) else None
        followers = around.followers.get(topic, []) if topic else []
        found.append(Neighbour(sink.name, sink.type, _what_of(sink), False, followers))
    return found


def _what_of(sink: SinkSpec) -> str:
    if isinstance(sink, KafkaSink):
        return sink.topic or "the topic that each row names"
    if isinstance(sink, ForeachBatchSink):
        return sink.function
    if isinstance(sink, ForeachSink):
        return sink.writer
    if isinstance(sink, ConsoleSink):
        return "the task's log"
    assert_never(sink)


def _table_of(project: Project, spec: PipelineSpec) -> Path:
    return project.own_table(spec.name) if spec.table.path is None else project.table_at(spec.table.path)


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def list_expected(project: Project, name: str) -> dict[str, RuleSpec]:
    """The rules of the current suite by name; none where it cannot be read, which is reported elsewhere."""
    try:
        suite = load_suite(project, name)
    except (TidegateError, OSError):
        return {}
    return {} if suite is None else {rule.rule: rule for rule in suite.rules}


def describe_expected(rule: RuleSpec) -> str:
    """Describe a rule in a line: ``amount: not below 0``."""
    kwargs = {key: value for key, value in rule.kwargs.items() if key not in ("column", "column_A", "column_B")}
    kind = rule.type.removeprefix("expect_").removeprefix("column_values_to_").replace("_", " ")
    low, high, among = kwargs.pop("min_value", None), kwargs.pop("max_value", None), kwargs.pop("value_set", None)
    words = [re.sub(r"(^| )(to )?be( between| in set)?( |$)", " ", kind).strip()]
    if low is not None or high is not None:
        words.append(f"{show_value(low)} to {show_value(high)}" if None not in (low, high) else _one_bound(low, high))
    if isinstance(among, list):
        words.append(f"one of {show_value(', '.join(map(str, among)))}")
    parts = [" ".join(word for word in words if word)]
    parts += [f"{key.replace('_', ' ')} {show_value(value)}" for key, value in kwargs.items()]
    return ", ".join(part for part in parts if part)


def show_value(value: object) -> str:
    """Show a value of a rule, or an observed value, cut where it is long."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return text if len(text) <= 200 else text[:197] + "..."
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _one_bound(low: object, high: object) -> str:
    return f"at least {show_value(low)}" if high is None else f"at most {show_value(high)}"
