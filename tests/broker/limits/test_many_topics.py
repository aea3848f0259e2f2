"""Requests that name many topics: what they cost on the disk does not grow with each of them."""

from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path

import pytest
from test_slow_disk import WatchedDisk, create_request, delete_request, serving

from penstock_broker.errors import ErrorCode
from penstock_broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

NAMES = [f"topic-{number:03}" for number in range(30)]
METADATA = "sync metadata.json.tmp"
LOG_NAMES = "sync_directory data"


def counted(disk: WatchedDisk) -> Counter[str]:
    """How often each was waited for, since this was last asked."""
    assert disk.in_loop == []
    found = Counter(disk.elsewhere)
    disk.watch()
    return found


async def test_many_topics_share_a_write_of_the_metadata(tmp_path: Path) -> None:
    """KRaft writes the records of one request as one batch, too."""
    async with serving(tmp_path) as (broker, disk, ask):
        disk.watch()
        made = await ask(lambda client: client.ask(create_request(*NAMES, partitions=1), 7))
        assert [(each.name, each.error_code) for each in made.topics] == [(n, 0) for n in NAMES]
        waits = counted(disk)
        assert waits[METADATA] == 1
        assert waits[LOG_NAMES] == 2  # the names of the logs, and the one of the metadata
        assert list(broker.metadata.topics) == NAMES

        gone = await ask(lambda client: client.ask(delete_request(*NAMES), 6))
        assert [(each.name, each.error_code) for each in gone.responses] == [(n, 0) for n in NAMES]
        waits = counted(disk)
        assert waits[METADATA] == 1
        assert waits[LOG_NAMES] == 2
        assert not broker.metadata.topics
        assert not list(broker.replicas.partitions())


def grow_request(count: int, *names: str) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=count) for name in names]
    return CreatePartitionsRequest(topics=topics, timeout_ms=1_000)


async def test_many_topics_that_grow_share_a_write_of_the_metadata(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, disk, ask):
        await ask(lambda client: client.ask(create_request(*NAMES, partitions=1), 7))
        disk.watch()
        grown = await ask(lambda client: client.ask(grow_request(3, *NAMES), 3))
        assert [(each.name, each.error_code) for each in grown.results] == [(n, 0) for n in NAMES]
        waits = counted(disk)
        assert waits[METADATA] == 1
        assert waits[LOG_NAMES] == 2
        assert len(list(broker.replicas.partitions())) == 3 * len(NAMES)


async def test_each_topic_that_grows_has_its_own_error(tmp_path: Path) -> None:
    async with serving(tmp_path, {"max.broker.partitions": "8"}) as (broker, _, ask):
        await ask(lambda client: client.ask(create_request("a", "b", "c", partitions=1), 7))
        await ask(lambda client: client.ask(create_request("large", partitions=2), 7))
        names = ("a", "b", "unknown", "b", "large", "c")
        grown = await ask(lambda client: client.ask(grow_request(2, *names), 3))
        assert {each.name: each.error_code for each in grown.results} == {
            "a": ErrorCode.NONE,
            "b": ErrorCode.INVALID_REQUEST,  # named twice
            "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "large": ErrorCode.INVALID_PARTITIONS,
            "c": ErrorCode.NONE,
        }
        grown = await ask(lambda client: client.ask(grow_request(3, "a", "b"), 3))
        assert {each.name: each.error_code for each in grown.results} == {
            "a": ErrorCode.NONE,
            "b": ErrorCode.POLICY_VIOLATION,  # no space, with what the other takes
        }
        sizes = {name: len(topic.partitions) for name, topic in broker.metadata.topics.items()}
        assert sizes == {"a": 3, "b": 1, "c": 2, "large": 2}


async def test_each_of_many_topics_has_its_own_error(tmp_path: Path) -> None:
    async with serving(tmp_path, {"max.broker.partitions": "4"}) as (_, _, ask):
        request = create_request("a", "b/c", "d.e", "d_e", "a", "f", "g", partitions=2)
        made = await ask(lambda client: client.ask(request, 7))
        assert {each.name: each.error_code for each in made.topics} == {
            "a": ErrorCode.INVALID_REQUEST,  # named twice
            "b/c": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "d.e": ErrorCode.NONE,
            "d_e": ErrorCode.INVALID_TOPIC_EXCEPTION,  # collides with the one before
            "f": ErrorCode.NONE,
            "g": ErrorCode.POLICY_VIOLATION,  # no space
        }
        gone = await ask(lambda client: client.ask(delete_request("d.e", "f", "f", "g"), 6))
        assert {each.name: each.error_code for each in gone.responses} == {
            "d.e": ErrorCode.NONE,
            "f": ErrorCode.INVALID_REQUEST,
            "g": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


@pytest.mark.parametrize("part", ["metadata.json", "topic-007"])
async def test_a_disk_that_fails_refuses_no_other_topic_than_it_must(
    tmp_path: Path, part: str
) -> None:
    """All topics of a write that fails; one alone where its log cannot be made."""
    async with serving(tmp_path) as (broker, disk, ask):
        names = NAMES[:20]
        disk.fail("open", errno.EIO, path_part=part)
        made = await ask(lambda client: client.ask(create_request(*names, partitions=1), 7))
        failed = [e.name for e in made.topics if e.error_code == ErrorCode.KAFKA_STORAGE_ERROR]
        assert failed == (names if part == "metadata.json" else ["topic-007"])
        assert list(broker.metadata.topics) == [name for name in names if name not in failed]
        made = await ask(lambda client: client.ask(create_request(*failed, partitions=1), 7))
        assert {each.error_code for each in made.topics} == {0}
        assert len(list(broker.replicas.partitions())) == len(names)
