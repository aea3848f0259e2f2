"""The audit record: what a producer stamps on each record, and what it says about them later.

Three formats live here, once; the platform imports them.

**Record header** ``penstock.audit``, version 1, the last header of a record (big endian)::

    offset  0  u8   version = 1
            1  i64  incarnation   random, positive; one per producer instance, new after a fork
            9  i64  sequence      from 0, per incarnation and topic
           17  i64  timestamp_ms  equals the record's timestamp
           25  ...  server name, UTF-8, the rest

**Digest of a record**: ``h = 42``, then for each of *sequence, key is null, key, value is null,
value* that is not null ``h = xxh64(bytes, seed=h)``, a long as 8 and a boolean as 4 little-endian
bytes. That is Spark's ``xxhash64(sequence, isnull(key), key, isnull(value), value)``, which is the
same number, signed. Digests add modulo 2**64: a sum, not XOR, where pairs would cancel. The null
flags distinguish a missing key from an empty one.

**Monitoring event**, version 2: JSON on the topic ``__penstock_audit``, Kafka key = incarnation as
decimal text. Events are deltas, numbered from 1 per incarnation, idempotent by ``uuid``. Within an
incarnation every sequence below ``acknowledged + failed + in flight`` appears in exactly one
event's ``sequences`` or ``failed``, or is in flight; every acknowledged offset is in exactly one
claim. An account names the topic's id where the client knows it: offsets of a topic that was
deleted and created again are other offsets.

Bounds, so that no event can say more than its producer can have done; what exceeds them is refused
as malformed: every number is below 2**63, offsets and sequences below 2**62; a claim has at most
``CLAIM_RECORDS_MAX`` records; the claims of an account have no more records than its ``sequences``,
or than ``cut_of`` where the account was too long for one event and this is a piece of it.

Not promised: that events arrive in order, once, or at all. ``number`` and ``final`` say so.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

HEADER_NAME = "penstock.audit"
HEADER_VERSION = 1
EVENT_VERSION = 2
# No number in an event is larger; offsets and sequences are below the second.
NUMBER_MAX = 2**63 - 1
OFFSET_MAX = 2**62
ERROR_CHARACTERS = 300
PARTITION_MAX = 2**31 - 1
# The ledger closes a claim that has 8192 records; what was accounted in one go may have as many.
CLAIM_RECORDS_MAX = 16_384
DIGEST_SEED = 42
DIGEST_MODULUS = 1 << 64
DEFAULT_AUDIT_TOPIC = "__penstock_audit"

_HEADER = struct.Struct(">Bqqq")
HEADER_BYTES = _HEADER.size  # without the server name
# What the digest hashes in addition to key and value; Spark hashes a boolean as the integer 0 or 1.
DIGEST_LONG = struct.Struct("<q")
DIGEST_FALSE = struct.pack("<i", 0)
DIGEST_TRUE = struct.pack("<i", 1)


class AuditFormatError(ValueError):
    """Bytes that are no audit header or no monitoring event: says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class AuditHeader:
    """The value of the record header ``penstock.audit`` (format in the module's docstring)."""

    incarnation: int
    sequence: int
    timestamp_ms: int
    server: str

    def encode(self) -> bytes:
        fixed = _HEADER.pack(HEADER_VERSION, self.incarnation, self.sequence, self.timestamp_ms)
        return fixed + self.server.encode()

    @classmethod
    def decode(cls, data: bytes) -> AuditHeader:
        """Read a header's value; raises AuditFormatError for anything but a whole version 1."""
        if len(data) < _HEADER.size:
            raise AuditFormatError(
                f"audit header of {len(data)} bytes: version 1 has at least {_HEADER.size}"
            )
        version, incarnation, sequence, timestamp_ms = _HEADER.unpack_from(data)
        if version != HEADER_VERSION:
            raise AuditFormatError(f"audit header version {version}: this code reads 1")
        try:
            server = data[_HEADER.size :].decode()
        except UnicodeDecodeError as error:
            raise AuditFormatError(f"audit header: server name is not UTF-8: {error}") from error
        return cls(incarnation, sequence, timestamp_ms, server)


