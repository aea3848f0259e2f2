"""The broker's own topics: how they are made, which partition a key is in, and reading them back.

``__consumer_offsets`` and ``__transaction_state`` hold Kafka's own records, in the partitions that
Kafka would choose (Java's hash of the group or transactional id), so a log written here can be
read by Kafka's tools and the other way round. What the records mean is for :mod:`groups.offsets`
and :mod:`transactions.topic`.

Kafka makes them alike for a coordinator and for a client that merely asks for their metadata
(``AutoTopicCreationManager.creatableTopic``). With the settings of other topics retention would
delete what the coordinators have to remember.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from penstock_broker.cluster.java_hash import partition_for
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import RecordBatch, iter_batches

_logger = logging.getLogger(__name__)

READ_BYTES = 4 << 20

T = TypeVar("T")


def creation_of(name: str, config: BrokerConfig) -> tuple[int, dict[str, str]]:
    """Partitions and overrides of an internal topic. ValueError for any other name."""
    if name == OFFSETS_TOPIC:
        return config.offsets_topic_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    if name == TRANSACTIONS_TOPIC:
        return config.transaction_log_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_log_min_isr),
            "segment.bytes": str(config.transaction_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    raise ValueError(f"{name} is not an internal topic")


class InternalTopic:
    """One of them, as its coordinator uses it. Owned by the event loop."""

    def __init__(
        self,
        name: str,
        *,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        create: Callable[[], object],
    ) -> None:
        self.name = name
        self._metadata = metadata
        self._replicas = replicas
        self._create = create
        self._count = 0
        self._unread: set[int] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all of it could be read."""
        return not self._unread

    def ensure_topic(self) -> None:
        """Make the topic when the first key asks for it. KafkaError when that fails."""
        if self.partition_count() == 0:
            self._create()

    def partition_count(self) -> int:
        """Its partitions, which never change; 0 while there is no such topic."""
        if not self._count:
            topic = self._metadata.topic(self.name)
            self._count = len(topic.partitions) if topic is not None else 0
        return self._count

    def partition_of(self, key: str) -> int:
        """The index of the partition that a key's records are in."""
        return partition_for(key, self.partition_count())

    def find(self, key: str) -> Partition | None:
        """The partition of a key; None where it is offline or was not read to its end, so that
        nothing can be said about the key."""
        index = self.partition_of(key)
        partition = self._replicas.find(self.name, index)
        if partition is None or not partition.is_online or index in self._unread:
            return None
        return partition

    def partition(self, key: str) -> Partition:
        """The partition of a key. KafkaError NOT_COORDINATOR where :meth:`find` has none."""
        partition = self.find(key)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition

    def replay(self, read: Callable[[Partition], Iterator[T]]) -> Iterator[T]:
        """What ``read`` makes of each partition. One that cannot be read to its end is logged, and
        nothing is served of it. ``read`` raises KafkaError or DecodeError."""
        self._warn_of_retention()
        for index in range(self.partition_count()):
            try:
                yield from read(self._replicas.partition(self.name, index))
            except (KafkaError, DecodeError) as error:
                self._unread.add(index)
                _logger.error("%s-%d cannot be read on: %s", self.name, index, error)

    def _warn_of_retention(self) -> None:
        """It may have been made by hand, or by a version that made it as any other topic."""
        first = self._replicas.find(self.name, 0)
        policy = () if first is None else first.log.config.cleanup_policy
        if "delete" in policy:
            _logger.warning(
                "%s has cleanup.policy=%s: retention deletes what its coordinator has to keep; "
                "set it to compact (kafka-configs.sh --alter --add-config cleanup.policy=compact)",
                self.name,
                ",".join(policy),
            )


def batches(partition: Partition) -> Iterator[RecordBatch]:
    """The batches of a partition from its start up to the high watermark. The first may begin
    before the start. KafkaError, DecodeError."""
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        found = partition.fetch(offset, READ_BYTES)
        if not found.size:
            return
        for batch in iter_batches(memoryview(found.read())):
            offset = batch.next_offset
            yield batch
