"""Charging requests to quotas: answer at once, say how long to wait, then do not read (KIP-219).

A connection whose client has a quota keeps its buckets in ``connection.quota``; for all others
that is None, and a request costs two comparisons. What is charged: the size of a Produce request,
the records of a Fetch answer, and for ``request_percentage`` the time that the handler took.
Kafka empties a Fetch answer that exceeds the quota and lets the client ask again later; here it is
sent, bounded by one window of the quota, and paid for by waiting, which gives the same rate and
reads the disk once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock_broker.api.context import Encoded
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.metrics import Family, Histogram
from penstock_broker.quotas.client_quotas import ClientQuota, ClientQuotas
from penstock_broker.quotas.token_bucket import TokenBucket
from penstock_broker.server.connection import Connection
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.messages.create_partitions import API_KEY as CREATE_PARTITIONS
from penstock_broker.wire.messages.create_topics import API_KEY as CREATE_TOPICS
from penstock_broker.wire.messages.delete_topics import API_KEY as DELETE_TOPICS
from penstock_broker.wire.messages.fetch import FetchResponse
from penstock_broker.wire.messages.produce import API_KEY as PRODUCE

INT32_MAX = 2**31 - 1
_STRICT_SINCE = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
REQUEST_WAIT_SECONDS_MAX = 1.0


class Throttling:
    """What the dispatcher asks about quotas."""

    __slots__ = ("_now", "_quotas", "_throttles")

    def __init__(
        self, quotas: ClientQuotas, now: Callable[[], float], throttles: Family[Histogram]
    ) -> None:
        """``throttles`` counts the throttle times sent to clients, by quota type."""
        self._quotas = quotas
        self._now = now
        self._throttles = throttles

    @property
    def generation(self) -> int:
        """What connections compare with theirs."""
        return self._quotas.generation

    def resolve(self, connection: Connection) -> None:
        """Find out which quota holds for this connection from now on."""
        connection.quota_generation = self._quotas.generation
        connection.quota = self._quotas.of_client(connection.user, connection.client_id or "")

    def toll(self, quota: ClientQuota, api_key: int, request_bytes: int) -> Toll:
        """What a request that begins now will be charged with."""
        return Toll(self._now, quota, api_key, request_bytes, self._throttles)


class Toll:
    """One request of a client with a quota."""

    __slots__ = (
        "_api_key",
        "_began",
        "_now",
        "_quota",
        "_request_bytes",
        "_seconds",
        "_throttles",
    )

    def __init__(
        self,
        now: Callable[[], float],
        quota: ClientQuota,
        api_key: int,
        request_bytes: int,
        throttles: Family[Histogram],
    ) -> None:
        self._throttles = throttles
        self._now = now
        self._quota = quota
        self._api_key = api_key
        self._request_bytes = request_bytes
        self._began = now()
        self._seconds: float | None = None

    def deferred(self) -> None:
        """The handler is done; the answer comes later, and the wait for it is not work."""
        self._seconds = self._now() - self._began

    def charge_mutations(self, partitions: int, version: int) -> None:
        """Partitions are about to be made or deleted (KIP-599). THROTTLING_QUOTA_EXCEEDED while
        there is a debt, in versions that know this error; older ones only wait afterwards."""
        bucket = self._quota.mutations
        if bucket is None:
            return
        now = self._now()
        if bucket.wait(now) > 0 and version >= _STRICT_SINCE.get(self._api_key, 0):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.take(partitions, now)

    def pay(self, connection: Connection, response: Struct | Encoded | None) -> None:
        """The answer (None: it gets none) is ready: charge the request, say so in the answer, and
        mute the connection while there is a debt."""
        now, quota, wait, kind = self._now(), self._quota, 0.0, "request"
        if self._api_key == PRODUCE and quota.produce is not None:
            wait, kind = quota.produce.take(self._request_bytes, now), "produce"
        elif type(response) is FetchResponse and quota.fetch is not None:
            wait, kind = quota.fetch.take(_fetched_bytes(response), now), "fetch"
        if quota.request is not None:
            seconds = now - self._began if self._seconds is None else self._seconds
            longer = _take_time(quota.request, seconds, now)
            if longer > wait:
                wait, kind = longer, "request"
        if quota.mutations is not None and self._api_key in _STRICT_SINCE:
            longer = quota.mutations.wait(now)
            if longer > wait:
                wait, kind = longer, "mutations"
        if wait > 0:
            throttle_ms = math.ceil(wait * 1000)
            self._throttles.labels(kind).observe(wait)
            if hasattr(response, "throttle_time_ms"):
                answer: Any = response
                answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
            connection.mute(throttle_ms / 1000.0)


def _take_time(bucket: TokenBucket, seconds: float, now: float) -> float:
    """Charge work; the wait, at most ``REQUEST_WAIT_SECONDS_MAX``. What is above is forgiven, as
    it leaves Kafka's windows: a heavy request must not shut a client out for minutes."""
    wait = bucket.take(seconds, now)
    if wait > REQUEST_WAIT_SECONDS_MAX:
        bucket.give_back((wait - REQUEST_WAIT_SECONDS_MAX) * bucket.rate)
    return min(wait, REQUEST_WAIT_SECONDS_MAX)


def fetch_bytes_max(quota: ClientQuota | None) -> int:
    """The most records that one Fetch may give to this client."""
    if quota is None or quota.fetch is None:
        return INT32_MAX
    return max(1, min(INT32_MAX, int(quota.fetch.burst)))


def _fetched_bytes(response: FetchResponse) -> int:
    return sum(
        len(partition.records)
        for topic in response.responses
        for partition in topic.partitions
        if partition.records is not None
    )
