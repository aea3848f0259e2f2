"""SASL on one connection, as a state machine: handshake, tokens, done; and again (KIP-368).

Sans-I/O: the APIs and the raw tokens of a handshake v0 go through the same calls; what has to
happen to the connection goes to a :class:`Door`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from penstock_broker.security.principals import user
from penstock_broker.security.sasl import AuthenticationError, Credentials, Mechanism, new_mechanism


class AuthenticationState(Enum):
    HANDSHAKE = "a mechanism is to be chosen"
    TOKENS = "tokens come in SaslAuthenticate requests"
    RAW = "tokens come as frames of their own: the handshake had version 0"
    DONE = "the client is authenticated"
    RENEWING = "authenticated, and about to authenticate again"


class Door(Protocol):
    """The connection, as far as authentication moves it."""

    def passed(self, principal: str, mechanism: str) -> None:
        """It was proven that the client is ``principal``."""
        ...

    def refused(self, mechanism: str, detail: str, respond: Callable[[], None] | None) -> None:
        """It was not: after a while ``respond`` and close the connection."""
        ...


class _ClosedDoor:
    """The connection has ended."""

    def passed(self, principal: str, mechanism: str) -> None:
        pass

    def refused(self, mechanism: str, detail: str, respond: Callable[[], None] | None) -> None:
        pass


class Authentication:
    """The state of one connection on a SASL listener."""

    __slots__ = ("_credentials", "_door", "_mechanism", "_principal", "lifetime_ms", "mechanisms",
                 "state")  # fmt: skip

    def __init__(
        self,
        mechanisms: Sequence[str],
        credentials: Credentials,
        door: Door,
        lifetime_ms: int = 0,
    ) -> None:
        """``lifetime_ms``: how long a session lasts before it has to be renewed; 0: no limit."""
        self.mechanisms = tuple(mechanisms)
        self.lifetime_ms = lifetime_ms
        self.state = AuthenticationState.HANDSHAKE
        self._credentials = credentials
        self._door: Door = door
        self._mechanism: Mechanism | None = None
        self._principal: str | None = None

    @property
    def takes_handshake(self) -> bool:
        """Whether a SaslHandshake may come now."""
        if self.state is AuthenticationState.DONE:
            return self.lifetime_ms > 0
        return self.state is AuthenticationState.HANDSHAKE

    @property
    def takes_token(self) -> bool:
        """Whether a SaslAuthenticate may come now."""
        return self.state in {AuthenticationState.TOKENS, AuthenticationState.RENEWING}

    def begin(self, name: str, *, raw: bool) -> bool:
        """Continue with this mechanism; False when it is not one of ours (or, renewing, another
        one than before). ``raw``: the tokens will come without Kafka's framing."""
        is_renewal = self.state is AuthenticationState.DONE
        if name not in self.mechanisms or (
            is_renewal and (self._mechanism is None or self._mechanism.name != name or raw)
        ):
            return False
        self._mechanism = new_mechanism(name, self._credentials)
        if is_renewal:
            self.state = AuthenticationState.RENEWING
        else:
            self.state = AuthenticationState.RAW if raw else AuthenticationState.TOKENS
        return True

    def step(self, token: bytes) -> bytes:
        """The answer to a token. AuthenticationError: call :meth:`refuse`."""
        mechanism = self._mechanism
        if mechanism is None:
            raise AuthenticationError("Authentication failed: no mechanism was chosen")
        answer = mechanism.step(token)
        if mechanism.user is not None:
            principal = user(mechanism.user)
            if self._principal not in {None, principal}:
                raise AuthenticationError(
                    "Cannot change principals during re-authentication from "
                    f"{self._principal} to {principal}"
                )
            self._principal = principal
            self.state = AuthenticationState.DONE
            self._door.passed(principal, mechanism.name)
        return answer

    def close(self) -> None:
        """The connection has ended: drop the reference to it."""
        self._door = _ClosedDoor()

    def refuse(self, detail: str, respond: Callable[[], None] | None = None) -> None:
        """It has failed: ``respond`` after the delay that guessing costs, and close."""
        name = self._mechanism.name if self._mechanism is not None else "unknown"
        self._door.refused(name, detail, respond)
