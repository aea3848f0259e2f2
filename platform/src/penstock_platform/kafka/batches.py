"""Raw record batch headers of a log, for the one question that only they answer: which offsets
that no consumer was given are none's to be given?

Ordinary clients hide control batches and aborted transactions. kafka-python's protocol classes show
the batches as they lie in the log, on any Kafka. Asked only where equation 1 does not come out, and
only for the offsets in doubt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.protocol.consumer import FetchRequest  # type: ignore[import-untyped]

from penstock_platform.clock import Clock
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import AbortedTransaction, BatchSpan, legal_holes
from penstock_platform.kafka.protocol_client import partition_leaders, protocol_client
from penstock_platform.ranges import OffsetRange, by_partition, intersect
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock

# Record batch v2 up to the producer id (KIP-98): base offset, length, leader epoch, magic, crc,
# attributes, last offset delta, base timestamp, max timestamp, producer id.
_HEADER = struct.Struct(">qiibIhiqqq")
_PREFIX_BYTES = 12  # base offset and length themselves
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
FETCH_VERSION_MAX = 12  # the last that names topics, not ids
FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 500
READ_COMMITTED = 1
# So long is a log asked whose leader moves, or that gives nothing.
DEADLINE_SECONDS = 30.0
RETRY_PAUSE_SECONDS = 0.2
# Kafka's errors that pass by themselves: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
# REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR (its leader
# will be another), FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE.
_PASSING = frozenset({5, 6, 7, 8, 9, 56, 74, 75, 78})


class _NotNowError(Exception):
    """The leader did not answer as a leader does: to be asked again with fresh metadata."""


def unread_offsets(
    settings: Settings, topic: str, doubtful: Sequence[OffsetRange], clock: Clock | None = None
) -> tuple[OffsetRange, ...]:
    """Of these offsets, those that a read_committed consumer correctly does not get: control
    batches and aborted transactions.

    A leader that moves is followed, with fresh metadata, for ``DEADLINE_SECONDS`` a partition.
    Raises ClusterError when the log cannot be read there.
    """
    clock = clock or SystemClock()
    found: list[OffsetRange] = []
    for partition, ranges in by_partition(doubtful).items():
        span = OffsetRange(partition, ranges[0].start, ranges[-1].end)
        found += legal_holes(partition, *_read_following(settings, topic, span, clock))
    return intersect(found, doubtful)


def _read_following(
    settings: Settings, topic: str, span: OffsetRange, clock: Clock
) -> tuple[list[BatchSpan], list[AbortedTransaction]]:
    deadline = clock.monotonic() + DEADLINE_SECONDS
    where = f"{settings.bootstrap_servers}: cannot read the batches of topic {topic}"
    while True:
        try:
            # A new client each time: it knows brokers and leaders as they are now.
            with protocol_client(settings) as client:
                return _read(client, _leader(client, topic, span.partition), topic, span)
        except (_NotNowError, KafkaError, OSError) as error:
            passing = isinstance(error, (_NotNowError, OSError)) or error.retriable
            if not passing or clock.monotonic() >= deadline:
                raise ClusterError(f"{where}, {span}: {error!r}") from error
        except KeyError as error:
            raise ClusterError(f"{where}: it has no partition {span.partition}") from error
        clock.sleep(RETRY_PAUSE_SECONDS)


def parse_batches(data: bytes) -> Iterator[BatchSpan]:
    """The headers of the whole batches in a Fetch answer; a cut last one is left out.

    Raises ClusterError for message formats before v2, which have no such headers.
    """
    position = 0
    while position + _HEADER.size <= len(data):
        base, length, _, magic, _, attributes, delta, _, _, producer = _HEADER.unpack_from(
            data, position
        )
        if magic != 2:
            raise ClusterError(f"message format v{magic} at offset {base}: v2 is needed")
        position += _PREFIX_BYTES + length
        if position > len(data):
            return
        yield BatchSpan(
            base=base,
            last=base + delta,
            control=bool(attributes & _CONTROL),
            transactional=bool(attributes & _TRANSACTIONAL),
            producer_id=producer,
        )


def _leader(client: Any, topic: str, partition: int) -> int:
    leaders = partition_leaders(client, topic)
    if leaders[partition] < 0:
        raise _NotNowError(f"partition {partition} has no leader")
    return leaders[partition]


def _read(
    client: Any, leader: int, topic: str, span: OffsetRange
) -> tuple[list[BatchSpan], list[AbortedTransaction]]:
    batches: list[BatchSpan] = []
    aborted: set[AbortedTransaction] = set()
    offset = span.start
    while offset < span.end:
        whole = _fetch(client, leader, topic, span.partition, offset)
        answers = [p for found in whole.responses for p in found.partitions]
        code = whole.error_code or (answers[0].error_code if answers else 0)
        if code in _PASSING or not (code or answers):
            raise _NotNowError(f"its leader answers with Kafka's error {code}")
        if code:
            raise ClusterError(
                f"topic {topic} partition {span.partition} offset {offset} cannot be fetched: "
                f"Kafka's error {code}"
            )
        [answer] = answers
        fresh = [b for b in parse_batches(bytes(answer.records or b"")) if b.last >= offset]
        aborted |= {
            AbortedTransaction(a.producer_id, a.first_offset)
            for a in answer.aborted_transactions or ()
        }
        if not fresh:  # the offset is below the last stable offset, so the record exists
            raise _NotNowError(f"it gives nothing at offset {offset}")
        batches += fresh
        offset = fresh[-1].last + 1
    return batches, list(aborted)


def _fetch(client: Any, leader: int, topic: str, partition: int, offset: int) -> Any:
    wanted = FetchRequest.FetchTopic
    request = FetchRequest(
        min_version=4,
        max_version=FETCH_VERSION_MAX,
        replica_id=-1,
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        forgotten_topics_data=[],
        rack_id="",
        topics=[
            wanted(
                topic=topic,
                partitions=[
                    wanted.FetchPartition(
                        partition=partition,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=FETCH_BYTES,
                    )
                ],
            )
        ],
    )

    # The client's own loop does the sending; it has no public call for a request of one's own.
    async def send() -> Any:
        return await client._manager.send(request, node_id=leader)

    return client._manager.run(send)
