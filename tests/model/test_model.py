"""The model, checked: a sample here, an hour of it in ``make sweep``; and its mutants still fit the sources."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.model.hunt import hunt
from tests.model.machine import Pipeline
from tests.model.mutants import MUTANTS, Mutant, mutate

_SWEEP_SECONDS = float(os.environ.get("TIDEGATE_MODEL_SECONDS", "3600"))

TestModel = Pipeline.TestCase
TestModel.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.mark.skipif(os.environ.get("TIDEGATE_SWEEP") != "all", reason="hours: make sweep")
def test_for_long(record_property: pytest.RecordProperty) -> None:
    """From seeds that nobody has run before, and that the failure names."""
    result = hunt(_SWEEP_SECONDS, random.SystemRandom().randrange(1, 1_000_000_000), shrink=True)
    print(f"{result.steps:,} steps, {result.calls:,} storage calls, last seed {result.last_seed}")
    assert result.found is None, f"seed {result.last_seed}: {result.found}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_sources(mutant: Mutant, tmp_path: Path) -> None:
    """Or it would be caught for nothing."""
    mutate(mutant, tmp_path / "src")
    for change in mutant.changes:
        compile((tmp_path / "src" / "tidegate" / change.file).read_text(), change.file, "exec")
