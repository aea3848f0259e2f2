"""What may be deleted: the longest prefix of the chain that is old enough and proven.

The sweep deletes whole windows from the front of the log and never passes one that it may not
delete, however old the ones behind it are. Age counts from a window's ``closed_at``; producers'
timestamps have no say. Proof means proof in this run, against the table's present snapshot.

Where a partition was truncated, a window begins below the end of the one before it. The log's
records there are the later window's, so an earlier one reaches only up to where a later one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from penstock_platform.clock import from_iso
from penstock_platform.reconciliation.model.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.topics.model.declaration import RetentionSpec, format_duration
from penstock_platform.windows.model.window import Window

DISK_FREE_RATIO_MIN = 0.1


class SweepAction(StrEnum):
    """``gone``: not in the log any more. ``keep``: not due. ``hold``: due, and not proven."""

    GONE = "gone"
    DELETE = "delete"
    HOLD = "hold"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class SweepCandidate:
    """A window and what is known of it now. ``reproved`` is equation 1 judged in this run, None
    when it was not; ``parsed`` is equation 3 judged in this run, None where the topic has no
    contract."""

    window: Window
    reproved: EquationResult | None = None
    book: Book | None = None
    acceptances: Sequence[Acceptance] = ()
    parsed: EquationResult | None = None


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition's log now: its offsets, and what it takes on its broker's disk."""

    start: int
    end: int
    size_bytes: int


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
    candidates: Sequence[SweepCandidate],
    policy: SweepPolicy,
    log_starts: Mapping[int, int],
    disk: Disk | None = None,
    *,
    logs: Mapping[int, PartitionLog] | None = None,
    later_starts: Mapping[int, int] | None = None,
    not_now: str = "",
) -> SweepPlan:
    """Decide on every window of ``candidates``, a run of consecutive windows, oldest first.

    ``log_starts`` are the log's first offsets now. ``logs`` gives the sizes that ``max_bytes`` is
    about; None where they are not known, which is a risk. ``later_starts``: per partition the least
    offset at which a window behind the candidates begins, where one was truncated. ``not_now``: why
    nothing may be deleted now, whatever is proven; empty where nothing speaks against it.

    A window whose predecessor is not among the candidates and not gone from the log is the caller's
    error and raises ValueError: deleting before an offset deletes everything before it.
    """
    _check_consecutive(candidates)
    ends = ends_in_log([s.window for s in candidates], later_starts or {})
    decisions: list[SweepDecision] = []
    blocked_by: str | None = None
    for number, candidate in enumerate(candidates):
        window = candidate.window
        if all(log_starts.get(p, 0) >= end for p, end in ends[number].items()):
            action, reason = SweepAction.GONE, "already deleted from the log"
        else:
            size = bytes_from(window, logs) if logs is not None else None
            action, reason = _decide(now, candidate, policy, size)
            if not_now and action is SweepAction.DELETE:
                action, reason = SweepAction.KEEP, f"{reason}; but {not_now}"
            if blocked_by is not None and action is SweepAction.DELETE:
                action = SweepAction.KEEP
                reason = f"behind window {blocked_by}: deleting it would delete that one too"
            elif blocked_by is None and action is not SweepAction.DELETE:
                blocked_by = window.name
        decisions.append(SweepDecision(window.name, window.sequence, action, reason))
    risks = _risks(decisions, disk)
    if policy.retention.max_bytes is not None and logs is None and not policy.compacted:
        risks.append("the log's size is not known, so max_bytes limits nothing")
    return SweepPlan(
        decisions=tuple(decisions),
        delete_before=_delete_before(ends, decisions, log_starts),
        risks=tuple(risks),
    )


def bytes_from(window: Window, logs: Mapping[int, PartitionLog]) -> int:
    """Bytes of the log from the window's first offsets on, to the log's end: what deleting all
    windows before it would leave. Shared out by offsets within each partition."""
    starts = {p.p: p.start for p in window.partitions}
    total = 0
    for number, log in logs.items():
        length = log.end - log.start
        first = min(max(starts.get(number, log.start), log.start), log.end)
        total += log.size_bytes * (log.end - first) // length if length > 0 else 0
    return total


def new_leaders(newest: Window, epochs: Mapping[int, int]) -> list[int]:
    """Partitions whose leader changed since the newest window was frozen, by the broker's epochs
    (-1: it reports none). Their logs may have been cut and have grown again over offsets that were
    frozen before; the next freeze finds that out, and until then nothing there may be deleted."""
    known = {p.p: p.leader_epoch for p in newest.partitions}
    return sorted(
        p
        for p, epoch in epochs.items()
        if p in known and epoch >= 0 and known[p] >= 0 and epoch != known[p]
    )


def ends_in_log(windows: Sequence[Window], later_starts: Mapping[int, int]) -> list[dict[int, int]]:
    """Per window and partition the offset before which the log's records are the window's, or an
    earlier one's: its own end, or less where a later window begins below that."""
    least = dict(later_starts)
    ends: list[dict[int, int]] = []
    for window in reversed(windows):
        ends.append({p.p: min(p.end, least.get(p.p, p.end)) for p in window.partitions})
        for p in window.partitions:
            least[p.p] = min(p.start, least.get(p.p, p.start))
    return ends[::-1]


def unproven_reason(candidate: SweepCandidate, accept_unaudited: bool) -> str | None:
    """Why the window may not be deleted, or None when it may."""
    landed, book = candidate.reproved, candidate.book
    if landed is None:
        return "stored = landed was not proved in this run"
    if not landed.balanced and not _accepted(landed.findings, candidate.acceptances):
        return f"stored = landed is {landed.state}"
    parsed = candidate.parsed
    if (
        parsed is not None
        and not parsed.balanced
        and not _accepted(parsed.findings, candidate.acceptances)
    ):
        return f"parsed + quarantined = landed is {parsed.state}"
    if book is None or book.window_sha256 != candidate.window.sha256:
        return "it has no book"
    if book.landing != landed.landing:
        return "it was landed again since its newest book"
    return _unaudited_reason(book, candidate.acceptances, accept_unaudited)


def _unaudited_reason(
    book: Book, acceptances: Sequence[Acceptance], accept_unaudited: bool
) -> str | None:
    produced = book.judged(Equation.PRODUCED_EQUALS_STORED)
    if produced is None:
        return "its producers' evidence was not read since its newest landing"
    if produced.balanced or (accept_unaudited and produced.state is WindowState.UNAUDITED):
        return None
    accepted = _accepted(produced.findings, acceptances)
    return None if accepted else f"produced = stored is {produced.state}"


def _decide(
    now: datetime, candidate: SweepCandidate, policy: SweepPolicy, bytes_from_here: int | None
) -> tuple[SweepAction, str]:
    if policy.compacted:
        return SweepAction.KEEP, "compacted topics are not swept"
    due = _due(now, candidate.window, policy.retention, bytes_from_here)
    if not due.now:
        return SweepAction.KEEP, due.why
    reason = unproven_reason(candidate, policy.accept_unaudited)
    if reason is not None:
        return SweepAction.HOLD, f"{due.why}, but {reason}"
    return SweepAction.DELETE, f"{due.why}, and it is proven"


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


def _accepted(findings: Sequence[Finding], acceptances: Sequence[Acceptance]) -> bool:
    matters = [f for f in findings if f.state is not None]
    return bool(matters) and all(any(a.covers(f) for a in acceptances) for f in matters)


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
