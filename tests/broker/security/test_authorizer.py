"""The authorizer against a model that goes through every rule, word by word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.security import authorizer as authorizer_module
from penstock_broker.security.acls import (
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
from penstock_broker.security.authorizer import Authorizer

names = st.sampled_from(["a", "ab", "abc", "b", "ba", "x"])
kinds = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
principals = st.sampled_from(["User:alice", "User:bob", "User:ANONYMOUS"])
hosts = st.sampled_from(["1.1.1.1", "2.2.2.2"])
asked = st.sampled_from(SUPPORTED[ResourceType.TOPIC])
rules = st.builds(
    AclBinding,
    kinds,
    st.one_of(names, st.just("*")),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.one_of(principals, st.just("User:*")),
    st.one_of(hosts, st.just("*")),
    st.one_of(asked, st.just(Operation.ALL)),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
some_rules = st.lists(rules, max_size=12)
DESCRIBING = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def model(
    everything: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    is_open: bool,
) -> bool:
    """Kafka's documentation as a loop."""
    about = []
    for rule in everything:
        if rule.resource_type != kind:
            continue
        if rule.pattern_type == PatternType.LITERAL and rule.name not in (name, "*"):
            continue
        if rule.pattern_type == PatternType.PREFIXED and not name.startswith(rule.name):
            continue
        about.append(rule)
    if not about:
        return is_open
    for_us = [
        rule
        for rule in about
        if rule.principal in (principal, "User:*") and rule.host in (host, "*")
    ]
    for rule in for_us:
        if rule.permission == Permission.DENY and rule.operation in (operation, Operation.ALL):
            return False
    wanted = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        wanted |= DESCRIBING
    if operation == Operation.DESCRIBE_CONFIGS:
        wanted.add(Operation.ALTER_CONFIGS)
    return any(rule.permission == Permission.ALLOW and rule.operation in wanted for rule in for_us)


@settings(max_examples=400, deadline=None)
@given(some_rules, principals, hosts, asked, kinds, names, st.booleans())
def test_decisions_are_the_models(
    everything: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    is_open: bool,
) -> None:
    authorizer = Authorizer(everything, allow_everyone_if_no_acl_found=is_open)
    request = (principal, host, operation, kind, name)
    expected = model(everything, *request, is_open)
    assert authorizer.allows(*request) is expected
    assert authorizer.allows(*request) is expected  # and from memory
    bits = authorizer.operations(principal, host, kind, name)
    for each in SUPPORTED[kind]:
        allowed = model(everything, principal, host, each, kind, name, is_open)
        assert bool(bits & 1 << each) is allowed


@settings(max_examples=300, deadline=None)
@given(some_rules, some_rules, principals, hosts, asked, kinds, names)
def test_a_change_of_rules_is_in_force_at_once(
    before: list[AclBinding],
    after: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> None:
    authorizer = Authorizer(before)
    request = (principal, host, operation, kind, name)
    authorizer.allows(*request)
    authorizer.allows_any(principal, host, operation, kind)
    generation = authorizer.generation
    authorizer.replace(after)
    assert authorizer.generation > generation
    assert authorizer.allows(*request) is model(after, *request, False)
    assert authorizer.allows_any(principal, host, operation, kind) is Authorizer(after).allows_any(
        principal, host, operation, kind
    )


def any_as_kafka(
    everything: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    is_open: bool,
) -> bool:
    """Authorizer.authorizeByResourceType in Python, with what else allows an operation, which it
    leaves out: Kafka asks it for READ and WRITE alone. Several DENYs that together cover an ALLOW
    are not added up."""
    if model(everything, principal, host, operation, kind, "~", is_open):
        return True
    wanted = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        wanted |= DESCRIBING
    if operation == Operation.DESCRIBE_CONFIGS:
        wanted.add(Operation.ALTER_CONFIGS)
    denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
    allowed: list[tuple[PatternType, str]] = []
    for rule in everything:
        if rule.resource_type != kind or rule.host not in (host, "*"):
            continue
        if rule.principal not in (principal, "User:*"):
            continue
        if rule.permission == Permission.ALLOW and rule.operation in wanted:
            allowed.append((rule.pattern_type, rule.name))
        if rule.permission == Permission.DENY and rule.operation in (operation, Operation.ALL):
            denied[rule.pattern_type].add(rule.name)
    if "*" in denied[PatternType.LITERAL]:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    for pattern, name in allowed:
        if pattern == PatternType.LITERAL and name in denied[PatternType.LITERAL]:
            continue
        if not any(name.startswith(prefix) for prefix in denied[PatternType.PREFIXED]):
            return True
    return False


@settings(max_examples=600, deadline=None)
@given(some_rules, principals, hosts, asked, kinds, st.booleans())
def test_any_resource_means_that_there_is_one(
    everything: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    is_open: bool,
) -> None:
    """As in Kafka, and never no where there is a name that is allowed."""
    authorizer = Authorizer(everything, allow_everyone_if_no_acl_found=is_open)
    found = authorizer.allows_any(principal, host, operation, kind)
    assert found is any_as_kafka(everything, principal, host, operation, kind, is_open)
    tried = {rule.name + tail for rule in everything for tail in ("", "~")} | {"~", "*"}
    assert found or not any(
        model(everything, principal, host, operation, kind, name, is_open) for name in tried
    )


def test_who_is_denied_everything_is_allowed_nothing() -> None:
    """A DENY of ``*`` goes before every ALLOW, and leaves nothing that no rule is about."""
    request = ("User:alice", "1.1.1.1", Operation.WRITE, ResourceType.TOPIC)

    def rule(principal: str, name: str, permission: Permission) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC,
            name,
            PatternType.LITERAL,
            principal,
            "*",
            Operation.WRITE,
            permission,
        )

    mine = rule("User:alice", "mine", Permission.ALLOW)
    everything = rule("User:*", "*", Permission.DENY)
    assert Authorizer([mine]).allows_any(*request)
    assert not Authorizer([mine, everything]).allows_any(*request)
    assert not Authorizer([mine, rule("User:*", "mine", Permission.DENY)]).allows_any(*request)
    assert Authorizer([mine, rule("User:*", "other", Permission.DENY)]).allows_any(*request)
    all_of_them = rule("User:alice", "*", Permission.ALLOW)
    assert Authorizer([all_of_them]).rules == (all_of_them,)
    assert Authorizer([all_of_them]).allows_any(*request)
    assert Authorizer([all_of_them, rule("User:*", "m", Permission.DENY)]).allows_any(*request)
    others = rule("User:bob", "*", Permission.DENY)
    assert Authorizer([mine, others]).allows_any(*request)
    for rules in ([everything], [others]):
        open_to_all = Authorizer(rules, allow_everyone_if_no_acl_found=True)
        assert not open_to_all.allows(*request, "any")
        assert not open_to_all.allows_any(*request)
    assert Authorizer([], allow_everyone_if_no_acl_found=True).allows_any(*request)


