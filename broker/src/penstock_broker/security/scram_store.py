"""SCRAM credentials that the cluster keeps: changed and listed by admin requests (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_broker.cluster.metadata_store import Change, MetadataStore
from penstock_broker.security.scram import ScramCredential
from penstock_broker.security.users import scram_from_section, scram_to_section

SECTION = "scram"
USERS_MAX = 100_000


class ScramStore:
    """The section ``scram``, read once and written with every change."""

    def __init__(self, metadata: MetadataStore) -> None:
        """ValueError when the section cannot be read."""
        self._metadata = metadata
        section: Mapping[str, Any] = metadata.section(SECTION)
        self._users = scram_from_section(section)

    def credential(self, name: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user, if it has one of this mechanism."""
        return self._users.get(name, {}).get(mechanism)

    def users(self) -> list[str]:
        """All users with a credential."""
        return sorted(self._users)

    def mechanisms(self, name: str) -> dict[str, int]:
        """The iterations of each mechanism that a user has."""
        return {m: found.iterations for m, found in self._users.get(name, {}).items()}

    def is_full(self, adding: int) -> bool:
        """Whether there is no space for so many more users."""
        return len(self._users) + adding > USERS_MAX

    def changing(
        self, removed: list[tuple[str, str]], put: list[tuple[str, ScramCredential]]
    ) -> Change[None]:
        """Remove (name, mechanism) pairs and set credentials, all at once. OSError."""
        users = {name: dict(mechanisms) for name, mechanisms in self._users.items()}
        for name, mechanism in removed:
            users.get(name, {}).pop(mechanism, None)
        for name, credential in put:
            users.setdefault(name, {})[credential.mechanism] = credential
        users = {name: mechanisms for name, mechanisms in users.items() if mechanisms}
        yield from self._metadata.putting_section(SECTION, scram_to_section(users))
        self._users = users
