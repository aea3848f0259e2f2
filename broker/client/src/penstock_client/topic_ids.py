"""Which incarnation of a topic acknowledgements belong to.

A topic that is deleted and created again has the same name, another id, and offsets from 0 on. An
acknowledgement has no id, so the session asks for it when it takes an account: all of it belongs to
the id that was confirmed before it and after it. Where the two differ, the account is split: claims
of a partition before its offsets went back are the old topic's, those from there on the new one's;
a partition whose offsets did not go back could be either, and is claimed without an id.

Asked in the reporter's thread, for a bounded time, on a connection of its own: ``produce`` never
waits for it. Without an answer the last id known holds, unless offsets went back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from penstock_client.audit import Claim, TopicAccount
from penstock_client.clock import monotonic
from penstock_client.ranges import total

ASK_SECONDS = 1.0
ZERO_IDS = frozenset({"", "AAAAAAAAAAAAAAAAAAAAAA"})
_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.", "reconnect.")
_NAMES = frozenset(
    {"bootstrap.servers", "metadata.broker.list", "client.id", "client.dns.lookup", "oauth_cb"}
)

Ask = Callable[[list[str], float], Mapping[str, str]]


def admin_config(librdkafka: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a producer's configuration that a connection needs."""
    kept = {k: v for k, v in librdkafka.items() if k in _NAMES or k.startswith(_PREFIXES)}
    return {**kept, "log_level": 2}  # what goes wrong with the connection, the producer says


class Admin:
    """Asks the cluster for topic ids; connects when it is first asked."""

    def __init__(self, librdkafka: Mapping[str, Any]) -> None:
        self._config = admin_config(librdkafka)
        self._client: AdminClient | None = None

    def __call__(self, topics: list[str], seconds: float) -> Mapping[str, str]:
        """The ids of these topics, as far as the cluster says them in time."""
        found: dict[str, str] = {}
        deadline = monotonic() + seconds
        try:
            if self._client is None:
                self._client = AdminClient(self._config)
            asked = self._client.describe_topics(TopicCollection(topics), request_timeout=seconds)
            for topic, answer in asked.items():
                try:
                    described = answer.result(max(0.0, deadline - monotonic()))
                except (KafkaException, TimeoutError):
                    continue
                # Kafka's own spelling: URL-safe base64. librdkafka's has + and /.
                text = str(described.topic_id).replace("+", "-").replace("/", "_")
                if text not in ZERO_IDS:
                    found[topic] = text
        except (KafkaException, ValueError):
            return found
        return found


class TopicIds:
    """The ids of one session's topics, and how far each partition was claimed. One owner."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: dict[str, str] = {}
        self._ends: dict[str, dict[int, int]] = {}

    def label(self, accounts: Iterable[TopicAccount]) -> list[TopicAccount]:
        """The accounts with their topic ids; one whose topic was recreated comes as several."""
        taken = list(accounts)
        now = self._ask([a.topic for a in taken], ASK_SECONDS) if taken else {}
        labelled: list[TopicAccount] = []
        for account in taken:
            before, after = self._known.get(account.topic), now.get(account.topic)
            ends = self._ends.setdefault(account.topic, {})
            labelled += _labelled(account, before, after, ends)
            if after is not None:
                self._known[account.topic] = after
        return labelled


def _labelled(
    account: TopicAccount, before: str | None, after: str | None, ends: dict[int, int]
) -> list[TopicAccount]:
    old: list[Claim] = []
    new: list[Claim] = []
    either: list[Claim] = []
    by_partition: dict[int, list[Claim]] = {}
    for claim in account.claims:
        by_partition.setdefault(claim.partition, []).append(claim)
    for partition, claims in by_partition.items():
        back = _goes_back(claims, ends.get(partition, 0))
        ends[partition] = claims[-1].end
        if back is None:
            either += claims
        else:
            old += claims[:back]
            new += claims[back:]
    moved = after is not None and before is not None and before != after
    if not moved:
        known = after if after is not None else (None if new else before)
        return [replace(account, topic_id=known)]
    parts = [(before, old), (after, new), (None, either)]
    whole = total(account.sequences)
    pieces = [(topic_id, claims) for topic_id, claims in parts if claims] or [(None, [])]
    # Sequences know no partition, so they cannot be split: the first piece has them all.
    return [
        replace(
            account if n == 0 else TopicAccount(account.topic, in_flight=account.in_flight),
            topic_id=topic_id,
            claims=tuple(claims),
            cut_of=whole,
        )
        for n, (topic_id, claims) in enumerate(pieces)
    ]


def _goes_back(claims: list[Claim], end: int) -> int | None:
    """Which claim is the first to begin before the one before it ended; None for none."""
    for n, claim in enumerate(claims):
        if claim.start < end:
            return n
        end = claim.end
    return None
