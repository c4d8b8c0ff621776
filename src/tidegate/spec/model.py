"""Frozen models of configuration files, and how values of a file become one.

pydantic is not used: importing it takes 0.1 CPU-seconds, half of a run that finds nothing new.
"""

from __future__ import annotations

import contextlib
import copy
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
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

from tidegate.spec.faults import describe_allowed, name_nearest

if TYPE_CHECKING:
    from tidegate.spec.document import KeyPath

M = TypeVar("M", bound="Model")

_TRUTHS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
"""The texts that are read as a truth value, in whatever case."""


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
    _fields: ClassVar[dict[str, Field]]
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, **keys: object) -> None:
        self.__dict__.update(self.read(keys).__dict__)

    @classmethod
    def read(cls, value: object) -> Self:
        """The model of a mapping as a file has it. Raises BadValue."""
        reading = Reading()
        with contextlib.suppress(BadValue):
            made = reading.read_model(cls, value)
            if not reading.faults:
                return made
        raise BadValue(f"not a {cls.__name__}: {'; '.join(reading.faults)}")

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


class Reading:
    """Reads values as a file has them: converts them to the declared types, and notes each fault.

    A value that cannot be read is replaced by the nearest allowed word or the default, or else it is left out with the
    part around it, so that the rest is read too.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._incomplete: set[KeyPath] = set()
        """Mappings that lack entries which could not be read."""

    def note(self, path: KeyPath, message: str, fix: str) -> None:
        """Note a fault."""
        self.faults.append(f"{'.'.join(map(str, path))}: {message} ({fix})")

    def show(self, path: KeyPath) -> str:
        """The value at ``path`` as an error may show it: it may be a secret."""
        return "the value"

    def note_keys(self, model: type[Model], data: dict[str, object], path: KeyPath) -> None:
        """Note keys of a mapping that its model does not have, and keys that are missing."""
        fields = model.fields()
        for key in [one for one in data if one not in fields]:
            self.note((*path, key), f"unknown key {key!r}", describe_allowed(key, list(fields)))
        for key in lacking_keys(model, data):
            self.note((*path, key), "the key is missing", f"add `{key}: ...`")

    def find_tag(self, data: dict[str, object], path: KeyPath, words: Sequence[str]) -> str:
        """The word that the key ``type`` of a mapping is, or was meant to be. Raises BadValue."""
        word = data.get("type")
        if word in words:
            return str(word)
        here, what = (*path, "type"), "sink" if path[:1] == ("sinks",) else "source"
        self.note(here, f"{self.show(here)} is not a type of {what}", describe_allowed(str(word), words))
        if (nearest := name_nearest(str(word), words)) is None:
            raise BadValue
        return nearest

    def stand_in(self, path: KeyPath, kind: object, value: object) -> object:
        """What replaces a value that is needed, and wrong or missing. Raises BadValue when nothing can."""
        words = get_args(kind) if get_origin(kind) is Literal else ()
        nearest = name_nearest(str(value), map(str, words))
        for word in words:
            if str(word) == nearest or len(words) == 1:
                return word
        raise BadValue

    def refuse_word(self, path: KeyPath, value: object, words: Sequence[str]) -> BadValue:
        """Note a value that is none of the allowed words."""
        self.note(path, f"{self.show(path)} is not allowed", describe_allowed(str(value), words))
        return BadValue()

    def _refuse(self, path: KeyPath, fix: str) -> BadValue:
        self.note(path, f"{self.show(path)} is not valid here", fix)
        return BadValue()

    def read_model(self, model: type[M], data: object, path: KeyPath = (), tag: str | None = None) -> M:
        """The model of a mapping; ``tag`` replaces the word of its key ``type``. Raises BadValue."""
        if isinstance(data, model):
            return data
        if type(data) is not dict:
            raise self._refuse(path, _MAPPING)
        fields = model.fields()
        if not fields.keys() >= data.keys() or lacking_keys(model, data):
            self.note_keys(model, data, path)
        read: dict[str, object] = {} if tag is None else {"type": tag}
        lacking = lacking_keys(model, data)
        for key, field in fields.items():
            if key in data and key not in read:
                try:
                    read[key] = self.read_value(field.kind, data[key], (*path, key))
                except BadValue:
                    if field.is_required:
                        lacking.append(key)
        for key in lacking:
            read[key] = self.stand_in((*path, key), fields[key].kind, data.get(key))
        return model.construct(**read)

    def read_value(self, kind: object, value: object, path: KeyPath) -> object:
        """``value`` as a value of ``kind``. Raises BadValue for a fault, which is noted."""
        if isinstance(kind, type) and issubclass(kind, Model):
            return self.read_model(kind, value, path)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._read_marked(kind, value, path)
        if origin is Literal:
            if any(type(one) is type(value) and one == value for one in arguments):
                return value
            raise self.refuse_word(path, value, list(map(str, arguments)))
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
            with contextlib.suppress(BadValue):
                found.append(self.read_value(kind, one, (*path, index)))
        if len(found) < len(value):  # as a whole: others would have the places of those that are missing
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
                self.note(here, f"the name {key!r} is not allowed", mark.wanted)
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
            raise self.refuse_word(path, value, [*words, *mappings])
        return self.read_value(kinds[0] if fitting is None else fitting, value, path)

    def _read_marked(self, marked: object, value: object, path: KeyPath) -> object:
        kind, *marks = get_args(marked)
        for mark in marks:
            if isinstance(mark, ParsedFromText):
                try:
                    return mark.parse(value)
                except ValueError as error:
                    self.note(path, f"{self.show(path)} is not a {mark.noun}", str(error).rpartition("; ")[2])
                    raise BadValue from None
            if isinstance(mark, TaggedByType) and not isinstance(value, Model):
                if type(value) is not dict:
                    raise self._refuse(path, _MAPPING)
                models = models_by_type(marked)
                tag = self.find_tag(value, path, list(models))
                return self.read_model(models[tag], value, path, tag)
            if isinstance(mark, Wanted) and type(value) not in _forms_of(kind):
                raise self._refuse(path, mark.wanted)
        read = self.read_value(kind, value, path)
        for mark in marks:
            if isinstance(mark, Wanted) and any(one[: len(path)] == path for one in self._incomplete):
                raise BadValue
            if isinstance(mark, Matching | Between | NotEmpty) and not mark.admits(read):
                if isinstance(mark, Matching):
                    self.note(path, f"{self.show(path)} is not allowed", mark.wanted)
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


_MAPPING = "write a mapping: `key: value`"
_PLAIN: dict[object, str] = {
    str: "write text",
    int: "write a whole number",
    float: "write a number",
    bool: "write true or false",
    type(None): "write null",
}


def lacking_keys(model: type[Model], data: Mapping[str, object]) -> list[str]:
    """The keys that a mapping needs and does not have."""
    return [key for key, field in model.fields().items() if field.is_required and key not in data]


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
    if kind is bool and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    if kind is float:
        return float(value)
    if kind is int and isinstance(value, str):
        return int(value)
    if kind is int and float(value).is_integer():
        return int(value)
    raise ValueError(kind)
