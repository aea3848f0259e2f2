"""Raw record batch headers of a log, for the one question that only they answer: which offsets
that no consumer was given are none's to be given?

Ordinary clients hide control batches and aborted transactions. kafka-python's protocol classes show
the batches as they lie in the log, on any Kafka. Asked only where equation 1 does not come out, and
only for the offsets in doubt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.protocol.consumer import FetchRequest  # type: ignore[import-untyped]

from penstock_platform.domain.ranges import OffsetRange, by_partition, intersect, merge
from penstock_platform.domain.reconcile import AbortedTransaction, BatchSpan, legal_holes
from penstock_platform.resources.kafka import ClusterError
from penstock_platform.settings import Settings

# Record batch v2 up to the producer id (KIP-98): base offset, length, leader epoch, magic, crc,
# attributes, last offset delta, base timestamp, max timestamp, producer id.
_HEADER = struct.Struct(">qiibIhiqqq")
_PREFIX_BYTES = 12  # base offset and length themselves
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
FETCH_VERSION_MAX = 12  # the last that names topics, not ids
FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 500
TIMEOUT_MS = 10_000
READ_COMMITTED = 1
# librdkafka's names for what kafka-python calls otherwise.
_RENAMED = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


def unread_offsets(
    settings: Settings, topic: str, doubtful: Sequence[OffsetRange]
) -> tuple[OffsetRange, ...]:
    """Of these offsets, those that a read_committed consumer is rightly not given: control batches
    and aborted transactions. Raises ClusterError when the log cannot be read there."""
    if not merge(doubtful):
        return ()
    found: list[OffsetRange] = []
    try:
        with raw_client(settings) as client:
            leaders = partition_leaders(client, topic)
            for partition, ranges in by_partition(doubtful).items():
                span = OffsetRange(partition, ranges[0].start, ranges[-1].end)
                batches, aborted = _read(client, leaders[partition], topic, span)
                found += legal_holes(partition, batches, aborted)
    except (KafkaError, KeyError) as error:
        raise ClusterError(
            f"{settings.bootstrap_servers}: cannot read the batches of topic {topic}: {error!r}"
        ) from error
    return intersect(found, doubtful)


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


@contextmanager
def raw_client(settings: Settings) -> Iterator[Any]:
    given = settings.kafka.properties
    client = KafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers.split(","),
        request_timeout_ms=TIMEOUT_MS,
        bootstrap_timeout_ms=TIMEOUT_MS,
        **{ours: given[theirs] for theirs, ours in _RENAMED.items() if theirs in given},
    )
    try:
        yield client
    finally:
        client.close()


def partition_leaders(client: Any, topic: str) -> Mapping[int, int]:
    [description] = client.describe_topics([topic])
    return {p["partition_index"]: p["leader_id"] for p in description["partitions"]}


def _read(
    client: Any, leader: int, topic: str, span: OffsetRange
) -> tuple[list[BatchSpan], list[AbortedTransaction]]:
    batches: list[BatchSpan] = []
    aborted: set[AbortedTransaction] = set()
    offset = span.start
    while offset < span.end:
        answer = _fetch(client, leader, topic, span.partition, offset)
        if answer.error_code:
            raise ClusterError(
                f"topic {topic} partition {span.partition} offset {offset} cannot be fetched: "
                f"Kafka's error {answer.error_code}"
            )
        fresh = [b for b in parse_batches(bytes(answer.records or b"")) if b.last >= offset]
        aborted |= {
            AbortedTransaction(a.producer_id, a.first_offset)
            for a in answer.aborted_transactions or ()
        }
        if not fresh:  # nothing more is stable, or one batch is larger than what was asked for
            break
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

    return client._manager.run(send).responses[0].partitions[0]
