"""Topics that are deleted, and made again under the same name."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable

import pytest
from storage_broker import DATA_DIR, Broker, code

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import TopicPartition
from penstock_broker.steps import End, attempt, run, step_or_end, together
from penstock_broker.testing import MemFiles


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_deletion_that_the_disk_refuses_deletes_nothing(broker: Broker, operation: str) -> None:
    """Nor later: the topic lives, and a save or a start afterwards must not finish the job."""
    broker.replicas.create_topic("t", 1, {})
    topic = broker.replicas.create_topic("u", 1, {})
    broker.append("t", 0, "acknowledged")
    assert isinstance(broker.files, MemFiles)
    path_part = "/data" if operation == "sync_directory" else "metadata.json"
    broker.files.fail(operation, errno.EIO, path_part=path_part)
    with pytest.raises(KafkaError) as error:
        broker.replicas.delete_topic("t")
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not broker.metadata.deleting()
    broker.kill()  # with nothing saved after it
    assert broker.values("t") == ["acknowledged"]
    broker.replicas.set_configs(topic.name, {"segment.bytes": "1000"})
    broker.append("t", 0, "later")
    broker.kill()
    assert broker.values("t") == ["acknowledged", "later"]


def test_a_refused_deletion_is_not_saved_with_the_next_change(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "acknowledged")
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json", times=2)
    with pytest.raises(KafkaError):
        broker.replicas.delete_topic("t")
    assert broker.metadata.topic("t") is not None
    broker.replicas.create_topic("u", 1, {})
    broker.kill()
    assert broker.values("t") == ["acknowledged"]


def test_a_topic_that_lives_is_not_wiped_whatever_the_metadata_want_deleted(
    broker: Broker,
) -> None:
    """A version that had failed to delete it could have written both."""
    topic = broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "acknowledged")
    assert isinstance(broker.files, MemFiles)
    document = json.loads(broker.files.get(DATA_DIR / "metadata.json"))
    document["deleting"] = {str(topic.topic_id): "t"}
    broker.files.put(DATA_DIR / "metadata.json", json.dumps(document).encode())
    broker.kill()
    assert broker.values("t") == ["acknowledged"]
    assert not broker.metadata.deleting()


def test_a_recreated_topic_is_another(broker: Broker) -> None:
    """Pitfalls 5 and 48: another id, no record of the old one, an epoch that has grown."""
    first = broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "old")
    broker.replicas.delete_topic("t")
    assert broker.metadata.topic_by_id(first.topic_id) is None
    broker.clock.advance(60_000)
    assert broker.logs.empty_trash() == 1
    assert broker.directories() == []
    second = broker.replicas.create_topic("t", 1, {})
    assert second.topic_id != first.topic_id
    assert second.partitions[0].leader_epoch > first.partitions[0].leader_epoch
    assert broker.replicas.partition("t", 0).log_end_offset == 0
    broker.restart()
    assert broker.replicas.partition("t", 0).log_end_offset == 0


def test_many_topics_are_deleted_a_few_logs_a_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request names them all; other clients have their turn between its steps."""
    names = [f"t{number}" for number in range(20)]
    for name in names:
        broker.replicas.create_topic(name, 3, {})
    turns, delete = [0], broker.logs.delete

    def counted(logs: Iterable[TopicPartition], **how: bool) -> None:
        taken = list(logs)
        turns[-1] += len(taken)
        delete(taken, **how)

    monkeypatch.setattr(broker.logs, "delete", counted)
    steps = together([broker.replicas.deleting_topic(name) for name in names])
    while not isinstance(step := step_or_end(steps, None), End):
        if step is not None:
            assert attempt(step) is None
        turns.append(0)
    assert (sum(turns), max(turns)) == (60, 3)


def test_an_interrupted_deletion_is_finished_at_the_next_start(broker: Broker) -> None:
    broker.replicas.create_topic("t", 3, {})
    broker.append("t", 2, "a")
    run(broker.metadata.deleting_topic("t"))
    broker.kill()
    assert broker.directories() == []
    assert not broker.metadata.deleting()
    assert broker.report()[0]["event"] == "start"


def test_half_removed_directories_are_removed(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("remove", errno.EIO)
    broker.replicas.delete_topic("t")
    assert [name for name in broker.directories() if name.endswith("-delete")]
    assert broker.metadata.topic("t") is None
    broker.kill()
    assert broker.directories() == []


def test_offsets_of_a_deleted_topic_do_not_hide_records_of_the_next(broker: Broker) -> None:
    """A checkpoint knows names only; one of the old topic must not be read for the new."""
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a", "b", "c", "d")
    broker.replicas.delete_records({("t", 0): 3})
    broker.restart()
    broker.replicas.delete_topic("t")
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "e")
    broker.kill()
    assert broker.replicas.partition("t", 0).log_start_offset == 0
    assert broker.replicas.partition("t", 0).log.recovered.bytes_checked > 0
    assert broker.values("t") == ["e"]


def test_a_deleted_log_can_no_longer_be_used(broker: Broker) -> None:
    """Neither by a request that holds it, nor by a sync that is under way."""
    broker.replicas.create_topic("t", 1, {"flush.ms": "0"})
    broker.append("t", 0, "a")
    partition = broker.replicas.partition("t", 0)
    (job,) = broker.logs.flush_jobs()
    broker.replicas.delete_topic("t")
    job.run()
    broker.logs.flushed([job])
    assert not partition.is_online
    with pytest.raises(KafkaError):
        partition.fetch(0, 100)
