"""Random histories of landings, faults, groups, truncations and sweeps.

Whatever happens in whatever order, a sweep deletes no offset that is not landed and balanced (or
accepted), old enough, and read by every declared group. What is allowed is judged here from the
history alone, offset by offset.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_platform.clock import from_iso
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.retention.look import look_at
from penstock_platform.retention.sweep import apply_sweep
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.model.window import Window
from stage import START, Stage, StageConnections

KEEP = timedelta(minutes=2)
GROUPS = ("billing", "search")
PARTITIONS = (0, 1)

partitions = st.sampled_from(PARTITIONS)
which = st.integers(0, 5)  # a window, counted from the newest
FAULTS = st.one_of(
    st.tuples(st.sampled_from(["lose_row", "alter_row"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["alter_row", "lose_row"]), st.integers(0, 3)),
    st.tuples(st.just("read"), st.sampled_from(GROUPS), partitions, st.integers(0, 30)),
    st.tuples(st.just("minute"), partitions, st.integers(0, 6), st.just(True)),  # not landed
    st.tuples(st.just("unclaimed_minute"), partitions),
    st.tuples(st.just("land_without_books"), which),
    st.tuples(st.just("elect"), partitions),
    st.tuples(st.just("truncate"), partitions, st.integers(1, 6)),
    st.tuples(st.just("sweep")),
    # Repairs, which come at any time too.
    st.tuples(st.just("land"), which),
    st.tuples(st.just("judge"), which),
    st.tuples(st.just("accept"), which),
)
# A minute whose records are landed, proven and read: without it no history deletes anything.
GOOD = [("minute", 0, 4, True), ("land", 0), ("minute", 1, 3, True), ("land", 0), ("read_all",)]
IDLE = [("minute", 0, 0, True), ("land", 0)]
ROUNDS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(FAULTS, max_size=2), st.integers(0, 3)),
    min_size=1,
    max_size=4,
)


class History:
    """A topic's life, and beside it what is true of every offset."""

    def __init__(self, made: Stage, home: Path) -> None:
        home.mkdir()
        self.made = made
        made.penstock = self.penstock = StageConnections(home)
        made.create_topics()
        self.logs = self.penstock.kafka.memory.topics[made.topic].partitions
        self.claimed: dict[int, set[int]] = defaultdict(set)
        self.accepted: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.booked: set[str] = set()
        self.deleted = 0

    def step(self, name: str, *about: Any) -> None:
        getattr(self, name)(*about)

    # --- what happens ---

    def minute(self, partition: int, records: int, claimed: bool) -> None:
        if records:
            found = self.made.produce(records, partition)
            if claimed:
                self.made.claim(found)
                self.claimed[partition] |= set(range(found.start, found.end))
        self.penstock.clock.advance(60)
        penstock, spec = self.penstock, self.made.plan.spec
        freeze_due(penstock.kafka, penstock.windows, spec, penstock.clock, start=START)  # type: ignore[arg-type]

    def unclaimed_minute(self, partition: int) -> None:
        self.minute(partition, 3, False)
        self.land(0)
        self.read_all()  # so that nothing else holds it

    def land(self, back: int) -> None:
        self.land_without_books(back)
        self.judge(back)

    def land_without_books(self, back: int) -> None:
        for window in self.window(back):
            self.made.land_rows(self.penstock, window, lambda _at: None)
            contract = self.made.contract
            self.made.parse_rows(self.penstock, window, contract, lambda _at: None)
            self.booked.discard(window.window_id)

    def judge(self, back: int) -> None:
        books, spec = Bookkeeper(self.penstock), self.made.plan.spec
        for window in self.window(back):
            books.prove_landed(window, spec)
            books.prove_parsed(window, spec)
            books.prove_produced(window, spec)
            self.booked.add(window.window_id)

    def lose_row(self, back: int) -> None:
        lake, table = self.penstock.lake, bronze_table(self.made.topic)
        for window in self.window(back):
            rows = {p: list(o) for p, o in lake.offsets(table, window.window_id).items()}
            for offsets in rows.values():
                del offsets[0]
            lake.put(table, window.window_id, rows)

    def alter_row(self, back: int) -> None:
        lake, table = self.penstock.lake, bronze_table(self.made.topic)
        for window in self.window(back):
            changed = lake.contents.setdefault((table, window.window_id), {})
            for p, offsets in lake.offsets(table, window.window_id).items():
                changed |= {(p, int(o)): 77 for o in offsets[-1:]}

    def accept(self, back: int) -> None:
        for window in self.window(back):
            with contextlib.suppress(ValueError):  # nothing to accept
                now = self.penstock.clock.now()
                self.penstock.books.accept(window, "me", "known", now)
                self.accepted[window.window_id] |= {
                    (r.partition, o)
                    for r in window.ranges
                    for o in range(r.start, r.end)
                    if not self.sound(window, r.partition, o)
                }

    def read(self, group: str, partition: int, offset: int) -> None:
        self.penstock.kafka.groups.setdefault(group, {})[partition] = offset

    def read_all(self) -> None:
        for group in GROUPS:
            for p in PARTITIONS:
                self.read(group, p, len(self.logs[p].records))

    def elect(self, partition: int) -> None:
        self.logs[partition].elect()

    def truncate(self, partition: int, records: int) -> None:
        log = self.logs[partition]
        log.truncate(max(log.log_start, len(log.records) - records))

    def sweep(self) -> None:
        before = [log.log_start for log in self.logs]
        groups = {g: dict(o) for g, o in self.penstock.kafka.groups.items()}
        look = look_at(self.penstock, self.made.plan.spec)
        apply_sweep(self.penstock, look)
        count = 0
        for p, log in enumerate(self.logs):
            for offset in range(before[p], log.log_start):
                self.require_deletable(p, offset, groups)
                count += 1
        assert count == look.records_deleted
        self.deleted += count

    # --- what is true ---

    def window(self, back: int) -> list[Window]:
        newest = self.penstock.windows.newest(self.made.ref)
        if newest is None or newest.sequence < back:
            return []
        found = self.penstock.windows.get(self.made.ref, newest.sequence - back)
        return [found] if found is not None else []

    def sound(self, window: Window, partition: int, offset: int) -> bool:
        """Landed, with its content, and claimed by its producer."""
        lake, table = self.penstock.lake, bronze_table(self.made.topic)
        rows = lake.offsets(table, window.window_id).get(partition)
        landed = rows is not None and offset in rows.tolist()
        altered = (partition, offset) in lake.contents.get((table, window.window_id), {})
        return landed and not altered and offset in self.claimed[partition]

    def require_deletable(
        self, partition: int, offset: int, groups: dict[str, dict[int, int]]
    ) -> None:
        where = f"partition {partition}, offset {offset}"
        holding = [
            w
            for w in self.penstock.windows.all(self.made.ref)
            for r in w.ranges
            if r.partition == partition and r.start <= offset < r.end
        ]
        assert holding, f"{where} was in no window"
        window = holding[-1]  # after a truncation the log's records are the later window's
        age = self.penstock.clock.now() - from_iso(window.closed_at)
        assert age >= KEEP, f"{where} was {age} old"
        for group in GROUPS:
            read_to = groups.get(group, {}).get(partition, 0)
            assert offset < read_to, f"{where} was not read by {group}, which is at {read_to}"
        assert window.window_id in self.booked, f"{where} had no book of its newest landing"
        known = (partition, offset) in self.accepted[window.window_id]
        assert self.sound(window, partition, offset) or known, f"{where} was not proven"


