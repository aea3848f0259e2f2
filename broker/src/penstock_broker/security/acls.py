"""Access control lists as values: what a rule says, and which rules a filter means.

The codes are those of the wire. Form of the section ``acls`` of the cluster's metadata:
``{"bindings": [{"resource_type", "name", "pattern_type", "principal", "host", "operation",
"permission"}]}``, enumerations by name, in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


ALLOW_IMPLIES = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}
"""What else allows an operation. A DENY implies nothing."""

SUPPORTED = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""What can be done with a resource: the bits of ``…_authorized_operations``."""


class AclBinding(NamedTuple):
    """One rule: a principal at a host may or may not do an operation with resources."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def problem(self) -> str | None:
        """What makes it no valid rule, in Kafka's words; None when it is one."""
        kind, _, user = self.principal.partition(":")
        for is_wrong, what in (
            (
                self.resource_type in {ResourceType.UNKNOWN, ResourceType.ANY},
                f"Invalid resourceType {self.resource_type.name}",
            ),
            (
                self.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED},
                f"Invalid patternType {self.pattern_type.name}",
            ),
            (
                self.operation in {Operation.UNKNOWN, Operation.ANY},
                f"Invalid operation {self.operation.name}",
            ),
            (
                self.permission not in {Permission.DENY, Permission.ALLOW},
                f"Invalid permissionType {self.permission.name}",
            ),
            (not self.name, "Resource name should not be empty"),
            (
                self.resource_type is ResourceType.CLUSTER and self.name != CLUSTER_NAME,
                f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
            ),
            (
                not (kind and user),
                f"Could not parse principal from `{self.principal}` (no colon is present "
                "separating the principal type from the principal name)",
            ),
            (not self.host, "Host should not be empty"),
        ):
            if is_wrong:
                return what
        return None


class AclFilter(NamedTuple):
    """Which rules are meant; None and ANY mean all. A field of the wrong kind matches nothing."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def problem(self) -> str | None:
        """What makes it no valid filter."""
        for field in (self.resource_type, self.pattern_type, self.operation, self.permission):
            if field == 0:
                return f"The filter has an unknown {type(field).__name__}"
        return None

    def matches(self, rule: AclBinding) -> bool:
        """Whether ``rule`` is one of those meant."""
        return (
            self.resource_type in {ResourceType.ANY, rule.resource_type}
            and self._matches_name(rule)
            and self.principal in {None, rule.principal}
            and self.host in {None, rule.host}
            and self.operation in {Operation.ANY, rule.operation}
            and self.permission in {Permission.ANY, rule.permission}
        )

    def _matches_name(self, rule: AclBinding) -> bool:
        wanted = self.pattern_type
        if wanted not in {PatternType.ANY, PatternType.MATCH, rule.pattern_type}:
            return False
        if self.name is None or self.name == rule.name:
            return True
        if wanted is not PatternType.MATCH:
            return False
        if rule.pattern_type is PatternType.LITERAL:
            return rule.name in {self.name, WILDCARD}
        return self.name.startswith(rule.name)


def to_section(rules: Iterable[AclBinding]) -> dict[str, Any]:
    """The section ``acls`` that holds these rules."""
    return {
        "bindings": [
            {
                "resource_type": rule.resource_type.name,
                "name": rule.name,
                "pattern_type": rule.pattern_type.name,
                "principal": rule.principal,
                "host": rule.host,
                "operation": rule.operation.name,
                "permission": rule.permission.name,
            }
            for rule in rules
        ]
    }


def from_section(section: Mapping[str, Any]) -> list[AclBinding]:
    """The rules of a section. ValueError if it is none of ours."""
    try:
        rules = [
            AclBinding(
                ResourceType[entry["resource_type"]],
                str(entry["name"]),
                PatternType[entry["pattern_type"]],
                str(entry["principal"]),
                str(entry["host"]),
                Operation[entry["operation"]],
                Permission[entry["permission"]],
            )
            for entry in section.get("bindings", ())
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"an ACL cannot be read: {error!r}") from error
    for rule in rules:
        problem = rule.problem()
        if problem is not None:
            raise ValueError(f"an ACL is not valid: {problem}")
    return rules
