"""Validation with pydantic: converts values to the declared types, and reports all errors of a file."""

from __future__ import annotations

import threading
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

import pydantic
from pydantic_core import PydanticCustomError

from tidegate.spec.model import Between, Matching, Model, NotEmpty, ParsedFromText, TaggedByType

_M = TypeVar("_M", bound=Model)
_building = threading.RLock()
"""The pages read specs in threads."""
_checkers: dict[type[Model], type[pydantic.BaseModel]] = {}


class _Checked(pydantic.BaseModel):
    """Base of the pydantic models; ``model`` is the model that each builds."""

    model_config = pydantic.ConfigDict(extra="forbid")
    model: ClassVar[type[Model]]


def validate(model: type[_M], value: object) -> tuple[_M | None, list[Any]]:
    """The model of a mapping as a file has it, or what pydantic says of each error."""
    try:
        return cast(_M, _to_model(checker_of(model).model_validate(value))), []
    except pydantic.ValidationError as error:
        return None, list(error.errors(include_url=False, include_input=True))


def checker_of(model: type[Model]) -> type[pydantic.BaseModel]:
    """The pydantic model with the fields of ``model``, under its name."""
    with _building:
        if model not in _checkers:
            _checkers[model] = _make_checker(model)
        return _checkers[model]


def _make_checker(model: type[Model]) -> type[pydantic.BaseModel]:
    fields: dict[str, Any] = {}
    for name, field in model.fields().items():
        default = field.default.to_json() if isinstance(field.default, Model) else field.default
        # Its own name would hide a method of pydantic's models: `schema`, for example.
        alias = pydantic.Field(... if field.is_required else default, alias=name)
        fields[f"{name}_"] = (_to_pydantic(field.kind), alias)
    made = pydantic.create_model(model.__name__, __base__=_Checked, __doc__=model.__doc__, **fields)
    made.model = model
    return made


def _to_pydantic(kind: Any) -> Any:
    """A type of our models as pydantic has it."""
    if isinstance(kind, type) and issubclass(kind, Model):
        return checker_of(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (int, float):
        return Annotated[kind, pydantic.BeforeValidator(_refuse_bool)]
    if origin is None or origin is Literal:
        return kind
    if origin is Annotated:
        base, *marks = arguments
        if any(isinstance(mark, Between) for mark in marks):  # bounds have to be next to their type
            return Annotated[(base, *map(_mark_to_pydantic, marks), pydantic.BeforeValidator(_refuse_bool))]
        kind = base if base in (int, float) else _to_pydantic(base)
        return Annotated[(kind, *map(_mark_to_pydantic, marks))]
    inner = tuple(map(_to_pydantic, arguments))
    return origin[inner] if origin in (list, dict) else Union[inner]  # noqa: UP007 - the kinds are known only here


def _refuse_bool(value: Any) -> Any:
    """Raise where true and false would be read as 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "not a number")
    return value


def _mark_to_pydantic(mark: Any) -> Any:
    if isinstance(mark, ParsedFromText):
        text: Any = Annotated[str, pydantic.Field(pattern=mark.pattern)]
        written = text | Literal[0] if mark.takes_zero else text
        return pydantic.BeforeValidator(mark.parse, json_schema_input_type=written)
    if isinstance(mark, Matching):
        return pydantic.Field(pattern=mark.pattern)
    if isinstance(mark, Between):
        return pydantic.Field(ge=mark.low, le=mark.high)
    if isinstance(mark, NotEmpty):
        return pydantic.Field(min_length=1)
    assert isinstance(mark, TaggedByType)
    return pydantic.Field(discriminator="type_")


def _to_model(value: Any) -> Any:
    """What was checked, in models of our own."""
    if isinstance(value, _Checked):
        fields = {name.removesuffix("_"): getattr(value, name) for name in value.model_fields_set}
        return value.model.construct(**{name: _to_model(one) for name, one in fields.items()})
    if isinstance(value, dict):
        return {key: _to_model(one) for key, one in value.items()}
    return [_to_model(one) for one in value] if isinstance(value, list) else value
