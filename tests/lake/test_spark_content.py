"""A large window's offsets and digest by Spark: what reading every row here finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock_platform.archive.store import s3_client
from penstock_platform.connections import Connections
from penstock_platform.lake import content as content_module
from penstock_platform.lake import spark_content
from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.lake.model.digests import digest_of, row_digests
from penstock_platform.lake.model.rows import Rows, altered_rows
from penstock_platform.lake.spark_content import ChunkSums, altered_offsets, read_content
from penstock_platform.landing.attempt import land_window
from penstock_platform.ranges import OffsetRange
from penstock_platform.topics.model.declaration import bronze_table

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]


def table(places: list[tuple[int, int]], changed: frozenset[tuple[int, int]], kafka: str) -> Any:
    """Rows at these (partition, offset); those in ``changed`` have another value."""
    return pa.table(
        {
            f"{kafka}partition": pa.array([p for p, _ in places], pa.int32()),
            f"{kafka}offset": pa.array([o for _, o in places], pa.int64()),
            "value": [b"forged" if place in changed else b"v%d" % place[1] for place in places],
        }
    )


def rows_of(found: Any, kafka: str) -> Rows:
    partition, offset = (found.column(f"{kafka}{name}") for name in ("partition", "offset"))
    return Rows(
        partition.to_numpy().astype(np.int32),
        offset.to_numpy(),
        np.concatenate([row_digests(found)]),
    )


@pytest.mark.parametrize("kafka", ["", "_kafka_"])
def test_offsets_digest_and_altered_rows_are_those_that_reading_every_row_finds(
    penstock: Connections, monkeypatch: pytest.MonkeyPatch, kafka: str
) -> None:
    """Six chunks: whole ones, the window's edges, holes, repetitions, and as many holes as
    repetitions, which no count shows."""
    monkeypatch.setattr(spark_content, "CHUNKS_PER_READ", 2)
    monkeypatch.setattr(spark_content, "CHUNKS_PER_COMPARISON", 1)
    rng = np.random.default_rng(11)
    whole = [(0, o) for o in range(20_000, 140_000)] + [(1, o) for o in range(40_000, 70_000)]
    lost = {whole[i] for i in rng.choice(len(whole), 40)} | {(1, 50_000)}
    twice = [whole[i] for i in rng.choice(len(whole), 25)] + [(1, 50_001), (1, 50_001)]
    places = [place for place in whole if place not in lost] + twice
    rng.shuffle(places)
    changed = frozenset(whole[i] for i in rng.choice(len(whole), 9))
    before = table(places, frozenset(), kafka)
    now = table(places[100:], changed, kafka)
    with penstock.spark.tagged("test", "") as spark:
        old, new = spark.createDataFrame(before), spark.createDataFrame(now)
        covered, digest = read_content(new)
        altered = altered_offsets(old, new)
    wanted = rows_of(now, kafka)
    expected = Coverage.of_rows(wanted.partition, wanted.offset)
    assert covered.ranges() == expected.ranges()
    assert [covered.repeated(p).pairs() for p in (0, 1)] == [
        expected.repeated(p).pairs() for p in (0, 1)
    ]
    assert covered.rows == len(places) - 100
    assert digest == digest_of([row_digests(now)])
    assert altered == altered_rows(wanted, rows_of(before, kafka)) != ()


def test_no_rows_cover_nothing(penstock: Connections) -> None:
    with penstock.spark.tagged("test", "") as spark:
        nothing = spark.createDataFrame(table([(0, 1)], frozenset(), "")).limit(0)
        assert read_content(nothing) == (Coverage.none(), "0" * 16)


@pytest.mark.parametrize("offsets", [[1, 4, 4, 5], [2, 2, 4, 5], [1, 2, 5, 5]])
def test_lost_and_repeated_offsets_of_the_same_count_make_no_plain_chunk(
    offsets: list[int],
) -> None:
    hashed = spark_content.number_digests(np.array(offsets))
    low, high = (
        int((hashed & np.uint64(2**32 - 1)).sum()),
        int((hashed >> np.uint64(32)).sum()),
    )
    assert not ChunkSums(4, min(offsets), min(offsets) + 3, (low, high), (0, 0)).plain


def test_a_large_window_is_read_through_spark_and_a_damaged_file_of_it_named(
    penstock: Connections,
    desk: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = desk("large", partitions=2)
    topic.send_values([b"%d" % n for n in range(300)])
    topic.send_values([b"%d" % n for n in range(200)], partition=1)
    window = topic.freeze()
    receipt = land_window(penstock, window).receipt
    name = bronze_table(topic.topic)
    small = penstock.lake.content(name, window.window_id)
    assert small.rows is not None
    monkeypatch.setattr(content_module, "ROWS_HERE_MAX", 499)
    large = penstock.lake.content(name, window.window_id)
    assert (large.rows, large.count, large.digest) == (None, 500, receipt.digest)
    assert large.coverage.ranges() == window.ranges == small.coverage.ranges()
    assert (large.fingerprint, large.snapshot_id) == (small.fingerprint, small.snapshot_id)
    assert receipt.snapshot_id is not None
    assert (
        penstock.lake.altered(name, window.window_id, receipt.snapshot_id, receipt.snapshot_id)
        == ()
    )

    files = penstock.lake.files(name, [window.window_id])
    assert files is not None
    victim = files.by_window[window.window_id][0].file
    bucket, key = victim.file_path.removeprefix("s3://").split("/", 1)
    s3 = s3_client(penstock.settings)
    good = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    # As large as before, so only reading it shows the damage.
    s3.put_object(Bucket=bucket, Key=key, Body=b"\0" * len(good))
    damaged = penstock.lake.content(name, window.window_id)
    ((why, ranges),) = damaged.unreadable.items()
    assert why.startswith(victim.file_path)
    assert set(ranges) <= {OffsetRange(r.partition, r.start, r.end) for r in window.ranges}
    assert damaged.count == 500 - victim.record_count
    s3.put_object(Bucket=bucket, Key=key, Body=good)
