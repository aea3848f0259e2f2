"""Judging a window's rows in the lake: coordinates and content, against window and receipts.

Bronze answers for equation 1, silver and quarantine for equation 3. The rows of a table are what
its receipt says when their digest is the receipt's. Where it is not, they are compared row by row
with a snapshot that still proves (time travel), so that the altered offsets are exact; without one
producers' claims narrow them down (bronze), and else the whole window is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock_platform.connections import Connections
from penstock_platform.lake.model.rows import altered_rows
from penstock_platform.ranges import (
    OffsetRange,
    intersect,
    merge,
    subtract,
)
from penstock_platform.reconciliation.model.books import Equation, EquationResult
from penstock_platform.reconciliation.model.equations import (
    LogView,
    TableView,
    parsed_plus_quarantined_equals_landed,
    stored_equals_landed,
)
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.model.recovery import SourceKind, choose_source
from penstock_platform.reconciliation.recovery import kept_snapshots
from penstock_platform.reconciliation.silver_versions import parsed_tables
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import TopicSpec, bronze_table
from penstock_platform.windows.model.window import Window

if TYPE_CHECKING:  # the command line imports this, and loads no pyiceberg for a type
    from penstock_platform.lake.content import WindowContent

# Findings of equation 1 whose offsets are not in bronze.
ABSENT = frozenset(
    {"missing", "retained_away", "vanished", "unreadable", "unjudged", "hole", "log_truncated"}
)
AskLog = Callable[[Window, TopicSpec, EquationResult], LogView]
# The offsets of a window whose producers' claims have another digest than what is stored.
AskClaims = Callable[[Window, TopicSpec], Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Judged:
    """An equation judged by reading the tables. ``snapshots`` by table; ``proofs`` by table what
    was read (see ``Book.proofs``)."""

    result: EquationResult
    snapshots: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, dict[str, str | int]] = field(default_factory=dict)


class Prover:
    """Reads a window's rows and judges equations 1 and 3. Raises StoreError, LakeError and
    ArchiveError where lake or archive cannot be asked: that proves nothing."""

    def __init__(self, penstock: Connections, log: AskLog, claims: AskClaims) -> None:
        self._penstock = penstock
        self._log = log
        self._claims = claims

    def landed(self, window: Window, spec: TopicSpec) -> Judged:
        """Equation 1 against bronze's current snapshot.

        Only where it does not come out is the log asked which of the holes are legal.
        """
        table = bronze_table(spec.name)
        receipts = self._receipts(table, window)  # before the rows: later landings make it stale
        content = self._penstock.lake.content(table, window.window_id)
        known = LogView(legal_holes=self._known_holes(window))
        result = stored_equals_landed(window, content.coverage, known)
        if not result.balanced or not _proves(content, receipts):
            view = self._view(table, window, receipts, content, whole=result.balanced)
            if view.altered and not view.why:
                claimed = intersect(self._claims(window, spec), view.altered)
                view = replace(
                    view,
                    altered=claimed or view.altered,
                    why="claims of producers have another digest" if claimed else NARROWEST,
                )
            view = replace(view, proven=self._proven(window) if not result.balanced else ())
            log = self._log(window, spec, result) if not result.balanced else known
            result = stored_equals_landed(window, content.coverage, log, view)
            if result.balanced and not _proves(content, receipts):
                # Every row is as it was, and their sum is not.
                view = replace(view, unjudged=(_unexplained(table),))
                result = stored_equals_landed(window, content.coverage, log, view)
        return _judged(replace(result, landing=_attempt(receipts)), {table: content})

    def parsed(self, window: Window, spec: TopicSpec) -> Judged:
        """Equation 3 against the current snapshots of bronze, silver and quarantine."""
        bronze, lake = bronze_table(spec.name), self._penstock.lake
        landings = self._receipts(bronze, window)
        landed = lake.content(bronze, window.window_id)
        contents: dict[str, WindowContent] = {}
        views: list[TableView] = []
        unproven: list[str] = []
        for table in parsed_tables(BookStore.of(self._penstock), window, spec):
            receipts = self._receipts(table, window)
            content = lake.content(table, window.window_id)
            contents[table] = content
            if not _proves(content, receipts):
                unproven.append(table)
            whole = not content.unreadable
            within = landed.coverage.ranges()
            view = self._view(table, window, receipts, content, whole=whole, moved=within)
            views.append(view)
            views += _other_landing(table, receipts, landings)
        if landed.unreadable:
            said = f"landed rows cannot be read: {'; '.join(sorted(landed.unreadable))}"
            views.append(TableView(unjudged=(said,)))
        good, bad = (content.coverage for content in contents.values())
        rows = landed.coverage
        result = parsed_plus_quarantined_equals_landed(rows, good, bad, _joined(views))
        if result.balanced and unproven:
            views.append(TableView(unjudged=tuple(map(_unexplained, unproven))))
            result = parsed_plus_quarantined_equals_landed(rows, good, bad, _joined(views))
        return _judged(replace(result, landing=_attempt(landings)), contents)

    # --- inside -------------------------------------------------------------------------------

    def _receipts(self, table: str, window: Window) -> list[Receipt]:
        found = BookStore.of(self._penstock).receipts(window.ref, table, window.sequence)
        return [r for r in found if r.window_sha256 == window.sha256]

    def _view(
        self,
        table: str,
        window: Window,
        receipts: Sequence[Receipt],
        content: WindowContent,
        *,
        whole: bool,
        moved: Sequence[OffsetRange] = (),
    ) -> TableView:
        """How the rows' content differs from the receipt's. ``whole``: all rows are there. A row
        at one of the offsets ``moved`` that the receipt's snapshot does not have is altered too."""
        view = TableView(unreadable=content.unreadable)
        if _proves(content, receipts):
            return view
        if not receipts or not receipts[-1].digest:
            lack = "no receipt says" if not receipts else "the receipt does not say"
            said = f"{table}: {lack} what the content of the rows is to be"
            return replace(view, unjudged=(said,))
        reference = self._reference(table, window, receipts)
        if reference is not None:
            return self._beside(reference, table, window, content, moved)
        if not content.count:
            return view  # there is no content: what is absent says all
        if not whole:
            said = f"{table}: no kept snapshot proves the content of the rows that are there"
            return replace(view, unjudged=(said,))
        return replace(view, altered=content.coverage.ranges())

    def _reference(
        self, table: str, window: Window, receipts: Sequence[Receipt]
    ) -> WindowContent | None:
        """The window's rows as a receipt has them, from a snapshot that is kept."""
        read: dict[int, WindowContent | None] = {}

        def digest_of(snapshot_id: int) -> str | None:
            content = self._penstock.lake.content_at(table, window.window_id, snapshot_id)
            read[snapshot_id] = content
            return content.digest if content is not None and not content.unreadable else None

        newest = [receipts[-1]]
        kept = kept_snapshots(self._penstock, table, window)
        source = choose_source(window.ranges, newest, kept, digest_of)
        if source.kind is not SourceKind.SNAPSHOT or source.snapshot_id is None:
            return None
        return read[source.snapshot_id]

    def _beside(
        self,
        reference: WindowContent,
        table: str,
        window: Window,
        content: WindowContent,
        moved: Sequence[OffsetRange],
    ) -> TableView:
        """How the rows' content differs from that of a snapshot which proves."""
        view = TableView(unreadable=content.unreadable)
        if content.rows is not None and reference.rows is not None:
            altered: Sequence[OffsetRange] | None = altered_rows(content.rows, reference.rows)
        elif content.unreadable or reference.snapshot_id is None or content.snapshot_id is None:
            altered = None
        else:
            altered = self._penstock.lake.altered(
                table, window.window_id, reference.snapshot_id, content.snapshot_id
            )
        if altered is None:
            return replace(view, unjudged=(f"{table}: {TOO_LARGE}",))
        added = subtract(content.coverage.ranges(), reference.coverage.ranges())
        return replace(
            view,
            altered=merge([*altered, *intersect(added, moved)]),
            why=f"{table}: another content than in snapshot {reference.snapshot_id}, which its "
            "receipt proves",
        )

    def _known_holes(self, window: Window) -> tuple[OffsetRange, ...]:
        """The offsets of this very window that a book says hold no record."""
        book = BookStore.of(self._penstock).newest_book(window.ref, window.sequence)
        result = book.result(Equation.STORED_EQUALS_LANDED) if book is not None else None
        if book is None or result is None or book.window_sha256 != window.sha256:
            return ()
        return result.legal

    def _proven(self, window: Window) -> tuple[OffsetRange, ...]:
        """The offsets of which an earlier book found the rows."""
        proven: tuple[OffsetRange, ...] = ()
        for book in BookStore.of(self._penstock).books(window.ref, window.sequence):
            first = book.result(Equation.STORED_EQUALS_LANDED)
            if first is not None and book.window_sha256 == window.sha256:
                absent = [r for f in first.findings if f.kind in ABSENT for r in f.ranges]
                proven = merge([*proven, *subtract(window.ranges, absent)])
        return proven


