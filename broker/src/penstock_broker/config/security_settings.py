"""The security settings: listeners, TLS, SASL, authorization.

Kafka's names and meanings; certificates and keys are PEM. What :data:`LISTENER_SETTINGS` names can
be set for one listener as ``listener.name.<name, lower case>.<setting>``, as in Kafka. The
settings about users' files and time limits are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_broker.config.limit_settings import LimitSettings
from penstock_broker.config.table import (
    ConfigType,
    Password,
    at_least,
    each_of,
    one_of,
    rows_of,
    setting,
)

NO_PASSWORD = Password("")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHORIZERS = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "StandardAuthorizer",
    "AclAuthorizer",
)
PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


@dataclass(frozen=True, slots=True)
class ListenerSettings(LimitSettings):
    """What each listener can have for itself."""

    authentication_timeout_ms: int = setting(
        "authentication.timeout.ms",
        ConfigType.INT,
        30_000,
        "How long a client may take to authenticate: TLS handshake and SASL together.",
        check=at_least(100),
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "How long a SASL session lasts before it has to be renewed (KIP-368); 0: no limit.",
        check=at_least(0),
    )
    plain_sasl_jaas_config: Password = setting(  # noqa: RUF009
        "plain.sasl.jaas.config",
        ConfigType.PASSWORD,
        NO_PASSWORD,
        'Users of PLAIN as Kafka takes them: PlainLoginModule required user_alice="secret";',
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The mechanisms that SASL listeners offer: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
        check=each_of(*MECHANISMS),
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524_288,
        "The largest request before authentication.",
        check=at_least(1),
    )
    sasl_users_file: str = setting(
        "sasl.users.file",
        ConfigType.STRING,
        "",
        "A file of users, read again when it changes: name=password (PLAIN and SCRAM), or "
        "name=SCRAM-SHA-256$iterations:salt$stored key:server key.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        ConfigType.LIST,
        (),
        "Cipher suites of TLS 1.2, by their IANA or OpenSSL names; empty: OpenSSL's choice.",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        ConfigType.STRING,
        "none",
        "Whether clients show a certificate: none, requested or required.",
        check=one_of("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ConfigType.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "TLSv1.2, TLSv1.3 or both; nothing older.",
        check=each_of("TLSv1.2", "TLSv1.3"),
    )
    ssl_key_password: Password = setting(  # noqa: RUF009
        "ssl.key.password", ConfigType.PASSWORD, NO_PASSWORD, "Decrypts the private key."
    )
    ssl_keystore_certificate_chain: str = setting(
        "ssl.keystore.certificate.chain",
        ConfigType.STRING,
        "",
        "The certificate with its chain, as PEM text, where there is no ssl.keystore.location.",
    )
    ssl_keystore_key: Password = setting(  # noqa: RUF009
        "ssl.keystore.key",
        ConfigType.PASSWORD,
        NO_PASSWORD,
        "The private key, as PEM text, where there is no ssl.keystore.location.",
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        ConfigType.STRING,
        "",
        "A PEM file: private key, certificate, chain. Read again when it changes.",
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        ConfigType.STRING,
        "PEM",
        "The form of the key store: PEM.",
        check=one_of("PEM"),
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        ConfigType.STRING,
        "DEFAULT",
        "How a certificate's distinguished name becomes a user: DEFAULT, or "
        "RULE:pattern/replacement/[LU], …; the first that fits.",
    )
    ssl_truststore_certificates: str = setting(
        "ssl.truststore.certificates",
        ConfigType.STRING,
        "",
        "The certificate authorities of clients' certificates, as PEM text.",
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        ConfigType.STRING,
        "",
        "A PEM file of those authorities. Read again when it changes.",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        ConfigType.STRING,
        "PEM",
        "The form of the trust store: PEM.",
        check=one_of("PEM"),
    )


@dataclass(frozen=True, slots=True)
class SecuritySettings(ListenerSettings):
    """Part of :class:`~penstock_broker.config.broker_config.BrokerConfig`."""

    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        "Whether resources without ACLs are open to every principal.",
    )
    advertised_listeners: str = setting(
        "advertised.listeners",
        ConfigType.STRING,
        "",
        "Addresses advertised to clients, NAME://host:port for each listener; empty: their own.",
    )
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        "StandardAuthorizer (or Kafka's full name of it, or of AclAuthorizer) refuses what no ACL "
        "allows; empty: every operation is allowed.",
        check=one_of(*AUTHORIZERS),
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "How long the answer to a failed authentication is delayed, and with it the close.",
        check=at_least(0),
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        ConfigType.LIST,
        (),
        "Listeners that are not opened: the controllers', in a file made for Apache Kafka.",
    )
    credentials_check_interval_ms: int = setting(
        "credentials.check.interval.ms",
        ConfigType.INT,
        5_000,
        "How often files of certificates, keys and users are checked for changes.",
        check=at_least(10),
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        ConfigType.LIST,
        tuple(PROTOCOL_MAP.split(",")),
        "NAME:PROTOCOL pairs: the security protocol of each listener.",
    )
    listeners: str = setting(
        "listeners",
        ConfigType.STRING,
        "",
        "NAME://host:port, …; empty: one PLAINTEXT listener on --host and --port.",
    )
    super_users: str = setting(
        "super.users",
        ConfigType.STRING,
        "",
        "User:alice;User:bob: principals for whom every operation is allowed.",
    )


LISTENER_SETTINGS = {
    name: row
    for name, row in rows_of(ListenerSettings).items()
    if name not in rows_of(LimitSettings)
}
"""What ``listener.name.<name>.…`` can set, by name."""
