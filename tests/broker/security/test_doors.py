"""What comes before the requests: SASL's order, bounds on unknown clients, TLS, reloads."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.raw_client import ConnectionClosed, RawClient
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.describe_cluster import DescribeClusterRequest
from penstock_broker.wire.messages.describe_configs import (
    RESOURCE_BROKER,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock_broker.wire.messages.sasl_handshake import SaslHandshakeRequest
from polling import until

ALICE = b"\0alice\0alice-secret"
WRONG = b"\0alice\0not-her-secret"
WAIT = 120.0

Connect = Callable[..., RawClient]


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[])


def handshake(mechanism: str = "PLAIN") -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def is_closed(client: RawClient) -> bool:
    try:
        return client.is_closed()
    except ssl.SSLError:
        return True


# -- SASL ---------------------------------------------------------------------------------------


def test_raw_tokens_after_a_handshake_v0(secure: Any, connect: Connect) -> None:
    """Pitfall 49: after SaslHandshake v0 the tokens come as frames without Kafka's headers, and so
    do the answers; requests begin after them."""
    client = connect(secure, "SASL")
    assert client.ask(handshake(), 0).mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    client.send_bytes(frame(ALICE))
    assert client.receive_frame() == b""
    assert client.ask(metadata(), 9).brokers

    client = connect(secure, "SASL")
    client.ask(handshake("SCRAM-SHA-512"), 0)
    client.send_bytes(frame(b"n,,n=alice,r=abc"))
    first = client.receive_frame()
    client.send_bytes(frame(scram_final("sha512", first)))
    assert client.receive_frame().startswith(b"v=")
    assert client.ask(metadata(), 9).brokers

    client = connect(secure, "SASL")
    client.ask(handshake(), 0)
    client.send_bytes(frame(WRONG))
    assert is_closed(client)  # there is no form to say why


def scram_final(name: str, first: bytes, password: bytes = b"alice-secret") -> bytes:
    parts = dict(part.split("=", 1) for part in first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password, base64.b64decode(parts["s"]), int(parts["i"]))
    bare = f"c=biws,r={parts['r']}"
    message = f"n=alice,r=abc,{first.decode()},{bare}".encode()
    key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, key).digest(), message, name)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_tokens_in_requests_after_a_handshake_v1(
    secure: Any, connect: Connect, version: int
) -> None:
    """Pitfall 49: after SaslHandshake v1 the tokens come in SaslAuthenticate, with errors."""
    client = connect(secure, "SASL")
    client.ask(handshake(), 1)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), version)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert client.ask(metadata(), 9).brokers
    # Known already, and sessions have no end here: neither is expected again.
    assert client.ask(handshake(), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(metadata(), 9).brokers

    client = connect(secure, "SASL")
    client.ask(handshake(), 1)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=WRONG), version)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(client)


def test_everything_at_once(secure: Any, connect: Connect) -> None:
    """Requests that do not wait for the answers before them are taken in order."""
    client = connect(secure, "SASL")
    client.send_bytes(
        client.frame(versions(), 3)
        + client.frame(handshake(), 1)
        + client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        + client.frame(metadata(), 12)
    )
    assert [client.receive()[0] for _ in range(4)] == [1, 2, 3, 4]
    client = connect(secure, "SASL")
    client.send_bytes(
        client.frame(handshake(), 1)
        + client.frame(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        + client.frame(metadata(), 12)
    )
    client.receive()
    assert client.receive()[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_closed(client)


def test_api_versions_needs_no_authentication(secure: Any, connect: Connect) -> None:
    """Pitfall 44: ApiVersions is answered before authentication, between its steps, and in
    unknown versions; every other request before it closes the connection."""
    client = connect(secure, "BOTH", tls=_trusting(secure))
    for version in (0, 3, 4):
        assert client.ask(versions(), version).error_code == 0
    header = struct.pack(">hhih", 18, 99, 77, -1)
    client.send_bytes(frame(header + b"\0"))
    answer = client.receive_frame()
    assert struct.unpack_from(">ih", answer) == (77, ErrorCode.UNSUPPORTED_VERSION)
    client.ask(handshake(), 1)
    assert client.ask(versions(), 4).error_code == 0
    assert client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2).error_code == 0
    for before in ([], [handshake()]):
        for key, version in ((3, 9), (0, 9), (1, 12), (22, 0), (17, 99), (999, 0), (36, 99)):
            client = connect(secure, "SASL")
            for request in before:
                client.ask(request, 1)
            client.send_bytes(frame(struct.pack(">hhih", key, version, 1, -1) + bytes(40)))
            assert is_closed(client), (key, before)
    client = connect(secure, "SASL")
    client.send_bytes(client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 2))
    assert is_closed(client)  # no mechanism was chosen


def _trusting(broker: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=broker.settings["ssl.truststore.location"])
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def test_mechanisms_that_are_not_enabled(new_secure: Callable[..., Any], connect: Connect) -> None:
    broker = new_secure(listener_name_sasl_sasl_enabled_mechanisms="SCRAM-SHA-256")
    for mechanism in ("PLAIN", "GSSAPI", "x" * 1000):
        client = connect(broker, "SASL")
        answer = client.ask(handshake(mechanism), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["SCRAM-SHA-256"]
        assert is_closed(client)
    connect(broker, "BOTH", "alice", tls=_trusting(broker))
    client = connect(broker, "PLAIN")
    assert client.ask(handshake(), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(metadata(), 9).brokers


def test_failures_take_time_and_are_counted(
    new_secure: Callable[..., Any], connect: Connect
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        web = f"127.0.0.1:{free.getsockname()[1]}"
    broker = new_secure(connection_failed_authentication_delay_ms="400", penstock_http_listener=web)
    client = connect(broker, "SASL")
    client.ask(handshake(), 1)
    begin = time.monotonic()
    client.send_bytes(
        client.frame(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        + client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 2)  # no second guess
    )
    assert client.receive()[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_closed(client)
    assert time.monotonic() - begin > 0.35
    connect(broker, "SASL", "alice")
    assert "authentication of 127.0.0.1 on SASL failed (PLAIN)" in broker.log()
    assert "not-her-secret" not in broker.log()
    with urllib.request.urlopen(f"http://{web}/metrics", timeout=WAIT) as answer:
        lines = answer.read().decode().splitlines()
    family = "kafka_server_socketservermetrics_authentication_total"
    for result in ("failure", "success"):
        labels = f'{{listener="SASL",mechanism="PLAIN",result="{result}"}}'
        assert f"{family}{labels} 1" in lines


def test_a_stranger_may_send_little_and_not_for_long(
    new_secure: Callable[..., Any], connect: Connect
) -> None:
    broker = new_secure(authentication_timeout_ms="5000", sasl_server_max_receive_size="1000")
    client = connect(broker, "SASL")
    client.send_bytes(struct.pack(">i", 1_001))
    assert is_closed(client)
    client = connect(broker, "SASL", "alice")
    topics = [MetadataRequestTopic(name="x" * 200) for _ in range(100)]
    assert client.ask(MetadataRequest(topics=topics), 9).topics  # large, now
    begin = time.monotonic()
    silent = [connect(broker, name) for name in ("SASL", "TLS", "MUTUAL", "BOTH")]
    half = connect(broker, "SASL")
    half.ask(handshake(), 1)
    within = connect(broker, "BOTH", tls=_trusting(broker))
    for each in (*silent, half, within):
        assert is_closed(each)
    assert time.monotonic() - begin > 4.5
    until("three are logged", lambda: broker.log().count("not authenticated in time") >= 3)
    assert client.ask(metadata(), 9).brokers  # who is known stays


def test_half_open_tls_connections_count(new_secure: Callable[..., Any], connect: Connect) -> None:
    """They are admitted, and refused, like all others, before anything is encrypted."""
    broker = new_secure(max_connections_per_ip="3", authentication_timeout_ms="60000")
    half_open = [connect(broker, "TLS") for _ in range(3)]
    for name in ("TLS", "PLAIN"):
        assert is_closed(connect(broker, name))
    half_open[0].close()

    def has_space() -> bool:
        try:
            return bool(connect(broker, "PLAIN").ask(metadata(), 9).brokers)
        except ConnectionClosed:
            return False

    until("there is space for a connection", has_space)


def test_sessions_end_and_are_renewed(new_secure: Callable[..., Any], connect: Connect) -> None:
    """KIP-368: until its end a session can be renewed, by the same user and mechanism; after it
    nothing else is answered."""
    broker = new_secure(listener_name_sasl_connections_max_reauth_ms="6000")
    client = connect(broker, "SASL")
    client.ask(handshake(), 1)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
    assert answer.session_lifetime_ms == 6_000
    for _ in range(4):
        until_time = time.monotonic() + 2.0
        while time.monotonic() < until_time:
            assert client.ask(metadata(), 9).brokers
        assert client.ask(handshake(), 1).error_code == 0
        assert client.ask(metadata(), 9).brokers  # the old session holds meanwhile
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 6_000)
    assert client.is_silent(7.0)
    assert client.ask(handshake(), 1).error_code == 0  # late, but all that is allowed
    assert client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 1).error_code == 0
    assert client.ask(metadata(), 9).brokers
    assert client.is_silent(7.0)
    client.send(metadata(), 9)
    assert is_closed(client)

    client = connect(broker, "SASL", "alice")
    client.ask(handshake(), 1)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 1)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in answer.error_message
    assert is_closed(client)
    client = connect(broker, "SASL", "alice")
    refusal = client.ask(handshake("SCRAM-SHA-256"), 1)
    assert refusal.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert is_closed(client)


# -- addresses ----------------------------------------------------------------------------------


def test_every_answer_has_the_address_of_its_listener(
    new_secure: Callable[..., Any], connect: Connect
) -> None:
    """Pitfall 47: Metadata, FindCoordinator and DescribeCluster return the advertised address of
    the listener that was asked, in every version."""
    broker = new_secure(
        advertised_listeners="PLAIN://inside.example:1111,SASL://outside.example:2222"
    )
    addresses = {
        "PLAIN": ("inside.example", 1111),
        "SASL": ("outside.example", 2222),
        "TLS": broker.address("TLS"),
    }
    for _ in range(2):  # the second time from caches
        for name, expected in addresses.items():
            tls = _trusting(broker) if name == "TLS" else None
            client = connect(broker, name, "alice" if name == "SASL" else None, tls=tls)
            for version in range(13):
                brokers = client.ask(MetadataRequest(topics=[]), version).brokers
                assert [(b.host, b.port) for b in brokers] == [expected]
            cluster = client.ask(DescribeClusterRequest(), 1)
            assert [(b.host, b.port) for b in cluster.brokers] == [expected]
            old = client.ask(FindCoordinatorRequest(key="g"), 3)
            assert (old.host, old.port) == expected
            (new,) = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
            assert (new.host, new.port) == expected


# -- TLS ----------------------------------------------------------------------------------------


def test_old_tls_and_no_tls_are_refused(secure: Any, connect: Connect) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):
        connect(secure, "TLS", tls=context)
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(300), bytes(300)):
        client = connect(secure, "TLS")
        client.send_bytes(garbage)
        while client.socket.recv(1000):  # perhaps an alert
            pass
    client = connect(secure, "TLS", tls=_trusting(secure))
    assert client.socket.version() in {"TLSv1.2", "TLSv1.3"}
    assert client.ask(metadata(), 9).brokers


def test_requests_in_one_byte_pieces_over_tls(secure: Any, connect: Connect) -> None:
    client = connect(secure, "TLS", tls=_trusting(secure))
    for byte in client.frame(metadata(), 9):
        client.send_bytes(bytes([byte]))
    assert client.receive()[1].brokers


def test_who_does_not_read_over_tls_cannot_hold_memory(
    secure: Any, connect: Connect, topic: str
) -> None:
    """Answers stay in the file until the client takes them; other clients are served meanwhile."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": secure.at("PLAIN")})
    for n in range(40):
        producer.produce(topic, bytes([n]) * 900_000, partition=0)
    assert producer.flush(WAIT) == 0
    slow = connect(secure, "TLS", tls=_trusting(secure))
    wanted = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=64 << 20,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
                ],
            )
        ],
    )
    before = _resident(secure.pid)
    for _ in range(5):
        slow.send(wanted, 11)
    other = connect(secure, "TLS", tls=_trusting(secure))
    for _ in range(50):
        assert other.ask(metadata(), 9).brokers
    assert _resident(secure.pid) - before < 32 << 20
    sizes = {len(slow.receive_frame()) for _ in range(5)}  # and now it does read
    assert len(sizes) == 1 and sizes.pop() > 35_000_000


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.fixture
def topic() -> Iterator[str]:
    yield f"t-{os.urandom(6).hex()}"


