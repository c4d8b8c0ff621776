"""Frozen models of configuration files.

A file whose values already have the declared types is read without importing pydantic, which takes 0.1 CPU-seconds:
half of a run that finds nothing new. Values of another type are passed to :mod:`tidegate.spec.validation`, which
converts or reports them.
"""

from __future__ import annotations

import copy
import re
import types
from collections.abc import Callable
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NoReturn,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)


class ParsedFromText(NamedTuple):
    """A mark on a type: its values are written as text that fits ``pattern``, or as a bare 0 if ``takes_zero``."""

    parse: Callable[[object], Any]
    """Raises ValueError with the form that is wanted."""
    pattern: str
    takes_zero: bool = False


class Matching(NamedTuple):
    """A mark on text: it has to match ``pattern``, which has both anchors."""

    pattern: str

    def admits(self, value: str) -> bool:
        """Return whether ``value`` matches."""
        return re.fullmatch(self.pattern, value) is not None


class Between(NamedTuple):
    """A mark on numbers, with both bounds included."""

    low: float
    high: float

    def admits(self, value: float) -> bool:
        """Return whether ``value`` is within the bounds."""
        return self.low <= value <= self.high


class NotEmpty:
    """A mark on collections: at least one entry."""

    def admits(self, value: object) -> bool:
        """Return whether ``value`` has an entry."""
        return bool(value)


class TaggedByType:
    """A mark on a union of models: the key ``type`` says which one it is."""


class Field(NamedTuple):
    """A field of a model, which is a key of the file: its type with marks, and its default."""

    kind: Any
    is_required: bool
    default: Any


class NotExact(ValueError):
    """A value is not exactly of its declared type: it needs conversion, or is invalid."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Model:
    """Frozen, and refusing keys it does not know. ``Model(key=value)`` takes values as a file has them."""

    hidden: ClassVar[frozenset[str]] = frozenset()
    """Fields whose values may be secrets."""
    _fields: ClassVar[dict[str, Field]]
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, **keys: Any) -> None:
        self.__dict__.update(self.read(keys).__dict__)

    @classmethod
    def read(cls, value: object) -> Self:
        """The model of a mapping as a file has it. Raises NotExact if a value needs conversion or is invalid."""
        if type(value) is not dict:
            raise _not_exact(cls)
        fields = cls.fields()
        if not fields.keys() >= value.keys():
            raise NotExact(f"keys that {cls.__name__} does not have: {sorted(map(str, value.keys() - fields.keys()))}")
        lacks = [name for name, field in fields.items() if field.is_required and name not in value]
        if lacks:
            raise NotExact(f"{cls.__name__} without {', '.join(lacks)}")
        return cls.construct(**{name: _read_value(fields[name].kind, one) for name, one in value.items()})

    @classmethod
    def construct(cls, **values: Any) -> Self:
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

    def field_values(self) -> dict[str, Any]:
        """The value of each field."""
        return {name: one for name, one in self.__dict__.items() if name != "_fields_set"}

    def replace(self, **changes: Any) -> Self:
        """The same model with other values of some fields, which are trusted; ``fields_set`` stays the same."""
        self._check_names(changes)
        made = copy.copy(self)
        made.__dict__.update(changes)
        return made

    def to_json(self) -> dict[str, Any]:
        """All values as JSON."""
        return {name: _to_json(one) for name, one in self.field_values().items()}

    @classmethod
    def _check_names(cls, names: dict[str, Any]) -> None:
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


def models_by_type(union: Any) -> dict[str, type[Model]]:
    """The models of a union that is marked as TaggedByType, by the word that their key ``type`` has."""
    models = get_args(get_args(union)[0])
    return {get_args(model.fields()["type"].kind)[0]: model for model in models}


def _to_json(value: Any) -> Any:
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, dict):
        return {key: _to_json(one) for key, one in value.items()}
    return [_to_json(one) for one in value] if isinstance(value, list) else value


def _read_value(kind: Any, value: Any) -> Any:
    """``value`` as a value of ``kind``. Raises NotExact."""
    if isinstance(kind, type) and issubclass(kind, Model):
        return value if isinstance(value, kind) else kind.read(value)
    if kind in (str, int, bool, type(None)) and type(value) is kind:
        return value
    if kind is float and type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise _not_exact(kind) from None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _read_marked(kind, value)
    if origin is Literal and any(type(one) is type(value) and one == value for one in arguments):
        return value
    if origin is list and type(value) is list:
        return [_read_value(arguments[0], one) for one in value]
    if origin is dict and type(value) is dict:
        return {_read_value(arguments[0], key): _read_value(arguments[1], one) for key, one in value.items()}
    if origin in (Union, types.UnionType):
        for one in arguments:
            try:
                return _read_value(one, value)
            except NotExact:
                continue
    raise _not_exact(kind)


def _read_marked(marked: Any, value: Any) -> Any:
    kind, *marks = get_args(marked)
    for mark in marks:
        if isinstance(mark, ParsedFromText):
            try:
                value = mark.parse(value)
            except ValueError:
                raise _not_exact(kind) from None
        elif isinstance(mark, TaggedByType) and isinstance(value, dict):
            word = value.get("type")
            kind = models_by_type(marked).get(word) if isinstance(word, str) else None
    made = _read_value(kind, value)
    if not all(mark.admits(made) for mark in marks if isinstance(mark, Matching | Between | NotEmpty)):
        raise _not_exact(kind)
    return made


def _not_exact(kind: Any) -> NotExact:
    """Without the value, which may be a secret."""
    return NotExact(f"a value is not exactly a {getattr(kind, '__name__', kind)}")
