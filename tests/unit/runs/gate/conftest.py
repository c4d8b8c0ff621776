"""The pipelines of these tests name a broker that is not there, and no test is about it: nobody waits for it long."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer at once is away."""
    monkeypatch.setattr("tidegate.sources.kafka.brokers._PATIENCE_SECONDS", 0.2)
