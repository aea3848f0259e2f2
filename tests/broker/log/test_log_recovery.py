"""Starting after a crash: what is checked, what is cut, and what is said about it."""

from __future__ import annotations

from random import Random

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.log.log import Log
from penstock_broker.log.producer_state import ProducerState
from penstock_broker.log.recovery import Cut
from penstock_broker.log.scan import BadBatchError, scan
from penstock_broker.log.swap import CleanerCheckpoint, write_cleaner_checkpoint


def log_path(log: Log, number: int = -1):  # type: ignore[no-untyped-def]
    return log.segments[number].path


def cut_of(log: Log) -> Cut:
    assert log.recovered.cut is not None
    return log.recovered.cut


def test_kill_loses_nothing(bench: Bench) -> None:
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    log = bench.reopen_after_kill(log)
    assert not log.recovered.clean
    assert log.recovered.cut is None
    assert values_of(read_all(log)) == ["a", "b", "c"]
    assert bench.append(log, "d").base_offset == 3


def test_a_clean_stop_needs_no_check(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    log = bench.reopen_cleanly(log)
    assert log.recovered.clean
    assert log.recovered.bytes_checked == 0
    assert values_of(read_all(log)) == ["a"]


def test_a_log_that_was_not_closed_is_not_taken_for_one_that_was(bench: Bench) -> None:
    """Its files are those of the last clean stop: the process was killed before it wrote."""
    log = bench.open()
    bench.append(log, "a")
    log = bench.reopen_cleanly(log)
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=1)
    assert not log.recovered.clean
    assert values_of(read_all(log)) == ["a"]


