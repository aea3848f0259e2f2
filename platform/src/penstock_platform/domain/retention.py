"""What may be forgotten: the longest prefix of the chain that is old enough and proven.

The sweep deletes whole windows from the front of the log and never passes one that it may not
delete, however old the ones behind it are. Age counts from a window's ``closed_at``; producers'
timestamps have no say. Proof means proof in this run, against the table's present snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from penstock_platform.domain.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.domain.clock import from_iso
from penstock_platform.domain.topics import RetentionSpec, format_duration
from penstock_platform.domain.windows import Window

DISK_FREE_RATIO_MIN = 0.1


class SweepAction(StrEnum):
    """``gone``: not in the log any more. ``keep``: not due. ``hold``: due, and not proven."""

    GONE = "gone"
    DELETE = "delete"
    HOLD = "hold"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class WindowStanding:
    """A window and what is known of it now. ``reproved`` is equation 1 judged in this run, None
    when it was not; ``size_bytes`` is the window's share of the log, 0 where it is not known."""

    window: Window
    reproved: EquationResult | None = None
    book: Book | None = None
    acceptances: Sequence[Acceptance] = ()
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """What becomes of one window, and why, in a sentence."""

    window: str
    sequence: int
    action: SweepAction
    reason: str


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """``delete_before``: the DeleteRecords request, only partitions whose log start moves.
    ``risks``: what should alert somebody."""

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
class Disk:
    """Bytes of the volume that holds the log."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class SweepPolicy:
    """The topic's declaration, as far as it concerns the sweep."""

    retention: RetentionSpec
    accept_unaudited: bool = False
    compacted: bool = False


def plan_sweep(
    now: datetime,
    standings: Sequence[WindowStanding],
    policy: SweepPolicy,
    log_starts: Mapping[int, int],
    disk: Disk | None = None,
) -> SweepPlan:
    """Decide on every window of ``standings``, a run of consecutive windows, oldest first.

    ``log_starts`` are the log's first offsets now. A window whose predecessor is not among the
    standings and not gone from the log is the caller's error and raises ValueError: deleting
    before an offset deletes everything before it.
    """
    _check_consecutive(standings)
    sizes = _sizes_from_here(standings, log_starts)
    decisions: list[SweepDecision] = []
    blocked_by: str | None = None
    for number, standing in enumerate(standings):
        window = standing.window
        if _gone(window, log_starts):
            action, reason = SweepAction.GONE, "already deleted from the log"
        else:
            action, reason = _decide(now, standing, policy, sizes[number])
            if blocked_by is not None and action is SweepAction.DELETE:
                action = SweepAction.KEEP
                reason = f"behind window {blocked_by}: deleting it would delete that one too"
            elif blocked_by is None and action is not SweepAction.DELETE:
                blocked_by = window.window
        decisions.append(SweepDecision(window.window, window.sequence, action, reason))
    return SweepPlan(
        decisions=tuple(decisions),
        delete_before=_delete_before(standings, decisions, log_starts),
        risks=tuple(_risks(decisions, disk)),
    )


def unproven_reason(standing: WindowStanding, accept_unaudited: bool) -> str | None:
    """Why the window may not be forgotten, or None when it may."""
    landed, book = standing.reproved, standing.book
    if landed is None:
        return "stored = landed was not proved in this run"
    if not landed.balanced and not _accepted(landed.findings, standing.acceptances):
        return f"stored = landed is {landed.state}"
    if book is None or book.window_sha256 != standing.window.sha256:
        return "it has no book"
    return _unheard_reason(book, standing.acceptances, accept_unaudited)


def _unheard_reason(
    book: Book, acceptances: Sequence[Acceptance], accept_unaudited: bool
) -> str | None:
    produced = book.result(Equation.PRODUCED_EQUALS_STORED)
    if produced is None:
        return "its producers have not been heard"
    if produced.balanced or (accept_unaudited and produced.state is WindowState.UNAUDITED):
        return None
    accepted = _accepted(produced.findings, acceptances)
    return None if accepted else f"produced = stored is {produced.state}"


def _decide(
    now: datetime, standing: WindowStanding, policy: SweepPolicy, bytes_from_here: int
) -> tuple[SweepAction, str]:
    if policy.compacted:
        return SweepAction.KEEP, "compacted topics are not swept"
    due = _due(now, standing.window, policy.retention, bytes_from_here)
    if not due.now:
        return SweepAction.KEEP, due.why
    reason = unproven_reason(standing, policy.accept_unaudited)
    if reason is not None:
        return SweepAction.HOLD, f"{due.why}, but {reason}"
    return SweepAction.DELETE, f"{due.why}, and it is proven"


@dataclass(frozen=True, slots=True)
class _Due:
    now: bool
    why: str


def _due(now: datetime, window: Window, retention: RetentionSpec, bytes_from_here: int) -> _Due:
    age = now - from_iso(window.closed_at)
    if retention.keep is not None and age >= retention.keep:
        return _Due(True, f"closed {_age(age)} ago, kept for {format_duration(retention.keep)}")
    if retention.max_bytes is not None and bytes_from_here > retention.max_bytes:
        return _Due(
            True,
            f"{bytes_from_here:,} bytes from this window on, {retention.max_bytes:,} are kept",
        )
    if retention.keep is None:
        limit = "no size limit is reached" if retention.max_bytes else "nothing limits its keeping"
        return _Due(False, limit)
    return _Due(False, f"closed {_age(age)} ago, kept for {format_duration(retention.keep)}")


def _age(age: timedelta) -> str:
    return format_duration(timedelta(seconds=max(0, round(age.total_seconds()))))


def _accepted(findings: Sequence[Finding], acceptances: Sequence[Acceptance]) -> bool:
    matters = [f for f in findings if f.state is not None]
    return bool(matters) and all(any(a.covers(f) for a in acceptances) for f in matters)


def _gone(window: Window, log_starts: Mapping[int, int]) -> bool:
    """Nothing of the window is in the log. An empty window is gone once the log begins there, or
    later; where it never moved (0) it is as good as gone, for there is nothing to delete."""
    return all(log_starts.get(p.p, 0) >= p.end for p in window.partitions)


def _sizes_from_here(
    standings: Sequence[WindowStanding], log_starts: Mapping[int, int]
) -> list[int]:
    sizes: list[int] = []
    total = 0
    for standing in reversed(standings):
        total += 0 if _gone(standing.window, log_starts) else standing.size_bytes
        sizes.append(total)
    return sizes[::-1]


def _delete_before(
    standings: Sequence[WindowStanding],
    decisions: Sequence[SweepDecision],
    log_starts: Mapping[int, int],
) -> dict[int, int]:
    before: dict[int, int] = {}
    for standing, decision in zip(standings, decisions, strict=True):
        if decision.action is SweepAction.DELETE:
            before |= {p.p: p.end for p in standing.window.partitions}
    return {p: end for p, end in sorted(before.items()) if end > log_starts.get(p, 0)}


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


def _check_consecutive(standings: Sequence[WindowStanding]) -> None:
    sequences = [standing.window.sequence for standing in standings]
    if sequences and sequences != list(range(sequences[0], sequences[0] + len(sequences))):
        raise ValueError(f"a sweep needs consecutive windows, oldest first; got {sequences}")
