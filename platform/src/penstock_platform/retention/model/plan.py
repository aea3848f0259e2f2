"""What may be deleted: the longest prefix of the chain that is old enough and proven.

The sweep deletes whole windows from the front of the log and never passes one that it may not
delete, however old the ones behind it are. Age counts from a window's ``closed_at``; producers'
timestamps have no say. Groups of ``hold_for`` hold what they have not committed past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from penstock_platform.clock import from_iso
from penstock_platform.retention.model.groups import GroupProgress, unread_reason
from penstock_platform.retention.model.log import Disk, PartitionLog, bytes_from, ends_in_log
from penstock_platform.retention.model.proof import SweepCandidate, unproven_reason
from penstock_platform.topics.model.declaration import RetentionSpec, format_duration
from penstock_platform.windows.model.window import Window

DISK_FREE_RATIO_MIN = 0.1


class SweepAction(StrEnum):
    """``gone``: not in the log any more. ``keep``: not due. ``hold``: due, and not proven, or not
    read yet by a declared group."""

    GONE = "gone"
    DELETE = "delete"
    HOLD = "hold"
    KEEP = "keep"


class Cause(StrEnum):
    """Why, in a word that programs can rely on; ``reason`` is the sentence."""

    GONE = "gone"
    PROVEN = "proven"
    NOT_DUE = "not_due"
    UNPROVEN = "unproven"
    GROUP_BEHIND = "group_behind"
    BEHIND_ANOTHER = "behind_another"  # due and proven, behind a window that stays
    NEW_LEADER = "new_leader"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """What becomes of one window, and why, in a sentence. ``detail`` is the part of the sentence
    that is the same for every window which stays for the same reason."""

    window: str
    sequence: int
    action: SweepAction
    reason: str
    cause: Cause
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """``delete_before``: the DeleteRecords request, only partitions whose log start moves.
    ``risks``: what should raise an alert."""

    decisions: tuple[SweepDecision, ...]
    delete_before: dict[int, int] = field(default_factory=dict)
    risks: tuple[str, ...] = ()

    @property
    def deleted(self) -> tuple[int, ...]:
        """Sequences of the windows that the plan deletes."""
        return tuple(d.sequence for d in self.decisions if d.action is SweepAction.DELETE)

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(d.sequence for d in self.decisions if d.action is SweepAction.HOLD)


@dataclass(frozen=True, slots=True)
class SweepPolicy:
    """The topic's declaration, as far as it concerns the sweep."""

    retention: RetentionSpec
    accept_unaudited: bool = False
    compacted: bool = False


