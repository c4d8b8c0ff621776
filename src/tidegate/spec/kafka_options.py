"""Settings of the Kafka client, from an allow-list: security and limits, nothing that changes what is read."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.spec.document import names_variable
from tidegate.spec.faults import name_nearest, show_value
from tidegate.spec.findings import Finding
from tidegate.spec.secrets import KAFKA_SECRETS

SECURITY_SETTINGS: tuple[str, ...] = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
)
"""How a client proves who it is, and whom it talks to."""

TUNING_SETTINGS: tuple[str, ...] = (
    "client.id",
    "client.rack",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "receive.buffer.bytes",
    "request.timeout.ms",
)
"""Client settings that only matter while records are read: they go to Spark alone."""

CLIENT_SETTINGS = SECURITY_SETTINGS + TUNING_SETTINGS
"""Names of the Kafka client's settings that may be made: with ``kafka.`` in front on a source, with or without it in
``tidegate.yaml``. Only what means the same to Spark's client and to the one that looks at the broker without a JVM."""

_OWNED = {
    "bootstrap.servers": ("the brokers are the project's", "write kafka: bootstrap_servers in tidegate.yaml"),
    "group.id": ("tidegate keeps the offsets itself, in the checkpoint", "remove it"),
    "group.instance.id": ("tidegate keeps the offsets itself, in the checkpoint", "remove it"),
    "isolation.level": ("only committed records of transactions count (read_committed)", "remove it"),
    "auto.offset.reset": ("Spark decides where to start", "write starting_offsets on the source"),
    "enable.auto.commit": ("tidegate keeps the offsets itself, in the checkpoint", "remove it"),
    "key.deserializer": ("Spark reads keys as bytes", "remove it"),
    "value.deserializer": ("Spark reads values as bytes", "write format on the source"),
    "interceptor.classes": ("Spark cannot run them safely", "remove it"),
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def check_kafka_option(path: tuple[str | int, ...], key: str, value: object) -> list[Finding]:
    """What is wrong with one ``kafka.*`` option of a source in ``pipeline.yaml``."""
    name = key.removeprefix("kafka.")
    if name in _OWNED:
        reason, fix = _OWNED[name]
        return [Finding(path, f"the option {key} is managed by tidegate: {reason}", fix)]
    if name in KAFKA_SECRETS:
        message = "a secret does not belong in pipeline.yaml"
        return [Finding(path, message, f"write it in tidegate.yaml: kafka: {{options: {{{name}: ${{VAR}}}}}}")]
    if name not in CLIENT_SETTINGS:
        nearest = name_nearest(name, CLIENT_SETTINGS)
        fix = f"write kafka.{nearest}" if nearest else f"allowed: {_show_all('kafka.')}"
        return [Finding(path, f"{key!r} is not a setting of the Kafka client that may be made here", fix)]
    if isinstance(value, str) and names_variable(value):
        return [Finding(path, "the environment is filled in in tidegate.yaml only", "write it in tidegate.yaml")]
    return _check_value(path, name, value)


def check_client_options(options: Mapping[str, object]) -> list[Finding]:
    """What is wrong with ``kafka.options`` of ``tidegate.yaml``."""
    found: list[Finding] = []
    for key, value in options.items():
        path = ("kafka", "options", key)
        name = key.removeprefix("kafka.")
        if name in _OWNED:
            reason, fix = _OWNED[name]
            found.append(Finding(path, f"the option {key} is managed by tidegate: {reason}", fix))
        elif name not in CLIENT_SETTINGS:
            nearest = name_nearest(name, CLIENT_SETTINGS)
            fix = f"write {nearest}" if nearest else f"allowed: {_show_all()}"
            found.append(Finding(path, f"{key!r} is not a setting of the Kafka client that may be made here", fix))
        else:
            found += _check_value(path, name, value)
    return found


def _show_all(prefix: str = "") -> str:
    return ", ".join(prefix + name for name in CLIENT_SETTINGS)


def _check_value(path: tuple[str | int, ...], name: str, value: object) -> list[Finding]:
    if name == "security.protocol" and value not in _PROTOCOLS:
        shown = show_value(value, name)
        nearest = name_nearest(str(value), _PROTOCOLS)
        fix = f"write {nearest}" if nearest else f"allowed: {', '.join(_PROTOCOLS)}"
        return [Finding(path, f"{shown} is not a security protocol", fix)]
    return []
