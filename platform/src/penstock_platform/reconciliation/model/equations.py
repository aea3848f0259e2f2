"""The equations that hold between the log and the lake, as pure functions.

Expectations come from the window object, never from the data under test; answers are exact ranges,
never a ratio. As many records lost as duplicated is MIXED, not balanced. What is in a table is
given as ``Coverage``: no more than its gaps and repetitions are held, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.ranges import (
    OffsetRange,
    Spans,
    by_partition,
    count,
    intersect,
    merge,
    subtract,
)
from penstock_platform.reconciliation.model.books import (
    Equation,
    EquationResult,
    Finding,
    state_of_findings,
)
from penstock_platform.windows.model.window import Window

VANISHED = "proven once, vanished from the table since, and the log no longer has them"


@dataclass(frozen=True, slots=True)
class LogView:
    """What is known of the log beside the window; everything but the window is optional.

    ``log_starts``: the log's first offsets now. ``legal_holes``: offsets of control batches and
    aborted transactions, which no consumer is ever given. ``compacted``: other holes prove nothing.
    ``unanswered``: why the log could not be asked for them; empty where it was, or need not be.
    ``cut``: offsets of the window that the log lost after it was frozen, being cut below them.
    """

    log_starts: Mapping[int, int] | None = None
    legal_holes: Sequence[OffsetRange] = ()
    compacted: bool = False
    unanswered: str = ""
    cut: Sequence[OffsetRange] = ()


@dataclass(frozen=True, slots=True)
class TableView:
    """What is known of the table beside the offsets that could be read.

    ``unreadable``: by data file that cannot be read, the offsets that may be in it. ``proven``:
    offsets of which an earlier book found the rows. ``altered``: offsets whose rows have another
    content than the receipt's, and ``why`` the offsets are these. ``unjudged``: what could not be
    judged, in sentences.
    """

    unreadable: Mapping[str, Sequence[OffsetRange]] = field(default_factory=dict)
    proven: Sequence[OffsetRange] = ()
    altered: Sequence[OffsetRange] = ()
    why: str = ""
    unjudged: Sequence[str] = ()

    def findings(self, missing: Sequence[OffsetRange]) -> list[Finding]:
        """Findings about the rows' content, and which of the missing offsets are unreadable."""
        found: list[Finding | None] = []
        left = merge(missing)
        for file, ranges in sorted(self.unreadable.items()):
            found.append(_finding("unreadable", intersect(left, ranges), file))
            left = subtract(left, ranges)
        found.append(_finding("altered", self.altered, self.why))
        found += [Finding("unjudged", (), detail=sentence) for sentence in self.unjudged]
        return [f for f in found if f is not None]


def stored_equals_landed(
    window: Window,
    landed: Coverage,
    log: LogView | None = None,
    table: TableView | None = None,
) -> EquationResult:
    """Equation 1: every offset of the window's ranges is in the table once, and nothing else is.

    A missing offset that may be in a data file that cannot be read is ``unreadable``. One below
    the log's present start is ``vanished`` where an earlier book found its row, else
    ``retained_away``: the broker cannot bring either back. A missing offset above it is
    ``missing``: a re-run can; where the log did not answer whether it holds a record there at
    all, it is ``unjudged``. ``log_truncated``: it was there once, and the log lost it when it was
    cut (an unclean election, a disk put back from a copy). Rows with another content than the
    receipt's are ``altered``.
    """
    log, table = log or LogView(), table or TableView()
    legal = merge(log.legal_holes)
    missing: list[OffsetRange] = []
    duplicate: list[OffsetRange] = []
    outside: list[OffsetRange] = []
    for r in window.ranges:
        whole, found = Spans.of([(r.start, r.end)]), landed.there(r.partition)
        missing += whole.minus(found).ranges(r.partition)
        outside += found.minus(whole).ranges(r.partition)
        duplicate += landed.repeated(r.partition).both(whole).ranges(r.partition)
    for partition in landed.partitions - {r.partition for r in window.ranges}:
        outside += landed.there(partition).ranges(partition)
    lost = subtract(missing, legal)
    content = table.findings(lost)
    lost = subtract(lost, [r for f in content if f.kind == "unreadable" for r in f.ranges])
    gone = intersect(lost, [*_before(log.log_starts or {}, lost), *log.cut])
    there = subtract(lost, gone)
    vanished = intersect(gone, table.proven)
    cut = subtract(intersect(gone, log.cut), vanished)
    findings = [
        _finding("unjudged", there, f"not in the lake; may hold no record: {log.unanswered}")
        if log.unanswered
        else _finding("hole" if log.compacted else "missing", there),
        _finding("vanished", vanished, VANISHED),
        _finding(
            "retained_away",
            subtract(gone, [*vanished, *cut]),
            "deleted from the log before they were landed",
        ),
        *content,
        _finding("duplicate", duplicate),
        _finding("outside", outside, "in the table under this window, and no part of it"),
        _finding("log_truncated", cut, "lost by the log, which was cut, before they were landed"),
        _finding("log_truncated", _truncated(window), "the log ended before what was frozen"),
    ]
    kept = tuple(f for f in findings if f is not None)
    expected = window.record_count - count(intersect(window.ranges, legal))
    return EquationResult(
        equation=Equation.STORED_EQUALS_LANDED,
        state=state_of_findings(kept),
        expected=expected,
        found=window.record_count - count(missing),
        findings=kept,
        detail={"rows": landed.rows, "legal_holes": count(intersect(window.ranges, legal))},
        legal=intersect(window.ranges, legal),
    )


