"""Specs of the pipelines, cached while their files do not change, and which pipelines feed each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypedDict

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Error
from tidegate.spec.models import (
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
from tidegate.views.pages.memory import Memory

_REMEMBERED = 2_000


class Neighbour(TypedDict):
    """Something that a pipeline reads or feeds: its ``kind`` and ``what`` it is; ``pipelines`` are those of the project
    on its other side."""

    name: str
    kind: str
    what: str
    is_static: bool
    pipelines: list[str]


_Read = tuple[ProjectSpec, PipelineSpec | Error]
_memory: Memory[_Read] = Memory(_REMEMBERED)


def read_spec(project: Project, name: str) -> PipelineSpec | Error:
    """Read the spec of a pipeline; returns an error with all faults where it is not valid."""

    def make(_: bytes) -> _Read:
        try:
            return project.spec, load_pipeline(project, name)
        except TidegateError as error:
            return project.spec, error.to_dict()

    path = project.jobs / name / "pipeline.yaml"
    try:
        found = storage.stat(path)
        known = _memory.recall(path, found, make)
        if known[0] != project.spec:
            _memory.forget()
            known = _memory.recall(path, found, make)
        return known[1]
    except OSError:
        return make(b"")[1]  # reports what is wrong with the file


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
        static = is_static(source)
        found.append(
            {
                "name": name,
                "kind": source.type,
                "what": source.place,
                "is_static": static,
                "pipelines": sorted(makers),
            }
        )
    return found


def list_feeds(spec: PipelineSpec, around: Map) -> list[Neighbour]:
    """List what a pipeline feeds: its sinks, and the pipelines of the project that read its table or its topics."""
    found: list[Neighbour] = []
    if readers := around.readers.get(spec.name):
        found.append({"name": "table", "kind": "table", "what": spec.name, "is_static": False, "pipelines": readers})
    for sink in spec.sinks:
        topic = sink.topic if isinstance(sink, KafkaSink) else None
        followers = around.followers.get(topic, []) if topic else []
        found.append(
            {
                "name": sink.name,
                "kind": sink.type,
                "what": _what_of(sink),
                "is_static": False,
                "pipelines": followers,
            }
        )
    return found


def _what_of(sink: SinkSpec) -> str:
    if isinstance(sink, KafkaSink):
        return sink.topic or "the topic that each row names"
    if isinstance(sink, ForeachBatchSink):
        return sink.function
    return sink.writer if isinstance(sink, ForeachSink) else "the task's log"


def _table_of(project: Project, spec: PipelineSpec) -> Path:
    return project.own_table(spec.name) if spec.table.path is None else project.table_at(spec.table.path)


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))