@pytest.fixture
def made(stage: Callable[..., Stage]) -> Stage:
    return stage(retention={"keep": "2m", "hold_for": list(GROUPS)})


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=ROUNDS)
def test_no_sweep_of_any_history_deletes_what_is_not_proven_and_read(
    made: Stage, tmp_path: Path, rounds: list[Any]
) -> None:
    history = History(made, tmp_path / f"history-{len(list(tmp_path.iterdir()))}")
    for good, faults, idle in rounds:
        for step in [*GOOD * good, *faults, *IDLE * idle, ("sweep",)]:
            history.step(*step)


def test_a_history_without_faults_is_deleted_to_its_end(made: Stage, tmp_path: Path) -> None:
    """What the property says is not empty."""
    history = History(made, tmp_path / "history")
    for _ in range(4):
        for step in GOOD:
            history.step(*step)
    history.minute(0, 0, True)
    history.minute(0, 0, True)
    history.sweep()
    assert history.deleted == 4 * 7


@pytest.mark.parametrize(
    "fault,deleted",
    [
        (("lose_row", 1), 0),
        (("alter_row", 1), 0),
        (("land_without_books", 1), 0),
        (("read", "billing", 0, 3), 0),
        (("unclaimed_minute", 0), 7),
        (("sweep",), 7),
    ],
)
def test_one_fault_holds_what_it_concerns(
    made: Stage, tmp_path: Path, fault: tuple[Any, ...], deleted: int
) -> None:
    """Each by itself: the property meets them by chance alone."""
    history = History(made, tmp_path / "history")
    for step in [*GOOD, fault, *IDLE * 3, ("sweep",)]:
        history.step(*step)
    assert history.deleted == deleted
