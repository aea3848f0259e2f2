"""The rules that the cluster keeps: made and deleted by admin requests, in force at once."""

from __future__ import annotations

from collections.abc import Iterable

from penstock_broker.cluster.metadata_store import Change, MetadataStore
from penstock_broker.security.acls import AclBinding, from_section, to_section
from penstock_broker.security.authorizer import Authorizer

SECTION = "acls"
RULES_MAX = 100_000


class AclStore:
    """The section ``acls`` and the authorizer that goes by it."""

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        """ValueError when the section cannot be read: better no broker than an open one."""
        self._metadata = metadata
        self.authorizer = Authorizer(
            from_section(metadata.section(SECTION)),
            super_users=super_users,
            allow_everyone_if_no_acl_found=allow_everyone_if_no_acl_found,
        )

    def is_full(self, adding: int) -> bool:
        """Whether there is no space for so many more rules."""
        return len(self.authorizer.rules) + adding > RULES_MAX

    def adding(self, rules: Iterable[AclBinding]) -> Change[None]:
        """Make rules; those that exist stay. OSError: nothing changed."""
        yield from self._putting({**dict.fromkeys(self.authorizer.rules), **dict.fromkeys(rules)})

    def removing(self, rules: Iterable[AclBinding]) -> Change[None]:
        """Delete rules. OSError: nothing changed."""
        gone = set(rules)
        kept = dict.fromkeys(rule for rule in self.authorizer.rules if rule not in gone)
        yield from self._putting(kept)

    def _putting(self, rules: dict[AclBinding, None]) -> Change[None]:
        if tuple(rules) == self.authorizer.rules:
            return
        yield from self._metadata.putting_section(SECTION, to_section(rules))
        self.authorizer.replace(rules)
