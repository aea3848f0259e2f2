"""Topics that are made, their partitions, names and settings."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest
from storage_broker import Broker, code

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import OsFiles
from penstock_broker.testing import MemFiles


def test_a_topic_can_be_used_as_soon_as_it_is_created(broker: Broker) -> None:
    """Pitfall 48: metadata right after CreateTopics already lists it, with a leader."""
    topic = broker.replicas.create_topic("t", 2, {})
    assert broker.metadata.topics["t"] is topic
    assert topic.partitions[1].leader == broker.metadata.broker_id
    assert broker.append("t", 1, "a") == 0


def test_an_interrupted_creation_leaves_nothing(broker: Broker) -> None:
    config = BrokerConfig().log
    broker.logs.create("t", 0, uuid.uuid4(), config)
    broker.kill()
    assert broker.directories() == []
    broker.replicas.create_topic("t", 1, {})


def test_a_creation_that_fails_leaves_nothing(broker: Broker) -> None:
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("open", errno.EIO, path_part="t-1")
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic("t", 3, {})
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.metadata.topic("t") is None
    broker.replicas.create_topic("t", 3, {})


def test_partitions_can_be_added(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    assert len(broker.replicas.create_partitions("t", 3).partitions) == 3
    assert broker.append("t", 2, "b") == 0
    for total in (3, 2, 0):
        with pytest.raises(KafkaError) as error:
            broker.replicas.create_partitions("t", total)
        assert code(error) is ErrorCode.INVALID_PARTITIONS
    broker.restart()
    assert broker.values("t", 2) == ["b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250])
def test_invalid_names_are_refused(broker: Broker, name: str) -> None:
    """Pitfall 23: INVALID_TOPIC_EXCEPTION, never created."""
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic(name, 1, {})
    assert code(error) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_longest_name_can_be_used_and_deleted(broker: Broker, tmp_path: Path) -> None:
    real = Broker(OsFiles(), tmp_path / "data")
    name = "x" * 249
    real.replicas.create_topic(name, 1, {})
    real.append(name, 0, "a")
    real.replicas.delete_topic(name)
    real.replicas.close()


def test_names_that_collide_in_metrics_are_refused(broker: Broker) -> None:
    broker.replicas.create_topic("a.b", 1, {})
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic("a_b", 1, {})
    assert code(error) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_bad_settings_are_refused(broker: Broker) -> None:
    """Pitfall 23: INVALID_CONFIG, at creation and later."""
    for configs in ({"segment.bytes": "many"}, {"no.such.setting": "1"}):
        with pytest.raises(KafkaError) as error:
            broker.replicas.create_topic("t", 1, configs)
        assert code(error) is ErrorCode.INVALID_CONFIG
    broker.replicas.create_topic("t", 1, {})
    with pytest.raises(KafkaError):
        broker.replicas.set_configs("t", {"cleanup.policy": "sometimes"})
    broker.replicas.set_configs("t", {"max.message.bytes": "100"})
    with pytest.raises(KafkaError) as error:
        broker.append("t", 0, "x" * 200)
    assert code(error) is ErrorCode.MESSAGE_TOO_LARGE
    broker.restart()
    assert broker.replicas.partition("t", 0).log.config.max_message_bytes == 100
