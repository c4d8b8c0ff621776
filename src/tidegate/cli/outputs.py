"""The JSON Schemas of the output of each command with ``--json``, made from the types of :mod:`tidegate.core.outputs`.

``python -m tidegate.cli.outputs`` writes them; ``--check`` exits with 1 if they are not current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from tidegate.core import outputs

FOLDER = Path(__file__).parent / "schemas"

OUTPUTS: dict[str, tuple[type, str]] = {
    "error": (outputs.Failed, "any command with --json that fails"),
    "report": (
        outputs.RunReport,
        "run, ingest, audit, publish, deliver, release, discard, reread, backfill, refresh, rollback, adopt, maintain, "
        "quarantine replay; "
        "stream prints one a line",
    ),
    "reports": (list[outputs.RunReport], "run of several pipelines"),
    "plan": (outputs.Plan, "plan"),
    "status": (list[outputs.Status], "status"),
    "list": (list[outputs.CatalogEntry], "list"),
    "logs": (outputs.Logs, "logs"),
    "data-docs": (outputs.DataDocs, "data-docs"),
    "state": (outputs.State, "state"),
    "doctor": (list[outputs.Finding], "doctor"),
    "validate": (list[outputs.Fault], "validate"),
    "try": (outputs.Trial, "try"),
    "verify": (outputs.Verification, "verify"),
    "repair": (outputs.Repair, "repair, reset"),
    "backfill": (outputs.BackfillPlan, "backfill --dry-run, refresh --dry-run"),
    "adopt": (outputs.Adoption, "adopt --dry-run"),
    "quarantine-replay": (outputs.ReplayPlan, "quarantine replay --dry-run"),
    "reread": (outputs.Reread, "reread --dry-run"),
    "rollback": (outputs.Rollback, "rollback --dry-run"),
    "maintain": (outputs.Maintenance, "maintain --dry-run"),
    "acknowledge": (outputs.Acknowledged, "acknowledge"),
    "quarantine-list": (list[outputs.QuarantineCount], "quarantine list"),
    "quarantine-show": (list[outputs.QuarantinedRecord], "quarantine show"),
}
"""By name of the schema: the type of the output, and the commands that print it."""


_OPEN = {
    one.__name__
    for one in (
        outputs.SourceReport,
        outputs.Rewritten,
        outputs.BeforeStart,
        outputs.TableFigures,
        outputs.OpenState,
        outputs.AcceptedLoss,
    )
}
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
