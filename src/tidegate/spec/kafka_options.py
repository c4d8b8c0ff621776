"""Settings of the Kafka client, from an allow-list: security and limits, nothing that changes what is read."""

from __future__ import annotations

from collections.abc import Mapping

KAFKA_SECRETS = frozenset(
    {"sasl.jaas.config", "sasl.username", "sasl.password"}
    | {"ssl.key.password", "ssl.keystore.key", "ssl.keystore.password"}
)
"""Settings of the Kafka client whose values are secrets."""

SECURITY_SETTINGS: Mapping[str, str] = {
    "security.protocol": "the same",
    "sasl.mechanism": "the same: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
    "sasl.jaas.config": "`sasl.username` and `sasl.password`, of PlainLoginModule and ScramLoginModule",
    "sasl.username": "the same",
    "sasl.password": "the same",
    "ssl.endpoint.identification.algorithm": "the same; empty is `none`",
    "ssl.truststore.type": "PEM: `keytool -exportcert -rfc` writes one from JKS and PKCS12",
    "ssl.truststore.location": "`ssl.ca.location`",
    "ssl.truststore.certificates": "`ssl.ca.pem`",
    "ssl.keystore.type": "PEM or PKCS12: `keytool -importkeystore` writes PKCS12 from JKS",
    "ssl.keystore.location": "`ssl.keystore.location` of PKCS12; `ssl.key.location`, `ssl.certificate.location` of PEM",
    "ssl.keystore.password": "the same",
    "ssl.keystore.key": "`ssl.key.pem`",
    "ssl.keystore.certificate.chain": "`ssl.certificate.pem`",
    "ssl.key.password": "the same",
}
"""How a client proves who it is, and whom it talks to; each with what it is for librdkafka."""

TUNING_SETTINGS: Mapping[str, tuple[str, int, int] | None] = {
    "client.id": None,
    "client.rack": None,
    "default.api.timeout.ms": None,
    "fetch.max.bytes": ("fetch.max.bytes", 1_000_000, (1 << 31) - 513),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", 0, 9_000),
    "fetch.min.bytes": ("fetch.min.bytes", 1, 100_000_000),
    "max.partition.fetch.bytes": ("fetch.message.max.bytes", 1, 1_000_000_000),
    "max.poll.records": None,
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", 0, 100_000_000),
    "request.timeout.ms": ("socket.timeout.ms", 10_000, 300_000),
}
"""Settings that only matter while records are read: the number that each is for librdkafka, with its bounds."""

CLIENT_SETTINGS = (*SECURITY_SETTINGS, *TUNING_SETTINGS)
"""Names of the Kafka client's settings that may be made: with ``kafka.`` in front on a source, with or without it in
``tidegate.yaml``. Only what means the same to Java's client and to librdkafka."""

_NO_GROUP = ("tidegate keeps the offsets itself, in the checkpoint", "remove it")
_NO_CODE = ("code from a setting is not loaded", "remove it")
_JAVA_ALONE = ("its values mean something to Java's client alone", "remove it")
_OTHER_LOGIN = "log in by sasl.mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or by a certificate"

REFUSED_SETTINGS: Mapping[str, tuple[str, str]] = {
    "bootstrap.servers": ("the brokers are the project's", "write kafka: bootstrap_servers in tidegate.yaml"),
    "isolation.level": ("only committed records of transactions count (read_committed)", "remove it"),
    "auto.offset.reset": ("tidegate decides where to start", "write starting_offsets on the source"),
    "key.deserializer": ("keys are read as bytes", "remove it"),
    "value.deserializer": ("values are read as bytes", "write format on the source"),
    "check.crcs": ("check sums are always compared", "remove it"),
    "allow.auto.create.topics": ("topics are never made", "remove it"),
    "ssl.truststore.password": ("a PEM trust store has none", "remove it"),
    "sasl.kerberos.service.name": ("Kerberos (GSSAPI) is not supported", _OTHER_LOGIN),
    "sasl.oauthbearer.token.endpoint.url": ("OAUTHBEARER is not supported", _OTHER_LOGIN),
    "sasl.login.callback.handler.class": ("code from a setting is not loaded", _OTHER_LOGIN),
    "sasl.client.callback.handler.class": ("code from a setting is not loaded", _OTHER_LOGIN),
    **dict.fromkeys(("group.id", "group.instance.id", "enable.auto.commit", "auto.commit.interval.ms"), _NO_GROUP),
    **dict.fromkeys(("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"), _NO_GROUP),
    **dict.fromkeys(("interceptor.classes", "metric.reporters", "ssl.engine.factory.class"), _NO_CODE),
    **dict.fromkeys(("ssl.provider", "security.providers", "ssl.keymanager.algorithm"), _JAVA_ALONE),
    **dict.fromkeys(("ssl.trustmanager.algorithm", "ssl.protocol", "ssl.secure.random.implementation"), _JAVA_ALONE),
    **dict.fromkeys(("ssl.enabled.protocols", "ssl.cipher.suites"), _JAVA_ALONE),
}
"""Settings that people have and that cannot be made: why, and what to do instead."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WORDS: Mapping[str, tuple[str, ...]] = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "ssl.truststore.type": ("PEM",),
    "ssl.keystore.type": ("PEM", "PKCS12"),
}
"""The words that a setting may have; those of the protocol in capitals."""
NUMBERS = frozenset(TUNING_SETTINGS) - {"client.id", "client.rack"}
"""Settings that have a whole number."""
