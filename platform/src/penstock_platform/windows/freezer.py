"""The freezer: publishes every window that is due, in order, each in its place of the chain.

Metadata only: it asks for offsets and creates small objects. Killed between any two instructions
and started again, it finds the end of the chain and continues from there; two freezers at once take
turns, because the one that is refused a place reads the chain again and computes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from itertools import chain, islice
from typing import Protocol

from penstock_platform.clock import Clock, from_iso
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.topics.model.cron import CronWindow, due_windows, last_tick
from penstock_platform.topics.model.declaration import LandSpec, TopicSpec
from penstock_platform.windows.model.incarnations import Incarnation, first_starts
from penstock_platform.windows.model.truncation import chain_ends, epochs_to_ask, truncations_of
from penstock_platform.windows.model.window import (
    ChainError,
    FreezePlan,
    StartOffset,
    Truncation,
    Window,
    plan_freeze,
)
from penstock_platform.windows.store import WindowStore

WINDOWS_MAX = 1000
LOST_RACES_MAX = 100
CODE_VERSION = version("penstock-platform")


class OffsetSource(Protocol):
    """What the freezer asks of a cluster; ``KafkaCluster`` answers."""

    def ref(self, topic: str) -> TopicRef: ...

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]: ...

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int | None]: ...

    def broker_stamps(self, topic: str) -> bool: ...

    def epoch_ends(
        self, topic: str, epochs: Mapping[int, int], current: Mapping[int, int]
    ) -> dict[int, int]: ...


class FreezeError(RuntimeError):
    """A topic whose windows cannot be frozen: says why."""


def freeze_due(
    kafka: OffsetSource,
    store: WindowStore,
    spec: TopicSpec,
    clock: Clock,
    *,
    start: datetime,
    begin_new: bool = False,
    windows_max: int = WINDOWS_MAX,
) -> list[Window]:
    """Freeze what is due for a topic and return the windows that this call published.

    ``start`` is when the first window of the partition definition opens. At most ``windows_max``
    windows are published in a call; when more are missing, also of one tick, the next call
    continues. The chain of a recreated topic opens with the tick in which it was begun. Where a log
    was cut below the chain's end, the next window begins at the cut. Raises FreezeError for a topic
    without ``land``, NewIncarnationError for a recreated topic unless ``begin_new``, and
    ChainError, ClusterError and ArchiveError of what it calls.
    """
    if spec.land is None:
        raise FreezeError(f"topic {spec.name} is not landed, so it has no windows; add land: {{}}")
    ref = kafka.ref(spec.name)
    land = spec.land
    entry = store.admit(
        ref, clock.now(), begin_new, lambda: first_incarnation(kafka, ref, land, clock.now())
    )
    if not entry.first:
        start = max(start, last_tick(land.cron, entry.begun_at))
    published: list[Window] = []
    for _race in range(LOST_RACES_MAX):
        newest = store.newest(ref)
        due, complete = _due(land.cron, newest, start, clock.now(), windows_max)
        if not due:
            return published
        offsets = kafka.offsets(spec.name)
        starts = entry.start_offsets()
        plan = FreezePlan(
            ref=ref,
            offsets=offsets,
            max_records=land.max_records,
            frozen_at=clock.now(),
            code_version=CODE_VERSION,
            starts=starts,
            truncations=truncations(kafka, spec.name, chain_ends(newest, starts), offsets),
            stamped_cuts=_stamped_cuts(kafka, spec.name, due[:-1] if complete else due),
            reaches_newest=complete,
        )
        for window in plan_freeze(plan, newest, due):
            if len(published) == windows_max:
                return published
            if not store.publish(window):
                break
            published.append(window)
        else:
            return published
    raise FreezeError(
        f"topic {spec.name}: lost {LOST_RACES_MAX} races for the end of its chain; "
        "are more than a few freezers running?"
    )


def first_incarnation(
    kafka: OffsetSource, ref: TopicRef, land: LandSpec, at: datetime
) -> Incarnation:
    """The incarnation of a topic that has no chain yet, beginning where ``land.start`` says."""
    offsets = kafka.offsets(ref.topic)
    moment = land.start_time
    found = None
    if moment is not None:
        found = kafka.offsets_for_time(ref.topic, round(moment.timestamp() * 1000))
    return Incarnation(ref.topic_id, at, first_starts(land.start, offsets, found), land.start)


def truncations(
    kafka: OffsetSource,
    topic: str,
    ends: Mapping[int, StartOffset],
    offsets: Mapping[int, PartitionOffsets],
) -> dict[int, Truncation]:
    """The partitions whose log was cut below ``ends``. Asks the brokers only about epochs that
    changed. Raises ChainError where an epoch went back, ClusterError without an answer."""
    try:
        epochs = epochs_to_ask(ends, offsets)
    except ChainError as error:
        raise ChainError(f"topic {topic}: {error}") from error
    current = {p: offsets[p].leader_epoch for p in epochs}
    answers = kafka.epoch_ends(topic, epochs, current) if epochs else {}
    return truncations_of(ends, offsets, answers)


def _due(
    cron: str, newest: Window | None, start: datetime, now: datetime, most: int
) -> tuple[list[CronWindow], bool]:
    """The ticks to freeze, oldest first, at most ``most``, and whether they are all that are due.

    A tick whose windows were not all published (a crash, the bound of a call) comes first.
    """
    since = max(start, from_iso(newest.closed_at)) if newest else start
    missing = due_windows(cron, since, now)
    if newest is not None and newest.more:
        open_tick = CronWindow(from_iso(newest.opened_at), from_iso(newest.closed_at))
        missing = chain([open_tick], missing)
    due = list(islice(missing, most))
    return due, next(missing, None) is None


def _stamped_cuts(
    kafka: OffsetSource, topic: str, late: list[CronWindow]
) -> dict[str, dict[int, int | None]] | None:
    """Where the broker's own stamps part the windows frozen late; None where producers stamp."""
    if not late or not kafka.broker_stamps(topic):
        return None
    return {
        window.key: kafka.offsets_for_time(topic, round(window.closes.timestamp() * 1000))
        for window in late
    }
