"""What tests of checkpoints share: random work, and all that a start finds out."""

from __future__ import annotations

from pathlib import Path
from random import Random

from log_bench import Bench, read_all, values_of

from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.segment_checkpoint import (
    Checkpoint,
)
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch, validate_batches


def checkpoint(log: Log) -> None:
    """As the broker does it, at once; nothing where there is nothing new."""
    job = log.flush_job(with_checkpoint=True)
    if job is not None:
        job.run()
        log.flushed(job)


def checkpoints(bench: Bench) -> list[int]:
    names = bench.files.names(bench.directory)
    return [int(name[:20]) for name in names if name.endswith(".checkpoint")]


def without_checkpoints(bench: Bench) -> Bench:
    """A copy of the disk that has none."""
    copy = Bench()
    copy.clock, copy.overrides = bench.clock, bench.overrides
    for name in bench.files.names(bench.directory):
        if not name.endswith(".checkpoint"):
            path = bench.directory / name
            copy.files.put(path, bench.files.get(path))
    return copy


def facts(log: Log) -> dict[str, object]:
    """All that a start finds out."""
    start, end = log.log_start_offset, log.log_end_offset
    records = read_all(log)
    times = {record.timestamp for record in records}
    active = log.segments[-1]
    return {
        "range": (start, end, log.last_stable_offset),
        "segments": [(segment.base_offset, segment.size) for segment in log.segments],
        "records": [(record.offset, record.timestamp, record.value) for record in records],
        "reads": [values_of(read_all(log, offset))[:1] for offset in range(start, end)],
        "times": {
            at: log.offset_for_timestamp(at) for time in times for at in (time - 1, time, time + 1)
        },
        "latest": log.max_timestamp(),
        "index": active.offset_index.copy(),
        "active": (active.last_batch, active.timestamp_max, active.first_timestamp),
        "epochs": log.epochs.entries(),
        "aborted": log.aborted_transactions(start, end),
        "open": log.producers.transactions.begun,
        "producers": {
            producer_id: (entry.epoch, entry.coordinator_epoch, [b[:4] for b in entry.batches])
            for producer_id, entry in log.producers.producers().items()
        },
    }


class Work:
    """Producers, transactions, epochs and times of all kinds, at random."""

    def __init__(self, bench: Bench, log: Log, random: Random) -> None:
        self.bench, self.log, self.random = bench, log, random
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def step(self) -> None:
        choice, random = self.random.random(), self.random
        self.bench.clock.advance(random.randrange(20))
        if choice < 0.1:
            self.epoch += 1
        elif choice < 0.4:
            self._write(-1)
        elif choice < 0.6:
            self._write(random.randrange(3))
        elif choice < 0.8 or not self.open:
            self._write(random.randrange(10, 13))
        else:
            self._end(random.choice(sorted(self.open)))

    def _write(self, producer_id: int) -> None:
        is_transactional = producer_id >= 10
        sequence = self.sequences.get(producer_id, 0)
        time = self.bench.clock.now_ms() - self.random.randrange(60)
        values = [
            NewRecord(None, b"%d" % self.random.randrange(10**6), time)
            for _ in range(self.random.randint(1, 3))
        ]
        data = build_batch(
            values,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=is_transactional,
        )
        batches = validate_batches(memoryview(data), max_message_bytes=1 << 20)
        self.log.append(batches, self.epoch, is_verified=is_transactional)
        self.sequences[producer_id] = sequence + len(values)
        if is_transactional:
            self.open.add(producer_id)

    def _end(self, producer_id: int) -> None:
        marker = Marker(self.random.random() < 0.4, self.epoch)
        data = build_marker(producer_id, 0, marker, self.bench.clock.now_ms())
        batch = RecordBatch(memoryview(data))
        self.log.append_for_coordinator(batch, self.epoch, marker)
        self.open.discard(producer_id)

    def start(self, log: Log) -> None:
        """Continue with a log that has been opened again, and may have lost its end."""
        self.log = log
        self.epoch += 1  # as the replica manager does
        known = log.producers.producers()
        self.sequences = {each: known[each].last_sequence + 1 for each in known}
        self.open = set(log.producers.transactions.begun)


def bench_for(random: Random) -> Bench:
    bench = Bench()
    bench.overrides = {
        "segment.bytes": random.choice(["700", "3000", "100000"]),
        "index.interval.bytes": random.choice(["1", "150", "4096"]),
    }
    return bench


def survives(bench: Bench, recovery_point: int, synced: int) -> Log:
    """A start with the checkpoints finds what one without them finds."""
    copy = without_checkpoints(bench)
    log = bench.open(recovery_point=recovery_point)
    plain = copy.open(recovery_point=recovery_point)
    assert facts(log) == facts(plain)
    assert log.log_end_offset >= synced
    assert log.recovered.bytes_checked <= plain.recovered.bytes_checked
    return log


def the_checkpoint(bench: Bench) -> tuple[Path, Checkpoint]:
    (offset,) = checkpoints(bench)
    path = bench.directory / f"{offset:020d}.checkpoint"
    return path, Checkpoint(bench.files.get(path))
