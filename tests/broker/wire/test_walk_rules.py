"""The walk over records, part by part: what is refused, and what spares the careful look.

Speed is counted here in calls: records as most are need none of the careful check,
and stretches of them none at all.
"""

from __future__ import annotations

import pytest
from walked_records import (
    AFTER,
    BEFORE,
    LONG_TIME,
    NULL,
    START,
    Counted,
    H,
    header,
    problem_of,
    record,
    records,
    sized,
    walk,
)

from penstock_broker.wire import record_walk


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_walk, "_shapes", {})


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, "_check_record")


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, "_stretch")


# -- one record, carefully -----------------------------------------------------------------------

GOOD = {
    "plain": {},
    "no key": {"key": NULL},
    "no value": {"value": NULL},
    "empty": {"key": b"\0", "value": b"\0"},
    "a key of 63": {"key": sized(bytes(63))},
    "a key of 64": {"key": sized(bytes(64))},
    "a key of 8192": {"key": sized(bytes(8_192))},
    "a value of 64": {"value": sized(bytes(64))},
    "a value of 100000": {"value": sized(bytes(100_000))},
    "a key's length in five bytes": {"key": b"\x82\x80\x80\x80\0k"},
    "early": {"time": b"\x7f"},
    "a time of two bytes": {"time": b"\x80\1"},
    "a time of ten bytes": {"time": LONG_TIME},
    "a header": {"headers": b"\2" + H},
    "headers": {"headers": b"\4" + H + H},
    "headers without values": {"headers": b"\4" + 2 * header(sized(b"h"), NULL)},
    "empty headers": {"headers": b"\4" + 2 * header(b"\0", b"\0")},
    "long headers": {"headers": b"\2" + header(sized(bytes(70)), sized(bytes(9_000)))},
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("number", [0, 1, 5, 63, 64, 8_191, 8_192])
def test_a_whole_record_is_taken(name: str, number: int) -> None:
    parts = GOOD[name]
    data = record(number, **parts)
    end = START + len(data)
    stop, key_at = record_walk._check_record(BEFORE + data + AFTER, START, end, number)
    assert stop == end
    key = parts.get("key", sized(b"k"))
    assert (BEFORE + data)[key_at:].startswith(key)
    before = len(data) - len(b"".join((key, parts.get("value", sized(b"value")),
                                       parts.get("headers", b"\0"))))  # fmt: skip
    assert key_at == START + before


BAD: list[tuple[dict[str, bytes], str]] = [
    ({"size": b"\x19"}, "its length does not fit"),
    ({"size": b"\x17"}, "its length does not fit"),
    ({"size": b"\x16"}, "it has more headers than bytes"),
    ({"size": b"\x14"}, "it has more headers than bytes"),
    ({"time": b"\x80" * 10 + b"\1"}, "its timestamp is too long"),
    ({"delta": b"\x06"}, "its offset does not follow"),
    ({"delta": b"\x02"}, "its offset does not follow"),
    ({"delta": b"\x05"}, "its offset does not follow"),
    ({"key": b"\3k"}, "its key has a negative length"),
    ({"key": b"\3"}, "its key has a negative length"),
    ({"value": b"\5vv"}, "its value has a negative length"),
    ({"value": b"\x81\1"}, "its value has a negative length"),
    ({"key": b"\x82\x80\x80\x80\x80\0k"}, "it is cut short"),
    ({"key": b"\x80\x80\x80\x80\x10"}, "it is cut short"),
    ({"key": b"\x80\x80\x80\x80\x08"}, "it is cut short"),
    ({"value": b"\xfe\xff\xff\xff\x0f"}, "it is cut short"),
    ({"headers": b"\1"}, "it has a negative number of headers"),
    ({"headers": b"\3" + H}, "it has a negative number of headers"),
    ({"headers": b"\x0a" + H}, "it has more headers than bytes"),
    ({"headers": b"\x80\x10" + H}, "it has more headers than bytes"),
    ({"headers": b"\2" + header(NULL, b"\0")}, "a header has no key"),
    ({"headers": b"\4" + H + header(NULL, b"\0")}, "a header has no key"),
    ({"headers": b"\2" + header(sized(b"h"), b"\3")}, "a header has a negative length"),
    ({"headers": b"\2" + header(sized(b"h"), b"\4x")}, "a header runs past its end"),
    ({"headers": b"\2" + H + b"x"}, "its length is not that of its parts"),
    ({"headers": b"\0x"}, "its length is not that of its parts"),
]
BEYOND: list[tuple[dict[str, bytes], str]] = [
    ({"size": b"\x1a"}, "its length does not fit"),
    ({"headers": b""}, "it is cut short"),
    ({"headers": b"\6" + H + H}, "a header has no key"),
    ({"headers": b"\4\0\0\0"}, "it is cut short"),
]
"""What a record that reaches beyond its batch meets there."""


@pytest.mark.parametrize(("parts", "problem"), [*BAD, *BEYOND])
def test_a_record_that_is_not_whole_is_refused(parts: dict[str, bytes], problem: str) -> None:
    data = record(2, **parts)
    given = BEFORE + data + AFTER
    found = problem_of(lambda: record_walk._check_record(given, START, START + len(data), 2))
    assert found == (2, problem)


def test_a_record_does_not_reach_beyond_the_batch() -> None:
    data = record(2)
    check = record_walk._check_record
    given = BEFORE + data + AFTER
    assert problem_of(lambda: check(given, START, START + len(data), 2)) is None
    short = START + len(data) - 1
    assert problem_of(lambda: check(given, START, short, 2)) == (2, "its length does not fit")
    for end in range(1, len(data)):
        torn = record(2, size=b"\0")[:end]
        assert problem_of(lambda torn=torn: check(torn, 0, 99, 2)) is not None  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0", (0, 1)),
        (b"\x7f", (127, 1)),
        (b"\x80\1", (128, 2)),
        (b"\xff\x7f", (16_383, 2)),
        (b"\x80\x80\1", (16_384, 3)),
        (b"\x81\x82\x83\4", (1 | 2 << 7 | 3 << 14 | 4 << 21, 4)),
        (b"\xff\xff\xff\xff\x0f", (2**32 - 1, 5)),
        (b"\x80\x80\x80\x80\x08", (2**31, 5)),
        (b"\x80\x80\x80\x80\0", (0, 5)),
    ],
)
def test_numbers_of_up_to_32_bits(data: bytes, expected: tuple[int, int]) -> None:
    value, end = expected
    assert record_walk._varint(BEFORE + data + AFTER, START) == (value, START + end)


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x10", b"\x80\x80\x80\x80\x80\0"]
)
def test_longer_numbers_are_cut_short(data: bytes) -> None:
    with pytest.raises(IndexError):
        record_walk._varint(data, 0)


