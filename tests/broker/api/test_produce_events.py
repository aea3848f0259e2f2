"""Many produce requests at once: each with its answer, all of them in the log, in order."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from random import Random

import pytest
from api_requests import create, delete, fetch, offsets, records, topic_id_of

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.framing import FrameReader
from penstock_broker.wire.header import RequestHeader, encode_request_header
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock_broker.wire.records import iter_batches
from penstock_broker.wire.schema import decode, encode


def request(topic: str, partition: int, batch: bytes, acks: int, timeout_ms: int = 5_000) -> object:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def frame(message: object, version: int, correlation_id: int, client: str | None = "me") -> bytes:
    flexible = version >= 9
    header = encode_request_header(RequestHeader(0, version, correlation_id, client), flexible)
    body = header + encode(message, version)  # type: ignore[arg-type]
    return struct.pack(">i", len(body)) + body


def exchange(host: str, port: int, data: bytes, answers: int) -> list[bytes]:
    """Send everything at once, as a busy client does, and give the frames that come back."""
    found: list[bytes] = []
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(data)
        reader = FrameReader(1 << 20)
        while len(found) < answers:
            more = connection.recv(1 << 16)
            assert more, f"closed after {len(found)} of {answers} answers"
            reader.feed(more)
            while (one := reader.next_frame()) is not None:
                found.append(bytes(one))
    return found


def read_answer(data: bytes, version: int) -> tuple[int, object]:
    (correlation_id,) = struct.unpack_from(">i", data)
    position = 5 if version >= 9 else 4
    message, end = decode(ProduceResponse, version, memoryview(data), position)
    assert end == len(data)
    return correlation_id, message.responses[0].partition_responses[0]


def batch_of(chance: Random, now_ms: int) -> tuple[bytes, ErrorCode]:
    """A batch of some kind, and what it is answered with."""
    kind = chance.choice(("one", "one", "one", "many", "keyed", "lz4", "crc", "count", "late"))
    count = {"many": 70, "keyed": 5, "lz4": 5, "count": 4}.get(kind, 1)
    size = chance.choice((10, 200, 200, 200, 3_000))
    key = b"key" if kind == "keyed" else None
    time_ms = now_ms + (10**8 if kind == "late" else 0)
    given = [NewRecord(key, b"v" * size, time_ms) for _ in range(count)]
    batch = build_batch(given, codec=Codec.LZ4 if kind == "lz4" else Codec.NONE)
    if kind == "crc":
        batch[-2] ^= 1
        return bytes(batch), ErrorCode.CORRUPT_MESSAGE
    if kind == "count":
        half = build_batch(given[:2])
        half[61:] = batch[61:]
        return bytes(half[:8]) + bytes(batch[8:12]) + bytes(half[12:]), ErrorCode.CORRUPT_MESSAGE
    if kind == "late":
        return bytes(batch), ErrorCode.INVALID_TIMESTAMP
    return bytes(batch), ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 5, 7, 8, 9, 11])
@pytest.mark.parametrize("seed", range(3))
def test_any_mixture_is_answered_and_stored_in_order(
    broker: BrokerProcess, raw: RawClient, topic: str, version: int, seed: int
) -> None:
    """Partitions, acks, sizes, kinds and faults in any order, all at once."""
    chance = Random(seed)
    now_ms = int(time.time() * 1000)
    create(raw, topic, partitions=3)
    data, expected = b"", []
    stored: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    ends = {0: 0, 1: 0, 2: 0}
    for number in range(400):
        partition = chance.choice((0, 0, 0, 0, 1, 2))
        batch, code = batch_of(chance, now_ms)
        client = chance.choice(("me", "me", "me", "you", None))
        acks = chance.choice((1, 1, 1, -1, 0)) if code is ErrorCode.NONE else 1
        message = request(topic, partition, batch, acks, chance.choice((5_000, 5_000, 1_000)))
        data += frame(message, version, number, client)
        base = -1
        if code is ErrorCode.NONE:
            base = ends[partition]
            stored[partition].append(batch)
            ends[partition] += struct.unpack_from(">i", batch, 57)[0]
        if acks:
            expected.append((number, code, base))
    answers = exchange(broker.host, broker.port, data, len(expected))
    found = [read_answer(answer, version) for answer in answers]
    assert [(n, p.error_code, p.base_offset) for n, p in found] == expected  # type: ignore[attr-defined]
    assert offsets(raw, topic, -1)[0].offset == ends[0]
    fetched = fetch(raw, topic, 0, partition_max_bytes=1 << 25, max_bytes=1 << 25).records
    batches = list(iter_batches(memoryview(bytearray(fetched or b""))))
    assert [bytes(b.view[16:]) for b in batches] == [b[16:] for b in stored[0]]
    assert len({b.partition_leader_epoch for b in batches}) == 1, "that of the topic"


def idempotent(sequence: int, now_ms: int, epoch: int = 0, values: int = 1) -> bytes:
    given = [NewRecord(None, b"%d" % (sequence + n), now_ms) for n in range(values)]
    return bytes(build_batch(given, producer_id=77, producer_epoch=epoch, base_sequence=sequence))


def test_sequences_are_followed(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    """Pitfall 24: a repeat among requests that are handled together gets its first offset."""
    create(raw, topic)
    now_ms = int(time.time() * 1000)
    sequences = [0, 1, 2, 3, 4, 3, 4, 5, 6, 9, 7, 8, 8]
    data = b"".join(
        frame(request(topic, 0, idempotent(sequence, now_ms), 1), 9, number)
        for number, sequence in enumerate(sequences)
    )
    answers = exchange(broker.host, broker.port, data, len(sequences))
    found = [read_answer(answer, 9)[1] for answer in answers]
    codes = [p.error_code for p in found]  # type: ignore[attr-defined]
    bad = sequences.index(9)
    assert codes[bad] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not any(codes[:bad] + codes[bad + 1 :])
    expected = [s if n != bad else -1 for n, s in enumerate(sequences)]
    assert [p.base_offset for p in found] == expected  # type: ignore[attr-defined]
    assert offsets(raw, topic, -1)[0].offset == 9


def test_a_frame_cut_anywhere_is_taken_up(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    create(raw, topic)
    one = frame(request(topic, 0, bytes(records(b"value")), 1), 9, 1)
    with socket.create_connection((broker.host, broker.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(one)
        answer = connection.recv(1_000)
        for cut in range(1, len(one), 7):
            connection.sendall(one + one[:cut])
            assert len(connection.recv(1_000)) == len(answer)
            connection.sendall(one[cut:])
            assert len(connection.recv(1_000)) == len(answer)
    assert offsets(raw, topic, -1)[0].offset == 1 + 2 * len(range(1, len(one), 7))


def test_settings_that_change_are_seen(
    new_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """A topic deleted and made again with other rules, while a connection repeats itself."""
    broker = new_broker()
    one = frame(request(topic, 0, bytes(records(b"x" * 500)), 1), 9, 1)
    with (
        RawClient(broker.host, broker.port) as raw,
        socket.create_connection((broker.host, broker.port), timeout=20) as connection,
    ):
        create(raw, topic)
        connection.sendall(one * 3)
        while offsets(raw, topic, -1)[0].offset < 3:
            pass
        delete(raw, topic)
        create(raw, topic, max_message_bytes="300")
        assert topic_id_of(raw, topic)
        connection.recv(1_000)
        connection.sendall(one)
        _, answer = read_answer(connection.recv(1_000)[4:], 9)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE  # type: ignore[attr-defined]
