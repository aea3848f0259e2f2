"""Equation 2, produced = stored: what producers say was acknowledged against what the log holds.

Joined by offset, so no clock matters. A claim is judged in the window in which it ends, since its
digest needs all of its records; claimed and stored offsets are compared within the window, per
incarnation and partition.

============================  ==========================================================
found                         finding, and the state it makes
============================  ==========================================================
claimed, not stored           missing: MISSING
claimed past the log's end    beyond_log_end: MISSING at once, for a lost tail falls in no
                              window; reported by the windows that nothing follows in the log
sequence stored twice         duplicate: DUPLICATE (the copy that is not claimed)
… the other out of sight      duplicate: DUPLICATE, when the grace is over
claim complete, digest other  corrupt: CORRUPT
stored, not claimed           pending: PENDING until the grace is over, then
                              unclaimed or incarnation_silent: UNAUDITED
… and given up by its client  unacknowledged: reported, no loss
stored without audit header   unstamped: UNAUDITED
event number left out, and    lost_event: PENDING, then UNAUDITED
sequences with it
given up by its client        client_failure: the client's loss, reported as such
claimed, not in the lake      unlanded: UNPROVEN (equation 1 names the damage)
digest that cannot be judged  unjudged: PENDING until the grace is over (longer where records
                              before the window are not in the table: their window is landed,
                              or landed again, or its damage accepted), then undigested:
                              UNAUDITED
events unavailable, malformed unjudged: PENDING, then evidence_lost: UNAUDITED; malformed ones
ones of its producers, no     of producers that have nothing in the window are only counted
audit topic
============================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock_client.audit import MonitoringEvent
from penstock_platform.clock import from_iso
from penstock_platform.ranges import (
    OffsetRange,
    Offsets,
    Spans,
    count,
    gaps,
    intersect,
    merge,
    ranges_of,
    subtract,
)
from penstock_platform.reconciliation.model.books import (
    Equation,
    EquationResult,
    Finding,
    state_of_findings,
)
from penstock_platform.reconciliation.model.claims import (
    Claims,
    Producer,
    StoredRecords,
    producers_of,
)
from penstock_platform.reconciliation.model.confirmed import NOTHING_CONFIRMED, Confirmed
from penstock_platform.reconciliation.model.unjudged import (
    EvidenceGaps,
    UnjudgedDigests,
    digest_findings,
    gap_findings,
)
from penstock_platform.reconciliation.model.window_records import (
    WindowRecords,
    only_stamped,
    within,
)
from penstock_platform.windows.model.window import Window

TOO_MANY = "no confirmed claim has them, and they are too many to be looked at one by one"
SEQUENCES = 0  # the partition in ranges of sequences, so that the same functions apply to them


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the judgement depends on beside the evidence.

    ``log_ends``: high watermarks, read after the events were; None: a lost tail is not looked for.
    ``unlanded``: offsets that equation 1 did not find in the lake, which are not compared.
    ``gaps``: which evidence could not be read.
    """

    now: datetime
    grace: timedelta
    log_ends: Mapping[int, int] | None = None
    unlanded: Sequence[OffsetRange] = ()
    gaps: EvidenceGaps = field(default_factory=EvidenceGaps)


@dataclass(slots=True)
class _Tally:
    """What was found so far, by incarnation; offsets as ranges."""

    claimed: int = 0
    missing: dict[int, list[OffsetRange]] = field(default_factory=dict)
    corrupt: dict[int, list[OffsetRange]] = field(default_factory=dict)
    unclaimed: dict[int, list[OffsetRange]] = field(default_factory=dict)
    unacknowledged: dict[int, list[OffsetRange]] = field(default_factory=dict)
    again: dict[int, list[OffsetRange]] = field(default_factory=dict)
    digests_judged: int = 0
    digests_unjudged: int = 0
    unjudged: UnjudgedDigests = field(default_factory=UnjudgedDigests)


