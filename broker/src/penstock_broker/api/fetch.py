"""Fetch (1), versions 4-12: read record batches as they are in the log.

Behaviour:
* A long poll: answered when min_bytes can be read over all partitions, when a partition has an
  error, or when max_wait_ms is over. Waiting costs nothing; an append wakes it.
* Records are descriptions of file ranges until the kernel sends them. The batch that holds the
  offset asked for is sent whole, however large, if it is the first of the answer (KIP-74).
* Bounded by max_bytes, by each partition's own bound, and by the broker's ``fetch.max.bytes``.
  The partition that is read first rotates, so that a busy one does not starve the others.
* Consumers see offsets below the high watermark; the last stable offset equals it.
* Sessions (KIP-227) are not kept: every answer says session 0, and every client then sends full
  requests. An offset at the log's end is empty; beyond it, or before its start, out of range.

Version notes:
* v5: log start offset. v7: sessions. v9: the client's leader epoch is checked (KIP-320).
* v11: rack (ignored). v12: flexible; diverging epochs are a follower's matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable

from penstock_broker.api.context import DEFERRED, Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.slice import EMPTY_SLICE
from penstock_broker.wire.messages.fetch import (
    API_KEY,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

READ_COMMITTED = 1
FINAL_EPOCH = -1  # "no session", or the end of one
WAIT_MS_MAX = 24 * 3_600_000

_turn = itertools.count()


def refuse(request: FetchRequest, error: KafkaError, version: int) -> FetchResponse:
    if version >= 7:
        return FetchResponse(error_code=error.code, responses=[])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_failed(p.partition, error.code) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@api(API_KEY, FetchRequest, refuse=refuse, versions=range(4, 13))
def fetch(services: Services, exchange: Exchange, request: FetchRequest) -> Reply:
    if request.session_id != 0:
        if request.session_epoch == FINAL_EPOCH:
            return FetchResponse(responses=[])
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if request.session_epoch > 0:
        raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    reading = _Reading(services, request)
    if reading.failed or reading.size >= request.min_bytes or request.max_wait_ms <= 0:
        return reading.response()
    delayed = DelayedFetch(services, exchange, request, reading.size)
    keys = [(topic.topic, p.partition) for topic in request.topics for p in topic.partitions]
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    services.purgatory.park(delayed, keys, services.clock.monotonic() + wait_ms / 1000.0)
    exchange.on_closed(lambda: services.purgatory.cancel(delayed))
    return DEFERRED


class DelayedFetch:
    """A fetch that found less than it wants."""

    def __init__(
        self, services: Services, exchange: Exchange, request: FetchRequest, size: int
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._request = request
        self._missing = request.min_bytes - size

    def advanced(self, key: Hashable, amount: int) -> bool:
        self._missing -= amount
        return self._missing <= 0

    def complete(self) -> None:
        self._exchange.respond(_Reading(self._services, self._request).response())


class _Reading:
    """One pass over the partitions of a request."""

    def __init__(self, services: Services, request: FetchRequest) -> None:
        self.size = 0
        self.failed = False
        self._services = services
        self._request = request
        self._left = min(request.max_bytes, services.config.fetch_max_bytes)
        self._found: dict[tuple[int, int], PartitionData] = {}
        places = [
            (t, p) for t, topic in enumerate(request.topics) for p in range(len(topic.partitions))
        ]
        start = next(_turn) % len(places) if places else 0
        for place in places[start:] + places[:start]:
            topic = request.topics[place[0]]
            self._found[place] = self._read(topic.topic, topic.partitions[place[1]])

    def response(self) -> FetchResponse:
        """The answer, in the order of the request."""
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[self._found[t, p] for p in range(len(topic.partitions))],
                )
                for t, topic in enumerate(self._request.topics)
            ]
        )

    def _read(self, topic: str, wanted: FetchPartition) -> PartitionData:
        try:
            partition = self._services.replicas.partition(topic, wanted.partition)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            found = partition.fetch(
                wanted.fetch_offset,
                max(0, min(wanted.partition_max_bytes, self._left)),
                min_one_batch=self.size == 0,
            )
        except KafkaError as error:
            self.failed = True
            return _failed(wanted.partition, error.code)
        self.size += found.size
        self._left -= found.size
        committed = self._request.isolation_level == READ_COMMITTED
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=found,
        )


def _failed(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, records=EMPTY_SLICE
    )
