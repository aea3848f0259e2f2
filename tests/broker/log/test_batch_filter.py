"""What compaction makes of one batch, and when: each rule at its edge."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.log.compaction import (
    DELETE_HORIZON_FLAG,
    Aborted,
    BatchFilter,
    Dirt,
    LastOfProducer,
    OffsetMap,
    SealedSegment,
    TransactionTracker,
    cleanable_end,
    group_segments,
    marker_type,
    measure,
    read_batches,
)
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.scan import BadBatchError
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import RecordBatch

NOW_MS, RETENTION_MS = 1_000_000, 500
PRODUCER = 7
CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]


def batch(
    base_offset: int, *records: tuple[bytes | None, bytes | None], **options: Any
) -> RecordBatch:
    """Records of keys and values, at 100, 101, 102 … ms."""
    new = [NewRecord(key, value, 100 + n) for n, (key, value) in enumerate(records)]
    return RecordBatch(memoryview(build_batch(new, base_offset=base_offset, **options)))


def marker(base_offset: int, *, epoch: int = 0, is_commit: bool = False) -> RecordBatch:
    data = build_marker(PRODUCER, epoch, Marker(is_commit, 0), 100)
    data[:8] = base_offset.to_bytes(8, "big")
    return RecordBatch(memoryview(data))


def map_of(*batches: RecordBatch, end: int = 1_000, bytes_max: int = 10**6) -> OffsetMap:
    offsets = OffsetMap(bytes_max)
    for each in batches:
        assert offsets.put(each)
    offsets.end_offset = end
    return offsets


def apply(
    given: RecordBatch,
    offsets: OffsetMap | None = None,
    *,
    aborted: Iterable[Aborted] = (),
    last: LastOfProducer | None = None,
    now_ms: int = NOW_MS,
) -> RecordBatch | None:
    """What is left of a batch; the same object where all is."""
    rules = BatchFilter(
        offsets or map_of(),
        TransactionTracker(aborted),
        {PRODUCER: last} if last else {},
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
    )
    left = rules.apply(given)
    if left is given.view:
        return given
    if left is None:
        return None
    found = RecordBatch(memoryview(bytearray(left)))
    assert found.crc_is_valid()
    assert found.size == len(left)
    for field in (
        "base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch",
        "base_sequence", "last_sequence", "is_transactional", "is_control",
    ):  # fmt: skip
        assert getattr(found, field) == getattr(given, field), field
    return found


def contents(found: RecordBatch | None) -> list[tuple[int, bytes | None, int]]:
    assert found is not None
    return [(record.offset, record.key, record.timestamp) for record in found.records()]


# -- records


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_what_a_newer_record_replaces_goes(codec: Codec) -> None:
    records = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")]
    given = batch(10, *records, codec=codec, producer_id=PRODUCER, producer_epoch=2,
                  base_sequence=30, partition_leader_epoch=5)  # fmt: skip
    offsets = map_of(given, batch(14, (b"c", b"5")))
    found = apply(given, offsets)
    assert contents(found) == [(11, b"b", 101), (12, b"a", 102)]
    assert found is not None
    assert (found.codec, found.records_count) == (codec, 2)
    assert (found.base_timestamp, found.max_timestamp) == (100, 102)


def test_a_batch_of_which_all_stays_is_not_rewritten() -> None:
    given = batch(10, (b"a", b"1"), (b"b", b"2"))
    assert apply(given, map_of(given)) is given


def test_what_the_map_does_not_know_stays() -> None:
    """Also records without keys; below its end those go."""
    given = batch(10, (None, b"1"), (b"a", b"2"), (None, b"3"), (None, None))
    newer = batch(20, (b"a", b"4"))
    assert contents(apply(given, map_of(newer, end=12)))[0] == (12, None, 102)
    assert apply(given, map_of(newer, end=10)) is not None
    assert len(contents(apply(given, map_of(newer, end=10)))) == 4
    assert apply(given, map_of(newer, end=14)) is None


def test_the_times_of_a_topic_that_stamps_stay() -> None:
    given = batch(10, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    given.stamp_log_append_time(777)
    found = apply(given, map_of(given))
    assert found is not None and found.is_log_append_time
    assert found.max_timestamp == 777
    shorter = apply(batch(10, (b"a", b"1"), (b"b", b"2")), map_of(batch(20, (b"b", b"3"))))
    assert shorter is not None and shorter.max_timestamp == 100, "of what is left"


# -- deletion markers


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_the_first_compaction_says_when_a_deletion_marker_goes(codec: Codec) -> None:
    """KIP-534: as base timestamp, from which the records' times are counted then."""
    given = batch(10, (b"a", b"1"), (b"b", None), (b"c", b"3"), codec=codec)
    found = apply(given, map_of(given))
    assert found is not None
    assert found.attributes == given.attributes | DELETE_HORIZON_FLAG
    assert found.base_timestamp == NOW_MS + RETENTION_MS
    assert contents(found) == contents(given)
    assert found.max_timestamp == given.max_timestamp == 102
    assert apply(found, map_of(given), now_ms=NOW_MS + RETENTION_MS - 1) is found
    later = apply(found, map_of(given), now_ms=NOW_MS + RETENTION_MS)
    assert contents(later) == [(10, b"a", 100), (12, b"c", 102)]
    assert later is not None
    assert later.base_timestamp == NOW_MS + RETENTION_MS
    assert later.attributes == found.attributes
    above = apply(found, map_of(given, end=11), now_ms=NOW_MS + RETENTION_MS)
    assert above is found, "what is not known to be the newest waits"


