"""The accounting, without a broker: whatever the order of outcomes, every record has one end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import MethodType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_client import ledger as ledger_module
from penstock_client.audit import TopicAccount, record_digest
from penstock_client.ledger import ABANDONED, Lane, Ledger, latency_of
from penstock_client.ranges import gaps, merge, ranges_of, total

numbers = st.sets(st.integers(0, 300), max_size=120)


@dataclass
class Delivered:
    """A message as the delivery callback gets it."""

    where: tuple[int, int]
    content: tuple[bytes | None, bytes | None]
    moment: int = 1_700_000_000_000
    took: float | None = 0.01

    def partition(self) -> int:
        return self.where[0]

    def offset(self) -> int:
        return self.where[1]

    def key(self) -> bytes | None:
        return self.content[0]

    def value(self) -> bytes | None:
        return self.content[1]

    def timestamp(self) -> tuple[int, int]:
        return (1, self.moment)

    def latency(self) -> float | None:
        return self.took


class TimedOut:
    def name(self) -> str:
        return "_MSG_TIMED_OUT"


@given(numbers)
def test_ranges_of_holds_exactly_the_numbers(chosen: set[int]) -> None:
    ranges = ranges_of(sorted(chosen))
    assert [n for first, end in ranges for n in range(first, end)] == sorted(chosen)
    assert all(a[1] < b[0] for a, b in pairwise(ranges))
    assert total(ranges) == len(chosen)


@given(numbers, numbers)
def test_merge_is_the_union_and_gaps_the_rest(one: set[int], other: set[int]) -> None:
    merged = merge(ranges_of(sorted(one)), ranges_of(sorted(other)))
    assert merged == ranges_of(sorted(one | other))
    assert gaps(merged, 301) == ranges_of(sorted(set(range(301)) - one - other))


record = st.tuples(
    st.sampled_from(["a", "b"]),  # topic
    st.integers(0, 2),  # partition
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=4),
)
outcome = st.sampled_from(["acknowledged", "acknowledged", "acknowledged", "failed", "silent"])
foreign = st.integers(0, 2)  # records of other producers in between


@settings(max_examples=150)
@given(st.lists(st.tuples(record, outcome, foreign), max_size=60), st.data())
def test_every_record_has_one_end_and_claims_are_what_was_acknowledged(
    records: list[tuple[tuple[str, int, bytes | None, bytes | None], str, int]], data: st.DataObject
) -> None:
    ledger = Ledger()
    log_end: dict[tuple[str, int], int] = {}
    stored: dict[str, dict[tuple[int, int], int]] = {"a": {}, "b": {}}
    ends: dict[str, dict[int, str]] = {"a": {}, "b": {}}
    reports = []
    for (topic, partition, key, value), result, gap in records:
        lane = ledger.lane(topic)
        sequence = lane.take_sequence()
        ends[topic][sequence] = result
        offset = log_end.get((topic, partition), 0) + gap
        message = Delivered((partition, offset), (key, value))
        callback = MethodType(lane.delivered, sequence)
        if result == "acknowledged":
            log_end[topic, partition] = offset + 1
            stored[topic][partition, offset] = record_digest(sequence, key, value)
            reports.append((topic, partition, callback, None, message))
        elif result == "failed":
            reports.append((topic, partition, callback, TimedOut(), message))
    # Partitions answer independently of each other; events are taken at any time.
    order = data.draw(st.permutations(range(len(reports))))
    queues: dict[tuple[str, int], list[int]] = {}
    for position, report in enumerate(reports):
        queues.setdefault(report[:2], []).append(position)
    taken: list[TopicAccount] = []
    for position in order:
        _, _, callback, error, message = reports[queues[reports[position][:2]].pop(0)]
        callback(error, message)
        if data.draw(st.booleans()):
            ledger.drain()
        if data.draw(st.integers(0, 4)) == 0:
            taken += ledger.take()
    for account in ledger.take():
        taken.append(account)
        silent = sum(end == "silent" for end in ends[account.topic].values())
        assert account.in_flight == silent
    taken += ledger.take(final=True)
    for topic in ("a", "b"):
        _check(topic, taken, stored[topic], ends[topic])


def _check(
    topic: str,
    taken: list[TopicAccount],
    stored: dict[tuple[int, int], int],
    ends: dict[int, str],
) -> None:
    accounts = [account for account in taken if account.topic == topic]
    claimed: list[tuple[int, int]] = []
    for claim in (claim for account in accounts for claim in account.claims):
        places = [(claim.partition, offset) for offset in range(claim.start, claim.end)]
        claimed += places
        assert sum(stored[place] for place in places) % 2**64 == claim.digest
    assert sorted(claimed) == sorted(stored)
    said: dict[int, str] = {}
    for account in accounts:
        for first, end in account.sequences:
            for sequence in range(first, end):
                assert sequence not in said
                said[sequence] = "acknowledged"
        for failed in account.failed:
            for sequence in range(failed.first, failed.end):
                assert sequence not in said
                said[sequence] = "silent" if failed.error == ABANDONED else "failed"
    assert said == ends
    assert sum(account.records for account in accounts) == len(stored)


def test_a_claim_has_a_bounded_number_of_records() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    count = 4 * ledger_module.CLAIM_RECORDS
    for offset in range(count):
        lane.delivered(lane.take_sequence(), None, Delivered((0, offset), (None, b"v")))
    (account,) = ledger.take()
    bound = ledger_module.CLAIM_RECORDS + ledger_module.DRAIN_CHUNK
    assert all(len(claim) <= bound for claim in account.claims)
    assert [c.start for c in account.claims][1:] == [c.end for c in account.claims][:-1]
    assert sum(len(claim) for claim in account.claims) == account.records == count
    assert account.sequences == ((0, count),)
    assert len(lane.samples) == 0 and lane.sample_mask > 0


def test_a_refused_record_leaves_no_gap() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    refused = lane.take_sequence()
    lane.returned.append(refused)
    assert lane.retake_sequence() == refused == 0
    lane.delivered(refused, None, Delivered((0, 0), (None, None)))
    lane.returned.append(lane.take_sequence())  # refused, and nothing follows
    (account,) = ledger.take(final=True)
    assert account.sequences == ((0, 1),)
    assert account.failed == ()
    assert account.in_flight == 0


def test_acknowledged_without_an_offset_is_counted_and_not_claimed() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    for _ in range(3):
        lane.delivered(lane.take_sequence(), None, Delivered((0, -1001), (None, b"v")))
    (account,) = ledger.take()
    assert account.claims == ()
    assert account.records == 3
    assert account.sequences == ((0, 3),)


def test_timestamps_and_latency() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    for position in range(100):
        message = Delivered((0, position), (None, None), 1000 - position, (position + 1) / 1000)
        lane.delivered(lane.take_sequence(), None, message)
    (account,) = ledger.take()
    assert (account.first_timestamp_ms, account.last_timestamp_ms) == (901, 1000)
    latency = account.latency_ms
    assert latency is not None
    assert (latency.p50, latency.p95, latency.p99, latency.max) == (50.0, 95.0, 99.0, 100.0)
    assert latency_of([]) is None
    assert ledger.take() == []


def test_what_is_delivered_while_draining_is_not_lost() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    extend = lane.extend

    def meanwhile(*place: int, **sums: int) -> None:
        if lane.issued == 1:
            lane.delivered(lane.take_sequence(), None, Delivered((0, 1), (None, b"v")))
            lane.delivered(lane.take_sequence(), TimedOut(), Delivered((0, 2), (None, b"v")))
        extend(*place, **sums)

    lane.extend = meanwhile  # type: ignore[method-assign]
    lane.delivered(lane.take_sequence(), None, Delivered((0, 0), (None, b"v")))
    accounts = ledger.take() + ledger.take()
    assert sum(account.records for account in accounts) == 2
    assert [(c.start, c.end) for a in accounts for c in a.claims] == [(0, 1), (1, 2)]
    assert [f.first for a in accounts for f in a.failed] == [2]
    assert ledger.in_flight == 0


def test_in_flight_counts_what_has_no_outcome_at_every_step() -> None:
    """Before and after a drain, with failures and refused records among them."""
    ledger = Ledger()
    lane = ledger.lane("t")
    taken = [lane.take_sequence() for _ in range(10)]
    assert (lane.in_flight, ledger.in_flight) == (10, 10)
    lane.returned.append(taken[9])
    assert lane.in_flight == 9, "a refused record was never sent"
    lane.delivered(0, None, Delivered((0, 0), (None, b"v")))
    lane.delivered(1, None, Delivered((0, 1), (None, b"v")))
    lane.delivered(2, TimedOut(), Delivered((0, 0), (None, b"v")))
    assert lane.in_flight == 6, "outcomes that are not drained count"
    ledger.drain()
    assert lane.in_flight == 6, "and once when they are"
    ledger.drain()
    assert lane.in_flight == 6
    lane.delivered(3, TimedOut(), Delivered((0, 0), (None, b"v")))
    assert lane.in_flight == 5
    (account,) = ledger.take()
    assert account.in_flight == lane.in_flight == 5
    assert [(f.first, f.end) for f in account.failed] == [(2, 4)]
    ledger.drain()
    assert ledger.take()[0].failed == (), "a failure is reported once"


def test_lanes_add_up() -> None:
    ledger = Ledger()
    for topic, count in (("a", 2), ("b", 3)):
        for _ in range(count):
            ledger.lane(topic).take_sequence()
    assert ledger.in_flight == 5


def acknowledge(lane: Lane, *offsets: int, partition: int = 0) -> None:
    for offset in offsets:
        lane.delivered(lane.take_sequence(), None, Delivered((partition, offset), (None, b"v")))


def test_bytes_are_those_of_keys_and_values() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    contents = [(b"key", b"value"), (None, b"v"), (b"k", None), (None, None)]
    for offset, content in enumerate(contents):
        lane.delivered(lane.take_sequence(), None, Delivered((offset % 2, offset), content))
    (account,) = ledger.take()
    assert (account.records, account.bytes) == (4, 10)
    acknowledge(lane, 9)
    assert [a.bytes for a in ledger.take()] == [1], "of this account alone"


def test_a_message_without_place_and_latency_counts_from_zero() -> None:
    class Bare(Delivered):
        def partition(self) -> None:  # type: ignore[override]
            return None

        def offset(self) -> None:  # type: ignore[override]
            return None

    ledger = Ledger()
    lane = ledger.lane("t")
    lane.delivered(lane.take_sequence(), None, Bare((9, 9), (None, b"v"), took=None))
    (account,) = ledger.take()
    assert [(c.partition, c.start, c.end) for c in account.claims] == [(0, 0, 1)]
    assert account.latency_ms is not None
    assert account.latency_ms.max == 0.0


def test_offset_minus_one_is_no_place() -> None:
    ledger = Ledger()
    acknowledge(ledger.lane("t"), -1)
    (account,) = ledger.take()
    assert (account.claims, account.records) == ((), 1)


def test_a_claim_that_is_full_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "CLAIM_RECORDS", 2)
    ledger = Ledger()
    lane = ledger.lane("t")
    for offset in range(5):
        acknowledge(lane, offset)
        ledger.drain()
    (account,) = ledger.take()
    assert [(c.start, c.end) for c in account.claims] == [(0, 2), (2, 4), (4, 5)]


def test_the_reporter_is_asked_to_drain_when_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "DRAIN_ACKS", 3)
    asked: list[int] = []
    ledger = Ledger(lambda: asked.append(1))
    lane = ledger.lane("t")
    acknowledge(lane, 0, 1, 2)
    assert asked == []
    acknowledge(lane, 3)
    assert asked == [1]
    ledger.drain()
    acknowledge(lane, 4)
    assert asked == [1]


def test_acknowledged_sequences_are_folded_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "SEQUENCES_UNFOLDED", 3)
    ledger = Ledger()
    lane = ledger.lane("t")
    acknowledge(lane, 0, 1, 2)
    ledger.drain()
    assert lane.sequences == [0, 1, 2]
    acknowledge(lane, 3)
    ledger.drain()
    assert lane.sequences == []
    acknowledge(lane, 4)
    (account,) = ledger.take()
    assert account.sequences == ((0, 5),)


def test_samples_are_halved_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then every second record is sampled, then every fourth."""
    monkeypatch.setattr(ledger_module, "SAMPLES_MAX", 4)
    ledger = Ledger()
    lane = ledger.lane("t")
    for offset in range(8):
        message = Delivered((0, offset), (None, None), moment=offset)
        lane.delivered(lane.take_sequence(), None, message)
    ledger.drain()
    assert (len(lane.samples), lane.sample_mask) == (8, 0), "twice as many as wanted may wait"
    acknowledge(lane, 8)
    ledger.drain()
    assert [moment for moment, _ in lane.samples] == [1, 3, 5, 7]
    assert lane.sample_mask == 1
    acknowledge(lane, *range(9, 19))
    assert len(lane.samples) == 4 + 5
    ledger.drain()
    assert (len(lane.samples), lane.sample_mask) == (4, 3)


