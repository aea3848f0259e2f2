"""Produce requests that differ from an earlier one of their connection in their records alone.

A producer with small batches sends the same frame over and over: only sizes, correlation id and
records are new. What such frames decode to is known when their first bytes have been compared, so
they are not decoded, have no exchange of their own, and share one answer. That is all that is
remembered, and all that is done here: whether the partition may be written to is asked in each
read event, and each batch goes through the functions of ``api/produce.py``, as all batches do.
docs/PERFORMANCE.md has what it is worth.

A frame that is not like an earlier one, or needs more than a moment, is left to the dispatcher.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock_broker.api.context import Services
from penstock_broker.api.produce import examine, failed, writable
from penstock_broker.api.produce_frame import OneBatch, answer_head, answer_one
from penstock_broker.errors import KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.replication.partition import Partition
from penstock_broker.server.exchange import RequestExchange
from penstock_broker.wire.compression import TooLargeError
from penstock_broker.wire.framing import FrameReader
from penstock_broker.wire.header import response_prefix
from penstock_broker.wire.messages.produce import FLEXIBLE_FROM
from penstock_broker.wire.records import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_FLAG

KNOWN_MAX: Final = 1_024
"""Requests that a connection remembers: half a kilobyte each."""
VERSION_MIN: Final = 5
"""Before it, answers have no log start."""

_FRAME: Final = struct.Struct(">iii")  # size, API key and version, correlation id
_SAME_AT: Final = 12
HEAD_BYTES: Final = _FRAME.size
_API: Final = struct.Struct(">i")
_TAGS: Final = 3  # bytes: empty sets of tagged fields of the partition, the topic, the request
_TRANSACTIONAL_AT: Final = ATTRIBUTES_AT + 1

StagedBatch = tuple["Run", int, AppendResult, memoryview | None]
"""What a frame is like, its correlation id, where its batch was put; the batch, if it was
refused."""


class Run:
    """What the requests of a run have in common."""

    __slots__ = (
        "acks", "answer_size", "api", "exchange", "head", "is_flexible", "pack", "partition",
        "request", "same", "same_size", "tags", "tail", "version",
    )  # fmt: skip

    def __init__(self, frame: memoryview, request: OneBatch, exchange: RequestExchange) -> None:
        """``frame``: the first of them, which ``api.produce_frame`` has read as ``request``."""
        (self.api,) = _API.unpack_from(frame)
        self.version = exchange.api_version
        self.is_flexible = self.version >= FLEXIBLE_FROM
        size = len(request.records)
        if self.is_flexible:
            self.tags = _TAGS
            length_at = len(frame) - _TAGS - size - max(1, (size + 1).bit_length() + 6) // 7
        else:
            self.tags = 0
            length_at = len(frame) - size - 4
        self.same = bytes(frame[8:length_at])
        """From the client id to before the length of the records."""
        self.same_size = len(self.same)
        self.acks = request.acks
        self.request = request._replace(records=memoryview(b""))
        self.exchange = exchange
        self.partition: Partition | None = None
        """Where the read event at hand appends to."""
        self._make_answer()

    def _make_answer(self) -> None:
        """``pack(answer_size, correlation id, head, base offset, append time, log start, tail)``
        is the answer with its size field: ``answer_one`` with its numbers left open."""
        body = answer_one(self.request, self.version, 0, 0, 0)
        start = len(answer_head(self.request, self.version))
        self.head = response_prefix(0, 0, self.is_flexible)[8:] + body[:start]
        self.tail = body[start + 24 :]
        answer = struct.Struct(f">ii{len(self.head)}sqqq{len(self.tail)}s")
        self.pack = answer.pack
        self.answer_size = answer.size - 4

    def records_at(self, buffer: bytearray, at: int, stop: int) -> int:
        """Where the records begin whose length is at ``at``, if they end at ``stop``; else
        ``stop``."""
        if not self.is_flexible:
            return at + 4 if int.from_bytes(buffer[at : at + 4], "big") == stop - at - 4 else stop
        if buffer[stop] or buffer[stop + 1] or buffer[stop + 2]:
            return stop  # tagged fields
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


class ProduceRuns:
    """What the produce requests of one connection have looked like."""

    __slots__ = ("_known", "_last", "_sizes")

    def __init__(self) -> None:
        self._known: dict[bytes, Run] = {}
        self._sizes: set[int] = set()
        self._last: Run | None = None

    @property
    def last(self) -> Run | None:
        """What the last frame was like."""
        return self._last

    def learn(self, frame: memoryview, request: OneBatch, exchange: RequestExchange) -> None:
        """Expect requests like this one."""
        if exchange.api_version < VERSION_MIN:
            return
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        run = Run(frame, request, exchange)
        self._known[run.same] = self._last = run
        self._sizes.add(len(run.same))

    def take(self, services: Services, frames: FrameReader, frames_max: int) -> list[StagedBatch]:
        """Stage the batches of the frames at hand that are like earlier ones, in their order."""
        found: list[StagedBatch] = []
        view, position, end = frames.unread()
        buffer: bytearray = view.obj  # type: ignore[assignment]
        now_ms, size_max = services.clock.now_ms(), frames.frame_bytes_max
        run, partition = self._last, None
        while end - position > HEAD_BYTES and len(found) < frames_max:
            size, api, correlation_id = _FRAME.unpack_from(buffer, position)
            behind, at = position + 4 + size, position + _SAME_AT
            if not 0 < size <= size_max or behind > end:
                break
            if run is None or partition is None or not buffer.startswith(run.same, at):
                run = self._find(view, at)
                if run is None:
                    break
                partition = _begin(services, run)
                if partition is None:
                    break
            at += run.same_size
            stop = behind - run.tags
            if api != run.api or stop - at < HEADER_BYTES:
                break
            at = run.records_at(buffer, at, stop)
            if stop - at <= HEADER_BYTES or buffer[at + _TRANSACTIONAL_AT] & TRANSACTIONAL_FLAG:
                break
            try:
                batch = examine(partition, view, at, stop, run.acks, run.version, now_ms)
                found.append((run, correlation_id, partition.stage(batch, now_ms), None))
            except TooLargeError:
                break
            except KafkaError as error:
                found.append((run, correlation_id, failed(error), view[at:stop]))
            position = behind
        if found:
            frames.advance(position)
        return found

    def _find(self, view: memoryview, at: int) -> Run | None:
        """What a frame is like."""
        for size in self._sizes:
            run = self._known.get(bytes(view[at : at + size]))
            if run is not None:
                self._last = run
                return run
        return None


def _begin(services: Services, run: Run) -> Partition | None:
    """The partition that a run appends to in this read event; None where the ordinary way says
    what is wrong. Nothing else happens between the requests of a read event, so it is asked once
    for all that are written together."""
    if run.partition is None or run.partition not in services.staged:
        request = run.request
        try:
            run.partition = writable(services, run.exchange, request.topic, request.partition)
        except KafkaError:
            run.partition = None
            return None
        services.staged.add(run.partition)
    return run.partition