def test_long_records_and_late_ones_keep_their_times() -> None:
    """Whose lengths and times take more than one byte."""
    times = [100, 163, 164, 9_000, 2_000_000, 99, 36, *[101] * 30, 101]
    sizes = [0, 40, 80, 120, 160, 200, 240, *range(40, 70), 8_150]
    new = [
        NewRecord(b"k%d" % n, b"v" * size or None, time)
        for n, (size, time) in enumerate(zip(sizes, times, strict=True))
    ]
    given = RecordBatch(memoryview(build_batch(new, base_offset=10)))
    found = apply(given, map_of(given))
    assert found is not None and found is not given
    assert list(found.records()) == list(given.records())


def test_a_deletion_marker_that_is_replaced_goes_at_once() -> None:
    given = batch(10, (b"a", None), (b"b", b"2"))
    found = apply(given, map_of(batch(20, (b"a", b"3"))))
    assert contents(found) == [(11, b"b", 101)]
    assert found is not None and not found.attributes & DELETE_HORIZON_FLAG


# -- producers


@pytest.mark.parametrize(
    ("last", "is_kept"),
    [
        (None, False),
        (LastOfProducer(3, 11), True),
        (LastOfProducer(3, 10), False),
        (LastOfProducer(3, 0), False),
        (LastOfProducer(3, -1), False),
    ],
)
def test_the_last_batch_of_a_producer_stays_empty(
    last: LastOfProducer | None, is_kept: bool
) -> None:
    given = batch(10, (b"a", b"1"), (b"a", b"2"), producer_id=PRODUCER, producer_epoch=3,
                  base_sequence=8, codec=Codec.LZ4)  # fmt: skip
    offsets = map_of(batch(20, (b"a", b"3")))
    found = apply(given, offsets, last=last)
    assert (found is not None) == is_kept
    if found is not None:
        assert (found.records_count, found.size, found.codec) == (0, 61, Codec.NONE)
        assert (found.base_timestamp, found.max_timestamp) == (-1, 101)
        assert apply(found, offsets, last=last) is found
        assert apply(found, offsets) is None


def test_offset_0_and_producer_0_count() -> None:
    given = batch(0, (b"a", b"1"), producer_id=0, producer_epoch=0, base_sequence=0)
    rules = BatchFilter(
        map_of(batch(20, (b"a", b"3"))),
        TransactionTracker(()),
        {0: LastOfProducer(0, 0)},
        now_ms=NOW_MS,
        delete_retention_ms=RETENTION_MS,
    )
    assert rules.apply(given) is not None


def test_a_batch_of_no_producer_is_the_last_of_none() -> None:
    given = batch(10, (b"a", b"1"))
    assert apply(given, map_of(batch(20, (b"a", b"3"))), last=LastOfProducer(-1, 10)) is None


# -- transactions


def test_records_of_an_aborted_transaction_go() -> None:
    options = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0}
    given = batch(10, (b"a", b"1"), **options, transactional=True)
    aborted = [Aborted(PRODUCER, 10, 12)]
    assert apply(given, map_of(given)) is given
    assert apply(given, map_of(given), aborted=aborted) is None
    empty = apply(given, map_of(given), aborted=aborted, last=LastOfProducer(0, 10))
    assert empty is not None and empty.records_count == 0
    for other in ([Aborted(8, 10, 12)], [Aborted(PRODUCER, 11, 12)]):
        assert apply(given, map_of(given), aborted=other) is given
    plain = batch(10, (b"a", b"1"), **options)
    assert apply(plain, map_of(plain), aborted=aborted) is plain


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_outlives_its_transaction_for_a_time(is_commit: bool) -> None:
    given = marker(12, is_commit=is_commit)
    found = apply(given)
    assert found is not None
    assert found.base_timestamp == NOW_MS + RETENTION_MS
    assert found.attributes == given.attributes | DELETE_HORIZON_FLAG
    assert marker_type(found) == marker_type(given) == is_commit
    assert contents(found) == contents(given)
    assert apply(found, now_ms=NOW_MS + RETENTION_MS - 1) is found
    assert apply(found, now_ms=NOW_MS + RETENTION_MS) is None


