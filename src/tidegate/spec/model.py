"""Frozen models of configuration files. :mod:`tidegate.spec.reading` makes them of what a file has."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    NoReturn,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)


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
        from tidegate.spec.reading import read_alone  # imports this module

        return read_alone(cls, value)

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
