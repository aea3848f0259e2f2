"""Produce requests that differ from an earlier one of their connection in their records alone.

A producer with small batches sends the same frame over and over: only sizes, correlation id and
records are new. What such frames decode to is known when their first bytes have been compared, so
they are not decoded, have no exchange of their own, and share one answer. Whether the partition
may be written to is asked in each read event, and each batch goes through the functions of
``api/produce.py``, as all batches do; but for batches that differ from an accepted one in nothing
that a rule looks at (``wire/batch_pattern.py``). docs/PERFORMANCE.md has what both are worth.

A frame that is not like an earlier one, or needs more than a moment, is left to the dispatcher.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock_broker.api.context import Services
from penstock_broker.api.produce import ACKS_ALL, examine, failed, writable
from penstock_broker.api.produce_frame import OneBatch, answer_head, answer_one
from penstock_broker.config import LogConfig
from penstock_broker.errors import KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.record_rules import latest_timestamp_ms
from penstock_broker.replication.partition import Partition
from penstock_broker.server.exchange import RequestExchange
from penstock_broker.wire.batch_pattern import BatchPattern, pattern_of
from penstock_broker.wire.compression import TooLargeError
from penstock_broker.wire.framing import FrameReader
from penstock_broker.wire.header import response_prefix
from penstock_broker.wire.messages.produce import FLEXIBLE_FROM
from penstock_broker.wire.records import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_FLAG

KNOWN_MAX: Final = 1_024
"""Requests that a connection remembers: half a kilobyte each."""
PATTERNS_MAX: Final = 64
"""Sizes of batches of which a run knows what the like have in common: a kilobyte or two each.
Only the first"""
PATTERN_RUNS_MAX: Final = 16
"""runs of a connection know that."""
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
        "_config", "_latest_ms", "_patterns", "_patterns_max", "acks", "answer_size", "api",
        "exchange", "head", "is_flexible", "pack", "partition", "request", "same", "same_size",
        "tags", "tail", "version",
    )  # fmt: skip

    def __init__(
        self, frame: memoryview, request: OneBatch, exchange: RequestExchange, patterns_max: int
    ) -> None:
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
        """The partition that the current read event appends to."""
        self._patterns_max = patterns_max
        self._patterns: dict[int, BatchPattern] = {}  # by the size of records, and of their length
        self._config: LogConfig | None = None  # under which they were accepted
        self._latest_ms = -2  # what is later is not accepted in the current read event
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

    def begin(self, partition: Partition, now_ms: int) -> None:
        """Append to ``partition`` in this read event. KafkaError: NOT_ENOUGH_REPLICAS."""
        if self.acks == ACKS_ALL:
            partition.require_replicas()
        self.partition, config = partition, partition.log.config
        if config is not self._config:
            self._patterns, self._config = {}, config
        self._latest_ms = latest_timestamp_ms(config, now_ms)

    def stage(  # noqa: PLR0917 (called for every batch)
        self,
        partition: Partition,
        view: memoryview,
        buffer: bytearray,
        begin: int,
        stop: int,
        now_ms: int,
    ) -> AppendResult | None:
        """Stage the batch that ends at ``stop``; the length of the records is at ``begin``.

        None: it is not for a run. KafkaError and TooLargeError: as ``examine``.
        """
        pattern = self._patterns.get(stop - begin)
        if pattern is not None:
            at = stop - pattern.size
            timestamp = pattern.timestamp_of(view, buffer, at)
            if timestamp is not None and timestamp <= self._latest_ms:
                return partition.stage_alike(
                    view[at:stop], pattern.last_offset_delta, timestamp, now_ms
                )
        if stop - begin < HEADER_BYTES:
            return None
        at = self.records_at(buffer, begin, stop)
        if stop - at <= HEADER_BYTES or buffer[at + _TRANSACTIONAL_AT] & TRANSACTIONAL_FLAG:
            return None
        batch = examine(partition, view, at, stop, self.acks, self.version, now_ms)
        if pattern is None and self._latest_ms >= 0 and len(self._patterns) < self._patterns_max:
            after = bytes(self.tags)
            pattern = pattern_of(batch, bytes(view[begin:at]), after)
            if pattern is not None:
                self._patterns[stop - begin] = pattern
        return partition.stage(batch, now_ms)

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
        patterns_max = PATTERNS_MAX if len(self._known) < PATTERN_RUNS_MAX else 0
        run = Run(frame, request, exchange, patterns_max)
        self._known[run.same] = self._last = run
        self._sizes.add(len(run.same))

    def take(self, services: Services, frames: FrameReader, frames_max: int) -> list[StagedBatch]:
        """Stage the batches of the buffered frames that are like earlier ones, in their order."""
        found: list[StagedBatch] = []
        view, position, end = frames.unread()
        buffer: bytearray = view.obj  # type: ignore[assignment]
        now_ms, size_max = services.clock.now_ms(), frames.frame_bytes_max
        run, partition = self._last, None
        while end - position > HEAD_BYTES and len(found) < frames_max:
            size, api, correlation_id = _FRAME.unpack_from(buffer, position)
            begin, behind = position + _SAME_AT, position + 4 + size
            if not 0 < size <= size_max or behind > end:
                break
            if run is None or partition is None or not buffer.startswith(run.same, begin):
                run = self._find(view, begin)
                if run is None:
                    break
                partition = _begin(services, run, now_ms)
                if partition is None:
                    break
            if api != run.api:
                break
            begin += run.same_size
            behind -= run.tags
            try:
                result = run.stage(partition, view, buffer, begin, behind, now_ms)
                if result is None:
                    break
                found.append((run, correlation_id, result, None))
            except TooLargeError:
                break
            except KafkaError as error:
                records = view[run.records_at(buffer, begin, behind) : behind]
                found.append((run, correlation_id, failed(error), records))
            position = behind + run.tags
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


def _begin(services: Services, run: Run, now_ms: int) -> Partition | None:
    """The partition that a run appends to in this read event; None where the ordinary way says
    what is wrong. Nothing else happens between the requests of a read event, so it is asked once
    for all that are written together."""
    if run.partition is None or run.partition not in services.staged:
        request = run.request
        try:
            partition = writable(services, run.exchange, request.topic, request.partition)
            run.begin(partition, now_ms)
        except KafkaError:
            run.partition = None
            return None
        services.staged.add(partition)
    return run.partition
