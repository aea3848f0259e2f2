"""Windows, their books and re-runs as documents: what ``-o json`` prints, and the tables show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock_platform.cli.console import CommandError
from penstock_platform.cli.project import Connections
from penstock_platform.cli.reruns import Rerun
from penstock_platform.kafka.model import TopicRef
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import Book, state_on
from penstock_platform.reconciliation.model.recovery import rerun_sentence
from penstock_platform.reconciliation.model.recreation import LostTopic
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore, window_uri


def windows_of(penstock: Connections, ref: TopicRef, last: int) -> list[Window]:
    """The newest ``last`` windows of a chain, oldest first; all of them for 0."""
    return (
        WindowStore.of(penstock).recent(ref, last)
        if last
        else list(WindowStore.of(penstock).all(ref))
    )


def summary(penstock: Connections, window: Window) -> dict[str, Any]:
    """One window in a line: tiers, state, and whether the log still has it."""
    book = BookStore.of(penstock).newest_book(window.ref, window.sequence)
    tiers = book.tiers if book is not None else {}
    from penstock_platform.reconciliation.books import Bookkeeper  # noqa: PLC0415 - pyiceberg

    state = state_on(book, Bookkeeper(penstock).landing(window))
    retired = BookStore.of(penstock).retired(window.ref, window.sequence)
    return {
        "topic": window.topic,
        "window": window.name,
        "sequence": window.sequence,
        "topic_id": window.topic_id,
        "produced": tiers.get("produced"),
        "stored": window.record_count,
        "landed": tiers.get("landed"),
        "parsed": tiers.get("parsed"),
        "quarantined": tiers.get("quarantined"),
        "state": str(state),
        "unjudged": list(book.unjudged) if book is not None else [],
        "proven_at": book.proven_at if book is not None else "",
        "retired": retired,
        "closed_at": window.closed_at,
    }


def find(penstock: Connections, ref: TopicRef, name: str) -> Window:
    """The window of a key, ``<key>#<part>`` or sequence. Raises CommandError naming the nearest
    that there are, or all windows of the key where it has several."""
    windows = find_all(penstock, ref, name)
    if len(windows) == 1:
        return windows[0]
    names = f"{windows[0].name} to {windows[-1].name}"
    raise CommandError(
        f"{ref.topic}: {name} has {len(windows)} windows", fix=f"name one of {names}"
    )


def find_all(penstock: Connections, ref: TopicRef, name: str) -> list[Window]:
    """The windows of a name, at least one. Raises CommandError naming the nearest there are."""
    windows = WindowStore.of(penstock).named(ref, name)
    if windows:
        return windows
    recent = ", ".join(w.name for w in WindowStore.of(penstock).recent(ref, 3)) or "none"
    raise CommandError(f"{ref.topic} has no window {name}", fix=f"its newest are: {recent}")


def details(penstock: Connections, window: Window) -> dict[str, Any]:
    """A window, its receipts and its books, ready for JSON."""
    ref, sequence = window.ref, window.sequence
    receipts = BookStore.of(penstock).receipts(ref, bronze_table(window.topic), sequence)
    return {
        **summary(penstock, window),
        "window_id": window.window_id,
        "sha256": window.sha256,
        "object": window_uri(penstock, window),
        "frozen_at": window.frozen_at,
        "ranges": [
            {"partition": r.partition, "start": r.start, "end": r.end} for r in window.ranges
        ],
        "receipts": [
            {
                "attempt": r.attempt_id,
                "snapshot": r.snapshot_id,
                "rows": r.rows,
                "digest": r.digest,
                "seconds": r.seconds,
                "landed_at": r.landed_at,
            }
            for r in receipts
        ],
        "books": [book_summary(b) for b in BookStore.of(penstock).books(ref, sequence)],
        "acceptances": [
            {"by": a.by, "reason": a.reason, "accepted_at": a.accepted_at}
            for a in BookStore.of(penstock).acceptances(ref, sequence)
        ],
    }


def book_summary(book: Book) -> dict[str, Any]:
    return {
        "made_at": book.made_at,
        "state": str(book.state),
        "tiers": book.tiers,
        "equations": [
            {
                "equation": str(r.equation),
                "state": str(r.state),
                "expected": r.expected,
                "found": r.found,
                "rerun_from": rerun_sentence(r),
                "findings": [
                    {
                        "kind": f.kind,
                        "records": f.count,
                        "ranges": [[x.partition, x.start, x.end] for x in f.ranges],
                        "incarnation": f.incarnation,
                        "detail": f.detail,
                    }
                    for f in r.findings
                ],
            }
            for r in book.equations
        ],
    }


def rerun_summary(penstock: Connections, done: Rerun, window: Window) -> dict[str, Any]:
    """One window that was landed again: its state by the newest book, and what kept the run."""
    return {
        **summary(penstock, window),
        "run": done.run_id,
        "url": done.url,
        "status": done.outcome.status if done.outcome is not None else "",
        "problem": done.problem,
    }


def lost_document(lost: LostTopic | None) -> dict[str, Any] | None:
    """What a recreated topic took with it, ready for JSON."""
    if lost is None:
        return None

    def spans(ranges: Sequence[OffsetRange]) -> list[list[int]]:
        return [[r.partition, r.start, r.end] for r in ranges]

    return {
        "records": lost.lost,
        "unlanded": spans(lost.unlanded),
        "unfrozen": spans(lost.unfrozen),
        "safe_in_bronze": lost.safe,
        "last_window": lost.last_window,
    }