# -- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"key": NULL},
        {"key": b"\0", "value": b"\0"},
        {"key": sized(bytes(63))},
        {"key": sized(bytes(64))},
        {"key": sized(bytes(127))},
        {"key": sized(bytes(128))},
        {"key": sized(bytes(5_000)), "value": sized(bytes(3_000))},
        {"value": sized(bytes(53))},
        {"value": sized(bytes(54))},
        {"value": sized(bytes(57))},  # 64 bytes, a length of 0x80 0x01
        {"value": sized(bytes(63))},
        {"value": sized(bytes(64))},
        {"value": sized(bytes(191))},
        {"value": sized(bytes(8_150))},
        {"time": b"\x7f"},
        {"time": b"\x80\1"},
        {"time": b"\xff\x80\x7f"},
    ],
    ids=lambda parts: " ".join(f"{name} {len(part)}" for name, part in parts.items()) or "small",
)
@pytest.mark.parametrize("count", [1, 5, 64, 70, 200])
def test_most_records_need_no_careful_look(
    parts: dict[str, bytes], count: int, careful: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_walk, "_stretch", lambda *arguments: 0)
    walk(records(count, **parts), count)
    assert careful.take() == 0


def test_offsets_of_two_bytes_need_none_either(
    careful: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_walk, "_stretch", lambda *arguments: 0)
    walk(records(8_192), 8_192)
    assert careful.take() == 0
    walk(records(8_195), 8_195)
    assert careful.take() == 3


@pytest.mark.parametrize(
    ("parts", "is_careful"),
    [
        ({"time": b"\x80" * 3 + b"\1", "value": sized(bytes(90))}, False),  # its key is at 8
        ({"time": b"\x80" * 4 + b"\1", "value": sized(bytes(90))}, True),
        ({"value": sized(bytes(8_183))}, False),  # 8,191 bytes
        ({"value": sized(bytes(8_184))}, True),
        ({"key": sized(bytes(8_192))}, True),
        ({"value": NULL}, True),
        ({"headers": b"\2" + H}, True),
        ({"key": b"\x82\0k"}, False),
        ({"key": b"\x82\x80\0k"}, True),
    ],
)
def test_some_records_are_looked_at_with_care(
    parts: dict[str, bytes], is_careful: bool, careful: Counted
) -> None:
    walk(records(1, **parts), 1)
    assert careful.take() == is_careful


