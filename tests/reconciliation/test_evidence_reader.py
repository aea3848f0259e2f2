"""Which monitoring events are read for a window, and from where."""

from __future__ import annotations

import numpy as np
import pytest
from held_records import HeldRecords

from penstock_client.audit import Claim, TopicAccount
from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.ranges import OffsetRange, intersect, merge
from penstock_platform.reconciliation import evidence
from penstock_platform.reconciliation.evidence import EvidenceReader
from penstock_platform.reconciliation.model.books import Book, WindowState
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.model.equations import stored_equals_landed
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.testing.events import make_event
from penstock_platform.topics.model.declaration import AUDIT_TOPIC, load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import WindowStore

ORDERS = load_topic("metadata: {name: orders}\nland: {window: minutely}\naudit: {grace: 2m}")
COMPACTED = load_topic(
    "metadata: {name: orders}\nspec: {configs: {cleanup.policy: compact}}\naudit: {grace: 2m}\n"
    "land: {window: minutely}"
)
AUDIT = load_topic(f"metadata: {{name: {AUDIT_TOPIC}}}\nland: {{window: minutely}}")
PRODUCER = 77


@pytest.fixture(autouse=True, params=["one by one", "by sums"])
def looked_at(request, monkeypatch):
    """Every test twice: the records of a small window are read, those of a large one summed."""
    if request.param == "by sums":
        judge = EvidenceReader.judge

        def by_sums(self, window, spec, stored):
            return judge(self, window, spec, stored, large=lambda: ReadWhenAsked(stored))

        monkeypatch.setattr(evidence, "RECORDS_READ_MAX", -1)
        monkeypatch.setattr(EvidenceReader, "judge", by_sums)


class ReadWhenAsked(HeldRecords):
    def rows(self, windows, ranges):
        self.stored = self.read(windows, [r for r in ranges if r])
        return super().rows(windows, ranges)

    def __init__(self, read):
        super().__init__({})
        self.read = read


class World:
    """One producer that sends a record a second and reports on it at once."""

    def __init__(self, *, landed: bool = False) -> None:
        self.cluster, self.clock = MemoryCluster(), ManualClock()
        archive = MemoryArchive()
        self.store, self.books = WindowStore(archive), BookStore(archive)
        self.cluster.add_topic("orders", 1)
        self.cluster.add_topic(AUDIT_TOPIC, 2)
        values = self.bronze if landed else None
        self.reader = EvidenceReader(self.cluster, self.store, self.books, self.clock, values)
        self.sequence = 0
        self.number = 0
        self.reading: list = []

    def bronze(self, table, window_id):
        assert table == "lake.bronze.penstock_audit"
        for window in self.store.all(self.cluster.ref(AUDIT_TOPIC)):
            if window.window_id == window_id:
                for p in window.partitions:
                    records = self.cluster.topics[AUDIT_TOPIC].partitions[p.p].records
                    yield from ((p.p, o, records[o].data) for o in range(p.start, p.end))

    def event(self, *claims, incarnation=PRODUCER, topic_id="now"):
        self.number += 1
        records = sum(end - start for _, start, end, _ in claims)
        account = TopicAccount(
            "orders",
            claims=tuple(Claim(*c) for c in claims),
            sequences=((self.sequence, self.sequence + records),),
            topic_id=self.cluster.topics["orders"].topic_id if topic_id == "now" else topic_id,
        )
        sent_at_ms = round(self.clock.now().timestamp() * 1000)
        return make_event(incarnation, self.number, account, sent_at_ms=sent_at_ms).to_bytes()

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

    def holding(self, offset):
        """The sequence of the window that has this offset."""
        windows = self.store.all(self.cluster.ref("orders"))
        return next(w.sequence for w in windows if any(offset in r for r in w.ranges))

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
    result, figures = world.judge(3)
    assert result.state is WindowState.BALANCED
    assert (result.expected, result.found) == (60, 60)
    read = world.reader.read(world.window(3), ORDERS)
    # window 3 holds records 180-239; window 2 closed at 180 s, when 120 events were frozen
    assert (read.ranges[1].start, read.ranges[1].end) == (120, 300)
    assert figures["events"] == 180
    assert figures["events_malformed"] == 0


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
    last = world.store.tick_of(world.window(5))
    assert sum(window.record_count for window in last) == 310
    assert world.judge(5)[0].state is WindowState.BALANCED
    assert world.judge(last[-1].sequence)[0].state is WindowState.BALANCED
    assert world.judge(2)[0].state is WindowState.BALANCED


