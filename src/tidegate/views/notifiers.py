"""The notifiers of ``alerts:``, which tell people: how one is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tidegate.spec.models import NotifierSpec


def make_notifier(spec: NotifierSpec) -> Any:
    """The notifier, with its arguments. Raises whatever its module and its class raise: it is anybody's code."""
    module, _, name = spec.notifier.rpartition(".")
    return getattr(import_module(module), name)(**spec.arguments)