@pytest.mark.parametrize(
    ("last", "is_kept"),
    [
        (LastOfProducer(2, -1), True),
        (LastOfProducer(3, -1), False),
        (LastOfProducer(1, -1), False),
        (LastOfProducer(2, 12), True),
        (LastOfProducer(2, 11), False),
    ],
)
def test_the_last_marker_of_a_producer_stays_empty(last: LastOfProducer, is_kept: bool) -> None:
    waiting = apply(marker(12, epoch=2))
    assert waiting is not None
    found = apply(waiting, last=last, now_ms=NOW_MS + RETENTION_MS)
    assert (found is not None) == is_kept
    if found is not None:
        assert (found.records_count, found.attributes & DELETE_HORIZON_FLAG) == (0, 0)
        assert apply(found, last=last) is found, "it has no kind any more"


def test_markers_stay_while_a_record_of_theirs_is_there() -> None:
    options: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "transactional": True}
    for is_commit in (True, False):
        aborted = [] if is_commit else [Aborted(PRODUCER, 10, 12)]
        tracker = TransactionTracker(aborted)
        data = batch(10, (b"a", b"1"), **options, base_sequence=0)
        assert tracker.is_aborted(data) != is_commit
        assert not tracker.ends_nothing(marker(12, is_commit=is_commit))
        assert tracker.ends_nothing(marker(13, is_commit=is_commit)), "that of the next one"
        assert not tracker.is_aborted(batch(14, (b"a", b"2"), **options, base_sequence=1))


def test_a_transaction_of_which_nothing_is_left_ends_at_its_marker() -> None:
    tracker = TransactionTracker([Aborted(PRODUCER, 10, 12)])
    assert tracker.ends_nothing(marker(12)) is True
    next_one = batch(14, (b"a", b"1"), producer_id=PRODUCER, producer_epoch=0, transactional=True)
    assert tracker.is_aborted(next_one) is False
    assert tracker.is_aborted(batch(15, (b"a", b"1"))) is False


@pytest.mark.parametrize("order", [1, -1])
def test_transactions_begin_in_the_order_of_the_log(order: int) -> None:
    """However they are given: that of a producer ends before its next begins."""
    options: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "transactional": True}
    aborted = [Aborted(PRODUCER, 10, 11), Aborted(PRODUCER, 20, 21)]
    tracker = TransactionTracker(aborted[::order])
    for base in (10, 20):
        assert tracker.is_aborted(batch(base, (b"a", b"1"), **options, base_sequence=0))
        assert not tracker.ends_nothing(marker(base + 1))
        assert not tracker.is_aborted(batch(base + 5, (b"a", b"1"), **options, base_sequence=0))
        assert not tracker.ends_nothing(marker(base + 6, is_commit=True))


@pytest.mark.parametrize(
    ("key", "kind"),
    [(b"", -1), (b"\0\0\0", -1), (b"\0\0\0\5", 5), (b"\0\0\1\0", 256), (b"\0\1\0\5", 5)],
)
def test_control_batches_of_another_kind_stay(key: bytes, kind: int) -> None:
    given = batch(10, (key, b"x"), producer_id=PRODUCER, control=True, transactional=True)
    assert marker_type(given) == kind
    assert apply(given) is given
    assert TransactionTracker(()).ends_nothing(given) is False


def test_a_marker_may_say_more() -> None:
    """A later version, behind what we know."""
    for kind in (0, 1):
        key = b"\0\1" + kind.to_bytes(2, "big") + b"more"
        given = batch(10, (key, b"x"), producer_id=PRODUCER, control=True, transactional=True)
        assert marker_type(given) == kind


# -- the map of keys


def test_the_map_knows_the_newest_offset_of_a_key() -> None:
    offsets = map_of(batch(10, (b"a", b"1"), (b"a", b"2"), (None, b"3")))
    assert len(offsets) == 1
    assert [offsets.is_replaced(b"a", offset) for offset in (10, 11, 12)] == [True, False, False]
    assert not offsets.is_replaced(b"b", -1)


