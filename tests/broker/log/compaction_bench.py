"""A compacted log on a simulated disk, and what may be said of it at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from log_bench import Bench

from penstock_broker.log.cleaner import LogCleaner
from penstock_broker.log.compaction_worker import CompactionWork
from penstock_broker.log.log import Log
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import Record, iter_batches, validate_batches

KeyValue = tuple[str | None, str | None]


class KilledError(Exception):
    """The process ends here."""


class CountingFiles(MemFiles):
    """A disk whose process is killed at the n-th call that changes something."""

    calls = 0
    killed_at: int | None = None

    def check(self, operation: str, path: Path) -> None:
        if operation not in ("read", "open"):
            self.calls += 1
            if self.calls == self.killed_at:
                raise KilledError(f"{operation} {path}")
        super().check(operation, path)


class CompactedBench(Bench):
    """A log with ``cleanup.policy=compact`` and small segments."""

    def __init__(self) -> None:
        super().__init__()
        self.files = CountingFiles(self.clock)
        self.files.make_directory(self.directory)
        self.overrides = {
            "cleanup.policy": "compact",
            "segment.bytes": "400",
            "index.interval.bytes": "100",
            "min.cleanable.dirty.ratio": "0.0",
        }
        self.map_bytes = 1 << 20
        self.metrics = Metrics()

    def put(
        self,
        log: Log,
        *pairs: KeyValue,
        codec: Codec = Codec.NONE,
        producer: tuple[int, int, int] = (-1, -1, -1),
        epoch: int = 0,
    ) -> int:
        """Append one batch of keys and values; its base offset."""
        now_ms = self.clock.now_ms()
        records = [
            NewRecord(_bytes(key), _bytes(value), now_ms + number)
            for number, (key, value) in enumerate(pairs)
        ]
        producer_id, producer_epoch, sequence = producer
        data = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        batches = validate_batches(memoryview(data), max_message_bytes=1 << 30)
        return log.append(batches, epoch).base_offset

    async def compact(self, *logs: Log, make_worker: Callable[[], Any] | None = None) -> int:
        """Compact what is worth it; how many passes."""
        for log in logs:
            log.flush()
        return await self.cleaner(*logs, make_worker=make_worker).clean_all()

    def cleaner(self, *logs: Log, make_worker: Callable[[], Any] | None = None) -> LogCleaner:
        """The cleaner of these logs, in the test's own thread."""

        async def at_once(job: Callable[[], Any]) -> Any:
            return job()

        return LogCleaner(
            lambda: logs,
            self.clock,
            self.metrics,
            in_thread=at_once,
            make_worker=make_worker or (lambda: CompactionWork(self.files)),
            map_bytes=self.map_bytes,
        )

    def fill(self, log: Log, random: Random, batches: int, keys: int = 5) -> None:
        """Random updates and deletions."""
        for _ in range(batches):
            self.clock.advance(10)
            pairs: list[KeyValue] = [
                (
                    f"k{random.randrange(keys)}",
                    None if random.random() < 0.2 else f"v{random.randrange(10**6)}",
                )
                for _ in range(random.randint(1, 4))
            ]
            self.put(log, *pairs, codec=random.choice(list(Codec)))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def table_of(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """What a reader of all records knows: the last value of each key."""
    table: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


def content(log: Log) -> dict[int, Record]:
    """Every record that can be read, by its offset."""
    found: dict[int, Record] = {}
    position = log.log_start_offset
    while position < log.log_end_offset:
        batches = list(iter_batches(memoryview(log.read(position, 1 << 20).read())))
        if not batches:
            break  # nothing is left up to the end
        records = (record for batch in batches for record in batch.records())
        found |= {record.offset: record for record in records if record.offset >= position}
        position = batches[-1].next_offset
    return found
