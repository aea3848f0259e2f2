"""The listeners that a configuration asks for: ``listeners`` and what belongs to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from penstock_broker.config.broker_config import BrokerConfig
from penstock_broker.config.table import ConfigError

_ENDPOINT = re.compile(r"([A-Za-z0-9_\-.]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^:/\s]*)):(-?\d+)/?")
META_ADDRESSES = ("0.0.0.0", "::")


class SecurityProtocol(Enum):
    """What is spoken on a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``NAME://host:port``; an empty host is every address of the machine."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener: its address, its advertised address, its protocol, and its settings."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol
    advertised: Endpoint | None
    settings: BrokerConfig
    """The broker's, with the ``listener.name.<name>.…`` ones in force."""

    def advertised_address(self, bound: tuple[str, int], own_name: str) -> tuple[str, int]:
        """The address that clients are given. ``own_name`` is this machine's."""
        if self.advertised is not None:
            return self.advertised.host, self.advertised.port or bound[1]
        host = self.host or own_name
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), bound[1]


def listener_configs(config: BrokerConfig, host: str, port: int) -> list[ListenerConfig]:
    """Those of ``listeners``, or one PLAINTEXT listener on ``host`` and ``port``. ConfigError."""
    left_out = {name.upper() for name in config.controller_listener_names}
    endpoints = [
        each for each in parse_endpoints("listeners", config.listeners) if each.name not in left_out
    ]
    given = bool(endpoints)
    if not given:
        endpoints = [Endpoint("PLAINTEXT", host, port)]
    _require_apart(endpoints)
    protocols = _protocol_map(config)
    advertised = {
        each.name: each
        for each in parse_endpoints("advertised.listeners", config.advertised_listeners)
        if each.name not in left_out
    }
    _check_advertised(endpoints, advertised, check_own=given)
    listeners = []
    for each in endpoints:
        protocol = protocols.get(each.name)
        if protocol is None:
            raise ConfigError(
                f"No security protocol defined for listener {each.name}: "
                "name it in listener.security.protocol.map"
            )
        shown = advertised.get(each.name)
        settings = config.for_listener(each.name)
        _check_complete(each.name, protocol, settings)
        listeners.append(ListenerConfig(each.name, each.host, each.port, protocol, shown, settings))
    return listeners


def parse_endpoints(setting: str, text: str) -> list[Endpoint]:
    """``NAME://host:port, …``; ConfigError."""
    endpoints: list[Endpoint] = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        found = _ENDPOINT.fullmatch(part)
        if found is None or not 0 <= int(found[4]) <= 65_535:
            raise ConfigError(
                f"Invalid value {text} for configuration {setting}: "
                f"Unable to parse {part} to a broker endpoint"
            )
        endpoints.append(Endpoint(found[1].upper(), found[2] or found[3], int(found[4])))
    names = [each.name for each in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(
            f"Each listener must have a different name, {setting}: {', '.join(sorted(names))}"
        )
    return endpoints


def _require_apart(endpoints: list[Endpoint]) -> None:
    taken: dict[int, str] = {}
    for each in endpoints:
        other = taken.get(each.port)
        if each.port and other is not None and (each.host == other or not each.host or not other):
            raise ConfigError(
                "Each listener must have a different port, listeners: " + str(each.port)
            )
        taken[each.port] = each.host


def _check_advertised(
    endpoints: list[Endpoint], advertised: dict[str, Endpoint], *, check_own: bool
) -> None:
    strangers = sorted(set(advertised) - {each.name for each in endpoints})
    if strangers:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners; {', '.join(strangers)} is not"
        )
    addresses = [(e.host, e.port) for e in advertised.values() if e.port]
    if len(set(addresses)) != len(addresses):
        raise ConfigError("Each listener must have a different address in advertised.listeners")
    for each in endpoints:
        shown = advertised.get(each.name)
        host = each.host if shown is None else shown.host
        if (shown is not None and not host) or (
            host in META_ADDRESSES and (check_own or shown is not None)
        ):
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {host!r}. "
                "Use a routable IP address."
            )


def _protocol_map(config: BrokerConfig) -> dict[str, SecurityProtocol]:
    protocols = {}
    for pair in config.listener_security_protocol_map:
        name, _, protocol = pair.partition(":")
        try:
            protocols[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            raise ConfigError(
                f"Invalid value {pair} for configuration listener.security.protocol.map: "
                f"use NAME:PROTOCOL with one of {', '.join(p.value for p in SecurityProtocol)}"
            ) from None
    return protocols


def _check_complete(name: str, protocol: SecurityProtocol, settings: BrokerConfig) -> None:
    if not protocol.has_tls:
        return
    has_text = settings.ssl_keystore_certificate_chain and settings.ssl_keystore_key
    if not (settings.ssl_keystore_location or has_text):
        raise ConfigError(
            f"Listener {name} speaks {protocol.value}: set ssl.keystore.location, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    if settings.ssl_client_auth != "none" and not (
        settings.ssl_truststore_location or settings.ssl_truststore_certificates
    ):
        raise ConfigError(
            f"Listener {name} asks for clients' certificates: set ssl.truststore.location or "
            "ssl.truststore.certificates"
        )
