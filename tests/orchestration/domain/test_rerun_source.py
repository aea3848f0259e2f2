"""The choice of a re-run's source: the log, else exactly one snapshot that proves, else nothing."""

from __future__ import annotations

from penstock_platform.domain.ranges import OffsetRange
from penstock_platform.domain.receipts import Receipt
from penstock_platform.domain.recovery import (
    SNAPSHOTS_TRIED_MAX,
    KeptSnapshot,
    SourceKind,
    choose_source,
)
from penstock_platform.testing.windows import make_window

WINDOW = make_window({0: (0, 100)})
GONE = (OffsetRange(0, 0, 60),)
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
    assert (source.kind, source.helps, read) == (SourceKind.LOG, True, [])


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
    assert (source.kind, source.snapshot_id, source.helps) == (SourceKind.NOTHING, None, False)
    assert "no command brings it back" in str(source)


def test_a_receipt_without_a_digest_proves_nothing():
    source, read = choose([receipt(1, digest="")], [(1, "")])
    assert source.kind is SourceKind.NOTHING
    assert read == [1]


def test_without_any_receipt_a_landings_commit_is_taken_and_a_persons_is_not():
    assert choose([], [(9, FORGED), (2, GOOD)])[0].snapshot_id == 2
    never, read = choose([], [(9, FORGED)])
    assert (never.kind, never.helps, read) == (SourceKind.NEVER, False, [])
    assert "before it was landed" in str(never)


def test_only_so_many_snapshots_are_read():
    _, read = choose([receipt(1)], [(n, FORGED) for n in range(100, 10, -1)])
    assert len(read) == SNAPSHOTS_TRIED_MAX
