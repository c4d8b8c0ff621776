"""Makes a model of a document: each fault once, and the nearest valid model for the checks across keys."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal, TypeVar, get_args, get_origin

from tidegate.spec.document import Document, KeyPath, name_path
from tidegate.spec.faults import describe_allowed, name_nearest, show_value
from tidegate.spec.model import BadValue, Model, Reading, lacking_keys, models_by_type
from tidegate.spec.models import PipelineSpec, RateSource, SourceSpec

STAND_IN_SOURCE = "unreadable"
"""Replaces a source that could not be read, so that the other keys can be checked."""

_STAND_INS: dict[KeyPath, object] = {
    ("name",): "unnamed",
    ("sources",): {STAND_IN_SOURCE: RateSource.construct(type="rate")},
}
_GONE: dict[tuple[str | int, object], tuple[str, str]] = {
    ("values", "as_spark"): (
        "as_spark is gone: Spark reads no records any more, so every value is held exactly or its record is malformed",
        "remove the line; run tidegate try, which shows the records that are malformed now (docs/reference/values.md)",
    )
}
"""What is said of a value that was allowed once, and what to do."""
_SOURCES_EXAMPLE = ", for example `sources: {events: {type: files, path: data/inbox, format: json, schema: id STRING}}`"
_SOURCES = models_by_type(SourceSpec)

M = TypeVar("M", bound=Model)


def build_model(document: Document, model: type[M], code: str = "BAD_SPEC") -> M | None:
    """The model of ``document``; faults are noted in the document.

    With faults, it is the nearest valid one, for the checks across keys. None when there is none.
    """
    if document.data is not None:
        with contextlib.suppress(BadValue):
            return _DocumentReading(document, model, code).read_model(model, document.data)
    return None


class _DocumentReading(Reading):
    """Notes faults in a document. A misspelt key is read as the key that was meant."""

    def __init__(self, document: Document, root: type[Model], code: str) -> None:
        super().__init__()
        self._document, self._root, self._code = document, root, code
        self._renamed: set[KeyPath] = set()
        """Keys that are needed and were misspelt: that is the fault to report, not what their value is."""
        self._guessed: set[KeyPath] = set()
        """Other keys that were misspelt: nothing in them is reported."""

    def note(self, path: KeyPath, message: str, fix: str) -> None:
        """Note a fault in the document, unless it may only follow from a misspelt key."""
        if path not in self._renamed and not any(path[: len(key)] == key for key in self._guessed):
            self._document.add_fault(path, message, fix, self._code)

    def show(self, path: KeyPath) -> str:
        """The value as the file has it."""
        try:
            return show_value(self._document.find_value(path), name_path(path))
        except LookupError:
            return show_value(None)

    def note_keys(self, model: type[Model], data: dict[str, object], path: KeyPath) -> None:
        """Note unknown keys and missing ones. A missing key takes the value of the unknown key nearest to it."""
        fields = list(model.fields())
        unknown = [key for key in data if key not in fields]
        lacking = lacking_keys(model, data)
        places = {key: self._name_place(model, data, key) for key in unknown}
        meant = self._find_meant(unknown, lacking, fields, data)
        for key in unknown:
            only = f"write {fields[0]}" if len(fields) == 1 and fields[0] not in data else None
            self.note((*path, key), f"unknown key {key!r}", places[key] or only or describe_allowed(key, fields))
            nearest = name_nearest(key, fields)
            if key not in meant and places[key] is None and nearest not in (None, *data, *meant.values()):
                meant[key] = str(nearest)
        for key in lacking:
            if key not in meant.values():
                self.note((*path, key), "the key is missing", f"add `{key}: ...`{_choices(model, key)}")
        for key, name in meant.items():
            (self._renamed if name in lacking else self._guessed).add((*path, name))
            self._document.rename((*path, key), (*path, name))

    @staticmethod
    def _find_meant(
        unknown: list[str], lacking: list[str], fields: list[str], data: dict[str, object]
    ) -> dict[str, str]:
        """Find the unknown keys that were meant to be keys that are needed."""
        meant: dict[str, str] = {}
        for name in lacking:
            typo = next((key for key in unknown if key not in meant and name_nearest(key, fields) == name), None)
            if typo is None and len(fields) == len(data) == 1:
                typo = unknown[0]  # of one key that there is, whatever it was called
            if typo is not None:
                meant[typo] = name
        return meant

    def find_tag(self, data: dict[str, object], path: KeyPath, words: Sequence[str]) -> str:
        """The word of the key ``type``, which may be misspelt too."""
        here = (*path, "type")
        if "type" not in data:
            typo = next((key for key in data if name_nearest(key, ["type"]) is not None), None)
            if typo is None:
                self.note(here, "the key is missing", f"add `type: ...`; allowed: {', '.join(words)}")
                raise BadValue
            self.note((*path, typo), f"unknown key {typo!r}", "write type")
            self._renamed.add(here)
            self._document.rename((*path, typo), here)
        return super().find_tag(data, path, words)

    def stand_in(self, path: KeyPath, kind: object, value: object) -> object:
        """Also for the name and the sources of a pipeline."""
        if self._root is PipelineSpec and path in _STAND_INS:
            return _STAND_INS[path]
        return super().stand_in(path, kind, value)

    def refuse_word(self, path: KeyPath, value: object, words: Sequence[str]) -> BadValue:
        """Also of a word that was allowed once."""
        if isinstance(value, str) and (path[-1], value) in _GONE:
            self.note(path, *_GONE[path[-1], value])
            return BadValue()
        return super().refuse_word(path, value, words)

    def _name_place(self, model: type[Model], data: dict[str, object], key: str) -> str | None:
        """Where a key belongs that is no key of a pipeline but one of its parts; None where it is of none."""
        if model is not PipelineSpec or name_nearest(key, lacking_keys(model, data)) is not None:
            return None
        places = []
        if any(key in source.fields() for source in _SOURCES.values()):
            sources = data.get("sources")
            named = sources.items() if isinstance(sources, dict) else ()
            names = [f"sources.{name}" for name, source in named if _takes(source, key)]
            places.append(f"to a source: write it in {' or '.join(names) or 'sources.NAME'}")
        parts = [name for name, field in model.fields().items() if _holds(field.kind, key)]
        places += [f"to {part}: write `{part}: {{{key}: ...}}`" for part in parts]
        return f"it belongs {'; or '.join(places)}" if places else None


def _takes(source: object, key: str) -> bool:
    """Return whether a source, as a file has it, can have a key."""
    word = str(source.get("type")) if isinstance(source, dict) else ""
    model = _SOURCES.get(word) or _SOURCES.get(name_nearest(word, _SOURCES) or "")
    return model is not None and key in model.fields()


def _holds(kind: object, key: str) -> bool:
    """Return whether a key of this kind takes a mapping with ``key``."""
    models = [one for one in (get_args(kind) or (kind,)) if isinstance(one, type) and issubclass(one, Model)]
    return any(key in model.fields() for model in models)


def _choices(model: type[Model], key: str) -> str:
    if model is PipelineSpec and key == "sources":
        return _SOURCES_EXAMPLE
    kind = model.fields()[key].kind
    return f"; allowed: {', '.join(map(str, get_args(kind)))}" if get_origin(kind) is Literal else ""
