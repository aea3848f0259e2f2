"""Whether a window is proven well enough to be deleted from the log, or what it lacks.

Proof means proof in this run, against the table's present snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_platform.reconciliation.model.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.windows.model.window import Window


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


def _accepted(findings: Sequence[Finding], acceptances: Sequence[Acceptance]) -> bool:
    matters = [f for f in findings if f.state is not None]
    return bool(matters) and all(any(a.covers(f) for a in acceptances) for f in matters)
