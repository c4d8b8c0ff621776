"""Make a model of a document: pydantic's errors as faults, and the nearest valid model for further checks."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Literal, TypeVar, get_args, get_origin

from tidegate.spec.document import Document, KeyPath, name_path
from tidegate.spec.faults import describe_allowed, name_nearest, show_value
from tidegate.spec.model import Field, Model, NotExact, models_by_type
from tidegate.spec.models import PipelineSpec, SinkSpec, SourceSpec

STAND_IN_SOURCE = "unreadable"
"""Replaces a source that could not be read, so that the other keys can be checked."""

_STAND_INS: dict[KeyPath, Any] = {
    ("name",): "unnamed",
    ("sources",): {STAND_IN_SOURCE: {"type": "rate"}},
}

M = TypeVar("M", bound=Model)


_GONE: dict[tuple[str, str], tuple[str, str]] = {
    ("values", "as_spark"): (
        "as_spark is gone: Spark reads no records any more, so every value is held exactly or its record is malformed",
        "remove the line; run tidegate try, which shows the records that are malformed now (docs/reference/values.md)",
    )
}
"""What is said of a value that was allowed once, and what to do."""

_SOURCES, _SINKS = models_by_type(SourceSpec), models_by_type(SinkSpec)
_UNIONS: dict[str | int, dict[str, type[Model]]] = {"sources": _SOURCES, "sinks": _SINKS}
"""The keys whose entries are one of several models, distinguished by their ``type``."""


def build_model(document: Document, model: type[M], code: str = "BAD_SPEC") -> M | None:
    """The model behind ``document``; faults go into the document.

    When there are faults, what is wrong is removed or corrected where a default or the nearest name allows it, so that
    the checks across keys can still be made on the rest. None when not even that gives a model.
    """
    if not isinstance(document.data, dict):
        return None
    data = copy.deepcopy(document.data)
    noted: set[KeyPath] = {()}
    guessed: set[KeyPath] = set()
    for _ in range(8):
        made, details = _read(model, data)
        if made is not None:
            return made
        complaints: dict[KeyPath, Any] = {}
        for detail in details:
            complaints.setdefault(_find_path(data, detail), detail)
        misspelt = _take_misspelt(data, model, complaints)
        for path, detail in complaints.items():
            # What is around a key that was taken out only follows from it; a key that is there misspelt is not missing.
            if path not in misspelt and not _is_known(path, noted, guessed):
                _note(document, model, path, detail, code)
        noted |= complaints.keys()
        for path, typo in misspelt.items():
            if path not in complaints:
                guessed.add(path)
            elif typo not in noted:  # pydantic looks at a source of no type no further
                document.add_fault(typo, f"unknown key {typo[-1]!r}", f"write {path[-1]}", code)
                noted.add(typo)
            document.rename(typo, path)
        for path, detail in complaints.items():
            if path not in misspelt:
                _repair(data, model, path, detail)
    return None


def _read(model: type[M], data: object) -> tuple[M | None, list[Any]]:
    """The model, or pydantic's complaints."""
    with contextlib.suppress(NotExact):
        return model.read(data), []
    from tidegate.spec.validation import validate

    made, found = validate(model, data)
    return made, [detail for detail in found if not _is_of_other_form(data, model, detail)]


def list_keys(model: type[Model]) -> list[str]:
    """The keys a model allows, as they are written."""
    return list(model.fields())


def find_model(root: type[Model], data: object, path: KeyPath) -> type[Model] | None:
    """The model that governs the mapping at ``path``; None for a free mapping, or when it cannot be determined."""
    current: type[Model] | None = root
    position = 0
    while position < len(path) and current is not None:
        key = path[position]
        if current is root and key in _UNIONS and position + 1 < len(path):
            entry = _entry(data, key, path[position + 1])
            kind = entry.get("type") if isinstance(entry, dict) else None
            if isinstance(kind, str) and kind not in _UNIONS[key]:
                kind = name_nearest(kind, _UNIONS[key])  # what is checked on with
            current = _UNIONS[key].get(kind) if isinstance(kind, str) else None
            position += 2
            continue
        if not isinstance(key, int):  # an entry of a list is of the model that the list is of
            current = _field_model(current, key)
        position += 1
    return current


