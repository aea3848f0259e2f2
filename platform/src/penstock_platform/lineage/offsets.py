"""Where one offset of a topic is: its log, its windows, their receipts, and the lake's tables.

Everything is read at the moment of the question. No window but those of the search is read, of the
tables only the row, and of the evidence of producers nothing: who sent a record is what its own
header says, and what the newest book found about its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import And, EqualTo

from penstock_client.audit import AuditFormatError, find_audit_header
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.lake.errors import LakeError, MissingTableError
from penstock_platform.lineage.parsed import parsed_version, silver_versions
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import Book, state_on
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table, quarantine_table, silver_table
from penstock_platform.windows.model.truncation import lost_ranges
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore
from penstock_platform.windows.truncations import lost_from_log

# Rows of one offset that are read: more than one is a fault, and this many show it.
ROWS_MAX = 10


class LineageError(LookupError):
    """A question that has no answer: what is not there, and what is."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """An offset of one incarnation of a topic, and where to look for it."""

    penstock: Connections
    ref: TopicRef
    partition: int
    offset: int

    def within(self, ranges: Iterable[OffsetRange]) -> bool:
        return any(r.partition == self.partition and self.offset in r for r in ranges)


def offset_document(
    penstock: Connections, ref: TopicRef, partition: int, offset: int
) -> dict[str, Any]:
    """Where the offset is, ready for JSON. Raises LineageError for a partition that neither the
    topic nor its chain has; what the stores raise."""
    asked = _Asked(penstock, ref, partition, offset)
    logs = _logs(penstock, ref)
    store = WindowStore.of(penstock)
    newest = store.newest(ref)
    _require_partition(ref.topic, partition, logs, newest)
    log = _log(logs, partition, offset)
    windows = store.holding(ref, partition, offset)
    lost = [asked.within(_lost(penstock, window, logs)) for window in windows]
    state, reason = _state(asked, newest, log, lost)
    versions = silver_versions(penstock.lake, ref.topic) if windows else []
    return {
        "topic": ref.topic,
        "topic_id": ref.topic_id,
        "partition": partition,
        "offset": offset,
        "state": state,
        "reason": reason,
        "log": log,
        "windows": [
            _window(asked, window, versions) | {"lost_from_log": gone}
            for window, gone in zip(windows, lost, strict=True)
        ],
    }


# --- the log ----------------------------------------------------------------------------------


def _logs(penstock: Connections, ref: TopicRef) -> dict[int, PartitionOffsets] | None:
    """The log's bounds by partition; None where the broker has this incarnation no more."""
    try:
        if penstock.kafka.ref(ref.topic) != ref:
            return None
        return penstock.kafka.offsets(ref.topic)
    except UnknownTopicError:
        return None


def _require_partition(
    topic: str, partition: int, logs: dict[int, PartitionOffsets] | None, newest: Window | None
) -> None:
    known = set(logs or ()) | {p.p for p in (newest.partitions if newest else ())}
    if partition not in known:
        has = f"its partitions are 0 to {max(known)}" if known else "none is known"
        raise LineageError(f"topic {topic} has no partition {partition}; {has}")


def _log(logs: dict[int, PartitionOffsets] | None, partition: int, offset: int) -> dict[str, Any]:
    """``state``: stored, deleted, beyond_end, or gone with its topic."""
    at = (logs or {}).get(partition)
    if at is None:
        return {"state": "gone", "start": None, "last_stable": None, "end": None}
    state = "stored" if offset < at.high_watermark else "beyond_end"
    return {
        "state": "deleted" if offset < at.log_start else state,
        "start": at.log_start,
        "last_stable": at.last_stable,
        "end": at.high_watermark,
    }


def _lost(
    penstock: Connections, window: Window, logs: dict[int, PartitionOffsets] | None
) -> tuple[OffsetRange, ...]:
    """The window's offsets above which the log was cut after it was frozen."""
    if logs is None:
        return lost_ranges(window, WindowStore.of(penstock).cuts(window.ref))
    return lost_from_log(penstock, window, logs)


def _state(
    asked: _Asked, newest: Window | None, log: dict[str, Any], lost: Sequence[bool]
) -> tuple[str, str]:
    """What the chain has of the offset, and a sentence where that is no window. ``lost``: of each
    window that holds the offset, whether the log was cut below it."""
    stored = log["state"] == "stored"
    if lost:
        again = "the record that is at this offset now is in no window yet"
        return "frozen", again if all(lost) and stored else ""
    if newest is None:
        return "no_chain", "no window of the topic is frozen yet"
    end = next((p.end for p in newest.partitions if p.p == asked.partition), 0)
    if asked.offset >= end:
        if stored:
            return "not_frozen", f"the chain ends at offset {end:,}; a next window will hold it"
        return "not_written", f"the chain ends at offset {end:,}; no record is at this offset yet"
    first = WindowStore.of(asked.penstock).get(asked.ref, 0)
    starts = {p.p: p.start for p in (first.partitions if first is not None else ())}
    return "before_chain", (
        f"the chain begins at offset {starts.get(asked.partition, 0):,} of the partition, so "
        "Penstock never landed this one (land.start of the declaration)"
    )


