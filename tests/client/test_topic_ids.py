"""Claims belong to the incarnation of a topic that acknowledged them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock_client.audit import Claim, TopicAccount
from penstock_client.topic_ids import TopicIds, admin_config
from polling import until


class Cluster:
    """Says the id that a test sets; none where it is None."""

    def __init__(self) -> None:
        self.id: str | None = "old"

    def __call__(self, topics: list[str], seconds: float) -> Mapping[str, str]:
        del seconds
        return dict.fromkeys(topics, self.id) if self.id else {}


def account(*claims: tuple[int, int, int]) -> TopicAccount:
    records = sum(end - start for _, start, end in claims)
    return TopicAccount(
        "t",
        claims=tuple(Claim(*c, 0) for c in claims),
        sequences=((0, records),),
        records=records,
    )


def shown(accounts: list[TopicAccount]) -> list[tuple[str | None, list[tuple[int, int, int]]]]:
    for one in accounts:
        one.check()
    return [(a.topic_id, [(c.partition, c.start, c.end) for c in a.claims]) for a in accounts]


def test_an_account_has_the_id_of_its_topic() -> None:
    ids = TopicIds(Cluster())
    assert shown(ids.label([account((0, 0, 5), (1, 0, 3))])) == [("old", [(0, 0, 5), (1, 0, 3)])]
    assert ids.label([]) == []


def test_an_account_across_a_recreation_is_split_where_offsets_go_back() -> None:
    cluster = Cluster()
    ids = TopicIds(cluster)
    ids.label([account((0, 0, 50), (1, 0, 50), (2, 0, 50))])
    cluster.id = "new"
    found = ids.label(
        [account((0, 50, 60), (0, 0, 7), (0, 7, 9), (1, 0, 3), (2, 50, 55), (3, 0, 1))]
    )
    assert shown(found) == [
        ("old", [(0, 50, 60)]),
        ("new", [(0, 0, 7), (0, 7, 9), (1, 0, 3)]),
        (None, [(2, 50, 55), (3, 0, 1)]),  # either topic's: nothing says which
    ]
    assert [a.records for a in found] == [28, 0, 0], "counted once"
    assert [total for a in found for total in a.sequences] == [(0, 28)]
    assert shown(ids.label([account((0, 9, 12), (2, 0, 4))])) == [("new", [(0, 9, 12), (2, 0, 4)])]


def test_without_an_answer_the_last_id_holds_unless_offsets_go_back() -> None:
    cluster = Cluster()
    ids = TopicIds(cluster)
    ids.label([account((0, 0, 50))])
    cluster.id = None
    assert shown(ids.label([account((0, 50, 60))])) == [("old", [(0, 50, 60)])]
    assert shown(ids.label([account((0, 0, 3))])) == [(None, [(0, 0, 3)])]
    assert shown(TopicIds(cluster).label([account((0, 0, 3))])) == [(None, [(0, 0, 3)])]


def test_the_connection_has_the_producers_security_and_nothing_else() -> None:
    given = {
        "bootstrap.servers": "b:1",
        "client.id": "me",
        "sasl.password": "s",
        "ssl.ca.pem": "p",
        "enable.idempotence": True,
        "linger.ms": 5,
        "error_cb": print,
    }
    kept = {k: given[k] for k in ("bootstrap.servers", "client.id", "sasl.password", "ssl.ca.pem")}
    assert admin_config(given) == {**kept, "log_level": 2}


@pytest.mark.parametrize("recreated", [False, True])
def test_a_real_topics_claims_carry_its_id(cluster: Any, recreated: bool) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    producer = cluster.producer()
    for _ in range(5):
        producer.produce(cluster.topic, b"v", partition=0)
    assert producer.flush(20) == 0
    if recreated:
        admin.delete_topics([cluster.topic])[cluster.topic].result(20)
        until("the topic is gone", lambda: cluster.topic not in admin.list_topics(timeout=5).topics)
        cluster.create(cluster.topic, 3)
        done: list[Any] = []

        def again() -> bool:
            producer.produce(
                cluster.topic, b"w", partition=0, on_delivery=lambda e, m: done.append((e, m))
            )
            producer.flush(20)
            return any(error is None and m.offset() == 0 for error, m in done)

        until("a record is at offset 0", again)
    producer.close()
    accounts = cluster.accounts(producer_incarnation(cluster))
    ids = {a.topic_id for a in accounts if a.claims}
    assert all(i is not None and len(i) == 22 for i in ids)
    assert len(ids) == (2 if recreated else 1)


def producer_incarnation(cluster: Any) -> int:
    (incarnation,) = {event.incarnation for event in cluster.events()}
    return int(incarnation)
