"""A fetch session against the rule that Apache Kafka writes down, partition by partition.

Whatever is appended, deleted, removed and asked for: an incremental answer has exactly the
partitions that a look at all of them would give (``CachedPartition.maybeUpdateResponseData``),
although the session looks only at those that may have changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from api_requests import create, delete_records, produce_to, records, topic_id_of

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

PARTITIONS = 6
STEPS = 120


@dataclass
class Known:
    """A partition, the offset that its session wants, and what was last sent to the session."""

    end: int = 0
    start: int = 0
    offset: int | None = None  # None: not in the session
    sent_end: int = -1
    sent_start: int = -1

    def expected(self) -> tuple[int, int, int, bool] | None:
        """(error, high watermark, log start, whether with records), or nothing to say."""
        if self.offset is None:
            return None
        if not self.start <= self.offset <= self.end:
            self.sent_end = self.sent_start = -1
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, False
        has_records = self.offset < self.end
        if not has_records and (self.sent_end, self.sent_start) == (self.end, self.start):
            return None
        self.sent_end, self.sent_start = self.end, self.start
        return 0, self.end, self.start, has_records


class Run:
    def __init__(self, client: RawClient, topic: str, version: int, seed: int) -> None:
        self.chance = Random(seed)
        self.client, self.topic, self.version = client, topic, version
        create(client, topic, PARTITIONS)
        self.topic_id = topic_id_of(client, topic)
        self.known = [Known() for _ in range(PARTITIONS)]
        self.session, self.epoch = 0, 0

    def produce(self) -> None:
        index = self.chance.randrange(PARTITIONS)
        produce_to(self.client, self.topic, index, records(b"x"))
        self.known[index].end += 1

    def delete(self) -> None:
        index = self.chance.randrange(PARTITIONS)
        known = self.known[index]
        known.start = self.chance.randint(known.start, known.end)
        delete_records(self.client, self.topic, index, known.start)

    def fetch(self) -> None:
        wanted, gone = {}, []
        for index, known in enumerate(self.known):
            dice = self.chance.random()
            if self.epoch == 0 or dice < 0.15:
                known.offset = wanted[index] = self.chance.randint(known.start, known.end)
            elif dice < 0.18:
                known.offset = wanted[index] = known.end + 7
            elif dice < 0.22 and sum(k.offset is not None for k in self.known) > 1:
                known.offset, known.sent_end, known.sent_start = None, -1, -1
                gone.append(index)
            elif known.offset is not None and dice < 0.6:
                known.offset = wanted[index] = known.end
        named = {"topic": self.topic, "topic_id": self.topic_id}
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in wanted.items()
        ]
        request = FetchRequest(
            max_wait_ms=self.chance.choice([0, 5]),
            min_bytes=1,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[FetchTopic(partitions=parts, **named)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(partitions=gone, **named)] if gone else [],
        )
        answer = self.client.ask(request, self.version)
        assert answer.error_code == 0
        found = {
            p.partition_index: (
                p.error_code,
                p.high_watermark,
                p.log_start_offset,
                len(p.records or b"") > 0,
            )
            for topic in answer.responses
            for p in topic.partitions
        }
        expected = {
            index: said
            for index, known in enumerate(self.known)
            if (said := known.expected()) is not None
        }
        assert found == expected
        self.session, self.epoch = answer.session_id, self.epoch + 1


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("seed", range(6))
def test_an_incremental_answer_is_what_a_look_at_everything_gives(
    raw: RawClient, topic: str, version: int, seed: int
) -> None:
    """Pitfall 41: nothing is sent twice, and a consumer misses nothing."""
    run = Run(raw, topic, version, seed)
    run.fetch()
    for _ in range(STEPS):
        run.chance.choice([run.produce, run.produce, run.delete, run.fetch, run.fetch])()
