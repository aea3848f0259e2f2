"""Keeping the books: prove an equation of a window against what is there now, and archive it.

Expectations come from the window object and from producers; what is found comes from the table's
current snapshot, read by pyiceberg. The Spark job's own figures are never asked.

Run again at any time: a proof only reads, and its book supersedes the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version

from penstock_platform.clock import to_iso
from penstock_platform.connections import Connections
from penstock_platform.extras import require_extra
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.lake.spark_connect import SparkUnavailableError
from penstock_platform.ranges import OffsetRange, intersect, merge, subtract
from penstock_platform.reconciliation.confirmation import ClaimReader
from penstock_platform.reconciliation.evidence import EvidenceReader
from penstock_platform.reconciliation.model.books import (
    Book,
    Equation,
    EquationResult,
    applying,
)
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.model.equations import LogView
from penstock_platform.reconciliation.recovery import noting_source
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.reconciliation.stored import stored_rows
from penstock_platform.reconciliation.table_views import ABSENT, Judged, Prover
from penstock_platform.topics.model.declaration import TopicSpec, bronze_table
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.store import WindowStore
from penstock_platform.windows.truncations import lost_from_log

CODE_VERSION = version("penstock-platform")
# Windows of so many records together are read by this process; a Spark job takes 0.3 s at least.
RECORDS_HERE_MAX = 50_000


class Bookkeeper:
    """Proves windows and archives what was found."""

    def __init__(self, penstock: Connections) -> None:
        self._penstock = penstock
        self._prover = Prover(penstock, self._log_view, self._corrupt_claims)

    def newest(self, window: Window) -> Book | None:
        return BookStore.of(self._penstock).newest_book(window.ref, window.sequence)

    def landing(self, window: Window) -> str:
        """The attempt id of the window's newest bronze receipt; empty without one."""
        receipts = BookStore.of(self._penstock).receipts(
            window.ref, bronze_table(window.topic), window.sequence
        )
        return receipts[-1].attempt_id if receipts else ""

    def judge_landed(self, window: Window, spec: TopicSpec) -> Judged:
        """Equation 1 against bronze as it is now, coordinates and content."""
        return self._prover.landed(window, spec)

    def judge_parsed(self, window: Window, spec: TopicSpec) -> Judged:
        """Equation 3 against bronze, silver and quarantine as they are now."""
        return self._prover.parsed(window, spec)

    def prove_landed(self, window: Window, spec: TopicSpec) -> Book:
        return self.archive_judged(window, [self.judge_landed(window, spec)], spec)

    def prove_parsed(self, window: Window, spec: TopicSpec) -> Book:
        return self.archive_judged(window, [self.judge_parsed(window, spec)], spec)

    def archive_judged(self, window: Window, judged: Sequence[Judged], spec: TopicSpec) -> Book:
        """The book of equations that were judged by reading the tables."""
        return self.archive(
            window,
            [j.result for j in judged],
            spec,
            snapshots={t: s for j in judged for t, s in j.snapshots.items()},
            proofs={t: p for j in judged for t, p in j.proofs.items()},
        )

    def prove_produced(self, window: Window, spec: TopicSpec) -> Book:
        """Equation 2: what producers say against what is stored, which bronze holds (equation 1
        names what it does not)."""
        landing = self.landing(window)
        landed = self.newest(window)
        first = landed.result(Equation.STORED_EQUALS_LANDED) if landed is not None else None
        findings = first.findings if first is not None else ()
        unlanded = [r for f in findings if f.kind in ABSENT for r in f.ranges]
        result, evidence = self._evidence().judge(
            window, spec, self._stored, unlanded, self._claims_of(window)
        )
        return self.archive(window, [replace(result, landing=landing)], spec, evidence=evidence)

    def archive(
        self,
        window: Window,
        results: Iterable[EquationResult],
        spec: TopicSpec | None = None,
        *,
        snapshots: dict[str, int] | None = None,
        proofs: dict[str, dict[str, str | int]] | None = None,
        evidence: dict[str, int | str] | None = None,
    ) -> Book:
        """Write the book of these results; equations not judged now are taken over.

        Books that two processes make at once merge: whichever comes second takes over what the
        first found. Without ``spec`` the equations that apply are those of the book before.
        """
        store = BookStore.of(self._penstock)
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
                proofs=proofs,
                evidence=evidence,
                acceptances=store.acceptances(window.ref, window.sequence),
                earlier=earlier,
            )

        return store.merge_book(window, make)

    def _evidence(self) -> EvidenceReader:
        return EvidenceReader(
            self._penstock.kafka,
            WindowStore.of(self._penstock),
            BookStore.of(self._penstock),
            self._penstock.clock,
            self._penstock.lake.values,
        )

    def _corrupt_claims(self, window: Window, spec: TopicSpec) -> Sequence[OffsetRange]:
        """Offsets whose producers acknowledged other records than those in bronze; none where
        producers' events cannot be read now."""
        try:
            result, _ = self._evidence().judge(
                window, spec, self._stored, large=self._claims_of(window)
            )
        except (ClusterError, SparkUnavailableError):
            return ()
        return [r for f in result.findings if f.kind == "corrupt" for r in f.ranges]

    def _claims_of(self, window: Window) -> Callable[[], ClaimReader]:
        """Opens what looks at the records of a large window."""

        def opened() -> ClaimReader:
            require_extra("pyspark")
            from penstock_platform.reconciliation.spark_stored import SparkClaims  # noqa: PLC0415

            return SparkClaims(self._penstock.spark, f"penstock/books/{window.window_id}")

        return opened

    def _stored(
        self, windows: Sequence[Window], wanted: Sequence[OffsetRange]
    ) -> Mapping[int, StoredRecords]:
        if not any(len(r) for r in wanted):
            return {}
        if sum(window.record_count for window in windows) <= RECORDS_HERE_MAX:
            return stored_rows(self._penstock.lake, windows, wanted)
        require_extra("pyspark")
        from penstock_platform.reconciliation.spark_stored import stored_records  # noqa: PLC0415 - pyspark

        with self._penstock.spark.tagged(f"penstock/books/{windows[-1].window_id}", "") as spark:
            return stored_records(spark, windows, wanted)

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
            # Where it was cut there are other records.
            asked = intersect(doubtful, subtract(held, cut))
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
