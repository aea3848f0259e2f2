"""The records of ``__transaction_state``, in Kafka's own format, so that Kafka's tools read them.

    key    i16 version 0: transactional id
    value  i16 version 1, flexible: producer_id i64, producer_epoch i16, timeout_ms i32, status i8,
           partitions? [topic, [partition i32]], last_update_ms i64, start_ms i64,
           tagged: 0 previous_producer_id i64, 1 next_producer_id i64, 2 client version i16

A null value is a tombstone. Written: version 1 (Kafka 3.5 and later read it). Also read:
version 0, as Kafka to 3.9 writes it. Source: ``TransactionLogKey/Value.json`` of Kafka 3.9 and 4.3.
"""

from __future__ import annotations

from typing import Final

from penstock_broker.transactions.states import TransactionState
from penstock_broker.transactions.transaction import Transaction
from penstock_broker.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    DecodeError,
    Struct,
    array,
    decode,
    encode,
    field,
)

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1


class TransactionKey(Struct, versions=range(1)):
    transactional_id: str = field(STRING)


class PartitionsOfTopic(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = array(INT32)


class TransactionValue(Struct, versions=range(2), flexible_from=1):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1)
    producer_epoch: int = field(INT16)
    timeout_ms: int = field(INT32)
    status: int = field(INT8)
    partitions: list[PartitionsOfTopic] | None = array(PartitionsOfTopic, nullable_since=0)
    last_update_ms: int = field(INT64)
    start_ms: int = field(INT64)
    client_version: int = field(INT16, since=1, tag=2, default=0)


def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records."""
    return b"\0\0" + encode(TransactionKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a key version from the future. DecodeError."""
    if int.from_bytes(data[:2], "big") != KEY_VERSION:
        return None
    key, _ = decode(TransactionKey, KEY_VERSION, data, 2)
    return key.transactional_id


def encode_value(transaction: Transaction) -> bytes:
    """The value of a record."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    value = TransactionValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        status=transaction.state,
        partitions=None
        if transaction.state is TransactionState.EMPTY
        else [
            PartitionsOfTopic(topic=topic, partition_ids=partitions)
            for topic, partitions in by_topic.items()
        ],
        last_update_ms=transaction.updated_ms,
        start_ms=transaction.started_ms,
    )  # fmt: skip
    return VALUE_VERSION.to_bytes(2, "big") + encode(value, VALUE_VERSION)


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """What a record says of an id. DecodeError, also for a version from the future."""
    version = int.from_bytes(data[:2], "big")
    if version not in TransactionValue.versions:
        raise DecodeError(f"transaction value of version {version}")
    value, _ = decode(TransactionValue, version, data, 2)
    try:
        state = TransactionState(value.status)
    except ValueError as error:
        raise DecodeError(str(error)) from error
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        timeout_ms=value.timeout_ms,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        state=state,
        partitions=frozenset(
            (topic.topic, partition)
            for topic in value.partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=value.start_ms,
        updated_ms=value.last_update_ms,
    )
