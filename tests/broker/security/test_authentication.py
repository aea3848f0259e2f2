"""SASL on one connection without a network: which token is accepted when, and the answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock_broker.security.authentication import Authentication, AuthenticationState
from penstock_broker.security.sasl import AuthenticationError
from penstock_broker.security.scram import ScramCredential
from penstock_broker.security.session import Session
from penstock_broker.security.users import Users

ALICE, BOB = b"\0alice\0secret", b"\0bob\0secret"
SCRAM = ScramCredential.of_salted_password("SCRAM-SHA-256", b"salt", 4_096, b"x" * 32)
USERS = Users({"alice": "secret", "bob": "secret"}, {("alice", "SCRAM-SHA-256"): SCRAM})
MECHANISMS = ["PLAIN", "SCRAM-SHA-256"]
HANDSHAKE, TOKENS, RAW, DONE, RENEWING = AuthenticationState


class Door:
    """Notes what happens to the connection."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self.responses: list[Callable[[], None] | None] = []

    def passed(self, principal: str, mechanism: str) -> None:
        self.events.append(("passed", principal, mechanism))

    def refused(self, mechanism: str, detail: str, respond: Callable[[], None] | None) -> None:
        self.events.append(("refused", mechanism, detail))
        self.responses.append(respond)


@pytest.fixture
def door() -> Door:
    return Door()


def exchange(door: Door, lifetime_ms: int = 0) -> Authentication:
    return Authentication(MECHANISMS, USERS, door, lifetime_ms)


def authenticated(door: Door, lifetime_ms: int = 0) -> Authentication:
    found = exchange(door, lifetime_ms)
    assert found.begin("PLAIN", raw=False)
    assert found.step(ALICE) == b""
    return found


def takes(found: Authentication) -> tuple[AuthenticationState, bool, bool]:
    """The state, and whether a handshake and whether a token may come."""
    return found.state, found.takes_handshake, found.takes_token


@pytest.mark.parametrize(("raw", "then"), [(False, TOKENS), (True, RAW)])
def test_from_the_handshake_to_the_end(door: Door, then: AuthenticationState, *, raw: bool) -> None:
    found = Authentication(MECHANISMS, USERS, door)
    assert (found.mechanisms, found.lifetime_ms) == (tuple(MECHANISMS), 0)
    assert takes(found) == (HANDSHAKE, True, False)
    assert not found.begin("GSSAPI", raw=raw)
    assert takes(found) == (HANDSHAKE, True, False)
    assert found.begin("PLAIN", raw=raw)
    assert takes(found) == (then, False, then is TOKENS)
    found.step(ALICE)
    assert takes(found) == (DONE, False, False), "no limit"
    assert door.events == [("passed", "User:alice", "PLAIN")]


def test_a_token_before_the_handshake(door: Door) -> None:
    with pytest.raises(AuthenticationError, match="no mechanism was chosen"):
        exchange(door).step(ALICE)
    assert door.events == []


def test_an_exchange_of_several_tokens_is_not_over_after_the_first(door: Door) -> None:
    found = exchange(door)
    found.begin("SCRAM-SHA-256", raw=False)
    assert found.step(b"n,,n=alice,r=nonce").startswith(b"r=nonce")
    assert takes(found) == (TOKENS, False, True)
    assert door.events == []


# -- again (KIP-368) -----------------------------------------------------------------------------


def test_a_session_with_an_end_is_renewed(door: Door) -> None:
    found = authenticated(door, lifetime_ms=1)
    for _ in range(2):
        assert takes(found) == (DONE, True, False)
        assert found.begin("PLAIN", raw=False)
        assert takes(found) == (RENEWING, False, True)
        found.step(ALICE)
    assert door.events == [("passed", "User:alice", "PLAIN")] * 3


@pytest.mark.parametrize(
    ("name", "raw"), [("SCRAM-SHA-256", False), ("PLAIN", True), ("GSSAPI", False)]
)
def test_a_renewal_goes_as_the_first_time(door: Door, name: str, *, raw: bool) -> None:
    """The same mechanism, and no handshake v0, which is from before renewals."""
    found = authenticated(door, lifetime_ms=1)
    assert not found.begin(name, raw=raw)
    assert takes(found) == (DONE, True, False)


def test_no_connection_becomes_another_user(door: Door) -> None:
    found = authenticated(door, lifetime_ms=1)
    found.begin("PLAIN", raw=False)
    with pytest.raises(AuthenticationError, match="from User:alice to User:bob"):
        found.step(BOB)
    assert found.state is RENEWING
    assert door.events == [("passed", "User:alice", "PLAIN")]


# -- refusals ------------------------------------------------------------------------------------


def test_the_door_gets_the_failed_mechanism_and_a_way_to_answer(door: Door) -> None:
    answered: list[str] = []
    found = exchange(door)
    found.refuse("a detail")
    found.begin("PLAIN", raw=False)
    found.refuse("another", lambda: answered.append("late"))
    assert door.events == [("refused", "unknown", "a detail"), ("refused", "PLAIN", "another")]
    assert door.responses[0] is None
    assert door.responses[1] is not None
    door.responses[1]()
    assert answered == ["late"]


def test_a_connection_that_has_ended_is_not_touched(door: Door) -> None:
    found = exchange(door)
    found.begin("PLAIN", raw=False)
    found.close()
    found.step(ALICE)
    found.refuse("a detail")
    assert door.events == []


def test_an_unauthenticated_connection_has_no_user() -> None:
    session = Session("LISTENER", "SASL_SSL", "1.1.1.1")
    assert (session.listener_name, session.security_protocol, session.host) == (
        "LISTENER",
        "SASL_SSL",
        "1.1.1.1",
    )
    assert (session.principal, session.authentication) == ("User:ANONYMOUS", None)
