"""Specs of the pipelines, read once as long as their files stay as they are, and what they tell of each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import TypedDict

from tidegate import storage
from tidegate.errors import TidegateError
from tidegate.monitor.memory import Memory
from tidegate.outputs import Error
from tidegate.pipeline import load_pipeline
from tidegate.project import Project
from tidegate.spec.models import (
    FilesSource,
    ForeachBatchSink,
    ForeachSink,
    KafkaSink,
    KafkaSource,
    PipelineSpec,
    ProjectSpec,
    SinkSpec,
    SocketSource,
)

_REMEMBERED = 2_000


class Neighbour(TypedDict):
    """Something that a pipeline reads or feeds: its ``kind`` and ``what`` it is; ``pipelines`` are those of the project
    at its other side."""

    name: str
    kind: str
    what: str
    is_static: bool
    pipelines: list[str]


_Read = tuple[ProjectSpec, PipelineSpec | Error]
_memory: Memory[_Read] = Memory(_REMEMBERED)


def read_spec(project: Project, name: str) -> PipelineSpec | Error:
    """The spec of a pipeline, or the error that its file has, every fault of it included."""

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
        return make(b"")[1]  # it says by itself what is wrong with the file


def read_specs(project: Project, names: list[str]) -> dict[str, PipelineSpec | Error]:
    """Those of these pipelines."""
    return {name: read_spec(project, name) for name in names}


def list_reads(project: Project, spec: PipelineSpec, others: Mapping[str, PipelineSpec | Error]) -> list[Neighbour]:
    """What a pipeline reads, with the pipelines of the project that write it."""
    found: list[Neighbour] = []
    for name, source in spec.sources.items():
        makers: list[str] = []
        if isinstance(source, FilesSource):
            kind, what = "files", source.path
            makers = [one for one in others if one != spec.name and _lies_below(project, source.path, one)]
        elif isinstance(source, KafkaSource):
            topics = [*(source.topics or ()), *(source.assign or ())]
            kind, what = "kafka", ", ".join(topics) or f"topics like {source.topic_pattern}"
            makers = [one for one, other in others.items() if set(topics) & set(_topics_fed(other))]
        elif isinstance(source, SocketSource):
            options = source.options
            kind, what = "socket", f"{options.get('host', '')}:{options.get('port', '')}"
        else:
            kind, what = "rate", f"{source.options.get('rowsPerSecond', 1)} rows a second"
        static = bool(getattr(source, "static", False))
        found.append({"name": name, "kind": kind, "what": what, "is_static": static, "pipelines": sorted(makers)})
    return found


def list_feeds(project: Project, spec: PipelineSpec, others: Mapping[str, PipelineSpec | Error]) -> list[Neighbour]:
    """What a pipeline feeds: its sinks, and the pipelines of the project that read its table or its topics."""
    found: list[Neighbour] = []
    readers = [name for name, other in others.items() if name != spec.name and _reads_table(project, other, spec.name)]
    if readers:
        found.append({"name": "table", "kind": "table", "what": spec.name, "is_static": False, "pipelines": readers})
    for sink in spec.sinks:
        followers: list[str] = []
        if isinstance(sink, KafkaSink) and sink.topic:
            followers = [name for name, other in others.items() if sink.topic in _topics_read(other)]
        what = _what_of(sink)
        found.append({"name": sink.name, "kind": sink.type, "what": what, "is_static": False, "pipelines": followers})
    return found


def _what_of(sink: SinkSpec) -> str:
    if isinstance(sink, KafkaSink):
        return sink.topic or "the topic that each row names"
    if isinstance(sink, ForeachBatchSink):
        return sink.function
    return sink.writer if isinstance(sink, ForeachSink) else "the task's log"


def _topics_fed(spec: PipelineSpec | Error) -> list[str]:
    if not isinstance(spec, PipelineSpec):
        return []
    return [sink.topic for sink in spec.sinks if isinstance(sink, KafkaSink) and sink.topic]


def _topics_read(spec: PipelineSpec | Error) -> list[str]:
    if not isinstance(spec, PipelineSpec):
        return []
    sources = [source for source in spec.sources.values() if isinstance(source, KafkaSource)]
    return [topic for source in sources for topic in [*(source.topics or ()), *(source.assign or ())]]


def _reads_table(project: Project, spec: PipelineSpec | Error, table: str) -> bool:
    if not isinstance(spec, PipelineSpec):
        return False
    sources = [source for source in spec.sources.values() if isinstance(source, FilesSource)]
    return any(_lies_below(project, source.path, table) for source in sources)


def _lies_below(project: Project, path: str, table: str) -> bool:
    """Whether a source's path is the table of a pipeline in the warehouse, or below it."""
    place = Path(os.path.normpath(project.root / path))
    own = Path(os.path.normpath(project.own_table(table)))
    return place == own or own in place.parents
