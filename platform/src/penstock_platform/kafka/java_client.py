"""librdkafka's properties in the names of the Java client that Spark reads Kafka with.

A user configures their secured cluster once, in librdkafka's names; the reader in the JVM must be
let in the same way. What secures the connection is translated or refused by name, never dropped.
Tuning of the other client is left out: it would mean nothing here.

Certificates travel as their text, not as paths: Spark's executors need not see these files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from penstock_platform.settings import SettingsError

_SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# The same name and the same meaning in both clients.
_SAME = frozenset(
    {
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
_HANDLED = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
    }
)
# Values under which a property changes nothing for the Java client, which always does so.
_HARMLESS = {"enable.ssl.certificate.verification": "true"}


def java_properties(
    properties: Mapping[str, str], read_text: Callable[[str], str] | None = None
) -> dict[str, str]:
    """Translate ``kafka.properties`` of the settings.

    Raises SettingsError naming the property that has no counterpart, or the file that cannot be
    read.
    """
    read = read_text or _read_file
    for name, value in properties.items():
        known = name in _SAME or name in _HANDLED or _HARMLESS.get(name) == value.lower()
        if name.startswith(_SECURITY) and not known:
            raise SettingsError(
                f"kafka.properties: {name}={value if 'password' not in name else '…'} has no "
                "counterpart in the Java client that Spark reads with; translated are "
                f"{', '.join(sorted(_HANDLED | {n for n in _SAME if n.startswith(_SECURITY)}))}"
            )
    same = {name: value for name, value in properties.items() if name in _SAME}
    return {**same, **_sasl(properties), **_trust(properties, read), **_identity(properties, read)}


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanisms", properties.get("sasl.mechanism", ""))
    if not mechanism:
        return {}
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise SettingsError(
            f"kafka.properties: sasl.mechanism={mechanism} is not translated for Spark's reader; "
            f"use one of {', '.join(_LOGIN_MODULES)}"
        )
    user = _quoted(properties.get("sasl.username", ""))
    password = _quoted(properties.get("sasl.password", ""))
    return {
        "sasl.mechanism": mechanism.upper(),
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _trust(properties: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    pem = _pem(properties, "ssl.ca.pem", "ssl.ca.location", read)
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem} if pem else {}


def _identity(properties: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    chain = _pem(properties, "ssl.certificate.pem", "ssl.certificate.location", read)
    key = _pem(properties, "ssl.key.pem", "ssl.key.location", read)
    if not chain and not key:
        return {}
    if not chain or not key:
        raise SettingsError(
            "kafka.properties: a client certificate needs ssl.certificate.* and ssl.key.* both"
        )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
    }


def _pem(
    properties: Mapping[str, str], text: str, location: str, read: Callable[[str], str]
) -> str:
    if text in properties:
        return properties[text]
    if location not in properties:
        return ""
    try:
        return read(properties[location])
    except OSError as error:
        raise SettingsError(f"kafka.properties: {location}: {error}") from error


def _quoted(value: str) -> str:
    """A JAAS string: in double quotes, with backslash escapes."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_file(path: str) -> str:
    return Path(path).read_text()