def test_decisions_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "DECISIONS_MAX", 3)
    authorizer = Authorizer()
    for number in range(10):
        host = f"1.1.1.{number}"
        authorizer.allows("User:a", host, Operation.READ, ResourceType.TOPIC, "t")
        authorizer.allows_any("User:a", host, Operation.READ, ResourceType.TOPIC)
        assert len(authorizer._decisions) == len(authorizer._by_type) == number % 3 + 1


def test_super_users_may_do_everything() -> None:
    deny = AclBinding(
        ResourceType.TOPIC,
        "*",
        PatternType.LITERAL,
        "User:*",
        "*",
        Operation.ALL,
        Permission.DENY,
    )
    authorizer = Authorizer([deny], super_users=["User:root"])
    request = ("1.1.1.1", Operation.WRITE, ResourceType.TOPIC, "t")
    assert authorizer.allows("User:root", *request)
    assert not authorizer.allows("User:alice", *request)
    assert authorizer.allows_any("User:root", *request[:3])


def test_nothing_is_allowed_without_a_rule() -> None:
    request = ("User:alice", "1.1.1.1", Operation.READ, ResourceType.TOPIC, "t")
    assert not Authorizer().allows(*request)
    assert Authorizer(allow_everyone_if_no_acl_found=True).allows(*request)
    assert not Authorizer().allows_any(*request[:4])


# -- filters --------------------------------------------------------------------------------------

filters = st.builds(
    AclFilter,
    st.one_of(kinds, st.just(ResourceType.ANY)),
    st.one_of(st.none(), names, st.just("*")),
    st.sampled_from([t for t in PatternType if t]),
    st.one_of(st.none(), principals, st.just("User:*")),
    st.one_of(st.none(), hosts, st.just("*")),
    st.one_of(asked, st.sampled_from([Operation.ANY, Operation.ALL])),
    st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


def matches_as_kafka(wanted: AclFilter, rule: AclBinding) -> bool:
    """ResourcePatternFilter.matches and AccessControlEntryFilter.matches, in Python."""
    if wanted.resource_type not in (ResourceType.ANY, rule.resource_type):
        return False
    pattern = wanted.pattern_type
    if pattern not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
        return False
    if wanted.name is None:
        named = True
    elif pattern in (PatternType.ANY, rule.pattern_type):
        named = wanted.name == rule.name
    elif rule.pattern_type == PatternType.LITERAL:
        named = wanted.name == rule.name or rule.name == "*"
    else:
        named = wanted.name.startswith(rule.name)
    return (
        named
        and wanted.principal in (None, rule.principal)
        and wanted.host in (None, rule.host)
        and wanted.operation in (Operation.ANY, rule.operation)
        and wanted.permission in (Permission.ANY, rule.permission)
    )


@settings(max_examples=400, deadline=None)
@given(some_rules, filters)
def test_filters_mean_what_they_mean_in_kafka(
    everything: list[AclBinding], wanted: AclFilter
) -> None:
    found = Authorizer(everything).select(wanted)
    assert found == [r for r in dict.fromkeys(everything) if matches_as_kafka(wanted, r)]


# -- the section ----------------------------------------------------------------------------------


@given(some_rules)
def test_rules_are_kept_as_they_are(everything: list[AclBinding]) -> None:
    assert from_section(to_section(everything)) == everything


def test_a_damaged_section_is_refused() -> None:
    """Better no broker than one that has lost a DENY."""
    good = to_section(
        [
            AclBinding(
                ResourceType.TOPIC,
                "t",
                PatternType.LITERAL,
                "User:a",
                "*",
                Operation.READ,
                Permission.DENY,
            )
        ]
    )
    for name, value in (
        ("resource_type", "TOPICS"),
        ("pattern_type", "MATCH"),
        ("permission", "ANY"),
        ("principal", "alice"),
        ("name", ""),
        ("host", ""),
    ):
        broken = {"bindings": [good["bindings"][0] | {name: value}]}
        with pytest.raises(ValueError, match="ACL"):
            from_section(broken)
    with pytest.raises(ValueError, match="ACL"):
        from_section({"bindings": [{}]})
