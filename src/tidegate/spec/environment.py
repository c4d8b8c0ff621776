"""Settings of ``tidegate.yaml`` from the environment: ``TIDEGATE__SPARK__MASTER`` is ``spark: {master: ...}``.

What the environment says goes over the file, key by key. The value of a mapping is a JSON object, because a variable's
name can hold neither the dots nor the lower case of ``spark.executor.memory``; its keys go over the file's one by one.
That of a list is a JSON array, which replaces the file's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

from tidegate.spec.document import Document, KeyPath, fill_variables, name_path
from tidegate.spec.faults import Fault, describe_allowed
from tidegate.spec.model import Model
from tidegate.spec.models import ProjectSpec

PREFIX = "TIDEGATE__"
_NOT_SET_HERE = {("version",)}
"""The version is that of the file."""


def name_variable(path: KeyPath) -> str:
    """The variable of a setting: ``("spark", "master")`` is TIDEGATE__SPARK__MASTER."""
    return PREFIX + "__".join(str(part).upper() for part in path)


def list_variables() -> dict[str, KeyPath]:
    """Every variable, with the setting it makes."""
    return {name_variable(path): path for path in _list_settings(ProjectSpec, ()) if path not in _NOT_SET_HERE}


def fill_from_environment(document: Document, environment: Mapping[str, str], code: str) -> None:
    """Fill ``${VAR}`` into the document, and override keys that have a variable.

    An empty variable counts as not set, as in ``${VAR:-default}``. Unknown names and values that are no JSON object,
    where one is wanted, become faults that name the variable and never show its value.
    """
    overlay = _read_overlay(document, environment, code)
    if not isinstance(document.data, dict):
        return
    for path in overlay:
        # First, so that a ${VAR} that is overruled need not be set.
        _take_out(document.data, path)
    fill_variables(document, environment, code)
    for path, (variable, value) in overlay.items():
        if _put(document.data, path, value):
            document.variables[path] = variable
            if isinstance(value, str):
                document.written[path] = f"${{{variable}}}"


def _list_settings(model: type[Model], path: KeyPath) -> list[KeyPath]:
    found: list[KeyPath] = []
    for name, field in model.fields().items():
        kind = field.kind
        if isinstance(kind, type) and issubclass(kind, Model):
            found += _list_settings(kind, (*path, name))
        else:
            found.append((*path, name))
    return found


def _read_overlay(document: Document, environment: Mapping[str, str], code: str) -> dict[KeyPath, tuple[str, object]]:
    """{setting: (variable, value)}; entries of mappings one by one."""
    known = list_variables()
    overlay: dict[KeyPath, tuple[str, object]] = {}
    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        value = environment[variable]
        path = known.get(variable)
        if path is None:
            message = "it sets nothing that tidegate.yaml knows"
            fix = _explain_entry(variable, known) or describe_allowed(variable, list(known))
            document.faults.append(Fault(f"environment variable {variable}", None, "", message, fix, code))
        elif value == "":
            continue
        elif _is_a(dict, path):
            entries = _read_json(value, dict)
            if entries is None:
                message, fix = "the value is not a JSON object", f'write it like {variable}=\'{{"name": "value"}}\''
                fault = Fault(f"environment variable {variable}", None, name_path(path), message, fix, code)
                document.faults.append(fault)
            else:
                overlay |= {(*path, key): (variable, one) for key, one in entries.items()}
        elif _is_a(list, path):
            items = _read_json(value, list)
            if items is None:
                message, fix = "the value is not a JSON array", f"write it like {variable}='[...]'"
                document.faults.append(
                    Fault(f"environment variable {variable}", None, name_path(path), message, fix, code)
                )
            else:
                overlay[path] = (variable, items)
        else:
            overlay[path] = (variable, _read_scalar(value, _annotation(path)))
    return overlay


def _read_scalar(text: str, kind: object) -> object:
    """The value as a file would have it, where the text leaves no doubt; or the text."""
    if text == "null" and type(None) in get_args(kind):
        return None
    if kind is bool and text in ("true", "false"):
        return text == "true"
    return int(text) if kind is int and re.fullmatch("[0-9]{1,18}", text) else text


def _explain_entry(variable: str, known: Mapping[str, KeyPath]) -> str | None:
    """What to write instead of a variable for one entry of a mapping."""
    for name, path in known.items():
        if variable.startswith(f"{name}__") and _is_a(dict, path):
            return f'write the entry as JSON: {name}=\'{{"name": "value"}}\''
    return None


def _read_json(text: str, kind: type) -> Any:
    """The value, or None when it is no JSON of that kind."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


def _annotation(path: KeyPath) -> object:
    model: type[Model] = ProjectSpec
    for part in path[:-1]:
        kind = model.fields()[str(part)].kind
        assert isinstance(kind, type) and issubclass(kind, Model)
        model = kind
    return model.fields()[str(path[-1])].kind


def _is_a(kind: type, path: KeyPath) -> bool:
    return getattr(_annotation(path), "__origin__", None) is kind


def _take_out(data: dict[str, object], path: KeyPath) -> None:
    holder: object = data
    for part in path[:-1]:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


def _put(data: dict[str, object], path: KeyPath, value: object) -> bool:
    """Whether there was a place for the value: what the file has around it may not be a mapping, which is a fault of
    its own."""
    holder = data
    for part in path[:-1]:
        inner = holder.setdefault(str(part), {})
        if inner is None:
            inner = holder[str(part)] = {}
        if not isinstance(inner, dict):
            return False
        holder = inner
    holder[str(path[-1])] = value
    return True
