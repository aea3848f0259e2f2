"""ACLs and SCRAM users as real clients manage them, and what denied clients see."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError as AioTopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    SecurityDisabledError,
    TopicAuthorizationFailedError,
)

WAIT = 120.0
ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def confluent(broker: Any, user: str, password: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.at("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password or f"{user}-secret",
    } | more


def python(broker: Any, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.at("SASL"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-secret",
    }


def rule(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    user: str = "alice",
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def wait(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(WAIT) for future in futures.values()]


def code_of(act: Callable[[], Any]) -> int | None:
    """The error code that a client's call ends with; None for none."""
    try:
        act()
    except KafkaException as error:
        return error.args[0].code()
    return None


@pytest.fixture
def admin(guarded: Any) -> Iterator[AdminClient]:
    client = AdminClient(confluent(guarded, "admin"))
    yield client
    wait(client.delete_acls([ANY]))


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    wait(admin.create_topics([NewTopic(name, 1, 1)]))
    return name


def produce(config: dict[str, Any], topic: str) -> KafkaError | None:
    """The error that one record is delivered with."""
    errors: list[KafkaError | None] = []
    producer = Producer(config | {"message.timeout.ms": 8_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT) == 0
    return errors[0]


def consume(config: dict[str, Any], topic: str, group: str) -> Any:
    """The first record of a topic, or the first error."""
    consumer = Consumer(config | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(WAIT)
        assert message is not None
        return message.error().code() if message.error() else message.value()
    finally:
        consumer.close()


def test_denied_and_allowed_with_librdkafka(guarded: Any, admin: AdminClient, topic: str) -> None:
    alice, group = confluent(guarded, "alice"), f"g-{topic}"
    denied = produce(alice, topic)
    assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert topic not in AdminClient(alice).list_topics(timeout=WAIT).topics
    wait(admin.create_acls([rule(ResourceType.TOPIC, topic, AclOperation.WRITE)]))
    assert produce(alice, topic) is None
    assert topic in AdminClient(alice).list_topics(timeout=WAIT).topics
    assert consume(alice, topic, group) == KafkaError.GROUP_AUTHORIZATION_FAILED
    wait(
        admin.create_acls(
            [
                rule(
                    ResourceType.GROUP,
                    "g-",
                    AclOperation.READ,
                    pattern=ResourcePatternType.PREFIXED,
                )
            ]
        )
    )
    assert consume(alice, topic, group) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait(admin.create_acls([rule(ResourceType.TOPIC, "*", AclOperation.READ)]))
    assert consume(alice, topic, group) == b"x"
    no = rule(
        ResourceType.TOPIC,
        "orders-",
        AclOperation.READ,
        pattern=ResourcePatternType.PREFIXED,
        permission=AclPermissionType.DENY,
    )
    wait(admin.create_acls([no]))
    assert consume(alice, topic, f"{group}-2") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce(confluent(guarded, "bob"), topic) is not None


def test_a_right_that_is_taken_away_in_the_middle(
    guarded: Any, admin: AdminClient, topic: str
) -> None:
    """The producer's connection has been writing for a while, with decisions remembered."""
    wait(admin.create_acls([rule(ResourceType.TOPIC, topic, AclOperation.WRITE)]))
    errors: list[KafkaError | None] = []
    producer = Producer(
        confluent(guarded, "alice", **{"linger.ms": 0, "batch.num.messages": 1, "acks": 1})
    )

    def send(count: int) -> None:
        for _ in range(count):
            producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT) == 0

    send(500)
    assert errors == [None] * 500
    wait(admin.delete_acls([ANY]))
    errors.clear()
    send(20)
    assert {error and error.code() for error in errors} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def test_idempotent_producers(guarded: Any, admin: AdminClient, topic: str) -> None:
    """A producer id is for who may write to some topic (KIP-679)."""
    config = confluent(guarded, "alice", **{"enable.idempotence": True})
    assert produce(config, topic) is not None
    wait(admin.create_acls([rule(ResourceType.TOPIC, topic, AclOperation.WRITE)]))
    assert produce(config, topic) is None


def test_topics_are_made_by_who_may(guarded: Any, admin: AdminClient) -> None:
    alice = AdminClient(confluent(guarded, "alice"))
    name = f"made-{uuid.uuid4().hex[:8]}"

    def create(topic: str) -> None:
        wait(alice.create_topics([NewTopic(topic, 1, 1)]))

    assert code_of(lambda: create(name)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    denied = produce(confluent(guarded, "alice"), name)  # nor by writing to it
    assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert name not in admin.list_topics(timeout=WAIT).topics
    create_made = rule(
        ResourceType.TOPIC, "made-", AclOperation.CREATE, pattern=ResourcePatternType.PREFIXED
    )
    wait(admin.create_acls([create_made]))
    assert code_of(lambda: create(name)) is None
    other = f"other-{name}"
    assert code_of(lambda: create(other)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait(admin.create_acls([rule(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE)]))
    assert code_of(lambda: create(other)) is None
    wait(admin.create_acls([rule(ResourceType.TOPIC, "*", AclOperation.WRITE)]))
    assert produce(confluent(guarded, "alice"), f"auto-{name}") is None


def test_kafka_python_and_aiokafka_see_proper_errors(
    guarded: Any, admin: AdminClient, topic: str
) -> None:
    producer = KafkaProducer(**python(guarded, "alice"), max_block_ms=5_000)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(topic, b"x").get(WAIT)
    producer.close()
    wait(admin.create_acls([rule(ResourceType.TOPIC, topic, AclOperation.READ)]))
    consumer = KafkaConsumer(topic, **python(guarded, "alice"), group_id=f"g-{topic}")
    with pytest.raises(GroupAuthorizationFailedError):
        consumer.poll(5_000)
    consumer.close(autocommit=False)
    with pytest.raises(ClusterAuthorizationFailedError):
        KafkaAdminClient(**python(guarded, "alice")).describe_acls(python_filter("t"))

    async def aio() -> None:
        client = AIOKafkaProducer(**python(guarded, "bob"))
        await client.start()
        try:
            with pytest.raises(AioTopicAuthorizationFailedError):
                await client.send_and_wait(topic, b"x")
        finally:
            await client.stop()

    asyncio.run(aio())


def python_filter(name: str, pattern: Any = ACLResourcePatternType.ANY) -> ACLFilter:
    return ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(PythonResourceType.TOPIC, name, pattern),
    )


def test_rules_are_made_found_and_deleted(guarded: Any, admin: AdminClient) -> None:
    literal = rule(ResourceType.TOPIC, "stock-eu", AclOperation.READ)
    prefixed = rule(
        ResourceType.TOPIC, "stock", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED
    )
    star = rule(ResourceType.TOPIC, "*", AclOperation.DESCRIBE, permission=AclPermissionType.DENY)
    group = rule(ResourceType.GROUP, "stock-eu", AclOperation.ALL, user="bob")
    everything = [literal, prefixed, star, group]
    wait(admin.create_acls(everything))
    wait(admin.create_acls([literal]))  # again: still one

    def found(pattern: ResourcePatternType, name: str | None) -> set[AclBinding]:
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            name,
            pattern,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return set(admin.describe_acls(wanted).result(WAIT))

    assert set(admin.describe_acls(ANY).result(WAIT)) == set(everything)
    assert found(ResourcePatternType.MATCH, "stock-eu") == {literal, prefixed, star}
    assert found(ResourcePatternType.ANY, "stock-eu") == {literal}
    assert found(ResourcePatternType.PREFIXED, None) == {prefixed}
    python_admin = KafkaAdminClient(**python(guarded, "admin"))
    own = ACL(
        principal="User:carol",
        host="10.0.0.1",
        operation=ACLOperation.ALTER_CONFIGS,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(
            PythonResourceType.TOPIC, "carols", ACLResourcePatternType.PREFIXED
        ),
    )
    python_admin.create_acls([own])
    assert (
        own
        in python_admin.describe_acls(python_filter("carols-9", ACLResourcePatternType.MATCH))[0]
    )
    python_admin.delete_acls([python_filter("carols")])
    assert set(admin.describe_acls(ANY).result(WAIT)) == set(everything)
    python_admin.close()
    (gone,) = wait(admin.delete_acls([ANY]))
    assert set(gone) == set(everything)
    assert admin.describe_acls(ANY).result(WAIT) == []


def test_rules_that_are_none(admin: AdminClient) -> None:
    for bad in (
        AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        ),
        rule(ResourceType.BROKER, "other", AclOperation.CREATE),
    ):
        (future,) = admin.create_acls([bad]).values()
        assert code_of(lambda f=future: f.result(WAIT)) == KafkaError.INVALID_REQUEST


def test_without_an_authorizer(secure: Any) -> None:
    admin = AdminClient(confluent(secure, "alice"))
    with pytest.raises(SecurityDisabledError):
        KafkaAdminClient(**python(secure, "alice")).describe_acls(python_filter("t"))
    (create,) = admin.create_acls([rule(ResourceType.TOPIC, "t", AclOperation.READ)]).values()
    assert code_of(lambda: create.result(WAIT)) == KafkaError.SECURITY_DISABLED


def test_rules_and_users_outlive_the_broker(new_secure: Callable[..., Any]) -> None:
    broker = new_secure(authorizer_class_name="StandardAuthorizer", super_users="User:admin")
    admin = AdminClient(confluent(broker, "admin"))
    allowed = rule(ResourceType.TOPIC, "t", AclOperation.ALL, user="dora")
    wait(admin.create_acls([allowed]))
    wait(admin.alter_user_scram_credentials([credential("dora", "geheim-1")]))
    wait(admin.create_topics([NewTopic("t", 1, 1)]))
    broker.restart()
    dora = confluent(broker, "dora", "geheim-1")
    assert produce(dora, "t") is None
    admin = AdminClient(confluent(broker, "admin"))
    assert admin.describe_acls(ANY).result(WAIT) == [allowed]


def test_certificates_are_principals(
    guarded: Any, admin: AdminClient, topic: str, authority: Any, alice_pem: Path
) -> None:
    config = {
        "bootstrap.servers": guarded.at("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.path),
        "ssl.certificate.location": str(alice_pem),
        "ssl.key.location": str(alice_pem),
    }
    assert produce(config, topic) is not None
    wait(admin.create_acls([rule(ResourceType.TOPIC, topic, AclOperation.WRITE)]))
    assert produce(config, topic) is None
    other = authority.issue("mallory.pem", "mallory")
    mallory = {"ssl.certificate.location": str(other), "ssl.key.location": str(other)}
    assert produce(config | mallory, topic) is not None
    root = authority.issue("root.pem", "root")
    root_config = {"ssl.certificate.location": str(root), "ssl.key.location": str(root)}
    assert produce(config | root_config, topic) is None  # super.users


# -- SCRAM users --------------------------------------------------------------------------------


def credential(
    user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(
        user, ScramCredentialInfo(mechanism, 4096), password.encode()
    )


def gets_in(broker: Any, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    config = confluent(broker, user, password, **{"sasl.mechanism": mechanism})
    client = AdminClient(config)
    try:
        client.list_topics(timeout=3)
    except KafkaException:
        return False
    return True


def test_users_come_and_go(guarded: Any, admin: AdminClient) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    assert not gets_in(guarded, user, "geheim-1")
    wait(admin.alter_user_scram_credentials([credential(user, "geheim-1")]))
    assert gets_in(guarded, user, "geheim-1")
    assert not gets_in(guarded, user, "geheim-1", "SCRAM-SHA-256")
    assert not gets_in(guarded, user, "geheim-1", "PLAIN")
    wait(
        admin.alter_user_scram_credentials(
            [credential(user, "geheim-2", ScramMechanism.SCRAM_SHA_256)]
        )
    )
    assert gets_in(guarded, user, "geheim-2", "SCRAM-SHA-256")
    described = admin.describe_user_scram_credentials([user])[user].result(WAIT)
    assert [(c.mechanism, c.iterations) for c in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 4096),
        (ScramMechanism.SCRAM_SHA_256, 4096),
    ]
    wait(admin.alter_user_scram_credentials([credential(user, "geheim-3")]))
    assert gets_in(guarded, user, "geheim-3") and not gets_in(guarded, user, "geheim-1")
    for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
        deletion = UserScramCredentialDeletion(user, mechanism)
        wait(admin.alter_user_scram_credentials([deletion]))
    assert not gets_in(guarded, user, "geheim-3")
    missing = admin.describe_user_scram_credentials([user])[user]
    assert code_of(lambda: missing.result(WAIT)) == KafkaError.RESOURCE_NOT_FOUND
    kept = (guarded.data_dir / "metadata.json").read_text() + guarded.log()
    assert "geheim" not in kept


def test_the_clusters_password_counts_before_the_files(guarded: Any, admin: AdminClient) -> None:
    assert gets_in(guarded, "bob", "bob-secret")
    wait(admin.alter_user_scram_credentials([credential("bob", "geheim-4")]))
    assert gets_in(guarded, "bob", "geheim-4")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert not gets_in(guarded, "bob", "bob-secret", mechanism)
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    wait(admin.alter_user_scram_credentials([deletion]))
    assert gets_in(guarded, "bob", "bob-secret")


def test_credentials_that_are_refused(guarded: Any, admin: AdminClient) -> None:
    def refused(*changes: Any) -> set[int | None]:
        futures = admin.alter_user_scram_credentials(list(changes))
        return {code_of(lambda f=future: f.result(WAIT)) for future in futures.values()}

    weak = UserScramCredentialUpsertion(
        "x", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4095), b"p"
    )
    slow = UserScramCredentialUpsertion(
        "x", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 16385), b"p"
    )
    missing = UserScramCredentialDeletion("unknown", ScramMechanism.SCRAM_SHA_256)
    assert refused(weak) == refused(slow) == {KafkaError.UNACCEPTABLE_CREDENTIAL}
    assert refused(missing) == {KafkaError.RESOURCE_NOT_FOUND}
    twice = [credential("x", "a"), credential("x", "b", ScramMechanism.SCRAM_SHA_256)]
    assert refused(*twice) == {KafkaError.DUPLICATE_RESOURCE}
    assert not gets_in(guarded, "x", "a")
