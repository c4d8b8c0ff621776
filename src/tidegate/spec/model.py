"""Frozen models of configuration files, and how they are made of a document.

Each fault is noted once, and the nearest valid model is made for the checks across keys. pydantic is not used:
importing it takes 0.1 CPU-seconds, half of a run that finds nothing new.
"""

from __future__ import annotations

import contextlib
import copy
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from tidegate.spec.document import Document, KeyPath, name_path
from tidegate.spec.faults import describe_allowed, name_nearest, show_value


class ParsedFromText(NamedTuple):
    """A mark on a type: its values are written as text that fits ``pattern``, or as a bare 0 if ``takes_zero``."""

    noun: str
    parse: Callable[[object], float]
    """Raises ValueError with the form that is wanted."""
    pattern: str
    takes_zero: bool = False


class Matching(NamedTuple):
    """A mark on text: it has to match ``pattern``, which has both anchors."""

    pattern: str
    wanted: str
    """What to write."""

    def admits(self, value: object) -> bool:
        """Return whether ``value`` matches."""
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None


class Between(NamedTuple):
    """A mark on numbers, with both bounds included."""

    low: float
    high: float

    @property
    def wanted(self) -> str:
        """What to write."""
        return f"write a number from {self.low:g} to {self.high:g}"

    def admits(self, value: object) -> bool:
        """Return whether ``value`` is within the bounds."""
        return isinstance(value, float | int) and self.low <= value <= self.high


class NotEmpty:
    """A mark on collections: at least one entry."""

    wanted = "write at least one entry"

    def admits(self, value: object) -> bool:
        """Return whether ``value`` has an entry."""
        return bool(value)


class Wanted(NamedTuple):
    """A mark on a type: what to write instead of a value that has none of its forms."""

    wanted: str


class TaggedByType:
    """A mark on a union of models: the key ``type`` says which one it is."""


class Field(NamedTuple):
    """A field of a model, which is a key of the file: its type with marks, and its default."""

    kind: object
    is_required: bool
    default: object


