"""The accounting of one incarnation: sequences out, acknowledgements in, accounts for the events.

Two sides, on purpose:

* **The delivery path** runs in the application's threads, once per record: take a number from an
  iterator, later append one tuple to a list, both atomic. No lock, and an exception that a signal
  handler throws between any two instructions loses no acknowledgement.
* **The accounting** (``drain``, ``take``) has one owner, the session's reporter thread, and works
  in bulk.

Invariants, checked by property tests:

* every sequence below ``issued`` is acknowledged once, or failed once, or in flight, or given back;
* the claims of all accounts together are exactly the acknowledged offsets, each once, and a claim's
  digest is the sum of its records' digests;
* what one account says, no later one repeats.

No I/O and no clock here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import length_hint
from typing import Protocol

import xxhash

from penstock_client.audit import (
    DIGEST_FALSE,
    DIGEST_LONG,
    DIGEST_MODULUS,
    DIGEST_SEED,
    DIGEST_TRUE,
    Claim,
    FailedRecords,
    Latency,
    TopicAccount,
)
from penstock_client.ranges import Ranges, gaps, merge, ranges_of, total

# About as many records at most in one claim: a digest that differs then points to few records,
# and its check needs no more than this of the window before.
CLAIM_RECORDS = 8192
DRAIN_CHUNK = 8192
DRAIN_ACKS = 4096
SEQUENCES_UNFOLDED = 65_536
SAMPLES_MAX = 2048
SEQUENCES_MAX = 2**62

ABANDONED = "_ABANDONED"

# sequence, digest, bytes of key and value, partition, offset
Ack = tuple[int, int, int, int, int]


class DeliveryError(Protocol):
    """What the ledger asks of confluent_kafka.KafkaError."""

    def name(self) -> str: ...


class DeliveredMessage(Protocol):
    """What the ledger asks of confluent_kafka.Message."""

    def offset(self) -> int | None: ...
    def partition(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def latency(self) -> float | None: ...


class Lane:
    """One topic's part of the ledger."""

    def __init__(self, topic: str, ask_for_drain: Callable[[], None]) -> None:
        self.topic = topic
        self.acks: list[Ack] = []
        self._outcomes: list[tuple[int, str]] = []  # failed: sequence, error's name
        # An iterator over a range: next() is atomic, and what it has left can be asked.
        self._remaining = iter(range(SEQUENCES_MAX))
        self.take_sequence: Callable[[], int] = self._remaining.__next__
        self.returned: list[int] = []  # sequences of refused records, to be used again
        # Timestamp in ms and latency in seconds, where ``offset & sample_mask`` is zero: of all
        # records, until there are many.
        self.samples: list[tuple[int, float]] = []
        self.sample_mask = 0
        self.delivered = self._make_delivered(ask_for_drain)
        self.sequences: list[int] = []  # acknowledged, not yet folded into ranges
        self.failures: list[tuple[int, str]] = []
        self._acknowledged: Ranges = []
        self._resolved: Ranges = []
        self._open: dict[int, Claim] = {}
        self._claims: list[Claim] = []
        self._records = 0
        self._size = 0
        self._drained = 0

    def _make_delivered(
        self, ask_for_drain: Callable[[], None]
    ) -> Callable[[int, DeliveryError | None, DeliveredMessage], None]:
        """The delivery callback; bound to a record's sequence, it is what librdkafka calls."""
        xxh64, pack_long = xxhash.xxh64_intdigest, DIGEST_LONG.pack
        samples, acks, fail = self.samples, self.acks, self._outcomes.append
        append = acks.append

        def delivered(
            sequence: int, error: DeliveryError | None, message: DeliveredMessage
        ) -> None:
            if error is not None:
                fail((sequence, error.name()))
                return
            key, value, offset = message.key(), message.value(), message.offset() or 0
            # record_digest, flat: a call would cost as much as a hash.
            digest = xxh64(pack_long(sequence), DIGEST_SEED)
            if key is None:
                digest = xxh64(DIGEST_TRUE, digest)
                size = 0
            else:
                digest = xxh64(key, xxh64(DIGEST_FALSE, digest))
                size = len(key)
            if value is None:
                digest = xxh64(DIGEST_TRUE, digest)
            else:
                digest = xxh64(value, xxh64(DIGEST_FALSE, digest))
                size += len(value)
            # Numbers only: the garbage collector soon stops looking at such tuples.
            append((sequence, digest, size, message.partition() or 0, offset))
            if not offset & self.sample_mask:
                samples.append((message.timestamp()[1], message.latency() or 0.0))
                if len(acks) > DRAIN_ACKS:
                    ask_for_drain()

        return delivered

    @property
    def issued(self) -> int:
        """Sequences taken so far, those given back included."""
        return SEQUENCES_MAX - length_hint(self._remaining)

    def _last_used(self) -> int:
        """End of the sequences that went out: those refused last were never followed by another."""
        end, unused = self.issued, set(self.returned)
        while end - 1 in unused:
            end -= 1
        return end

    def retake_sequence(self) -> int:
        """A sequence that was given back, or the next one where another thread was faster."""
        try:
            return self.returned.pop()
        except IndexError:
            return self.take_sequence()

    def extend(self, partition: int, start: int, end: int, *, digest: int, size: int) -> None:
        """Account the acknowledged offsets ``start <= offset < end`` of one partition.

        ``digest``: sum of their digests; ``size``: bytes. Negative offsets: the broker said of a
        retried batch that it has it, not where; such records are counted, and cannot be claimed.
        """
        self._records += end - start
        self._size += size
        if start < 0:
            return
        claim = self._open.get(partition)
        if claim is not None:
            if claim.end == start and len(claim) < CLAIM_RECORDS:
                start = claim.start
                digest += claim.digest
            else:
                self._claims.append(claim)
        self._open[partition] = Claim(partition, start, end, digest % DIGEST_MODULUS)

    @property
    def in_flight(self) -> int:
        """Records that were sent and have no outcome yet; any thread may ask."""
        outcomes = self._drained + len(self.acks) + len(self._outcomes)
        return max(0, self.issued - len(self.returned) - outcomes)

    def drain(self) -> None:
        """Account what the delivery path has put down. Owner only."""
        count = len(self.acks)
        for start in range(0, count, DRAIN_CHUNK):
            self._account(self.acks[start : min(start + DRAIN_CHUNK, count)])
        del self.acks[:count]  # appends meanwhile are behind these
        outcomes = self._outcomes[:]
        self.failures += outcomes
        del self._outcomes[: len(outcomes)]
        self._drained += count + len(outcomes)
        if len(self.sequences) > SEQUENCES_UNFOLDED:
            self.fold()
        if len(self.samples) > 2 * SAMPLES_MAX:
            self.sample_mask = self.sample_mask * 2 + 1
            del self.samples[::2]

    def _account(self, acks: list[Ack]) -> None:
        """One pass over acknowledgements, as stretches of consecutive offsets of a partition."""
        append = self.sequences.append
        partition = start = end = -1
        digests = sizes = 0
        for sequence, digest, size, number, offset in acks:
            if offset != end or number != partition:
                if end > start:
                    self.extend(partition, start, end, digest=digests, size=sizes)
                partition, start = number, offset
                digests = sizes = 0
            append(sequence)
            end = offset + 1
            digests += digest
            sizes += size
        if end > start:
            self.extend(partition, start, end, digest=digests, size=sizes)

    def fold(self) -> None:
        """Turn the acknowledged sequences from one number each into ranges."""
        self.sequences.sort()
        self._acknowledged = merge(self._acknowledged, ranges_of(self.sequences))
        self.sequences.clear()

    def take(self, *, final: bool) -> TopicAccount | None:
        """The account since the last call, or None where there is nothing to say.

        ``final``: what was issued and is neither acknowledged nor failed by now never will be; it
        is reported as failed, so that every sequence has an end.
        """
        self.fold()
        acknowledged, failures = self._acknowledged, _failed_ranges(self.failures)
        resolved = merge(self._resolved, acknowledged, ((f.first, f.end) for f in failures))
        if final:
            rest = gaps(resolved, self._last_used())
            failures += [FailedRecords(first, end, ABANDONED) for first, end in rest]
            resolved = merge(resolved, rest)
        in_flight = max(0, self.issued - len(self.returned) - total(resolved))
        self._resolved = resolved
        if not acknowledged and not failures and not in_flight:
            return None
        samples = self.samples[:]
        times = [timestamp for timestamp, _ in samples]
        account = TopicAccount(
            topic=self.topic,
            claims=(*self._claims, *self._open.values()),
            sequences=tuple(acknowledged),
            failed=tuple(failures),
            in_flight=in_flight,
            records=self._records,
            bytes=self._size,
            first_timestamp_ms=min(times, default=None),
            last_timestamp_ms=max(times, default=None),
            latency_ms=latency_of([latency for _, latency in samples]),
        )
        del self.samples[: len(samples)]  # not clear(): the delivery path appends meanwhile
        self.failures.clear()
        self._acknowledged = []
        self._open = {}
        self._claims = []
        self._thin_out(self._records)
        self._records = self._size = 0
        return account

    def _thin_out(self, records: int) -> None:
        """Sample so that as many records as in the account before give about SAMPLES_MAX."""
        self.sample_mask = (1 << (records // SAMPLES_MAX).bit_length()) - 1


class Ledger:
    """All lanes of one incarnation. ``ask_for_drain`` is called, in any thread, when there is much
    to account."""

    def __init__(self, ask_for_drain: Callable[[], None] = lambda: None) -> None:
        self._ask_for_drain = ask_for_drain
        self.lanes: dict[str, Lane] = {}

    @property
    def in_flight(self) -> int:
        """Records that were sent and have no outcome yet; any thread may ask."""
        return sum(lane.in_flight for lane in self.lanes.copy().values())

    def lane(self, topic: str) -> Lane:
        return self.lanes.setdefault(topic, Lane(topic, self._ask_for_drain))

    def drain(self) -> None:
        """Account what the delivery path has put down. Owner only."""
        for lane in self.lanes.copy().values():
            lane.drain()

    def take(self, *, final: bool = False) -> list[TopicAccount]:
        """Drain, and return every topic's account since the last call. Owner only."""
        self.drain()
        accounts = (lane.take(final=final) for lane in self.lanes.copy().values())
        return [account for account in accounts if account is not None]


def latency_of(samples: list[float]) -> Latency | None:
    """Percentiles (nearest rank) in milliseconds of samples in seconds; None without samples."""
    if not samples:
        return None
    ordered = sorted(samples)

    def rank(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1] * 1000, 3)

    return Latency(rank(0.50), rank(0.95), rank(0.99), round(ordered[-1] * 1000, 3))


def _failed_ranges(failures: list[tuple[int, str]]) -> list[FailedRecords]:
    """Single failures as ranges, one list per error, in order of sequence."""
    by_error: dict[str, list[int]] = {}
    for sequence, name in failures:
        by_error.setdefault(name, []).append(sequence)
    return sorted(
        (
            FailedRecords(first, end, name)
            for name, sequences in by_error.items()
            for first, end in ranges_of(sorted(sequences))
        ),
        key=lambda failed: failed.first,
    )
