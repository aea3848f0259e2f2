"""The quotas of a broker: what is set, which of it holds for a client, and the buckets.

Kept in the metadata's section ``quotas`` (docs/FILE_FORMATS.md). While nothing is set
:attr:`ClientQuotas.is_active` is false and a request costs one comparison; a connection keeps its
:class:`ClientQuota` until :attr:`ClientQuotas.generation` or its client id changes.

Buckets are shared: all connections of a client fill one. There are at most ``BUCKETS_MAX``; beyond
that, those that are full, and so as good as new, are evicted, and then the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_broker.clock import Clock
from penstock_broker.cluster.metadata_store import Change, MetadataStore
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.quotas.entities import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    bucket_key,
    check_value,
    entity_of,
    matches,
    precedence,
)
from penstock_broker.quotas.token_bucket import TokenBucket
from penstock_broker.steps import run

SECTION = "quotas"
BUCKETS_MAX = 10_000
ENTITIES_MAX = 10_000
BURST_SECONDS_MUTATIONS = 10.0
"""As Kafka: topics are made in bursts."""


class ClientQuota:
    """The buckets that one client's requests are charged to; None where nothing is set."""

    __slots__ = ("fetch", "mutations", "produce", "request")

    def __init__(self, buckets: Mapping[str, TokenBucket]) -> None:
        self.produce = buckets.get(PRODUCER_BYTE_RATE)
        self.fetch = buckets.get(CONSUMER_BYTE_RATE)
        self.request = buckets.get(REQUEST_PERCENTAGE)
        self.mutations = buckets.get(CONTROLLER_MUTATION_RATE)


class ClientQuotas:
    """All quotas. Owned by the event loop."""

    def __init__(
        self, clock: Clock, metadata: MetadataStore, *, burst_seconds: float = 1.0
    ) -> None:
        """``burst_seconds``: how much of its rate a client that was quiet may have at once."""
        self._clock = clock
        self._metadata = metadata
        self._burst_seconds = burst_seconds
        self._entities: dict[Entity, dict[str, float]] = {}
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}
        self.generation = 0
        """Grows when a quota changes: what was resolved before is stale."""
        self.is_active = False
        """Whether any client can have a quota at all."""
        self.limits_addresses = False
        """Whether any address has a rate of connections."""
        for entry in metadata.section(SECTION).get("entries", ()):
            self._entities[entity_of(entry["entity"].items())] = dict(entry["values"])
        self._changed()

    # -- what holds --------------------------------------------------------------------------

    def of_client(self, user: str, client_id: str) -> ClientQuota | None:
        """The buckets of a client; None when no quota holds for it."""
        if not self.is_active:
            return None
        found: dict[str, TokenBucket] = {}
        for entity in precedence(user, client_id):
            for key, rate in self._entities.get(entity, {}).items():
                if key in CLIENT_KEYS and key not in found:
                    shared = bucket_key(entity, key, user, client_id)
                    found[key] = self._bucket(shared, *self._size(key, rate))
        return ClientQuota(found) if found else None

    def connection_wait(self, address: str) -> float:
        """Count a new connection; the seconds by which it comes too early (KIP-612)."""
        if not self.limits_addresses:
            return 0.0
        values = self._entities.get(frozenset(((IP, address),)))
        if values is None:
            values = self._entities.get(frozenset(((IP, None),)), {})
        rate = values.get(CONNECTION_CREATION_RATE)
        if rate is None:
            return 0.0
        bucket = self._bucket((IP, address, ""), rate, max(1.0, rate * self._burst_seconds))
        now = self._clock.monotonic()
        wait = bucket.take(1, now)
        if wait:
            bucket.give_back(1)  # it is refused: those who are not must not wait for it
        return wait

    def _size(self, key: str, quota: float) -> tuple[float, float]:
        """Rate and burst of a bucket, in its unit (bytes, seconds of work, partitions)."""
        if key == REQUEST_PERCENTAGE:
            return quota / 100.0, quota / 100.0 * self._burst_seconds
        if key == CONTROLLER_MUTATION_RATE:
            return quota, max(1.0, quota * BURST_SECONDS_MUTATIONS)
        return quota, quota * self._burst_seconds

    def _bucket(self, shared: tuple[str, str, str], rate: float, burst: float) -> TokenBucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(shared)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._evict_buckets(now)
            bucket = self._buckets[shared] = TokenBucket(rate, burst, now)
        elif bucket.rate != rate or bucket.burst != burst:
            bucket.change(rate, burst, now)
        return bucket

    def _evict_buckets(self, now: float) -> None:
        for shared in [key for key, bucket in self._buckets.items() if bucket.is_full(now)]:
            del self._buckets[shared]
        for shared in list(self._buckets)[: len(self._buckets) - BUCKETS_MAX // 2]:
            del self._buckets[shared]

    # -- what is set -------------------------------------------------------------------------

    def alter(
        self, pairs: Iterable[tuple[str, str | None]], changes: Mapping[str, float | None]
    ) -> Entity:
        """Set quotas of an entity (None removes one) without keeping them: :meth:`save` does.

        KafkaError INVALID_REQUEST, POLICY_VIOLATION; nothing changed then.
        """
        entity = self.check(pairs, changes)
        values = dict(self._entities.get(entity, {}))
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        if values:
            self._entities[entity] = values
        else:
            self._entities.pop(entity, None)
        return entity

    def check(
        self, pairs: Iterable[tuple[str, str | None]], changes: Mapping[str, float | None]
    ) -> Entity:
        """Whether :meth:`alter` would do it."""
        entity = entity_of(pairs)
        for key, value in changes.items():
            check_value(entity, key, 1.0 if value is None else value)
        if entity not in self._entities and len(self._entities) >= ENTITIES_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"At most {ENTITIES_MAX} entities have quotas."
            )
        return entity

    def save(self) -> None:
        """:meth:`saving` at once."""
        run(self.saving())

    def saving(self) -> Change[None]:
        """Keep what was altered, and let it hold. KAFKA_STORAGE_ERROR: what was kept holds."""
        try:
            yield from self._metadata.putting_section(
                SECTION, {"entries": [*map(_as_json, self._entities.items())]}
            )
        except OSError as error:
            self._entities = {
                entity_of(entry["entity"].items()): dict(entry["values"])
                for entry in self._metadata.section(SECTION).get("entries", ())
            }
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            self._changed()

    def find(
        self, exact: Mapping[str, str | None], present: Iterable[str], strict: bool
    ) -> list[tuple[Entity, Mapping[str, float]]]:
        """DescribeClientQuotas: entities that match, with their values."""
        present = list(present)
        return [
            (entity, values)
            for entity, values in self._entities.items()
            if matches(entity, exact, present, strict)
        ]

    def _changed(self) -> None:
        self.generation += 1
        keys = {key for values in self._entities.values() for key in values}
        self.limits_addresses = CONNECTION_CREATION_RATE in keys
        self.is_active = not keys.isdisjoint(CLIENT_KEYS)


def _as_json(item: tuple[Entity, Mapping[str, float]]) -> dict[str, Any]:
    entity, values = item
    return {"entity": dict(sorted(entity)), "values": dict(values)}