class BadValue(ValueError):
    """A value cannot be read as its declared type. The fault is noted, or in the message, without the value."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Model:
    """Frozen, and refusing keys it does not know. ``Model(key=value)`` takes values as a file has them."""

    hidden: ClassVar[frozenset[str]] = frozenset()
    """Fields whose values may be secrets."""
    stand_ins: ClassVar[Mapping[str, object]] = {}
    """What replaces the value of a key of the whole file that cannot be read, so that the other keys can be checked."""
    examples: ClassVar[Mapping[str, str]] = {}
    """For a key that is missing: an example."""
    _fields: ClassVar[dict[str, Field]]
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, **keys: object) -> None:
        self.__dict__.update(self.read(keys).__dict__)

    @classmethod
    def read(cls, value: object) -> Self:
        """The model of a mapping as a file has it. Raises BadValue."""
        document = Document(cls.__name__, data=copy.deepcopy(value))
        made = build_model(document, cls)
        if made is None or document.faults:
            raise BadValue("; ".join(map(str, document.faults)))
        return made

    @classmethod
    def construct(cls, **values: object) -> Self:
        """The model with these values of its fields, which are trusted; the others are the defaults."""
        cls._check_names(values)
        made = object.__new__(cls)
        for name, field in cls.fields().items():
            if name in values or not field.is_required:
                made.__dict__[name] = values[name] if name in values else copy.deepcopy(field.default)
        made.__dict__["_fields_set"] = frozenset(values)
        return made

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """The fields by name, in the order of the class."""
        if "_fields" not in cls.__dict__:
            hints = get_type_hints(cls, include_extras=True)
            kinds = {name: kind for name, kind in hints.items() if get_origin(kind) is not ClassVar}
            assert not kinds.keys() & vars(Model).keys(), "a field has the name of a method"
            cls._fields = {
                name: Field(kind, not hasattr(cls, name), getattr(cls, name, None)) for name, kind in kinds.items()
            }
        return cls._fields

    @classmethod
    def find_lacking(cls, data: Mapping[str, object]) -> list[str]:
        """The keys that a mapping needs and does not have."""
        return [key for key, field in cls.fields().items() if field.is_required and key not in data]

    @classmethod
    def place_key(cls, data: Mapping[str, object], key: str) -> str | None:
        """Where a key belongs that this model does not have; None where that is unknown."""
        return None

    @property
    def fields_set(self) -> frozenset[str]:
        """The names of the fields that were given, instead of having their defaults."""
        found: frozenset[str] = self.__dict__["_fields_set"]
        return found

    def field_values(self) -> dict[str, object]:
        """The value of each field."""
        return {name: one for name, one in self.__dict__.items() if name != "_fields_set"}

    def replace(self, **changes: object) -> Self:
        """The same model with other values of some fields, which are trusted; ``fields_set`` stays the same."""
        self._check_names(changes)
        made = copy.copy(self)
        made.__dict__.update(changes)
        return made

    def to_json(self) -> dict[str, Any]:
        """All values as JSON."""
        return {name: _to_json(one) for name, one in self.field_values().items()}

    @classmethod
    def _check_names(cls, names: dict[str, object]) -> None:
        if unknown := names.keys() - cls.fields().keys():
            raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and type(other) is type(self) and self.field_values() == other.field_values()

    def __repr__(self) -> str:
        shown = [f"{name}={one!r}" for name, one in self.field_values().items() if name not in self.hidden]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")


def models_by_type(union: object) -> dict[str, type[Model]]:
    """The models of a union that is marked as TaggedByType, by the word that their key ``type`` has."""
    return {str(get_args(model.fields()["type"].kind)[0]): model for model in models_in(get_args(union)[0])}


def models_in(kind: object) -> list[type[Model]]:
    """The models that values of a kind may be, without those inside of these."""
    if isinstance(kind, type) and issubclass(kind, Model):
        return [kind]
    return [model for one in get_args(kind) for model in models_in(one)]


def _to_json(value: object) -> object:
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, dict):
        return {key: _to_json(one) for key, one in value.items()}
    return [_to_json(one) for one in value] if isinstance(value, list) else value


_GONE: dict[tuple[str | int, object], tuple[str, str]] = {
    ("values", "as_spark"): (
        "as_spark is gone: Spark reads no records any more, so every value is held exactly or its record is malformed",
        "remove the line; run tidegate try, which shows the records that are malformed now (docs/reference/values.md)",
    )
}
"""What is said of a value that was allowed once, and what to do."""

TRUTHS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
"""The texts that are read as a truth value, in whatever case."""

M = TypeVar("M", bound=Model)


def build_model(document: Document, model: type[M], code: str = "BAD_SPEC") -> M | None:
    """The model of ``document``; faults are noted in the document.

    With faults, it is the nearest valid one, for the checks across keys. None when there is none.
    """
    if document.data is not None:
        with contextlib.suppress(BadValue):
            return Reading(document, model, code).read_model(model, document.data)
    return None


class Reading:
    """Reads values of a document: converts them to the declared types, and notes each fault in the document.

    A value that cannot be read is replaced by the nearest allowed word or the default, or else it is omitted with the
    part around it, so that the rest is read too. A misspelt key is read as the key that was meant.
    """

    def __init__(self, document: Document, root: type[Model], code: str) -> None:
        self._document, self._root, self._code = document, root, code
        self._renamed: set[KeyPath] = set()
        """Keys that are needed and were misspelt: that is the fault to report, not what their value is."""
        self._guessed: set[KeyPath] = set()
        """Other keys that were misspelt: nothing in them is reported."""
        self._incomplete: set[KeyPath] = set()
        """Mappings that lack entries which could not be read."""

    def _note(self, path: KeyPath, message: str, fix: str) -> None:
        """Note a fault, unless it may only follow from a misspelt key."""
        if path not in self._renamed and not any(path[: len(key)] == key for key in self._guessed):
            self._document.add_fault(path, message, fix, self._code)

    def _show(self, path: KeyPath) -> str:
        """The value as the file has it."""
        try:
            return show_value(self._document.find_value(path), name_path(path))
        except LookupError:
            return show_value(None)

    def _note_keys(self, model: type[Model], data: dict[str, object], path: KeyPath) -> None:
        """Note unknown keys and missing ones. A missing key takes the value of the unknown key nearest to it."""
        fields = list(model.fields())
        unknown = [key for key in data if key not in fields]
        lacking = model.find_lacking(data)
        places = {key: model.place_key(data, key) for key in unknown}
        meant = self._find_meant(unknown, lacking, fields, data)
        for key in unknown:
            only = f"write {fields[0]}" if len(fields) == 1 and fields[0] not in data else None
            self._note((*path, key), f"unknown key {key!r}", places[key] or only or describe_allowed(key, fields))
            nearest = name_nearest(key, fields)
            if key not in meant and places[key] is None and nearest not in (None, *data, *meant.values()):
                meant[key] = str(nearest)
        for key in lacking:
            if key not in meant.values():
                self._note((*path, key), "the key is missing", f"add `{key}: ...`{_choices(model, key)}")
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

    def _find_tag(self, data: dict[str, object], path: KeyPath, words: Sequence[str]) -> str:
        """The word that the key ``type`` of a mapping is, or was meant to be. Raises BadValue."""
        here = (*path, "type")
        if "type" not in data:
            typo = next((key for key in data if name_nearest(key, ["type"]) is not None), None)
            if typo is None:
                self._note(here, "the key is missing", f"add `type: ...`; allowed: {', '.join(words)}")
                raise BadValue
            self._note((*path, typo), f"unknown key {typo!r}", "write type")
            self._renamed.add(here)
            self._document.rename((*path, typo), here)
        word = data["type"]
        if word in words:
            return str(word)
        what = "sink" if path[:1] == ("sinks",) else "source"
        self._note(here, f"{self._show(here)} is not a type of {what}", describe_allowed(str(word), words))
        if (nearest := name_nearest(str(word), words)) is None:
            raise BadValue
        return nearest

    def _stand_in(self, path: KeyPath, kind: object, value: object) -> object:
        """What replaces a value that is needed, and wrong or missing. Raises BadValue when nothing can."""
        if len(path) == 1 and path[0] in self._root.stand_ins:
            return self._root.stand_ins[str(path[0])]
        words = get_args(kind) if get_origin(kind) is Literal else ()
        nearest = name_nearest(str(value), map(str, words))
        for word in words:
            if str(word) == nearest or len(words) == 1:
                return word
        raise BadValue

    def _refuse_word(self, path: KeyPath, value: object, words: Sequence[str]) -> BadValue:
        gone = _GONE.get((path[-1], value)) if isinstance(value, str) else None
        self._note(path, *(gone or (f"{self._show(path)} is not allowed", describe_allowed(str(value), words))))
        return BadValue()

    def _refuse(self, path: KeyPath, fix: str) -> BadValue:
        self._note(path, f"{self._show(path)} is not valid here", fix)
        return BadValue()

    def read_model(self, model: type[M], data: object, path: KeyPath = (), tag: str | None = None) -> M:
        """The model of a mapping; ``tag`` replaces the word of its key ``type``. Raises BadValue."""
        if isinstance(data, model):
            return data
        if type(data) is not dict:
            raise self._refuse(path, _MAPPING)
        fields = model.fields()
        if not fields.keys() >= data.keys() or model.find_lacking(data):
            self._note_keys(model, data, path)
        read: dict[str, object] = {} if tag is None else {"type": tag}
        lacking = model.find_lacking(data)
        for key, field in fields.items():
            if key in data and key not in read:
                try:
                    read[key] = self.read_value(field.kind, data[key], (*path, key))
                except BadValue:
                    if field.is_required:
                        lacking.append(key)
        for key in lacking:
            read[key] = self._stand_in((*path, key), fields[key].kind, data.get(key))
        return model.construct(**read)

    def read_value(self, kind: object, value: object, path: KeyPath) -> object:
        """``value`` as a value of ``kind``. Raises BadValue for a fault, which is noted."""
        if isinstance(kind, type) and issubclass(kind, Model):
            return self.read_model(kind, value, path)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._read_marked(kind, value, path)
        if origin is Literal:
            for word in arguments:
                with contextlib.suppress(ValueError, OverflowError):
                    if word == (value if type(word) is type(value) else _convert(type(word), value)):
                        return word
            raise self._refuse_word(path, value, list(map(str, arguments)))
        if origin is list:
            return self._read_list(arguments[0], value, path)
        if origin is dict:
            return self._read_dict(arguments[0], arguments[1], value, path)
        if origin in (Union, types.UnionType):
            return self._read_union(kind, value, path)
        return self._read_plain(kind, value, path)

    def _read_list(self, kind: object, value: object, path: KeyPath) -> list[object]:
        if type(value) is not list:
            raise self._refuse(path, "write a list: [a, b]")
        found = []
        for index, one in enumerate(value):
            try:
                found.append(self.read_value(kind, one, (*path, index)))
            except BadValue:
                self._document.left_out.append((path, index))
        if len(found) < len(value) and not (found and models_in(kind)):
            raise BadValue
        return found

    def _read_dict(self, key_kind: object, kind: object, value: object, path: KeyPath) -> dict[str, object]:
        if type(value) is not dict:
            raise self._refuse(path, _MAPPING)
        marks = [mark for mark in get_args(key_kind) if isinstance(mark, Matching)]
        found = {}
        for key, one in value.items():
            here = (*path, key)
            wrong = [mark for mark in marks if not mark.admits(key)]
            for mark in wrong:
                self._note(here, f"the name {key!r} is not allowed", mark.wanted)
            try:
                read = self.read_value(kind, one, here)
            except BadValue:
                self._incomplete.add(path)
                continue
            if not wrong:
                found[key] = read
        return found

    def _read_union(self, kind: object, value: object, path: KeyPath) -> object:
        """By the first kind that has values of this form; without one, as the first kind, which notes why not."""
        kinds = get_args(kind)
        words = [str(word) for one in kinds if get_origin(one) is Literal for word in get_args(one)]
        fitting = next((one for one in kinds if type(value) in _forms_of(one)), None)
        if words and (fitting is None or get_origin(fitting) is Literal) and value not in words:
            mappings = ["{" + ", ".join(f"{key}: ..." for key in model.fields()) + "}" for model in models_in(kind)]
            raise self._refuse_word(path, value, [*words, *mappings])
        return self.read_value(kinds[0] if fitting is None else fitting, value, path)

    def _read_marked(self, marked: object, value: object, path: KeyPath) -> object:
        kind, *marks = get_args(marked)
        for mark in marks:
            if isinstance(mark, ParsedFromText):
                try:
                    return mark.parse(value)
                except ValueError as error:
                    self._note(path, f"{self._show(path)} is not a {mark.noun}", str(error).rpartition("; ")[2])
                    raise BadValue from None
            if isinstance(mark, TaggedByType) and not isinstance(value, Model):
                if type(value) is not dict:
                    raise self._refuse(path, _MAPPING)
                models = models_by_type(marked)
                tag = self._find_tag(value, path, list(models))
                return self.read_model(models[tag], value, path, tag)
            if isinstance(mark, Wanted) and type(value) not in _forms_of(kind):
                raise self._refuse(path, mark.wanted)
        read = self.read_value(kind, value, path)
        for mark in marks:
            if isinstance(mark, Wanted) and any(one[: len(path)] == path for one in self._incomplete):
                raise BadValue
            if isinstance(mark, Matching | Between | NotEmpty) and not mark.admits(read):
                if isinstance(mark, Matching):
                    self._note(path, f"{self._show(path)} is not allowed", mark.wanted)
                elif not (isinstance(mark, NotEmpty) and value):  # or the faults of all entries are noted
                    self._refuse(path, mark.wanted)
                raise BadValue
        return read

    def _read_plain(self, kind: object, value: object, path: KeyPath) -> object:
        if type(value) is kind or (value is None and kind is type(None)):
            return value
        with contextlib.suppress(ValueError, OverflowError):
            return _convert(kind, value)
        if kind is str and isinstance(value, bool | int | float):
            raise self._refuse(path, f'write text; quote it if it is meant: "{value}"')
        raise self._refuse(path, _PLAIN[kind])


def _choices(model: type[Model], key: str) -> str:
    if key in model.examples:
        return f", for example `{model.examples[key]}`"
    kind = model.fields()[key].kind
    return f"; allowed: {', '.join(map(str, get_args(kind)))}" if get_origin(kind) is Literal else ""


_MAPPING = "write a mapping: `key: value`"
_PLAIN: dict[object, str] = {
    str: "write text",
    int: "write a whole number",
    float: "write a number",
    bool: "write true or false",
    type(None): "write null",
}


def _forms_of(kind: object) -> Collection[object]:
    """The types of the values, as a file has them, that a kind is chosen for in a union."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Model):
        return dict, kind
    if origin is Annotated:
        return (str, int) if any(isinstance(one, ParsedFromText) for one in arguments) else _forms_of(arguments[0])
    if origin is Literal:
        return {type(word) for word in arguments}
    if origin in (Union, types.UnionType):
        return {form for one in arguments for form in _forms_of(one)}
    return (float, int) if kind is float else (origin or kind,)


def _convert(kind: object, value: object) -> object:
    """A value of a plain type as one of another, where none of it is lost. Raises ValueError, OverflowError."""
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(kind)
    if kind is bool and isinstance(value, str) and text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    if kind is float:
        return float(value)
    if kind is int and isinstance(value, str):
        return int(value)
    if kind is int and float(value).is_integer():
        return int(value)
    raise ValueError(kind)
