"""Which damaged windows are landed again without a person: ``heal: auto`` of a topic's declaration.

Only what a landing repairs: rows that are missing in a table, doubled, altered, or in files that
cannot be read. What neither the log nor a snapshot has is named by the alert, and left alone.

Never a loop: since a window was last without damage, it is landed at most ``HEALS_MAX`` times, at
growing intervals. Runs that ended for something outside (Spark, the store or the broker was away)
do not count, but wait as long as any landing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from penstock_platform.landing.model.retries import (
    Action,
    Attempt,
    Cause,
    Decision,
    pause_after,
)
from penstock_platform.reconciliation.model.books import Book, Equation, EquationResult
from penstock_platform.reconciliation.model.recovery import DAMAGE, rerun_helps

HEALS_MAX = 3
# After a landing that did not help, the cause of the damage may take a while to end.
PAUSES = (timedelta(0), timedelta(minutes=5), timedelta(hours=1))
LAKE_EQUATIONS = (
    Equation.STORED_EQUALS_LANDED,
    Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED,
)


def repairable(book: Book) -> tuple[EquationResult, ...]:
    """The results of a book that are damage, not accepted, and repaired by landing again."""
    results = (book.result(equation) for equation in LAKE_EQUATIONS)
    return tuple(
        result
        for result in results
        if result is not None
        and result.state in DAMAGE
        and not book.accepts(result.equation)
        and rerun_helps(result, result.findings)
    )


def sound_since(books: Sequence[Book]) -> str:
    """When the window was last without such damage (ISO 8601, UTC), by its books, oldest first;
    empty where it never was."""
    return next((book.made_at for book in reversed(books) if not repairable(book)), "")


def decide_heal(attempts: Sequence[Attempt], now: datetime) -> Decision:
    """What becomes of a damaged window, by the healing runs since it was sound, newest first."""
    ended = [a for a in attempts if not a.under_way(now)]
    error = ended[0].error if ended else ""
    if len(ended) < len(attempts):
        return Decision(Action.UNDER_WAY, len(ended), error=error)
    if not ended:
        return Decision(Action.START)
    counted = [a for a in ended if a.cause is not Cause.OUTSIDE]
    if len(counted) >= HEALS_MAX:
        return Decision(Action.ABANDONED, len(ended), error=error)
    outside = len(ended) - len(counted)
    pause = max(PAUSES[len(counted)], pause_after(outside))
    until = ended[0].ended_at() + pause
    action = Action.START if now >= until else Action.PAUSE
    return Decision(action, len(ended), until if action is Action.PAUSE else None, error)
