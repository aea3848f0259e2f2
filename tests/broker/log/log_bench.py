"""A log on a simulated disk, and short ways to fill it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock_broker.config import LogConfig
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.files import Files
from penstock_broker.log.log import Log
from penstock_broker.log.record_rules import look_inside
from penstock_broker.log.recovery import LogPlace
from penstock_broker.testing import MemFiles, SimClock
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import (
    Record,
    RecordBatch,
    iter_batches,
    validate_batch,
    validate_batches,
)

DIRECTORY = Path("/data/t-0")


class Bench:
    """One log, its disk and its clock."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.files: MemFiles = MemFiles(self.clock)
        self.directory = DIRECTORY
        self.files.make_directory(self.directory)
        self.overrides: dict[str, str] = {}

    def open(
        self,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        files: Files | None = None,
    ) -> Log:
        """The log as a start finds it."""
        config = LogConfig().with_overrides(self.overrides)
        place = LogPlace(files or self.files, self.directory, "t", 0, config.index_interval_bytes)
        return Log.open(
            place,
            config,
            self.clock,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
        )

    def reopen_cleanly(self, log: Log) -> Log:
        """Close it properly and open it again in another process."""
        start, end = log.log_start_offset, log.log_end_offset
        log.close()
        self.files = self.files.kill()
        return self.open(recovery_point=end, log_start_offset=start, clean=True)

    def reopen_after_kill(self, log: Log) -> Log:
        """kill -9, and start again."""
        self.files = self.files.kill()
        return self.open(recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)

    def batch(
        self,
        values: Sequence[str | bytes | None],
        *,
        timestamps: Sequence[int] | None = None,
        codec: Codec = Codec.NONE,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> RecordBatch:
        """A checked batch; ``producer`` is (id, epoch, base sequence)."""
        now_ms = self.clock.now_ms()
        times = timestamps or [now_ms] * len(values)
        records = [
            NewRecord(None, value.encode() if isinstance(value, str) else value, time)
            for value, time in zip(values, times, strict=True)
        ]
        producer_id, epoch, sequence = producer
        data = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return validate_batches(memoryview(data), max_message_bytes=1 << 30)[0]

    def append(self, log: Log, *values: str, epoch: int = 0, **options: object) -> AppendResult:
        """Append one batch that a client has sent."""
        batch = self.batch(values, **options)  # type: ignore[arg-type]
        validate_batch(batch.view, 0, max_message_bytes=log.config.max_message_bytes)
        return log.append([look_inside(batch, log.config, self.clock.now_ms())], epoch)


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from an offset on, read as a consumer does."""
    position = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    while position < log.log_end_offset:
        found = log.read(position, max_bytes)
        assert found.size == len(found.read()), "a slice describes bytes that are there"
        batches = list(iter_batches(memoryview(found.read())))
        assert batches, "a read below the end gives a whole batch"
        for batch in batches:
            records += [record for record in batch.records() if record.offset >= position]
        position = batches[-1].next_offset
    return records


def values_of(records: Sequence[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]
