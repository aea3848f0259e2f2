"""Requests of an attacker, or of a broken client.

    chance = random.Random(seed)
    corpus = seeds(chance)                       # plausible frames of every API and version
    frame = mutate(chance.choice(corpus), corpus, chance)
    frame = mutate_batch(chance)                 # a Produce request whose batch is a little wrong
    data = hostile(chance, corpus)               # any kind, with its size, as it is sent

The same seed gives the same frames.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from crc32c import crc32c

from penstock_broker.wire.apis import APIS
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec, compress
from penstock_broker.wire.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    UUID_ZERO,
    ArrayOf,
    Kind,
    Struct,
)
from penstock_broker.wire.header import RequestHeader, encode_request_header
from penstock_broker.wire.records import HEADER_BYTES
from penstock_broker.wire.schema import encode

NAMES = ["t", "u", "g", "m", "", "__consumer_offsets", "consumer", "range", "t" * 300, "a/b", "0"]
NUMBERS = [0, 1, 2, -1, -2, 5, 100, 2**31 - 1, -(2**31), 1 << 20, 32767]
EVIL = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x08",
    b"\x00\x00\x00\x00",
    b"\x80\x00",
    b"\xff\xff",
    b"\x00",
    b"\x01",
    b"\x80",
    b"\xff",
    b"\xc3\x28",
]


def frame(key: int, version: int, body: bytes, client_id: str | None = "f") -> bytes:
    """A request without its size."""
    header = RequestHeader(key, version, 7, client_id)
    return encode_request_header(header, APIS[key].flexible(version)) + body


def a_batch(chance: random.Random) -> bytes:
    """Records as a client sends them: any codec, a producer or none."""
    codec = chance.choice([Codec.NONE, Codec.NONE, *Codec])
    key = chance.choice([None, b"k"])
    records = [
        NewRecord(key, chance.choice([b"v", b"", b"x" * 300]), 1_700_000_000_000 + number)
        for number in range(chance.choice([1, 1, 3, 40]))
    ]
    batch = build_batch(records, codec=codec)
    if chance.random() < 0.3:
        struct.pack_into(">qhi", batch, 43, chance.randrange(3), 0, chance.choice([0, 1, 3]))
        struct.pack_into(">I", batch, 17, crc_of(batch))
    return bytes(batch)


def crc_of(batch: bytes | bytearray) -> int:
    """The checksum that a batch ought to have."""
    return int(crc32c(bytes(batch[21:])))


def a_value(kind: Any, version: int, chance: random.Random) -> Any:
    """A plausible value of a field's type."""
    if isinstance(kind, ArrayOf):
        count = chance.choice([0, 1, 1, 1, 2, 5])
        return [a_value(kind.element, version, chance) for _ in range(count)]
    if not isinstance(kind, Kind):
        return a_message(kind, version, chance)
    if kind is RECORDS:
        return a_batch(chance)
    if kind in _VALUES:
        return chance.choice(_VALUES[kind])
    half = 1 << (8 * kind.size - 1)
    number = chance.choice(NUMBERS)
    return number % (2 * half) if kind.code.isupper() else max(-half, min(half - 1, number))