def find_audit_header(
    headers: Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] | None,
) -> AuditHeader | None:
    """The audit header among a record's headers (the last of that name), or None."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    found: bytes | str | None = None
    for name, value in pairs:
        if name == HEADER_NAME:
            found = value
    if found is None:
        return None
    return AuditHeader.decode(found.encode() if isinstance(found, str) else found)


def record_digest(sequence: int, key: bytes | None, value: bytes | None) -> int:
    """Digest of one record, an unsigned 64-bit integer; about 0.3 microseconds."""
    xxh64 = xxhash.xxh64_intdigest
    h = xxh64(DIGEST_LONG.pack(sequence), DIGEST_SEED)
    h = xxh64(DIGEST_TRUE, h) if key is None else xxh64(key, xxh64(DIGEST_FALSE, h))
    return xxh64(DIGEST_TRUE, h) if value is None else xxh64(value, xxh64(DIGEST_FALSE, h))


def digest_text(digest: int) -> str:
    """A digest, or a sum of digests, as 16 hexadecimal digits (taken modulo 2**64)."""
    return f"{digest % DIGEST_MODULUS:016x}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Offsets ``start <= offset < end`` of one partition, all acknowledged to one incarnation.

    ``digest`` is the sum modulo 2**64 of the digests of exactly these records.
    """

    partition: int
    start: int
    end: int
    digest: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FailedRecords:
    """Sequences ``first <= sequence < end`` that the client gave up, and why."""

    first: int
    end: int
    error: str


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from ``produce()`` to the acknowledgement."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class TopicAccount:
    """What happened to one topic's records since the event before.

    ``sequences`` are the acknowledged ones as half-open ranges; ``records`` and ``bytes`` (key
    plus value) count the acknowledged records; ``in_flight`` counts those neither acknowledged nor
    failed when the event was made. Times and latency are None where no record was acknowledged.
    ``topic_id`` is None where it is not known. ``cut_of``: in each piece of an account that was
    cut, how many records were acknowledged in all of its pieces; None for a whole one.
    """

    topic: str
    claims: tuple[Claim, ...] = ()
    sequences: tuple[tuple[int, int], ...] = ()
    failed: tuple[FailedRecords, ...] = ()
    in_flight: int = 0
    records: int = 0
    bytes: int = 0
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    latency_ms: Latency | None = None
    topic_id: str | None = None
    cut_of: int | None = None

    def to_json(self) -> dict[str, Any]:
        latency = self.latency_ms
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "cut_of": self.cut_of,
            "claims": [[c.partition, c.start, c.end, digest_text(c.digest)] for c in self.claims],
            "sequences": [[first, end] for first, end in self.sequences],
            "failed": [[f.first, f.end, f.error] for f in self.failed],
            "in_flight": self.in_flight,
            "records": self.records,
            "bytes": self.bytes,
            "first_timestamp_ms": self.first_timestamp_ms,
            "last_timestamp_ms": self.last_timestamp_ms,
            "latency_ms": None
            if latency is None
            else {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99, "max": latency.max},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> TopicAccount:
        """Raises AuditFormatError where a bound of the format is exceeded."""
        latency = raw["latency_ms"]
        account = cls(
            topic=_text(raw, "topic"),
            topic_id=None if raw["topic_id"] is None else _text(raw, "topic_id"),
            cut_of=None if raw["cut_of"] is None else _count(raw, "cut_of"),
            claims=tuple(_claim(item) for item in raw["claims"]),
            sequences=tuple(_range(first, end) for first, end in raw["sequences"]),
            failed=tuple(
                FailedRecords(*_range(first, end), str(error))
                for first, end, error in raw["failed"]
            ),
            in_flight=_count(raw, "in_flight"),
            records=_count(raw, "records"),
            bytes=_count(raw, "bytes"),
            first_timestamp_ms=_optional_int(raw, "first_timestamp_ms"),
            last_timestamp_ms=_optional_int(raw, "last_timestamp_ms"),
            latency_ms=None
            if latency is None
            else Latency(*(float(latency[name]) for name in ("p50", "p95", "p99", "max"))),
        )
        account.check()
        return account

    def check(self) -> None:
        """Raises AuditFormatError where the account says more than its producer can have done."""
        for claim in self.claims:
            if len(claim) > CLAIM_RECORDS_MAX:
                raise AuditFormatError(
                    f"monitoring event: a claim of {len(claim):,} records of {self.topic} "
                    f"(partition {claim.partition} from offset {claim.start}): a claim has at most "
                    f"{CLAIM_RECORDS_MAX:,}"
                )
        claimed = sum(len(claim) for claim in self.claims)
        acknowledged = sum(end - first for first, end in self.sequences)
        most = acknowledged if self.cut_of is None else self.cut_of
        if max(claimed, acknowledged) > most:
            raise AuditFormatError(
                f"monitoring event: {claimed:,} records of {self.topic} are claimed and "
                f"{acknowledged:,} sequences acknowledged, where the account has {most:,} records"
            )


