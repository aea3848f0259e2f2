"""SCRAM by the known vectors, against a client of our own, and against what must fail."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.security.sasl import AuthenticationError, Plain, Scram, new_mechanism
from penstock_broker.security.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramError,
    ScramServer,
)
from penstock_broker.security.users import (
    Users,
    parse_jaas,
    parse_users_file,
    scram_from_section,
    scram_to_section,
)

MECHANISMS = sorted(HASHES)


def test_the_vector_of_rfc_7677() -> None:
    credential = ScramCredential.of_password(
        "SCRAM-SHA-256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    )
    server = ScramServer(
        "SCRAM-SHA-256", {"user": credential}.get, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    answer = server.step(f"c=biws,r={nonce},p={proof}".encode())
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


class Client:
    """The other side, as RFC 5802 has it."""

    def __init__(self, mechanism: str, name: str, password: str, *, header: str = "n,,") -> None:
        self.hash = HASHES[mechanism]
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={escaped},r=clientnonce"
        self.header = header
        self.first = f"{header}{self.bare}".encode()
        self.password = password
        self.verifier = b""

    def final(self, answer: bytes, *, nonce: str | None = None, header: str | None = None) -> bytes:
        """The last message, its proof true of what it says, also of another nonce or header."""
        parts = dict(part.split("=", 1) for part in answer.decode().split(","))
        salt, count = base64.b64decode(parts["s"]), int(parts["i"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, count)
        binding = base64.b64encode((self.header if header is None else header).encode()).decode()
        bare = f"c={binding},r={parts['r'] if nonce is None else nonce}"
        message = f"{self.bare},{answer.decode()},{bare}".encode()
        key = hmac.digest(salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), message, self.hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.hash)
        verifier = hmac.digest(server_key, message, self.hash)
        self.verifier = b"v=" + base64.b64encode(verifier)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "Jürgen", "with space"])
def test_both_sides_prove_themselves(mechanism: str, name: str) -> None:
    users = Users({name: "gehéim,="})
    server = new_mechanism(mechanism, users)
    client = Client(mechanism, name, "gehéim,=")
    answer = server.step(client.final(server.step(client.first)))
    assert answer == client.verifier
    assert server.user == name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_does_not_know_the_password_is_refused(mechanism: str) -> None:
    users = Users({"alice": "secret"})
    server = new_mechanism(mechanism, users)
    client = Client(mechanism, "alice", "Secret")
    final = client.final(server.step(client.first))
    with pytest.raises(AuthenticationError) as caught:
        server.step(final)
    assert server.user is None
    with pytest.raises(AuthenticationError) as unknown:  # the client learns no more than that
        new_mechanism(mechanism, users).step(Client(mechanism, "unknown", "x").first)
    assert str(unknown.value) == str(caught.value)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=alice,r=x,tokenauth=true",
        b"n,,m=1,n=alice,r=x",
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    credential = ScramCredential.of_password("SCRAM-SHA-256", "s", b"salt")
    server = ScramServer("SCRAM-SHA-256", lambda _: credential, "n")
    with pytest.raises(ScramError):
        server.step(first)


def test_extensions_are_let_pass_but_for_delegation_tokens() -> None:
    """ScramMessages of Kafka: names of any number of letters."""
    credential = ScramCredential.of_password("SCRAM-SHA-256", "s", b"salt")
    for extension in (",x=1", ",ext=some,x=1", ",tokenauth=false", ",tokenauth=trueish"):
        server = ScramServer("SCRAM-SHA-256", lambda _: credential, "n")
        assert server.step(b"n,,n=alice,r=x" + extension.encode()).startswith(b"r=xn,")
    for extension in (",tokenauth=true", ",x=1,tokenauth=true,y=2"):
        server = ScramServer("SCRAM-SHA-256", lambda _: credential, "n")
        with pytest.raises(ScramError, match="delegation tokens"):
            server.step(b"n,,n=alice,r=x" + extension.encode())


def test_credentials_that_are_not_whole_are_refused() -> None:
    good = ScramCredential.of_password("SCRAM-SHA-256", "secret", b"salt").to_json()
    short = base64.b64encode(bytes(31)).decode()
    assert ScramCredential.from_json("SCRAM-SHA-256", good | {"iterations": 1}).iterations == 1
    for change in (
        {"iterations": 0},
        {"salt": ""},
        {"stored_key": short},
        {"server_key": short},
        {"stored_key": f"!{good['stored_key']}"},
    ):
        with pytest.raises(ValueError):
            ScramCredential.from_json("SCRAM-SHA-256", good | change)
    with pytest.raises(ValueError):
        ScramCredential.parse("SCRAM-SHA-256$4096:abc$abc:abc")
    assert (ITERATIONS_MIN, ITERATIONS_MAX) == (4_096, 16_384), "KIP-554"


def test_last_messages_that_are_refused() -> None:
    credential = ScramCredential.of_password("SCRAM-SHA-256", "secret", b"salt")

    def begin() -> tuple[ScramServer, bytes]:
        server = ScramServer("SCRAM-SHA-256", lambda _: credential, "n")
        client = Client("SCRAM-SHA-256", "alice", "secret")
        return server, client.final(server.step(client.first))

    server, good = begin()
    assert server.step(good)
    with pytest.raises(ScramError):
        server.step(good)  # and not twice
    for change in (
        lambda m: m.replace(b"c=biws", b"c=eSws"),
        lambda m: m.replace(b"r=clientnonce", b"r=othernonce"),
        lambda m: m[:-6],
        lambda m: m.replace(b",p=", b",p=AAAA"),
        lambda m: b"",
    ):
        server, good = begin()
        with pytest.raises(ScramError):
            server.step(change(good))
        assert server.user is None


def test_the_proof_of_another_exchange_is_refused() -> None:
    """The password is right, but proven for another nonce or channel: a replayed message, or one
    that a man in the middle passes on."""
    credential = ScramCredential.of_password("SCRAM-SHA-256", "secret", b"salt")
    for header, changes, reason in (
        ("n,,", {"nonce": "clientnonceserver2"}, "nonce"),
        ("n,,", {"nonce": "clientnonce"}, "nonce"),
        ("n,,", {"nonce": "clientnonceserver1x"}, "nonce"),
        ("n,,", {"header": "y,,"}, "channel binding"),
        ("n,,", {"header": "n,a=alice,"}, "channel binding"),
        ("n,a=alice,", {"header": "n,,"}, "channel binding"),
        ("n,a=alice,", {}, None),
        ("n,,", {}, None),
    ):
        server = ScramServer("SCRAM-SHA-256", lambda _: credential, "server1")
        client = Client("SCRAM-SHA-256", "alice", "secret", header=header)
        final = client.final(server.step(client.first), **changes)
        if reason is None:
            assert server.step(final) == client.verifier
            continue
        with pytest.raises(ScramError, match=reason):
            server.step(final)
        assert server.user is None


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_garbage_ends_in_an_error(first: bytes, second: bytes) -> None:
    credential = ScramCredential("SCRAM-SHA-256", 4096, b"salt", bytes(32), bytes(32))
    for start in (first, b"n,,n=alice,r=x"):
        server = ScramServer("SCRAM-SHA-256", lambda _: credential, "n")
        with pytest.raises(ScramError):
            server.step(start)
            server.step(second)
        assert server.user is None


# -- PLAIN --------------------------------------------------------------------------------------


def test_plain() -> None:
    users = Users({"alice": "secret", "empty": ""})
    for token in (b"\0alice\0secret", b"alice\0alice\0secret"):
        plain = Plain(users)
        assert plain.step(token) == b"" and plain.user == "alice"
    for token in (
        b"",
        b"alice",
        b"\0alice\0Secret",
        b"\0unknown\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"\0empty\0",
        b"bob\0alice\0secret",
        b"\0alice\0secret\0",
        b"\0alice\0secr\xff",
    ):
        plain = Plain(users)
        with pytest.raises(AuthenticationError) as caught:
            plain.step(token)
        assert plain.user is None
        assert "secret" not in f"{caught.value} {caught.value.detail}".lower()


def test_what_a_client_gets_and_what_the_log_says() -> None:
    users = Users({"alice": "secret"})
    for token, message in (
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"bob\0alice\0secret", "different from username"),
        (b"alice", "expected 3 tokens"),
    ):
        plain = new_mechanism("PLAIN", users)
        assert plain.name == "PLAIN"
        with pytest.raises(AuthenticationError, match=message) as caught:
            plain.step(token)
        assert caught.value.detail == str(caught.value)
    scram = Scram("SCRAM-SHA-256", users, lambda: "servernonce")
    assert scram.step(b"n,,n=alice,r=x").startswith(b"r=xservernonce,")
    with pytest.raises(AuthenticationError, match="SCRAM-SHA-256") as refused:
        scram.step(b"nonsense")
    assert refused.value.detail == "a last message that is not SCRAM's"
    assert refused.value.detail not in str(refused.value), "only the log says what was wrong"
    assert str(refused.value).startswith("Authentication failed during authentication due to")
    with pytest.raises(KeyError):
        new_mechanism("GSSAPI", users)


# -- where users come from ------------------------------------------------------------------------


def test_a_file_of_users() -> None:
    verifier = ScramCredential.of_password("SCRAM-SHA-512", "other", b"0123456789abcdef")
    parts = verifier.to_json()
    text = (
        "# comment\n\nalice = secret = with = signs\n"
        f"bob=SCRAM-SHA-512$4096:{parts['salt']}${parts['stored_key']}:{parts['server_key']}\n"
    )
    users = parse_users_file(text)
    assert users.check_password("alice", "secret = with = signs")
    assert users.credential("bob", "SCRAM-SHA-512") == verifier
    assert users.credential("bob", "SCRAM-SHA-256") is None
    assert not users.check_password("bob", "other")
    assert not users.check_password("unknown", "")
    with pytest.raises(ValueError, match="line 1"):
        parse_users_file("alice\n")
    made = users.credential("alice", "SCRAM-SHA-256")
    assert made is not None and users.credential("alice", "SCRAM-SHA-256") is made
    assert len(made.salt) == 16, "no two users share a table of guesses"
    for bad in ("alice\n", "alice=\n", "=x\n", "bob=SCRAM-SHA-512$geheim\n"):
        with pytest.raises(ValueError, match="line 1") as caught:
            parse_users_file(bad)
        assert "geheim" not in str(caught.value)


def test_users_of_a_jaas_line() -> None:
    users = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="x" user_admin="admin-secret" user_a.b="q\\"uo;te" ;'
    )
    assert users.check_password("admin", "admin-secret")
    assert users.check_password("a.b", 'q"uo;te')
    assert parse_jaas("PlainLoginModule required user_b='single';").check_password("b", "single")
    assert len(users) == 2
    assert len(parse_jaas("")) == 0
    assert not parse_jaas('PlainLoginModule required user_c="";').check_password("c", "X")
    with pytest.raises(ValueError, match="PlainLoginModule"):
        parse_jaas('some.Other required user_a="b";')


def test_the_section_of_credentials() -> None:
    users = {
        "alice": {m: ScramCredential.of_password(m, "s", b"salt") for m in MECHANISMS},
        "bob": {"SCRAM-SHA-256": ScramCredential.of_password("SCRAM-SHA-256", "t", b"salt")},
    }
    assert scram_from_section(scram_to_section(users)) == users
    assert scram_from_section({}) == {}
    assert scram_to_section({"unknown": {}}) == {"users": {}}
    for broken in (
        {"users": {"a": {"SCRAM-SHA-1": {}}}},
        {"users": {"a": {"SCRAM-SHA-256": {"iterations": 1}}}},
        {
            "users": {
                "a": {
                    "SCRAM-SHA-256": {
                        "iterations": 1,
                        "salt": "?",
                        "stored_key": "",
                        "server_key": "",
                    }
                }
            }
        },
        {"users": []},
    ):
        with pytest.raises(ValueError):
            scram_from_section(broken)


def test_nothing_secret_is_printed() -> None:
    users = Users({"alice": "geheim"})
    credential = users.credential("alice", "SCRAM-SHA-256")
    assert credential is not None
    shown = f"{users!r} {users} {credential!r} {credential} {[credential]}"
    assert "geheim" not in shown
    assert repr(users) == "Users(1)"
    for secret in (credential.salt, credential.stored_key, credential.server_key):
        assert repr(secret) not in shown
        assert base64.b64encode(secret).decode() not in shown
