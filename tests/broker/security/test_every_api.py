"""Every API that touches a resource refuses who has no right to it, and needs no more than Kafka.

The tables beside this module (``rows_of_*``) have a request for each API, what it must be refused
with, and the rights that suffice: they follow Kafka's documentation and are not read from our code.
A test walks the registry: an API without a row fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rows_of_administration
import rows_of_groups
import rows_of_records
from authorization_rows import (
    CLUSTER,
    DESCRIBE,
    GROUP,
    NO_CLUSTER,
    NO_TOPIC,
    READ,
    REFUSALS,
    TOPIC,
    Right,
    Row,
    Scene,
    any_acl,
    codes,
)

import penstock_broker.api  # noqa: F401 (registers the APIs)
from penstock_broker.api.registry import api_table
from penstock_broker.security.acls import (
    SUPPORTED,
    Operation,
    PatternType,
    Permission,
)
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages import (
    create_acls,
    create_topics,
    delete_acls,
    describe_cluster,
    describe_groups,
    metadata,
    offset_commit,
)

NO_RIGHTS_NEEDED = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
SERVED = {row.name: row.versions for row in api_table().values()}
ROWS = [
    row
    for row in (*rows_of_records.ROWS, *rows_of_groups.ROWS, *rows_of_administration.ROWS)
    if row.version in SERVED.get(row.api, ())
]


def test_the_table_has_every_api() -> None:
    """An API that is added to the registry is refused to strangers, or this fails."""
    assert set(SERVED) - {row.api for row in ROWS} == NO_RIGHTS_NEEDED


@pytest.fixture(scope="module")
def admin(guarded: Any) -> Iterator[RawClient]:
    with RawClient(*guarded.address("SASL")) as client:
        yield guarded.log_in(client, "admin")


@pytest.fixture
def scene(admin: RawClient) -> Scene:
    """A topic that only the admin may know of."""
    name = f"secret-{uuid.uuid4().hex[:8]}"
    made = admin.ask(
        create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
            ],
            timeout_ms=5000,
        ),
        7,
    )
    assert made.topics[0].error_code == 0
    group = f"group-{name}"
    commit = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=0
                    )
                ],
            )
        ],
    )
    assert codes(admin.ask(commit, 8)) == {0}
    return Scene(name, made.topics[0].topic_id, group, f"txn-{name}")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_who_has_no_rights_is_refused(
    guarded: Any, connect: Callable[..., RawClient], scene: Scene, row: Row
) -> None:
    for listener, user in (("SASL", "bob"), ("PLAIN", None)):
        client = connect(guarded, listener, user)
        answer = client.ask(row.make(scene), row.version)
        if row.refusal is None:
            assert codes(answer) <= {0, NO_CLUSTER}, answer
            assert scene.topic not in repr(answer)
        else:
            assert row.refusal in codes(answer), answer
            assert codes(answer) <= {row.refusal, 0}, answer


def _grant(admin: RawClient, scene: Scene, rights: list[Right], user: str) -> None:
    answer = admin.ask(
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=kind,
                    resource_name=scene.name(kind),
                    resource_pattern_type=PatternType.LITERAL,
                    principal=f"User:{user}",
                    host="127.0.0.1",
                    operation=operation,
                    permission_type=Permission.ALLOW,
                )
                for operation, kind in rights
            ]
        ),
        3,
    )
    assert codes(answer) == {0}


def _revoke(admin: RawClient, user: str) -> None:
    wanted = any_acl(delete_acls.DeleteAclsFilter)
    wanted.principal_filter = f"User:{user}"
    assert codes(admin.ask(delete_acls.DeleteAclsRequest(filters=[wanted]), 3)) == {0}


@pytest.mark.parametrize("row", [row for row in ROWS if row.rights], ids=str)
def test_the_rights_that_kafka_asks_for_suffice(
    guarded: Any,
    connect: Callable[..., RawClient],
    admin: RawClient,
    scene: Scene,
    row: Row,
) -> None:
    """On a connection that has been refused before: what is cached of that is discarded."""
    client = connect(guarded, "SASL", "alice")
    try:
        assert row.refusal in codes(client.ask(row.make(scene), row.version))
        for rights in row.rights:
            for missing in rights:
                partly = [right for right in rights if right != missing]
                if partly:
                    _grant(admin, scene, partly, "alice")
                    assert codes(client.ask(row.make(scene), row.version)) & REFUSALS
                    _revoke(admin, "alice")
            _grant(admin, scene, rights, "alice")
            found = codes(client.ask(row.make(scene), row.version))
            _revoke(admin, "alice")
            assert not found & {*REFUSALS, row.refusal}, (rights, found)
            if row.api not in {"DeleteTopics", "DeleteGroups"}:
                assert codes(client.ask(row.make(scene), row.version)) & {*REFUSALS, row.refusal}
    finally:
        _revoke(admin, "alice")


def test_authorized_operations(
    guarded: Any, connect: Callable[..., RawClient], admin: RawClient, scene: Scene
) -> None:
    """The bits of what a client may do: all for the admin, what the rules say for others, and
    none where none was asked for."""
    everything = {kind: sum(1 << op for op in found) for kind, found in SUPPORTED.items()}
    rights = [
        (READ, TOPIC),
        (DESCRIBE, GROUP),
        (DESCRIBE, CLUSTER),
        (Operation.ALTER_CONFIGS, CLUSTER),
    ]
    alice = connect(guarded, "SASL", "alice")
    _grant(admin, scene, rights, "alice")
    try:
        for client, topic, group, cluster in (
            (admin, everything[TOPIC], everything[GROUP], everything[CLUSTER]),
            (
                alice,
                1 << READ | 1 << DESCRIBE,
                1 << DESCRIBE,
                1 << DESCRIBE | 1 << Operation.ALTER_CONFIGS | 1 << Operation.DESCRIBE_CONFIGS,
            ),
        ):
            for version in (8, 10):
                request = metadata.MetadataRequest(
                    topics=[metadata.MetadataRequestTopic(name=scene.topic)],
                    include_cluster_authorized_operations=True,
                    include_topic_authorized_operations=True,
                )
                answer = client.ask(request, version)
                assert answer.cluster_authorized_operations == cluster
                assert answer.topics[0].topic_authorized_operations == topic
            request = metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=scene.topic)]
            )
            answer = client.ask(request, 10)
            assert answer.cluster_authorized_operations == metadata.OPERATIONS_NOT_ASKED
            assert answer.topics[0].topic_authorized_operations == metadata.OPERATIONS_NOT_ASKED
            described = client.ask(
                describe_groups.DescribeGroupsRequest(
                    groups=[scene.group], include_authorized_operations=True
                ),
                5,
            )
            assert described.groups[0].authorized_operations == group
            answer = client.ask(
                describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
                1,
            )
            assert answer.cluster_authorized_operations == cluster
    finally:
        _revoke(admin, "alice")


def test_settings_of_a_new_topic_are_for_those_who_may_see_settings(
    guarded: Any, connect: Callable[..., RawClient], admin: RawClient
) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    request = create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
        timeout_ms=1000,
        validate_only=True,
    )
    mine = Scene(name, uuid.uuid4(), "", "")
    client = connect(guarded, "SASL", "alice")
    try:
        _grant(admin, mine, [(Operation.CREATE, TOPIC)], "alice")
        (topic,) = client.ask(request, 7).topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, NO_TOPIC)
        assert (topic.configs, topic.num_partitions, topic.replication_factor) == ([], -1, -1)
        _grant(admin, mine, [(Operation.DESCRIBE_CONFIGS, TOPIC)], "alice")
        (topic,) = client.ask(request, 7).topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, 0)
        assert topic.configs and topic.num_partitions == 1
    finally:
        _revoke(admin, "alice")
