"""Land and parse a window: interrupt what still runs, run the Spark job, receipt, group offsets.

Every step can be killed between any two instructions and run again. What a second run finds and
does, step by step (``at`` gets the names in quotes):

1. Interrupt. A killed run's operation continues in the Connect server; its tag interrupts it.
   One that commits in that very moment commits before the base is taken, or is refused by the
   fence, or refuses this one, which then takes a fresh base.
2. "planned": base snapshot taken, nothing written. A second run starts over.
3. "writing": data files without a commit are orphans: no reader sees them, an age-based sweep
   removes them. A second run writes its own.
4. "committed": the rows are in, no receipt says so. A second run replaces them by the same rows
   under its own attempt id and writes the receipt for that; the first commit's never comes.
5. "receipted": the window counts as landed. A second run lands it again: same rows, a further
   receipt, which is the one that counts from then on.
6. "reported": the group's offsets describe Kafka tools how far the table is. They never go back: a
   window landed again later leaves them where they are. A run killed before this leaves them one
   window behind until the next window's landing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from penstock_platform.clock import to_iso
from penstock_platform.extras import require_extra
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.java_client import java_properties
from penstock_platform.lake.tables import LakeSnapshot
from penstock_platform.ranges import count, describe, subtract
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.model.recovery import RerunSource, SourceKind
from penstock_platform.reconciliation.recovery import rerun_source
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.contract import Contract
from penstock_platform.topics.model.declaration import bronze_table, consumer_group
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.truncations import lost_from_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock_platform.connections import Connections
    from penstock_platform.landing.bronze import LandingResult
    from penstock_platform.landing.silver import ParseResult

CODE_VERSION = version("penstock-platform")
Step = Callable[[str], None]


class LostLandingError(RuntimeError):
    """The job ended well and its commit is not in the table: someone has expired or undone it."""


class UnprovenRecoveryError(RuntimeError):
    """The log no longer has the window, and no snapshot of the table proves: nothing was done."""


class TruncatedLogError(RuntimeError):
    """The log was cut while it was read: the rows may be other records than the window's."""


