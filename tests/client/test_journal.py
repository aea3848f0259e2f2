"""Events: numbered, kept until acknowledged, cut where they are too long."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from penstock_client.audit import Claim, FailedRecords, MonitoringEvent, TopicAccount
from penstock_client.journal import ACCOUNT_ITEMS, UNACKNOWLEDGED_MAX, Journal, items_max, split

IDENTITY = MonitoringEvent("", 77, 0, False, "client", "app", "host", 1, 5, 0, 2000)


def _journal(limit: int = 4000) -> Journal:
    numbers = count()
    return Journal(IDENTITY, lambda: f"uuid-{next(numbers)}", limit)


def _account(topic: str, claims: int, sequences: int, failed: int) -> TopicAccount:
    return TopicAccount(
        topic,
        claims=tuple(Claim(0, 10 * n, 10 * n + 5, n) for n in range(claims)),
        sequences=tuple((10 * n, 10 * n + 5) for n in range(sequences)),
        failed=tuple(FailedRecords(n, n + 1, "e") for n in range(failed)),
        in_flight=3,
        records=claims * 5,
        bytes=100,
        topic_id="an-id",
    )


accounts = st.lists(
    st.builds(
        _account, st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 30), st.integers(0, 9)
    ),
    max_size=4,
)


@given(accounts, st.integers(ACCOUNT_ITEMS + 1, 60))
def test_split_loses_nothing_and_keeps_the_limit(given: list[TopicAccount], limit: int) -> None:
    pieces = list(split(given, limit))
    assert pieces
    flat = [piece for group in pieces for piece in group]
    for name in ("claims", "sequences", "failed"):
        assert [i for p in flat for i in getattr(p, name)] == [
            i for a in given for i in getattr(a, name)
        ]
    assert sum(piece.records for piece in flat) == sum(account.records for account in given)
    whole = {id(a): a for a in given}
    for piece in flat:
        if id(piece) not in whole:  # cut: each piece says how much the whole is
            assert piece.cut_of in {5 * len(a.sequences) for a in given}
            assert piece.topic_id == "an-id"
    for group in pieces:
        weight = sum(
            ACCOUNT_ITEMS + len(p.claims) + len(p.sequences) + len(p.failed) for p in group
        )
        assert weight <= limit


def test_an_event_of_many_items_stays_below_the_message_limit() -> None:
    longest = Claim(2**31 - 1, 2**62, 2**62 + 1, 2**64 - 1)
    for limit in (5_000, 100_000, 1_000_000):
        journal = _journal(items_max(limit))
        journal.write([TopicAccount("t" * 249, claims=(longest,) * 20_000)], 5, final=False)
        assert max(len(entry.value) for entry in journal.due()) < limit


def test_numbers_and_final_flag() -> None:
    journal = _journal(limit=ACCOUNT_ITEMS + 5)
    journal.write([_account("a", 6, 6, 0)], 6, final=False)
    journal.write([_account("a", 6, 6, 0)], 7, final=True)
    events = [MonitoringEvent.from_bytes(entry.value) for entry in journal.due()]
    assert [event.number for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event.final for event in events] == [False] * 5 + [True]
    assert len({event.uuid for event in events}) == 6
    assert {event.incarnation for event in events} == {77}
    assert journal.due()[0].key == b"77"
    assert journal.closed


def test_a_failed_event_is_due_again_with_its_number_and_bytes() -> None:
    journal = _journal()
    journal.write([], 6, final=False)
    (entry,) = journal.due()
    before = entry.value
    entry.in_flight = True
    assert journal.due() == []
    journal.completed(1, acknowledged=False)
    (again,) = journal.due()
    assert (again.number, again.value) == (1, before)
    journal.completed(1, acknowledged=True)
    journal.completed(1, acknowledged=True)  # a copy's outcome
    assert journal.due() == [] and journal.unacknowledged == 0


def test_full_while_many_events_wait() -> None:
    journal = _journal()
    for _ in range(UNACKNOWLEDGED_MAX):
        assert not journal.full
        journal.write([], 6, final=False)
    assert journal.full
    journal.completed(5, acknowledged=True)
    assert not journal.full
