"""Models by pydantic: it converts values of other types than the declared ones, and finds all faults at once."""

from __future__ import annotations

import threading
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict

from tidegate.spec.model import Between, ByType, Matching, NotEmpty, Strict, Written

_S = TypeVar("_S", bound=Strict)
_building = threading.RLock()
"""The pages read specs in threads."""
_checkers: dict[type[Strict], type[BaseModel]] = {}


class _Checked(BaseModel):
    """Base of the models that check for :class:`Strict` ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, arbitrary_types_allowed=True)
    of: ClassVar[type[Strict]]


def validate(model: type[_S], value: object) -> tuple[_S | None, list[Any]]:
    """The model of a mapping as a file has it, or what pydantic says of each of its faults."""
    try:
        return cast(_S, _take(checker_of(model).model_validate(value))), []
    except pydantic.ValidationError as error:
        return None, list(error.errors(include_url=False, include_input=True))


def checker_of(model: type[Strict]) -> type[BaseModel]:
    """The pydantic model with the fields of ``model``, under its name."""
    with _building:
        if model not in _checkers:
            _checkers[model] = _make_checker(model)
        return _checkers[model]


def _make_checker(model: type[Strict]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, one in model.fields().items():
        default = ... if one.is_required else _as_checked(one.default)
        alias = one.key if one.key != name else None
        fields[name] = (_kind_of(one.kind), pydantic.Field(default, alias=alias, repr=one.is_shown))
    made = pydantic.create_model(
        model.__name__, __base__=_Checked, __module__=model.__module__, __doc__=model.__doc__, **fields
    )
    made.of = model
    return made


def _kind_of(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Strict):
        return checker_of(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is None or origin is Literal:
        return kind
    if origin is Annotated:
        return Annotated[(_kind_of(arguments[0]), *map(_mark_of, arguments[1:]))]
    inner = tuple(map(_kind_of, arguments))
    return origin[inner] if origin in (list, dict) else Union[inner]  # noqa: UP007 - the kinds are known only here


def _mark_of(mark: Any) -> Any:
    if isinstance(mark, Written):
        written: Any = Annotated[str, pydantic.Field(pattern=mark.pattern)]
        return BeforeValidator(mark.parse, json_schema_input_type=written | Literal[0] if mark.takes_zero else written)
    if isinstance(mark, Matching):
        return pydantic.Field(pattern=mark.pattern)
    if isinstance(mark, Between):
        return pydantic.Field(ge=mark.low, le=mark.high)
    if isinstance(mark, NotEmpty):
        return pydantic.Field(min_length=1)
    assert isinstance(mark, ByType)
    return pydantic.Field(discriminator="type")


def _as_checked(value: Any) -> Any:
    """A default as the checking models have it."""
    if not isinstance(value, Strict):
        return value
    return checker_of(type(value)).model_construct(**{name: getattr(value, name) for name in value.given})


def _take(value: Any) -> Any:
    """What was checked, in models of our own."""
    if isinstance(value, _Checked):
        return value.of.of(**{name: _take(getattr(value, name)) for name in value.model_fields_set})
    if isinstance(value, dict):
        return {key: _take(one) for key, one in value.items()}
    return [_take(one) for one in value] if isinstance(value, list) else value
