"""What each command prints with ``--json``, as types; the JSON Schemas beside this module are made from them.

``python -m tidegate.cli.outputs`` writes them; ``--check`` says whether they are current (exit 1 if not).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

FOLDER = Path(__file__).parent / "schemas"


class Fault(TypedDict):
    """One thing wrong in one file."""

    code: str
    file: str
    line: int | None
    key: str
    message: str
    fix: str


class Error(TypedDict):
    """What went, or would go, wrong."""

    code: str
    message: str
    where: str | None
    next_run: str | None
    fix: str | None
    exit_code: int
    faults: NotRequired[list[Fault]]


class Failed(TypedDict):
    """What stands in place of every other output when a command fails before it has one."""

    error: Error


class Rows(TypedDict):
    """Counts of an increment."""

    read: int
    malformed: int
    entered: int
    late: int
    transformed: int
    rejected: int
    staged: int
    published: int
    superseded: int
    duplicates: int


class RuleResult(TypedDict):
    """What one rule of the suite came to."""

    rule: str
    type: str
    severity: str
    success: bool
    unexpected_count: int | None
    observed_value: Any


class Quality(TypedDict):
    """The gate's verdict."""

    suite: str | None
    verdict: Literal["passed", "warned", "failed", "unchecked"] | None
    results: list[RuleResult]
    warnings: NotRequired[list[str]]


class Sink(TypedDict):
    """How far a further sink was fed."""

    type: str
    name: str
    version: int | None
    behind: int | None
    error: str | None


class Ruling(TypedDict):
    """What a person decided."""

    decision: str
    who: str
    reason: str
    at: str


class RunReport(TypedDict):
    """One run."""

    pipeline: str
    run_id: str
    mode: str
    outcome: Literal["published", "nothing_new", "held", "discarded", "failed"] | None
    started_at: str
    ended_at: str | None
    duration_seconds: dict[str, float]
    sources: dict[str, dict[str, Any]]
    batches: int
    watermark: str | None
    rows: Rows
    quality: Quality
    table: dict[str, Any]
    state: dict[str, Any]
    sinks: list[Sink]
    error: Error | None
    adopted_runs: list[str]
    published_by: str | None
    accepted_loss: dict[str, Any] | None
    decision: Ruling | None
    notes: list[str]


class Held(TypedDict):
    """An increment that waits for a decision."""

    run_id: str
    reasons: list[str]


class Decided(Ruling):
    """A decision that was recorded and not carried out."""

    run_id: str


class Change(TypedDict):
    """Something that was changed since the pipeline last read; null where it was not there, or is no longer."""

    kind: Literal["column", "rule", "query", "setting"]
    name: str
    was: str | None
    now: str | None


class Plan(TypedDict):
    """What the next run would do."""

    pipeline: str
    summary: str
    has_new: bool
    pending: bool
    sources: dict[str, dict[str, Any]]
    sources_unknown: Error | None
    errors: list[Error]
    changed: list[dict[str, Any]]
    held: Held | None
    decided: list[Decided]
    owed_batches: int
    in_flight_batch: int | None
    changes_since: str | None
    changes: list[Change]
    notes: list[str]


class FilesBacklog(TypedDict):
    """Files that wait."""

    files: int
    bytes: int


class KafkaBacklog(TypedDict):
    """Offsets that wait."""

    offsets: int


class Table(TypedDict):
    """Where a table is, and its newest version."""

    path: str
    version: int


class Trouble(TypedDict):
    """One thing that needs a person."""

    kind: Literal["held", "failed", "refused", "unknown", "behind", "undone", "changed"]
    message: str


class Status(TypedDict):
    """One pipeline."""

    pipeline: str
    schedule: str | None
    table: Table | None
    pending: bool
    backlog: dict[str, FilesBacklog | KafkaBacklog] | None
    backlog_unknown: Error | None
    held: Held | None
    errors: list[Error]
    trouble: list[Trouble]
    decided: list[Decided]
    changed: list[dict[str, Any]]
    notes: list[str]
    lease: dict[str, Any] | None
    watermark: str | None
    state: dict[str, Any] | None
    runs: list[RunReport]
    sinks: list[Sink]


class CatalogEntry(TypedDict):
    """A pipeline of the project."""

    pipeline: str
    schedule: str | None
    sources: dict[str, str]
    description: str | None
    error: Error | None


class KeptLog(TypedDict):
    """A driver's log."""

    step: Literal["ingest", "deliver"]
    path: str
    text: str


class Logs(TypedDict):
    """What is kept of a run's output."""

    pipeline: str
    run_id: str
    outcome: str | None
    error: Error | None
    report: str
    progress: list[dict[str, Any]]
    logs: list[KeptLog]


class StateRow(TypedDict):
    """What is kept for one key."""

    key: Any
    value: Any
    partition: int | None