def _entry(data: Any, key: str | int, entry: str | int) -> object:
    try:
        return data[key][entry]
    except (LookupError, TypeError):
        return None


def _field(model: type[Model], key: str | int) -> Field | None:
    return model.fields().get(str(key))


def _field_model(model: type[Model], key: str | int) -> type[Model] | None:
    field = _field(model, key)
    return _model_of(field.kind) if field is not None else None


def _model_of(annotation: Any) -> type[Model] | None:
    """The model that values of a key are of, where they may be of one."""
    kinds = get_args(annotation) or (annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Model)), None)


def _is_of_other_form(data: object, root: type[Model], detail: Any) -> bool:
    """Return whether pydantic complains of a form that was not meant, at a key that takes a word or a mapping: that a
    mapping is not a word, or that anything else is not a mapping."""
    path = _find_path(data, detail)
    holder = find_model(root, data, path[:-1]) if path else None
    field = _field(holder, path[-1]) if holder is not None else None
    if field is None or _model_of(field.kind) is None or not _literals(holder, path[-1]):
        return False
    is_mapping = isinstance(detail["input"], dict)
    return str(detail["type"]) == ("literal_error" if is_mapping else "model_type")


def _find_path(data: object, detail: Any) -> KeyPath:
    """Where in the file a complaint belongs: pydantic's location without the names of unions and types in it."""
    parts = list(detail["loc"])
    if len(parts) > 2 and parts[2] in _UNIONS.get(parts[0], ()):
        del parts[2]
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        parts.append("type")
    path: list[str | int] = []
    value = data
    for index, part in enumerate(parts):
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            path.append(part)
            value = value[part]
        elif detail["type"] in ("missing", "union_tag_not_found") and index == len(parts) - 1:
            path.append(part)
    return tuple(path)


def _note(document: Document, root: type[Model], path: KeyPath, detail: Any, code: str) -> None:
    try:
        value: object = document.find_value(path)
    except LookupError:
        value = None
    document.add_fault(path, *_describe(document, root, path, detail, value), code)


def _describe(document: Document, root: type[Model], path: KeyPath, detail: Any, value: object) -> tuple[str, str]:
    """What is wrong with a value, and what to write."""
    kind, key = detail["type"], str(path[-1]) if path else ""
    holder = find_model(root, document.data, path[:-1])
    shown = show_value(value, name_path(path))
    if kind == "extra_forbidden":
        allowed = list_keys(holder) if holder else []
        around: Any = document.find_value(path[:-1])
        only = f"write {allowed[0]}" if len(allowed) == 1 and allowed[0] not in around else None
        fix = _name_place(document.data, root, path) or only or describe_allowed(key, allowed)
        return f"unknown key {key!r}", fix
    if kind == "missing":
        return "the key is missing", f"add `{key}: ...`{_choices(holder, key)}"
    if kind == "union_tag_not_found":
        return "the key is missing", f"add `type: ...`; allowed: {', '.join(_UNIONS[path[0]])}"
    if kind == "union_tag_invalid":
        what = "sink" if path[0] == "sinks" else "source"
        return f"{shown} is not a type of {what}", describe_allowed(str(value), list(_UNIONS[path[0]]))
    if kind == "literal_error":
        gone = _GONE.get((key, value)) if isinstance(value, str) else None
        return gone or (f"{shown} is not allowed", describe_allowed(str(value), _allowed(holder, path[-1])))
    if "[key]" in detail["loc"]:
        return f"the name {key!r} is not allowed", "use lower-case letters, digits and _, starting with a letter"
    if kind == "string_pattern_mismatch":
        return f"{shown} is not allowed", "use 3 to 63 lower-case letters, digits and _, starting with a letter"
    if kind == "value_error":
        what, _, reason = str(detail["ctx"]["error"]).rpartition("; ")
        return f"{shown} is not a {'size' if what.endswith(' size') else 'duration'}", reason
    return f"{shown} is not valid here", _wanted(detail, holder, path, value)


