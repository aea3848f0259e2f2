"""Produce requests with records of a transaction (KIP-98, KIP-890).

Before the first records of a transaction are written to a partition, its coordinator is asked
whether the partition is part of it. A partition that was not added would get no marker, and no
read_committed consumer could ever get past it. From the second batch on the log itself knows.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.messages.produce import ProduceRequest
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

ABORTABLE_SINCE = 11
MAGIC_AT = 16
_NOT_NOW = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def is_transactional(records: memoryview | None) -> bool:
    """Whether the first batch says that it is part of a transaction."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and records[MAGIC_AT] == MAGIC
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG)
    )


def require_transaction(services: Services, exchange: Exchange, request: ProduceRequest) -> None:
    """KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED for records of a transaction that the
    client does not name, or may not write to."""
    if any(
        is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    ):
        transactional_id = request.transactional_id
        if transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        require(
            services, exchange, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )


def verify(
    services: Services,
    transactional_id: str | None,
    partition: Partition,
    records: memoryview | None,
    version: int,
) -> bool:
    """Whether a partition is known to be part of a batch's transaction; False where the batch is
    in none. KafkaError with the code that the Produce path has for what the coordinator says."""
    if transactional_id is None or records is None or not is_transactional(records):
        return False
    batch = BatchHeader(records)
    if partition.has_open_transaction(batch.producer_id):
        return True
    try:
        services.transactions.verify(
            transactional_id,
            batch.producer_id,
            batch.producer_epoch,
            [partition.topic_partition],
        )
    except KafkaError as error:
        said = _as_produce_says(error, version)
        if said is error:
            raise  # not from itself: that would be a circle of causes
        raise said from error
    return True


def _as_produce_says(error: KafkaError, version: int) -> KafkaError:
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    if code in _NOT_NOW:
        # Old clients do not retry these here; this one they do, without looking for a new leader.
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return error
