"""What commands print with ``--json``, held against the schemas that are shipped for it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from tidegate.cli.outputs import FOLDER


def check_output(schema: str, text: str) -> Any:
    """The JSON value of ``text``, which fits the schema of this name."""
    value = json.loads(text)
    jsonschema.validate(value, json.loads((FOLDER / f"{schema}.schema.json").read_text(encoding="utf-8")))
    return value
