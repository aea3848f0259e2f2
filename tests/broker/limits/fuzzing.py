"""Coverage-guided fuzzing of a whole broker: frames in, and never anything but an answer or an end.

A corpus of real frames of every API and version is mutated; a frame that reaches lines that no
frame reached before joins the corpus. The broker is the real one, in this process, on a disk in
memory. What must hold after each frame:

* it was answered, waits for its answer, or its connection is closed;
* no exception left the connection, the event loop or a handler: the dispatcher's "UNKNOWN_SERVER_
  ERROR, and a traceback in the log" is a failure here;
* what the log holds can be read: whole batches, right checksums, records that decode.

Coverage comes from ``sys.monitoring`` (Python 3.12) or ``sys.settrace``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from in_process import QUICK, Link, in_process

from penstock_broker.server.broker import Broker
from penstock_broker.testing.hostile_frames import (
    a_message,
    frame,
    mutate,
    mutate_batch,
    seeds,
)
from penstock_broker.wire.apis import APIS
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.header import skip_header_tags
from penstock_broker.wire.messages.produce import API_KEY as PRODUCE
from penstock_broker.wire.messages.produce import ProduceRequest
from penstock_broker.wire.records import RecordBatch, iter_batches
from penstock_broker.wire.schema import decoder, encode, is_flexible

FRAMES_PER_BROKER = 1_500
CORPUS_MAX = 4_000
SETTINGS = QUICK | {
    "max.broker.partitions": "60",
    "num.partitions": "2",
    "group.coordinator.max.groups": "50",
    "group.max.size": "20",
}
# -- coverage -----------------------------------------------------------------------------------


class Coverage:
    """The lines of the broker that have run."""

    def __init__(self) -> None:
        self.lines: set[tuple[CodeType, int]] = set()
        self._local = self._line  # one object: settrace compares by identity

    def __enter__(self) -> Coverage:
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            sys.settrace(self._call)
        else:
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "fuzz")
            monitoring.register_callback(
                monitoring.COVERAGE_ID, monitoring.events.LINE, self._monitored
            )
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        return self

    def __exit__(self, *_: object) -> None:
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            sys.settrace(None)
        else:
            monitoring.set_events(monitoring.COVERAGE_ID, 0)
            monitoring.free_tool_id(monitoring.COVERAGE_ID)

    def _monitored(self, code: CodeType, line: int) -> Any:
        if _is_ours(code):
            self.lines.add((code, line))
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._local if _is_ours(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code, frame.f_lineno))
        return self._local


def _is_ours(code: CodeType) -> bool:
    name = code.co_filename
    return "penstock_broker" in name or name.startswith("<decoder")


# -- the run ------------------------------------------------------------------------------------


class _Tracebacks(logging.Handler):
    """Keeps what is logged with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@dataclass
class Result:
    """What came of a run."""

    frames: int = 0
    answered: int = 0
    closed: int = 0
    waiting: int = 0
    corpus: int = 0
    lines: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    """(frame in hex, what happened)."""


