"""Writing the markers that end a transaction, in each of its partitions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from penstock_broker.clock import Clock
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.markers import Marker
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.transactions.transaction import Transaction

_logger = logging.getLogger(__name__)

_MOOT = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Written(Enum):
    """What has become of a marker."""

    COUNTS = "counts"
    IS_ON_ITS_WAY = "is on its way"
    """It is in the log, and counts when the high watermark has passed it. Ask again."""
    FAILED = "failed"
    """Not now. Ask again, but not at once."""


class OpenTransaction(NamedTuple):
    """A transaction in one partition, as the partition's log has it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    """That of its newest batch."""


class Markers(Protocol):
    """What the coordinator needs of the logs."""

    def write(
        self, transaction: Transaction, topic: str, partition: int, coordinator_epoch: int
    ) -> Written:
        """Write the marker of a prepared transaction in one partition; asked until it counts."""
        ...

    def open(self) -> list[OpenTransaction]:
        """Every transaction that has records somewhere and no marker there."""
        ...

    def abort_orphan(self, orphan: OpenTransaction) -> None:
        """End a transaction that no coordinator knows of; the next start tries again."""
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
        self._on_their_way: dict[tuple[str, int, int], tuple[uuid.UUID, int]] = {}
        """(topic, partition, producer id) -> the topic's id and the offset of its marker. The id,
        because the topic may be deleted meanwhile, and another made of that name."""

    def write(
        self, transaction: Transaction, topic: str, partition: int, coordinator_epoch: int
    ) -> Written:
        key = (topic, partition, transaction.producer_id)
        written = self._on_their_way.pop(key, None)
        if written is not None:
            topic_id, offset = written
            found = self._replicas.find(topic, partition)
            if found is None or found.topic_id != topic_id or found.high_watermark > offset:
                return Written.COUNTS
            self._on_their_way[key] = written
            return Written.IS_ON_ITS_WAY if found.is_online else Written.FAILED
        marker = Marker(transaction.is_commit, coordinator_epoch)
        return self._append(
            topic, partition, transaction.producer_id, transaction.producer_epoch, marker
        )

    def _append(
        self, topic: str, index: int, producer_id: int, epoch: int, marker: Marker
    ) -> Written:
        if not self._replicas.has_partition(topic, index):
            return Written.COUNTS  # deleted meanwhile: there is nothing to be decided
        try:
            partition = self._replicas.partition(topic, index)
            result = partition.append_marker(producer_id, epoch, marker, self._clock.now_ms())
        except KafkaError as error:
            if error.code not in _MOOT:
                _logger.warning(
                    "%s-%d: no marker for producer %d yet: %s", topic, index, producer_id, error
                )
                return Written.FAILED
            # A newer epoch has written there, so this transaction has ended; what a power cut has
            # left open of the newer one was aborted by the start (``abort_orphan``).
            _logger.error(
                "%s-%d: marker of producer %d refused: %s", topic, index, producer_id, error
            )
            return Written.COUNTS
        if topic == OFFSETS_TOPIC:
            self._offsets_decided(index, producer_id, marker.is_commit)
        if partition.high_watermark > result.last_offset:
            return Written.COUNTS
        self._on_their_way[topic, index, producer_id] = partition.topic_id, result.last_offset
        return Written.IS_ON_ITS_WAY

    def open(self) -> list[OpenTransaction]:
        return [
            OpenTransaction(partition.topic, partition.index, producer_id, entry.epoch)
            for partition in self._replicas.partitions()
            for producer_id in partition.log.producers.transactions.begun
            if (entry := partition.log.producers.get(producer_id)) is not None
        ]

    def abort_orphan(self, orphan: OpenTransaction) -> None:
        topic, index, producer_id, epoch = orphan
        partition = self._replicas.find(topic, index)
        entry = None if partition is None else partition.log.producers.get(producer_id)
        if entry is not None:
            marker = Marker(is_commit=False, coordinator_epoch=max(0, entry.coordinator_epoch))
            self._append(topic, index, producer_id, epoch, marker)
            self._on_their_way.pop((topic, index, producer_id), None)
