"""Importing Great Expectations: once, quietly, and with an answer when it does not come back."""

from __future__ import annotations

import os
import warnings
from types import ModuleType


def import_gx() -> ModuleType:
    """The library, with analytics switched off before it looks. Seconds of CPU the first time, nothing later."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations
    return great_expectations
