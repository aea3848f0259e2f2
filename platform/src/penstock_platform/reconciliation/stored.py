"""What the log holds of a window, read back from bronze without a JVM.

The same as ``spark_stored.py`` gives, for windows that are so small that a Spark job takes longer:
record by record in Python, a microsecond or two each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from penstock_client.audit import (
    HEADER_NAME,
    AuditFormatError,
    AuditHeader,
    find_audit_header,
    record_digest,
)
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window

COLUMNS = ("partition", "offset", "key", "value", "headers")
NO_INCARNATION = 0
NO_SEQUENCE = -1


class Rows(Protocol):
    """Where a window's rows are read (``Lake``)."""

    def scan_table(
        self, table: str, window_id: str, columns: tuple[str, ...] = ("*",)
    ) -> pa.Table: ...


def stored_rows(
    lake: Rows, windows: Sequence[Window], wanted: Iterable[OffsetRange]
) -> dict[int, StoredRecords]:
    """The records at these offsets in these windows (of one topic), by partition.

    Rows that are twice in the table come twice. Records without the header have incarnation 0,
    sequence -1 and digest 0.
    """
    ranges: dict[int, list[OffsetRange]] = {}
    for r in wanted:
        ranges.setdefault(r.partition, []).append(r)
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for window in windows:
        rows = lake.scan_table(bronze_table(window.topic), window.window_id, COLUMNS)
        columns = [rows.column(name).to_pylist() for name in COLUMNS]
        for partition, offset, key, value, headers in zip(*columns, strict=True):
            if any(offset in r for r in ranges.get(partition, ())):
                record = (offset, *_stamped(key, value, headers))
                found.setdefault(partition, []).append(record)
    return {p: StoredRecords.of(*zip(*records, strict=True)) for p, records in found.items()}


def _stamped(
    key: bytes | None, value: bytes | None, headers: Sequence[dict[str, bytes | str | None]] | None
) -> tuple[int, int, int]:
    """Incarnation, sequence and digest of a record."""
    header = _header(headers or ())
    if header is None or header.incarnation < 0 or header.sequence < 0:
        return NO_INCARNATION, NO_SEQUENCE, 0
    return header.incarnation, header.sequence, record_digest(header.sequence, key, value)


def _header(headers: Sequence[dict[str, bytes | str | None]]) -> AuditHeader | None:
    pairs = [(HEADER_NAME, h["value"]) for h in headers if h["key"] == HEADER_NAME]
    try:
        return find_audit_header(pairs)
    except AuditFormatError:
        return None