class Store(TypedDict):
    """Some rows of what an operator keeps, and how many there are."""

    operator: str
    store: str
    count: int
    rows: list[StateRow]


class State(TypedDict):
    """What a query keeps between runs, as of a batch."""

    pipeline: str
    batch: int
    operators: list[Store]


class Finding(TypedDict):
    """One thing that ``doctor`` looked at."""

    check: str
    ok: bool
    found: str
    fix: str | None


class Repair(TypedDict):
    """What disagrees, the choices, and what was or would be done."""

    pipeline: str
    dry_run: bool
    found: str
    code: str | None
    choices: list[str]
    actions: list[str]
    unreadable_again: list[str]


class RereadSource(TypedDict):
    """What of a source would be read again; files or offsets ({topic: {partition: [from, until]}})."""

    rows: int
    files: NotRequired[list[str]]
    offsets: NotRequired[dict[str, dict[str, list[int]]]]


class Reread(TypedDict):
    """What ``reread`` would read again; ``decided`` is an open decision, ``hindrance`` what is in the way."""

    pipeline: str
    run_id: str
    held: list[str]
    rows: int
    sources: dict[str, RereadSource]
    decided: dict[str, Any] | None
    hindrance: Error | None


class Acknowledged(TypedDict):
    """The changed files that were acknowledged."""

    pipeline: str
    acknowledged: list[dict[str, Any]]
    left: int


class TriedSource(TypedDict):
    """What was read of a source."""

    rows: int


class TriedRecord(TypedDict):
    """A record that would be quarantined."""

    reason: str
    detail: str | None
    source: str | None
    position: Any
    raw: str | None


class TriedLook(TypedDict):
    """What a source of files has: ``path`` as the spec says it, and how many files there are to read."""

    path: str
    files: int
    settling: list[dict[str, Any]]
    skipped: list[dict[str, Any]]


class Trial(TypedDict):
    """What would become of some records; ``held`` says why the gate would hold them, or null."""

    pipeline: str
    sources: dict[str, TriedSource]
    looked: dict[str, TriedLook]
    counts: Rows
    quality: Quality
    held: str | None
    rows: list[dict[str, Any]]
    set_aside: list[TriedRecord]


class QuarantineCount(TypedDict):
    """Quarantined records, by run, source, reason and cause, with one of them."""

    run_id: str | None
    source: str | None
    reason: str
    detail: str | None
    records: int
    first_at: str
    last_at: str
    example: str | None


class QuarantinedRecord(TypedDict):
    """One quarantined record."""

    pipeline: str
    run_id: str
    source: str | None
    position: Any
    raw: str | None
    reason: str
    detail: str | None
    quarantined_at: str


OUTPUTS: dict[str, tuple[Any, str]] = {
    "error": (Failed, "any command with --json that fails"),
    "report": (RunReport, "run, ingest, audit, publish, deliver, release, discard, reread; stream prints one a line"),
    "reports": (list[RunReport], "run of several pipelines"),
    "plan": (Plan, "plan"),
    "status": (list[Status], "status"),
    "list": (list[CatalogEntry], "list"),
    "logs": (Logs, "logs"),
    "state": (State, "state"),
    "doctor": (list[Finding], "doctor"),
    "validate": (list[Fault], "validate"),
    "try": (Trial, "try"),
    "repair": (Repair, "repair"),
    "reread": (Reread, "reread --dry-run"),
    "acknowledge": (Acknowledged, "acknowledge"),
    "quarantine-list": (list[QuarantineCount], "quarantine list"),
    "quarantine-show": (list[QuarantinedRecord], "quarantine show"),
}
"""By name of the schema: the type of the output, and the commands that print it."""


def build_schemas() -> dict[str, dict[str, Any]]:
    """The schemas by file name."""
    return {f"{name}.schema.json": _build(kind, whose) for name, (kind, whose) in OUTPUTS.items()}


def _build(kind: Any, whose: str) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        for value in part.get("properties", {}).values():
            value.pop("title", None)
        if "properties" in part:
            part["additionalProperties"] = False
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **schema, "title": f"What tidegate prints with --json: {whose}"}


def render_schema(schema: dict[str, Any]) -> str:
    """A schema as it stands in its file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def list_stale() -> list[str]:
    """The names of the schema files that are not what the types say, with files that nothing makes any more."""
    stale = [
        file
        for file, schema in build_schemas().items()
        if not (FOLDER / file).is_file() or (FOLDER / file).read_text(encoding="utf-8") != render_schema(schema)
    ]
    return stale + sorted(path.name for path in FOLDER.glob("*.json") if path.name not in build_schemas())


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` compare them."""
    if arguments == ["--check"]:
        stale = list_stale()
        for file in stale:
            print(f"{file} is not current: python -m tidegate.cli.outputs", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for file, schema in build_schemas().items():
        (FOLDER / file).write_text(render_schema(schema), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
