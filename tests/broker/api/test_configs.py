"""Settings of topics and brokers: described with their sources, changed while the broker runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_requests import create, produce, records

from penstock_broker.api.broker_configs import SECTION, BrokerConfigs
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import run
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import ConnectionClosed, RawClient
from penstock_broker.wire.messages import alter_configs as legacy
from penstock_broker.wire.messages import incremental_alter_configs as incremental
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.describe_configs import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, DYNAMIC, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)
Change = tuple[str, int, str | None]


def describe(
    client: RawClient, kind: int, name: str, keys: list[str] | None = None, **options: bool
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    return client.ask(request, 4).results[0]


def sources(client: RawClient, kind: int, name: str, key: str) -> list[tuple[str, str, int]]:
    """What is in force, and what would be without it."""
    (found,) = describe(client, kind, name, [key], include_synonyms=True).configs
    assert (found.value, found.config_source) == (
        found.synonyms[0].value,
        found.synonyms[0].source,
    )
    return [(s.name, s.value, s.source) for s in found.synonyms]


def change(
    client: RawClient, kind: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[int, str | None]:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (result,) = client.ask(request, 1).responses
    return result.error_code, result.error_message


def replace(
    client: RawClient, kind: int, name: str, **values: str | None
) -> tuple[int, str | None]:
    resource = legacy.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            legacy.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in values.items()
        ],
    )
    (result,) = client.ask(legacy.AlterConfigsRequest(resources=[resource]), 2).responses
    return result.error_code, result.error_message


def value_of(client: RawClient, topic: str, key: str) -> str:
    (found,) = describe(client, RESOURCE_TOPIC, topic, [key]).configs
    return str(found.value)


# -- topics -------------------------------------------------------------------------------------


def test_single_changes_of_a_topic(raw: RawClient, topic: str) -> None:
    create(raw, topic)

    def alter(*changes: Change, **options: bool) -> tuple[int, str | None]:
        return change(raw, RESOURCE_TOPIC, topic, *changes, **options)

    assert alter(("retention.ms", SET, "5000")) == (0, None)
    assert value_of(raw, topic, "retention.ms") == "5000"
    assert alter(("retention.ms", SET, "777"), validate_only=True) == (0, None)
    assert value_of(raw, topic, "retention.ms") == "5000"
    assert alter(("cleanup.policy", APPEND, "compact")) == (0, None)
    assert alter(("cleanup.policy", APPEND, "compact")) == (0, None)
    assert value_of(raw, topic, "cleanup.policy") == "delete,compact"
    assert alter(("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert value_of(raw, topic, "cleanup.policy") == "compact"
    assert alter(("retention.ms", DELETE, None), ("no.such", DELETE, None)) == (0, None)
    assert value_of(raw, topic, "retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("no.such", SET, "5")], 40, "Unknown topic config name: no.such"),
        (
            [("retention.ms", SET, "abc")],
            40,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            [("retention.ms", APPEND, "5")],
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("no.such", SUBTRACT, "5")],
            40,
            "Can't SUBTRACT to key no.such because its type is not LIST.",
        ),
        ([("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ([("cleanup.policy", APPEND, None)], 42, "Null value not supported for : cleanup.policy"),
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            42,
            "Error due to duplicate config keys",
        ),
        ([("retention.ms", 9, "5")], 42, "Unknown operation 9."),
    ],
)
def test_changes_that_are_refused(
    raw: RawClient, topic: str, changes: list[Change], code: int, words: str
) -> None:
    """Pitfall 23; the words are Kafka's."""
    create(raw, topic)
    good = ("segment.ms", SET, "12345")
    assert change(raw, RESOURCE_TOPIC, topic, good, *changes) == (code, words)
    assert value_of(raw, topic, "segment.ms") == "604800000", "all changes or none"