def test_the_reading_of_an_old_window_is_bounded():
    world = World()
    world.run(60 * 20)
    read = world.reader.read(world.window(3), ORDERS)
    assert read.ranges[1].end == 60 * 12, "frozen after 4 minutes, and four graces"
    assert world.judge(3)[0].state is WindowState.BALANCED


@pytest.mark.parametrize("landed", [True, False])
def test_events_that_the_broker_has_deleted_are_read_from_the_lake(landed):
    world = World(landed=landed)
    world.run(60 * 10)
    world.cluster.topics[AUDIT_TOPIC].partitions[1].log_start = 60 * 3 + 30
    result, figures = world.judge(3)
    if landed:
        assert result.state is WindowState.BALANCED
        assert (figures["events_from_lake"], figures["events_unavailable"]) == (90, 0)
    else:
        assert result.state is WindowState.UNAUDITED
        assert {f.kind: f.count for f in result.findings}["evidence_lost"] == 90
        assert (figures["events_from_lake"], figures["events_unavailable"]) == (0, 90)


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
    assert {w.sequence for windows, _ in world.reading for w in windows} == {0, 1}
    assert merge(r for _, wanted in world.reading for r in wanted) == (OffsetRange(0, 50, 70),)


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
    result, figures = world.judge(0)
    assert result.state is WindowState.BALANCED
    assert figures["events_malformed"] == 4


def test_without_an_audit_topic_there_is_no_evidence():
    world = World()
    world.run(60)
    world.clock.advance(60)
    world.freeze((ORDERS,))
    del world.cluster.topics[AUDIT_TOPIC]
    assert world.judge(0)[0].state is WindowState.PENDING
    assert world.window(1).record_count == 0
    assert world.judge(1)[0].state is WindowState.PENDING, "not even an empty one is balanced"
    world.clock.advance(120)
    assert world.judge(1)[0].state is WindowState.UNAUDITED


def kinds(result):
    return {f.kind: f for f in result.findings}


def test_unavailable_events_keep_a_window_from_being_balanced():
    """All that is stored is claimed; but a claim on what was lost may have been in them."""
    world = World(landed=False)
    world.run(60 * 2)
    read = world.reader.read(world.window(1), ORDERS)
    assert read.ranges[0].start == 0
    world.cluster.append(AUDIT_TOPIC, 0, world.event())
    world.cluster.topics[AUDIT_TOPIC].partitions[0].log_start = 1
    result, _ = world.judge(1)
    assert result.state is WindowState.PENDING
    assert kinds(result)["unjudged"].records == 1
    world.run(120)
    result, _ = world.judge(1)
    assert result.state is WindowState.UNAUDITED
    assert set(kinds(result)) == {"evidence_lost"}


def test_a_malformed_event_of_the_windows_own_producer_matters():
    world = World()
    world.run(60)
    broken = world.event((0, 0, 1, 0)).replace(b'"v":2', b'"v":7')
    world.cluster.append(AUDIT_TOPIC, 0, broken)
    result, summary = world.judge(0)
    assert result.state is WindowState.PENDING
    found = kinds(result)["unjudged"]
    assert (found.incarnation, found.records) == (str(PRODUCER), 1)
    assert "a on h" in found.detail and "version 7" in found.detail
    assert summary["malformed_sources"] == f"a on h, incarnation {PRODUCER}: 1"
    world.run(120)
    result, _ = world.judge(0)
    assert result.state is WindowState.UNAUDITED
    assert set(kinds(result)) == {"evidence_lost"}


def test_a_forged_claim_is_no_loss_of_the_brokers():
    world = World()
    world.run(60)
    forged = world.event((0, 50, 60, 1), incarnation=666).replace(
        b"[0,50,60,", b"[0,50,%d," % 10**12
    )
    world.cluster.append(AUDIT_TOPIC, 0, forged)
    result, summary = world.judge(0)
    assert result.state is WindowState.BALANCED, result.findings
    assert summary["events_malformed"] == 1
    assert summary["malformed_sources"] == "a on h, incarnation 666: 1"


@pytest.mark.parametrize("claim", [(0, 10**12 - 9, 10**12, 1), (7, 0, 3, 1)])
def test_a_claim_beyond_what_the_log_can_have_held_is_no_loss(claim):
    world = World()
    world.run(60)
    world.cluster.append(AUDIT_TOPIC, 0, world.event(claim, incarnation=666))
    result, summary = world.judge(0)
    assert result.state is WindowState.BALANCED, result.findings
    assert summary["events_malformed"] == 1