def parsed_plus_quarantined_equals_landed(
    landed: Coverage,
    parsed: Coverage,
    quarantined: Coverage,
    table: TableView | None = None,
) -> EquationResult:
    """Equation 3: the coordinates of silver and quarantine together are those of bronze, each once.

    ``table`` describes silver and quarantine. Compared by coordinates both ways, never by counts.
    An offset that is landed twice is equation 1's to name; here it counts as one.
    """
    missing: list[OffsetRange] = []
    outside: list[OffsetRange] = []
    twice: list[OffsetRange] = []
    both: list[OffsetRange] = []
    expected = 0
    for p in landed.partitions | parsed.partitions | quarantined.partitions:
        wanted, good, bad = (tier.there(p) for tier in (landed, parsed, quarantined))
        found = Spans.at_depth([good, bad], 1)
        shared = good.both(bad)
        repeated = Spans.at_depth([parsed.repeated(p), quarantined.repeated(p)], 1)
        expected += wanted.count
        missing += wanted.minus(found).ranges(p)
        outside += found.minus(wanted).ranges(p)
        both += shared.ranges(p)
        twice += repeated.minus(shared).ranges(p)
    content = (table or TableView()).findings(missing)
    absent = subtract(missing, [r for f in content if f.kind == "unreadable" for r in f.ranges])
    findings = [
        *content,
        _finding("missing", absent, "landed, and neither parsed nor quarantined"),
        _finding("duplicate", twice, "parsed or quarantined more than once"),
        _finding("duplicate", both, "parsed and quarantined as well"),
        _finding("outside", outside, "parsed or quarantined, and not landed"),
    ]
    kept = tuple(f for f in findings if f is not None)
    return EquationResult(
        equation=Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED,
        state=state_of_findings(kept),
        expected=expected,
        found=expected - count(missing),
        findings=kept,
        detail={
            "parsed": parsed.rows,
            "quarantined": quarantined.rows,
        },
    )


def retained_away(window: Window, log_starts: Mapping[int, int]) -> tuple[OffsetRange, ...]:
    """The offsets of the window that the log no longer holds: the landing's ``gone``."""
    return intersect(window.ranges, _before(log_starts, window.ranges))


def _before(
    log_starts: Mapping[int, int], ranges: Iterable[OffsetRange]
) -> tuple[OffsetRange, ...]:
    return tuple(
        OffsetRange(partition, 0, log_starts[partition])
        for partition in by_partition(ranges)
        if log_starts.get(partition, 0) > 0
    )


def _truncated(window: Window) -> tuple[OffsetRange, ...]:
    return tuple(
        OffsetRange(p.p, p.high_watermark, p.start)
        for p in window.partitions
        if p.high_watermark < p.start
    )


def _finding(kind: str, ranges: Iterable[OffsetRange], detail: str = "") -> Finding | None:
    merged = merge(ranges)
    return Finding(kind, merged, detail=detail) if merged else None
