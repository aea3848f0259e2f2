"""Producers whose transactions overlap in one compacted log, and what a consumer sees of them."""

from __future__ import annotations

from random import Random

from compaction_bench import CompactedBench

from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import Record, RecordBatch, iter_batches, validate_batches


class Transactions:
    """Producers whose transactions overlap in one log, and what each record became."""

    def __init__(self, bench: CompactedBench, log: Log, random: Random) -> None:
        self.bench = bench
        self.log = log
        self.random = random
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        """Offsets of records that no consumer may see."""

    def write(self, producer_id: int) -> None:
        count = self.random.randint(1, 3)
        sequence = self.sequences.get(producer_id, 0)
        now_ms = self.bench.clock.now_ms()
        pairs = [
            NewRecord(
                b"k%d" % self.random.randrange(4), b"%d" % self.random.randrange(10**6), now_ms
            )
            for _ in range(count)
        ]
        data = build_batch(
            pairs,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        batches = validate_batches(memoryview(data), max_message_bytes=1 << 30)
        base = self.log.append(batches, 0, is_verified=True).base_offset
        self.sequences[producer_id] = sequence + count
        self.open.setdefault(producer_id, []).extend(range(base, base + count))

    def end(self, producer_id: int, *, commit: bool) -> None:
        offsets = self.open.pop(producer_id)
        if not commit:
            self.aborted |= set(offsets)
        marker = Marker(commit, 0)
        data = build_marker(producer_id, 0, marker, self.bench.clock.now_ms())
        self.log.append_for_coordinator(RecordBatch(memoryview(data)), 0, marker)

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.bench.clock.advance(5)
            choice = self.random.random()
            if choice < 0.25 and self.open:
                ending = self.random.choice(list(self.open))
                self.end(ending, commit=self.random.random() < 0.5)
            elif choice < 0.75:
                self.write(self.random.randrange(4))
            else:
                self.bench.put(self.log, (f"k{self.random.randrange(4)}", "plain"))


def committed(log: Log) -> dict[int, Record]:
    """What a read_committed consumer sees: it skips by the list that a fetch carries."""
    end = log.last_stable_offset
    found: dict[int, Record] = {}
    skipping = {}
    waiting = sorted(log.aborted_transactions(0, end), key=lambda t: t.first_offset)
    position = log.log_start_offset
    while position < end:
        batches = list(iter_batches(memoryview(log.read(position, 1 << 20, end).read())))
        if not batches:
            break
        for batch in batches:
            while waiting and waiting[0].first_offset <= batch.last_offset:
                begun = waiting.pop(0)
                skipping[begun.producer_id] = begun
            if batch.is_control:
                skipping.pop(batch.producer_id, None)
            elif not (batch.is_transactional and batch.producer_id in skipping):
                found |= {r.offset: r for r in batch.records()}
        position = batches[-1].next_offset
    return found
