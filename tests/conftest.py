"""Fixtures that every folder of tests shares. What is slow to start is started once a session, and only on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tools.broker import Broker


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Kafka broker for the session; it dies with the session, also when that is killed.

    Tests make topics of their own names on it. A test that stops the broker must restart it before it ends.
    """
    from tools.broker import start_broker

    broker = start_broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.stop()
