"""Health check of the broker: python kafka_answers.py SERVERS; exit code 0 when it gives its list of topics."""

from __future__ import annotations

import logging
import sys

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

TIMEOUT_SECONDS = 5


def find_fault(servers: str) -> str | None:
    """Why the broker at ``servers`` does not answer; None: it does."""
    logger = logging.getLogger("kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False  # the client tells each try to connect; one line at the end is enough
    try:
        found = AdminClient({"bootstrap.servers": servers}, logger=logger).list_topics(timeout=TIMEOUT_SECONDS)
    except KafkaException as error:
        return f"{servers}: {error}"
    return None if found.brokers else f"{servers}: no broker in its answer"


if __name__ == "__main__":
    fault = find_fault(sys.argv[1])
    if fault is not None:
        print(fault)
    sys.exit(fault is not None)