def test_certificates_are_reloaded(
    new_secure: Callable[..., Any], connect: Connect, authority: Any, tmp_path: Path
) -> None:
    """New connections get the new certificate; a file that cannot be used changes nothing."""
    live = tmp_path / "live.pem"
    live.write_bytes(authority.issue("first.pem", "first").read_bytes())
    broker = new_secure(
        listener_name_tls_ssl_keystore_location=str(live), credentials_check_interval_ms="20"
    )

    def name() -> str:
        client = connect(broker, "TLS", tls=_trusting(broker))
        subject = client.socket.getpeercert()["subject"]
        return dict(pair for part in subject for pair in part)["commonName"]

    old = connect(broker, "TLS", tls=_trusting(broker))
    assert name() == "first"
    live.write_text("-----BEGIN CERTIFICATE-----\nbroken\n")
    until("the reload fails", lambda: "keeps the old ones" in broker.log())
    assert name() == "first"
    second = authority.issue("second.pem", "second")
    replacement = tmp_path / "replacement.pem"
    replacement.write_bytes(second.read_bytes())
    replacement.replace(live)
    until("the new certificate is served", lambda: name() == "second")
    assert old.ask(metadata(), 9).brokers
    live.unlink()
    until("the reload fails", lambda: broker.log().count("keeps the old ones") == 2)
    assert name() == "second"


