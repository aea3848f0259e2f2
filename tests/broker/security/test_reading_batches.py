"""The platform reads batch headers through every door that librdkafka can open."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock_platform.kafka import batches, protocol_client
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.ranges import OffsetRange
from penstock_platform.settings import KafkaSettings, Settings

TOPIC = "aborted"


@pytest.fixture(scope="module")
def filled(secure: Any) -> Any:
    """A topic with one aborted record, its marker, and one record that counts."""
    producer = Producer({"bootstrap.servers": secure.at("PLAIN"), "transactional.id": "doors"})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, b"x", partition=0)
        producer.flush()
        end(30)
    return secure


def pieces(path: Path) -> tuple[str, str]:
    """Key and certificate of a PEM file with both."""
    text = path.read_text()
    at = text.index("-----BEGIN CERTIFICATE-----")
    return text[:at], text[at:]


def doors(authority: Any, alice: Path) -> dict[str, tuple[str, dict[str, str]]]:
    key, certificate = pieces(alice)
    trust = {"ssl.ca.pem": authority.path.read_text()}
    user = {"sasl.username": "alice", "sasl.password": "alice-secret"}
    return {
        "tls, authority as text": ("TLS", {"security.protocol": "ssl", **trust}),
        "tls, text of one line": (
            "TLS",
            {"security.protocol": "SSL", "ssl.ca.pem": trust["ssl.ca.pem"].replace("\n", "\\n")},
        ),
        "tls, authority as a file": (
            "TLS",
            {"security.protocol": "SSL", "ssl.ca.location": str(authority.path)},
        ),
        "tls without looking": (
            "TLS",
            {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
        ),
        "own certificate as text": (
            "MUTUAL",
            {
                "security.protocol": "SSL",
                **trust,
                "ssl.certificate.pem": certificate,
                "ssl.key.pem": key,
            },
        ),
        "own certificate as files": (
            "MUTUAL",
            {
                "security.protocol": "SSL",
                **trust,
                "ssl.certificate.location": str(alice),
                "ssl.key.location": str(alice),
            },
        ),
        **{
            f"{mechanism} {name}": (
                name,
                {
                    "security.protocol": protocol,
                    "sasl.mechanisms": mechanism,
                    **user,
                    **(trust if name == "BOTH" else {}),
                },
            )
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
            for name, protocol in (("SASL", "SASL_PLAINTEXT"), ("BOTH", "SASL_SSL"))
        },
    }


DOORS = (
    "tls, authority as text",
    "tls, text of one line",
    "tls, authority as a file",
    "tls without looking",
    "own certificate as text",
    "own certificate as files",
    *(f"{m} {n}" for m in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") for n in ("SASL", "BOTH")),
)


def settings_for(address: str, properties: dict[str, str]) -> Settings:
    kafka = KafkaSettings(bootstrap_servers=address, properties=properties)
    return Settings(home=Path("home"), kafka=kafka)


@pytest.mark.parametrize("door", DOORS)
def test_legal_holes_are_found_through(
    filled: Any, authority: Any, alice_pem: Path, door: str
) -> None:
    listener, properties = doors(authority, alice_pem)[door]
    settings = settings_for(filled.at(listener), properties)
    found = batches.unread_offsets(settings, TOPIC, [OffsetRange(0, 0, 4)])
    assert found == (OffsetRange(0, 0, 2), OffsetRange(0, 3, 4))


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "SSL", "ssl.ca.pem": "nothing"}, "TLS settings cannot be used"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}, "TLS settings"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "k.p12"}, "ssl.keystore.location"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism=GSSAPI"),
    ],
)
def test_what_cannot_be_followed_is_said(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        protocol_client.client_options(settings_for("localhost:1", properties))


def test_a_stranger_is_not_trusted(
    filled: Any, stranger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "DEADLINE_SECONDS", 0.5)
    monkeypatch.setattr(protocol_client, "TIMEOUT_MS", 1000)
    properties = {"security.protocol": "SSL", "ssl.ca.pem": stranger.path.read_text()}
    with pytest.raises(ClusterError, match="cannot read the batches of topic aborted"):
        batches.unread_offsets(
            settings_for(filled.at("TLS"), properties), TOPIC, [OffsetRange(0, 0, 4)]
        )


def test_the_hostname_is_looked_at_unless_switched_off(authority: Any) -> None:
    trust = {"ssl.ca.pem": authority.path.read_text()}
    assert protocol_client.tls_context(trust).check_hostname
    named = {**trust, "ssl.endpoint.identification.algorithm": "none"}
    context = protocol_client.tls_context(named)
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_key_with_a_password(authority: Any) -> None:
    path = authority.issue("locked.pem", "locked", password=b"open")
    key, certificate = pieces(path)
    given = {
        "ssl.ca.pem": authority.path.read_text(),
        "ssl.certificate.pem": certificate,
        "ssl.key.pem": key,
        "ssl.key.password": "open",
    }
    protocol_client.tls_context(given)
    with pytest.raises(ssl.SSLError):
        protocol_client.tls_context({**given, "ssl.key.password": "wrong"})
