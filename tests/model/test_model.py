"""The model, checked: a sample here, hours of it in ``make sweep``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.model.machine import Pipeline

_EXAMPLES = int(os.environ.get("TIDEGATE_MODEL_EXAMPLES", "40"))

TestModel = Pipeline.TestCase
TestModel.settings = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
