"""The shapes of batches that the walk over records remembers, and the keys of records.

Speed is counted here in calls: batches like earlier ones need no walk.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from walked_records import (
    AFTER,
    BEFORE,
    LONG_TIME,
    NULL,
    START,
    Counted,
    H,
    problem_of,
    record,
    records,
    sized,
)

from penstock_broker.wire import record_walk
from penstock_broker.wire.record_walk import (
    Shape,
    check_records,
    have_keys,
    shape_of,
)


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_walk, "_shapes", {})


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, "_walk")


# -- shapes --------------------------------------------------------------------------------------


def check(data: bytes, count: int) -> None:
    check_records(BEFORE + data + AFTER, START, START + len(data), count)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_the_third_batch_of_a_shape_is_not_walked(count: int, walks: Counted) -> None:
    for number in range(4):
        check(records(count, value=sized(b"%d" % number)), count)
    assert walks.take() == 2
    check(records(count, value=sized(b"5"), time=b"\x7e"), count)
    assert walks.take() == (count == 1), "of one record the time counts, too"


@pytest.mark.parametrize(
    ("count", "data"),
    [
        (65, records(65)),
        (3, record(0) + record(1, value=sized(b"v")) + record(2)),
        (2, records(2, headers=b"\2" + H)),
        (2, record(0, value=sized(b"12")) + record(1, key=sized(b"12"), value=sized(b"1"))),
        (1, record(0, time=b"\x80\1")),
    ],
    ids=["many", "of several sizes", "with headers", "not alike", "long times"],
)
def test_batches_of_other_shapes_are_walked(count: int, data: bytes, walks: Counted) -> None:
    for _ in range(4):
        check(data, count)
    assert walks.take() == 4


def test_only_what_may_have_a_shape_is_remembered() -> None:
    check(records(65), 65)
    check(records(2), 2)
    check(record(0) + record(1, value=sized(b"v")) + record(2), 3)
    check(records(64) + record(64, value=sized(b"valu")), 65)
    assert list(record_walk._shapes) == [(26, 2)]
    check(records(64), 64)
    assert list(record_walk._shapes) == [(26, 2), (64 * 13, 64)]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_batch_that_differs_from_its_shape_is_judged_by_itself(count: int) -> None:
    good = records(count)
    for _ in range(3):
        check(good, count)
    size = len(good) // count
    for number in range(count):
        for at in (0, 3, 4, 6, size - 1):
            bad = bytearray(good)
            bad[number * size + at] ^= 2
            assert problem_of(lambda bad=bad: check(bytes(bad), count)) is not None  # type: ignore[misc]
        late = bytearray(good)
        late[number * size + 2] = 0x80
        assert problem_of(lambda late=late: check(bytes(late), count)) is not None  # type: ignore[misc]


@pytest.mark.parametrize("count", [1, 2])
def test_what_has_no_shape_is_not_taken_for_one(count: int) -> None:
    good = records(count, headers=b"\2" + H)
    for _ in range(3):
        check(good, count)
    bad = good[:-1] + b"\xff"
    check(bad, count)
    assert problem_of(lambda: check(b"\xff" * len(good), count)) is not None


def test_a_shape_is_looked_for_once(walks: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Counted(monkeypatch, "shape_of")
    for _ in range(5):
        check(records(2, headers=b"\2" + H), 2)
    assert looked.take() == 1
    for _ in range(3):
        check(records(2), 2)
    walks.take()
    check(records(2, key=sized(b"kk"), value=sized(b"valu")), 2)
    check(records(2), 2)
    assert walks.take() == 1, "the shape that is known stays"


def test_so_many_shapes_are_remembered_and_no_more() -> None:
    for size in range(256):
        check(record(value=sized(bytes(size))), 1)
    assert len(record_walk._shapes) == 256
    check(record(value=sized(bytes(255))), 1)
    assert len(record_walk._shapes) == 256
    check(record(value=sized(bytes(256))), 1)
    assert len(record_walk._shapes) == 1


def shape(data: bytes, count: int) -> Shape | None:
    return shape_of(BEFORE + data + AFTER, START, START + len(data), count)


def test_the_columns_of_a_shape() -> None:
    """The record's length, its key's, its value's, the number of headers; the offsets."""
    found = shape(records(3), 3)
    assert found is not None
    assert found.columns == [
        (0, b"\x18\x18\x18"), (4, b"\2\2\2"), (6, b"\n\n\n"), (12, b"\0\0\0"), (3, b"\0\2\4"),
    ]  # fmt: skip


def test_the_columns_of_one_record() -> None:
    """All before its key, and what follows it; side by side they are one."""
    found = shape(record(), 1)
    assert found is not None
    assert found.columns == [(0, b"\x18\0\0\0\2"), (6, b"\n"), (12, b"\0")]
    long = shape(record(key=sized(b"kk"), value=sized(bytes(64))), 1)
    assert long is not None
    assert long.columns == [(0, b"\x92\1\0\0\0\4"), (8, b"\x80\1"), (74, b"\0")]
    bare = shape(record(key=NULL, value=NULL), 1)
    assert bare is not None
    assert bare.columns == [(0, b"\x0c\0\0\0\1\1\0")]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (records(65)[: 65 * 12], 65),
        (records(3) + b"\0", 3),
        (record(0, time=b"\x80\1"), 1),
        (record(0, headers=b"\2" + H), 1),
        (records(2, headers=b"\2" + H), 2),
        (record(0) + record(1, key=b"\4kk", value=b"\x08valu"), 2),
        (record(0) + record(1, time=b"\x80"), 2),
    ],
)
def test_what_has_no_shape(data: bytes, count: int) -> None:
    assert shape(data, count) is None


@pytest.mark.parametrize("time", [b"\0", b"\x7f"])
def test_shapes_of_times_in_one_byte(time: bytes) -> None:
    assert shape(record(time=time), 1) is not None
    assert shape(records(64, time=time), 64) is not None


def fits(found: Shape | None, data: bytes) -> bool:
    assert found is not None
    answer = found.fits(BEFORE + data + AFTER, START)
    assert isinstance(answer, bool)
    return answer


@pytest.mark.parametrize("count", [1, 2, 20])
def test_records_of_other_content_fit_a_shape(count: int) -> None:
    found = shape(records(count), count)
    assert fits(found, records(count, key=sized(b"K"), value=sized(b"VALUE")))
    assert fits(found, records(count, time=b"\x7f")) is (count > 1)
    assert not fits(found, records(count, key=NULL, value=sized(b"values")))


def test_a_shape_without_records_fits_nothing() -> None:
    assert fits(Shape(0, 0, 0, []), b"") is False


# -- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [b"\0", b"\x7f", b"\x80\1", b"\x80\x80\1", LONG_TIME])
@pytest.mark.parametrize("value", [0, 70, 9_000])
def test_which_records_have_keys(time: bytes, value: int) -> None:
    keys: Sequence[bytes] = (sized(b"k"), NULL, b"\0", sized(bytes(64)), sized(bytes(65)), NULL)
    count = 70
    data = b"".join(
        record(n, time=time, key=keys[n % len(keys)], value=sized(bytes(value)))
        for n in range(count)
    )
    found = list(have_keys(BEFORE + data + AFTER, START, count))
    assert found == [keys[n % len(keys)] != NULL for n in range(count)]
