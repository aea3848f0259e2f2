"""The client of a connection: its principal, its host and its listener."""

from __future__ import annotations

from penstock_broker.security.authentication import Authentication
from penstock_broker.security.principals import ANONYMOUS


class Session:
    """What a connection knows of its client. ``principal`` changes when it is authenticated."""

    __slots__ = ("authentication", "host", "listener_name", "principal", "security_protocol")

    def __init__(self, listener_name: str, security_protocol: str, host: str) -> None:
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.host = host
        """The peer's address."""
        self.principal = ANONYMOUS
        self.authentication: Authentication | None = None
        """SASL's state; None on listeners without it."""