@pytest.mark.parametrize(
    "records,mask", [(0, 0), (1, 0), (3, 0), (4, 1), (7, 1), (8, 3), (16, 7), (17, 7)]
)
def test_as_many_records_again_give_about_the_samples_that_are_wanted(
    monkeypatch: pytest.MonkeyPatch, records: int, mask: int
) -> None:
    monkeypatch.setattr(ledger_module, "SAMPLES_MAX", 4)
    ledger = Ledger()
    lane = ledger.lane("t")
    lane.sample_mask = 1
    acknowledge(lane, *range(records))
    lane.take_sequence()
    ledger.take()
    assert lane.sample_mask == mask


def test_latency_is_ranked_whatever_the_order_and_rounded_to_microseconds() -> None:
    latency = latency_of([0.003, 0.0010006, 0.0020004])
    assert latency is not None
    assert (latency.p50, latency.p95, latency.max) == (2.0, 3.0, 3.0)
    one = latency_of([0.0012345678])
    assert one is not None
    assert (one.p50, one.p95, one.p99, one.max) == (1.235, 1.235, 1.235, 1.235)


def test_failures_are_ranges_in_order_of_sequence_whatever_the_order_they_came_in() -> None:
    class Fatal:
        def name(self) -> str:
            return "_FATAL"

    ledger = Ledger()
    lane = ledger.lane("t")
    nothing = Delivered((0, 0), (None, None))
    for _ in range(6):
        lane.take_sequence()
    for sequence in (3, 2, 5):
        lane.delivered(sequence, TimedOut(), nothing)
    for sequence in (4, 1, 0):
        lane.delivered(sequence, Fatal(), nothing)
    (account,) = ledger.take()
    assert [(f.first, f.end, f.error) for f in account.failed] == [
        (0, 2, "_FATAL"),
        (2, 4, "_MSG_TIMED_OUT"),
        (4, 5, "_FATAL"),
        (5, 6, "_MSG_TIMED_OUT"),
    ]


def test_the_last_refused_record_ends_the_sequences_and_no_earlier_one() -> None:
    ledger = Ledger()
    lane = ledger.lane("t")
    for _ in range(4):
        lane.take_sequence()
    lane.returned += [3, 0]
    (account,) = ledger.take(final=True)
    assert [(f.first, f.end, f.error) for f in account.failed] == [(0, 3, ABANDONED)]
    assert account.in_flight == 0


def test_in_flight_is_never_negative() -> None:
    """A record that was refused, and acknowledged all the same."""
    ledger = Ledger()
    lane = ledger.lane("t")
    lane.returned.append(lane.take_sequence())
    lane.delivered(0, None, Delivered((0, 0), (None, None)))
    assert lane.in_flight == 0
    (account,) = ledger.take()
    assert account.in_flight == 0


def test_without_a_sequence_to_use_again_the_next_one_is_taken() -> None:
    lane = Ledger().lane("t")
    assert [lane.retake_sequence(), lane.retake_sequence()] == [0, 1]


def test_what_others_rely_on_keeps_its_value() -> None:
    """The word is in archived events; a reader of a claim reads so much of the window before."""
    assert ABANDONED == "_ABANDONED"
    assert ledger_module.CLAIM_RECORDS == 8192