def produced_equals_stored(
    window: Window,
    stored: Mapping[int, StoredRecords],
    events: Iterable[MonitoringEvent],
    circumstances: Circumstances,
    confirmed: Confirmed = NOTHING_CONFIRMED,
) -> EquationResult:
    """Judge one window by the events that can concern it.

    ``stored`` holds the window's records by partition, and of those before the window at least
    ``claims.tails``; a claim that reaches further back keeps its digest unjudged
    (``digests_unjudged``). ``events`` are all that were published since the window before was
    frozen, in any order.

    The records of ``confirmed`` claims may be left out of ``stored``, but for those whose sequence
    one of the others has too; so may records without audit header that ``confirmed`` names.
    """
    producers = producers_of(window.topic, events, window.topic_id)
    records = WindowRecords.of(window, stored, confirmed)
    copies = _copies(records, producers)
    tally = _Tally()
    for r in window.ranges:
        _judge_partition(r, records, producers, copies, tally)
    unstamped = records.unstamped()
    findings = [
        *_damage(window, producers, copies, tally, circumstances),
        *_dues(producers, records, tally, circumstances),
        *_unjudged(producers, records, tally, circumstances),
        *_reported(window, producers, tally),
    ]
    if unstamped:
        findings.append(Finding("unstamped", merge(unstamped), detail="no audit header"))
    missing = count(r for ranges in tally.missing.values() for r in ranges)
    return EquationResult(
        equation=Equation.PRODUCED_EQUALS_STORED,
        state=state_of_findings(findings),
        expected=tally.claimed,
        found=tally.claimed - missing,
        findings=tuple(findings),
        detail={
            "stored": records.count(),
            "unstamped": count(unstamped),
            "incarnations": len(producers),
            "events": sum(len(producer.numbers) for producer in producers.values()),
            "digests_judged": tally.digests_judged,
            "digests_unjudged": tally.digests_unjudged,
        },
    )


def _judge_partition(
    r: OffsetRange,
    records: WindowRecords,
    producers: Mapping[int, Producer],
    copies: Mapping[int, tuple[OffsetRange, ...]],
    tally: _Tally,
) -> None:
    by_incarnation = records.by_incarnation(r.partition)
    confirmed = records.confirmed
    unread = confirmed.unread.get(r.partition, Spans.none())
    for incarnation in sorted({*by_incarnation, *producers}):
        own = by_incarnation.get(incarnation, StoredRecords.none())
        producer = producers.get(incarnation)
        claims = producer.claims.get(r.partition) if producer else None
        here = within(own, r)
        loose = subtract(ranges_of(r.partition, here.offset), copies.get(incarnation, ()))
        if producer is None:
            _add(tally.unclaimed, incarnation, loose)
            continue
        if claims is not None:
            spans = claims.merged().clipped(r.start, r.end)
            tally.claimed += spans.count
            held = confirmed.of(incarnation, r.partition)
            tally.digests_judged += int(((held.end > r.start) & (held.end <= r.end)).sum())
            left = claims.without(held)
            looked_at = left.merged().clipped(r.start, r.end).minus(unread)
            _add(tally.missing, incarnation, _missing(r.partition, looked_at, own.offset))
            _judge_digests(r, left, own, incarnation, tally)
            here = here.take(~spans.hold(here.offset))
        given_up = producer.failed.hold(here.sequence)
        again = producer.sequences.hold(here.sequence) & ~given_up
        for into, chosen in (
            (tally.unacknowledged, given_up),
            (tally.again, again),
            (tally.unclaimed, ~given_up & ~again),
        ):
            found = ranges_of(r.partition, here.offset[chosen])
            _add(into, incarnation, intersect(found, loose))


def _missing(partition: int, claimed: Spans, offsets: Offsets) -> list[OffsetRange]:
    low, high = np.searchsorted(offsets, claimed.start), np.searchsorted(offsets, claimed.end)
    lost: list[OffsetRange] = []
    for i in np.flatnonzero(high - low != claimed.end - claimed.start):
        whole = OffsetRange(partition, int(claimed.start[i]), int(claimed.end[i]))
        lost += gaps(whole, offsets[low[i] : high[i]])
    return lost


def _judge_digests(
    r: OffsetRange, claims: Claims, own: StoredRecords, incarnation: int, tally: _Tally
) -> None:
    """Compare each claim that ends in the window with the sum over its records."""
    ending = (claims.end > r.start) & (claims.end <= r.end)
    starts, ends, wanted = claims.start[ending], claims.end[ending], claims.digest[ending]
    low, high = np.searchsorted(own.offset, starts), np.searchsorted(own.offset, ends)
    whole = high - low == ends - starts
    sums = np.concatenate(([np.uint64(0)], np.cumsum(own.digest, dtype=np.uint64)))
    found = sums[high] - sums[low]  # modulo 2^64, as unsigned arithmetic is
    wrong = whole & (found != wanted)
    tally.digests_judged += int(whole.sum())
    tally.digests_unjudged += int((~whole).sum())
    lost = tally.missing.get(incarnation, ())
    for i in np.flatnonzero(~whole):
        claim = OffsetRange(r.partition, int(starts[i]), int(ends[i]))
        here = OffsetRange(r.partition, max(claim.start, r.start), claim.end)
        if not intersect(lost, [here]):  # else it is missing, which says more
            tally.unjudged.add(incarnation, here, claim)
    _add(
        tally.corrupt,
        incarnation,
        [OffsetRange(r.partition, int(starts[i]), int(ends[i])) for i in np.flatnonzero(wrong)],
    )