def claimed_across_windows():
    """Two windows, of 60 and of 10 records; one claim begins in the first. The grace is over."""
    world = World()
    world.run(60)
    for _ in range(10):
        world.cluster.append("orders", 0)
    world.clock.advance(60)
    world.freeze()
    world.cluster.append(AUDIT_TOPIC, 0, world.event((0, 50, 70, sum(range(50, 70)))))
    world.clock.advance(600)
    return world


def test_a_claim_whose_beginning_is_not_landed_is_waited_for():
    """Not UNAUDITED for the delay of the window before; judged when that is landed."""
    world = claimed_across_windows()

    def only_the_window(windows, wanted):
        return world.stored(windows, intersect(wanted, [OffsetRange(0, 60, 70)]))

    result, _ = world.reader.judge(world.window(1), ORDERS, only_the_window)
    assert result.state is WindowState.PENDING
    assert "are not in the table now" in kinds(result)["unjudged"].detail
    landed = stored_equals_landed(world.window(0), Coverage.of({0: np.arange(60)}))
    world.books.add_book(Book.of(world.window(0), [landed], made_at="", code_version="test"))
    assert world.judge(1)[0].state is WindowState.BALANCED


def test_a_claim_whose_beginning_was_damaged_is_waited_for_until_that_is_accepted():
    """Rows of the window before may be gone from the table, whether its book knows it or not:
    landing it again brings them back, so this window is not UNAUDITED for good."""
    world = claimed_across_windows()
    before = world.window(0)

    def without_a_row(windows, wanted):
        found = world.stored(windows, wanted)[0]
        return {0: found.take(found.offset != 55)}

    def judged(spec=ORDERS):
        return world.reader.judge(world.window(1), spec, without_a_row)[0]

    for there in (np.arange(60), np.delete(np.arange(60), 55)):
        result = stored_equals_landed(before, Coverage.of({0: there}))
        world.books.add_book(Book.of(before, [result], made_at="", code_version="test"))
        assert judged().state is WindowState.PENDING
        assert kinds(judged())["unjudged"].ranges == (OffsetRange(0, 60, 70),)
    assert world.judge(1)[0].state is WindowState.BALANCED, "landed again"
    assert judged(COMPACTED).state is WindowState.UNAUDITED, "it may never come back"
    acceptance = world.books.accept(before, "me", "lost", world.clock.now())
    world.books.add_book(
        Book.of(before, [result], made_at="", code_version="test", acceptances=[acceptance])
    )
    assert judged().state is WindowState.UNAUDITED
    assert kinds(judged())["undigested"].ranges == (OffsetRange(0, 60, 70),)


def recreated(*, topic_id="now"):
    """A topic recreated after two minutes; new records before and after its new chain began."""
    world = World()
    world.run(60 * 3)
    old = world.cluster.topics["orders"].topic_id
    world.cluster.add_topic("orders", 1)
    for _ in range(30):
        offset = world.cluster.append("orders", 0)
        name = world.cluster.topics["orders"].topic_id if topic_id == "now" else topic_id
        event = world.event((0, offset, offset + 1, offset), topic_id=name)
        world.cluster.append(AUDIT_TOPIC, 1, event)
        world.sequence += 1
    # What the old topic's producer says late, of offsets that the new log has not.
    world.cluster.append(AUDIT_TOPIC, 1, world.event((0, 170, 180, 1), topic_id=old))
    world.clock.advance(60)
    freeze_due(world.cluster, world.store, AUDIT, world.clock, start=EPOCH)
    freeze_due(world.cluster, world.store, ORDERS, world.clock, start=EPOCH, begin_new=True)
    world.clock.advance(60)
    freeze_due(world.cluster, world.store, AUDIT, world.clock, start=EPOCH)
    freeze_due(world.cluster, world.store, ORDERS, world.clock, start=EPOCH)
    return world


def test_records_of_a_recreated_topic_are_judged_by_claims_on_its_own_id():
    world = recreated()
    first = world.holding(0)
    result, _ = world.judge(first)
    assert result.state is WindowState.BALANCED, result.findings
    assert result.expected == world.window(first).record_count == 30


def test_claims_without_an_id_say_nothing_of_a_topic_before_its_chain_began():
    world = recreated(topic_id=None)
    result, _ = world.judge(world.holding(0))
    assert set(kinds(result)) == {"pending"}, "unaudited at the worst, never missing"
    for _ in range(60):
        offset = world.cluster.append("orders", 0)
        event = world.event((0, offset, offset + 1, offset), topic_id=None)
        world.cluster.append(AUDIT_TOPIC, 1, event)
        world.sequence += 1
    world.clock.advance(60)
    world.freeze()
    result, _ = world.judge(world.holding(30))
    assert result.state is WindowState.BALANCED, "sent since, they can mean only this one"
