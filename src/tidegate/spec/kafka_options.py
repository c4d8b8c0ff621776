"""Settings of the Kafka client by allow-list: security and limits, nothing that changes which records are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.spec.document import names_variable
from tidegate.spec.faults import name_nearest, show_value
from tidegate.spec.findings import Finding

_SECURITY = (
    "security.protocol",
    "sasl.client.callback.handler.class",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.mechanism",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
_LIMITS = (
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
CLIENT_SETTINGS: tuple[str, ...] = _SECURITY + _LIMITS
"""Names of the Java client's settings that may be made: with the prefix ``kafka.`` on a source, without it in
``tidegate.yaml``."""

PROJECT_SETTINGS: tuple[str, ...] = (*CLIENT_SETTINGS, "sasl.username", "sasl.password", "ssl.ca.location")
"""What ``kafka.options`` of ``tidegate.yaml`` may hold: the short forms for user, password and certificates too."""

_SECRET = {
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
}
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
    "client.id": ("tidegate names its clients itself", "remove it"),
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def check_kafka_option(path: tuple[str | int, ...], key: str, value: Any) -> list[Finding]:
    """What is wrong with one ``kafka.*`` option of a source in ``pipeline.yaml``."""
    name = key.removeprefix("kafka.")
    if name in _OWNED:
        reason, fix = _OWNED[name]
        return [Finding(path, f"the option {key} is not yours to set: {reason}", fix)]
    if name in _SECRET:
        message = "a secret does not belong in pipeline.yaml"
        return [Finding(path, message, f"write it in tidegate.yaml: kafka: {{options: {{{name}: ${{VAR}}}}}}")]
    if name not in CLIENT_SETTINGS:
        nearest = name_nearest(name, CLIENT_SETTINGS)
        fix = f"write kafka.{nearest}" if nearest else "allowed: kafka.security.protocol, kafka.sasl.*, kafka.ssl.*, limits"
        return [Finding(path, f"{key!r} is no setting of the Kafka client that may be made here", fix)]
    if isinstance(value, str) and names_variable(value):
        return [Finding(path, "the environment is filled in in tidegate.yaml only", "write it in tidegate.yaml")]
    return _check_value(path, name, value)


def check_client_options(options: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with ``kafka.options`` of ``tidegate.yaml``."""
    found: list[Finding] = []
    for key, value in options.items():
        path = ("kafka", "options", key)
        if key in _OWNED:
            reason, fix = _OWNED[key]
            found.append(Finding(path, f"the option {key} is not yours to set: {reason}", fix))
        elif key.startswith("kafka."):
            found.append(Finding(path, f"{key!r} has a prefix too many", f"write {key.removeprefix('kafka.')}"))
        elif key not in PROJECT_SETTINGS:
            nearest = name_nearest(key, PROJECT_SETTINGS)
            fix = f"write {nearest}" if nearest else "allowed: security.protocol, sasl.*, ssl.*, limits of the client"
            found.append(Finding(path, f"{key!r} is no setting of the Kafka client that may be made here", fix))
        else:
            found += _check_value(path, key, value)
    return found


def _check_value(path: tuple[str | int, ...], name: str, value: Any) -> list[Finding]:
    if name == "security.protocol" and value not in _PROTOCOLS:
        shown = show_value(value, name)
        nearest = name_nearest(str(value), _PROTOCOLS)
        fix = f"write {nearest}" if nearest else f"allowed: {', '.join(_PROTOCOLS)}"
        return [Finding(path, f"{shown} is not a security protocol", fix)]
    return []
