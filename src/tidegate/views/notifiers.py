"""Create the notifiers of ``alerts:``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tidegate.spec.models import NotifierSpec


def make_notifier(spec: NotifierSpec) -> Any:
    """Create the notifier with its arguments. Raises whatever its module or its class raises."""
    module, _, name = spec.notifier.rpartition(".")
    return getattr(import_module(module), name)(**spec.arguments)
