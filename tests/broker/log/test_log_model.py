"""A log against a model of it, through random work, kills and power cuts.

What holds at any time, whatever happens:

* what is read is what was appended: at each offset the same record for as long as the log lives,
  and after a cut another value only under another leader epoch;
* the log is one range of offsets, [start, end): the start never goes back, and the end only by what
  a power cut took, never below what was synced;
* a process that is killed loses nothing that was appended;
* without compaction nothing is missing in between; with it, the last record of each key is there,
  and no offset has moved;
* an idempotent producer's last batch is known as long as the batch is there: sent again it is a
  repeat, and its next one is taken;
* high watermark and end are equal, but with ``flush.messages=1`` nothing is seen that a power cut
  could take;
* the files never hold what ``check-log`` would complain about, nor leftovers of what was
  interrupted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random

import pytest
from compaction_bench import CompactedBench, content
from log_bench import read_all

from penstock_broker.errors import KafkaError
from penstock_broker.log.log import Log
from penstock_broker.log.retention import plan_retention
from penstock_broker.wire.records import Record

STEPS = int(os.environ.get("PENSTOCK_MODEL_STEPS", "120"))
PRODUCER = 77


class Model:
    """What must be in the log, and the log."""

    def __init__(self, random: Random, *, compacts: bool, syncs: bool) -> None:
        self.random = random
        self.compacts = compacts
        self.bench = CompactedBench()
        self.bench.map_bytes = random.choice([600, 1 << 20])
        self.bench.overrides |= {
            "cleanup.policy": "compact" if compacts else "delete",
            "segment.bytes": str(random.choice([300, 700, 5000])),
            "index.interval.bytes": str(random.choice([1, 100, 4096])),
            "flush.messages": "1" if syncs else str(2**63 - 1),
            "delete.retention.ms": "100000000",
        }
        self.log = self.bench.open()
        self.records: dict[int, Record] = {}
        self.epoch_of: dict[int, int] = {}
        self.epoch = 0
        self.start = 0
        self.synced = 0
        self.sequence = 0
        self.last_sent: tuple[int, int, int] | None = None

    # -- work ------------------------------------------------------------------------------

    def append(self) -> None:
        pairs = [
            (f"k{self.random.randrange(6)}", f"{self.random.randrange(10**9)}")
            for _ in range(self.random.randint(1, 4))
        ]
        producer = (-1, -1, -1)
        if self.random.random() < 0.4:
            producer = (PRODUCER, 0, self.sequence)
        base = self._put(pairs, producer)
        assert base == self._end_before, "offsets follow each other"
        if producer[0] == PRODUCER:
            self.last_sent = (base, self.sequence, len(pairs))
            self.sequence += len(pairs)

    def _put(self, pairs: list[tuple[str, str]], producer: tuple[int, int, int]) -> int:
        self._end_before = self.log.log_end_offset
        self.bench.clock.advance(self.random.randrange(50))
        now_ms = self.bench.clock.now_ms()
        base = self.bench.put(self.log, *pairs, producer=producer, epoch=self.epoch)
        for number, (key, value) in enumerate(pairs):
            record = Record(base + number, now_ms + number, key.encode(), value.encode(), [])
            self.records[base + number] = record
            self.epoch_of[base + number] = self.epoch
        return base

    def repeat(self) -> None:
        """The producer did not get the answer."""
        if self.last_sent is None:
            return
        base, sequence, count = self.last_sent
        end = self.log.log_end_offset
        pairs = [("again", "again")] * count
        again = self.bench.put(self.log, *pairs, producer=(PRODUCER, 0, sequence), epoch=self.epoch)
        assert again == base
        assert self.log.log_end_offset == end, "a repeat is not appended"

    def flush(self) -> None:
        self.log.flush()
        self.synced = self.log.log_end_offset

    def delete_records(self) -> None:
        to = self.random.randint(self.start, self.log.high_watermark)
        self.start = max(self.start, self.log.delete_records(to))
        self.synced = max(self.synced, self.start)

    def retain(self) -> None:
        if self.compacts:
            return
        segments = self.log.segments
        plan = plan_retention(
            segments,
            retention_ms=-1,
            retention_bytes=self.random.choice([0, 500, 2000]),
            now_ms=self.bench.clock.now_ms(),
            end_offset=self.log.log_end_offset,
            high_watermark=self.log.high_watermark,
            newest_ms=lambda number: segments[number].newest_ms,
        )
        self.start = max(self.start, self.log.delete_records(plan.start_offset))
        self.synced = max(self.synced, self.start)

    def compact(self) -> None:
        if self.compacts:
            self.flush()
            asyncio.run(self.bench.compact(self.log))

    # -- ends ------------------------------------------------------------------------------

    def meet_producer(self, end: int) -> None:
        """What the log knows of the producer: all, unless its last batch is not there any more."""
        if self.last_sent is not None and not self.start <= self.last_sent[0] < end:
            self.last_sent = None
            entry = self.log.producers.get(PRODUCER)
            self.sequence = entry.last_sequence + 1 if entry is not None else self.sequence

    def close(self) -> None:
        self.log = self.bench.reopen_cleanly(self.log)
        self.meet_producer(self.log.log_end_offset)
        assert self.log.recovered.clean
        self.synced = self.log.log_end_offset

    def kill(self) -> None:
        end = self.log.log_end_offset
        self.log = self.bench.reopen_after_kill(self.log)
        assert self.log.recovered.cut is None, "a kill tears nothing that was appended"
        assert self.log.log_end_offset == end
        self.meet_producer(end)
        self.epoch += 1

    def power_cut(self) -> None:
        seen = self.log.high_watermark if self.log.holds_back else self.synced
        before = self.log.log_end_offset
        point = self.random.choice([self.log.recovery_point, self.synced, 0])
        self.bench.files = self.bench.files.power_cut(self.random)
        self.log = self.bench.open(
            recovery_point=min(point, self.synced), log_start_offset=self.start
        )
        end = self.log.log_end_offset
        assert seen <= end <= before
        for offset in range(end, before):
            self.records.pop(offset, None)
        self.meet_producer(end)
        self.epoch += 1  # as the replica manager does
        self.synced = end

    # -- what holds --------------------------------------------------------------------------

    def check(self) -> None:
        log = self.log
        assert log.failure is None
        assert log.log_start_offset == self.start
        found = content(log)
        assert all(self.records[offset] == record for offset, record in found.items())
        expected = {offset for offset in self.records if offset >= self.start}
        if not self.compacts:
            assert set(found) == expected
        else:
            latest = {self.records[o].key: o for o in sorted(expected)}
            assert set(latest.values()) <= set(found) <= expected
        for offset, record in found.items():
            if self.random.random() < 0.05:
                assert read_from(log, offset) == record
                assert log.epoch_of(offset) in (-1, self.epoch_of[offset])
        names = self.bench.files.names(self.bench.directory)
        assert not any(name.endswith((".swap", ".cleaned", ".tmp")) for name in names)
        segments = log.segments
        assert [s.base_offset for s in segments] == sorted({s.base_offset for s in segments})


def read_from(log: Log, offset: int) -> Record | None:
    if log.log_end_offset == offset:
        return None
    return read_all(log, offset)[0] if content(log) else None


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("syncs", [False, True])
def test_the_model_holds(seed: int, compacts: bool, syncs: bool) -> None:
    """See the module's docstring. PENSTOCK_MODEL_STEPS makes it longer."""
    random = Random(seed)
    for _ in range(3):
        model = Model(random, compacts=compacts, syncs=syncs)
        work: list[tuple[Callable[[], None], int]] = [
            (model.append, 60),
            (model.repeat, 5),
            (model.flush, 5),
            (model.delete_records, 3),
            (model.retain, 3),
            (model.compact, 5),
            (model.close, 3),
            (model.kill, 4),
            (model.power_cut, 4),
        ]
        steps = [step for step, _ in work]
        weights = [weight for _, weight in work]
        for number in range(STEPS):
            step = random.choices(steps, weights)[0]
            try:
                step()
                model.check()
            except (AssertionError, KafkaError) as problem:
                raise AssertionError(f"step {number}, {step.__name__}: {problem}") from problem
