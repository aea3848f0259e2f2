"""Which monitoring events are read for a window, and from where."""

from __future__ import annotations

import pytest

from penstock_client.audit import Claim, MonitoringEvent, TopicAccount
from penstock_platform.domain.books import WindowState
from penstock_platform.domain.claims import StoredRecords
from penstock_platform.domain.topics import AUDIT_TOPIC, load_topic
from penstock_platform.resources.evidence import EvidenceReader
from penstock_platform.resources.freezer import freeze_due
from penstock_platform.resources.windows import WindowStore
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster

ORDERS = load_topic("metadata: {name: orders}\nland: {window: minutely}\naudit: {grace: 2m}")
AUDIT = load_topic(f"metadata: {{name: {AUDIT_TOPIC}}}\nland: {{window: minutely}}")
PRODUCER = 77


class World:
    """One producer that sends a record a second and reports on it at once."""

    def __init__(self, *, landed: bool = False) -> None:
        self.cluster, self.clock = MemoryCluster(), ManualClock()
        self.store = WindowStore(MemoryArchive())
        self.cluster.add_topic("orders", 1)
        self.cluster.add_topic(AUDIT_TOPIC, 2)
        values = self.bronze if landed else None
        self.reader = EvidenceReader(self.cluster, self.store, self.clock, values)
        self.sequence = 0
        self.reading: list = []

    def bronze(self, table, window_id):
        assert table == "lake.bronze.penstock_audit"
        for window in self.store.all(self.cluster.ref(AUDIT_TOPIC)):
            if window.window_id == window_id:
                for p in window.partitions:
                    records = self.cluster.topics[AUDIT_TOPIC].partitions[p.p].records
                    yield from ((p.p, o, records[o].data) for o in range(p.start, p.end))

    def event(self, *claims, number=None):
        account = TopicAccount("orders", claims=tuple(Claim(*c) for c in claims))
        return MonitoringEvent(
            uuid=f"u{self.sequence}",
            incarnation=PRODUCER,
            number=self.sequence + 1,
            final=False,
            client_id="c",
            application="a",
            host="h",
            pid=1,
            started_at_ms=0,
            sent_at_ms=round(self.clock.now().timestamp() * 1000),
            interval_ms=1000,
            topics=(account,),
        ).to_bytes()

    def run(self, seconds, *, freeze=True, audited=True):
        """Let time pass; what is frozen, is when a minute is over."""
        for _ in range(seconds):
            offset = self.cluster.append("orders", 0)
            if audited:
                self.cluster.append(AUDIT_TOPIC, 1, self.event((0, offset, offset + 1, offset)))
            self.sequence += 1
            self.clock.advance(1)
            self.freeze((AUDIT, ORDERS) if freeze else (AUDIT,))

    def freeze(self, specs=(AUDIT, ORDERS)):
        for spec in specs:
            freeze_due(self.cluster, self.store, spec, self.clock, start=EPOCH)

    def window(self, sequence):
        return self.store.get(self.cluster.ref("orders"), sequence)

    def stored(self, windows, wanted):
        self.reading.append((list(windows), list(wanted)))
        offsets = [o for r in wanted for o in range(r.start, r.end)]
        n = len(offsets)
        return {0: StoredRecords.of(offsets, [PRODUCER] * n, offsets, offsets)}

    def judge(self, sequence):
        return self.reader.judge(self.window(sequence), ORDERS, self.stored)


def test_a_window_is_judged_by_events_since_the_window_before_closed():
    world = World()
    world.run(60 * 5)
    result, told = world.judge(3)
    assert result.state is WindowState.BALANCED
    assert (result.expected, result.found) == (60, 60)
    read = world.reader.read(world.window(3), ORDERS)
    # window 3 holds records 180-239; window 2 closed at 180 s, when 120 events were frozen
    assert (read.ranges[1].start, read.ranges[1].end) == (120, 300)
    assert told["events"] == 180
    assert told["events_malformed"] == 0