class RecreatedTopicError(RuntimeError):
    """The broker's topic is another one than the window's: its offsets mean other records."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A landed window: its receipt, and what the job counted. ``source``: where the rows came from;
    ``recovered``: how many of them from a snapshot of the table."""

    receipt: Receipt
    result: LandingResult
    snapshot: LakeSnapshot
    source: RerunSource
    recovered: int = 0


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed window: the receipts of silver and quarantine, and what the job counted."""

    silver: Receipt
    quarantine: Receipt
    result: ParseResult


def land_window(penstock: Connections, window: Window, at: Step = lambda _step: None) -> Landed:
    """Land one frozen window in bronze and write its receipt.

    Raises RecreatedTopicError, UnprovenRecoveryError, ClusterError, SparkUnavailableError,
    LandingError, LostLandingError; nothing that was landed before is lost by any of them.
    """
    _refuse_another_topic(penstock, window)
    table = bronze_table(window.topic)
    tag = operation_tag(window, "bronze")
    penstock.spark.interrupt(tag)
    started = time.monotonic()
    with penstock.spark.tagged(tag) as spark:
        source, result = _land(penstock, spark, window, at)
    at("committed")
    _refuse_a_cut(penstock, window, source)
    snapshot = _commit_of(penstock, table, window, result.attempt_id)
    recovered = _recovered(result.rows, window, source)
    receipt = BookStore.of(penstock).add_receipt(
        Receipt.of(
            window,
            table=table,
            attempt_id=result.attempt_id,
            snapshot_id=snapshot.snapshot_id,
            rows=result.rows,
            size_bytes=snapshot.added_bytes,
            seconds=round(time.monotonic() - started, 3),
            landed_at=to_iso(penstock.clock.now()),
            code_version=CODE_VERSION,
            digest=result.digest,
            counts={"record_bytes": result.record_bytes, "recovered": recovered},
        )
    )
    at("receipted")
    report_progress(penstock, window)
    at("reported")
    return Landed(receipt, result, snapshot, source, recovered)


def _land(
    penstock: Connections, spark: SparkSession, window: Window, at: Step
) -> tuple[RerunSource, LandingResult]:
    """Land from the log and, for what it has deleted, from the one snapshot that proves.

    What was restored must have the receipt's digest as a whole. Where it has not, or where the log
    gives as many records as before with another digest, the log holds other records at these
    offsets than were landed (it was cut and has grown again): all rows come from the snapshot then.
    """
    require_extra("pyspark")
    from penstock_platform.landing.bronze import (  # noqa: PLC0415
        LandingError,
        LandingJob,
        digest_as_of,
        land_bronze,
    )

    table = bronze_table(window.topic)

    def digest_of(snapshot_id: int) -> str | None:
        return digest_as_of(spark, table, window, snapshot_id)

    def land(source: RerunSource) -> LandingResult:
        job = LandingJob(
            bootstrap_servers=penstock.settings.bootstrap_servers,
            attempt_id=uuid.uuid4().hex,
            kafka_properties=java_properties(penstock.settings.kafka.properties),
            gone=source.gone,
            recover_from=source.snapshot_id,
            at=at,
        )
        return land_bronze(spark, window, job)

    source = rerun_source(penstock, window, digest_of)
    if source.kind is SourceKind.NOTHING:
        raise UnprovenRecoveryError(
            f"window {window.window} of {window.topic} was not landed again: the log has deleted "
            f"{describe(source.gone)}, and no snapshot of {table} has the content of any of its "
            "receipts. The table was left as it is"
        )
    result = land(source)
    if source.digest in ("", result.digest) and not _rewritten(penstock, window, result):
        return source, result
    wholly = rerun_source(penstock, window, digest_of, wholly=True)
    if wholly.kind is not SourceKind.SNAPSHOT:
        if source.kind is SourceKind.LOG:
            return source, result  # the receipt's rows are gone; only the log is left
    elif (restored := land(wholly)).digest == wholly.digest:
        return wholly, restored
    raise LandingError(
        f"window {window.window} of {window.topic} was restored from snapshot "
        f"{source.snapshot_id} of {table} and has digest {result.digest}, where its receipt says "
        f"{source.digest}. No receipt was written; run it again: "
        f"penstock window rerun {window.topic} {window.window}"
    )


def _rewritten(penstock: Connections, window: Window, result: LandingResult) -> bool:
    """Whether the window has as many rows as its newest receipt says, and others."""
    receipts = BookStore.of(penstock).receipts(window.ref, result.table, window.sequence)
    known = next((r for r in reversed(receipts) if r.digest), None)
    return known is not None and known.rows == result.rows and known.digest != result.digest


def parse_window(
    penstock: Connections, window: Window, contract: Contract, at: Step = lambda _step: None
) -> Parsed:
    """Parse a landed window into silver and quarantine and write both receipts.

    Reads bronze as it is now; whether that is proven is the caller's to ask. Raises
    LostLandingError when nothing was landed, SparkUnavailableError, LandingError.
    """
    require_extra("pyspark")
    from penstock_platform.landing.silver import ParseJob, parse_silver  # noqa: PLC0415

    bronze = penstock.lake.current_snapshot(bronze_table(window.topic))
    if bronze is None:
        raise LostLandingError(
            f"window {window.window} of {window.topic} is to be parsed, and "
            f"{bronze_table(window.topic)} has no rows at all; land it first"
        )
    tag = operation_tag(window, "silver")
    penstock.spark.interrupt(tag)
    job = ParseJob(attempt_id=uuid.uuid4().hex, bronze_snapshot=bronze.snapshot_id, at=at)
    with penstock.spark.tagged(tag) as spark:
        result = parse_silver(spark, window, contract, job)
    at("committed")
    silver, quarantine = (
        BookStore.of(penstock).add_receipt(
            Receipt.of(
                window,
                table=table,
                attempt_id=result.attempt_id,
                snapshot_id=(
                    found := _commit_of(penstock, table, window, result.attempt_id)
                ).snapshot_id,
                rows=rows,
                size_bytes=found.added_bytes,
                seconds=round(result.seconds, 3),
                landed_at=to_iso(penstock.clock.now()),
                code_version=CODE_VERSION,
                digest=digest,
                counts={"landed": result.landed},
            )
        )
        for table, rows, digest in (
            (result.silver, result.parsed, result.silver_digest),
            (result.quarantine, result.quarantined, result.quarantine_digest),
        )
    )
    at("receipted")
    return Parsed(silver, quarantine, result)


def report_progress(penstock: Connections, window: Window) -> bool:
    """Commit the window's ends to the table's consumer group, where they are ahead of it.

    A convenience for Kafka's tools and no part of any proof, so a coordinator that does not answer
    fails no landing; returns whether the group now says so.
    """
    group = consumer_group(window.topic)
    try:
        known = penstock.kafka.group_offsets(group, window.topic)
        # Where the log was cut, the group steps back with it.
        ahead = {
            p.p: p.end
            for p in window.partitions
            if p.end > known.get(p.p, -1) or p.truncated is not None
        }
        penstock.kafka.commit_group(group, window.topic, ahead)
    except ClusterError:
        return False
    return True


def operation_tag(window: Window, work: str) -> str:
    """The tag under which a window's work runs in Spark: ``penstock/<work>/<window id>``."""
    return f"penstock/{work}/{window.window_id}"


def _refuse_another_topic(penstock: Connections, window: Window) -> None:
    found = penstock.kafka.ref(window.topic)
    if found != window.ref:
        raise RecreatedTopicError(
            f"window {window.window_id} belongs to topic {window.topic} with id "
            f"{window.topic_id} of cluster {window.cluster_id}; the broker at "
            f"{penstock.settings.bootstrap_servers} has {found.topic_id} of {found.cluster_id}. "
            "Its offsets are other records; nothing was landed"
        )


def _refuse_a_cut(penstock: Connections, window: Window, source: RerunSource) -> None:
    """A log that was cut while it was read may have given other records than the window's."""
    lost = lost_from_log(penstock, window, penstock.kafka.offsets(window.topic))
    if new := subtract(lost, source.gone):
        raise TruncatedLogError(
            f"window {window.name} of {window.topic}: its log was cut below {describe(new)} while "
            "it was read. No receipt was written; the next attempt reads what is left"
        )


def _commit_of(penstock: Connections, table: str, window: Window, attempt_id: str) -> LakeSnapshot:
    snapshot = penstock.lake.snapshot_of_attempt(table, attempt_id)
    if snapshot is None:
        raise LostLandingError(
            f"window {window.window} of {window.topic}: the job committed attempt {attempt_id} to "
            f"{table}, and the table's history does not hold it. Run it again: penstock window "
            f"rerun {window.topic} {window.window}"
        )
    return snapshot


def _recovered(rows: int, window: Window, source: RerunSource) -> int:
    lost = count(source.gone)
    return max(0, rows - (window.record_count - lost)) if lost else 0
