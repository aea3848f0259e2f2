"""The settings of listeners, as Kafka names them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.config import (
    BrokerConfig,
    ConfigError,
    ListenerConfig,
    SecurityProtocol,
    listener_configs,
    load_config,
)
from penstock_broker.server.tls import _pem, openssl_name

TLS = {"ssl.keystore.location": "server.pem"}


def listeners(host: str = "127.0.0.1", port: int = 9092, **settings: str) -> list[ListenerConfig]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return listener_configs(BrokerConfig.parse(given), host, port)


def test_without_settings_there_is_one_plaintext_listener() -> None:
    (only,) = listeners("0.0.0.0", 1234)
    assert (only.name, only.host, only.port) == ("PLAINTEXT", "0.0.0.0", 1234)
    assert only.protocol is SecurityProtocol.PLAINTEXT
    assert only.advertised_address(("0.0.0.0", 1234), "here") == ("127.0.0.1", 1234)
    (listener,) = listeners(advertised_listeners="PLAINTEXT://kafka.example:1")
    assert listener.advertised_address(("127.0.0.1", 9092), "here") == ("kafka.example", 1)


def test_each_listener_has_its_own_protocol_address_and_settings() -> None:
    given = {
        "listeners": "INTERNAL://127.0.0.1:9092, external://[::1]:9093, ANY://:9094",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL,ANY:ssl",
        "advertised.listeners": "EXTERNAL://kafka.example:19093",
        "listener.name.external.ssl.client.auth": "requested",
        "listener.name.external.ssl.truststore.location": "ca.pem",
        "listener.name.external.sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "5",
        "listener.name.external.connections.max.reauth.ms": "7",
    } | TLS
    inside, outside, everywhere = listener_configs(BrokerConfig.parse(given), "x", 1)
    assert (outside.name, outside.host, outside.port) == ("EXTERNAL", "::1", 9093)
    assert outside.protocol is SecurityProtocol.SASL_SSL
    assert outside.settings.sasl_enabled_mechanisms == ("PLAIN",)
    assert outside.settings.ssl_client_auth == "requested"
    assert outside.settings.connections_max_reauth_ms == 7
    assert outside.advertised_address(("::1", 9093), "here") == ("kafka.example", 19093)
    assert inside.settings.ssl_client_auth == "none"
    assert inside.settings.connections_max_reauth_ms == 5
    assert inside.advertised_address(("127.0.0.1", 9092), "here") == ("127.0.0.1", 9092)
    assert everywhere.host == ""
    assert everywhere.advertised_address(("0.0.0.0", 9094), "here") == ("here", 9094)


def test_a_file_for_kraft_opens_no_door_for_controllers() -> None:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    (only,) = listener_configs(BrokerConfig.parse(given), "x", 1)
    assert only.name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT:/x:1"}, "Unable to parse"),
        ({"listeners": "PLAINTEXT://x:99999"}, "Unable to parse"),
        ({"listeners": "PLAINTEXT://x:1,PLAINTEXT://x:2"}, "different name"),
        ({"listeners": "PLAINTEXT://x:1,SASL_PLAINTEXT://x:1"}, "different port"),
        ({"listeners": "PLAINTEXT://x:1,SASL_PLAINTEXT://:1"}, "different port"),
        ({"listeners": "OTHER://x:1"}, "No security protocol defined for listener OTHER"),
        (
            {"listeners": "OTHER://x:1", "listener.security.protocol.map": "OTHER:KERBEROS"},
            "listener.security.protocol.map",
        ),
        ({"listeners": "SSL://x:1"}, "ssl.keystore.location"),
        (
            {"listeners": "SSL://x:1", "ssl.client.auth": "required"} | TLS,
            "ssl.truststore.location",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "meta-address"),
        (
            {"listeners": "PLAINTEXT://x:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "meta-address",
        ),
        (
            {"listeners": "PLAINTEXT://x:1", "advertised.listeners": "SSL://y:1"},
            "must be equal to or a subset",
        ),
        (
            {
                "listeners": "PLAINTEXT://x:1,SASL_PLAINTEXT://x:2",
                "advertised.listeners": "PLAINTEXT://y:1,SASL_PLAINTEXT://y:1",
            },
            "different address",
        ),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type"),
        ({"authorizer.class.name": "my.Authorizer"}, "authorizer.class.name"),
        ({"listener.name.x.num.partitions": "1"}, "Unknown configuration"),
        ({"listener.name.x.ssl.client.auth": "maybe"}, "listener.name.x.ssl.client.auth"),
    ],
)
def test_what_is_refused(settings: dict[str, str], message: str) -> None:
    """Pitfall 47: addresses that clients cannot reach, or that two listeners share, are refused."""
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        listener_configs(BrokerConfig.parse(settings), "127.0.0.1", 9092)


def test_secrets_are_not_printed() -> None:
    settings = {
        "ssl.key.password": "geheim",
        "ssl.keystore.key": "geheim",
        "plain.sasl.jaas.config": "geheim",
        "listener.name.plaintext.plain.sasl.jaas.config": "geheim",
    }
    config = BrokerConfig.parse(settings)
    entries = config.describe_broker()
    shown = f"{config!r} {config} {listener_configs(config, 'x', 1)!r} {entries!r}"
    assert "geheim" not in shown
    assert config.ssl_key_password.value == "geheim"


def test_a_file_as_kafka_has_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092\n"
        "zookeeper.connect=somewhere\n"
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.PlainLoginModule \\\n"
        '   required user_alice="geheim";\n'
        "sasl.enabled.mechanisms=PLAIN\n"
    )
    config, unknown = load_config(path)
    assert unknown == ["zookeeper.connect"]
    (listener,) = listener_configs(config, "x", 1)
    assert listener.settings.plain_sasl_jaas_config.value.endswith('required user_alice="geheim";')
    path.write_text("listeners=x\ngeheim\n")
    with pytest.raises(ConfigError, match=r"server\.properties:2") as caught:
        load_config(path)
    assert "geheim" not in str(caught.value)


def test_cipher_suites_have_two_names() -> None:
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384") == "ECDHE-RSA-AES256-GCM-SHA384"
    assert openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA") == "AES128-SHA"
    chacha = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    assert openssl_name(chacha) == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert openssl_name("ECDHE-RSA-AES256-GCM-SHA384") == "ECDHE-RSA-AES256-GCM-SHA384"


def test_pem_in_one_line() -> None:
    text = "-----BEGIN X KEY-----\nAAAA\nBB==\n-----END X KEY-----\n"
    assert _pem(text) == text
    assert _pem(text.replace("\n", "\\n")) == text
    assert _pem(text.replace("\n", " ")) == text
    assert _pem(text.replace("\n", " ") * 2) == text * 2