def test_evidence_that_is_due_is_pending_then_unaudited():
    world = World()
    world.run(60)
    world.run(60, audited=False)
    assert world.judge(0)[0].state is WindowState.BALANCED
    result, _ = world.judge(1)
    assert result.state is WindowState.PENDING
    world.run(121)
    assert world.judge(1)[0].state is WindowState.UNAUDITED


def test_late_freezes_read_further_back():
    """Frozen in one go, a window may hold records that were claimed long before the last one."""
    world = World()
    world.run(60 * 6, freeze=False)
    bounded = load_topic("metadata: {name: orders}\nland: {window: minutely, max_records: 10}")
    freeze_due(world.cluster, world.store, bounded, world.clock, start=EPOCH)
    assert not world.window(4).complete
    assert world.window(5).record_count == 310
    result, _ = world.judge(5)
    assert result.state is WindowState.BALANCED
    assert world.judge(2)[0].state is WindowState.BALANCED


def test_the_reading_of_an_old_window_is_bounded():
    world = World()
    world.run(60 * 20)
    read = world.reader.read(world.window(3), ORDERS)
    assert read.ranges[1].end == 60 * 8, "frozen after 4 minutes, and twice the grace"
    assert world.judge(3)[0].state is WindowState.BALANCED


@pytest.mark.parametrize("landed", [True, False])
def test_events_that_the_broker_has_forgotten_are_read_from_the_lake(landed):
    world = World(landed=landed)
    world.run(60 * 10)
    world.cluster.topics[AUDIT_TOPIC].partitions[1].log_start = 60 * 3 + 30
    result, told = world.judge(3)
    if landed:
        assert result.state is WindowState.BALANCED
        assert (told["events_from_lake"], told["events_unavailable"]) == (90, 0)
    else:
        assert result.state is WindowState.UNAUDITED
        assert (told["events_from_lake"], told["events_unavailable"]) == (0, 90)


def test_a_claim_across_the_boundary_brings_its_tail():
    world = World()
    world.run(60)
    for _ in range(10):
        world.cluster.append("orders", 0)
    world.clock.advance(60)
    world.freeze()
    world.cluster.append(AUDIT_TOPIC, 0, world.event((0, 50, 70, sum(range(50, 70)))))
    result, _ = world.judge(1)
    assert result.state is WindowState.BALANCED
    assert result.detail["digests_judged"] == 1
    windows, wanted = world.reading[-1]
    assert [w.sequence for w in windows] == [0, 1]
    assert [(r.start, r.end) for r in wanted] == [(50, 60), (60, 70)]


def test_a_claim_past_the_logs_end_is_missing_at_once():
    world = World()
    world.run(60)
    world.cluster.append(AUDIT_TOPIC, 0, world.event((0, 60, 65, 1)))
    result, _ = world.judge(0)
    assert result.state is WindowState.MISSING
    world.run(60)
    assert world.judge(0)[0].state is WindowState.BALANCED, "its place in the log is another's now"


def test_strangers_on_the_audit_topic_are_counted_and_passed_over():
    world = World()
    world.run(60)
    for data in (None, b"", b"{}", b'{"v": 9}'):
        world.cluster.append(AUDIT_TOPIC, 0, data)
    result, told = world.judge(0)
    assert result.state is WindowState.BALANCED
    assert told["events_malformed"] == 4


def test_without_an_audit_topic_there_is_no_evidence():
    world = World()
    world.run(60)
    del world.cluster.topics[AUDIT_TOPIC]
    assert world.judge(0)[0].state is WindowState.PENDING


def test_a_recreated_topic_is_not_judged_by_claims_on_the_old_one():
    world = World()
    world.run(60 * 3)
    world.cluster.add_topic("orders", 1)
    world.clock.advance(60)
    freeze_due(world.cluster, world.store, AUDIT, world.clock, start=EPOCH)
    freeze_due(world.cluster, world.store, ORDERS, world.clock, start=EPOCH, begin_new=True)
    world.run(120)
    result, told = world.judge(5)
    assert result.state is WindowState.BALANCED
    assert told["events"] == 120, "begun when the third minute was over"
