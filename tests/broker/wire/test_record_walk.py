"""The walk over the records of a batch: it takes what the careful reader takes, and no more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.wire.batch_builder import NewRecord, build_batch, write_varint
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.record_walk import BadRecordError, _walk, check_records
from penstock_broker.wire.records import HEADER_BYTES, RecordBatch

keys = st.one_of(st.none(), st.binary(max_size=10))
values = st.one_of(st.none(), st.binary(max_size=300), st.just(b"v" * 9_000))
headers = st.lists(st.tuples(st.text(max_size=5), keys), max_size=3)
times = st.integers(-(1 << 40), 1 << 40)


def body_of(records: list[NewRecord]) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


def careful(data: bytes, count: int) -> bool | None:
    """Whether the reader that copies every record can read them, with offsets in order.

    It is milder in one thing: any negative length is null. None: a header key ended its reading.
    """
    batch = RecordBatch(memoryview(build_batch([])))
    batch.view = memoryview(bytes(HEADER_BYTES) + data)
    batch.base_offset, batch.records_count = 0, count
    try:
        offsets = [record.offset for record in batch.records()]
    except DecodeError as error:
        return None if "UTF-8" in str(error) else False
    return offsets == list(range(count))


def walks(data: bytes, count: int) -> bool:
    return problem_of(data, count) is None


def problem_of(data: bytes, count: int) -> str | None:
    """The same however often it is asked: what is remembered of a batch changes nothing."""
    first = _problem_of(data, count)
    assert [_problem_of(data, count) for _ in range(2)] == [first, first]
    return first


def _problem_of(data: bytes, count: int) -> str | None:
    try:
        check_records(data, 0, len(data), count)
    except BadRecordError as bad:
        return bad.problem
    return None


@given(st.lists(st.builds(NewRecord, keys, values, times, headers), min_size=1, max_size=40))
def test_what_producers_build_is_taken(records: list[NewRecord]) -> None:
    data = body_of(records)
    assert walks(data, len(records))
    assert not walks(data, len(records) + 1)
    assert len(records) == 1 or not walks(data, len(records) - 1)
    assert not walks(data + b"\0", len(records))
    assert not walks(data[:-1], len(records))


@pytest.mark.parametrize("count", [7, 8, 63, 64, 65, 66, 80, 200, 8_191, 8_192, 8_200])
@pytest.mark.parametrize("step", [0, 1, 100], ids="times-{}".format)
@pytest.mark.parametrize("size", [0, 10, 60, 200, 9_000])
def test_stretches_of_records_of_one_size(count: int, step: int, size: int) -> None:
    """The offset delta gets longer at 64 and 8,192, the timestamp's on the way."""
    if count * size > 2_000_000:
        count = 100
    records = [NewRecord(b"key", b"v" * size, 1_000 + n * step) for n in range(count)]
    data = bytearray(body_of(records))
    assert walks(data, count)
    assert not walks(data, count - 1)
    assert not walks(data + b"\0", count)


def mutants(data: bytes, chance: random.Random, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(chance.choice((1, 1, 2))):
            # Values are "v": a change there is no change of structure, so aim elsewhere mostly.
            places = [n for n, byte in enumerate(mutant) if byte != ord("v")]
            at = chance.choice(places)
            mutant[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, mutant[at] ^ 2, mutant[at] ^ 1))
        found.append(bytes(mutant))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["alike", "mixed", "headers", "headers alike"])
def test_damage_is_judged_as_by_the_careful_reader(seed: int, kind: str) -> None:
    """Pitfall 18: what a CRC cannot see. The stretch must not take what reading would refuse."""
    chance = random.Random(seed)
    count = chance.choice((9, 30, 64, 70, 100))
    records = [
        NewRecord(
            None if "alike" in kind else b"k%d" % n,
            b"v" * (20 if "alike" in kind else chance.randrange(30)),
            1_000 + n,
            [("h", b"\0")] if kind == "headers alike" or (kind == "headers" and n % 3) else [],
        )
        for n in range(count)
    ]
    data = body_of(records)
    for mutant in mutants(data, chance, 400):
        problem, expected = problem_of(mutant, count), careful(mutant, count)
        if expected is not None and (problem is None or "negative" not in problem):
            assert (problem is None) == expected, mutant.hex()


@given(st.binary(max_size=200), st.integers(1, 20))
@settings(max_examples=300)
def test_noise_is_refused_or_whole(data: bytes, count: int) -> None:
    assert not walks(data, count) or careful(data, count) is not False


def test_a_long_first_length_does_not_lend_itself_to_a_stretch() -> None:
    """A length in more bytes than it needs, then records that look alike but for its last byte."""
    body = b"\0\0%c\1" + write_varint(2) + b"ab" + b"\0"
    records = []
    for number in range(20):
        one = body.replace(b"%c", bytes((2 * number,)))
        size = 2 * len(one)
        records.append(bytes((size | 0x80, 0x80, 0)) + one)
    assert walks(b"".join(records), 20)
    records[10] = records[10][:2] + b"\1" + records[10][3:]
    assert not walks(b"".join(records), 20)


def test_it_says_which_record() -> None:
    records = [NewRecord(None, b"value", 1) for _ in range(30)]
    data = bytearray(body_of(records))
    one = len(data) // 30
    data[17 * one + 3] = 0  # its offset delta
    with pytest.raises(BadRecordError) as caught:
        check_records(data, 0, len(data), 30)
    assert caught.value.number == 17


@given(
    st.integers(1, 66),
    st.sampled_from([0, 1, 60, 61, 200]),
    st.sampled_from([None, b"", b"key"]),
    st.data(),
)
def test_one_wrong_byte_in_a_batch_like_many_before_is_found(
    count: int, size: int, key: bytes | None, chance: st.DataObject
) -> None:
    """Batches that are remembered, and one that differs from them anywhere."""
    good = body_of([NewRecord(key, b"v" * size, n % 60) for n in range(count)])
    for _ in range(3):
        check_records(good, 0, len(good), count)
    bad = bytearray(good)
    at = chance.draw(st.integers(0, len(bad) - 1))
    bad[at] = chance.draw(st.integers(0, 255))
    try:
        _walk(bytes(bad), 0, len(bad), count)
    except BadRecordError as problem:
        assert problem_of(bytes(bad), count) == problem.problem
    else:
        assert problem_of(bytes(bad), count) is None
    shifted = b"\xff" * 5 + bytes(bad)
    try:
        check_records(shifted, 5, len(shifted), count)
    except BadRecordError as problem:
        assert problem_of(bytes(bad), count) == problem.problem
    else:
        assert problem_of(bytes(bad), count) is None