# --- a window ---------------------------------------------------------------------------------


def _window(asked: _Asked, window: Window, versions: Sequence[int]) -> dict[str, Any]:
    store = BookStore.of(asked.penstock)
    book = store.newest_book(window.ref, window.sequence)
    mine = next(r for r in window.ranges if r.partition == asked.partition)
    bronze, rows = _table(
        asked, window, "bronze", bronze_table(window.topic), ("offset", "headers")
    )
    landed = bronze["receipts"]
    return {
        "window": window.name,
        "sequence": window.sequence,
        "window_id": window.window_id,
        "state": str(state_on(book, landed[-1]["attempt"] if landed else "")),
        "closed_at": window.closed_at,
        "frozen_at": window.frozen_at,
        "start": mine.start,
        "end": mine.end,
        "retired": store.retired(window.ref, window.sequence),
        "tables": [bronze, *_parsed(asked, window, versions)],
        "producer": _producer(rows[0]["headers"]) if rows else None,
        "findings": _findings(asked, book),
        "holds_no_record": _legal(asked, book),
    }


def _parsed(asked: _Asked, window: Window, versions: Sequence[int]) -> list[dict[str, Any]]:
    """The offset in silver and quarantine; nothing for a topic that has no such tables."""
    if not versions:
        return []
    version = parsed_version(BookStore.of(asked.penstock), window, versions)
    silver, _ = _table(
        asked, window, "silver", silver_table(window.topic, version), ("_kafka_offset",)
    )
    quarantine, rows = _table(
        asked, window, "quarantine", quarantine_table(window.topic, version), ("reason",)
    )
    return [silver, quarantine | {"reason": rows[0]["reason"] if rows else ""}]


def _table(
    asked: _Asked, window: Window, tier: str, table: str, columns: tuple[str, ...]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A table's receipts of the window and its rows at the offset. ``rows`` is None, and
    ``problem`` says why, where they cannot be read."""
    receipts = BookStore.of(asked.penstock).receipts(window.ref, table, window.sequence)
    document: dict[str, Any] = {
        "tier": tier,
        "table": table,
        "receipts": [receipt_document(r) for r in receipts],
        "rows": 0,
        "snapshot": None,
        "problem": "",
    }
    prefix = "_kafka_" if tier == "silver" else ""
    # pyiceberg types its expressions as pydantic models; this is their documented constructor.
    where = And(
        EqualTo("window_id", window.window_id),  # type: ignore[call-arg,arg-type]
        EqualTo(f"{prefix}partition", asked.partition),  # type: ignore[call-arg,arg-type]
        EqualTo(f"{prefix}offset", asked.offset),  # type: ignore[call-arg,arg-type]
    )
    try:
        found = asked.penstock.lake.find_rows(table, where, columns, ROWS_MAX)
    except MissingTableError:
        return document, []
    except LakeError as error:
        return document | {"rows": None, "problem": str(error)}, []
    rows: list[dict[str, Any]] = found.rows.to_pylist()
    return document | {"rows": len(rows), "snapshot": found.snapshot_id}, rows


def receipt_document(receipt: Receipt) -> dict[str, Any]:
    """What a receipt says of its landing."""
    return {
        "attempt": receipt.attempt_id,
        "snapshot": receipt.snapshot_id,
        "landed_at": receipt.landed_at,
        "rows": receipt.rows,
    }


def _producer(headers: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """What the record's audit header says; None without one that can be read."""
    try:
        found = find_audit_header([(h["key"], h["value"]) for h in headers or ()])
    except AuditFormatError:
        return None
    if found is None:
        return None
    return {
        "incarnation": str(found.incarnation),
        "sequence": found.sequence,
        "server": found.server,
        "sent_ms": found.timestamp_ms,
    }


def _findings(asked: _Asked, book: Book | None) -> list[dict[str, Any]]:
    """What the newest book found about this offset."""
    return [
        {
            "equation": str(result.equation),
            "kind": finding.kind,
            "incarnation": finding.incarnation,
            "detail": finding.detail,
        }
        for result in (book.equations if book is not None else ())
        for finding in result.findings
        if asked.within(finding.ranges)
    ]


def _legal(asked: _Asked, book: Book | None) -> bool:
    """Whether the books know the offset as a transaction's marker or an aborted record."""
    return any(asked.within(r.legal) for r in (book.equations if book is not None else ()))