def test_resources_that_there_are_not(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    one = ("retention.ms", SET, "5")
    for kind, name, code, words in (
        (RESOURCE_TOPIC, topic + "-none", 3, f"The topic '{topic}-none' does not exist."),
        (RESOURCE_TOPIC, "", 42, "Default topic resources are not allowed."),
        (0, topic, 42, "Unknown resource type 0"),
        (RESOURCE_BROKER, "77", 42, "Unexpected broker id, expected 0, but received 77"),
        (RESOURCE_BROKER, "abc", 42, "Node id must be an integer, but it is: abc"),
    ):
        assert change(raw, kind, name, one) == (code, words)
        assert replace(raw, kind, name, retention_ms="5") == (code, words)
    assert change(raw, RESOURCE_TOPIC, "a b", one)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    resource = incremental.AlterConfigsResource(
        resource_type=RESOURCE_TOPIC, resource_name=topic, configs=[]
    )
    twice = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    words = "Each resource must appear at most once."
    assert [(r.error_code, r.error_message) for r in raw.ask(twice, 1).responses] == [
        (42, words)
    ] * 2
    for kind, name, code in (
        (RESOURCE_TOPIC, topic + "-none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (RESOURCE_TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RESOURCE_BROKER, "77", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        assert describe(raw, kind, name).error_code == code


def test_replacing_all_overrides_of_a_topic(raw: RawClient, topic: str) -> None:
    create(raw, topic, retention_ms="5")
    assert replace(raw, RESOURCE_TOPIC, topic, segment_ms="7") == (0, None)
    assert value_of(raw, topic, "retention.ms") == "604800000"
    assert value_of(raw, topic, "segment.ms") == "7"
    null = (42, "Null value not supported for : retention.ms")
    assert replace(raw, RESOURCE_TOPIC, topic, retention_ms=None) == null
    assert replace(raw, RESOURCE_TOPIC, topic) == (0, None)
    assert value_of(raw, topic, "segment.ms") == "604800000"


# -- brokers ------------------------------------------------------------------------------------


def test_settings_of_a_running_broker(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """KIP-226: this broker before all brokers before the file; topics see it at once, and a
    restart finds it again."""
    broker = new_broker(log_segment_bytes="5000000", log_retention_hours="1")
    name = "log.retention.ms"
    with RawClient(broker.host, broker.port) as raw:
        create(raw, topic)
        file = [(name, "3600000", STATIC), (name, "604800000", DEFAULT)]
        assert sources(raw, RESOURCE_BROKER, "0", name) == file
        assert change(raw, RESOURCE_BROKER, "", (name, SET, "7200000")) == (0, None)
        assert change(raw, RESOURCE_BROKER, "0", (name, SET, "1800000")) == (0, None)
        both = [(name, "1800000", DYNAMIC), (name, "7200000", DYNAMIC_DEFAULT), *file]
        assert sources(raw, RESOURCE_BROKER, "0", name) == both
        assert sources(raw, RESOURCE_TOPIC, topic, "retention.ms") == both
        assert sources(raw, RESOURCE_BROKER, "", name) == both[1:2]
        assert change(raw, RESOURCE_TOPIC, topic, ("retention.ms", SET, "9")) == (0, None)
        assert sources(raw, RESOURCE_TOPIC, topic, "retention.ms")[0][2] == TOPIC
    broker.stop()
    broker.start()
    with RawClient(broker.host, broker.port) as raw:
        assert sources(raw, RESOURCE_BROKER, "0", name) == both
        assert replace(raw, RESOURCE_BROKER, "0") == (0, None)
        assert sources(raw, RESOURCE_BROKER, "0", name) == both[1:]
        assert change(raw, RESOURCE_BROKER, "", (name, DELETE, None)) == (0, None)
        assert sources(raw, RESOURCE_BROKER, "0", name) == file


def test_topics_use_a_changed_default_at_once(
    new_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = new_broker()
    large = records(b"x" * 2_000)
    with RawClient(broker.host, broker.port) as raw:
        create(raw, topic)
        create(raw, topic + "-own", max_message_bytes="5000")
        for names, code in (
            ([("message.max.bytes", SET, "1000")], ErrorCode.MESSAGE_TOO_LARGE),
            ([("message.max.bytes", DELETE, None)], ErrorCode.NONE),
        ):
            assert change(raw, RESOURCE_BROKER, "", *names) == (0, None)
            assert produce(raw, topic, bytearray(large)).error_code == code
            assert produce(raw, topic + "-own", bytearray(large)).error_code == 0


def test_a_default_that_does_not_go_with_what_topics_have(
    new_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """New overrides are checked against it; existing ones stay, over a restart, too."""
    broker = new_broker()
    name = "log.cleaner.max.compaction.lag.ms"
    with RawClient(broker.host, broker.port) as raw:
        create(raw, topic, min_compaction_lag_ms="1000")
        assert change(raw, RESOURCE_BROKER, "", (name, SET, "50")) == (0, None)
        assert value_of(raw, topic, "max.compaction.lag.ms") == "50"
        again = ("min.compaction.lag.ms", SET, "2000")
        words = "conflict topic config setting min.compaction.lag.ms (2000) > "
        code, message = change(raw, RESOURCE_TOPIC, topic, again)
        assert (code, message) == (40, words + "max.compaction.lag.ms (50)")
        assert produce(raw, topic, records(b"x")).error_code == 0
    broker.stop()
    broker.start()
    with RawClient(broker.host, broker.port) as raw:
        assert value_of(raw, topic, "min.compaction.lag.ms") == "1000"
        assert produce(raw, topic, records(b"x")).base_offset == 1


def test_a_changed_limit_holds_at_once(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    with RawClient(broker.host, broker.port) as raw:
        assert change(raw, RESOURCE_BROKER, "", ("max.connections", SET, "1")) == (0, None)
        with pytest.raises(ConnectionClosed), RawClient(broker.host, broker.port) as other:
            other.ask(ApiVersionsRequest(), 0)
        assert change(raw, RESOURCE_BROKER, "", ("max.connections", DELETE, None)) == (0, None)
        with RawClient(broker.host, broker.port) as other:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0


def test_what_a_running_broker_keeps_is_refused(raw: RawClient) -> None:
    for name in ("num.partitions", "broker.id", "advertised.listeners", "log.retention.hours"):
        refused = (42, f"Cannot update these configs dynamically: [{name}]")
        assert change(raw, RESOURCE_BROKER, "0", (name, SET, "3")) == refused
        assert replace(raw, RESOURCE_BROKER, "0", **{name: "3"}) == refused
    bad = (42, "Invalid value abc for configuration log.retention.ms: Not a number of type LONG")
    assert change(raw, RESOURCE_BROKER, "0", ("log.retention.ms", SET, "abc")) == bad
    fixed = {c.name for c in describe(raw, RESOURCE_BROKER, "0").configs if c.read_only}
    assert {"num.partitions", "broker.id"} <= fixed
    assert not {"log.retention.ms", "message.max.bytes", "max.connections"} & fixed


def test_names_that_only_others_know_are_kept_and_hidden(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    """As Apache Kafka: they may be secrets, so their values are never shown."""
    broker = new_broker()
    with RawClient(broker.host, broker.port) as raw:
        name = "sasl.kerberos.min.time.before.relogin"
        assert change(raw, RESOURCE_BROKER, "0", (name, SET, "58000")) == (0, None)
        (found,) = describe(raw, RESOURCE_BROKER, "0", [name]).configs
        assert (found.value, found.is_sensitive, found.config_source) == (None, True, DYNAMIC)
        assert change(raw, RESOURCE_BROKER, "0", (name, DELETE, None)) == (0, None)
        assert describe(raw, RESOURCE_BROKER, "0", [name]).configs == []


def test_secrets_have_no_value(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker(ssl_key_password="hush")
    with RawClient(broker.host, broker.port) as raw:
        result = describe(raw, RESOURCE_BROKER, "0", ["ssl.key.password"], include_synonyms=True)
        (found,) = result.configs
        assert (found.value, found.is_sensitive) == (None, True)
        assert all(s.value is None for s in found.synonyms)
    assert "hush" not in broker.log()


class Sections:
    """The part of a metadata store that is asked for."""

    def __init__(self, **values: dict[str, dict[str, str]]) -> None:
        self.values: dict[str, Any] = dict(values)
        self.fails = False

    def section(self, name: str) -> Any:
        return self.values.get(name, {})

    def putting_section(self, name: str, value: Any) -> Iterator[None]:
        yield
        if self.fails:
            raise OSError(28, "No space left on device")
        self.values[name] = value


def broker_configs(store: Sections) -> BrokerConfigs:
    metadata: MetadataStore = store  # type: ignore[assignment]
    return BrokerConfigs(BrokerConfig(), metadata)


def test_nothing_changes_when_it_cannot_be_kept() -> None:
    store = Sections()
    configs = broker_configs(store)
    changes: list[BrokerConfig] = []
    configs.listeners.append(changes.append)
    run(configs.putting("0", {"log.retention.ms": "5"}))
    assert [c.log.retention_ms for c in changes] == [5]
    store.fails = True
    with pytest.raises(KafkaError) as caught:
        run(configs.putting("0", {"log.retention.ms": "6"}))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert configs.current.log.retention_ms == 5
    assert len(changes) == 1
    with pytest.raises(KafkaError):
        run(configs.putting("0", {f"name.{n}": "" for n in range(1_001)}))


def test_settings_of_another_release_do_not_keep_a_broker_from_starting() -> None:
    store = Sections(**{SECTION: {"0": {"log.retention.ms": "a week"}}})
    assert broker_configs(store).current == BrokerConfig()
