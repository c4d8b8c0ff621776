"""Spark with Delta, started once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.delta_spark import DeltaSpark


@pytest.fixture(scope="session")
def delta() -> Iterator[DeltaSpark]:
    """One session of Spark with Delta, in a process of its own."""
    with DeltaSpark() as made:
        yield made