@pytest.mark.parametrize("size", [39, 40, 41, 42, 1000])
def test_keys_of_any_length_differ(size: int) -> None:
    one, other = b"k" * (size - 1) + b"1", b"k" * (size - 1) + b"2"
    offsets = map_of(batch(10, (one, b"1"), (other, b"2"), (one, b"3")))
    assert len(offsets) == 2
    assert offsets.is_replaced(one, 10) and not offsets.is_replaced(one, 12)
    assert not offsets.is_replaced(other, 11)


@pytest.mark.parametrize(("size", "entry"), [(1, 151), (40, 190), (41, 191), (500, 191)])
def test_the_map_takes_what_it_has_space_for(size: int, entry: int) -> None:
    """150 bytes an entry, and its key or digest. The first batch is taken in any case."""
    first, second, third = (batch(n, (b"%d" % n * size, b"v")) for n in range(3))
    for bytes_max in (0, 1, entry + 149):
        offsets = OffsetMap(bytes_max)
        assert [offsets.put(each) for each in (first, second)] == [True, False]
        assert len(offsets) == 1
    offsets = OffsetMap(2 * entry + 150)
    assert all(offsets.put(each) for each in (first, second, third))
    offsets = OffsetMap(2 * entry + 149)
    assert [offsets.put(each) for each in (first, second, third)] == [True, True, False]


def test_keys_that_are_known_take_no_more_space() -> None:
    offsets = OffsetMap(2 * 151 + 150)
    assert offsets.put(batch(0, (b"a", b"v"), (b"b", b"v")))
    for n in range(2, 20):
        assert offsets.put(batch(n, (b"a", b"v")))
    assert offsets.is_replaced(b"a", 18)
    assert offsets.put(batch(30)), "one without records"


def test_batches_without_records_take_no_space() -> None:
    offsets = OffsetMap(1)
    assert offsets.put(batch(0))
    assert offsets.put(batch(1, (b"a", b"v"))), "the first one"
    assert not offsets.put(batch(2, (b"a", b"v")))


# -- reading


def written(*batches: RecordBatch) -> tuple[Any, int]:
    files = MemFiles()
    files.make_directory(Path("/d"))
    data = b"".join(bytes(each.view) for each in batches)
    files.put(Path("/d/x.log"), data)
    return files.open(Path("/d/x.log")), len(data)


def test_every_batch_is_read_with_its_place() -> None:
    """Across the pieces in which a file is read, and where a batch is larger than one."""
    sizes = [10, 3 << 20, 2 << 20, 9 << 20, 20, 4 << 20, 0]
    batches = [batch(n, (b"k", bytes(size))) for n, size in enumerate(sizes)]
    file, size = written(*batches)
    found = [(at, each.base_offset, each.size) for at, each in read_batches(file, size)]
    starts = [sum(each.size for each in batches[:n]) for n in range(len(batches))]
    assert found == [
        (at, n, each.size) for n, (at, each) in enumerate(zip(starts, batches, strict=True))
    ]
    assert list(read_batches(file, 0)) == []
    empty = batch(3)
    file, size = written(empty)
    assert [each.base_offset for _, each in read_batches(file, size)] == [3]


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_a_torn_batch_ends_the_reading(cut: int) -> None:
    one = batch(0, (b"k", b"v"))
    file, size = written(one, one)
    for end in (size - cut, one.size + cut):
        with pytest.raises(BadBatchError, match="no batch") as error:
            list(read_batches(file, end))
        assert error.value.position == one.size
    with pytest.raises(BadBatchError, match="torn") as error:
        list(read_batches(file, size + cut + 60))
    assert error.value.position == size
    with pytest.raises(BadBatchError, match=f"length {one.size - 12}"):
        list(read_batches(file, size - 1))


def test_a_file_that_is_shorter_than_it_was() -> None:
    one = batch(0, (b"k", b"v"))
    file, size = written(one, one)
    file.truncate(size - 1)
    with pytest.raises(BadBatchError, match="torn") as error:
        list(read_batches(file, size))
    assert error.value.position == one.size


@pytest.mark.parametrize("at", [8, 16, 20, 63])
def test_a_damaged_batch_ends_the_reading(at: int) -> None:
    """Its length, its magic, its CRC, its records."""
    one = batch(0, (b"k", b"v"))
    bad = bytearray(one.view)
    bad[at] ^= 0x80
    files = MemFiles()
    files.make_directory(Path("/d"))
    files.put(Path("/d/x.log"), bytes(one.view) + bytes(bad) + bytes(one.view))
    reading = read_batches(files.open(Path("/d/x.log")), 3 * one.size)
    assert next(reading)[0] == 0
    with pytest.raises(BadBatchError) as error:
        next(reading)
    assert error.value.position == one.size


