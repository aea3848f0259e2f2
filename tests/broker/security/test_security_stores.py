"""ACLs and SCRAM credentials in the cluster's metadata, on a simulated disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from storage import Storage

from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.security import acl_store, scram_store
from penstock_broker.security.acl_store import AclStore
from penstock_broker.security.acls import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock_broker.security.scram import ScramCredential
from penstock_broker.security.scram_store import ScramStore
from penstock_broker.steps import run
from penstock_broker.testing import MemFiles, SimClock

REQUEST = ("User:alice", "1.1.1.1", Operation.READ, ResourceType.TOPIC)


def rule(name: str, permission: Permission = Permission.ALLOW) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.READ,
        permission,
    )


def credential(mechanism: str = "SCRAM-SHA-256", iterations: int = 4_096) -> ScramCredential:
    return ScramCredential.of_salted_password(mechanism, b"salt", iterations, b"x" * 32)


@pytest.fixture
def files() -> MemFiles:
    return MemFiles()


def metadata_on(files: MemFiles) -> LocalMetadataStore:
    return Storage(Path("/data"), SimClock(), files, {}).metadata


# -- ACLs ----------------------------------------------------------------------------------------


def test_rules_are_in_force_at_once_and_after_a_kill(files: MemFiles) -> None:
    metadata = metadata_on(files)
    store = AclStore(metadata)
    run(store.adding([rule("a"), rule("b")]))
    assert [kept["name"] for kept in metadata.section("acls")["bindings"]] == ["a", "b"]
    run(store.adding([rule("b"), rule("c")]))
    run(store.removing([rule("a"), rule("nothing")]))
    for found in (store, AclStore(metadata_on(files.kill()))):
        assert found.authorizer.rules == (rule("b"), rule("c"))
        allowed = [name for name in "abc" if found.authorizer.allows(*REQUEST, name)]
        assert allowed == ["b", "c"]


def test_what_changes_nothing_writes_nothing(files: MemFiles) -> None:
    store = AclStore(metadata_on(files))
    run(store.adding([rule("a")]))
    writes = files.writes
    run(store.adding([rule("a")]))
    run(store.removing([rule("b")]))
    assert files.writes == writes


def test_a_rule_that_is_not_on_the_disk_is_not_in_force(files: MemFiles) -> None:
    store = AclStore(metadata_on(files))
    files.fail("write", errno.ENOSPC, path_part="metadata")
    with pytest.raises(OSError, match="space"):
        run(store.adding([rule("a")]))
    assert store.authorizer.rules == ()


def test_who_is_allowed_without_rules(files: MemFiles) -> None:
    metadata = metadata_on(files)
    assert not AclStore(metadata).authorizer.allows(*REQUEST, "a")
    everyone = AclStore(metadata, allow_everyone_if_no_acl_found=True)
    assert everyone.authorizer.allows(*REQUEST, "a")
    assert AclStore(metadata, super_users=["User:alice"]).authorizer.allows(*REQUEST, "a")


def test_the_number_of_rules_has_a_limit(files: MemFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert acl_store.RULES_MAX == 100_000
    monkeypatch.setattr(acl_store, "RULES_MAX", 3)
    store = AclStore(metadata_on(files))
    run(store.adding([rule("a"), rule("b")]))
    assert [store.is_full(adding) for adding in (0, 1, 2)] == [False, False, True]


# -- SCRAM ---------------------------------------------------------------------------------------


def test_credentials_are_set_and_removed_and_kept(files: MemFiles) -> None:
    metadata = metadata_on(files)
    store = ScramStore(metadata)
    strong = credential("SCRAM-SHA-512", 8_192)
    run(store.changing([], [("bob", credential()), ("alice", credential()), ("alice", strong)]))
    assert set(metadata.section("scram")["users"]) == {"alice", "bob"}
    run(store.changing([("unknown", "SCRAM-SHA-256"), ("alice", "SCRAM-SHA-1")], []))
    for found in (store, ScramStore(metadata_on(files.kill()))):
        assert found.users() == ["alice", "bob"]
        assert found.mechanisms("alice") == {"SCRAM-SHA-256": 4_096, "SCRAM-SHA-512": 8_192}
        assert found.mechanisms("unknown") == {}
        assert found.credential("alice", "SCRAM-SHA-512") == strong
        assert found.credential("bob", "SCRAM-SHA-512") is None
        assert found.credential("unknown", "SCRAM-SHA-512") is None


def test_who_loses_the_last_credential_is_no_user(files: MemFiles) -> None:
    store = ScramStore(metadata_on(files))
    run(store.changing([], [("alice", credential()), ("bob", credential())]))
    again = credential(iterations=9_999)
    removed = [("alice", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-256")]
    run(store.changing(removed, [("bob", again)]))
    assert store.users() == ["bob"]
    assert store.credential("bob", "SCRAM-SHA-256") == again, "removed first, then set"


def test_a_credential_that_is_not_on_the_disk_does_not_count(files: MemFiles) -> None:
    store = ScramStore(metadata_on(files))
    run(store.changing([], [("alice", credential())]))
    files.fail("write", errno.ENOSPC, path_part="metadata")
    with pytest.raises(OSError, match="space"):
        run(store.changing([("alice", "SCRAM-SHA-256")], [("bob", credential())]))
    assert store.users() == ["alice"]
    assert store.credential("alice", "SCRAM-SHA-256") == credential()


def test_the_number_of_users_has_a_limit(files: MemFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scram_store.USERS_MAX == 100_000
    monkeypatch.setattr(scram_store, "USERS_MAX", 3)
    store = ScramStore(metadata_on(files))
    run(store.changing([], [("alice", credential()), ("bob", credential())]))
    assert [store.is_full(adding) for adding in (0, 1, 2)] == [False, False, True]