def plan_sweep(
    now: datetime,
    candidates: Sequence[SweepCandidate],
    policy: SweepPolicy,
    log_starts: Mapping[int, int],
    disk: Disk | None = None,
    *,
    logs: Mapping[int, PartitionLog] | None = None,
    later_starts: Mapping[int, int] | None = None,
    not_now: str = "",
    groups: Sequence[GroupProgress] = (),
) -> SweepPlan:
    """Decide on every window of ``candidates``, a run of consecutive windows, oldest first.

    ``log_starts`` are the log's first offsets now. ``logs`` gives the sizes that ``max_bytes`` is
    about; None where they are not known, which is a risk. ``later_starts``: per partition the least
    offset at which a window behind the candidates begins, where one was truncated. ``not_now``: why
    nothing may be deleted now, whatever is proven; empty where nothing speaks against it.
    ``groups``: the declared ones, and what they have read.

    A window whose predecessor is not among the candidates and not gone from the log is the caller's
    error and raises ValueError: deleting before an offset deletes everything before it.
    """
    _check_consecutive(candidates)
    ends = ends_in_log([s.window for s in candidates], later_starts or {})
    decisions: list[SweepDecision] = []
    blocked_by: str | None = None
    for candidate, reach in zip(candidates, ends, strict=True):
        window = candidate.window
        if all(log_starts.get(p, 0) >= end for p, end in reach.items()):
            outcome = _Outcome(SweepAction.GONE, Cause.GONE, "already deleted from the log")
        else:
            size = bytes_from(window, logs) if logs is not None else None
            unread = [w for g in groups if (w := unread_reason(g, reach, log_starts))]
            outcome = _decide(now, candidate, policy, size, unread)
            if not_now and outcome.action is SweepAction.DELETE:
                outcome = outcome.kept(Cause.NEW_LEADER, f"{outcome.reason}; but {not_now}")
            if blocked_by is not None and outcome.action is SweepAction.DELETE:
                why = f"behind window {blocked_by}: deleting it would delete that one too"
                outcome = outcome.kept(Cause.BEHIND_ANOTHER, why)
            elif blocked_by is None and outcome.action is not SweepAction.DELETE:
                blocked_by = window.name
        decisions.append(outcome.of(window))
    risks = _risks(decisions, disk)
    if policy.retention.max_bytes is not None and logs is None and not policy.compacted:
        risks.append("the log's size is not known, so max_bytes limits nothing")
    return SweepPlan(
        decisions=tuple(decisions),
        delete_before=_delete_before(ends, decisions, log_starts),
        risks=tuple(risks),
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A decision that no window is named in yet."""

    action: SweepAction
    cause: Cause
    reason: str
    detail: str = ""

    def kept(self, cause: Cause, reason: str) -> _Outcome:
        return _Outcome(SweepAction.KEEP, cause, reason)

    def of(self, window: Window) -> SweepDecision:
        return SweepDecision(
            window.name, window.sequence, self.action, self.reason, self.cause, self.detail
        )


def _decide(
    now: datetime,
    candidate: SweepCandidate,
    policy: SweepPolicy,
    bytes_from_here: int | None,
    unread: Sequence[str],
) -> _Outcome:
    if policy.compacted:
        return _Outcome(SweepAction.KEEP, Cause.COMPACTED, "compacted topics are not swept")
    due = _due(now, candidate.window, policy.retention, bytes_from_here)
    if not due.now:
        return _Outcome(SweepAction.KEEP, Cause.NOT_DUE, due.why)
    unproven = unproven_reason(candidate, policy.accept_unaudited)
    lacks = [*([unproven] if unproven is not None else []), *unread]
    if lacks:
        cause = Cause.GROUP_BEHIND if unproven is None else Cause.UNPROVEN
        why = "; ".join(lacks)
        return _Outcome(SweepAction.HOLD, cause, f"{due.why}, but {why}", why)
    return _Outcome(SweepAction.DELETE, Cause.PROVEN, f"{due.why}, and it is proven")


@dataclass(frozen=True, slots=True)
class _Due:
    now: bool
    why: str


def _due(
    now: datetime, window: Window, retention: RetentionSpec, bytes_from_here: int | None
) -> _Due:
    age = now - from_iso(window.closed_at)
    if retention.keep is not None and age >= retention.keep:
        return _Due(True, f"closed {_age(age)} ago, kept for {format_duration(retention.keep)}")
    most = retention.max_bytes
    if most is not None and bytes_from_here is not None and bytes_from_here > most:
        return _Due(True, f"{bytes_from_here:,} bytes from this window on, {most:,} are kept")
    if retention.keep is None:
        limit = "no size limit is reached" if retention.max_bytes else "nothing limits its keeping"
        return _Due(False, limit)
    return _Due(False, f"closed {_age(age)} ago, kept for {format_duration(retention.keep)}")


def _age(age: timedelta) -> str:
    return format_duration(timedelta(seconds=max(0, round(age.total_seconds()))))


def _delete_before(
    ends: Sequence[Mapping[int, int]],
    decisions: Sequence[SweepDecision],
    log_starts: Mapping[int, int],
) -> dict[int, int]:
    before: dict[int, int] = {}
    for reach, decision in zip(ends, decisions, strict=True):
        if decision.action is SweepAction.DELETE:
            before |= {p: max(end, before.get(p, 0)) for p, end in reach.items()}
    return {p: end for p, end in before.items() if end > log_starts.get(p, 0)}


def _risks(decisions: Sequence[SweepDecision], disk: Disk | None) -> list[str]:
    held = [d for d in decisions if d.action is SweepAction.HOLD]
    risks: list[str] = []
    if held:
        more = f" and {len(held) - 1} more" if len(held) > 1 else ""
        risks.append(f"window {held[0].window}{more} outlives its policy: {held[0].reason}")
    if disk is not None and disk.free_bytes < disk.total_bytes * DISK_FREE_RATIO_MIN:
        risks.append(
            f"the log's disk has {disk.free_bytes:,} of {disk.total_bytes:,} bytes left; "
            f"{len(held)} windows are held"
        )
    return risks


def _check_consecutive(candidates: Sequence[SweepCandidate]) -> None:
    sequences = [candidate.window.sequence for candidate in candidates]
    if sequences and sequences != list(range(sequences[0], sequences[0] + len(sequences))):
        raise ValueError(f"a sweep needs consecutive windows, oldest first; got {sequences}")