_WANTED = {
    "string_type": "write text",
    "int_parsing": "write a whole number",
    "int_type": "write a whole number",
    "int_from_float": "write a whole number",
    "float_parsing": "write a number",
    "float_type": "write a number",
    "number_type": "write a number",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "list_type": "write a list: [a, b]",
    "dict_type": "write a mapping: `key: value`",
    "model_type": "write a mapping: `key: value`",
    "model_attributes_type": "write a mapping: `key: value`",
    "too_short": "write at least one entry",
    "greater_than_equal": "write a number from 0 to 1",
    "less_than_equal": "write a number from 0 to 1",
}


def _wanted(detail: Any, holder: type[Model] | None, path: KeyPath, value: object) -> str:
    field = _field(holder, path[-1]) if holder is not None and path else None
    if field is not None and len(get_args(field.kind)) > 1 and path[-1] == "starting_offsets":
        return "write earliest, latest, an ISO time stamp, or {topic: {partition: offset}}"
    if len(path) > 1 and path[-2] in ("options", "conf"):
        return "write a text, a number, true or false"
    if detail["type"] == "string_type" and isinstance(value, (bool, int, float)):
        return f'write text; quote it if it is meant: "{value}"'
    return _WANTED.get(detail["type"], str(detail["msg"]))


def _literals(holder: type[Model] | None, key: str | int) -> list[str]:
    field = _field(holder, key) if holder is not None else None
    return _words_of(field.kind) if field is not None else []