def test_users_are_reloaded(new_secure: Callable[..., Any], connect: Connect) -> None:
    broker = new_secure(credentials_check_interval_ms="20")
    path = Path(broker.settings["sasl.users.file"])

    def gets_in(user: str, password: str) -> bool:
        client = connect(broker, "SASL")
        client.ask(handshake(), 1)
        token = f"\0{user}\0{password}".encode()
        return client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0

    assert gets_in("alice", "alice-secret") and not gets_in("carol", "carols")
    path.write_text("carol=carols\nalice=changed\n")
    until("the new user gets in", lambda: gets_in("carol", "carols"))
    assert not gets_in("alice", "alice-secret") and gets_in("alice", "changed")
    path.write_text("carol")
    until("the reload fails", lambda: "the users stay unchanged" in broker.log())
    assert gets_in("carol", "carols")


def test_keys_in_the_settings_and_encrypted_keys(
    new_secure: Callable[..., Any], connect: Connect, authority: Any
) -> None:
    """ssl.keystore.key and similar settings, as PEM text in one line; ssl.key.password."""
    text = authority.issue("inline.pem", "inline", password=b"opensesame").read_text()
    key, _, chain = text.partition("-----BEGIN CERTIFICATE-----")
    chain = "-----BEGIN CERTIFICATE-----" + chain
    prefix = "listener_name_tls_"
    broker = new_secure(
        **{
            prefix + "ssl_keystore_location": "",
            prefix + "ssl_keystore_key": key.replace("\n", " "),
            prefix + "ssl_keystore_certificate_chain": chain.replace("\n", "\\n"),
            prefix + "ssl_key_password": "opensesame",
        }
    )
    client = connect(broker, "TLS", tls=_trusting(broker))
    assert ("commonName", "inline") in [
        p for part in client.socket.getpeercert()["subject"] for p in part
    ]
    assert "opensesame" not in broker.log()
    broker.stop()
    broker.settings["listener.name.tls.ssl.key.password"] = "wrong"
    with pytest.raises(RuntimeError, match=r"cannot use ssl\.keystore") as caught:
        broker.start()
    assert "PRIVATE" not in str(caught.value)


