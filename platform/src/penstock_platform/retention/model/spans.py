"""A sweep's plan by partition: which offsets of the log go, which stay, and why.

Offsets that are in no window the sweep looks at are in the answer too: those in front of the
chain's beginning go with the first window, and what is behind the newest window stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_platform.kafka.model import LogBounds
from penstock_platform.retention.model.plan import Cause, SweepAction, SweepDecision
from penstock_platform.windows.model.window import Window

# What a span has for a cause where no window's decision is behind it.
NO_WINDOW = "no_window"
NOT_LOOKED_AT = "not_looked_at"
NOT_STORED = "not_stored"


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets ``start <= offset < end`` of one partition with one fate. ``first`` and ``last`` are
    the names of the windows that they are in, ``windows`` their number. ``reason`` is that of the
    first."""

    partition: int
    start: int
    end: int
    action: SweepAction
    cause: str
    reason: str
    first: str = ""
    last: str = ""
    windows: int = 0
    detail: str = ""

    @property
    def records(self) -> int:
        """Offsets: records, on topics without compaction or transactions."""
        return self.end - self.start

    @property
    def deleted(self) -> bool:
        return self.action is SweepAction.DELETE

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end


def spans_of(
    windows: Sequence[Window],
    decisions: Sequence[SweepDecision],
    ends: Sequence[Mapping[int, int]],
    bounds: Mapping[int, LogBounds],
    *,
    more: bool = False,
) -> list[Span]:
    """Every offset of the log in exactly one span, by partition and offset; a span is of one window
    at most. ``ends`` is ``ends_in_log`` of the windows; ``more``: there are windows behind them."""
    return [
        span
        for p, log in sorted(bounds.items())
        for span in _of_partition(windows, decisions, ends, p, log, more=more)
    ]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Neighbours that have the same fate for the same cause as one span."""
    found: list[Span] = []
    for span in spans:
        before = found[-1] if found else None
        if before is not None and _alike(before, span):
            found[-1] = replace(
                before,
                end=span.end,
                first=before.first or span.first,
                last=span.last or before.last,
                windows=before.windows + span.windows,
            )
        else:
            found.append(span)
    return found


def span_at(spans: Iterable[Span], partition: int, offset: int, log: LogBounds) -> Span:
    """The span of one offset, whether it is in the log or not."""
    if offset < log.start:
        gone = f"it is not in the log, which begins at {log.start:,}"
        return Span(partition, 0, log.start, SweepAction.GONE, Cause.GONE, gone)
    if offset >= log.end:
        absent = f"nothing is stored there yet: the log ends at {log.end:,}"
        return Span(partition, log.end, offset + 1, SweepAction.KEEP, NOT_STORED, absent)
    return next(s for s in spans if s.partition == partition and s.holds(offset))


def _of_partition(
    windows: Sequence[Window],
    decisions: Sequence[SweepDecision],
    ends: Sequence[Mapping[int, int]],
    partition: int,
    log: LogBounds,
    *,
    more: bool,
) -> Iterator[Span]:
    place = log.start
    for window, decision, reach in zip(windows, decisions, ends, strict=True):
        end = min(reach.get(partition, 0), log.end)
        if end <= place:
            continue
        begins = next(p.start for p in window.partitions if p.p == partition)
        if begins > place:
            yield _before_chain(partition, place, min(begins, end), decision)
            place = min(begins, end)
        if end > place:
            yield Span(
                partition,
                place,
                end,
                decision.action,
                decision.cause,
                decision.reason,
                decision.window,
                decision.window,
                1,
                decision.detail,
            )
            place = end
    if place < log.end:
        cause, reason = (NO_WINDOW, "it is in no window yet")
        if more:
            last = decisions[-1].window
            cause = NOT_LOOKED_AT
            reason = f"behind window {last}, the last of the {len(decisions)} that a sweep looks at"
        yield Span(partition, place, log.end, SweepAction.KEEP, cause, reason)


def _before_chain(partition: int, start: int, end: int, decision: SweepDecision) -> Span:
    """What was stored before the first window begins: no window will ever hold it."""
    goes = decision.action is SweepAction.DELETE
    where = f"in front of window {decision.window}, where the chain begins"
    return Span(
        partition,
        start,
        end,
        SweepAction.DELETE if goes else SweepAction.KEEP,
        NO_WINDOW,
        f"{where}; it {'goes' if goes else 'stays'} with that window",
    )


def _alike(one: Span, other: Span) -> bool:
    def fate(span: Span) -> tuple[int, SweepAction, str, str]:
        return span.partition, span.action, span.cause, span.detail

    return fate(one) == fate(other) and one.end == other.start