TOO_LARGE = "too many rows to compare one by one while a file of theirs cannot be read"
NARROWEST = "other content than the receipt's; no kept snapshot and no claim says which of them"


def _proves(content: WindowContent, receipts: Sequence[Receipt]) -> bool:
    """Whether the rows are those of the newest receipt; no rows need none."""
    if content.unreadable:
        return False
    if not receipts:
        return not content.count
    return receipts[-1].digest == content.digest and receipts[-1].rows == content.count


def _other_landing(
    table: str, receipts: Sequence[Receipt], landings: Sequence[Receipt]
) -> list[TableView]:
    """Whether the table was parsed from a landing with another content than the newest one's."""
    if not receipts or not landings:
        return []
    parsed_at = receipts[-1].landed_at
    before = [r for r in landings if r.landed_at <= parsed_at] or landings[:1]
    if before[-1].digest == landings[-1].digest:
        return []
    said = f"{table} was parsed from an older landing, whose rows had another content"
    return [TableView(unjudged=(said,))]


def _unexplained(table: str) -> str:
    return f"{table}: another content than the receipt's, and no row says which"


def _joined(views: Sequence[TableView]) -> TableView:
    return TableView(
        unreadable={file: ranges for v in views for file, ranges in v.unreadable.items()},
        altered=merge(r for v in views for r in v.altered),
        why="; ".join(dict.fromkeys(v.why or NARROWEST for v in views if v.altered)),
        unjudged=tuple(dict.fromkeys(said for v in views for said in v.unjudged)),
    )


def _judged(result: EquationResult, contents: Mapping[str, WindowContent]) -> Judged:
    return Judged(
        result,
        {t: c.snapshot_id for t, c in contents.items() if c.snapshot_id is not None},
        {
            t: {"files": c.fingerprint, "digest": c.digest, "rows": c.count}
            for t, c in contents.items()
        },
    )


def _attempt(receipts: Sequence[Receipt]) -> str:
    return receipts[-1].attempt_id if receipts else ""
