"""Frames out of a stream: whole, byte by byte, with trailing data, and with the buffer reused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.framing import (
    BUSY_CAPACITY_MAX,
    CAPACITY,
    CAPACITY_KEPT_MAX,
    FIRST_CAPACITY,
    FRAMES_AT_ONCE,
    FrameReader,
)

FRAME_MAX = 100_000


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def drain(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@pytest.mark.parametrize("bodies", [(b"",), (b"one",), (b"one", b"", b"three" * 100)])
def test_whole_byte_by_byte_and_trailing(bodies: tuple[bytes, ...]) -> None:
    stream = framed(*bodies)

    whole = FrameReader(FRAME_MAX)
    whole.feed(stream)
    assert drain(whole) == list(bodies)
    assert whole.buffered == 0

    single = FrameReader(FRAME_MAX)
    frames = []
    for byte in stream:
        single.feed(bytes([byte]))
        frames += drain(single)
    assert frames == list(bodies)

    trailing = FrameReader(FRAME_MAX)
    trailing.feed(stream + b"\x00\x00\x00\x09part")
    assert drain(trailing) == list(bodies)
    assert trailing.buffered == 8
    trailing.feed(b"ially")
    assert drain(trailing) == [b"partially"]


@settings(max_examples=80, deadline=None, database=None)
@given(st.data())
def test_any_cut_of_any_frames(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 3, 60, 64, 65, 700, 5000]), max_size=12))
    bodies = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    stream = framed(*bodies)
    reader = FrameReader(FRAME_MAX, capacity=64)
    frames = []
    position = 0
    while position < len(stream):
        space = reader.get_buffer()
        assert len(space) > 0
        count = min(len(space), len(stream) - position, data.draw(st.integers(1, 900)))
        space[:count] = stream[position : position + count]
        reader.buffer_updated(count)
        position += count
        if data.draw(st.booleans()):
            frames += drain(reader)
    assert frames + drain(reader) == bodies


def test_a_frame_stays_while_more_arrives() -> None:
    reader = FrameReader(FRAME_MAX, capacity=64)
    reader.feed(framed(b"a" * 40, b"b" * 10))
    frame = reader.next_frame()
    assert frame is not None
    for letter in (b"c", b"d", b"e"):
        reader.feed(framed(letter * 50))
    assert bytes(frame) == b"a" * 40
    assert drain(reader) == [b"b" * 10, b"c" * 50, b"d" * 50, b"e" * 50]


def test_there_is_space_for_the_rest_of_a_frame_that_has_begun() -> None:
    """Else the last bytes of a buffer would be filled by ever smaller reads."""
    reader = FrameReader(FRAME_MAX, capacity=64)
    reader.feed(framed(b"a" * 40) + framed(b"b" * 30)[:10])
    assert drain(reader) == [b"a" * 40]
    assert len(reader.get_buffer()) >= 24


def test_a_frame_is_writable_memory_of_the_buffer() -> None:
    reader = FrameReader(FRAME_MAX)
    reader.feed(framed(b"patch me"))
    frame = reader.next_frame()
    assert frame is not None
    frame[:5] = b"PATCH"
    assert bytes(frame) == b"PATCH me"


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_MAX + 1, 2**31 - 1])
def test_bad_sizes_are_refused_with_the_size_field(size: int) -> None:
    reader = FrameReader(FRAME_MAX)
    reader.feed(struct.pack(">i", size))
    assert len(reader.get_buffer()) <= 64 * 1024
    with pytest.raises(DecodeError):
        reader.next_frame()


def test_a_large_size_gets_memory_only_as_bytes_come() -> None:
    reader = FrameReader(100 * 1024 * 1024)
    reader.feed(struct.pack(">i", 100 * 1024 * 1024))
    assert reader.next_frame() is None
    assert len(reader.get_buffer()) <= 1024 * 1024


def test_a_large_buffer_is_given_back() -> None:
    reader = FrameReader(100 * 1024 * 1024)
    body = b"x" * (2 * CAPACITY_KEPT_MAX)
    reader.feed(framed(body))
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame) == len(body)
    reader.release()
    assert len(reader.get_buffer()) <= 64 * 1024
    reader.feed(framed(b"after"))
    assert drain(reader) == [b"after"]


def read_of(reader: FrameReader, stream: bytes) -> int:
    """One read of the socket, which takes as much as there is space for; its size."""
    space = reader.get_buffer()
    count = min(len(space), len(stream))
    space[:count] = stream[:count]
    reader.buffer_updated(count)
    return count


@pytest.mark.parametrize(
    ("size", "space"),
    [
        (100, CAPACITY),
        (5_000, FRAMES_AT_ONCE * 5_004),
        (10_500, FRAMES_AT_ONCE * 10_504),
        (60_000, BUSY_CAPACITY_MAX),
    ],
)
def test_a_connection_that_fills_its_buffer_gets_space_for_many_frames(
    size: int, space: int
) -> None:
    """A buffer that takes a few frames makes each of them pay for its read; one that takes
    thousands would hold up other connections."""
    reader = FrameReader(FRAME_MAX)
    stream, position, reads = framed(b"x" * size) * (2_000_000 // size), 0, []
    while position < len(stream):
        reads.append(read_of(reader, stream[position:]))
        position += reads[-1]
        assert all(len(frame) == size for frame in drain(reader))
        reader.release()
    assert reads[0] == FIRST_CAPACITY
    assert space - size - 4 <= max(reads) <= space
    assert len(reader._view) == space
    reader.shrink()
    assert len(reader._view) == FIRST_CAPACITY


def test_a_connection_with_a_frame_now_and_then_stays_small() -> None:
    reader = FrameReader(FRAME_MAX)
    for _ in range(100):
        reader.feed(framed(b"x" * 10_000))
        assert len(drain(reader)) == 1
        reader.release()
    assert len(reader._view) == CAPACITY
