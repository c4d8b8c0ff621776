"""Settings of the session's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate.spec.models import ProjectKafkaSpec

if TYPE_CHECKING:
    from tools.broker import Broker


@pytest.fixture
def kafka(kafka_broker: Broker) -> ProjectKafkaSpec:
    """The project's Kafka settings."""
    return ProjectKafkaSpec(bootstrap_servers=kafka_broker.bootstrap_servers)
