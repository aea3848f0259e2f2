"""Which quota holds for whom, who shares a bucket, what is kept, and what a filter finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.quotas.client_quotas import BUCKETS_MAX, ClientQuotas
from penstock_broker.quotas.entities import entity_of, precedence
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.sim_clock import SimClock

PRODUCE = "producer_byte_rate"
ORDER = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]


class Kit:
    def __init__(self) -> None:
        self.clock = SimClock()
        self.files = MemFiles()
        self.open()

    def open(self) -> None:
        metadata = LocalMetadataStore(Path("/data/metadata.json"), self.files, self.clock, 0)
        self.quotas = ClientQuotas(self.clock, metadata)

    def set(self, entity: dict[str, str | None], **values: float | None) -> None:
        self.quotas.alter(entity.items(), values)
        self.quotas.save()

    def rate(self, user: str = "u", client: str = "c") -> float | None:
        quota = self.quotas.of_client(user, client)
        return None if quota is None or quota.produce is None else quota.produce.rate


@pytest.fixture
def kit() -> Kit:
    return Kit()


def test_the_most_particular_entity_counts(kit: Kit) -> None:
    """Kafka's order, set from the last to the first: each one set replaces the one before."""
    assert kit.rate() is None
    for number, entity in enumerate(reversed(ORDER), start=1):
        kit.set(entity, producer_byte_rate=number)
        assert kit.rate() == number, entity
    for entity in ORDER[:-1]:
        before = kit.rate()
        kit.set(entity, producer_byte_rate=None)
        assert kit.rate() == before - 1
    kit.set(ORDER[-1], producer_byte_rate=None)
    assert kit.rate() is None
    assert not kit.quotas.is_active


@given(st.sets(st.sampled_from(range(len(ORDER)))))
def test_any_set_of_entities_gives_the_first_of_the_order(there: set[int]) -> None:
    kit = Kit()
    for at in there:
        kit.set(ORDER[at], producer_byte_rate=at + 1)
    assert kit.rate() == (min(there) + 1 if there else None)
    assert kit.rate("other", "d") == min(
        (at + 1 for at in there if ORDER[at] in ({"user": None, "client-id": None}, {"user": None},
                                                 {"client-id": None})),
        default=None,
    )  # fmt: skip


def test_each_kind_of_quota_is_looked_up_by_itself(kit: Kit) -> None:
    kit.set({"user": "u"}, consumer_byte_rate=7)
    kit.set({"client-id": "c"}, producer_byte_rate=5, consumer_byte_rate=6)
    quota = kit.quotas.of_client("u", "c")
    assert quota is not None
    assert quota.produce is not None
    assert quota.fetch is not None
    assert (quota.produce.rate, quota.fetch.rate) == (5, 7)
    assert quota.request is None


def test_who_shares_a_bucket(kit: Kit) -> None:
    def bucket(user: str, client: str) -> object:
        quota = kit.quotas.of_client(user, client)
        return quota and quota.produce

    kit.set({"client-id": None}, producer_byte_rate=10)
    assert bucket("u", "c") is bucket("u", "c"), "all connections of a client"
    assert bucket("u", "c") is bucket("v", "c"), "for every user"
    assert bucket("u", "c") is not bucket("u", "d"), "a default is each one's own"
    kit.set({"user": None}, producer_byte_rate=10)
    assert bucket("u", "c") is bucket("u", "d")
    assert bucket("u", "c") is not bucket("v", "c")
    kit.set({"user": None, "client-id": None}, producer_byte_rate=10)
    assert bucket("u", "c") is not bucket("u", "d")
    assert bucket("u", "c") is not bucket("v", "c")


def test_a_change_holds_for_the_bucket_that_is_there(kit: Kit) -> None:
    kit.set({"user": "u"}, producer_byte_rate=10)
    before = kit.quotas.of_client("u", "c")
    assert before is not None
    assert before.produce is not None
    generation = kit.quotas.generation
    assert before.produce.take(110, 0) == 10
    kit.set({"user": "u"}, producer_byte_rate=100)
    assert kit.quotas.generation > generation
    after = kit.quotas.of_client("u", "c")
    assert after is not None
    assert after.produce is before.produce
    assert after.produce.wait(0) == 1


