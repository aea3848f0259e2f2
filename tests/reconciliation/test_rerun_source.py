"""The choice of a re-run's source: the log, else exactly one snapshot that proves, else nothing."""

from __future__ import annotations

import pytest

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    FINDING_STATES,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.model.recovery import (
    SNAPSHOTS_TRIED_MAX,
    KeptSnapshot,
    RerunSource,
    SourceKind,
    choose_source,
    rerun_helps,
    rerun_sentence,
    with_source,
)
from penstock_platform.testing.windows import make_window

WINDOW = make_window({0: (0, 100)})
GONE = (OffsetRange(0, 0, 60),)
EQUATION = Equation.STORED_EQUALS_LANDED
GOOD, OTHER, FORGED = "a" * 16, "b" * 16, "f" * 16


def receipt(snapshot_id, digest=GOOD):
    return Receipt.of(
        WINDOW,
        table="lake.bronze.orders",
        attempt_id=f"attempt-{snapshot_id}",
        snapshot_id=snapshot_id,
        rows=100,
        size_bytes=1,
        seconds=1.0,
        landed_at=f"2026-11-20T00:0{snapshot_id}:00Z",
        code_version="test",
        digest=digest,
    )


def choose(receipts, held, gone=GONE):
    """``held``: (snapshot, its digest), newest first. Returns the source and what was read."""
    digests, read = dict(held), []

    def digest_of(snapshot_id):
        read.append(snapshot_id)
        return digests[snapshot_id]

    snapshots = [KeptSnapshot(s, f"attempt-{s}" if s < 5 else "") for s, _ in held]
    return choose_source(gone, receipts, snapshots, digest_of), read


def test_the_log_is_read_while_it_has_everything_and_no_snapshot_is():
    source, read = choose([receipt(1)], [(1, GOOD)], gone=())
    assert (source.kind, read) == (SourceKind.LOG, [])


def test_the_newest_receipts_own_snapshot_comes_first_however_new_others_are():
    source, read = choose([receipt(1), receipt(2)], [(9, GOOD), (2, GOOD), (1, GOOD)])
    assert (source.kind, source.snapshot_id, read) == (SourceKind.SNAPSHOT, 2, [2])
    assert (source.digest, source.landed_at) == (GOOD, "2026-11-20T00:02:00Z")
    assert "snapshot 2 of the table" in str(source)


def test_a_forged_row_in_the_newest_snapshot_is_passed_over():
    source, _ = choose([receipt(1)], [(9, FORGED), (1, GOOD)])
    assert (source.snapshot_id, source.digest, source.gone) == (1, GOOD, GONE)


def test_where_the_receipts_snapshot_does_not_prove_an_older_receipts_does():
    source, read = choose([receipt(1), receipt(2, OTHER)], [(9, FORGED), (2, None), (1, GOOD)])
    assert (source.snapshot_id, source.digest, read) == (1, GOOD, [2, 1])


def test_any_kept_snapshot_will_do_that_has_a_receipts_content():
    source, read = choose([receipt(1)], [(9, FORGED), (8, GOOD)])
    assert (source.snapshot_id, source.digest, read) == (8, GOOD, [9, 8])


def test_what_nothing_proves_has_no_source_and_says_so():
    source, _ = choose([receipt(1)], [(9, FORGED), (1, None)])
    assert (source.kind, source.snapshot_id) == (SourceKind.NOTHING, None)
    assert "no command brings it back" in str(source)


def test_a_receipt_without_a_digest_proves_nothing():
    source, read = choose([receipt(1, digest="")], [(1, "")])
    assert source.kind is SourceKind.NOTHING
    assert read == [1]


def test_without_any_receipt_a_landings_commit_is_taken_and_a_persons_is_not():
    assert choose([], [(9, FORGED), (2, GOOD)])[0].snapshot_id == 2
    never, read = choose([], [(9, FORGED)])
    assert (never.kind, read) == (SourceKind.NEVER, [])
    assert "before it was landed" in str(never)


