"""Frozen records whose fields are the keys of a file, read without a library as long as the file is right.

A run that finds nothing new takes 0.2 CPU-seconds, and to import pydantic takes 0.1. So what is exactly of the
declared type is taken here, and everything else is left to :mod:`tidegate.spec.validation`, which converts it
or says what is wrong with it. A test compares the two.
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

REQUIRED: Any = object()
"""The default of a field without one."""


class Written(NamedTuple):
    """A mark on a type: its values are written as text that fits ``pattern``, or as a bare 0 if ``takes_zero``."""

    parse: Callable[[object], Any]
    """Raises ValueError with the form that is wanted."""
    pattern: str
    takes_zero: bool = False


class Matching(NamedTuple):
    """A mark on text: it has to match ``pattern``, which has both anchors."""

    pattern: str


class Between(NamedTuple):
    """A mark on numbers, with both bounds included."""

    low: float
    high: float


class ByType:
    """A mark on a union of models: the key ``type`` says which one it is."""


class NotEmpty:
    """A mark on collections: at least one entry."""


class _Key(NamedTuple):
    default: Any
    alias: str | None
    repr: bool


def key(*, default: Any = REQUIRED, alias: str | None = None, repr: bool = True) -> Any:
    """A field whose key in the file is ``alias``, or whose value is not to be shown."""
    return _Key(default, alias, repr)


class Field(NamedTuple):
    """A field of a model: ``name`` in Python, ``key`` in the file, ``kind`` its type with marks."""

    name: str
    key: str
    kind: Any
    default: Any
    is_shown: bool

    @property
    def is_required(self) -> bool:
        """Whether the file must have it."""
        return self.default is REQUIRED


class Doubtful(ValueError):
    """A value is not exactly of its declared type. It may still be meant so, or be wrong."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
class Strict:
    """Frozen, and refusing keys it does not know. Made from the values of keys as a file has them."""

    _fields: ClassVar[dict[str, Field]]

    def __init__(self, **keys: Any) -> None:
        self.__dict__.update(self.read(keys).__dict__)

    @classmethod
    def read(cls, value: object) -> Self:
        """The model of a mapping as a file has it. Raises Doubtful where that takes more than a look at its types."""
        if type(value) is not dict:
            raise _doubt(cls, value)
        by_key = {one.key: one for one in cls.fields().values()}
        if not by_key.keys() >= value.keys():
            raise Doubtful(f"keys that {cls.__name__} does not have: {sorted(map(str, value.keys() - by_key.keys()))}")
        values = {by_key[key].name: _read(by_key[key].kind, one) for key, one in value.items()}
        lacks = [one.key for name, one in cls.fields().items() if one.is_required and name not in values]
        if lacks:
            raise Doubtful(f"{cls.__name__} without {', '.join(lacks)}")
        return cls.of(**values)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """The model with these values of its fields, which are trusted; the others are the defaults."""
        made = object.__new__(cls)
        for name, one in cls.fields().items():
            made.__dict__[name] = values[name] if name in values else copy.copy(one.default)
        made.__dict__["_given"] = frozenset(values)
        return made

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """The fields by name, in the order of the class."""
        if "_fields" not in cls.__dict__:
            cls._fields = {
                name: _describe(cls, name, kind)
                for name, kind in get_type_hints(cls, include_extras=True).items()
                if get_origin(kind) is not ClassVar
            }
        return cls._fields

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that were set, instead of having their defaults."""
        found: frozenset[str] = self.__dict__["_given"]
        return found

    def settings(self) -> dict[str, Any]:
        """The value of each field by name."""
        return {name: self.__dict__[name] for name in self.fields()}

    def replace(self, **changes: Any) -> Self:
        """The same model with other values of some fields, which are trusted; what was given stays the same."""
        made = copy.copy(self)
        made.__dict__.update(changes)
        return made

    def to_json(self) -> dict[str, Any]:
        """All values as JSON, by key."""
        return {one.key: _to_json(self.__dict__[name]) for name, one in self.fields().items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strict) and type(other) is type(self) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash((type(self), *self.settings().values()))

    def __repr__(self) -> str:
        shown = [f"{name}={self.__dict__[name]!r}" for name, one in self.fields().items() if one.is_shown]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")


def _describe(cls: type[Strict], name: str, kind: Any) -> Field:
    default = getattr(cls, name, REQUIRED)
    if isinstance(default, _Key):
        return Field(name, default.alias or name, kind, default.default, default.repr)
    return Field(name, name, kind, default, True)


def _to_json(value: Any) -> Any:
    if isinstance(value, Strict):
        return value.to_json()
    if isinstance(value, dict):
        return {key: _to_json(one) for key, one in value.items()}
    return [_to_json(one) for one in value] if isinstance(value, list) else value


def _read(kind: Any, value: Any) -> Any:
    """``value`` as a value of ``kind``. Raises Doubtful."""
    if isinstance(kind, type) and issubclass(kind, Strict):
        return value if isinstance(value, kind) else kind.read(value)
    if kind in (str, int, bool, type(None)):
        if type(value) is not kind:
            raise _doubt(kind, value)
        return value
    if kind is float:
        if type(value) not in (int, float):
            raise _doubt(kind, value)
        return float(value)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _read_marked(arguments[0], arguments[1:], value)
    if origin is Literal:
        if not any(type(one) is type(value) and one == value for one in arguments):
            raise _doubt(kind, value)
        return value
    if origin is list and type(value) is list:
        return [_read(arguments[0], one) for one in value]
    if origin is dict and type(value) is dict:
        return {_read(arguments[0], key): _read(arguments[1], one) for key, one in value.items()}
    if origin in (Union, types.UnionType):
        return _read_union(kind, value)
    raise _doubt(kind, value)


def _read_union(kind: Any, value: object) -> Any:
    for one in get_args(kind):
        try:
            return _read(one, value)
        except Doubtful:
            continue
    raise _doubt(kind, value)


def _read_marked(kind: Any, marks: tuple[Any, ...], value: Any) -> Any:
    for mark in marks:
        if isinstance(mark, Written):
            try:
                value = mark.parse(value)
            except ValueError:
                raise _doubt(kind, value) from None
        elif isinstance(mark, ByType) and not isinstance(value, Strict):
            of_type = [one for one in get_args(kind) if isinstance(value, dict) and _is_of_type(one, value.get("type"))]
            if len(of_type) != 1:
                raise _doubt(kind, value)
            kind = of_type[0]
    made = _read(kind, value)
    for mark in marks:
        if (
            (isinstance(mark, Matching) and re.fullmatch(mark.pattern, made) is None)
            or (isinstance(mark, Between) and not mark.low <= made <= mark.high)
            or (isinstance(mark, NotEmpty) and not made)
        ):
            raise _doubt(kind, value)
    return made


def _is_of_type(model: type[Strict], word: object) -> bool:
    return word in get_args(model.fields()["type"].kind)


def _doubt(kind: Any, value: object) -> Doubtful:
    return Doubtful(f"not exactly a {getattr(kind, '__name__', kind)}: {value!r}")
