"""Suites as Great Expectations wrote them before 1.0: recognized, and rewritten in today's form. Pure, but for
:func:`upgrade_file`."""

from __future__ import annotations

from pathlib import Path

import yaml

from tidegate.core import storage

_NEW_NAMES = {"expectation_suite_name": "name", "expectation_type": "type"}
_GONE = ("ge_cloud_id", "data_asset_type", "evaluation_parameters", "expectation_context")
_GONE_KWARGS = ("result_format", "include_config", "catch_exceptions")
"""Keys for the detail of a result, which a run decides now."""


def find_old_keys(data: object) -> list[str]:
    """The keys of ``data``, a suite as it was read, that have another name since 1.0."""
    entries = data.get("expectations") if isinstance(data, dict) else None
    mappings = [data, *(entries if isinstance(entries, list) else [])]
    return [key for key in _NEW_NAMES if any(isinstance(one, dict) and key in one for one in mappings)]


def describe_old_keys(keys: list[str]) -> str:
    """Describe the fault of a suite that has these keys."""
    renamed = ", ".join(f"{key} is {_NEW_NAMES[key]}" for key in keys)
    return f"the file has the form of Great Expectations before 1.0; since then {renamed}"


def upgrade_file(path: Path, name: str) -> Path | None:
    """Rewrite the suite in ``path``, of pipeline ``name``, in the form of 1.x; the file as it was is kept under the
    path that is returned. None for a file that has that form already, or cannot be read as a suite."""
    try:
        data = yaml.safe_load(path.read_bytes())
    except (FileNotFoundError, yaml.YAMLError, UnicodeDecodeError):
        return None
    if not find_old_keys(data):
        return None
    kept = path.with_name(f"{path.name}.before")
    storage.replace(kept, path.read_bytes())
    text = yaml.safe_dump(_upgrade(data, name), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    storage.replace(path, text.encode())
    return kept


def _upgrade(data: dict[str, object], name: str) -> dict[str, object]:
    suite = {**_rename(data), "name": name}
    entries = suite.pop("expectations", None)
    if isinstance(entries, list):
        entries = [_upgrade_rule(entry) if isinstance(entry, dict) else entry for entry in entries]
    return {"name": suite.pop("name"), **suite, "expectations": entries}


def _upgrade_rule(entry: dict[str, object]) -> dict[str, object]:
    rule = _rename(entry)
    kwargs = rule.get("kwargs")
    if isinstance(kwargs, dict):
        rule["kwargs"] = {key: value for key, value in kwargs.items() if key not in _GONE_KWARGS}
    return rule


def _rename(value: dict[str, object]) -> dict[str, object]:
    return {_NEW_NAMES.get(key, key): one for key, one in value.items() if key not in _GONE}