@dataclass(frozen=True, slots=True)
class MonitoringEvent:
    """Monitoring event v2: one delta of one incarnation (format in the module's docstring)."""

    uuid: str
    incarnation: int
    number: int
    final: bool
    client_id: str
    application: str
    host: str
    pid: int
    started_at_ms: int
    sent_at_ms: int
    interval_ms: int
    topics: tuple[TopicAccount, ...] = ()

    @property
    def key(self) -> bytes:
        """The Kafka key: one incarnation's events stay in order in one partition."""
        return str(self.incarnation).encode()

    def to_bytes(self) -> bytes:
        raw = {
            "v": EVENT_VERSION,
            "uuid": self.uuid,
            "incarnation": str(self.incarnation),  # text: JSON numbers are often read as doubles
            "number": self.number,
            "final": self.final,
            "client_id": self.client_id,
            "application": self.application,
            "host": self.host,
            "pid": self.pid,
            "started_at_ms": self.started_at_ms,
            "sent_at_ms": self.sent_at_ms,
            "interval_ms": self.interval_ms,
            "topics": [account.to_json() for account in self.topics],
        }
        return json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MonitoringEvent:
        """Read an event; raises AuditFormatError for anything but a whole v2.

        Keys that this version does not know are ignored.
        """
        try:
            raw = json.loads(data)
            if not isinstance(raw, dict):
                raise AuditFormatError("monitoring event: not a JSON object")
            if raw["v"] != EVENT_VERSION:
                raise AuditFormatError(f"monitoring event version {raw['v']!r}: this code reads 2")
            return cls(
                uuid=_text(raw, "uuid"),
                incarnation=_incarnation(raw),
                number=_count(raw, "number"),
                final=bool(raw["final"]),
                client_id=_text(raw, "client_id"),
                application=_text(raw, "application"),
                host=_text(raw, "host"),
                pid=_count(raw, "pid"),
                started_at_ms=_count(raw, "started_at_ms"),
                sent_at_ms=_count(raw, "sent_at_ms"),
                interval_ms=_count(raw, "interval_ms"),
                topics=tuple(TopicAccount.from_json(topic) for topic in raw["topics"]),
            )
        except AuditFormatError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = f"not a monitoring event: {error!r}"
            raise AuditFormatError(reason[:ERROR_CHARACTERS]) from error


def _incarnation(raw: Mapping[str, Any]) -> int:
    value = int(_text(raw, "incarnation"))
    if not 0 < value <= NUMBER_MAX:
        raise AuditFormatError(f"monitoring event: incarnation {value} is no positive i64")
    return value


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str):
        raise AuditFormatError(f"monitoring event: {name} is {value!r}, not text")
    return value


def _count(raw: Mapping[str, Any], name: str) -> int:
    value = raw[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise AuditFormatError(f"monitoring event: {name} is {value!r}, not a count")
    return value


def _optional_int(raw: Mapping[str, Any], name: str) -> int | None:
    value = raw[name]
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise AuditFormatError(f"monitoring event: {name} is {value!r}, not an integer")
    return value


def _range(first: Any, end: Any) -> tuple[int, int]:
    if type(first) is not int or type(end) is not int or not 0 <= first < end <= OFFSET_MAX:
        raise AuditFormatError(f"monitoring event: [{first!r}, {end!r}) is no range of numbers")
    return first, end


def _claim(item: Any) -> Claim:
    partition, start, end, digest = item
    if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
        raise AuditFormatError(f"monitoring event: partition {partition!r} in a claim")
    if not isinstance(digest, str) or len(digest) != 16:
        raise AuditFormatError(f"monitoring event: digest {digest!r} in a claim: 16 hex digits")
    first, last = _range(start, end)
    return Claim(partition, first, last, int(digest, 16))