def _words_of(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [word for kind in get_args(annotation) for word in _words_of(kind)]


def _allowed(holder: type[Model] | None, key: str | int) -> list[str]:
    """What may be written at a key that takes words: these, and the mapping where it takes one as well."""
    model = _field_model(holder, key) if holder is not None else None
    mapping = [] if model is None else ["{" + ", ".join(f"{one}: ..." for one in list_keys(model)) + "}"]
    return _literals(holder, key) + mapping


def _name_place(data: object, root: type[Model], path: KeyPath) -> str | None:
    """Where a key belongs that is no key of a pipeline but one of its parts; None where it is of none."""
    if root is not PipelineSpec or len(path) != 1:
        return None
    key, places = str(path[0]), list[str]()
    lacking = [name for name, field in root.fields().items() if field.is_required and name not in _mapping(data)]
    if name_nearest(key, lacking) is not None:
        return None  # misspelt
    if any(key in list_keys(model) for model in _SOURCES.values()):
        sources = data.get("sources") if isinstance(data, dict) else None
        names = [f"sources.{name}" for name in sources or () if _takes(root, data, ("sources", name), key)]
        places.append(f"to a source: write it in {' or '.join(names) or 'sources.NAME'}")
    parts = [part for part in list_keys(root) if _takes(root, data, (part,), key)]
    places += [f"to {part}: write `{part}: {{{key}: ...}}`" for part in parts]
    return f"it belongs {'; or '.join(places)}" if places else None


def _mapping(data: object) -> dict[Any, Any]:
    return data if isinstance(data, dict) else {}


def _takes(root: type[Model], data: object, path: KeyPath, key: str) -> bool:
    model = find_model(root, data, path)
    return model is not None and key in list_keys(model)


def _choices(holder: type[Model] | None, key: str) -> str:
    if key == "sources" and holder is PipelineSpec:
        return ", for example `sources: {events: {type: files, path: data/inbox, format: json, schema: id STRING}}`"
    field = _field(holder, key) if holder is not None else None
    literal = field is not None and get_origin(field.kind) is Literal
    return f"; allowed: {', '.join(_literals(holder, key))}" if literal else ""


def _is_known(path: KeyPath, noted: set[KeyPath], guessed: set[KeyPath]) -> bool:
    """Return whether a complaint only follows from others: it is about a key around one of them, or about a value that
    was given to the key whose name is nearest."""
    return any(known[: len(path)] == path for known in noted) or any(path[: len(key)] == key for key in guessed)


def _take_misspelt(data: object, root: type[Model], complaints: dict[KeyPath, Any]) -> dict[KeyPath, KeyPath]:
    """Give keys that are not there the value of the unknown key whose name is nearest to theirs, first those that are
    needed: {key: the misspelt one}."""
    taken: dict[KeyPath, KeyPath] = {}
    needed = [path for path, detail in complaints.items() if detail["type"] in ("missing", "union_tag_not_found")]
    unknown = [path for path, detail in complaints.items() if detail["type"] == "extra_forbidden"]
    for path in needed:
        holder, known = _find_holder(data, root, path)
        if path[-1] in holder:
            continue
        typo = next((key for key in holder if key not in known and name_nearest(str(key), known) == path[-1]), None)
        if typo is None and len(known) == len(holder) == 1 and find_model(root, data, path[:-1]) is not None:
            typo = next(iter(holder))  # of one key that there is, whatever it was called
        if typo is not None:
            taken[path] = (*path[:-1], typo)
            holder[path[-1]] = holder.pop(typo)
    for path in unknown:
        holder, known = _find_holder(data, root, path)
        nearest = name_nearest(str(path[-1]), known) if path[-1] in holder else None
        if _name_place(data, root, path) is not None:
            nearest = None
        if nearest is not None and nearest not in holder:
            taken[(*path[:-1], nearest)] = path
            holder[nearest] = holder.pop(path[-1])
    return taken


def _find_holder(data: object, root: type[Model], path: KeyPath) -> tuple[dict[Any, Any], list[str]]:
    """The mapping that a key is in, empty where it is in none, and the keys that it may have."""
    holder: Any = data
    for part in path[:-1]:
        holder = holder[part]
    model = find_model(root, data, path[:-1])
    return holder if isinstance(holder, dict) else {}, list_keys(model) if model is not None else [str(path[-1])]


def _repair(data: object, root: type[Model], path: KeyPath, detail: Any) -> None:
    """Take the complaint out of ``data``: the nearest allowed name, the default, or without the part around it."""
    if not path:
        return
    holder_value: object = data
    for part in path[:-1]:
        if not isinstance(holder_value, (dict, list)):
            return
        holder_value = holder_value.get(part) if isinstance(holder_value, dict) else holder_value[int(part)]
    key = path[-1]
    if isinstance(holder_value, list):
        _repair(data, root, path[:-1], {"type": "dropped"})
        return
    if not isinstance(holder_value, dict):
        return
    holder = find_model(root, data, path[:-1])
    field = _field(holder, key) if holder is not None else None
    if detail["type"] in ("literal_error", "missing") and field is not None and field.is_required:
        allowed = get_args(field.kind)
        nearest = name_nearest(str(holder_value.get(key)), [str(value) for value in allowed])
        fitting = [value for value in allowed if str(value) == nearest or len(allowed) == 1]
        if fitting:
            holder_value[key] = fitting[0]
            return
    allowed_types = _UNIONS.get(path[0], ())
    if detail["type"] == "union_tag_invalid" and (
        nearest := name_nearest(str(holder_value.get("type")), allowed_types)
    ):
        holder_value["type"] = nearest
        return
    holder_value.pop(key, None)
    if path in _STAND_INS and root is PipelineSpec:
        holder_value[key] = copy.deepcopy(_STAND_INS[path])
        return
    if (field is not None and field.is_required) or detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        _repair(data, root, path[:-1], {"type": "dropped"})
