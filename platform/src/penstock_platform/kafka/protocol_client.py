"""A client that speaks Kafka's protocol itself, with the security settings that librdkafka has.

librdkafka hides the batches of a log. kafka-python's protocol classes do not; here they get the
properties of ``settings.kafka`` under librdkafka's names: what one client can open, the other can.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient  # type: ignore[import-untyped]

from penstock_platform.kafka.errors import ClusterError
from penstock_platform.settings import Settings

TIMEOUT_MS = 10_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Properties that only librdkafka can follow: PKCS#12 files, and keys that live elsewhere.
_UNREADABLE = {
    "ssl.keystore.location": "ssl.certificate.location and ssl.key.location",
    "ssl.engine.location": "ssl.certificate.location and ssl.key.location",
    "ssl.providers": "ssl.certificate.location and ssl.key.location",
}


@contextmanager
def protocol_client(settings: Settings) -> Iterator[Any]:
    """A connected client, closed at the end. Raises ClusterError for settings that it cannot
    follow, and kafka-python's KafkaError where no broker answers."""
    client = KafkaAdminClient(**client_options(settings))
    try:
        yield client
    finally:
        client.close()


def partition_leaders(client: Any, topic: str) -> Mapping[int, int]:
    """The leaders of a topic's partitions by the broker's metadata of now; -1 for none."""
    [description] = client.describe_topics([topic])
    return {p["partition_index"]: int(p["leader_id"]) for p in description["partitions"]}


def client_options(settings: Settings) -> dict[str, Any]:
    """kafka-python's configuration for the properties in ``settings.kafka``."""
    given = settings.kafka.properties
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    servers = given.get("bootstrap.servers", settings.bootstrap_servers)
    options: dict[str, Any] = {
        "bootstrap_servers": servers.split(","),
        "request_timeout_ms": TIMEOUT_MS,
        "bootstrap_timeout_ms": TIMEOUT_MS,
        "security_protocol": protocol,
    }
    if "SASL" in protocol:
        options |= _sasl(given, servers)
    if "SSL" in protocol:
        try:
            options["ssl_context"] = tls_context(given)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ClusterError(f"{servers}: the TLS settings cannot be used: {error}") from error
    return options


def _sasl(given: Mapping[str, str], servers: str) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI"
    if mechanism.upper() not in MECHANISMS:
        raise ClusterError(
            f"{servers}: sasl.mechanism={mechanism}: batches of a log and offsets of groups are "
            "read with "
            f"{', '.join(MECHANISMS)} only"
        )
    return {
        "sasl_mechanism": mechanism.upper(),
        "sasl_plain_username": given.get("sasl.username", ""),
        "sasl_plain_password": given.get("sasl.password", ""),
    }


def tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS settings under librdkafka's names. Raises ValueError, OSError or ssl.SSLError."""
    for name, instead in _UNREADABLE.items():
        if given.get(name):
            raise ValueError(f"{name} cannot be read here; give {instead}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust(context, given)
    if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if given.get("ssl.cipher.suites"):
        context.set_ciphers(given["ssl.cipher.suites"])
    if given.get("ssl.crl.location"):
        context.load_verify_locations(given["ssl.crl.location"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    _identify(context, given)
    return context


def _trust(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    location = given.get("ssl.ca.location", "")
    if given.get("ssl.ca.pem"):
        context.load_verify_locations(cadata=_lines(given["ssl.ca.pem"]))
    if location and location != "probe":
        whole = Path(location).is_dir()
        context.load_verify_locations(
            cafile=None if whole else location, capath=location if whole else None
        )
    if not given.get("ssl.ca.pem") and location in {"", "probe"}:
        context.load_default_certs()


def _identify(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """The client's own certificate. Python reads it from files only, so text goes through one that
    is this user's alone and is gone at once."""
    certificate = given.get("ssl.certificate.location")
    key = given.get("ssl.key.location")
    password = given.get("ssl.key.password")
    with (
        _as_file(given.get("ssl.certificate.pem")) as certificate_file,
        _as_file(given.get("ssl.key.pem")) as key_file,
    ):
        certificate, key = certificate_file or certificate, key_file or key
        if certificate:
            context.load_cert_chain(certificate, key or None, password)


@contextmanager
def _as_file(text: str | None) -> Iterator[str | None]:
    if not text:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
        file.write(_lines(text))
        file.flush()
        yield file.name


def _lines(pem: str) -> str:
    """PEM text whose line ends were written as ``\\n``, as in properties files."""
    return pem.replace("\\n", "\n")
