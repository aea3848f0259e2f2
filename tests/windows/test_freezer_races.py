"""Freezers that race and die at any instruction keep one linear chain that leaves nothing out.

A scheduler with a seed runs several freezers step by step: each stops after whatever it asks of the
archive, the cluster or the clock, and between steps records arrive, time passes, partitions are
added, and freezers die and are started again. Replay a failure: give its seed to ``simulate``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freezing import SPEC
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.ranges import subtract
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.topics.model.cron import due_windows
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.model.truncation import lost_ranges
from penstock_platform.windows.model.window import ChainError
from penstock_platform.windows.store import WindowStore

STEPS_MAX = 250


class PausedError(BaseException):
    """The freezer has made its step; not to let it make another is to kill it."""


class Recorded:
    """Another object whose answers a freezer remembers."""

    def __init__(self, target, ask):
        self._target, self._ask = target, ask

    def __getattr__(self, name):
        found = getattr(self._target, name)
        return lambda *args, **kwargs: self._ask(lambda: found(*args, **kwargs))


@dataclass
class Freezer:
    """One freezer that makes one call at a time.

    Freezing is a pure function of the answers it gets, so a step runs it from its beginning with
    the answers it had, lets it make one call more, and stops it there. No threads, no waiting.
    """

    archive: MemoryArchive
    cluster: MemoryCluster
    clock: ManualClock
    windows_max: int = 1000
    answers: list = field(default_factory=list)
    done: bool = False
    published: list = field(default_factory=list)

    def step(self):
        known = iter(list(self.answers))

        def ask(call):
            for answer in known:
                return answer
            self.answers.append(call())
            raise PausedError

        store = WindowStore(Recorded(self.archive, ask))
        cluster, clock = Recorded(self.cluster, ask), Recorded(self.clock, ask)
        try:
            self.published = freeze_due(
                cluster, store, SPEC, clock, start=EPOCH, windows_max=self.windows_max
            )
            self.done = True
        except PausedError:
            pass


def simulate(seed: int, archive: MemoryArchive | None = None) -> None:
    rng = random.Random(seed)
    clock, cluster = ManualClock(), MemoryCluster()
    archive = archive or MemoryArchive()
    topic = cluster.add_topic("t", rng.randrange(1, 4))
    freezers: list[Freezer] = []
    published: list = []
    for _ in range(rng.randrange(50, STEPS_MAX // 2)):
        chance = rng.random()
        if chance < 0.10:
            clock.advance(rng.choice([1, 20, 61, 130]))
        elif chance < 0.30:
            for _ in range(rng.randrange(60)):
                cluster.append("t", rng.randrange(len(topic.partitions)))
        elif chance < 0.32 and len(topic.partitions) < 5:
            topic.partitions.append(type(topic.partitions[0])())
        elif chance < 0.34:
            partition = rng.choice(topic.partitions)
            partition.held = None if partition.held else len(partition.records)
        elif chance < 0.41:
            partition = rng.choice(topic.partitions)
            end = len(partition.records)
            if partition.held is None and rng.random() < 0.8:
                partition.truncate(rng.randrange(max(0, end - 30), end + 1))
            else:
                partition.elect()
        elif chance < 0.46:
            clock.advance(60)
            published += freeze_due(cluster, WindowStore(archive), SPEC, clock, start=EPOCH)
        elif chance < 0.54 and len(freezers) < 3:
            freezers.append(Freezer(archive, cluster, clock, rng.choice([1, 2, 1000])))
        elif freezers:
            freezer = rng.choice(freezers)
            try:
                freezer.step()
            except ClusterError:  # a leader of another epoch answered: nothing is frozen
                freezers.remove(freezer)
                continue
            if freezer.done:
                published += freezer.published
            if freezer.done or rng.random() < 0.02:
                freezers.remove(freezer)
    check(archive, cluster, clock, published, f"seed {seed}")


def check(archive, cluster, clock, published, message):
    """A last freezer, undisturbed, then: one chain, without a fork or a gap, whose windows overlap
    only where a log was cut, and every record of the log in exactly one window."""
    store = WindowStore(archive)
    clock.advance(60)
    stable = {p: o.last_stable for p, o in cluster.offsets("t").items()}
    last = freeze_due(cluster, store, SPEC, clock, start=EPOCH)
    chain = list(store.all(cluster.ref("t")))  # verifies every link
    due = [window.key for window in due_windows(SPEC.land.cron, EPOCH, clock.now())]
    assert list(dict.fromkeys(window.window for window in chain)) == due, message
    assert [window.sequence for window in chain] == list(range(len(chain))), message
    assert all(window.record_count <= SPEC.land.max_records for window in chain), message
    assert not (chain and chain[-1].more), message
    places = [window.sequence for window in published]
    assert len(places) == len(set(places)), f"{message}: two freezers think they won one place"
    for window in published:
        assert chain[window.sequence] == window, f"{message}: a published window was replaced"
    reached: dict[int, int] = {}
    for window in chain:
        for p in window.partitions:
            end = reached.get(p.p, 0)
            start = end if p.truncated is None else p.truncated.offset
            assert (p.start, start <= end) == (start, True), f"{message}: {window.window} {p}"
            reached[p.p] = p.end
    assert last, message
    assert {p: reached.get(p, 0) for p in stable} == stable, message
    cuts = store.cuts(cluster.ref("t"))
    for number, partition in enumerate(cluster.topics["t"].partitions):
        held: list[tuple[int, int, int]] = []  # first offset, end, leader epoch of the window
        for window in chain:
            lost = lost_ranges(window, cuts)
            kept = subtract([r for r in window.ranges if r.partition == number], lost)
            held += [(r.start, r.end, window.partitions[number].leader_epoch) for r in kept]
        held = sorted(h for h in held if h[0] < h[1])
        assert [h[0] for h in held] == [0, *(h[1] for h in held)][: len(held)], f"{message}: {held}"
        assert (held[-1][1] if held else 0) == reached[number], message
        for first, end, epoch in held:
            written = [e for e, at in partition.epochs if at < end]
            assert max(written, default=0) <= epoch, f"{message}: {first}-{end} were written later"


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_racing_and_dying_freezers_keep_one_chain(seed):
    simulate(seed)


class ReplacingArchive(MemoryArchive):
    """A store that ignores If-None-Match, as some do."""

    def create(self, key: str, data: bytes) -> bool:
        self.objects[key] = data
        return True


def test_the_simulation_finds_a_store_that_replaces():
    """The test's own test: on such a store, chains fork."""
    with pytest.raises((AssertionError, ChainError), match=r"seed|its hash of window"):
        for seed in range(200):
            simulate(seed, ReplacingArchive())
