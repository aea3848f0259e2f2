"""Authorization: the decision, and a cache of decisions.

The rules are Kafka's (``StandardAuthorizer``): super users may do everything; a DENY that applies
wins over any ALLOW; READ, WRITE, DELETE and ALTER allow DESCRIBE, ALTER_CONFIGS allows
DESCRIBE_CONFIGS; without a rule that applies it is no, except that with
``allow.everyone.if.no.acl.found`` resources that no rule is about are open to every principal.

A decision is looked up by (principal, host, operation, type, name) in one dictionary that is
emptied whenever the rules change, so a request costs a lookup however many rules there are.
``generation`` grows at the same moments: what is remembered elsewhere is good as long as it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock_broker.security.acls import (
    ALLOW_IMPLIES,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

DECISIONS_MAX = 100_000
ANY_USER = "User:*"

_Key = tuple[str, str, Operation, ResourceType, str]
_Place = tuple[ResourceType, PatternType, str]


class Authorizer:
    """The rules and what follows from them. Pure: no I/O, no clock."""

    def __init__(
        self,
        rules: Iterable[AclBinding] = (),
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._open = allow_everyone_if_no_acl_found
        self._decisions: dict[_Key, bool] = {}
        self._by_type: dict[tuple[str, str, Operation, ResourceType], bool] = {}
        self._rules: dict[AclBinding, None] = {}
        self._places: dict[_Place, list[AclBinding]] = {}
        self._prefix_lengths: dict[ResourceType, list[int]] = {}
        self.generation = 0
        self.replace(rules)

    @property
    def rules(self) -> tuple[AclBinding, ...]:
        """All rules, in the order in which they were made."""
        return tuple(self._rules)

    def replace(self, rules: Iterable[AclBinding]) -> None:
        """Go by these rules from now on."""
        self._rules = dict.fromkeys(rules)
        self._places = {}
        lengths: dict[ResourceType, set[int]] = {}
        for rule in self._rules:
            place = (rule.resource_type, rule.pattern_type, rule.name)
            self._places.setdefault(place, []).append(rule)
            if rule.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(rule.resource_type, set()).add(len(rule.name))
        self._prefix_lengths = {kind: sorted(found) for kind, found in lengths.items()}
        self._decisions.clear()
        self._by_type.clear()
        self.generation += 1

    def select(self, wanted: AclFilter) -> list[AclBinding]:
        """The rules that a filter means."""
        return [rule for rule in self._rules if wanted.matches(rule)]

    # -- decisions -----------------------------------------------------------------------------

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Whether ``principal`` ("User:alice") may, from the address ``host``."""
        key = (principal, host, operation, kind, name)
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            found = self._decisions[key] = self._decide(*key)
        return found

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there is any resource of this type with which ``principal`` may (KIP-679)."""
        key = (principal, host, operation, kind)
        found = self._by_type.get(key)
        if found is None:
            if len(self._by_type) >= DECISIONS_MAX:
                self._by_type.clear()
            found = self._by_type[key] = self._decide_any(*key)
        return found

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """The bits of ``…_authorized_operations``: 1 << code for each operation allowed."""
        return sum(
            1 << operation
            for operation in SUPPORTED[kind]
            if self.allows(principal, host, operation, kind, name)
        )

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        is_named = is_allowed = False
        for rule in self._about(kind, name):
            is_named = True
            if not _concerns(rule, principal, host, operation):
                continue
            if rule.permission is Permission.DENY:
                return False
            is_allowed = True
        return is_allowed or (self._open and not is_named)

    def _decide_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        if principal in self._super_users:
            return True
        denied: set[tuple[PatternType, str]] = set()
        allowed: list[AclBinding] = []
        for rule in self._rules:
            if rule.resource_type is kind and _concerns(rule, principal, host, operation):
                if rule.permission is Permission.DENY:
                    denied.add((rule.pattern_type, rule.name))
                else:
                    allowed.append(rule)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        # Of the names that no rule is about there is always one, but where a rule is about all.
        if self._open and (kind, PatternType.LITERAL, WILDCARD) not in self._places:
            return True
        return any(not _is_dominated(rule, denied) for rule in allowed)

    def _about(self, kind: ResourceType, name: str) -> Iterator[AclBinding]:
        """The rules about a resource: of its name, of every name, of each prefix of its name."""
        places = self._places
        yield from places.get((kind, PatternType.LITERAL, name), ())
        if name != WILDCARD:
            yield from places.get((kind, PatternType.LITERAL, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from places.get((kind, PatternType.PREFIXED, name[:length]), ())


def _concerns(rule: AclBinding, principal: str, host: str, operation: Operation) -> bool:
    """Whether a rule about the resource applies to this request."""
    if rule.principal not in {principal, ANY_USER} or rule.host not in {host, WILDCARD}:
        return False
    if rule.operation in {Operation.ALL, operation}:
        return True
    return rule.permission is Permission.ALLOW and rule.operation in ALLOW_IMPLIES.get(
        operation, ()
    )


def _is_dominated(rule: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether everything that an ALLOW is about is denied by some DENY."""
    name = rule.name
    if rule.pattern_type is PatternType.LITERAL:
        if (PatternType.LITERAL, name) in denied:
            return True
        if name == WILDCARD:
            return False
    return any(
        (PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)
    )
