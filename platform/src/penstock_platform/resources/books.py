"""Keeping the books: prove an equation of a window against what is there now, and archive it.

Expectations come from the window object and from producers; what is found comes from the table's
current snapshot, read by pyiceberg. The Spark job's own figures are never asked.

Run again at any time: a proof only reads, and its book supersedes the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version

from penstock_platform.domain.books import (
    Book,
    Equation,
    EquationResult,
    WindowState,
    applying,
)
from penstock_platform.domain.claims import StoredRecords
from penstock_platform.domain.clock import to_iso
from penstock_platform.domain.ranges import OffsetRange, intersect, merge, subtract
from penstock_platform.domain.reconcile import (
    LogView,
    parsed_plus_quarantined_equals_landed,
    stored_equals_landed,
)
from penstock_platform.domain.topics import TopicSpec, bronze_table
from penstock_platform.domain.windows import ChainError, Window
from penstock_platform.resources.connections import Connections
from penstock_platform.resources.evidence import EvidenceReader
from penstock_platform.resources.kafka import ClusterError
from penstock_platform.resources.recovery import noting_source
from penstock_platform.resources.silver_versions import parsed_tables
from penstock_platform.resources.truncations import lost_from_log

CODE_VERSION = version("penstock-platform")
# Findings of equation 1 whose offsets are not in bronze, so nothing can be compared there.
UNLANDED = frozenset(
    {"missing", "unjudged", "vanished", "unreadable", "retained_away", "hole", "log_truncated"}
)


class Bookkeeper:
    """Proves windows and archives what was found."""

    def __init__(self, penstock: Connections) -> None:
        self._penstock = penstock

    def newest(self, window: Window) -> Book | None:
        return self._penstock.windows.newest_book(window.ref, window.sequence)

    def landing(self, window: Window) -> str:
        """The attempt id of the window's newest bronze receipt; empty without one."""
        receipts = self._penstock.windows.receipts(
            window.ref, bronze_table(window.topic), window.sequence
        )
        return receipts[-1].attempt_id if receipts else ""

    def judge_landed(self, window: Window, spec: TopicSpec) -> tuple[EquationResult, int | None]:
        """Equation 1 against bronze's current snapshot, and that snapshot's id.

        Only where it does not come out is the log asked which of the holes are legal.
        """
        table = bronze_table(spec.name)
        landing = self.landing(window)  # before the rows: what is landed later makes this stale
        snapshot = self._penstock.lake.current_snapshot(table)
        snapshot_id = snapshot.snapshot_id if snapshot is not None else None
        landed = self._penstock.lake.offsets(table, window.window_id, snapshot_id)
        known = LogView(legal_holes=self._known_holes(window))
        result = stored_equals_landed(window, landed, known)
        if not result.balanced:
            result = stored_equals_landed(window, landed, self._log_view(window, spec, result))
        return replace(result, landing=landing), snapshot_id

    def judge_parsed(self, window: Window, spec: TopicSpec) -> EquationResult:
        """Equation 3 against the current snapshots of bronze, silver and quarantine."""
        lake = self._penstock.lake
        landing = self.landing(window)
        silver, quarantine = parsed_tables(self._penstock.windows, window, spec)
        result = parsed_plus_quarantined_equals_landed(
            lake.offsets(bronze_table(spec.name), window.window_id),
            lake.offsets(silver, window.window_id),
            lake.offsets(quarantine, window.window_id),
        )
        return replace(result, landing=landing)

    def prove_landed(self, window: Window, spec: TopicSpec) -> Book:
        result, snapshot_id = self.judge_landed(window, spec)
        snapshots = {bronze_table(spec.name): snapshot_id} if snapshot_id is not None else {}
        return self.archive(window, [result], spec, snapshots=snapshots)

    def prove_parsed(self, window: Window, spec: TopicSpec) -> Book:
        return self.archive(window, [self.judge_parsed(window, spec)], spec)

    def prove_produced(self, window: Window, spec: TopicSpec) -> Book:
        """Equation 2: what producers say against what is stored, which bronze holds (equation 1
        names what it does not)."""
        landing = self.landing(window)
        landed = self.newest(window)
        first = landed.result(Equation.STORED_EQUALS_LANDED) if landed is not None else None
        findings = first.findings if first is not None else ()
        unlanded = [r for f in findings if f.kind in UNLANDED for r in f.ranges]
        reader = EvidenceReader(
            self._penstock.kafka,
            self._penstock.windows,
            self._penstock.clock,
            self._penstock.lake.values,
        )
        result, evidence = reader.judge(window, spec, self._stored, unlanded)
        return self.archive(window, [replace(result, landing=landing)], spec, evidence=evidence)

    def archive(
        self,
        window: Window,
        results: Iterable[EquationResult],
        spec: TopicSpec | None = None,
        *,
        snapshots: dict[str, int] | None = None,
        evidence: dict[str, int | str] | None = None,
    ) -> Book:
        """Write the book of these results; equations not judged now are taken over.

        Books that two processes make at once merge: whichever comes second takes over what the
        first found. Without ``spec`` the equations that apply are those of the book before.
        """
        store = self._penstock.windows
        judged = [noting_source(self._penstock, window, result) for result in results]

        def make(earlier: Book | None) -> Book:
            return Book.of(
                window,
                judged,
                made_at=to_iso(self._penstock.clock.now()),
                code_version=CODE_VERSION,
                applies=applying(contract=spec.contract is not None) if spec else None,
                landing=self.landing(window),
                snapshots=snapshots,
                evidence=evidence,
                acceptances=store.acceptances(window.ref, window.sequence),
                earlier=earlier,
            )

        return store.merge_book(window, make)

    def _stored(
        self, windows: Sequence[Window], wanted: Sequence[OffsetRange]
    ) -> Mapping[int, StoredRecords]:
        if not any(len(r) for r in wanted):
            return {}
        from penstock_platform.spark.stored import stored_records  # noqa: PLC0415 - pyspark

        with self._penstock.spark.tagged(f"penstock/books/{windows[-1].window_id}", "") as spark:
            return stored_records(spark, windows, wanted)

    def _known_holes(self, window: Window) -> tuple[OffsetRange, ...]:
        """The offsets of this very window that a book says hold no record."""
        book = self.newest(window)
        result = book.result(Equation.STORED_EQUALS_LANDED) if book is not None else None
        if book is None or result is None or book.window_sha256 != window.sha256:
            return ()
        return result.legal

    def _log_view(self, window: Window, spec: TopicSpec, result: EquationResult) -> LogView:
        """What the log says of the window's offsets that were not found. The judgement does not
        wait for the broker: without its answer they are not judged."""
        doubtful = [r for f in result.findings if f.kind == "missing" for r in f.ranges]
        log_starts: dict[int, int] = {}
        legal = result.legal
        cut: tuple[OffsetRange, ...] = ()
        unanswered = ""
        try:
            offsets = self._penstock.kafka.offsets(spec.name)
            cut = lost_from_log(self._penstock, window, offsets)
            log_starts = {p: o.log_start for p, o in offsets.items()}
            held = [OffsetRange(p, o.log_start, o.last_stable) for p, o in offsets.items()]
            asked = intersect(doubtful, subtract(held, cut))  # other records stand where it was cut
            legal = merge((*legal, *self._penstock.kafka.unread_offsets(spec.name, asked)))
        except (ClusterError, ChainError) as error:
            unanswered = str(error)
        return LogView(
            log_starts=log_starts,
            legal_holes=legal,
            compacted=spec.compacted,
            unanswered=unanswered,
            cut=cut,
        )


def result_of(book: Book, equation: Equation) -> EquationResult:
    """The book's result of an equation. Raises LookupError when it was never judged."""
    found = book.result(equation)
    if found is None:
        raise LookupError(f"window {book.window} of {book.topic}: {equation} was never judged")
    return found


def changed(before: Book | None, result: EquationResult) -> bool:
    """Whether this result says anything that the newest book does not."""
    known = before.result(result.equation) if before is not None else None
    return known is None or (known.state, known.findings, known.landing) != (
        result.state,
        result.findings,
        result.landing,
    )


def settled(book: Book | None) -> bool:
    """Whether nothing more is due for the window: no evidence, no landing, no proof."""
    return book is not None and book.state not in (
        WindowState.FROZEN,
        WindowState.LANDED,
        WindowState.PENDING,
    )
