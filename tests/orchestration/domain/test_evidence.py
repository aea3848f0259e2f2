"""Equation 2: scenarios as a table, and a model of producers whose every mishap is known."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_client.audit import Claim, FailedRecords, MonitoringEvent, TopicAccount
from penstock_platform.domain.audit_events import (
    APPENDS_PER_SECOND_MAX,
    MalformedEvent,
    PlacedEvent,
    incredible,
    parse_event,
)
from penstock_platform.domain.books import Equation, WindowState
from penstock_platform.domain.claims import (
    Claims,
    StoredRecords,
    claimed_since,
    producers_of,
    tails,
)
from penstock_platform.domain.clock import from_iso
from penstock_platform.domain.evidence import Circumstances, produced_equals_stored
from penstock_platform.domain.ranges import OffsetRange
from penstock_platform.domain.unjudged import EvidenceGaps
from penstock_platform.testing.windows import make_window

GRACE = timedelta(minutes=15)
BEFORE = make_window({0: (0, 10)})
WINDOW = make_window({0: (10, 20)}, previous=BEFORE)
FROZEN = from_iso(WINDOW.frozen_at)
FROZEN_MS = round(FROZEN.timestamp() * 1000)
A, B = 111, 222


def event(incarnation, number, *accounts, final=False, sent_at_ms=FROZEN_MS - 5000, uuid=None):
    return MonitoringEvent(
        uuid=uuid or f"{incarnation}-{number}",
        incarnation=incarnation,
        number=number,
        final=final,
        client_id="c",
        application="a",
        host="h",
        pid=1,
        started_at_ms=0,
        sent_at_ms=sent_at_ms,
        interval_ms=2000,
        topics=accounts,
    )


def account(*claims, sequences=(), failed=(), topic="orders"):
    return TopicAccount(
        topic=topic,
        claims=tuple(Claim(*claim) for claim in claims),
        sequences=tuple(sequences),
        failed=tuple(FailedRecords(*f) for f in failed),
    )


def digest(incarnation, sequence):
    return (incarnation * 0x9E3779B97F4A7C15 + sequence * 0xC2B2AE3D27D4EB4F) % 2**64


def sum_of(incarnation, sequences):
    return sum(digest(incarnation, s) for s in sequences) % 2**64


def records(*rows):
    """Rows (offset, incarnation, sequence) of partition 0; incarnation -1: no header."""
    return {
        0: StoredRecords.of(
            [r[0] for r in rows],
            [r[1] for r in rows],
            [r[2] for r in rows],
            [digest(r[1], r[2]) if r[1] > 0 else 0 for r in rows],
        )
    }


def judged(stored, events, *, after=timedelta(seconds=10), log_ends=None, unlanded=(), gaps=None):
    gaps = gaps or EvidenceGaps()
    return produced_equals_stored(
        WINDOW, stored, events, Circumstances(FROZEN + after, GRACE, log_ends, unlanded, gaps)
    )


def told(result):
    """Findings as {kind: (incarnation, [(start, end)])}; what has no offsets, its record count."""
    return {
        f.kind: (
            f.incarnation,
            [(r.start, r.end) for r in f.ranges] if f.ranges else f.records,
        )
        for f in result.findings
    }


OWN = [(o, A, o) for o in range(8, 20)]  # incarnation A's records 8-19; its sequences likewise
WHOLE = event(A, 1, account((0, 8, 20, sum_of(A, range(8, 20))), sequences=[(8, 20)]))
LATE = GRACE + timedelta(seconds=1)

SCENARIOS = {
    "all claimed, digest equal": (OWN, [WHOLE], {}, "BALANCED", {}),
    "the same event twice": (OWN, [WHOLE, WHOLE], {}, "BALANCED", {}),
    "no event yet": (OWN, [], {}, "PENDING", {"pending": (None, [(10, 20)])}),
    "no event, grace over": (
        OWN,
        [],
        {"after": LATE},
        "UNAUDITED",
        {"incarnation_silent": (str(A), [(10, 20)])},
    ),
    "it spoke since, of other records": (
        OWN,
        [event(A, 9, sent_at_ms=FROZEN_MS + 1)],
        {"after": LATE},
        "UNAUDITED",
        {"unclaimed": (str(A), [(10, 20)])},
    ),
    "the rest is still due": (
        OWN,
        [event(A, 1, account((0, 10, 16, sum_of(A, range(10, 16)))))],
        {},
        "PENDING",
        {"pending": (None, [(16, 20)])},
    ),
    "claimed and not stored": (
        [r for r in OWN if r[0] not in (12, 13)],
        [WHOLE],
        {},
        "MISSING",
        {"missing": (str(A), [(12, 14)])},
    ),
    "claimed, and another's record is there": (
        [r if r[0] != 12 else (12, B, 0) for r in OWN],
        [WHOLE, event(B, 1, account((0, 12, 13, digest(B, 0))))],
        {},
        "MISSING",
        {"missing": (str(A), [(12, 13)])},
    ),
    "claimed, and a bare record is there": (
        [r if r[0] != 12 else (12, -1, -1) for r in OWN],
        [WHOLE],
        {},
        "MISSING",
        {"missing": (str(A), [(12, 13)]), "unstamped": (None, [(12, 13)])},
    ),
    "claimed by nobody who stamps": (
        [(o, -1, -1) for o in range(10, 20)],
        [],
        {},
        "UNAUDITED",
        {"unstamped": (None, [(10, 20)])},
    ),
    "another digest": (
        [r if r[0] != 15 else (15, A, 715) for r in OWN],
        [WHOLE],
        {},
        "CORRUPT",
        {"corrupt": (str(A), [(8, 20)])},
    ),
    "two digests that would cancel in an XOR": (
        [r if r[0] not in (15, 16) else (r[0], A, 715) for r in OWN],
        [WHOLE],
        {},
        "MIXED",
        {"corrupt": (str(A), [(8, 20)]), "duplicate": (str(A), [(16, 17)])},
    ),
    "a claim that ends in the next window is judged there": (
        [r if r[0] != 15 else (15, A, 715) for r in OWN],
        [event(A, 1, account((0, 10, 25, 1)))],
        {},
        "BALANCED",
        {},
    ),
    "its offsets in this window are": (
        [r for r in OWN if r[0] != 15],
        [event(A, 1, account((0, 10, 25, 1)))],
        {},
        "MISSING",
        {"missing": (str(A), [(15, 16)])},
    ),
    "a sequence stored twice, the first claimed": (
        [*OWN[:10], (18, A, 17), (19, A, 18)],
        [event(A, 1, account((0, 8, 18, sum_of(A, range(8, 18))), (0, 19, 20, digest(A, 18))))],
        {},
        "DUPLICATE",
        {"duplicate": (str(A), [(18, 19)])},
    ),
    "a sequence stored twice, the second claimed": (
        [*OWN[:10], (18, A, 17), (19, A, 18)],
        [
            event(
                A, 1, account((0, 8, 17, sum_of(A, range(8, 17))), (0, 18, 20, sum_of(A, (17, 18))))
            )
        ],
        {},
        "DUPLICATE",
        {"duplicate": (str(A), [(17, 18)])},
    ),
    "its acknowledged copy is out of sight": (
        [*OWN[:11], (19, A, 3)],
        [
            event(
                A,
                1,
                account((0, 8, 19, sum_of(A, range(8, 19))), sequences=[(0, 19)]),
            )
        ],
        {"after": LATE},
        "DUPLICATE",
        {"duplicate": (str(A), [(19, 20)])},
    ),
    "lost and doubled alike": (
        [(o, A, o) for o in range(8, 18)] + [(18, A, 17)],
        [WHOLE],
        {},
        "MIXED",
        {"missing": (str(A), [(19, 20)]), "duplicate": (str(A), [(18, 19)])},
    ),
    "stored, though the client gave up": (
        OWN,
        [
            event(
                A,
                1,
                account(
                    (0, 8, 18, sum_of(A, range(8, 18))),
                    sequences=[(8, 18)],
                    failed=[(18, 20, "timed out")],
                ),
            )
        ],
        {},
        "BALANCED",
        {"unacknowledged": (str(A), [(18, 20)]), "client_failure": (str(A), 2)},
    ),
    "the client gave up, and nothing is stored": (
        OWN,
        [WHOLE, event(A, 2, account(failed=[(20, 23, "queue full")]))],
        {},
        "BALANCED",
        {"client_failure": (str(A), 3)},
    ),
    "a claim past the log's end": (
        OWN,
        [WHOLE, event(A, 2, account((0, 20, 24, 5)))],
        {"log_ends": {0: 20}},
        "MISSING",
        {"beyond_log_end": (str(A), [(20, 24)])},
    ),
    "a claim across the log's end": (
        OWN,
        [event(A, 1, account((0, 8, 24, 5)))],
        {"log_ends": {0: 20}},
        "MISSING",
        {"beyond_log_end": (str(A), [(20, 24)])},
    ),
    "more follows in the log, so a later window is asked": (
        OWN,
        [WHOLE, event(A, 2, account((0, 20, 24, 5)))],
        {"log_ends": {0: 22}},
        "BALANCED",
        {},
    ),
    "a claim in a partition that no window has": (
        OWN,
        [WHOLE, event(A, 2, account((1, 0, 2, 5)))],
        {"log_ends": {0: 20, 1: 0}},
        "MISSING",
        {"beyond_log_end": (str(A), [(0, 2)])},
    ),
    "a number is missing, and its records": (
        [(10, A, 10), (11, A, 11), (12, A, 20), (13, A, 21)],
        [
            event(A, 3, account((0, 10, 12, sum_of(A, (10, 11))), sequences=[(10, 12)])),
            event(A, 5, account((0, 12, 14, sum_of(A, (20, 21))), sequences=[(20, 22)])),
        ],
        {"after": LATE},
        "UNAUDITED",
        {"lost_event": (str(A), 8)},
    ),
    "… for which there is still time": (
        [(10, A, 10), (11, A, 11), (12, A, 20), (13, A, 21)],
        [
            event(A, 3, account((0, 10, 12, sum_of(A, (10, 11))), sequences=[(10, 12)])),
            event(A, 5, account((0, 12, 14, sum_of(A, (20, 21))), sequences=[(20, 22)])),
        ],
        {},
        "PENDING",
        {"pending": (None, 8)},
    ),
    "a number is missing, and none of its records here": (
        OWN,
        [WHOLE, event(A, 3)],
        {"after": LATE},
        "BALANCED",
        {},
    ),
    "the beginning of a claim is not there": (
        [r for r in OWN if r[0] >= 10],
        [WHOLE],
        {},
        "PENDING",
        {"unjudged": (str(A), [(10, 20)])},
    ),
    "… nor after the grace": (
        [r for r in OWN if r[0] >= 10],
        [WHOLE],
        {"after": LATE},
        "UNAUDITED",
        {"undigested": (str(A), [(10, 20)])},
    ),
    "… and is landed later": (
        [r for r in OWN if r[0] >= 10],
        [WHOLE],
        {"after": LATE, "gaps": EvidenceGaps(awaited=(OffsetRange(0, 0, 10),))},
        "PENDING",
        {"unjudged": (str(A), [(10, 20)])},
    ),
    "a claim that ends where the window starts is the one's before": (
        [r for r in OWN if r[0] >= 10],
        [event(A, 1, account((0, 5, 10, 99), (0, 10, 20, sum_of(A, range(10, 20)))))],
        {},
        "BALANCED",
        {},
    ),
    "there is no audit topic": (
        [],
        [],
        {"gaps": EvidenceGaps(audit_topic_missing=True)},
        "PENDING",
        {"unjudged": (None, 0)},
    ),
    "events are away": (
        OWN,
        [WHOLE],
        {"gaps": EvidenceGaps(unavailable=3)},
        "PENDING",
        {"unjudged": (None, 3)},
    ),
    "events stay away": (
        OWN,
        [WHOLE],
        {"after": LATE, "gaps": EvidenceGaps(unavailable=3)},
        "UNAUDITED",
        {"evidence_lost": (None, 3)},
    ),
    "an event of a producer of the window is malformed": (
        OWN,
        [WHOLE],
        {"gaps": EvidenceGaps(malformed=(MalformedEvent(0, 5, "cut", A, "a", "h"),))},
        "PENDING",
        {"unjudged": (str(A), 1)},
    ),
    "… of one that only claims here": (
        [(o, -1, -1) for o in range(10, 12)],
        [event(B, 1, account((0, 10, 11, 1)))],
        {"gaps": EvidenceGaps(malformed=(MalformedEvent(0, 5, "cut", B),))},
        "MISSING",
        {"missing": (str(B), [(10, 11)]), "unjudged": (str(B), 1), "unstamped": (None, [(10, 12)])},
    ),
    "malformed events of others, or of nobody": (
        OWN,
        [WHOLE, event(B, 1)],
        {
            "after": LATE,
            "gaps": EvidenceGaps(
                malformed=(MalformedEvent(0, 5, "cut", B), MalformedEvent(0, 6, "no event"))
            ),
        },
        "BALANCED",
        {},
    ),
    "claims on another incarnation of the topic say nothing": (
        OWN,
        [WHOLE, event(B, 1, replace(account((0, 10, 12, 1)), topic_id="another"))],
        {},
        "BALANCED",
        {},
    ),
    "the same claim in two events": (
        OWN,
        [WHOLE, event(A, 2, account((0, 8, 20, sum_of(A, range(8, 20)))))],
        {},
        "BALANCED",
        {},
    ),
    "not in the lake, so not compared": (
        [r for r in OWN if r[0] not in (12, 13)],
        [WHOLE],
        {"unlanded": [OffsetRange(0, 12, 14)]},
        "UNPROVEN",
        {"unlanded": (str(A), [(12, 14)])},
    ),
    "other topics' claims say nothing": (
        OWN,
        [WHOLE, event(B, 1, account((0, 10, 12, 1), topic="other"))],
        {},
        "BALANCED",
        {},
    ),
    "a row twice in the table is equation 1's": ([*OWN, *OWN], [WHOLE], {}, "BALANCED", {}),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    rows, events, circumstances, state, findings = SCENARIOS[name]
    result = judged(records(*rows), events, **circumstances)
    assert told(result) == findings
    assert result.state is WindowState(state)
    assert result.equation is Equation.PRODUCED_EQUALS_STORED


def test_tiers_count_claims_and_what_of_them_is_stored():
    result = judged(records(*[r for r in OWN if r[0] != 12]), [WHOLE])
    assert (result.expected, result.found) == (10, 9)
    assert result.detail["stored"] == 9


def test_a_digest_needs_the_tail_of_the_window_before():
    producers = producers_of("orders", [WHOLE])
    assert claimed_since(WINDOW, producers) == {0: 8}
    assert tails(WINDOW, producers) == (OffsetRange(0, 8, 10),)
    across = producers_of("orders", [event(A, 1, account((0, 8, 25, 1)))])
    assert tails(WINDOW, across) == (), "judged where it ends"
    without = judged(records(*[r for r in OWN if r[0] >= 10]), [WHOLE])
    assert without.detail["digests_unjudged"] == 1
    assert judged(records(*OWN), [WHOLE]).detail["digests_judged"] == 1


def test_repeated_claims_are_summed_once():
    """The same rows in two events (a claim is a fact, not a quantity), overlapping ones too."""
    claims = Claims.of([(8, 20, 5), (8, 20, 5), (12, 14, 1)])
    assert len(claims) == 2
    assert claims.merged().pairs() == [(8, 20)]
    twice = [WHOLE, event(A, 2, account((0, 8, 20, sum_of(A, range(8, 20)))))]
    result = judged(records(*OWN), twice)
    assert (result.expected, result.found, result.detail["digests_judged"]) == (10, 10, 1)


@pytest.mark.parametrize("sequence", [2**62, 2**63 - 1, -5])
def test_a_stamp_with_an_impossible_sequence_counts_as_none(sequence):
    result = judged(records((10, A, sequence)), [])
    assert told(result) == {"unstamped": (None, [(10, 11)])}


def test_a_forged_number_costs_no_memory():
    """Event 1, then event 2^62: the numbers between are counted, not listed."""
    [producer] = producers_of("orders", [event(A, 1), event(A, 2**62)]).values()
    assert producer.lost_events == ((2, 2**62),)
    rows = [(10, A, 10), (11, A, 2**61)]
    events = [event(A, 1, account((0, 10, 12, sum_of(A, (10, 2**61))))), event(A, 2**62)]
    result = judged(records(*rows), events, after=LATE)
    assert {f.kind for f in result.findings} == {"lost_event"}


LOG_ENDS = {0: 20}


@pytest.mark.parametrize(
    ("claim", "believed"),
    [
        ((0, 20, 20 + 60 * APPENDS_PER_SECOND_MAX, 1), True),
        ((0, 20, 21 + 60 * APPENDS_PER_SECOND_MAX, 1), False),
        ((1, 0, 1, 1), False),
    ],
)
def test_a_claim_is_believed_as_far_as_a_log_can_have_grown(claim, believed):
    placed = PlacedEvent(3, 9, event(A, 1, account(claim), sent_at_ms=FROZEN_MS))
    wrong = incredible(placed, WINDOW, LOG_ENDS)
    assert (wrong is None) is believed
    if wrong is not None:
        assert (wrong.partition, wrong.offset, wrong.incarnation) == (3, 9, A)
        assert wrong.source == f"a on h, incarnation {A}"
        assert "orders" in wrong.reason
    assert incredible(placed, WINDOW, None) is None, "nothing is known of the log"


def test_a_claim_is_believed_further_the_later_it_comes():
    claim = (0, 20, 21 + 60 * APPENDS_PER_SECOND_MAX, 1)
    late = event(A, 1, account(claim), sent_at_ms=FROZEN_MS + 1000)
    assert incredible(PlacedEvent(0, 0, late), WINDOW, LOG_ENDS) is None
    other = replace(account(claim), topic_id="another")
    early = event(A, 1, other, sent_at_ms=FROZEN_MS)
    assert incredible(PlacedEvent(0, 0, early), WINDOW, LOG_ENDS) is None, "not of this topic"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_an_event_or_named_as_malformed(data):
    found = parse_event(1, 2, b'{"incarnation":"77","host":"' + data)
    assert isinstance(found, MalformedEvent)
    assert (found.partition, found.offset, found.incarnation) == (1, 2, 77)
    assert found.source.endswith("incarnation 77")
    assert len(found.reason) <= 300 and found.source.isprintable()


def test_the_source_of_a_malformed_event_is_named_where_it_can_be_read():
    whole = WHOLE.to_bytes()
    cut = parse_event(0, 0, whole[: len(whole) // 2])
    assert (cut.incarnation, cut.application, cut.host) == (A, "a", "h")
    assert parse_event(0, 0, None).source == "an unknown source"
    assert parse_event(0, 0, b'{"incarnation": "%d"}' % 10**30).incarnation is None
    assert parse_event(0, 0, b"\xff" * 100_000).source == "an unknown source"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2**62 - 1), st.integers(1, 2**62)), max_size=8
    ),
    st.integers(1, 2**63 - 1),
)
def test_whatever_is_claimed_is_judged_without_allocating_its_span(claims, number):
    accounts = account(*((p, s, min(s + n, 2**62), 1) for p, s, n in claims))
    lies = [event(B, number, accounts), event(B, 1)]
    result = judged(records(*OWN), [WHOLE, *lies], log_ends={0: 20, 1: 0})
    wanted = {(f.kind, f.incarnation) for f in result.findings}
    assert all(incarnation == str(B) for _, incarnation in wanted)


# --- a model of producers whose every mishap is known --------------------------------------------


@dataclass
class Model:
    """Producers into two partitions, mishaps at random; what must be found is written down."""

    rng: random.Random
    log: dict = field(default_factory=lambda: {0: [], 1: []})
    claims: list = field(default_factory=list)  # (incarnation, partition, offset, sequence)
    failed: dict = field(default_factory=dict)
    expected: dict = field(default_factory=dict)

    def expect(self, kind, partition, offset):
        self.expected.setdefault(kind, set()).add((partition, offset))

    def produce(self, incarnation, sequence):
        partition = self.rng.randrange(2)
        log = self.log[partition]
        offset = len(log)
        fate = self.rng.random()
        if fate < 0.03:  # acknowledged; the record was then lost, and its place taken by a stranger
            log.append((-1, -1, None))
            self.claims.append((incarnation, partition, offset, sequence))
            self.expect("missing", partition, offset)
            self.expect("unstamped", partition, offset)
        elif fate < 0.06:  # stored, the answer lost, stored again, acknowledged
            log += [(incarnation, sequence, None)] * 2
            self.claims.append((incarnation, partition, offset + 1, sequence))
            self.expect("duplicate", partition, offset)
        elif fate < 0.09:  # stored; the client was told that it failed
            log.append((incarnation, sequence, None))
            self.failed.setdefault(incarnation, []).append((sequence, sequence + 1, "timed out"))
            self.expect("unacknowledged", partition, offset)
        elif fate < 0.12:  # stored; the producer never spoke of it
            log.append((incarnation, sequence, None))
            self.expect("loose", partition, offset)
        elif fate < 0.14:  # acknowledged; changed on the disk
            log.append((incarnation, sequence, 12345))
            self.claims.append((incarnation, partition, offset, sequence))
            self.expect("corrupt", partition, offset)
        elif fate < 0.16:
            log.append((-1, -1, None))
            self.expect("unstamped", partition, offset)
        else:
            log.append((incarnation, sequence, None))
            self.claims.append((incarnation, partition, offset, sequence))

    def events(self, digest_of):
        """The claims as runs of consecutive offsets, cut at random, in events that are shuffled."""
        runs = []
        for incarnation, partition, offset, sequence in sorted(self.claims):
            last = runs[-1] if runs else None
            joins = last and last[:2] == [incarnation, partition] and last[3] == offset
            if joins and self.rng.random() < 0.7:
                last[3] = offset + 1
                last[4] += digest_of(incarnation, sequence)
            else:
                runs.append(
                    [incarnation, partition, offset, offset + 1, digest_of(incarnation, sequence)]
                )
        found = [
            event(i, 1, account(failed=f), uuid=f"failed-{i}") for i, f in self.failed.items()
        ] + [
            event(i, 1, account((p, s, e, d % 2**64)), uuid=f"run-{n}")
            for n, (i, p, s, e, d) in enumerate(runs)
        ]
        self.rng.shuffle(found)
        return found, runs

    def undigested(self, runs, bounds):
        """What is left in a window of claims that lost a record in the window before."""
        lost = self.expected.get("missing", set())
        found = set()
        for _, p, start, end, _ in runs:
            low = max(b for b in bounds[p][:3] if b < end)
            here = {(p, o) for o in range(max(start, low), end)}
            if any((p, o) in lost for o in range(start, end)) and not here & lost:
                found |= here
        return found

    def stored(self):
        return {
            p: StoredRecords.of(
                range(len(log)),
                [i for i, _, _ in log],
                [s for _, s, _ in log],
                [0 if i < 0 else digest(i, s) if d is None else d for i, s, d in log],
            )
            for p, log in self.log.items()
        }


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_mishap_of_a_random_history_is_found_in_its_window(seed):
    model = Model(random.Random(seed))
    sequences = {101: 0, 102: 0, 103: 0}
    for _ in range(model.rng.randrange(20, 200)):
        incarnation = model.rng.choice(sorted(sequences))
        model.produce(incarnation, sequences[incarnation])
        sequences[incarnation] += 1
    events, runs = model.events(digest)
    ends = {p: len(log) for p, log in model.log.items()}
    cuts = {p: sorted(model.rng.randrange(end + 1) for _ in range(2)) for p, end in ends.items()}
    bounds = {p: [0, *cuts[p], ends[p]] for p in ends}
    found: dict = {}
    claimed = 0
    window = None
    for n in range(3):
        window = make_window({p: (b[n], b[n + 1]) for p, b in bounds.items()}, previous=window)
        at = from_iso(window.frozen_at)
        late = [replace(e, sent_at_ms=0) for e in events]
        circumstances = Circumstances(at + GRACE, GRACE, log_ends=ends)
        result = produced_equals_stored(window, model.stored(), late, circumstances)
        claimed += result.expected
        for f in result.findings:
            for r in f.ranges:
                offsets = {(r.partition, o) for o in range(r.start, r.end)}
                low, high = bounds[r.partition][n : n + 2]
                assert f.kind == "corrupt" or (low <= r.start and r.end <= high)
                found.setdefault(f.kind, set()).update(offsets)
    assert claimed == len(model.claims)
    corrupt = model.expected.pop("corrupt", set())
    loose = model.expected.pop("loose", set())
    # a claim with a changed record is corrupt as a whole, unless a record of it is missing
    wrong = {
        (p, o)
        for i, p, s, e, _ in runs
        if any((p, o) in corrupt for o in range(s, e))
        and not any((p, o) in model.expected.get("missing", ()) for o in range(s, e))
        for o in range(s, e)
    }
    assert found.pop("corrupt", set()) == wrong, f"seed {seed}"
    assert found.pop("undigested", set()) == model.undigested(runs, bounds), f"seed {seed}"
    unclaimed = found.pop("unclaimed", set()) | found.pop("incarnation_silent", set())
    assert unclaimed == loose, f"seed {seed}"
    assert found == model.expected, f"seed {seed}"


def test_a_claim_that_ends_where_the_window_starts_brings_no_tail():
    producers = producers_of("orders", [event(A, 1, account((0, 3, 10, 1), (0, 10, 12, 1)))])
    assert claimed_since(WINDOW, producers) == {0: 10}
    assert tails(WINDOW, producers) == ()
