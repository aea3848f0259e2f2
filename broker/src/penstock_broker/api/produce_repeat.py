"""Produce requests that repeat an earlier one of their connection, but for the records.

A producer with small batches sends the same frame over and over: only sizes, correlation id and
records differ. The first request for a partition goes the ordinary way and leaves a
:class:`Repeat` behind: its bytes, the partition that they name, and the answer's form. What
follows is compared with these bytes instead of being read, and all such frames of one read event
are appended together (``log/staged.py``), written with one system call and answered with one
buffer. docs/PERFORMANCE.md has the microseconds.

Only what succeeds is handled here. A frame that differs in anything, a batch about which there is
something to decide or to complain (codec, transaction, time, CRC, size, sequence), a log that
needs care: the frame is left alone and goes the ordinary way, which has all the rules and says
what is wrong. So there is one place for each error, and nothing here to keep in step with it
except what :func:`may_repeat` demands.

A repeat holds decisions that were taken once: that the topic may be written by this client, how
its log is configured, that no quota applies. ``Services.generation`` changes with whatever such a
decision rests on, and all repeats are forgotten.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from crc32c import crc32c

from penstock_broker.api.context import CloseConnectionError, Exchange, Services
from penstock_broker.api.produce_quick import OneBatch
from penstock_broker.config.table import INT64_MAX
from penstock_broker.errors import KafkaError
from penstock_broker.log.record_rules import LIGHT_RECORDS
from penstock_broker.log.staged import StagedBatches, stage
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.framing import FrameReader
from penstock_broker.wire.messages.produce import FLEXIBLE_FROM
from penstock_broker.wire.record_walk import BadRecordError, check_records
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_TIMESTAMP,
)

FRAMES_AT_ONCE_MAX: Final = 1_000
"""Buffers that one write takes (IOV_MAX is 1,024)."""
REPEATS_MAX: Final = 1_024
"""Partitions whose last request a connection remembers: half a kilobyte each."""

VERSION_MIN: Final = 5
"""Before it, answers have no log start."""
VERSION_MAX: Final = 12
"""After it, topics have ids instead of names."""

_FRAME: Final = struct.Struct(">iii")  # size, API key and version, correlation id
_SAME_AT: Final = 12
_API: Final = struct.Struct(">i")
_ONE: Final = b"\0\0\0\1"
_BASE_OFFSET: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_TAGS: Final = b"\0\0\0"  # of the partition, the topic and the request
_ACKS_ALL: Final = -1


@lru_cache(maxsize=256)
def _answer(head_bytes: int, tail_bytes: int) -> struct.Struct:
    return struct.Struct(f">ii{head_bytes}sqqq{tail_bytes}s")


class Repeat:
    """A request for one partition, and what all that follow it have in common."""

    __slots__ = (
        "acks", "answer_size", "api", "config", "head", "is_flexible", "pack", "partition",
        "record", "records_at", "same", "size", "staged", "tags", "tail",
    )  # fmt: skip

    def __init__(self, frame: memoryview, records: memoryview, acks: int, partition: Partition):
        """``frame``: a request as ``produce_quick.read_one`` takes it, with its ``records``; it
        has been appended to ``partition``."""
        (self.api,) = _API.unpack_from(frame)
        version = self.api & 0xFFFF
        self.is_flexible = version >= FLEXIBLE_FROM
        size = len(records)
        if self.is_flexible:
            length_at = len(frame) - len(_TAGS) - size - _compact_size(size + 1)
        else:
            length_at = len(frame) - size - 4
        self.tags = len(_TAGS) if self.is_flexible else 0
        self.records_at = _compact_records_at if self.is_flexible else _records_at
        self.same = bytes(frame[8:length_at])
        """From the client id to before the length of the records."""
        self.acks = acks
        self.partition = partition
        self.config = partition.log.config
        self.staged: StagedBatches | None = None
        """What the read event at hand appends to the partition."""
        self.size = -1
        """The size of the last batch with a single record without key and headers, and"""
        self.record = b""
        """what that record begins with, up to its value."""
        self._make_answer(version)

    def _make_answer(self, version: int) -> None:
        """``pack(answer_size, correlation id, head, base offset, append time, log start, tail)``
        is the answer with its size field."""
        name, index = self.partition.topic.encode(), self.partition.index
        place = struct.pack(">ih", index, 0)
        if self.is_flexible:
            self.head = b"\0\2" + bytes((len(name) + 1,)) + name + b"\2" + place
            self.tail = b"\1\0\0\0\0\0\0\0\0"  # no record errors, no message; tags, throttle
        else:
            self.head = _ONE + struct.pack(">h", len(name)) + name + _ONE + place
            self.tail = b"\0\0\0\0\xff\xff\0\0\0\0" if version >= 8 else b"\0\0\0\0"
        answer = _answer(len(self.head), len(self.tail))
        self.pack = answer.pack
        self.answer_size = answer.size - 4


def may_repeat(partition: Partition, version: int, acks: int) -> bool:
    """Whether nothing about requests and partition asks for more of a look than is had here."""
    config = partition.log.config
    return (
        VERSION_MIN <= version <= VERSION_MAX
        and config.message_timestamp_type == "CreateTime"
        and config.message_timestamp_before_max_ms == INT64_MAX
        and config.compression_type in {"producer", "uncompressed"}
        and "compact" not in config.cleanup_policy
        and (acks != _ACKS_ALL or (partition.commits_at_once and config.min_insync_replicas <= 1))
    )


def learn(
    services: Services,
    exchange: Exchange,
    frame: memoryview,
    request: OneBatch,
    partition: Partition,
) -> None:
    """Expect more of such requests; this one has been appended, and :func:`may_repeat`."""
    records = request.records
    if records[ATTRIBUTES_AT + 1] or records[ATTRIBUTES_AT]:
        return
    repeats = exchange.repeats
    if repeats is None:
        repeats = exchange.repeats = Repeats(services)
    repeats.learn(frame, request, partition)


class Repeats:
    """What one connection's produce requests have looked like."""

    __slots__ = (
        "_answers", "_begun", "_generation", "_known", "_last", "_now_ms", "_services", "_sizes",
        "_staged", "handled", "version",
    )  # fmt: skip

    def __init__(self, services: Services) -> None:
        self.handled = 0
        """Requests that the last :meth:`take` has handled."""
        self.version = 0
        """The version of the last request."""
        self._services = services
        self._generation = services.generation
        self._known: dict[bytes, Repeat] = {}
        self._sizes: set[int] = set()
        self._last: Repeat | None = None
        self._begun: list[Repeat] = []
        self._staged: dict[Partition, StagedBatches] = {}
        self._answers: list[bytes] = []
        self._now_ms = 0

    def learn(self, frame: memoryview, request: OneBatch, partition: Partition) -> None:
        """Expect requests like this one."""
        if self._generation != self._services.generation:
            self.forget()
            self._generation = self._services.generation
        if len(self._known) >= REPEATS_MAX:
            del self._known[next(iter(self._known))]
        repeat = Repeat(frame, request.records, request.acks, partition)
        self.version = repeat.api & 0xFFFF
        self._known[repeat.same] = self._last = repeat
        self._sizes.add(len(repeat.same))

    def forget(self) -> None:
        """Expect nothing: the connection has become somebody else, or something has changed."""
        self._known.clear()
        self._sizes.clear()
        self._last = None

    def take(self, frames: FrameReader) -> bytes | None:
        """Append the frames at hand that are repeats; their answers, None if there was none.

        What is left in ``frames`` then begins with something else.
        """
        self.handled = 0
        if self._last is None or frames.buffered < _FRAME.size:
            return None
        if self._generation != self._services.generation:
            self.forget()
            return None
        view, begin, end = frames.unread()
        self._now_ms = self._services.clock.now_ms()
        try:
            position = self._stage(view, begin, end)
            if not self.handled or not self._commit():
                return None
            frames.advance(position)
            return b"".join(self._answers)
        finally:
            # What is staged knows where the log ended: nothing of it may outlive this call.
            for repeat in self._begun:
                repeat.staged = None
            self._begun.clear()
            self._staged.clear()
            self._answers.clear()

    def _stage(self, view: memoryview, position: int, end: int) -> int:
        """Give offsets to the batches of as many frames as are repeats; the position after them.

        One function, because a call costs as much as any step of it.
        """
        buffer: bytearray = view.obj  # type: ignore[assignment]
        answers = self._answers
        repeat, staged = self._last, None
        frame_max = self._services.config.socket_request_max_bytes - 20  # with head and tail
        latest_ms = size_max = handled = 0
        while end - position > _FRAME.size and handled < FRAMES_AT_ONCE_MAX:
            size, api, correlation_id = _FRAME.unpack_from(buffer, position)
            behind = position + 4 + size
            at = position + _SAME_AT
            if staged is None or repeat is None or not buffer.startswith(repeat.same, at):
                repeat, staged = self._find(view, at)
                if repeat is None or staged is None:
                    break
                latest_ms = self._now_ms + repeat.config.message_timestamp_after_max_ms
                size_max = min(repeat.config.max_message_bytes, frame_max - len(repeat.same))
            at += len(repeat.same)
            if api != repeat.api or behind > end or behind - at < HEADER_BYTES + 5:
                break
            stop = behind - repeat.tags
            at = repeat.records_at(buffer, at, stop)
            size = stop - at
            if not HEADER_BYTES < size <= size_max or size > staged.room:
                break
            (
                base, length, _, magic, crc, attributes, delta, _, max_timestamp,
                producer_id, epoch, sequence, count,
            ) = HEADER.unpack_from(buffer, at)  # fmt: skip
            if (
                length != size - LENGTH_END
                or base
                or magic != MAGIC
                or attributes
                or not 0 < count <= LIGHT_RECORDS
                or delta != count - 1
                or max_timestamp > latest_ms
                or crc32c(view[at + ATTRIBUTES_AT : stop]) != crc
            ):
                break
            first = at + HEADER_BYTES
            if (
                count != 1
                or size != repeat.size
                or buffer[stop - 1]
                or not buffer.startswith(repeat.record, first)
            ) and not _records_are_whole(repeat, buffer, first, stop, count):
                break
            if producer_id >= 0 and (
                sequence < 0 or not staged.follows(producer_id, epoch, sequence, count)
            ):
                break
            offset = staged.next_offset
            _PLACE.pack_into(buffer, at, offset, length, repeat.partition.leader_epoch)
            staged.parts.append(view[at:stop])
            staged.placed.append((offset, size, max_timestamp))
            staged.next_offset = offset + count
            staged.room -= size
            if repeat.acks:
                answers.append(repeat.pack(
                    repeat.answer_size, correlation_id, repeat.head, offset, NO_TIMESTAMP,
                    staged.start_offset, repeat.tail,
                ))  # fmt: skip
            position = behind
            handled += 1
        self.handled = handled
        return position

    def _find(self, view: memoryview, at: int) -> tuple[Repeat | None, StagedBatches | None]:
        """The repeat that a frame is one of, with its place in the log, if it has one."""
        for size in self._sizes:
            repeat = self._known.get(bytes(view[at : at + size]))
            if repeat is not None:
                self._last = repeat
                if repeat.staged is None:
                    self._begin(repeat)
                return repeat, repeat.staged
        return None, None

    def _begin(self, repeat: Repeat) -> None:
        partition = repeat.partition
        log = partition.log
        if log.config is not repeat.config:
            self.forget()  # its settings have changed: the next ordinary request is looked at anew
            return
        # Requests that differ elsewhere, in their acks say, may be for the same partition.
        repeat.staged = self._staged.get(partition)
        if repeat.staged is None:
            repeat.staged = stage(log, partition.leader_epoch, self._now_ms)
            if repeat.staged is None:
                return
            self._staged[partition] = repeat.staged
        self._begun.append(repeat)

    def _commit(self) -> bool:
        """Write what is staged; False when nothing could be, and the frames are as they were.

        With several partitions at hand a part may have been written: then there is no honest
        answer to all of it but the end of the connection.
        """
        written = 0
        try:
            for partition, staged in self._staged.items():
                if staged.parts:
                    staged.commit()
                    written += 1
                    _tell(partition, staged)
        except KafkaError as error:
            self.forget()
            if written:
                raise CloseConnectionError(str(error)) from error
            for staged in self._staged.values():
                for part in staged.parts:
                    _BASE_OFFSET.pack_into(part, 0, 0)
            return False
        return True


