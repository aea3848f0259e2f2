"""Certificates made for the tests, and a broker that listens in every way there is."""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock_broker.wire.messages.sasl_handshake import SaslHandshakeRequest

PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
_ADDRESS = re.compile(r"listener (\S+) \((\S+)\) on (\S+):(\d+)")


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority, and what it has signed, as PEM files in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key, is_authority=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.DNSName("localhost"),
                        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    ]
                ),
                False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        if is_authority:
            builder = builder.add_extension(_SIGNS, True)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, file: str, name: str, *, password: bytes | None = None) -> Path:
        """A key and its certificate for ``CN=<name>,OU=tests``, in one PEM file."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "tests"),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        certificate = self._sign(subject, key)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password)
        path = self.folder / file
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path


@pytest.fixture
def connect() -> Iterator[Callable[..., RawClient]]:
    """``connect(broker, listener, user)``: a raw connection, as ``user`` by PLAIN if one is
    named, in TLS if a context is given."""
    clients: list[RawClient] = []

    def start(
        broker: SecureBroker,
        listener: str,
        user: str | None = None,
        password: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> RawClient:
        client = RawClient(*broker.address(listener))
        clients.append(client)
        if tls is not None:
            client.socket = tls.wrap_socket(client.socket, server_hostname="localhost")
        return client if user is None else broker.log_in(client, user, password)

    yield start
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the tests' certificates."""
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the broker does not know."""
    return Authority(tmp_path_factory.mktemp("strange-certificates"), "stranger")


@pytest.fixture(scope="session")
def alice_pem(authority: Authority) -> Path:
    return authority.issue("alice.pem", "alice")


class SecureBroker(BrokerProcess):
    """A broker whose listeners are found by name."""

    def address(self, name: str) -> tuple[str, int]:
        """Where listener ``name`` is bound."""
        found = {m[1]: (m[3], int(m[4])) for m in _ADDRESS.finditer(self.log())}
        return found[name]

    def log_in(self, client: RawClient, user: str, password: str | None = None) -> RawClient:
        """Authenticate a connection by PLAIN."""
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = f"\0{user}\0{password or PASSWORDS[user]}".encode()
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, answer
        return client

    def at(self, name: str) -> str:
        """``host:port`` of listener ``name``."""
        host, port = self.address(name)
        return f"{host}:{port}"


def write_users(path: Path, users: dict[str, str]) -> Path:
    """A ``sasl.users.file``."""
    path.write_text("# users\n" + "".join(f"{n}={secret}\n" for n, secret in users.items()))
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return path


def settings_of_everything(folder: Path, authority: Authority, **more: str) -> dict[str, str]:
    """A listener for each protocol; mechanisms, users and certificates for them."""
    server = authority.issue("server.pem", "localhost")
    users = write_users(folder / "users.properties", PASSWORDS)
    return {
        "listeners": "PLAIN://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0,"
        "SASL://127.0.0.1:0,BOTH://127.0.0.1:0",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,TLS:SSL,MUTUAL:SSL,"
        "SASL:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "ssl.keystore.location": str(server),
        "ssl.truststore.location": str(authority.path),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=tests$/$1/, DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.users.file": str(users),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
    } | {name.replace("__", "-").replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="session")
def secure(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[SecureBroker]:
    """A broker without an authorizer, shared."""
    folder = tmp_path_factory.mktemp("secure")
    with SecureBroker(folder / "data", settings_of_everything(folder, authority)) as broker:
        yield broker
        log = broker.log()
    assert "Traceback" not in log, log
    assert not [s for s in PASSWORDS.values() if s in log]


@pytest.fixture(scope="session")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[SecureBroker]:
    """A broker with an authorizer: admin is a super user, all others need ACLs. Shared."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = settings_of_everything(
        folder,
        authority,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:admin;User:root",
    )
    with SecureBroker(folder / "data", settings) as broker:
        yield broker
        log = broker.log()
    assert "Traceback" not in log, log
    assert not [s for s in PASSWORDS.values() if s in log]


@pytest.fixture
def new_secure(tmp_path: Path, authority: Authority) -> Iterator[Callable[..., SecureBroker]]:
    """Start a broker of one's own, with settings on top; ``__`` means a dash."""
    started: list[SecureBroker] = []

    def start(**more: str) -> SecureBroker:
        folder = tmp_path / f"own-{len(started)}"
        folder.mkdir()
        broker = SecureBroker(folder / "data", settings_of_everything(folder, authority, **more))
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.stop()
        assert "Traceback" not in broker.log(), broker.log()
