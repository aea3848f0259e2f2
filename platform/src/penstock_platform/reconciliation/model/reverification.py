"""Rolling re-verification: which windows a pass looks at, and what it records.

A pass looks at the newest windows, at every window that does not balance, and at a share of the
older ones, newest first, until the repair horizon; the next pass continues from there. So every
window within the horizon is looked at once a round, at a declared pace. A pass writes one object
per topic (format v1, canonical JSON), in which ``proven`` says for every window when it was last
proven.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from penstock_platform.archive.model import canonical

PROOF_VERSION = 1
# Windows that do not balance are looked at in every pass; of more than these the newest.
OPEN_MAX = 200
# Spans of ``proven``; beyond this the oldest are joined, with the earlier of their times.
SPANS_MAX = 500


class ProofFormatError(ValueError):
    """A proof object that cannot be read: says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """Windows ``first <= sequence < end`` were last proven at ``at`` (ISO 8601, UTC)."""

    first: int
    end: int
    at: str


@dataclass(frozen=True, slots=True)
class ProofPass:
    """What one pass left. ``cursor``: the window before which the next pass continues, 0 for a new
    round. ``open``: windows that do not balance or could not be proven, sorted."""

    at: str
    cursor: int = 0
    proven: tuple[Span, ...] = ()
    open: tuple[int, ...] = ()
    v: int = PROOF_VERSION

    def proven_at(self, sequence: int) -> str:
        """When the window was last proven; empty when no pass did."""
        return next((s.at for s in self.proven if s.first <= sequence < s.end), "")

    def to_bytes(self) -> bytes:
        return canonical(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> ProofPass:
        """Raises ProofFormatError for anything but a whole v1."""
        try:
            raw = json.loads(data)
            if raw["v"] != PROOF_VERSION:
                raise ProofFormatError(f"proof version {raw['v']}: this code reads 1")
            proven = tuple(Span(**span) for span in raw.pop("proven"))
            return cls(proven=proven, open=tuple(raw.pop("open")), **raw)
        except (KeyError, TypeError, ValueError) as error:
            raise ProofFormatError(f"not a proof: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Pace:
    """Per pass and topic: ``recent`` newest windows, ``older`` windows of the round."""

    recent: int
    older: int


def choose(
    last: ProofPass | None, newest: int, floor: int, pace: Pace
) -> tuple[tuple[int, ...], int]:
    """The windows of the next pass, newest first, and the cursor that it leaves.

    ``newest`` is the chain's last sequence, ``floor`` the first within the repair horizon. Windows
    that do not balance are among them whatever their age.
    """
    recent = range(newest, max(-1, newest - pace.recent), -1)
    behind = max(0, newest - pace.recent + 1)
    begin = last.cursor if last is not None and floor < last.cursor <= behind else behind
    end = max(floor, begin - pace.older)
    open_ = [s for s in (last.open if last is not None else ()) if s <= newest]
    chosen = {*recent, *open_[-OPEN_MAX:], *range(end, begin)}
    return tuple(sorted(chosen, reverse=True)), end if end > floor else 0


def following(
    last: ProofPass | None,
    *,
    at: str,
    cursor: int,
    proven: Iterable[int],
    failed: Iterable[int],
) -> ProofPass:
    """The pass after ``last``: ``proven`` were proven at ``at``, ``failed`` do not balance or could
    not be looked at; all others stay as they were."""
    good, bad = sorted(set(proven)), set(failed)
    kept = set(last.open if last is not None else ()) - set(good)
    spans = [*(last.proven if last is not None else ())]
    for first, end in _runs(good):
        spans = [part for span in spans for part in _without(span, first, end)]
        spans.append(Span(first, end, at))
    return ProofPass(
        at=at,
        cursor=cursor,
        proven=_bounded(_joined(sorted(spans, key=lambda s: s.first))),
        open=tuple(sorted(kept | bad))[-OPEN_MAX:],
    )


def _runs(sequences: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for n in sequences:
        if runs and runs[-1][1] == n:
            runs[-1] = (runs[-1][0], n + 1)
        else:
            runs.append((n, n + 1))
    return runs


def _without(span: Span, first: int, end: int) -> list[Span]:
    parts = [
        Span(span.first, min(span.end, first), span.at),
        Span(max(span.first, end), span.end, span.at),
    ]
    return [p for p in parts if p.first < p.end]


def _joined(spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is not None and (last.end, last.at) == (span.first, span.at):
            joined[-1] = Span(last.first, span.end, span.at)
        else:
            joined.append(span)
    return joined


def _bounded(spans: list[Span]) -> tuple[Span, ...]:
    """Neighbours joined from the oldest window on, each with the earlier of the two times. A gap
    between two is no window that was proven, so the first one is given up instead."""
    while len(spans) > SPANS_MAX:
        first, second = spans[0], spans[1]
        if first.end == second.first:
            spans[:2] = [Span(first.first, second.end, min(first.at, second.at))]
        else:
            del spans[0]
    return tuple(spans)
