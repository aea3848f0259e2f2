"""Users and their credentials: from a file, from a JAAS line, from the cluster's metadata.

Form of the section ``scram`` of the cluster's metadata: ``{"users": {name: {mechanism:
{"iterations", "salt", "stored_key", "server_key"}}}}``, the last three in base64.

Form of the users' file (``sasl.users.file``): ``name=password`` lines, for PLAIN and SCRAM alike,
or ``name=SCRAM-SHA-256$iterations:salt$stored key:server key`` for that mechanism alone; a name
may be in one line of each kind. ``#`` begins a comment line. Nothing of it is ever logged.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping
from typing import Any

from penstock_broker.security.scram import HASHES, ScramCredential

SALT_BYTES = 16
_JAAS_USER = re.compile(r"""\buser_([^\s="']+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)')""")
_ESCAPED = re.compile(r"\\(.)")


class Users:
    """Users that a configuration gives, by name. Neither ``repr`` nor errors show a secret."""

    def __init__(
        self,
        passwords: Mapping[str, str] | None = None,
        credentials: Mapping[tuple[str, str], ScramCredential] | None = None,
    ) -> None:
        self._passwords = dict(passwords or {})
        self._credentials = dict(credentials or {})

    def check_password(self, name: str, password: str) -> bool:
        """Whether this is the password of ``name``."""
        known = self._passwords.get(name)
        # Compared even when there is no such user: that takes the same time.
        same = hmac.compare_digest((known or "").encode(), password.encode())
        return same and known is not None

    def credential(self, name: str, mechanism: str) -> ScramCredential | None:
        """What SCRAM needs to know; made from the password once, when it is first asked for."""
        found = self._credentials.get((name, mechanism))
        if found is None and (password := self._passwords.get(name)) is not None:
            salt = os.urandom(SALT_BYTES)
            found = ScramCredential.of_password(mechanism, password, salt)
            self._credentials[name, mechanism] = found
        return found

    def __len__(self) -> int:
        return len(self._passwords.keys() | {name for name, _ in self._credentials})

    def __repr__(self) -> str:
        return f"Users({len(self)})"


def parse_users_file(text: str) -> Users:
    """The users of a file. ValueError with the number of a line that cannot be read."""
    passwords: dict[str, str] = {}
    credentials: dict[tuple[str, str], ScramCredential] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, secret = line.partition("=")
        name, secret = name.strip(), secret.strip()
        if not (separator and name and secret):
            raise ValueError(f"line {number}: expected name=password")
        if secret.startswith(tuple(f"{mechanism}$" for mechanism in HASHES)):
            try:
                credential = ScramCredential.parse(secret)
            except ValueError:
                raise ValueError(f"line {number}: not a SCRAM credential") from None
            credentials[name, credential.mechanism] = credential
        else:
            passwords[name] = secret
    return Users(passwords, credentials)


def parse_jaas(text: str) -> Users:
    """The ``user_<name>="password"`` options of a PlainLoginModule line. ValueError."""
    if not text.strip():
        return Users()
    if "PlainLoginModule" not in text:
        raise ValueError("plain.sasl.jaas.config does not name a PlainLoginModule")
    return Users(
        {
            name: _ESCAPED.sub(r"\1", double or single)
            for name, double, single in _JAAS_USER.findall(text)
        }
    )


def scram_from_section(section: Mapping[str, Any]) -> dict[str, dict[str, ScramCredential]]:
    """The credentials of the section ``scram``: by user and mechanism. ValueError."""
    try:
        return {
            name: {m: ScramCredential.from_json(m, value) for m, value in mechanisms.items()}
            for name, mechanisms in section.get("users", {}).items()
        }
    except (AttributeError, KeyError) as error:
        raise ValueError("the SCRAM credentials cannot be read") from error


def scram_to_section(users: Mapping[str, Mapping[str, ScramCredential]]) -> dict[str, Any]:
    """The section ``scram`` of these credentials."""
    return {
        "users": {
            name: {m: credential.to_json() for m, credential in mechanisms.items()}
            for name, mechanisms in users.items()
            if mechanisms
        }
    }