def test_quotas_outlive_a_restart(kit: Kit) -> None:
    kit.set({"user": None, "client-id": "c"}, producer_byte_rate=10, request_percentage=12.5)
    kit.set({"ip": None}, connection_creation_rate=3)
    kit.open()
    assert kit.rate("any") == 10
    assert kit.quotas.limits_addresses
    found = kit.quotas.find({"user": None}, [], False)
    assert found == [
        (
            entity_of([("user", None), ("client-id", "c")]),
            {"producer_byte_rate": 10, "request_percentage": 12.5},
        )
    ]


def test_what_cannot_be_kept_does_not_hold(kit: Kit) -> None:
    kit.set({"user": "u"}, producer_byte_rate=10)
    kit.quotas.alter({"user": "u"}.items(), {PRODUCE: 20})
    kit.quotas._metadata = _Broken(kit.quotas._metadata)  # type: ignore[assignment]
    with pytest.raises(KafkaError) as caught:
        kit.quotas.save()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert kit.rate() == 10


class _Broken:
    def __init__(self, real: LocalMetadataStore) -> None:
        self.section = real.section

    def putting_section(self, name: str, value: object) -> None:
        raise OSError("no space")


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ([], {PRODUCE: 1}),
        ([("planet", "x")], {PRODUCE: 1}),
        ([("user", "")], {PRODUCE: 1}),
        ([("user", "a"), ("user", "b")], {PRODUCE: 1}),
        ([("ip", "1.2.3.4"), ("user", "a")], {"connection_creation_rate": 1}),
        ([("ip", "not an address")], {"connection_creation_rate": 1}),
        ([("ip", "1.2.3.4")], {PRODUCE: 1}),
        ([("user", "a")], {"connection_creation_rate": 1}),
        ([("user", "a")], {"surprise": 1}),
        ([("user", "a")], {PRODUCE: 0}),
        ([("user", "a")], {PRODUCE: -1}),
        ([("user", "a")], {PRODUCE: 1.5}),
        ([("user", "a")], {PRODUCE: float("nan")}),
        ([("user", "a")], {PRODUCE: float("inf")}),
    ],
)
def test_what_cannot_be_set(
    kit: Kit, entity: list[tuple[str, str]], values: dict[str, float | None]
) -> None:
    with pytest.raises(KafkaError) as caught:
        kit.quotas.alter(entity, values)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert not kit.quotas.find({}, [], False)


def test_what_filters_find(kit: Kit) -> None:
    for entity in ORDER:
        kit.set(entity, producer_byte_rate=1)

    def find(exact: dict[str, str | None], present: list[str], strict: bool) -> list[dict]:
        return [dict(entity) for entity, _ in kit.quotas.find(exact, present, strict)]

    assert len(find({}, [], False)) == len(ORDER)
    assert find({}, [], True) == []
    assert find({"user": "u"}, [], True) == [{"user": "u"}]
    assert find({"user": None}, [], True) == [{"user": None}]
    assert len(find({"user": "u"}, [], False)) == 3
    assert len(find({}, ["user", "client-id"], True)) == 4
    assert find({"user": "u"}, ["client-id"], True) == ORDER[:2]


def test_clients_that_change_their_names_cannot_fill_memory(kit: Kit) -> None:
    kit.set({"client-id": None}, producer_byte_rate=10)
    for number in range(BUCKETS_MAX + 100):
        quota = kit.quotas.of_client("u", str(number))
        assert quota is not None
        assert quota.produce is not None
        quota.produce.take(1, 0)
    assert len(kit.quotas._buckets) <= BUCKETS_MAX


def test_the_rate_of_connections_from_an_address(kit: Kit) -> None:
    kit.set({"ip": None}, connection_creation_rate=5)
    kit.set({"ip": "10.0.0.1"}, connection_creation_rate=1)
    assert [kit.quotas.connection_wait("10.0.0.2") for _ in range(6)] == [0] * 5 + [0.2]
    assert [kit.quotas.connection_wait("10.0.0.1") for _ in range(2)] == [0, 1]
    assert kit.quotas.connection_wait("10.0.0.1") == 1, "the refused ones do not count"
    kit.clock.advance(1_000)
    assert kit.quotas.connection_wait("10.0.0.1") == 0


def test_precedence_is_complete() -> None:
    assert [dict(e) for e in precedence("u", "c")] == ORDER