_VALUES: dict[Kind, list[Any]] = {
    BOOL: [False, True],
    STRING: NAMES,
    BYTES: [b"", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff", b"x" * 50],
    UUID: [UUID_ZERO],
    FLOAT64: [0.0, 1.0, -1.0, 1e9, float("nan"), float("inf")],
}


def a_message(cls: type[Struct], version: int, chance: random.Random) -> Any:
    """A message of plausible values: names that exist, numbers at the edges."""
    values: dict[str, Any] = {}
    for entry in cls.fields:
        if not entry.present(version):
            value = entry.absent_value()
            values[entry.name] = [] if value == () else value
        elif entry.nullable(version) and chance.random() < 0.3:
            values[entry.name] = None
        else:
            values[entry.name] = a_value(entry.type, version, chance)
    return cls(**values)


def seeds(chance: random.Random) -> list[bytes]:
    """Frames of every API and version that there is a codec for."""
    found = []
    for api in APIS.values():
        for version in api.versions:
            for _ in range(2):
                body = encode(a_message(api.request, version, chance), version)
                found.append(frame(api.key, version, body))
    return found


def mutate(data: bytes, corpus: list[bytes], chance: random.Random) -> bytes:
    """A frame that is a little wrong."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        at = chance.randrange(len(out)) if out else 0
        kind = chance.randrange(8)
        if kind == 0 and out:
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            evil = chance.choice(EVIL)
            out[at : at + len(evil)] = evil
        elif kind == 2:
            out[at:at] = chance.choice(EVIL)
        elif kind == 3:
            del out[at : at + chance.choice([1, 2, 4, 30])]
        elif kind == 4:
            other = chance.choice(corpus)
            out = out[:at] + other[chance.randrange(len(other) + 1) :]
        elif kind == 5:
            out[at : at + 4] = struct.pack(">i", chance.choice(NUMBERS))
        elif kind == 6 and len(out) > 4:
            out[2:4] = struct.pack(">h", chance.randrange(18))
        else:
            out += chance.randbytes(chance.choice([1, 8, 64]))
    return bytes(out)


def mutate_batch(chance: random.Random) -> bytes:
    """A Produce request whose batch is a little wrong, often with a checksum that is right."""
    batch = bytearray(a_batch(chance))
    for _ in range(chance.choice([1, 1, 2, 3])):
        at = chance.randrange(12, len(batch))
        if chance.random() < 0.6:
            batch[at] = chance.choice(
                [0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ 1 << chance.randrange(8)]
            )
        else:
            batch[at : at + 4] = struct.pack(">i", chance.choice(NUMBERS))
    if chance.random() < 0.2:
        del batch[chance.randrange(12, len(batch)) :]
    if chance.random() < 0.7 and len(batch) > 12:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    if chance.random() < 0.8 and len(batch) > 21:
        struct.pack_into(">I", batch, 17, crc_of(batch))
    return _produce_of(bytes(batch), chance)


def _produce_of(batch: bytes, chance: random.Random) -> bytes:
    """A Produce request of one batch, for ``t-0``."""
    api = APIS[0]
    version = chance.randrange(3, api.versions.stop)
    cls: Any = api.request
    request = a_message(cls, version, chance)
    request.transactional_id = None
    request.acks = chance.choice([1, -1, 0, 1])
    topic = a_message(cls.fields[-1].type.element, version, chance)
    topic.name = "t"
    data = a_message(type(topic).fields[-1].type.element, version, chance)
    data.index, data.records = 0, batch
    topic.partition_data = [data]
    request.topic_data = [topic]
    return frame(0, version, encode(request, version))


def bomb(chance: random.Random, size: int = 64 << 20) -> bytes:
    """A Produce request of a few kilobytes whose records become ``size`` bytes of zeros."""
    codec = chance.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    payload = _bombs.get((codec, size))
    if payload is None:
        payload = _bombs[codec, size] = compress(codec, bytes(size))
    batch = bytearray(build_batch([NewRecord(None, b"x", 0)], codec=codec)[:HEADER_BYTES] + payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc_of(batch))
    return _produce_of(bytes(batch), chance)


_bombs: dict[tuple[Codec, int], bytes] = {}


def lie(chance: random.Random, corpus: list[bytes]) -> bytes:
    """A frame, with its size, whose size is not true."""
    data = chance.choice(corpus)
    size = chance.choice(
        [0, 1, 3, len(data) - 1, len(data) + 1, 2**31 - 1, -1, -(2**31), 100 << 20]
    )
    return struct.pack(">i", size) + data


def hostile(chance: random.Random, corpus: list[bytes]) -> tuple[str, bytes]:
    """The kind of a hostile frame, and its bytes as they are sent."""
    kind = chance.choices(KINDS, WEIGHTS)[0]
    if kind == "random bytes":
        return kind, chance.randbytes(chance.choice([1, 4, 12, 60, 1_000, 20_000]))
    if kind == "wrong size":
        return kind, lie(chance, corpus)
    if kind == "random body":
        api = chance.choice(list(APIS.values()))
        version = chance.choice(api.versions)
        data = frame(api.key, version, chance.randbytes(chance.choice([0, 5, 40, 400])))
    elif kind == "wrong batch":
        data = mutate_batch(chance)
    elif kind == "bomb":
        data = bomb(chance)
    else:
        data = mutate(chance.choice(corpus), corpus, chance)
    return kind, struct.pack(">i", len(data)) + data


KINDS = ("random bytes", "random body", "wrong size", "mutated", "wrong batch", "bomb")
WEIGHTS = (15, 15, 10, 39, 20, 1)