def test_what_a_crash_left_in_the_directory_goes_at_the_start(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    before = bench.files.names(bench.directory)
    bench.files.make_directory(bench.directory / "token.cleaned")
    for name in (
        "token.cleaned/00000000000000000000.index",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000000.log.deleted",
        "00000000000000000009.index",
        "00000000000000000009.timeindex",
        "00000000000000000009.txnindex",
    ):
        bench.files.put(bench.directory / name, b"left")
    strangers = {
        "notes.txt",
        "00000000000000000009.txt",
        "index",
        "my.index",
        "my.log",
        "my.snapshot",
        "².log",
        "².index",
        "².snapshot",
        "².checkpoint",
        "5.log",
    }
    for name in strangers:
        bench.files.put(bench.directory / name, b"foreign")
    log = bench.reopen_after_kill(log)
    assert set(bench.files.names(bench.directory)) == {*before, *strangers}
    assert values_of(read_all(log)) == ["a", "b", "c"]


def test_a_compacted_segment_that_was_finished_takes_its_place(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    log.roll()
    bench.append(log, "b")
    path = log_path(log, 0)
    bench.files.rename(path, bench.directory / f"{0:020d}-{1:020d}.swap")
    log = bench.reopen_after_kill(log)
    assert values_of(read_all(log)) == ["a", "b"]


def test_torn_at_every_byte_of_the_last_batch(bench: Bench) -> None:
    """However much of the last batch was written, the log ends before it, and says so."""
    log = bench.open()
    bench.append(log, "a", "b")
    kept = log.size_bytes
    bench.append(log, "c", "d", "e")
    path = log_path(log)
    whole = bench.files.get(path)
    for size in range(kept, len(whole)):
        bench.files.put(path, whole[:size])
        log = bench.reopen_after_kill(log)
        assert log.log_end_offset == 2
        assert bench.files.get(path) == whole[:kept]
        assert values_of(read_all(log)) == ["a", "b"]
        if size == kept:
            assert log.recovered.cut is None
            continue
        cut = cut_of(log)
        assert (cut.first_offset, cut.position, cut.bytes_cut) == (2, kept, size - kept)
        # With the header whole, the report knows which offsets the torn bytes named.
        assert cut.end_offset == (5 if size - kept >= 61 else None)
    bench.files.put(path, whole)
    log = bench.reopen_after_kill(log)
    assert values_of(read_all(log)) == ["a", "b", "c", "d", "e"]


def test_any_flipped_byte_past_the_recovery_point_is_found(bench: Bench) -> None:
    """Everything past the recovery point is checked, not the tail alone."""
    log = bench.open()
    sizes = [0]
    for value in ("first", "second", "third"):
        bench.append(log, value)
        sizes.append(log.size_bytes)
    path = log_path(log)
    whole = bench.files.get(path)
    for position in range(sizes[1], sizes[2]):
        if 12 <= position - sizes[1] < 16:
            continue  # the leader epoch: assigned by the broker, not covered by the CRC
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        bench.files.put(path, bytes(damaged))
        log = bench.reopen_after_kill(log)
        assert log.log_end_offset == 1, f"byte {position - sizes[1]} of the batch"
        assert cut_of(log).first_offset == 1
        assert values_of(read_all(log)) == ["first"]
    bench.files.put(path, whole)
    assert bench.reopen_after_kill(log).log_end_offset == 3


def test_what_is_below_the_recovery_point_is_not_checked_again(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a" * 50)
    log.flush()
    bench.append(log, "b")
    path = log_path(log)
    damaged = bytearray(bench.files.get(path))
    damaged[80] ^= 1
    bench.files.put(path, bytes(damaged))
    log = bench.reopen_after_kill(log)
    assert log.recovered.cut is None
    assert log.log_end_offset == 2


def test_closed_segments_below_the_recovery_point_are_not_read(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    log.roll()
    bench.append(log, "b")
    for point, number in ((0, 2), (1, 1), (2, 1)):
        bench.files = bench.files.kill()
        log = bench.open(recovery_point=point)
        assert log.recovered.bytes_checked == number * log.segments[0].size
        assert values_of(read_all(log)) == ["a", "b"]


def test_closed_segments_that_were_checked_have_their_indexes_in_files(bench: Bench) -> None:
    """And the state of the producers below each."""
    bench.overrides = {"segment.bytes": "400", "index.interval.bytes": "1"}
    log = bench.open()
    for number in range(15):
        bench.append(log, f"value {number}", producer=(number % 2, 0, number // 2))
    closed = log.segments[:-1]
    paths = [s.path.with_suffix(suffix) for s in closed for suffix in (".index", ".timeindex")]
    before = {path: bench.files.get(path) for path in paths}
    snapshots = [s.path.with_suffix(".snapshot") for s in log.segments[1:]]
    for path in paths + snapshots:
        bench.files.put(path, b"damaged")
    log = bench.reopen_after_kill(log)
    assert {path: bench.files.get(path) for path in paths} == before
    for segment in log.segments[:-1]:
        with pytest.raises(ValueError, match="is sealed"):
            segment.state(0)
    for path in snapshots:
        known, offset = ProducerState(), int(path.stem)
        assert known.load_snapshot(bench.files.get(path)) == offset
        for producer_id, entry in known.producers().items():
            assert offset - 2 <= entry.batches[-1].last_offset < offset
            assert entry.batches[-1].last_offset % 2 == producer_id


def test_an_empty_segment_behind_a_hole_keeps_its_place(bench: Bench) -> None:
    """Compaction removed what was before it: offsets are not given out again."""
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    first = log.segments[0]
    size = first.size // 3
    log.roll()
    bench.files.put(first.path, bench.files.get(first.path)[:size])
    write_cleaner_checkpoint(bench.files, bench.directory, CleanerCheckpoint(0, 3))
    log = bench.reopen_after_kill(log)
    assert (log.recovered.cut, log.log_end_offset) == (None, 3)
    assert bench.append(log, "d").base_offset == 3
    assert values_of(read_all(log)) == ["a", "d"]


def test_a_bad_batch_in_an_earlier_segment_cuts_there_and_removes_the_later_ones(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.overrides = {"segment.bytes": "200"}
    log = bench.open()
    bench.files.put(bench.directory / "my.snapshot", b"")
    for number in range(8):
        bench.append(log, f"value {number}")
    second, removed = log.segments[1], [segment.path.name for segment in log.segments[2:]]
    sizes = [segment.size for segment in log.segments]
    damaged = bytearray(bench.files.get(second.path))
    damaged[-1] ^= 1
    bench.files.put(second.path, bytes(damaged))
    log = bench.reopen_after_kill(log)
    cut = cut_of(log)
    assert (cut.first_offset, cut.end_offset) == (log.log_end_offset, 8)
    assert cut.to_json() == {
        "event": "cut",
        "topic": "t",
        "partition": 0,
        "first_offset": cut.first_offset,
        "end_offset": 8,
        "reason": "CRC mismatch",
        "segment": second.path.name,
        "position": cut.position,
        "bytes": cut.bytes_cut,
        "segments_removed": removed,
    }
    assert cut.position + cut.bytes_cut == sum(sizes[1:])
    assert values_of(read_all(log)) == [f"value {n}" for n in range(cut.first_offset)]
    assert bench.append(log, "new").base_offset == cut.first_offset
    names = bench.files.names(bench.directory)
    assert not set(removed) & set(names)
    assert f"t-0: cut at offset {cut.first_offset} (up to 8, " in caplog.text
    kept = [int(name[:20]) for name in names if name.endswith(".snapshot") and name[0] == "0"]
    assert kept, "of the producers below a segment that is there"
    assert max(kept) <= cut.first_offset


def test_offsets_missing_between_two_segments_end_the_log(bench: Bench) -> None:
    """A segment whose last pages never reached the disk may end on a batch's edge."""
    bench.overrides = {"segment.bytes": "300", "index.interval.bytes": "1"}
    log = bench.open()
    for number in range(9):
        bench.append(log, f"value {number}")
    first = log.segments[0]
    batch = log.read(0, 1).size
    bench.files.put(first.path, bench.files.get(first.path)[:batch])
    log = bench.reopen_after_kill(log)
    assert log.log_end_offset == 1
    assert "are missing" in cut_of(log).reason
    assert (cut_of(log).first_offset, cut_of(log).end_offset) == (1, 9)
    assert values_of(read_all(log)) == ["value 0"]
    bench.append(log, "again")
    bench.append(log, "and again")
    assert values_of(read_all(log)) == ["value 0", "again", "and again"]


def test_a_log_that_lost_all_its_segments_gives_no_offset_again(bench: Bench) -> None:
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    log.flush()
    path = log_path(log)
    bench.files = bench.files.kill()
    bench.files.remove(path)
    log = bench.open(recovery_point=3)
    assert (cut_of(log).first_offset, cut_of(log).end_offset) == (0, 3)
    assert (cut_of(log).position, cut_of(log).bytes_cut) == (0, 0)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert not log.recovered.clean


def test_a_log_of_which_all_was_deleted_knows_its_producers(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", producer=(7, 0, 0))
    log.delete_records(1)
    log = bench.reopen_after_kill(log)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert list(log.producers.producers()) == [7]


def test_a_cut_below_the_start_gives_no_deleted_offset_again(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", producer=(7, 0, 0))
    size = log.size_bytes
    bench.append(log, "b", "c", producer=(7, 0, 1))
    log.delete_records(2)
    path = log_path(log)
    bench.files.put(path, bench.files.get(path)[: size + 5])
    log = bench.reopen_after_kill(log)
    assert cut_of(log).first_offset == 1
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert [n for n in bench.files.names(bench.directory) if n.endswith(".log")] == [
        f"{2:020d}.log"
    ]
    assert log.producers.producers() == {}, "nothing is known of who wrote what has gone"
    assert bench.append(log, "d").base_offset == 2
    assert values_of(read_all(log)) == ["d"]


def test_what_was_cut_does_not_come_back_behind_newer_batches(bench: Bench) -> None:
    """The cut is synced before anything is written in its place."""
    for seed in range(40):
        log = (bench := Bench()).open()
        bench.append(log, "one")
        log.flush()
        for value in ("two", "six"):
            bench.append(log, value)
        size = log.size_bytes // 3
        path = log_path(log)
        damaged = bytearray(bench.files.get(path))
        damaged[2 * size - 1] ^= 1  # in the second of three batches of one size
        bench.files.put(path, bytes(damaged))
        log = bench.reopen_after_kill(log)
        bench.append(log, "new")
        bench.files = bench.files.power_cut(Random(seed))
        assert values_of(read_all(bench.open())) in (["one"], ["one", "new"]), seed


def test_segments_that_were_removed_do_not_come_back_behind_newer_batches(bench: Bench) -> None:
    for seed in range(40):
        (bench := Bench()).overrides = {"segment.bytes": "100"}
        log = bench.open()
        for value in ("one", "two", "six"):
            bench.append(log, value)
        log.flush()
        path = log_path(log, 1)
        bench.files.put(path, bench.files.get(path)[:-1] + b"?")
        bench.files = bench.files.kill()
        log = bench.open(recovery_point=1)
        assert cut_of(log).first_offset == 1
        assert f"{1:020d}.snapshot" in bench.files.names(bench.directory)
        bench.append(log, "new")
        bench.files = bench.files.power_cut(Random(seed))
        assert values_of(read_all(bench.open())) in (["one"], ["one", "new"]), seed


def test_a_batch_that_is_there_twice_is_cut_and_takes_no_offset_along(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    size = log.size_bytes
    bench.append(log, "b")
    path = log_path(log)
    data = bench.files.get(path)
    bench.files.put(path, data + data[size:])
    log = bench.reopen_after_kill(log)
    cut = cut_of(log)
    assert (cut.first_offset, cut.end_offset, cut.position) == (2, None, len(data))
    assert values_of(read_all(log)) == ["a", "b"]


def test_synced_batches_that_are_gone_do_not_pass_their_successors_off_as_synced(
    bench: Bench,
) -> None:
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    log.flush()
    path = log_path(log)
    bench.files.put(path, bench.files.get(path)[: log.size_bytes // 3])
    log = bench.reopen_after_kill(log)
    bench.append(log, "d")
    assert log.recovery_point == 1
    log.flush()
    bench.files = bench.files.power_cut(Random(0))
    assert values_of(read_all(bench.open())) == ["a", "d"]


def test_a_closed_log_whose_tail_has_gone_is_checked_after_all(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    size = log.size_bytes
    bench.append(log, "b")
    path = log_path(log)
    log.close()
    bench.files.put(path, bench.files.get(path)[:size])
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=2, clean=True)
    assert not log.recovered.clean
    assert log.log_end_offset == 1


def test_zeros_at_the_end_are_cut(bench: Bench) -> None:
    """A file system may have extended the file before it wrote the data."""
    log = bench.open()
    bench.append(log, "a")
    path = log_path(log)
    bench.files.put(path, bench.files.get(path) + bytes(4096))
    log = bench.reopen_after_kill(log)
    assert cut_of(log).bytes_cut == 4096
    assert log.log_end_offset == 1


def test_power_cuts_keep_what_was_synced_and_a_true_prefix_of_the_rest(seed: int) -> None:
    """The disk loses, reorders and tears whatever was not synced; the log is still a prefix.

    Repeated on the survivors, so that recovery itself is interrupted, too.
    """
    random = Random(seed)
    for _ in range(40):
        bench = Bench()
        bench.overrides = {"segment.bytes": str(random.choice([300, 1000, 100_000]))}
        log = bench.open()
        log.flush()
        written: list[str] = []
        synced = 0
        for epoch in range(4):
            for _ in range(random.randint(0, 12)):
                values = [f"{len(written) + n}:{epoch}" for n in range(random.randint(1, 3))]
                bench.append(log, *values, epoch=epoch)
                written += values
                if random.random() < 0.15:
                    log.flush()
                    synced = len(written)
            point = log.recovery_point
            bench.files = bench.files.power_cut(random)
            log = bench.open(recovery_point=point)
            found = values_of(read_all(log))
            assert found == written[: len(found)]
            assert len(found) >= synced, "what was synced is there"
            starts = {int(value.partition(":")[2]): n for n, value in reversed([*enumerate(found)])}
            assert dict(log.epochs.entries()) == starts, "whatever the power cut left of the file"
            if log.log_end_offset < len(written) and log.recovered.cut is not None:
                assert log.recovered.cut.first_offset == len(found)
            written = found


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "grown", "another's"])
def test_a_damaged_index_is_made_again(bench: Bench, suffix: str, damage: str) -> None:
    """An index is never trusted over the log; without it answers stay the same."""
    bench.overrides = {"segment.bytes": "2000", "index.interval.bytes": "150"}
    log = bench.open()
    for number in range(60):
        time = bench.clock.now_ms() - 1000 + number
        bench.append(log, f"value {number}", "x" * (number % 7 * 10), timestamps=[time, 0])
    base = bench.clock.now_ms() - 1000
    path = log.segments[1].path.with_suffix(suffix)
    log.close()
    good = bench.files.get(path)
    bench.files = bench.files.kill()
    if damage == "missing":
        bench.files.remove(path)
    else:
        changed = {
            "empty": b"",
            "cut": good[: len(good) // 2],
            "flipped": good[:9] + bytes([good[9] ^ 1]) + good[10:],
            "grown": good + bytes(24),
            "another's": bench.files.get(log.segments[2].path.with_suffix(suffix)),
        }[damage]
        bench.files.put(path, changed)
    log = bench.open(recovery_point=120, clean=True)
    for number in range(60):
        assert values_of(read_all(log, 2 * number))[0] == f"value {number}"
        found = log.offset_for_timestamp(base + number)
        assert found is not None and found.offset == 2 * number
    if damage != "another's":
        assert bench.files.get(path) == good


def test_overlapping_offsets_are_no_log(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b")
    path = log_path(log)
    twice = 2 * bench.files.get(path)
    bench.files.put(path, twice)
    with pytest.raises(BadBatchError, match="base offset 0 where 2 is the least"):
        list(scan(bench.files.open(path), 0, len(twice), 0))


def test_a_damaged_index_of_the_last_segment_is_made_again(bench: Bench) -> None:
    bench.overrides = {"index.interval.bytes": "100"}
    log = bench.open()
    for number in range(20):
        bench.append(log, f"value {number}")
    log.close()
    path = log_path(log).with_suffix(".index")
    bench.files.put(path, bench.files.get(path)[:-3])
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=20, clean=True)
    assert values_of(read_all(log, 13))[0] == "value 13"
    assert bench.append(log, "next").base_offset == 20


@pytest.mark.parametrize(
    ("overrides", "is_cut", "is_synced"),
    [({}, False, False), ({}, True, True), ({"flush.messages": "1"}, False, True)],
    ids=["whole", "cut", "acknowledged when synced"],
)
def test_what_a_start_brings_to_the_disk(
    bench: Bench, overrides: dict[str, str], is_cut: bool, is_synced: bool
) -> None:
    """A whole log is as safe as before; what was cut must not come back after a power cut; and
    what counts only when it is synced is to be seen."""
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    bench.overrides = overrides
    if is_cut:
        path = log.segments[0].path
        bench.files.put(path, bench.files.get(path)[:-1])
    log = bench.reopen_after_kill(log)
    assert (log.recovered.cut is not None) == is_cut
    assert log.recovery_point == (log.log_end_offset if is_synced else 0)
    assert log.high_watermark == log.log_end_offset == (2 if is_cut else 3)
