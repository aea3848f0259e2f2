"""ACLs as values: Kafka's codes, what makes a rule or a filter wrong, and what a filter means."""

from __future__ import annotations

from enum import IntEnum

import pytest

from penstock_broker.security.acls import (
    ALLOW_IMPLIES,
    SUPPORTED,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    from_section,
    to_section,
)

RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "1.1.1.1",
    Operation.READ,
    Permission.ALLOW,
)
ALL = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
CODES: dict[type[IntEnum], str] = {
    ResourceType: "UNKNOWN ANY TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER",
    PatternType: "UNKNOWN ANY MATCH LITERAL PREFIXED",
    Operation: "UNKNOWN ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION "
    "DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE CREATE_TOKENS DESCRIBE_TOKENS",
    Permission: "UNKNOWN ANY DENY ALLOW",
}
"""By type Kafka's names, from code 0 on."""


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_codes_are_those_of_the_wire(kind: type[IntEnum]) -> None:
    assert [(each.name, int(each)) for each in kind] == [
        (name, code) for code, name in enumerate(CODES[kind].split())
    ]


def test_the_operations_of_each_resource_are_kafkas() -> None:
    """``AclEntry.supportedOperations``, less what no client asks for here."""
    names = {
        kind.name: " ".join(operation.name for operation in operations)
        for kind, operations in SUPPORTED.items()
    }
    assert names == {
        "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        "GROUP": "READ DELETE DESCRIBE",
        "CLUSTER": "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS "
        "IDEMPOTENT_WRITE",
        "TRANSACTIONAL_ID": "WRITE DESCRIBE",
    }
    implied = {o.name: {each.name for each in others} for o, others in ALLOW_IMPLIES.items()}
    assert implied == {
        "DESCRIBE": {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"},
        "DESCRIBE_CONFIGS": {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    }


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"pattern_type": PatternType.PREFIXED, "permission": Permission.DENY}, None),
        ({"resource_type": ResourceType.UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"operation": Operation.UNKNOWN}, "Invalid operation UNKNOWN"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": Operation.ALL}, None),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"permission": Permission.UNKNOWN}, "Invalid permissionType UNKNOWN"),
        ({"name": ""}, "Resource name should not be empty"),
        ({"resource_type": ResourceType.CLUSTER, "name": "kafka-cluster"}, None),
        (
            {"resource_type": ResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"host": ""}, "Host should not be empty"),
        *(
            (
                {"principal": principal},
                f"Could not parse principal from `{principal}` (no colon is present separating "
                "the principal type from the principal name)",
            )
            for principal in ("alice", "User:", ":alice", "")
        ),
    ],
)
def test_what_makes_a_rule_wrong(changes: dict[str, object], problem: str | None) -> None:
    assert RULE._replace(**changes).problem() == problem


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("resource_type", "ResourceType"),
        ("pattern_type", "PatternType"),
        ("operation", "Operation"),
        ("permission", "Permission"),
    ],
)
def test_a_filter_of_unknown_values_is_wrong(field: str, name: str) -> None:
    assert ALL.problem() is None
    unknown = type(getattr(ALL, field))(0)
    assert ALL._replace(**{field: unknown}).problem() == f"The filter has an unknown {name}"


# -- what a filter means --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "is_meant"),
    [
        ({}, True),
        ({"resource_type": ResourceType.TOPIC}, True),
        ({"resource_type": ResourceType.GROUP}, False),
        ({"principal": "User:alice"}, True),
        ({"principal": "User:*"}, False),
        ({"host": "1.1.1.1"}, True),
        ({"host": "*"}, False),
        ({"operation": Operation.READ}, True),
        ({"operation": Operation.ALL}, False),
        ({"permission": Permission.ALLOW}, True),
        ({"permission": Permission.DENY}, False),
        ({"pattern_type": PatternType.LITERAL}, True),
        ({"pattern_type": PatternType.PREFIXED}, False),
        ({"pattern_type": PatternType.MATCH}, True),
    ],
)
def test_each_field_of_a_filter_counts(changes: dict[str, object], *, is_meant: bool) -> None:
    assert ALL._replace(**changes).matches(RULE) is is_meant


@pytest.mark.parametrize(
    ("rule", "pattern", "wanted", "is_meant"),
    [
        ("=orders", PatternType.ANY, "orders", True),
        ("=orders", PatternType.ANY, "orders-1", False),
        ("=*", PatternType.ANY, "orders", False),
        ("=*", PatternType.LITERAL, "*", True),
        ("=*", PatternType.LITERAL, "orders", False),
        ("^orders", PatternType.PREFIXED, "orders", True),
        ("^orders", PatternType.PREFIXED, "orders-1", False),
        ("^orders", PatternType.LITERAL, "orders", False),
        ("=orders", PatternType.MATCH, "orders", True),
        ("=orders", PatternType.MATCH, "orders-1", False),
        ("=*", PatternType.MATCH, "orders", True),
        ("^orders", PatternType.MATCH, "orders-1", True),
        ("^orders", PatternType.MATCH, "orders", True),
        ("^orders", PatternType.MATCH, "order", False),
    ],
)
def test_names_and_patterns_of_a_filter(
    rule: str, pattern: PatternType, wanted: str, *, is_meant: bool
) -> None:
    """``=`` a literal name, ``^`` a prefix. MATCH: rules that are about a resource of this name."""
    kind = PatternType.LITERAL if rule[0] == "=" else PatternType.PREFIXED
    found = ALL._replace(pattern_type=pattern, name=wanted).matches(
        RULE._replace(pattern_type=kind, name=rule[1:])
    )
    assert found is is_meant


# -- the section -----------------------------------------------------------------------------------


def test_the_section_has_its_documented_form() -> None:
    section = {
        "bindings": [
            {
                "resource_type": "TOPIC",
                "name": "orders",
                "pattern_type": "LITERAL",
                "principal": "User:alice",
                "host": "1.1.1.1",
                "operation": "READ",
                "permission": "ALLOW",
            }
        ]
    }
    assert to_section([RULE]) == section
    assert from_section(section) == [RULE]
    assert from_section({}) == []


@pytest.mark.parametrize("bindings", [[{}], [7], [{"resource_type": "TOPICS"}]])
def test_a_section_that_cannot_be_read(bindings: list[object]) -> None:
    with pytest.raises(ValueError, match="an ACL cannot be read: "):
        from_section({"bindings": bindings})


def test_a_section_with_a_wrong_rule() -> None:
    section = to_section([RULE, RULE._replace(host="")])
    with pytest.raises(ValueError, match="an ACL is not valid: Host should not be empty"):
        from_section(section)
