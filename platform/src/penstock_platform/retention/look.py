"""What the sweep needs to know of a topic's log, gathered: a look, and the plan that follows.

The asset, `penstock retention plan` and `penstock retention apply` all begin here. Reads only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.groups import DEAD
from penstock_platform.kafka.model import LogBounds, LogSizes, PartitionOffsets, TopicRef
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.retention.model.forecast import RATE_WINDOWS, Forecast, forecast_of
from penstock_platform.retention.model.groups import GroupProgress, progress_of
from penstock_platform.retention.model.log import Disk, PartitionLog, ends_in_log, new_leaders
from penstock_platform.retention.model.plan import (
    SweepAction,
    SweepPlan,
    SweepPolicy,
    plan_sweep,
)
from penstock_platform.retention.model.proof import SweepCandidate
from penstock_platform.retention.model.spans import Span, spans_of
from penstock_platform.topics.model.declaration import TopicSpec
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.store import WindowStore

LOG = logging.getLogger("penstock.retention")
# A sweep checks this many of the oldest windows in the log; the next sweep checks later ones.
WINDOWS_MAX = 500

Progress = Callable[[str], None]


@dataclass(frozen=True)
class SweepLook:
    """One look at a topic: the log now, its windows from the log's start on, and their plan.
    ``more``: there are windows behind those that were looked at."""

    at: datetime
    spec: TopicSpec
    offsets: Mapping[int, PartitionOffsets]
    windows: Sequence[Window]
    plan: SweepPlan
    later_starts: Mapping[int, int] = field(default_factory=dict)
    more: bool = False
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def bounds(self) -> dict[int, LogBounds]:
        return bounds_of(self.offsets)

    @cached_property
    def spans(self) -> list[Span]:
        """Every offset of the log with what becomes of it and why."""
        ends = ends_in_log(self.windows, self.later_starts)
        return spans_of(self.windows, self.plan.decisions, ends, self.bounds, more=self.more)

    @property
    def records_deleted(self) -> int:
        """Offsets of the log that the plan deletes."""
        return sum(s.records for s in self.spans if s.deleted)


def look_at(
    penstock: Connections, spec: TopicSpec, progress: Progress = lambda _line: None
) -> SweepLook:
    """The plan of a sweep now, with every due window proven again. Raises UnknownTopicError."""
    ref = penstock.kafka.ref(spec.name)
    offsets = penstock.kafka.offsets(spec.name)
    starts = {p: o.log_start for p, o in offsets.items()}
    windows = windows_in_log(penstock, ref, starts)
    more = len(windows) > WINDOWS_MAX
    del windows[WINDOWS_MAX:]
    policy = SweepPolicy(
        retention=spec.retention,
        accept_unaudited=spec.audit.accept_unaudited,
        compacted=spec.compacted,
    )
    now = penstock.clock.now()
    sizes = log_sizes(penstock, spec)
    logs = logs_of(sizes, offsets) if sizes is not None else None
    disk = disk_of(sizes)
    later = truncated_behind(penstock, windows)
    not_now = new_leader_reason(penstock, ref, offsets)

    def planned(
        candidates: Sequence[SweepCandidate], groups: Sequence[GroupProgress] = ()
    ) -> SweepPlan:
        return plan_sweep(
            now,
            candidates,
            policy,
            starts,
            disk,
            logs=logs,
            later_starts=later,
            not_now=not_now,
            groups=groups,
        )

    # Which are due does not depend on proof: prove those alone.
    ages = planned([SweepCandidate(w) for w in windows])
    due = {d.sequence for d in ages.decisions if d.action is SweepAction.HOLD}
    if due:
        progress(f"{len(due):,} of {len(windows):,} windows are due: proving them again")
    candidates = [candidate(penstock, spec, w, proving=w.sequence in due) for w in windows]
    # Asked last: while windows are proven, a group may be set back.
    plan = planned(candidates, group_progress(penstock, spec, windows))
    newest = WindowStore.of(penstock).recent(ref, RATE_WINDOWS)
    forecast = forecast_of(now, spec.retention, plan, windows, newest=newest, logs=logs, disk=disk)
    return SweepLook(now, spec, offsets, windows, plan, later, more, forecast)


def windows_in_log(penstock: Connections, ref: TopicRef, starts: Mapping[int, int]) -> list[Window]:
    """The windows that the log holds anything of, oldest first: at most one more than a sweep looks
    at."""
    found: list[Window] = []
    for window in WindowStore.of(penstock).all(ref, first_in_log(penstock, ref, starts)):
        found.append(window)
        if len(found) > WINDOWS_MAX:
            break
    return found


def new_leader_reason(
    penstock: Connections, ref: TopicRef, offsets: Mapping[int, PartitionOffsets]
) -> str:
    """Why nothing is deleted before the next freeze; empty where no leader has changed."""
    newest = WindowStore.of(penstock).newest(ref)
    if newest is None:
        return ""
    moved = new_leaders(newest, {p: o.leader_epoch for p, o in offsets.items()})
    if not moved:
        return ""
    return (
        f"partitions {moved} have another leader since window {newest.name} was frozen; the next "
        "freeze looks for a truncation first"
    )


def group_progress(
    penstock: Connections, spec: TopicSpec, windows: Sequence[Window]
) -> list[GroupProgress]:
    """What the groups of ``hold_for`` have read. One that is not known, or cannot be asked for,
    has read nothing: it holds everything."""
    names = spec.retention.hold_for
    if not names:
        return []
    groups = penstock.kafka.groups
    try:
        found = {
            name: {p: offset for (topic, p), offset in committed.items() if topic == spec.name}
            for name, committed in groups.committed(names).items()
        }
        silent = groups.describe([name for name in names if not found[name]])
    except ClusterError as error:
        LOG.warning("%s: groups that retention waits for: %s", spec.name, error)
        why = f"cannot be asked for its offsets: {error}"
        return [GroupProgress(name, problem=why) for name in names]
    absent = {name for name, described in silent.items() if described.state == DEAD}
    # After the commits: a group that reads on is never beyond an end that was read later.
    bounds = bounds_of(penstock.kafka.offsets(spec.name))
    return [
        GroupProgress(name, problem="does not exist")
        if name in absent
        else progress_of(name, found[name], bounds, windows)
        for name in names
    ]


def bounds_of(offsets: Mapping[int, PartitionOffsets]) -> dict[int, LogBounds]:
    return {p: LogBounds(o.log_start, o.high_watermark) for p, o in offsets.items()}


def log_sizes(penstock: Connections, spec: TopicSpec) -> LogSizes | None:
    """What the log takes on disk, and what is left there; None where it is not known."""
    try:
        return penstock.kafka.log_sizes(spec.name)
    except UnknownTopicError:
        raise
    except ClusterError as error:
        lacks = "the forecast has no bytes"
        if spec.retention.max_bytes is not None:
            lacks += ", and max_bytes limits nothing in this sweep"
        LOG.warning("%s: %s: %s", spec.name, lacks, error)
        return None


def logs_of(sizes: LogSizes, offsets: Mapping[int, PartitionOffsets]) -> dict[int, PartitionLog]:
    found = sizes.by_partition
    return {
        p: PartitionLog(o.log_start, o.high_watermark, found.get(p, 0)) for p, o in offsets.items()
    }


def disk_of(sizes: LogSizes | None) -> Disk | None:
    volume = sizes.volume if sizes is not None else None
    return Disk(volume.total_bytes, volume.free_bytes) if volume is not None else None


def truncated_behind(penstock: Connections, windows: Sequence[Window]) -> dict[int, int]:
    """Per partition the least offset at which a window behind these begins after a truncation."""
    least: dict[int, int] = {}
    newest = WindowStore.of(penstock).newest(windows[-1].ref) if windows else None
    place = newest.last_truncation if newest is not None else None
    while newest is not None and place is not None and place > windows[-1].sequence:
        window = WindowStore.of(penstock).get(newest.ref, place)
        before = WindowStore.of(penstock).get(newest.ref, place - 1)
        if window is None or before is None:
            raise ChainError(f"window {newest.topic_id}/{place} is missing inside its chain")
        for p in window.partitions:
            if p.truncated is not None:
                least[p.p] = min(p.start, least.get(p.p, p.start))
        place = before.last_truncation
    return least


def first_in_log(penstock: Connections, ref: TopicRef, starts: Mapping[int, int]) -> int:
    """The sequence of the oldest window that the log still holds anything of."""
    newest = WindowStore.of(penstock).newest(ref)
    low, high = 0, newest.sequence if newest is not None else 0
    while low < high:
        middle = (low + high) // 2
        window = WindowStore.of(penstock).get(ref, middle)
        gone = window is not None and all(starts.get(p.p, 0) >= p.end for p in window.partitions)
        low, high = (middle + 1, high) if gone else (low, middle)
    return low


def candidate(
    penstock: Connections, spec: TopicSpec, window: Window, *, proving: bool
) -> SweepCandidate:
    """A window with its book, and where it is due with equations 1 and 3 judged now."""
    if not proving:
        return SweepCandidate(window)
    books = Bookkeeper(penstock)
    return SweepCandidate(
        window=window,
        reproved=books.judge_landed(window, spec).result,
        parsed=books.judge_parsed(window, spec).result if spec.contract is not None else None,
        book=books.newest(window),
        acceptances=BookStore.of(penstock).acceptances(window.ref, window.sequence),
    )
