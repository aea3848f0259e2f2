"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the server's side, and what it keeps.

Nothing here can be turned back into a password: a credential is salt, iterations, StoredKey and
ServerKey. As Kafka does, names and passwords are taken as UTF-8 without SASLprep, and channel
binding is not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""What Kafka accepts: fewer are guessed too soon, more keep a broker busy."""

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[^,=\x00]|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE})"
    r"(?:,[A-Za-z]+=[^,\x00]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_VERIFIER = re.compile(
    r"(SCRAM-SHA-(?:256|512))\$(\d+):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)"
)


class ScramError(ValueError):
    """The exchange failed; ``str()`` is for the log and holds no secret."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password, for one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_salted_password(
        cls, mechanism: str, salt: bytes, iterations: int, salted_password: bytes
    ) -> ScramCredential:
        """From SaltedPassword, which is what AlterUserScramCredentials carries."""
        name = HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        server_key = hmac.digest(salted_password, b"Server Key", name)
        return cls(mechanism, iterations, salt, stored_key, server_key)

    @classmethod
    def of_password(
        cls, mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
    ) -> ScramCredential:
        """From a password: about a millisecond for 4,096 iterations."""
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salt, iterations, salted)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """``SCRAM-SHA-256$iterations:salt$stored key:server key``, the last three in base64."""
        found = _VERIFIER.fullmatch(text)
        if found is None:
            raise ValueError("not of the form SCRAM-SHA-256$iterations:salt$stored:server")
        mechanism, iterations, *parts = found.groups()
        return cls._checked(mechanism, int(iterations), *map(_from_base64, parts))

    @classmethod
    def from_json(cls, mechanism: str, value: Mapping[str, Any]) -> ScramCredential:
        """As :meth:`to_json` wrote it. ValueError."""
        try:
            parts = [_from_base64(value[name]) for name in ("salt", "stored_key", "server_key")]
            return cls._checked(mechanism, int(value["iterations"]), *parts)
        except (KeyError, TypeError) as error:
            raise ValueError(f"a SCRAM credential lacks {error}") from error

    @classmethod
    def _checked(
        cls, mechanism: str, iterations: int, salt: bytes, stored_key: bytes, server_key: bytes
    ) -> ScramCredential:
        size = hashlib.new(HASHES[mechanism]).digest_size
        if len(stored_key) != size or len(server_key) != size or not salt or iterations < 1:
            raise ValueError(f"not a credential of {mechanism}")
        return cls(mechanism, iterations, salt, stored_key, server_key)

    def to_json(self) -> dict[str, Any]:
        """As the section ``scram`` holds it."""
        return {
            "iterations": self.iterations,
            "salt": _to_base64(self.salt),
            "stored_key": _to_base64(self.stored_key),
            "server_key": _to_base64(self.server_key),
        }


LookUp = Callable[[str], ScramCredential | None]
"""The credential of a user for the mechanism in use."""


class ScramServer:
    """One authentication: :meth:`step` takes the client's messages and gives the answers.

    ``nonce`` is the server's own part, fresh and random. After the last step ``user`` is who it
    was; a :class:`ScramError` ends the exchange.
    """

    def __init__(self, mechanism: str, look_up: LookUp, nonce: str) -> None:
        self.user: str | None = None
        self._hash = HASHES[mechanism]
        self._look_up = look_up
        self._nonce = nonce
        self._name = ""
        self._credential: ScramCredential | None = None
        self._header = ""
        self._first = ""  # what both have said so far, as the proof covers it

    def step(self, message: bytes) -> bytes:
        """The answer to the client's next message."""
        if self.user is not None:
            raise ScramError("a message after the end")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise ScramError("a message that is not UTF-8") from None
        return self._begin(text) if self._credential is None else self._end(text)

    def _begin(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise ScramError("a first message that is not SCRAM's")
        if re.search(r",tokenauth=true(?:,|$)", found["extensions"] or ""):
            raise ScramError("delegation tokens are not supported")
        name = _unescaped(found["name"])
        if found["authzid"] is not None and _unescaped(found["authzid"]) != name:
            raise ScramError("client requested an authorization id that is different from username")
        credential = self._look_up(name)
        if credential is None:
            raise ScramError("Invalid user credentials")
        self._name, self._credential = name, credential
        self._header = found["header"]
        self._nonce = found["nonce"] + self._nonce
        salt = _to_base64(credential.salt)
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first = f"{found['bare']},{answer}"
        return answer.encode()

    def _end(self, text: str) -> bytes:
        credential = self._credential
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None or credential is None:
            raise ScramError("a last message that is not SCRAM's")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise ScramError("the nonce is another one")
        if _from_base64_or_none(found["binding"]) != self._header.encode():
            raise ScramError("the channel binding is another one")
        proof = _from_base64_or_none(found["proof"])
        message = f"{self._first},{found['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        if proof is None or len(proof) != len(signature):
            raise ScramError("Invalid user credentials")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise ScramError("Invalid user credentials")
        self.user = self._name
        verifier = hmac.digest(credential.server_key, message, self._hash)
        return f"v={_to_base64(verifier)}".encode()


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _from_base64_or_none(text: str) -> bytes | None:
    try:
        return _from_base64(text)
    except ValueError:
        return None
