"""The JSON Schemas of the output of each command with ``--json``, made from the types of :mod:`tidegate.core.outputs`.

``python -m tidegate.cli.outputs`` writes them; ``--check`` exits with 1 if they are not current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from tidegate.core.outputs import (
    AcceptedLoss,
    Acknowledged,
    Adoption,
    BackfillPlan,
    BeforeStart,
    CatalogEntry,
    DataDocs,
    Failed,
    Fault,
    Finding,
    Logs,
    Maintenance,
    OpenState,
    Plan,
    QuarantineCount,
    QuarantinedRecord,
    Repair,
    ReplayPlan,
    Reread,
    Rewritten,
    Rollback,
    RunReport,
    SourceReport,
    State,
    Status,
    TableFigures,
    Trial,
    Verification,
)

FOLDER = Path(__file__).parent / "schemas"

OUTPUTS: dict[str, tuple[type, str]] = {
    "error": (Failed, "any command with --json that fails"),
    "report": (
        RunReport,
        "run, ingest, audit, publish, deliver, release, discard, reread, backfill, refresh, rollback, adopt, maintain, "
        "quarantine replay; "
        "stream prints one a line",
    ),
    "reports": (list[RunReport], "run of several pipelines"),
    "plan": (Plan, "plan"),
    "status": (list[Status], "status"),
    "list": (list[CatalogEntry], "list"),
    "logs": (Logs, "logs"),
    "data-docs": (DataDocs, "data-docs"),
    "state": (State, "state"),
    "doctor": (list[Finding], "doctor"),
    "validate": (list[Fault], "validate"),
    "try": (Trial, "try"),
    "verify": (Verification, "verify"),
    "repair": (Repair, "repair, reset"),
    "backfill": (BackfillPlan, "backfill --dry-run, refresh --dry-run"),
    "adopt": (Adoption, "adopt --dry-run"),
    "quarantine-replay": (ReplayPlan, "quarantine replay --dry-run"),
    "reread": (Reread, "reread --dry-run"),
    "rollback": (Rollback, "rollback --dry-run"),
    "maintain": (Maintenance, "maintain --dry-run"),
    "acknowledge": (Acknowledged, "acknowledge"),
    "quarantine-list": (list[QuarantineCount], "quarantine list"),
    "quarantine-show": (list[QuarantinedRecord], "quarantine show"),
}
"""By name of the schema: the type of the output, and the commands that print it."""


_OPEN = {one.__name__ for one in (SourceReport, Rewritten, BeforeStart, TableFigures, OpenState, AcceptedLoss)}
"""Objects that may have further keys, from reports of earlier versions."""


def build_schemas() -> dict[str, JsonSchemaValue]:
    """The schemas by file name."""
    return {f"{name}.schema.json": _build(kind, whose) for name, (kind, whose) in OUTPUTS.items()}


def _build(kind: type, whose: str) -> JsonSchemaValue:
    schema = TypeAdapter(kind).json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        for value in part.get("properties", {}).values():
            value.pop("title", None)
        if "properties" in part:
            part["additionalProperties"] = part.get("title") in _OPEN
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **schema, "title": f"What tidegate prints with --json: {whose}"}


def render_schema(schema: JsonSchemaValue) -> str:
    """The text of a schema file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def list_stale() -> list[str]:
    """The names of schema files that differ from the types, or belong to none."""
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