def _copies(
    records: WindowRecords, producers: Mapping[int, Producer]
) -> dict[int, tuple[OffsetRange, ...]]:
    """Offsets in the window that hold a sequence stored elsewhere too, by incarnation.

    Of the records of one sequence the claimed one is the original, else the first stored.
    """
    parts: list[tuple[NDArray[Any], ...]] = []
    for p, found in records.records.items():
        stamped = only_stamped(found)
        if len(stamped):
            claimed = _claimed(p, stamped, producers)
            place = np.full(len(stamped), p, np.int64)
            parts.append((stamped.incarnation, stamped.sequence, ~claimed, place, stamped.offset))
    if not parts:
        return {}
    incarnation, sequence, loose, place, offset = (
        np.concatenate([part[i] for part in parts]) for i in range(5)
    )
    order = np.lexsort((sequence, incarnation))
    same = (incarnation[order][1:] == incarnation[order][:-1]) & (
        sequence[order][1:] == sequence[order][:-1]
    )
    if not same.any():
        return {}
    order = np.lexsort((offset, place, loose, sequence, incarnation))
    same = (incarnation[order][1:] == incarnation[order][:-1]) & (
        sequence[order][1:] == sequence[order][:-1]
    )
    found_at = order[1:][same]
    copies: dict[int, list[OffsetRange]] = {}
    for i, p in {(int(incarnation[k]), int(place[k])) for k in found_at}:
        chosen = found_at[(incarnation[found_at] == i) & (place[found_at] == p)]
        _add(copies, i, intersect(ranges_of(p, offset[chosen]), records.window.ranges))
    return {i: merge(ranges) for i, ranges in copies.items()}


def _claimed(
    partition: int, records: StoredRecords, producers: Mapping[int, Producer]
) -> NDArray[np.bool_]:
    covered = np.zeros(len(records), dtype=bool)
    for incarnation in np.unique(records.incarnation):
        producer = producers.get(int(incarnation))
        claims = producer.claims.get(partition) if producer else None
        if claims is not None:
            inside = claims.merged().hold(records.offset)
            covered |= inside & (records.incarnation == incarnation)
    return covered


def _damage(
    window: Window,
    producers: Mapping[int, Producer],
    copies: Mapping[int, tuple[OffsetRange, ...]],
    tally: _Tally,
    circumstances: Circumstances,
) -> list[Finding]:
    findings: list[Finding] = []
    unlanded = merge(circumstances.unlanded)
    for incarnation, ranges in tally.missing.items():
        if lost := subtract(ranges, unlanded):
            detail = f"acknowledged to {producers[incarnation].source}, not in the log"
            findings.append(Finding("missing", lost, str(incarnation), detail))
        if aside := intersect(ranges, unlanded):
            detail = "not in the lake, so not compared"
            findings.append(Finding("unlanded", aside, str(incarnation), detail))
    for incarnation, producer in producers.items():
        if lost := _beyond_log_end(window, producer, circumstances.log_ends):
            detail = f"acknowledged to {producer.source}, past the end of the log"
            findings.append(Finding("beyond_log_end", lost, str(incarnation), detail))
    for incarnation, copied in copies.items():
        if copied:
            detail = "a sequence that is stored elsewhere too"
            findings.append(Finding("duplicate", copied, str(incarnation), detail))
    for incarnation, ranges in tally.corrupt.items():
        detail = (
            "in these offsets at least one record is not what was acknowledged to "
            f"{producers[incarnation].source}"
        )
        findings.append(Finding("corrupt", merge(ranges), str(incarnation), detail))
    return findings


def _beyond_log_end(
    window: Window, producer: Producer, log_ends: Mapping[int, int] | None
) -> tuple[OffsetRange, ...]:
    ends = {r.partition: r.end for r in window.ranges}
    lost: list[OffsetRange] = []
    for partition, claims in producer.claims.items():
        log_end = (log_ends or {}).get(partition)
        if log_end is None or ends.get(partition, log_end) < log_end:
            continue  # more follows in the log: a later window is asked
        first = max(log_end, ends.get(partition, 0))
        beyond = claims.merged().clipped(first, 2**62)
        lost += [OffsetRange(partition, start, end) for start, end in beyond.pairs()]
    return merge(lost)


def _unjudged(
    producers: Mapping[int, Producer],
    records: WindowRecords,
    tally: _Tally,
    circumstances: Circumstances,
) -> list[Finding]:
    """What keeps the window from being BALANCED because it could not be judged."""
    window = records.window
    over = _grace_is_over(window, circumstances)
    gaps = circumstances.gaps
    taking_part = {
        int(incarnation)
        for _, found in records.in_window()
        for incarnation in np.unique(found.incarnation)
        if incarnation > 0
    }
    for incarnation, producer in producers.items():
        if any(
            len(claims.merged().clipped(r.start, r.end).start)
            for r in window.ranges
            if (claims := producer.claims.get(r.partition)) is not None
        ):
            taking_part.add(incarnation)
    sources = {incarnation: producer.source for incarnation, producer in producers.items()}
    return [
        *digest_findings(tally.unjudged, sources, gaps.awaited, over),
        *gap_findings(gaps, taking_part, over),
    ]


