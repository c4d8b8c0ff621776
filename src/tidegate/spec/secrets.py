"""Recognize settings that hold a secret by their names, before they are shown, logged or refused."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"passw|secret|token|credential|jaas|private|keystore\.key|(?:access|account|api)\.?key|sasl\.username",
    re.IGNORECASE,
)

KAFKA_SECRETS = frozenset(
    {"sasl.jaas.config", "sasl.username", "sasl.password"}
    | {"ssl.key.password", "ssl.keystore.key", "ssl.keystore.password"}
)
"""Those of the Kafka client's settings that may be made."""


def sounds_secret(name: str) -> bool:
    """Whether the value of a setting, a variable or a key of this name is not to be shown. Rather one too many."""
    return _WORDS.search(re.sub(r"[_-]", ".", name)) is not None
