"""Settings of ``tidegate.yaml`` from the environment: ``TIDEGATE__SPARK__MASTER`` is ``spark: {master: ...}``.

What the environment says goes over the file, key by key. The value of a mapping is a JSON object, because a variable's
name can hold neither the dots nor the lower case of ``spark.executor.memory``; its keys go over the file's one by one.
That of a list is a JSON array, which replaces the file's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import get_args, get_origin

from tidegate.spec.document import Document, KeyPath, fill_variables, name_path
from tidegate.spec.faults import Fault, describe_allowed
from tidegate.spec.model import Model
from tidegate.spec.models import ProjectSpec

PREFIX = "TIDEGATE__"
_JSON_FORMS: dict[object, tuple[str, str]] = {
    dict: ("JSON object", '{"name": "value"}'),
    list: ("JSON array", "[...]"),
}
_NOT_SET_HERE = {("version",)}
"""The version is that of the file."""


def name_variable(path: KeyPath) -> str:
    """The variable of a setting: ``("spark", "master")`` is TIDEGATE__SPARK__MASTER."""
    return PREFIX + "__".join(str(part).upper() for part in path)


def list_variables() -> dict[str, KeyPath]:
    """Every variable, with the setting it makes."""
    return {name: path for name, (path, _) in _list_settings().items()}


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


def _list_settings() -> dict[str, tuple[KeyPath, object]]:
    """The key and the type that each variable sets."""

    def walk(model: type[Model], path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
        for name, field in model.fields().items():
            if isinstance(field.kind, type) and issubclass(field.kind, Model):
                yield from walk(field.kind, (*path, name))
            else:
                yield (*path, name), field.kind

    return {name_variable(path): (path, kind) for path, kind in walk(ProjectSpec, ()) if path not in _NOT_SET_HERE}


def _read_overlay(document: Document, environment: Mapping[str, str], code: str) -> dict[KeyPath, tuple[str, object]]:
    """{setting: (variable, value)}; entries of mappings one by one."""
    known = _list_settings()
    overlay: dict[KeyPath, tuple[str, object]] = {}
    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        where, text = f"environment variable {variable}", environment[variable]
        if variable not in known:
            message = "it sets nothing that tidegate.yaml knows"
            fix = _explain_entry(variable, known) or describe_allowed(variable, list(known))
            document.faults.append(Fault(where, None, "", message, fix, code))
        elif text != "":
            path, kind = known[variable]
            container = get_origin(kind)
            if container is None or container not in _JSON_FORMS:
                is_null = text == "null" and type(None) in get_args(kind)
                overlay[path] = (variable, None if is_null else text)
                continue
            form, example = _JSON_FORMS[container]
            value = _read_json(text)
            if not isinstance(value, container):
                fix = f"write it like {variable}='{example}'"
                document.faults.append(Fault(where, None, name_path(path), f"the value is not a {form}", fix, code))
            elif isinstance(value, dict):
                overlay |= {(*path, key): (variable, one) for key, one in value.items()}
            else:
                overlay[path] = (variable, value)
    return overlay


def _explain_entry(variable: str, known: Mapping[str, tuple[KeyPath, object]]) -> str | None:
    """What to write instead of a variable for one entry of a mapping."""
    for name, (_, kind) in known.items():
        if variable.startswith(f"{name}__") and get_origin(kind) is dict:
            return f"write the entry as JSON: {name}='{_JSON_FORMS[dict][1]}'"
    return None


def _read_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _take_out(data: dict[str, object], path: KeyPath) -> None:
    holder: object = data
    for part in path[:-1]:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


def _put(data: dict[str, object], path: KeyPath, value: object) -> bool:
    """Return whether there was a place for the value: if a key above it is not a mapping, that is reported alone."""
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