def _tell(partition: Partition, staged: StagedBatches) -> None:
    """Count what has been written, and wake those who wait for it."""
    partition.counters.produces += len(staged.parts)
    size = sum([placed[1] for placed in staged.placed])
    partition.appended(size, staged.next_offset - staged.placed[0][0])


def _records_are_whole(repeat: Repeat, buffer: bytearray, at: int, stop: int, count: int) -> bool:
    try:
        check_records(buffer, at, stop, count)
    except BadRecordError:
        return False
    if count == 1 and buffer[stop - 1] == 0:
        repeat.size, repeat.record = _shape(buffer, at, stop)
    return True


def _shape(buffer: bytearray, at: int, stop: int) -> tuple[int, bytes]:
    """Size of the batch and beginning of its record, which two records share that are without key
    and headers, and of the same size; (-1, b"") where there is a key."""
    value_at = at
    while buffer[value_at] >= 0x80:
        value_at += 1
    value_at += 1
    if buffer[value_at : value_at + 4] != b"\0\0\0\1":  # attributes, deltas, null
        return -1, b""
    value_at += 4
    while buffer[value_at] >= 0x80:
        value_at += 1
    return stop - at + HEADER_BYTES, bytes(buffer[at : value_at + 1])


def _records_at(buffer: bytearray, at: int, stop: int) -> int:
    """Where the records begin whose length is at ``at``, if they end at ``stop``; else ``stop``."""
    return at + 4 if int.from_bytes(buffer[at : at + 4], "big") == stop - at - 4 else stop


def _compact_records_at(buffer: bytearray, at: int, stop: int) -> int:
    """The same in flexible versions, where three empty sets of tagged fields follow."""
    if buffer[stop] or buffer[stop + 1] or buffer[stop + 2]:
        return stop
    low, high = buffer[at], buffer[at + 1]
    if low >= 0x80 and high < 0x80 and low + (high << 7) - 0x80 == stop - at - 1:
        return at + 2
    size = shift = 0
    for begin in range(at, at + 5):
        byte = buffer[begin]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return begin + 1 if size == stop - begin else stop
        shift += 7
    return stop


def _compact_size(number: int) -> int:
    """Bytes that an unsigned varint takes."""
    return max(1, (number.bit_length() + 6) // 7)
