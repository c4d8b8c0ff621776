"""What a pipeline was made of when it last read something, so that ``plan`` can show what was changed since."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from typing_extensions import TypedDict

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import ChangeKind
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.quality.suite import load_suite
from tidegate.spec.ddl import DdlError, is_infer, parse_ddl
from tidegate.spec.faults import sounds_secret
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import digest_transform

_EDITS_AT_MOST = 50
KINDS: tuple[ChangeKind, ...] = ("column", "rule", "query", "setting")
"""Kinds of what can be changed, in the order in which ``plan`` shows them."""


def describe_change(change: outputs.Change) -> str:
    """Describe a change in one line."""
    what, was, now = f"{change['kind']} {change['name']}", change["was"], change["now"]
    if change["kind"] == "query" and was and now:
        return f"{what} was edited"
    if was is None:
        return f"+ {what}: {now}"
    return f"- {what}: {was}" if now is None else f"{what}: {was} -> {now}"


class Edit(TypedDict):
    """A change of the definition, noted by the first run that read with it."""

    run_id: str
    at: str
    changes: list[outputs.Change]


Definition = dict[str, dict[str, str]]


def describe_definition(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> Definition:
    """Columns, rules, query and settings by kind and name, as text, without values named like secrets."""
    return {
        "column": dict(_list_columns(spec)),
        "rule": _list_rules(project, spec.name),
        "query": {} if spec.transform is None else {spec.transform: digest_transform(paths, spec)},
        # Who is notified of a run changes nothing in what it reads.
        "setting": {key: value for key, value in list_settings(spec) if not key.startswith("alerts.")},
    }


_MAKES_NO_ROW = (
    "version",
    "owner",
    "tags",
    "schedule",
    "trigger",
    "quality",
    "sinks",
    "maintenance",
    "spark",
    "table.cluster_by",
    "table.readers",
)
"""Settings by which a record gives the same rows."""
_MAKES_NO_ROW_OF_SOURCES = (
    "start",
    "starting_offsets",
    "settle",
    "on_change",
    "follow_links",
    "list_all_every",
    "notifications",
)
"""Keys of a source that say which records are read, and when; not what becomes of one."""


def fingerprint_rows(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> dict[str, str]:
    """What rows are made by, the columns, the query and settings, as short texts that are others when it is edited. The
    suite is not in it: what it holds back is corrected, and given again."""
    found = describe_definition(project, spec, paths)
    named = {f"{kind} {name}": text for kind in ("column", "query", "setting") for name, text in found[kind].items()}
    return {
        name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        for name, text in named.items()
        if not _makes_no_row(name.removeprefix("setting ").split("."))
    }


def _makes_no_row(path: list[str]) -> bool:
    """Return whether a record gives the same rows, whatever is at this path of the spec."""
    if path[0] == "sources":
        return path[2:3] != [] and path[2] in _MAKES_NO_ROW_OF_SOURCES
    return path[0] in _MAKES_NO_ROW or ".".join(path[:2]) in _MAKES_NO_ROW


def note_definition(paths: PipelinePaths, now: Definition, run_id: str) -> None:
    """Keep what run ``run_id`` has read with, and what was changed for it; of the changes the newest fifty.

    Nothing depends on it, so a disk that takes no note fails no run. A change whose first run is killed before its note
    is noted for the next one that reads.
    """
    with contextlib.suppress(OSError):
        noted = _read_noted(paths)
        at, edits = now_text(), [] if noted is None else list(noted.edits)
        if noted is not None and (changes := _compare(noted.definition, now)):
            edits.append({"run_id": run_id, "at": at, "changes": changes})
        value = {"run_id": run_id, "at": at, "definition": now, "edits": edits[-_EDITS_AT_MOST:]}
        storage.replace(paths.definition, storage.dump_json(value))


def list_changes(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> tuple[str | None, list[outputs.Change]]:
    """(the run that read last, what was changed since); (None, []) before the first one."""
    noted = _read_noted(paths)
    if noted is None:
        return None, []
    now = describe_definition(project, spec, paths)
    if not _has_readable_suite(project, spec.name):
        now = {**now, "rule": dict(noted.definition["rule"])}  # it has a fault, and its rules are not gone
    return noted.run_id, _compare(noted.definition, now)


def _has_readable_suite(project: Project, name: str) -> bool:
    try:
        load_suite(project, name)
    except TidegateError:
        return False
    return True


def list_edits(paths: PipelinePaths) -> list[Edit]:
    """What was changed in the definition and when, oldest first: the newest fifty times."""
    noted = _read_noted(paths)
    return [] if noted is None else noted.edits


@dataclass(frozen=True)
class _Noted:
    run_id: str
    definition: Mapping[str, Mapping[str, str]]
    edits: list[Edit]


def _read_noted(paths: PipelinePaths) -> _Noted | None:
    """Read what the run that read last has kept; None also for a file that cannot be read, as nothing depends on it."""
    try:
        noted = storage.read_json(paths.definition)
        if noted is None:
            return None
        definition: dict[str, dict[str, str]] = {kind: dict(noted["definition"].get(kind, {})) for kind in KINDS}
        return _Noted(str(noted["run_id"]), definition, [_edit(one) for one in noted.get("edits", ())])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _edit(value: Edit) -> Edit:
    """A stored change. Raises KeyError, TypeError for one of another form."""
    changes: list[outputs.Change] = [
        {"kind": one["kind"], "name": one["name"], "was": one["was"], "now": one["now"]} for one in value["changes"]
    ]
    return {"run_id": str(value["run_id"]), "at": str(value["at"]), "changes": changes}


def _compare(then: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[outputs.Change]:
    changes: list[outputs.Change] = []
    for kind in KINDS:
        old, new = then.get(kind, {}), now[kind]
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                changes.append({"kind": kind, "name": name, "was": old.get(name), "now": new.get(name)})
    return changes


def _list_columns(spec: PipelineSpec) -> Iterator[tuple[str, str]]:
    for name, source in spec.sources.items():
        text = getattr(source, "schema", None)
        if text and not is_infer(text):
            try:
                yield from ((f"{name}.{column.name}", column.type) for column in parse_ddl(text))
            except DdlError:
                yield name, text


def _list_rules(project: Project, name: str) -> dict[str, str]:
    try:
        suite = load_suite(project, name)
    except TidegateError:
        return {}  # `plan` names its faults on its own
    if suite is None:
        return {}
    rules = {}
    for rule in suite.rules:
        value = {key: one for key, one in asdict(rule).items() if key not in ("rule", "line", "file")}
        rules[rule.rule] = json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return rules


def list_settings(spec: PipelineSpec) -> Iterator[tuple[str, str]]:
    """Every setting of a spec that says something, as (key, value); none whose name sounds like a secret, and not what
    notifiers are made with: the address of a web hook is as good as a password."""
    left_out = {"name", "description", "transform"}
    value = {key: one for key, one in spec.to_json().items() if key not in left_out}
    for one in value["alerts"]["notify"]:
        del one["arguments"]
    for source in value["sources"].values():
        source.pop("schema", None)
        source.pop("origin", None)  # its settings are those of the source that it replaces, and were never listed
    yield from _flatten(value, "")


def _flatten(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            if not sounds_secret(str(key)):
                yield from _flatten(one, f"{path}.{key}" if path else str(key))
    elif value is not None:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