# -- what to compact


def segments(*ends: int, newest_ms: int = 0) -> list[SealedSegment]:
    """Of 100 bytes for each offset, and 10 of indexes."""
    begins = (0, *ends[:-1])
    return [
        SealedSegment(begin, end, 100 * (end - begin), 10 * (end - begin), newest_ms + end)
        for begin, end in zip(begins, ends, strict=True)
    ]


@pytest.mark.parametrize(
    ("first_dirty", "options", "expected"),
    [
        (0, {}, 9),
        (0, {"stable_offset": 9}, 9),
        (0, {"stable_offset": 8}, 5),
        (0, {"stable_offset": 1}, 0),
        (2, {"stable_offset": 1}, 2),
        (5, {"stable_offset": 9}, 9),
        (9, {}, 9),
        (0, {"min_lag_ms": 10, "now_ms": 15}, 5),  # as old as asked for
        (0, {"min_lag_ms": 10, "now_ms": 14}, 2),
        (0, {"min_lag_ms": 1, "now_ms": 2}, 0),
        (0, {"min_lag_ms": 0, "now_ms": 0}, 9),
        (2, {"min_lag_ms": 10, "now_ms": 0}, 2),
    ],
)
def test_where_compaction_ends(first_dirty: int, options: dict[str, int], expected: int) -> None:
    given = {"stable_offset": 99, "now_ms": 0, "min_lag_ms": 0} | options
    assert cleanable_end(segments(2, 5, 9), first_dirty, **given) == expected


@pytest.mark.parametrize(("first_dirty", "expected"), [(0, 0), (2, 5)])
def test_what_is_behind_young_records_waits_with_them(first_dirty: int, expected: int) -> None:
    """Of those that are clean it does not matter how young they are."""
    young, old = segments(2, 5)
    found = cleanable_end(
        [young._replace(newest_ms=90), old], first_dirty,
        stable_offset=99, now_ms=100, min_lag_ms=20,
    )  # fmt: skip
    assert found == expected


@pytest.mark.parametrize(
    ("first_dirty", "end", "oldest_ms", "expected"),
    [
        (0, 9, None, Dirt(0, 900, 0)),
        (2, 9, 50, Dirt(200, 700, 40)),
        (2, 5, 50, Dirt(200, 300, 40)),
        (5, 9, 90, Dirt(500, 400, 0)),
        (5, 9, 95, Dirt(500, 400, 0)),
        (5, 9, 89, Dirt(500, 400, 1)),
        (5, 5, 0, Dirt(500, 0, 0)),
    ],
)
def test_how_dirty_a_log_is(
    first_dirty: int, end: int, oldest_ms: int | None, expected: Dirt
) -> None:
    found = measure(
        segments(2, 5, 9), first_dirty, end, now_ms=100, max_lag_ms=10, oldest_dirty_ms=oldest_ms
    )
    assert found == expected
    assert found.ratio == expected.dirty_bytes / (expected.clean_bytes + expected.dirty_bytes)
    assert Dirt(0, 0, 0).ratio == 0.0


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((10_000, 10_000), [[2, 5, 9, 10]]),
        ((900, 10_000), [[2, 5, 9], [10]]),
        ((899, 10_000), [[2, 5], [9, 10]]),
        ((500, 10_000), [[2, 5], [9, 10]]),
        ((499, 10_000), [[2], [5], [9], [10]]),
        ((10_000, 50), [[2, 5], [9, 10]]),
        ((10_000, 90), [[2, 5, 9], [10]]),
        ((1, 1), [[2], [5], [9], [10]]),
    ],
)
def test_neighbours_become_one_segment(limits: tuple[int, int], expected: list[list[int]]) -> None:
    groups = group_segments(segments(2, 5, 9, 10), segment_bytes=limits[0], index_bytes=limits[1])
    assert [[segment.end_offset for segment in group] for group in groups] == expected


@pytest.mark.parametrize("base", [0, 2**33])
@pytest.mark.parametrize(("end", "count"), [(2**31 - 1, 1), (2**31, 2)])
def test_offsets_of_one_segment_fit_its_index(base: int, end: int, count: int) -> None:
    ends = [base, base + 9, base + 99, base + end]
    far = [SealedSegment(begin, end, 1, 1, 0) for begin, end in pairwise(ends)]
    assert len(group_segments(far, segment_bytes=100, index_bytes=100)) == count