def _grace_is_over(window: Window, circumstances: Circumstances) -> bool:
    return circumstances.now - from_iso(window.frozen_at) >= circumstances.grace


def _dues(
    producers: Mapping[int, Producer],
    records: WindowRecords,
    tally: _Tally,
    circumstances: Circumstances,
) -> list[Finding]:
    """What evidence is still due, or has not come in time."""
    window = records.window
    frozen_at = from_iso(window.frozen_at)
    over = _grace_is_over(window, circumstances)
    findings: list[Finding] = []
    due: list[OffsetRange] = []
    if unread := records.unread():
        if over:
            findings.append(Finding("unclaimed", unread, detail=TOO_MANY))
        else:
            due += unread
    for incarnation, ranges in tally.again.items():
        if over:
            detail = "their sequences were acknowledged at other offsets"
            findings.append(Finding("duplicate", merge(ranges), str(incarnation), detail))
        else:
            due += ranges
    for incarnation, ranges in tally.unclaimed.items():
        if not over:
            due += ranges
            continue
        producer = producers.get(incarnation)
        spoke = producer is not None and (
            producer.final or producer.last_sent_at_ms > frozen_at.timestamp() * 1000
        )
        kind = "unclaimed" if spoke else "incarnation_silent"
        detail = "no event claims them" if spoke else "its producer fell silent without a last word"
        findings.append(Finding(kind, merge(ranges), str(incarnation), detail))
    unaccounted = 0
    for incarnation, producer in producers.items():
        lost = _lost_with_events(producer, records) if producer.lost_events else ()
        if not lost:
            continue
        unaccounted += count(lost)
        if over:
            numbers = ", ".join(_numbers(first, end) for first, end in producer.lost_events[:5])
            spans = ", ".join(f"{r.start}-{r.end - 1}" for r in lost[:5])
            detail = f"events {numbers} never came; sequences {spans} are in no other"
            findings.append(
                Finding("lost_event", (), str(incarnation), detail, records=count(lost))
            )
    if not over and (due or unaccounted):
        detail = f"evidence is due until {(frozen_at + circumstances.grace).isoformat()}"
        findings.append(Finding("pending", merge(due), detail=detail, records=unaccounted))
    return findings


def _numbers(first: int, end: int) -> str:
    return str(first) if end == first + 1 else f"{first}-{end - 1}"


def _lost_with_events(producer: Producer, records: WindowRecords) -> tuple[OffsetRange, ...]:
    """Sequences between the first and the last stored in the window that nothing accounts for.

    (Those of confirmed claims are acknowledged, so ``producer.sequences`` has them.)"""
    spans = (*producer.sequences.pairs(), *producer.failed.pairs())
    known = [OffsetRange(SEQUENCES, first, end) for first, end in spans]
    for found in records.records.values():
        own = found.take(found.incarnation == producer.incarnation)
        known += ranges_of(SEQUENCES, own.sequence)
    stored = records.sequences(producer.incarnation)
    if not stored.size:
        return ()
    span = OffsetRange(SEQUENCES, int(stored.min()), int(stored.max()) + 1)
    return subtract([span], known)


def _reported(window: Window, producers: Mapping[int, Producer], tally: _Tally) -> list[Finding]:
    """What is reported and is no loss of the broker's."""
    findings = [
        Finding(
            "unacknowledged",
            merge(ranges),
            str(incarnation),
            "stored, though their producer got an error for them",
        )
        for incarnation, ranges in tally.unacknowledged.items()
    ]
    opened = from_iso(window.opened_at).timestamp() * 1000
    frozen = from_iso(window.frozen_at).timestamp() * 1000
    for incarnation, producer in producers.items():
        by_error: dict[str, list[OffsetRange]] = {}
        for first, end, error, sent_at_ms in producer.failed_at:
            if opened <= sent_at_ms < frozen:
                by_error.setdefault(error, []).append(OffsetRange(SEQUENCES, first, end))
        for error, spans in by_error.items():
            spelled = ", ".join(f"{r.start}-{r.end - 1}" for r in merge(spans)[:5])
            findings.append(
                Finding(
                    "client_failure",
                    (),
                    str(incarnation),
                    f"{error}; sequences {spelled}",
                    records=count(spans),
                )
            )
    return findings


def _add(into: dict[int, list[OffsetRange]], key: int, ranges: Iterable[OffsetRange]) -> None:
    if found := list(ranges):
        into.setdefault(key, []).extend(found)