@pytest.mark.parametrize(("parts", "problem"), BAD)
def test_the_first_record_that_is_not_whole_is_named(parts: dict[str, bytes], problem: str) -> None:
    good = [record(number, value=sized(bytes(number))) for number in range(2)]
    data = b"".join(good) + record(2, **parts) + record(3, value=sized(b"longer value"))
    assert problem_of(lambda: walk(data, 4)) == (2, problem)


def test_a_length_of_three_bytes_is_not_read_as_one_of_two() -> None:
    """The offset of record 8,192 without its last byte, which would be a key that is null."""
    last = record(8_192, key=b"", value=sized(b"value"))
    found = problem_of(lambda: walk(records(8_192) + last, 8_193))
    assert found == (8_192, "it is cut short")
    parts = {"key": sized(bytes(4_092)), "value": sized(bytes(4_092))}  # 8,192 bytes with them
    found = problem_of(lambda: walk(record(0, size=b"\x80\x80", **parts), 1))
    assert found is not None


def test_the_last_record_does_not_reach_beyond_the_batch() -> None:
    data = records(3)
    end = START + len(data) - 1
    found = problem_of(lambda: record_walk._walk(BEFORE + data + AFTER, START, end, 3))
    assert found == (2, "its length does not fit")


@pytest.mark.parametrize("count", [1, 3, 30, 100])
def test_bytes_behind_the_last_record_are_refused(count: int) -> None:
    found = problem_of(lambda: walk(records(count) + b"abc", count))
    assert found == (count - 1, "3 bytes follow the last record")


def test_records_that_are_missing_are_refused() -> None:
    for count in (1, 30):
        found = problem_of(lambda count=count: walk(records(count), count + 1))  # type: ignore[misc]
        assert found is not None
        assert found[0] == count
    assert problem_of(lambda: walk(b"", 0)) is None


# -- stretches -----------------------------------------------------------------------------------


def test_records_alike_are_compared_together(careful: Counted, stretches: Counted) -> None:
    """The third and all behind it, up to where the offsets get longer: at 64 and 8,192."""
    walk(records(60), 60)
    assert stretches.given == [58]
    stretches.take()
    walk(records(9_000), 9_000)
    assert [given for given in stretches.given if given] == [62, 8_192 - 66]
    assert careful.take() == 9_000 - 8_192


