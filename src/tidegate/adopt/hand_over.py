"""What the old job had read, as the new pipeline's sources know it: files in the ledger, offsets in the birth record.

Without a checkpoint nobody knows what of a source is in the table. Then the spec has to say where each source starts,
and that it is looked at once, now.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.adopt.old_checkpoint import OldCheckpoint, OldSource
from tidegate.adopt.sink_log import inside_of
from tidegate.errors import catalogue
from tidegate.outputs import AdoptedSource
from tidegate.paths import PipelinePaths
from tidegate.project import Project
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.sources.files.scan import FilesScan, scan_files, source_base, source_roots
from tidegate.sources.kafka.source import KafkaStream
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.staging.birth import Start
from tidegate.staging.topics import offsets_to_json
from tidegate.words import count_of

_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class HandOver:
    """Where one source goes on. Files: those that were ``taken``, those of them that are ``gone`` now; topics: the
    ``start`` of the birth record. ``scan``, without a checkpoint: the first look, by the source's own ``start``."""

    name: str
    taken: list[NewFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    scan: FilesScan | None = None
    start: Start = field(default_factory=lambda: Start())
    told: AdoptedSource = field(default_factory=lambda: AdoptedSource())
    notes: list[str] = field(default_factory=list)


def plan_hand_over(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, old: OldCheckpoint | None
) -> list[HandOver]:
    """Where each source of ``spec`` (as it is written) goes on.

    Raises UsageError ADOPT_NO_START, DisagreementError ADOPT_SOURCES, and what a look at a source raises.
    """
    if old is None:
        _need_starts(spec)
        return [_begin(project, paths, name, source) for name, source in spec.streams.items()]
    pairs = _match(project, spec, old)
    return [_take_over(project, paths, name, spec.streams[name], source) for name, source in pairs.items()]


def _need_starts(spec: PipelineSpec) -> None:
    """Nothing is read from the beginning into a table that may have it already, unless the spec says so in words."""
    keys: dict[type, str] = {FilesSource: "start", KafkaSource: "starting_offsets"}
    unsaid = [
        f"sources.{name}.{keys[type(source)]}"
        for name, source in spec.streams.items()
        if type(source) in keys and keys[type(source)] not in source.model_fields_set
    ]
    if unsaid:
        raise catalogue.ADOPT_NO_START(where=f"jobs/{spec.name}/pipeline.yaml", keys=" and ".join(unsaid))


def _begin(project: Project, paths: PipelinePaths, name: str, source: object) -> HandOver:
    if isinstance(source, KafkaSource):
        start = KafkaStream(project, paths, name, source).resolve_start()
        return HandOver(name, start=start, told={"offsets": start["offsets"]}, notes=[_at(name, source)])
    if not isinstance(source, FilesSource):
        return HandOver(name)
    scan = _scan(project, paths, name, source)
    told: AdoptedSource = {"files_taken": len(scan.before_start), "files_gone": 0, "files_waiting": _waiting(scan)}
    return HandOver(name, scan=scan, told=told, notes=[_at(name, source)])


def _at(name: str, source: FilesSource | KafkaSource) -> str:
    where = source.start if isinstance(source, FilesSource) else source.starting_offsets
    return (
        f"source {name} starts at {where}, as the spec says: without a checkpoint nobody can tell what of it is in the "
        "table, and a record that is there is not found out again"
    )


def _scan(project: Project, paths: PipelinePaths, name: str, source: FilesSource) -> FilesScan:
    with open_ledger(replace(paths, state=paths.state / "never"), read_only=True) as nothing:
        return scan_files(project, paths, name, source, nothing)


def _waiting(scan: FilesScan) -> int:
    return len(scan.new) + len(scan.settling)


def _take_over(project: Project, paths: PipelinePaths, name: str, source: object, old: OldSource) -> HandOver:
    if isinstance(source, KafkaSource):
        stream = KafkaStream(project, paths, name, source.model_copy(update={"starting_offsets": "earliest"}))
        start = stream.start_at(old.offsets, stream.resolve_start())
        return HandOver(name, start=start, told={"offsets": offsets_to_json(old.offsets)})
    assert isinstance(source, FilesSource), "only files and topics are matched"
    return _take_over_files(project, paths, name, source, old)


def _take_over_files(
    project: Project, paths: PipelinePaths, name: str, source: FilesSource, old: OldSource
) -> HandOver:
    # As a first look would take them that passes over all: with the marks by which lines are found that are appended.
    scan = _scan(project, paths, name, source.model_copy(update={"start": "now"}))
    here = {one.path: one for one in scan.before_start}
    names = _Names(project, source)
    taken: dict[str, NewFile] = {}
    gone, changed = [], []
    for entry in old.files:
        path = names.of_ledger(entry.path)
        found = here.get(path) or _stat(path, entry.path)
        if found is None:
            gone.append(path)
            found = NewFile(path, 0, 0, "")
        elif entry.time_ms and found.mtime_ns // 1_000_000 != entry.time_ms:
            changed.append(path)
        taken[path] = found
    waiting = [path for path in here if path not in taken]
    told: AdoptedSource = {"files_taken": len(taken), "files_gone": len(set(gone)), "files_waiting": len(waiting)}
    notes = []
    if gone:
        are = "is" if len(gone) == 1 else "are"
        notes.append(f"source {name}: {_name(gone)} {are} gone since the old job read them")
    if changed:
        notes.append(
            f"source {name}: {_name(changed)} changed after the old job listed them: taken as read, as they are"
        )
    if waiting:
        notes.append(f"source {name}: the next run reads {_name(waiting)}, which the old job had not taken")
    return HandOver(name, list(taken.values()), sorted(set(gone)), told=told, notes=notes)


def _stat(path: str, as_read: str) -> NewFile | None:
    """A file that the source does not list, but that is there."""
    try:
        found = os.stat(as_read)
    except OSError:
        return None
    return NewFile(path, found.st_size, found.st_mtime_ns, "", ctime_ns=found.st_ctime_ns)


def _name(paths: Sequence[str]) -> str:
    shown = ", ".join(sorted(set(paths))[:_NAMED_AT_MOST])
    number = len(set(paths))
    return f"{count_of(number, 'file')} ({shown}{', ...' if number > _NAMED_AT_MOST else ''})"


class _Names:
    """What the ledger calls a file that Spark knew by its full path, perhaps through another link."""

    def __init__(self, project: Project, source: FilesSource) -> None:
        self.root = os.path.abspath(project.root).rstrip("/") + "/"
        self.top = source_base(project, source)
        self.real = [os.path.realpath(self.top), *source_roots(project, source)]

    def of_ledger(self, path: str) -> str:
        """Relative to the project where it is inside it, else absolute."""
        if inside_of(path, [self.top]) is None:
            inside = inside_of(os.path.realpath(path), self.real)
            if inside is not None:
                path = f"{self.top.rstrip('/')}/{inside}"
        return path.removeprefix(self.root)

    def knows(self, path: str) -> bool:
        """Whether a file is one of the source's."""
        return inside_of(path, [self.top]) is not None or inside_of(os.path.realpath(path), self.real) is not None


def _match(project: Project, spec: PipelineSpec, old: OldCheckpoint) -> dict[str, OldSource]:
    """Which source of the old job each of the spec's is. Raises ADOPT_SOURCES unless there is one way alone."""
    fits = {name: [one for one in old.sources if _fits(project, source, one)] for name, source in spec.streams.items()}
    pairs: dict[str, OldSource] = {}
    left = dict(fits)
    while left:
        sure = next((name for name, some in left.items() if len(some) == 1), None)
        if sure is None:
            break
        [chosen] = left.pop(sure)
        pairs[sure] = chosen
        left = {name: [one for one in some if one is not chosen] for name, some in left.items()}
    if left or len(pairs) != len(old.sources):
        raise catalogue.ADOPT_SOURCES(
            where=str(old.path),
            old="; ".join(one.describe() for one in old.sources),
            new="; ".join(_describe(name, source) for name, source in spec.streams.items()),
        )
    return pairs


def _fits(project: Project, source: object, old: OldSource) -> bool:
    if isinstance(source, KafkaSource):
        topics = {one.topic for one in old.offsets}
        if old.files or not topics:
            return not old.files
        if source.topic_pattern is not None:
            return all(re.fullmatch(source.topic_pattern, topic) for topic in topics)
        if source.assign is not None:
            return {(one.topic, one.partition) for one in old.offsets} <= {
                (topic, number) for topic, numbers in source.assign.items() for number in numbers
            }
        return topics == set(source.topics or ())
    if not isinstance(source, FilesSource) or old.offsets:
        return False
    names = _Names(project, source)
    return all(names.knows(entry.path) for entry in old.files)


def _describe(name: str, source: object) -> str:
    if isinstance(source, KafkaSource):
        return f"{name}: topics {source.topic_pattern or ', '.join(source.topics or source.assign or ())}"
    return f"{name}: {source.path}" if isinstance(source, FilesSource) else f"{name}: {getattr(source, 'type', '')}"


def starts_of(plans: Sequence[HandOver]) -> Mapping[str, Start]:
    """Where each source starts, for the birth record; {} for one that needs no note."""
    return {one.name: one.start for one in plans}