class Fuzzer:
    """One run: ``frames`` of them, or until ``seconds`` are over."""

    def __init__(self, seed: int, log: Callable[[str], None] = lambda text: None) -> None:
        self._chance = random.Random(seed)
        self._log = log
        self.result = Result()
        self._tracebacks = _Tracebacks()
        self._escaped: list[str] = []
        self._corpus: list[bytes] = []
        self._coverage = Coverage()

    def run(
        self,
        *,
        frames: int = sys.maxsize,
        seconds: float = float("inf"),
        batches: float = 0.2,
        guided: bool = True,
    ) -> Result:
        """``batches``: the share of frames that are Produce requests with a wrong batch."""
        logger = logging.getLogger()
        logger.addHandler(self._tracebacks)
        level, logger.level = logger.level, logging.WARNING
        deadline = time.monotonic() + seconds
        self._corpus = seeds(self._chance)
        fresh = iter(list(self._corpus))
        try:
            while self.result.frames < frames and time.monotonic() < deadline:
                asyncio.run(self._one_broker(fresh, frames, deadline, batches, guided))
        finally:
            logger.removeHandler(self._tracebacks)
            logger.level = level
        self.result.corpus = len(self._corpus)
        self.result.lines = len(self._coverage.lines)
        return self.result

    async def _one_broker(
        self, fresh: Iterator[bytes], frames: int, deadline: float, batches: float, guided: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._escaped.append(str(context)))
        async with in_process(SETTINGS) as broker:
            broker.topics.create("t", 2, {})
            link = Link(broker)
            for _ in range(FRAMES_PER_BROKER):
                if self.result.frames >= frames or time.monotonic() > deadline:
                    break
                data = next(fresh, None)
                if data is None:
                    data = self._next(batches)
                if link.is_closed or link.connection._pending or link.transport.is_paused:
                    link.close()
                    link = Link(broker)
                await self._one_frame(link, data, guided)
            link.close()
            self._check_logs(broker)

    def _next(self, batches: float) -> bytes:
        chance = self._chance
        if chance.random() < batches:
            return mutate_batch(chance)
        if chance.random() < 0.3:
            api = chance.choice(list(APIS.values()))
            version = chance.choice(api.versions)
            return frame(api.key, version, encode(a_message(api.request, version, chance), version))
        return mutate(chance.choice(self._corpus), self._corpus, chance)

    async def _one_frame(self, link: Link, data: bytes, guided: bool) -> None:
        result = self.result
        before = len(self._coverage.lines)
        whole = struct.pack(">i", len(data)) + data
        try:
            if guided:
                with self._coverage:
                    link.put(whole)
            else:
                link.put(whole)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except Exception as error:
            self._escaped.append(repr(error))
        result.frames += 1
        if len(self._coverage.lines) > before and len(self._corpus) < CORPUS_MAX:
            self._corpus.append(data)
        if link.answers():
            result.answered += 1
        elif link.is_closed:
            result.closed += 1
        elif not link.connection._pending and not _wants_no_answer(data):
            self._escaped.append("no answer, and the connection is open")
        else:
            result.waiting += 1
        problems = [*self._tracebacks.found, *self._escaped]
        self._tracebacks.found.clear()
        self._escaped.clear()
        for problem in problems:
            result.failures.append((data.hex(), problem))
            self._log(f"{data.hex()}\n{problem}\n")

    def _check_logs(self, broker: Broker) -> None:
        """What is stored can be read, whatever was sent."""
        for name, topic in broker.metadata.topics.items():
            for part in topic.partitions:
                partition = broker.replicas.find(name, part.index)
                if partition is None or not partition.is_online:
                    continue
                offset = partition.log_start_offset
                while offset < partition.high_watermark:
                    for batch in iter_batches(memoryview(partition.fetch(offset, 1 << 20).read())):
                        problem = _problem_of(batch)
                        if problem is not None:
                            found = bytes(batch.view[: batch.size_bytes]).hex()
                            self.result.failures.append((found, f"stored: {problem}"))
                            self._log(f"{found}\nstored in {name}: {problem}\n")
                        offset = batch.next_offset


def _problem_of(batch: RecordBatch) -> str | None:
    """What is wrong with a stored batch."""
    if not batch.crc_is_valid():
        return "its checksum is wrong"
    try:
        offsets = [record.offset for record in batch.records()]
    except DecodeError as error:
        return str(error)
    if offsets != list(range(batch.base_offset, batch.next_offset)):
        return f"offsets {offsets}"
    return None


def _wants_no_answer(data: bytes) -> bool:
    """Whether it is a Produce with acks=0; one that cannot be read has to end its connection."""
    key, version = struct.unpack_from(">hh", data)
    if key != PRODUCE:
        return False
    try:
        position = 10 + max(0, int.from_bytes(data[8:10], "big", signed=True))
        if is_flexible(ProduceRequest, version):
            position = skip_header_tags(memoryview(data), position)
        request, _ = decoder(ProduceRequest, version)(memoryview(data), position)
    except DecodeError:
        return False
    return bool(request.acks == 0)


def main(arguments: list[str]) -> int:
    """``fuzzing.py SECONDS [SEED]``."""
    seconds = float(arguments[0]) if arguments else 60.0
    seed = int(arguments[1]) if len(arguments) > 1 else random.randrange(1 << 30)
    print(f"seed {seed}, {seconds:.0f} s", flush=True)  # noqa: T201
    began = time.monotonic()
    result = Fuzzer(seed, log=lambda text: print(text, flush=True)).run(seconds=seconds)  # noqa: T201
    took = time.monotonic() - began
    print(  # noqa: T201
        f"{result.frames} frames in {took:.0f} s ({result.frames / took:.0f}/s): "
        f"{result.answered} answered, {result.closed} closed, {result.waiting} waiting or silent; "
        f"{result.lines} lines reached, {result.corpus} frames in the corpus; "
        f"{len(result.failures)} failures"
    )
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
