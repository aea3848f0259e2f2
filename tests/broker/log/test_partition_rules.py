"""What a partition checks before an append or a fetch, and whom it informs."""

from __future__ import annotations

import pytest
from storage_broker import Broker, code

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.batch_builder import NewRecord, build_batch


def test_acks_all_below_min_insync_is_refused_before_the_append(broker: Broker) -> None:
    """Pitfall 21: NOT_ENOUGH_REPLICAS, and nothing is stored."""
    broker.replicas.create_topic("t", 1, {"min.insync.replicas": "2"})
    partition = broker.replicas.partition("t", 0)
    records = memoryview(build_batch([NewRecord(None, b"x", broker.clock.now_ms())]))
    with pytest.raises(KafkaError) as error:
        partition.append(records, acks_all=True)
    assert code(error) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.append(records).base_offset == 0


def test_listeners_are_notified_of_appends_and_removals(broker: Broker) -> None:
    advances: list[tuple[str, int]] = []
    gone: list[Partition] = []
    broker.replicas.advance_listeners.append(lambda p, size: advances.append((p.topic, size)))
    broker.replicas.removal_listeners.append(gone.append)
    broker.replicas.create_topic("t", 1, {})
    partition = broker.replicas.partition("t", 0)
    for _ in range(2):  # the second is a repetition
        record = NewRecord(None, b"a", broker.clock.now_ms())
        data = build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0)
        partition.append(memoryview(data))
    assert advances == [("t", partition.size_bytes)]
    broker.replicas.delete_topic("t")
    assert gone == [partition]


def test_epochs_that_do_not_fit_are_distinguished(broker: Broker) -> None:
    """Pitfall 5: fetch and ListOffsets check the epoch that the client believes in."""
    broker.replicas.create_topic("t", 1, {})
    broker.kill()
    partition = broker.replicas.partition("t", 0)
    partition.check_leader_epoch(-1)
    partition.check_leader_epoch(1)
    for epoch, expected in (
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        with pytest.raises(KafkaError) as error:
            partition.check_leader_epoch(epoch)
        assert code(error) is expected
