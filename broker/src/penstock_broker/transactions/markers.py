"""Writing the markers that end a transaction, in each of its partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from penstock_broker.clock import Clock
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.markers import Marker
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.transactions.transaction import Transaction

_logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
_MOOT = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Markers(Protocol):
    """What the coordinator needs of the logs."""

    def write(
        self, transaction: Transaction, topic: str, partition: int, coordinator_epoch: int
    ) -> bool:
        """Write the marker of a prepared transaction in one partition. False: not now, again."""
        ...

    def open(self) -> list[tuple[str, int, int]]:
        """(topic, partition, producer id) of every transaction that has records somewhere and no
        marker there."""
        ...

    def abort_orphan(self, topic: str, index: int, producer_id: int) -> bool:
        """End a transaction that no coordinator knows of. False: not now."""
        ...


class MarkerWriter:
    """Writes to the logs of this broker, which leads all partitions."""

    def __init__(
        self,
        clock: Clock,
        replicas: ReplicaManager,
        offsets_decided: Callable[[int, int, bool], None],
    ) -> None:
        """``offsets_decided(partition of __consumer_offsets, producer id, committed)`` is called
        after each marker that decides about committed offsets."""
        self._clock = clock
        self._replicas = replicas
        self._offsets_decided = offsets_decided

    def write(
        self, transaction: Transaction, topic: str, partition: int, coordinator_epoch: int
    ) -> bool:
        marker = Marker(transaction.is_commit, coordinator_epoch)
        return self._append(
            topic, partition, transaction.producer_id, transaction.producer_epoch, marker
        )

    def _append(self, topic: str, index: int, producer_id: int, epoch: int, marker: Marker) -> bool:
        if not self._replicas.has_partition(topic, index):
            return True  # deleted meanwhile: there is nothing to be decided
        try:
            partition = self._replicas.partition(topic, index)
            partition.append_marker(producer_id, epoch, marker, self._clock.now_ms())
        except KafkaError as error:
            if error.code not in _MOOT:
                _logger.warning(
                    "%s-%d: no marker for producer %d yet: %s", topic, index, producer_id, error
                )
                return False
            # Somebody newer has ended it there.
            _logger.error("%s-%d: marker of producer %d refused: %s", topic, index, producer_id,
                          error)  # fmt: skip
            return True
        if topic == OFFSETS_TOPIC:
            self._offsets_decided(index, producer_id, marker.is_commit)
        return True

    def open(self) -> list[tuple[str, int, int]]:
        return [
            (partition.topic, partition.index, producer_id)
            for partition in self._replicas.partitions()
            for producer_id in partition.log.producers.transactions.begun
        ]

    def abort_orphan(self, topic: str, index: int, producer_id: int) -> bool:
        partition = self._replicas.find(topic, index)
        entry = None if partition is None else partition.log.producers.get(producer_id)
        if entry is None:
            return True
        marker = Marker(is_commit=False, coordinator_epoch=max(0, entry.coordinator_epoch))
        return self._append(topic, index, producer_id, entry.epoch, marker)