def test_four_tries_that_find_no_stretch_are_enough(stretches: Counted) -> None:
    sizes = [n // 2 % 2 for n in range(60)]  # two of one size, two of another
    walk(b"".join(record(n, value=sized(bytes(s))) for n, s in enumerate(sizes)), len(sizes))
    assert stretches.given == [0, 0, 0, 0]


def test_a_stretch_that_is_found_gives_another_try(stretches: Counted) -> None:
    sizes = [n // 2 % 2 for n in range(4)] + [5] * 20 + [n // 2 % 2 for n in range(20)]
    walk(b"".join(record(n, value=sized(bytes(s))) for n, s in enumerate(sizes)), len(sizes))
    assert stretches.given == [0, 0, 18, 0, 0, 0]


def stretch(data: bytes, number: int, size: int, count: int, *, key_at: int = 4) -> int:
    """How many records after the first one in ``data`` are alike; ``number`` is the next."""
    given = BEFORE + data + AFTER
    return record_walk._stretch(given, START, size, key_at, number, count, START + len(data))


def run_of(first: int, count: int, **parts: bytes) -> tuple[bytes, int]:
    """So many records from a number on, and the size of each."""
    data = b"".join(record(number, **parts) for number in range(first, first + count))
    return data, len(data) // count


@pytest.mark.parametrize(
    ("first", "count", "key_at", "expected"),
    [
        (0, 9, 4, 8),
        (0, 8, 4, 0),  # fewer than eight are walked
        (0, 30, 4, 29),
        (20, 44, 4, 43),  # up to 63
        (55, 9, 4, 8),
        (64, 9, 5, 8),
        (100, 50, 5, 49),
        (8_180, 12, 5, 11),
    ],
)
def test_how_many_are_alike(first: int, count: int, key_at: int, expected: int) -> None:
    data, size = run_of(first, count)
    assert stretch(data, first + 1, size, first + count, key_at=key_at) == expected
    assert stretch(data, first + 1, size, 99_999, key_at=key_at) == expected, "they end there"
    assert stretch(data + data, first + 1, size, first + count, key_at=key_at) == expected


def test_the_record_whose_offset_gets_longer_begins_no_stretch() -> None:
    data, size = run_of(64, 20)
    assert stretch(data, 64, size, 90, key_at=5) == 0


@pytest.mark.parametrize(
    ("first", "limit", "delta", "key_at"), [(20, 64, b"\x80", 4), (8_170, 8_192, b"\x80\x80", 5)]
)
def test_no_stretch_reaches_beyond_offsets_of_its_bytes(
    first: int, limit: int, delta: bytes, key_at: int
) -> None:
    data, size = run_of(first, limit - first)
    more = b"".join(record(n, delta=delta) for n in range(limit, limit + 9))
    assert stretch(data + more, first + 1, size, limit + 9, key_at=key_at) == limit - first - 1


def test_no_stretch_reaches_beyond_the_batch() -> None:
    data, size = run_of(0, 30)
    given, end = BEFORE + data, START + 20 * size
    assert record_walk._stretch(given, START, size, 4, 1, 30, end) == 19
    assert record_walk._stretch(given, START, size, 4, 1, 30, end + size - 1) == 19


def test_records_with_headers_are_no_stretch() -> None:
    data, size = run_of(0, 20, headers=b"\2" + H)
    assert stretch(data, 1, size, 20) == 0


@pytest.mark.parametrize("parts", [
    {}, {"key": NULL}, {"value": NULL}, {"key": NULL, "value": NULL}, {"key": b"\0"},
    {"key": sized(bytes(70))}, {"value": sized(bytes(9_000))}, {"time": b"\x80\1"},
    {"time": b"\x83\x84\x85\6"}, {"time": b"\x83\x84\x85\6", "key": NULL, "value": NULL},
])  # fmt: skip
@pytest.mark.parametrize("broken", range(1, 20))
def test_a_stretch_ends_before_the_first_that_differs_in_a_length(
    parts: dict[str, bytes], broken: int
) -> None:
    data, size = run_of(0, 20, **parts)
    key_at = data[:size].index(b"\0" + parts.get("time", b"\0") + b"\0") + 2
    key_at += len(parts.get("time", b"\0"))
    assert stretch(data, 1, size, 20, key_at=key_at) == 19
    key = parts.get("key", sized(b"k"))
    value_at = key_at + len(key)
    expected = broken - 1 if broken > 8 else 0
    for at in (0, key_at, value_at, size - 1):
        changed = bytearray(data)
        changed[broken * size + at] ^= 4
        assert stretch(bytes(changed), 1, size, 20, key_at=key_at) == expected, at
    changed = bytearray(data)
    changed[broken * size + value_at] = data[value_at + 1] ^ (data[value_at + 1] == data[value_at])
    assert stretch(bytes(changed), 1, size, 20, key_at=key_at) == expected


@pytest.mark.parametrize(("first", "key_at"), [(0, 4), (30, 4), (64, 5), (200, 5)])
@pytest.mark.parametrize("broken", [1, 7, 19])
def test_offsets_that_do_not_follow_are_no_stretch(first: int, key_at: int, broken: int) -> None:
    data, size = run_of(first, 20)
    for at in range(3, key_at):
        changed = bytearray(data)
        changed[broken * size + at] ^= 2
        assert stretch(bytes(changed), first + 1, size, first + 20, key_at=key_at) == 0


@pytest.mark.parametrize(
    ("time", "other", "expected"),
    [
        (b"\0", b"\x7f", 19),
        (b"\0", b"\x80", 0),
        (b"\x80\1", b"\xff\x7f", 19),
        (b"\x80\1", b"\x7f\1", 0),
        (b"\x80\1", b"\x80\x80", 0),
        (b"\x80\x80\1", b"\xff\xff\x7f", 19),
        (b"\x80\x80\1", b"\x80\x7f\1", 0),
        (b"\x80\x80\1", b"\x00\x80\1", 0),
    ],
)
@pytest.mark.parametrize("first", [0, 64])
def test_times_of_so_many_bytes_may_say_anything(
    time: bytes, other: bytes, expected: int, first: int
) -> None:
    data, size = run_of(first, 20, time=time)
    changed = bytearray(data)
    changed[7 * size + 2 : 7 * size + 2 + len(other)] = other
    key_at = 3 + len(time) + (first == 64)
    assert stretch(bytes(changed), first + 1, size, first + 20, key_at=key_at) == expected
