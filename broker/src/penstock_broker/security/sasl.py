"""The mechanisms of SASL as a server sees them: tokens in, tokens out, and at the end a user."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from penstock_broker.security.scram import HASHES, ScramCredential, ScramError, ScramServer


class AuthenticationError(Exception):
    """``str()`` is what the client may know; ``detail`` is for the log. Neither has a secret."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail or message


class Mechanism(Protocol):
    """One exchange of one mechanism."""

    name: str

    @property
    def user(self) -> str | None:
        """The authenticated user."""
        ...

    def step(self, token: bytes) -> bytes:
        """The answer to a token. AuthenticationError."""
        ...


class Credentials(Protocol):
    """Where users are looked up."""

    def check_password(self, name: str, password: str) -> bool:
        """Whether this is the password of ``name``."""
        ...

    def credential(self, name: str, mechanism: str) -> ScramCredential | None:
        """What SCRAM needs to know of ``name``."""
        ...


class Plain:
    """PLAIN (RFC 4616): the password itself. For listeners with TLS."""

    name = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._user: str | None = None

    @property
    def user(self) -> str | None:
        return self._user

    def step(self, token: bytes) -> bytes:
        try:
            authorization, user, password = bytes(token).decode().split("\0")
        except ValueError:
            raise AuthenticationError(
                "Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens"
            ) from None
        if not user or not password:
            what = "username" if not user else "password"
            raise AuthenticationError(f"Authentication failed: {what} not specified")
        if not self._credentials.check_password(user, password):
            raise AuthenticationError("Authentication failed: Invalid username or password")
        if authorization not in {"", user}:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self._user = user
        return b""


class Scram:
    """SCRAM-SHA-256 or SCRAM-SHA-512."""

    def __init__(
        self, name: str, credentials: Credentials, make_nonce: Callable[[], str] | None = None
    ) -> None:
        nonce = (make_nonce or secrets.token_urlsafe)()
        self.name = name
        self._server = ScramServer(name, lambda user: credentials.credential(user, name), nonce)

    @property
    def user(self) -> str | None:
        return self._server.user

    def step(self, token: bytes) -> bytes:
        try:
            return self._server.step(bytes(token))
        except ScramError as error:
            raise AuthenticationError(
                "Authentication failed during authentication due to invalid credentials with "
                f"SASL mechanism {self.name}",
                str(error),
            ) from None


def new_mechanism(name: str, credentials: Credentials) -> Mechanism:
    """An exchange of the mechanism ``name``. KeyError for one that is not known."""
    if name in HASHES:
        return Scram(name, credentials)
    return {"PLAIN": Plain}[name](credentials)
