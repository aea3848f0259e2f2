"""Equation 2: scenarios as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_events import (
    FROZEN_MS,
    LATE,
    OWN,
    WHOLE,
    A,
    B,
    account,
    digest,
    event,
    found_of,
    judged,
    records,
    sum_of,
)

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.audit_events import (
    MalformedEvent,
)
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.reconciliation.model.unjudged import EvidenceGaps

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
    "claimed by no producer that stamps": (
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
    "malformed events of others, or of no producer": (
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
    assert found_of(result) == findings
    assert result.state is WindowState(state)
    assert result.equation is Equation.PRODUCED_EQUALS_STORED