def test_only_so_many_snapshots_are_read():
    _, read = choose([receipt(1)], [(n, FORGED) for n in range(100, 10, -1)])
    assert len(read) == SNAPSHOTS_TRIED_MAX == 20


SAYS = {
    SourceKind.LOG: "a re-run reads the log, which has every offset of the window",
    SourceKind.SNAPSHOT: (
        "a re-run restores it from snapshot 7 of the table, whose rows have the digest of the "
        "receipt of noon"
    ),
    SourceKind.COMMIT: (
        "a re-run restores it from snapshot 7 of the table, the commit of a landing that ended "
        "before it wrote its receipt"
    ),
    SourceKind.NEVER: "the log deleted it before it was landed, so no command brings it back",
    SourceKind.NOTHING: (
        "neither the log nor any snapshot of the table has it any more as it was proven, so no "
        "command brings it back"
    ),
}


@pytest.mark.parametrize("kind", SourceKind)
def test_each_source_says_what_a_rerun_does_and_is_noted_with_the_result(kind):
    sentence = SAYS[kind]
    source = RerunSource(kind, GONE, 7, landed_at="noon")
    assert str(source) == sentence
    result = EquationResult(EQUATION, WindowState.MISSING, 9, 9, detail={"rows": 5})
    assert rerun_sentence(result) == ""
    noted = with_source(result, source)
    assert rerun_sentence(noted) == sentence
    assert noted.detail == {"rows": 5, "rerun_from": kind.name.lower(), "rerun_says": sentence}


LOST_FOR_GOOD = ("beyond_log_end", "hole")
ONLY_IN_A_SNAPSHOT = ("retained_away", "log_truncated")
IN_THE_LOG = ("missing", "duplicate", "outside", "altered", "vanished", "unreadable")


@pytest.mark.parametrize("kind", [None, *SourceKind])
def test_a_rerun_helps_where_its_source_has_what_is_wrong(kind):
    result = EquationResult(EQUATION, WindowState.MISSING, 9, 9)
    if kind is not None:
        result = with_source(result, RerunSource(kind))

    def helps(*kinds):
        return rerun_helps(result, [Finding(k, GONE) for k in kinds])

    restores = kind in (SourceKind.SNAPSHOT, SourceKind.COMMIT)
    for found in FINDING_STATES:
        if found in LOST_FOR_GOOD or FINDING_STATES[found] is WindowState.UNAUDITED:
            assert not helps(found), found
        elif found in ONLY_IN_A_SNAPSHOT:
            assert helps(found) is restores, found
        elif found in IN_THE_LOG:
            assert helps(found) is (kind is not SourceKind.NOTHING), found
    assert helps("hole", "missing") is (kind is not SourceKind.NOTHING)
    assert not helps()


def test_a_source_names_what_it_is_for():
    commit, _ = choose([], [(9, FORGED), (2, GOOD)])
    assert commit == RerunSource(SourceKind.COMMIT, GONE, 2)
    assert choose([], [(9, FORGED)])[0] == RerunSource(SourceKind.NEVER, GONE)
    assert choose([receipt(1)], [(9, FORGED)])[0] == RerunSource(SourceKind.NOTHING, GONE)
    assert RerunSource(SourceKind.LOG) == RerunSource(SourceKind.LOG, (), None, "", "")
    assert choose([receipt(3)], [(9, GOOD)])[0].landed_at == "2026-11-20T00:03:00Z"


def test_a_receipts_snapshot_that_is_not_kept_is_not_asked_for():
    source, read = choose([receipt(1), receipt(2)], [(9, OTHER), (1, GOOD)])
    assert (source.snapshot_id, read) == (1, [1])


def test_a_snapshot_without_an_attempt_was_no_landing():
    assert KeptSnapshot(4).attempt_id == ""
