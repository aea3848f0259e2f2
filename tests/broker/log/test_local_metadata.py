"""The metadata of one broker: written before they are shown, damaged, of another broker."""

from __future__ import annotations

import errno

import pytest
from storage_broker import DATA_DIR, Broker, code

from penstock_broker.cluster import metadata_store
from penstock_broker.cluster.metadata_file import MetadataError
from penstock_broker.cluster.topic import Topic
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import run
from penstock_broker.testing import MemFiles


@pytest.mark.parametrize("change", ["create", "configs", "partitions", "section"])
def test_a_change_that_the_disk_refuses_is_not_there(broker: Broker, change: str) -> None:
    broker.replicas.create_topic("t", 1, {})
    before, version = broker.metadata.topics, broker.metadata.version
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json", times=2)
    changes = {
        "create": lambda: broker.replicas.create_topic("u", 1, {}),
        "configs": lambda: broker.replicas.set_configs("t", {"segment.bytes": "1000"}),
        "partitions": lambda: broker.replicas.create_partitions("t", 2),
        "section": lambda: broker.metadata.put_section("x", {"a": 1}),
    }
    with pytest.raises((KafkaError, OSError)):
        changes[change]()
    assert broker.metadata.topics is before
    assert broker.metadata.version == version
    assert broker.metadata.section("x") == {}
    broker.kill()
    assert list(broker.metadata.topics) == ["t"]
    assert len(broker.metadata.topics["t"].partitions) == 1
    assert broker.metadata.section("x") == {}


def test_cluster_id_has_kafkas_form(broker: Broker) -> None:
    assert len(broker.metadata.cluster_id) == 22
    assert not broker.metadata.cluster_id.startswith("-")


def test_producer_ids_are_given_once(broker: Broker) -> None:
    first = run(broker.metadata.allocating_producer_ids())
    broker.kill()
    second = run(broker.metadata.allocating_producer_ids())
    assert not set(first) & set(second)


def test_views_do_not_change_under_their_holders(broker: Broker) -> None:
    broker.replicas.create_topic("a", 1, {})
    before, version = broker.metadata.topics, broker.metadata.version
    broker.replicas.create_topic("b", 1, {})
    assert list(before) == ["a"]
    assert list(broker.metadata.topics) == ["a", "b"]
    assert broker.metadata.version > version


def test_metadata_that_cannot_be_written_is_not_shown(broker: Broker) -> None:
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json")
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic("t", 1, {})
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.metadata.topic("t") is None
    assert broker.replicas.find("t", 0) is None
    assert broker.directories() == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 1}'])
def test_damaged_metadata_stops_the_start(broker: Broker, data: bytes) -> None:
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.put(DATA_DIR / "metadata.json", data)
    with pytest.raises(MetadataError, match="damaged"):
        broker.start()


def test_another_brokers_directory_is_refused(broker: Broker) -> None:
    broker.replicas.close()
    broker.settings["broker.id"] = "5"
    with pytest.raises(MetadataError, match="belongs to broker"):
        broker.start()


def test_a_section_of_the_metadata_survives_a_kill(broker: Broker) -> None:
    assert broker.metadata.section("quotas") == {}
    version = broker.metadata.version
    broker.metadata.put_section("quotas", {"app": {"producer_byte_rate": 1.0}})
    assert broker.metadata.version > version
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json")
    with pytest.raises(OSError):
        broker.metadata.put_section("quotas", {})
    assert broker.metadata.section("quotas") == {"app": {"producer_byte_rate": 1.0}}
    broker.kill()
    assert broker.metadata.section("quotas") == {"app": {"producer_byte_rate": 1.0}}


def test_raising_the_epochs_of_many_partitions_makes_each_topic_again_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill all of them are raised: a new topic for each would be quadratic."""
    broker.replicas.create_topic("t", 50, {})
    broker.replicas.create_topic("u", 2, {})
    replaced: list[object] = []
    replace = metadata_store.replace

    def counting(value: object, **changes: object) -> object:
        replaced.append(value)
        return replace(value, **changes)  # type: ignore[type-var]

    monkeypatch.setattr(metadata_store, "replace", counting)
    raised = [*(("t", index) for index in range(50)), ("u", 1), ("u", 1)]
    run(broker.metadata.raising_leader_epochs(raised))
    assert sum(isinstance(value, Topic) for value in replaced) == 2
    topics = broker.metadata.topics
    first = broker.metadata.topics["u"].partitions[0].leader_epoch
    assert {part.leader_epoch for part in topics["t"].partitions} == {first + 1}
    assert topics["u"].partitions[1].leader_epoch == first + 2
