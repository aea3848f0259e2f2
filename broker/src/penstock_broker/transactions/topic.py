"""The internal topic ``__transaction_state``: what has become of each transactional id.

The newest record of an id counts; older ones go when the topic is compacted. Records as in
:mod:`.transaction_records`. The leader epoch of a partition is the epoch of its coordinator: it is
in every marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from penstock_broker.clock import Clock
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.internal_topic import InternalTopic, batches
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.transactions.transaction import Transaction
from penstock_broker.transactions.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import Record


class Stored(NamedTuple):
    """A record of the topic: what an id is from then on; None: it is deleted."""

    transactional_id: str
    transaction: Transaction | None


class TransactionStore(Protocol):
    """Where the coordinator keeps transactions."""

    def ensure_topic(self) -> None:
        """Make the topic when the first id asks for it. KafkaError when that fails."""
        ...

    def check(self, transactional_id: str) -> None:
        """KafkaError NOT_COORDINATOR where nothing can be said about this id: its partition was
        not read to the end, or is offline."""
        ...

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch of the id's coordinator, which its markers carry."""
        ...

    def write(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Append a record; on its way to the disk as the topic's settings say when this returns.
        KafkaError: nothing is written."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether all of it could be read: then what it does not know does not exist."""
        ...


class TransactionsTopic(InternalTopic):
    """The store of the transaction coordinator."""

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        create: Callable[[], object],
    ) -> None:
        super().__init__(TRANSACTIONS_TOPIC, metadata=metadata, replicas=replicas, create=create)
        self._clock = clock

    def check(self, transactional_id: str) -> None:
        if self.partition_count():
            self.partition(transactional_id)

    def coordinator_epoch(self, transactional_id: str) -> int:
        return self.partition(transactional_id).leader_epoch

    def write(self, transactional_id: str, transaction: Transaction | None) -> None:
        partition = self.partition(transactional_id)
        value = None if transaction is None else encode_value(transaction)
        record = NewRecord(encode_key(transactional_id), value, self._clock.now_ms())
        try:
            partition.append(memoryview(build_batch([record])), acks_all=True)
        except KafkaError as error:
            raise KafkaError(_write_error(error.code), str(error)) from error

    def load(self) -> Iterator[Stored]:
        """Everything that is in the topic, partition by partition, in order."""
        return self.replay(_read)


def _read(partition: Partition) -> Iterator[Stored]:
    for batch in batches(partition):
        for record in () if batch.is_control else batch.records():
            if record.offset >= partition.log_start_offset:
                stored = _decode(record)
                if stored is not None:
                    yield stored


def _decode(record: Record) -> Stored | None:
    """DecodeError for what cannot be read: an id whose state is not known must not start over."""
    transactional_id = decode_key(record.key or b"")
    if transactional_id is None:
        return None
    value = record.value
    return Stored(
        transactional_id, None if value is None else decode_value(transactional_id, value)
    )


def _write_error(code: ErrorCode) -> ErrorCode:
    """The error for a client when the topic cannot be written (as Kafka maps it): nothing that is
    not retriable, because the transaction is as it was."""
    if code in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}:
        return ErrorCode.NOT_COORDINATOR
    if code in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
        # Kafka says UNKNOWN_SERVER_ERROR, which clients take for the end of everything.
        return ErrorCode.INVALID_TXN_STATE
    return code
