"""Maps client settings of Kafka sources to those of librdkafka.

Users write Java's names: in ``tidegate.yaml`` with or without the prefix ``kafka.``, in ``pipeline.yaml`` with it. The
checks of the spec allow only settings that mean the same to librdkafka; what it cannot apply with these values is
refused here, with what to write instead. No message, ``repr`` or error of this module contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.sources import errors
from tidegate.spec.kafka_options import KAFKA_SECRETS, TUNING_SETTINGS
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.spec.reader_options import show_option

_LOGIN = re.compile(
    r"^\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\s+(?P<options>.*?);\s*$", re.DOTALL
)
_LOGIN_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_STATE = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}


@dataclass(frozen=True)
class KafkaSettings:
    """One source's settings for librdkafka; ``reading`` also has those for consumers."""

    address: str
    client: dict[str, str] = field(repr=False)
    reading: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False, default=())

    def scrub(self, text: str) -> str:
        """Replace all secrets of these settings in ``text`` of librdkafka, and drop the state of its connection."""
        text = _STATE.sub("", text)
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def settings_of(kafka: ProjectKafkaSpec, source: KafkaSource | None = None) -> KafkaSettings:
    """The client settings of the project, or of one source, whose names and words the checks of the spec have allowed.

    Raises a UsageError KAFKA_OPTIONS that lists everything that cannot be used together, or by librdkafka.
    """
    of_source = {} if source is None else {k: one for k, one in source.options.items() if k.startswith("kafka.")}
    java = {key.removeprefix("kafka."): show_option(one) for key, one in (*kafka.options.items(), *of_source.items())}
    client = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": java.get("client.id", "tidegate")}
    faults = [*_map_sasl(java, client), *_map_ssl(java, client)]
    tuning = _map_tuning(java)
    if faults:
        raise errors.KAFKA_OPTIONS(
            where="kafka.options in tidegate.yaml, or options of the source in pipeline.yaml", faults="; ".join(faults)
        )
    secrets = {java[name] for name in KAFKA_SECRETS - {"sasl.username"} if java.get(name)}
    secrets |= {client[name] for name in ("sasl.password",) if client.get(name)}
    longest_first = tuple(sorted(secrets, key=len, reverse=True))
    return KafkaSettings(kafka.bootstrap_servers, client, client | tuning, longest_first)


def _map_tuning(java: Mapping[str, str]) -> dict[str, str]:
    """Map the settings for consumers, each within the limits of librdkafka."""
    tuning = {name: java[name] for name in ("client.rack",) if name in java}
    for name, number in TUNING_SETTINGS.items():
        if number is None or name not in java:
            continue
        theirs, low, high = number
        tuning[theirs] = str(min(max(int(java[name]), low), high))
    return tuning


def _map_sasl(java: dict[str, str], client: dict[str, str]) -> list[str]:
    """Fill in the login."""
    faults = []
    protocol = java.get("security.protocol", "PLAINTEXT")
    client["security.protocol"] = protocol
    user, password, jaas = (
        java.pop("sasl.username", None),
        java.pop("sasl.password", None),
        java.get("sasl.jaas.config"),
    )
    mechanism = java.get("sasl.mechanism", "").upper()
    if not protocol.startswith("SASL"):
        if mechanism or jaas or user or password:
            faults.append(f"sasl.* (security.protocol is {protocol}: the login would be ignored in silence)")
        return faults
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return [f"sasl.mechanism {mechanism or 'is missing'} (one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)"]
    if jaas:
        if user or password:
            faults.append("sasl.username and sasl.password together with sasl.jaas.config (write one of the two)")
        login = _parse_login(jaas)
        if login is None:
            return [*faults, 'sasl.jaas.config (write: <module> required username="..." password="...";)']
        module, user, password = login
        if mechanism not in _MODULES.get(module, ()):
            return [*faults, f"sasl.jaas.config (login module {module} does not belong to sasl.mechanism {mechanism})"]
    if not user or not password:
        return [*faults, "sasl.jaas.config (user name or password is empty)"]
    client |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return faults


def _parse_login(jaas: str) -> tuple[str, str | None, str | None] | None:
    match = _LOGIN.match(jaas)
    if not match:
        return None
    options: dict[str, str] = {}
    for name, double, single, bare in _LOGIN_OPTION.findall(match.group("options")):
        options[name] = re.sub(r"\\(.)", r"\1", double) if double else single or bare
    return match.group("module"), options.get("username"), options.get("password")


def _map_ssl(java: dict[str, str], client: dict[str, str]) -> list[str]:
    faults = []
    given = [name for name in java if name.startswith("ssl.")]
    if given and not java.get("security.protocol", "PLAINTEXT").endswith("SSL"):
        return [f"{', '.join(given)} (security.protocol is not SSL or SASL_SSL)"]
    if "ssl.endpoint.identification.algorithm" in java:
        client["ssl.endpoint.identification.algorithm"] = java["ssl.endpoint.identification.algorithm"] or "none"
    trust = java.get("ssl.truststore.type", "JKS").upper()
    if "ssl.truststore.certificates" in java or "ssl.truststore.location" in java:
        if trust != "PEM":
            faults.append(
                f"ssl.truststore.type {trust} (only PEM is understood without a JVM: "
                "keytool -exportcert -rfc writes one; set ssl.truststore.type: PEM)"
            )
        elif "ssl.truststore.location" in java:
            client["ssl.ca.location"] = java["ssl.truststore.location"]
        else:
            client["ssl.ca.pem"] = java["ssl.truststore.certificates"]
    store = java.get("ssl.keystore.type", "JKS").upper()
    if "ssl.keystore.location" in java:
        if store == "PKCS12":
            client["ssl.keystore.location"] = java["ssl.keystore.location"]
            client["ssl.keystore.password"] = java.get("ssl.keystore.password", "")
        elif store == "PEM":  # Java has key and certificate chain in one file; OpenSSL finds each in it
            client["ssl.key.location"] = client["ssl.certificate.location"] = java["ssl.keystore.location"]
        else:
            faults.append(f"ssl.keystore.type {store} (PEM or PKCS12; keytool -importkeystore converts)")
    elif "ssl.keystore.key" in java:
        client["ssl.key.pem"] = java["ssl.keystore.key"]
        client["ssl.certificate.pem"] = java.get("ssl.keystore.certificate.chain", "")
    if "ssl.key.password" in java:
        client["ssl.key.password"] = java["ssl.key.password"]
    return faults
