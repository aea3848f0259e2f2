"""How far a window has come, by its newest book and its topic's declaration."""

from __future__ import annotations

from penstock_platform.reconciliation.model.books import Book, Equation, WindowState
from penstock_platform.topics.plan import TopicPlan


def has_result(plan: TopicPlan, book: Book | None) -> bool:
    """Whether a landing got as far as it can: a failed proof is a result too.

    Only results about the newest landing count. One that is PENDING is none: the log did not
    answer.
    """
    landed = book.judged(Equation.STORED_EQUALS_LANDED) if book is not None else None
    if book is None or landed is None or landed.state is WindowState.PENDING:
        return False
    parsed = book.judged(Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED)
    return plan.contract is None or parsed is not None or not landed.balanced
