"""What equation 2 could not judge, as findings: no window is BALANCED while there is any.

Until the grace is over such a finding is ``unjudged`` (PENDING), for what is away may come back.
After it the window is UNAUDITED, so that nothing is PENDING forever and a person, or the topic's
``accept_unaudited``, decides. One case waits longer: a claim whose records before the window are
not landed yet, or are gone from the table, is judged once their window is landed (again).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock_platform.ranges import OffsetRange, describe, intersect, merge
from penstock_platform.reconciliation.model.audit_events import MalformedEvent, matter
from penstock_platform.reconciliation.model.books import Finding

MALFORMED_IN_DETAIL = 3


@dataclass(frozen=True, slots=True)
class EvidenceGaps:
    """The evidence about a window that could not be read.

    ``unavailable``: events that are neither in the audit topic's log nor in the lake any more.
    ``awaited``: offsets before the window that are not landed yet, or gone from the table.
    """

    audit_topic_missing: bool = False
    unavailable: int = 0
    malformed: tuple[MalformedEvent, ...] = ()
    awaited: tuple[OffsetRange, ...] = ()


@dataclass(slots=True)
class UnjudgedDigests:
    """Claims whose digest could not be compared, by incarnation: their offsets in the window, and
    the whole claims."""

    here: dict[int, list[OffsetRange]] = field(default_factory=dict)
    claims: dict[int, list[OffsetRange]] = field(default_factory=dict)

    def add(self, incarnation: int, here: OffsetRange, claim: OffsetRange) -> None:
        self.here.setdefault(incarnation, []).append(here)
        self.claims.setdefault(incarnation, []).append(claim)


def gap_findings(gaps: EvidenceGaps, incarnations: Iterable[int], over: bool) -> list[Finding]:
    """Findings for evidence that cannot be read; ``incarnations`` take part in the window."""
    kind = "evidence_lost" if over else "unjudged"
    findings: list[Finding] = []
    if gaps.audit_topic_missing:
        detail = "the cluster has no audit topic, so no producer's events can be read"
        findings.append(Finding(kind, (), detail=detail))
    if gaps.unavailable:
        detail = "events that the audit topic's log no longer has, and its bronze table neither"
        findings.append(Finding(kind, (), detail=detail, records=gaps.unavailable))
    by_incarnation: dict[int | None, list[MalformedEvent]] = {}
    for event in matter(gaps.malformed, incarnations):
        by_incarnation.setdefault(event.incarnation, []).append(event)
    for incarnation, events in by_incarnation.items():
        shown = "; ".join(
            f"partition {e.partition} offset {e.offset}: {e.reason}"
            for e in events[:MALFORMED_IN_DETAIL]
        )
        detail = f"malformed events of {events[0].source}: {shown}"
        findings.append(Finding(kind, (), str(incarnation), detail, records=len(events)))
    return findings


def digest_findings(
    digests: UnjudgedDigests,
    sources: Mapping[int, str],
    awaited: Sequence[OffsetRange],
    over: bool,
) -> list[Finding]:
    """Findings for claims that could not be compared with what is stored."""
    findings: list[Finding] = []
    for incarnation, ranges in digests.here.items():
        waits = bool(intersect(digests.claims[incarnation], awaited))
        kind = "undigested" if over and not waits else "unjudged"
        why = (
            "records of theirs before this window are not in the table now"
            if waits
            else "not all of their records are there to be compared"
        )
        detail = (
            f"digests of claims of {sources[incarnation]} are not judged: {why} "
            f"({describe(digests.claims[incarnation], 3)})"
        )
        findings.append(Finding(kind, merge(ranges), str(incarnation), detail))
    return findings