# -- secrets ------------------------------------------------------------------------------------


def test_secrets_are_not_described(new_secure: Callable[..., Any], connect: Connect) -> None:
    secret = "geheim-geheim"
    jaas = f'PlainLoginModule required user_dora="{secret}";'
    broker = new_secure(
        listener_name_sasl_plain_sasl_jaas_config=jaas,
        plain_sasl_jaas_config=jaas,
        ssl_key_password=secret,
    )
    client = connect(broker, "SASL", "dora", secret)
    for version in range(1, 5):
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=RESOURCE_BROKER, resource_name="0")],
            include_synonyms=True,
            include_documentation=True,
        )
        client.send(request, version)
        assert secret.encode() not in client.receive_frame()
    (result,) = client.ask(request, 4).results
    found = {each.name: each for each in result.configs}
    hidden = {name for name, each in found.items() if each.is_sensitive}
    assert hidden >= {"plain.sasl.jaas.config", "ssl.key.password", "ssl.keystore.key"}
    assert {found[name].value for name in hidden} == {None}
    assert secret not in broker.log()
    document = json.loads((broker.data_dir / "metadata.json").read_text())
    assert secret not in json.dumps(document)


def test_a_taken_port_names_the_listener(new_secure: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1:{port}"):
            new_secure(
                listeners=f"PLAIN://127.0.0.1:0,TLS://127.0.0.1:{port}",
            )
