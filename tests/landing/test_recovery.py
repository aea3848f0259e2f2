"""What was proven once comes back as it was: from the log, else from the one snapshot that proves.

Every case is a window that the sweep has passed, and a table that was changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import functions as sf
from test_landing import rows_sha

from penstock_platform.connections import Connections
from penstock_platform.landing import bronze as spark_landing
from penstock_platform.landing.attempt import Landed, UnprovenRecoveryError, land_window
from penstock_platform.reconciliation.model.recovery import SourceKind
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]


class Proven:
    """A landed window of two partitions with 100 records each."""

    def __init__(self, penstock: Connections, topic: Any) -> None:
        self.penstock = penstock
        topic.send((i % 2, b"k", b"%d" % i, [("h", b"x")]) for i in range(200))
        self.window: Window = topic.freeze()
        self.first: Landed = land_window(penstock, self.window)
        self.before = rows_sha(penstock, self.window)

    def sweep(self, starts: Mapping[int, int]) -> None:
        self.penstock.kafka.delete_records(self.window.topic, starts)

    def sql(self, statement: str) -> None:
        table = bronze_table(self.window.topic)
        self.penstock.spark.session().sql(statement.format(table=table)).collect()

    def expire(self, keep: int) -> None:
        """Snapshots but the newest, and their files."""
        self.sql(
            "CALL lake.system.expire_snapshots(table => '{table}', "
            f"older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => {keep})"
        )

    def forge(self) -> None:
        self.sql("UPDATE {table} SET value = X'DEAD' WHERE partition = 0 AND offset = 10")
        assert self.sha != self.before

    @property
    def sha(self) -> str:
        return rows_sha(self.penstock, self.window)

    def receipts(self) -> list[str]:
        w = self.window
        found = BookStore.of(self.penstock).receipts(w.ref, bronze_table(w.topic), w.sequence)
        return [r.digest for r in found]


@pytest.fixture
def proven(penstock: Connections, desk: Callable[..., Any]) -> Proven:
    return Proven(penstock, desk("proven", partitions=2))


def test_a_forged_row_is_replaced_by_the_receipted_one_after_the_log_is_swept(
    penstock: Connections, proven: Proven
) -> None:
    proven.sweep({0: 100, 1: 100})
    proven.forge()
    landed = land_window(penstock, proven.window)
    assert proven.sha == proven.before
    assert landed.source.kind is SourceKind.SNAPSHOT
    assert landed.source.snapshot_id == proven.first.receipt.snapshot_id
    assert landed.recovered == 200
    assert proven.receipts() == [proven.first.receipt.digest] * 2
    proven.forge()
    land_window(penstock, proven.window)
    assert proven.sha == proven.before, "and again"


def test_rows_that_vanished_after_the_sweep_come_back_from_the_receipts_snapshot(
    penstock: Connections, proven: Proven
) -> None:
    proven.sweep({0: 100, 1: 100})
    proven.sql("DELETE FROM {table} WHERE offset BETWEEN 10 AND 40")
    land_window(penstock, proven.window)
    assert proven.sha == proven.before


def test_a_window_that_the_log_has_in_part_proves_as_a_whole(
    penstock: Connections, proven: Proven
) -> None:
    proven.sweep({0: 60, 1: 0})
    proven.forge()
    proven.sql("DELETE FROM {table} WHERE offset IN (59, 60, 70)")
    landed = land_window(penstock, proven.window)
    assert proven.sha == proven.before
    assert (landed.recovered, landed.receipt.digest) == (60, proven.first.receipt.digest)


def test_without_a_snapshot_that_proves_nothing_is_done_and_that_is_said(
    penstock: Connections, proven: Proven
) -> None:
    proven.sweep({0: 60, 1: 0})
    proven.forge()
    proven.expire(1)
    forged = proven.sha
    with pytest.raises(UnprovenRecoveryError, match=r"partition 0 offsets 0-59.*left as it is"):
        land_window(penstock, proven.window)
    assert proven.sha == forged
    assert len(proven.receipts()) == 1


def test_what_a_compaction_wrote_proves_when_the_landings_own_snapshot_is_expired(
    penstock: Connections, proven: Proven
) -> None:
    proven.sql(
        "CALL lake.system.rewrite_data_files(table => '{table}', "
        "options => map('rewrite-all', 'true'))"
    )
    proven.expire(1)
    proven.sweep({0: 100, 1: 100})
    proven.forge()
    landed = land_window(penstock, proven.window)
    assert proven.sha == proven.before
    assert landed.source.snapshot_id != proven.first.receipt.snapshot_id


def test_a_landing_that_died_before_its_receipt_is_not_lost_with_the_log(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    class KilledError(Exception):
        pass

    def at(step: str) -> None:
        if step == "committed":
            raise KilledError

    topic = desk("unreceipted")
    topic.send_values([b"%d" % i for i in range(50)])
    window = topic.freeze()
    with pytest.raises(KilledError):
        land_window(penstock, window, at)
    before = rows_sha(penstock, window)
    penstock.kafka.delete_records(topic.topic, {0: 50})
    landed = land_window(penstock, window)
    assert (landed.source.kind, landed.recovered) == (SourceKind.COMMIT, 50)
    assert rows_sha(penstock, window) == before


@pytest.mark.parametrize("swept", [{0: 0, 1: 0}, {0: 60, 1: 0}])
def test_a_log_that_holds_other_records_now_does_not_replace_what_was_landed(
    penstock: Connections,
    proven: Proven,
    monkeypatch: pytest.MonkeyPatch,
    swept: dict[int, int],
) -> None:
    """It was cut below the window's end and has grown again."""
    proven.sweep(swept)
    read = spark_landing.window_rows

    def regrown(*arguments: Any) -> Any:
        other = sf.when(sf.col("offset") == 90, sf.lit(b"other")).otherwise(sf.col("value"))
        return read(*arguments).withColumn("value", other)

    monkeypatch.setattr(spark_landing, "window_rows", regrown)
    landed = land_window(penstock, proven.window)
    assert proven.sha == proven.before
    assert landed.source.gone == proven.window.ranges
    assert landed.receipt.digest == proven.first.receipt.digest
