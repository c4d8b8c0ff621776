"""JSON Schemas of ``tidegate.yaml`` and ``pipeline.yaml`` for editors, made from the models.

``python -m tidegate.spec.json_schema`` writes them; ``--check`` says whether they are current (exit 1 if not).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tidegate.spec.key_descriptions import describe_key
from tidegate.spec.model import Model
from tidegate.spec.models import PipelineSpec, ProjectSpec
from tidegate.spec.validation import checker_of

FOLDER = Path(__file__).parent / "schemas"
_MODELS: dict[str, tuple[type[Model], str]] = {
    "pipeline.schema.json": (PipelineSpec, "pipeline.yaml"),
    "tidegate.schema.json": (ProjectSpec, "tidegate.yaml"),
}


def build_schemas() -> dict[str, dict[str, object]]:
    """The schemas by file name."""
    return {file: _build(model, title) for file, (model, title) in _MODELS.items()}


def render_schema(schema: dict[str, object]) -> str:
    """A schema as its file has it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def list_stale() -> list[str]:
    """The names of the schema files that are not what the models say."""
    return [
        file
        for file, schema in build_schemas().items()
        if not (FOLDER / file).is_file() or (FOLDER / file).read_text(encoding="utf-8") != render_schema(schema)
    ]


def write_schemas() -> None:
    """Write the schema files of the package."""
    FOLDER.mkdir(exist_ok=True)
    for file, schema in build_schemas().items():
        (FOLDER / file).write_text(render_schema(schema), encoding="utf-8")


def _describe(schema: dict[str, Any], model: str) -> None:
    """Add the sentences that an editor shows next to a key."""
    for name, value in schema.get("properties", {}).items():
        value.pop("title", None)
        value["description"] = describe_key(model, name)
        if "patternProperties" in value:
            value["additionalProperties"] = False


def _build(model: type[Model], title: str) -> dict[str, object]:
    schema = checker_of(model).model_json_schema(by_alias=True, mode="validation")
    _describe(schema, model.__name__)
    for name, part in schema.get("$defs", {}).items():
        _describe(part, name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` compare them."""
    if arguments == ["--check"]:
        stale = list_stale()
        for file in stale:
            print(f"{file} is not current: python -m tidegate.spec.json_schema", file=sys.stderr)
        return 1 if stale else 0
    write_schemas()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
