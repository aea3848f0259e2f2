"""Which offset a row of the lake comes from: its topic, window, receipt and snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.expressions import EqualTo

from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.lake.errors import FilterError, LakeError
from penstock_platform.lineage.offsets import LineageError, receipt_document
from penstock_platform.reconciliation.model.books import state_on
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table, table_part
from penstock_platform.windows.store import WindowStore

# table's namespace → the columns of partition and offset
COORDINATES = {
    "bronze": ("partition", "offset"),
    "silver": ("_kafka_partition", "_kafka_offset"),
    "quarantine": ("partition", "offset"),
}


def rows_document(
    penstock: Connections, table: str, where: str, limit: int, columns: Sequence[str]
) -> dict[str, Any]:
    """Up to ``limit`` rows that match, each with where it comes from; ready for JSON.

    Raises LineageError for a table whose rows have no offsets, FilterError, LakeError,
    MissingTableError; what the stores raise.
    """
    namespace = table.split(".")[1] if table.count(".") >= 2 else ""
    if namespace not in COORDINATES:
        raise LineageError(
            f"rows of {table} have no offsets; ask for a table of bronze, silver or quarantine"
        )
    _require_columns(penstock, table, columns)
    place = COORDINATES[namespace]
    wanted = tuple(dict.fromkeys(("window_id", *place, *columns)))
    found = penstock.lake.find_rows(table, where, wanted, limit)
    rows: list[dict[str, Any]] = found.rows.to_pylist()
    rows.sort(key=lambda row: (row["window_id"], row[place[0]], row[place[1]]))
    windows = _windows(penstock, table, {str(row["window_id"]) for row in rows})
    return {
        "table": table,
        "where": where,
        "snapshot": found.snapshot_id,
        "more": found.more,
        "rows": [
            {
                **windows[str(row["window_id"])],
                "partition": row[place[0]],
                "offset": row[place[1]],
                "columns": {name: row[name] for name in columns},
            }
            for row in rows
        ],
    }


def _require_columns(penstock: Connections, table: str, columns: Sequence[str]) -> None:
    known = [name for name, _ in penstock.lake.columns(table)]
    if unknown := [name for name in columns if name not in known]:
        raise FilterError(
            f"{table} has no column {', '.join(unknown)}; its columns are {', '.join(known)}"
        )


def _windows(penstock: Connections, table: str, window_ids: set[str]) -> dict[str, dict[str, Any]]:
    """What is known of each window; only its id where the archive does not have it."""
    if not window_ids:
        return {}
    topic = _topic(penstock, table, sorted(window_ids))
    cluster_id = penstock.kafka.cluster_id()
    return {w: _window(penstock, cluster_id, topic, table, w) for w in window_ids}


def _window(
    penstock: Connections, cluster_id: str, topic: str | None, table: str, window_id: str
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": topic,
        "window_id": window_id,
        "window": None,
        "state": None,
        "receipt": None,
    }
    topic_id, _, sequence = window_id.rpartition("/")
    if topic is None or not sequence.isdecimal():
        return document
    ref, store = TopicRef(cluster_id, topic, topic_id), BookStore.of(penstock)
    window = WindowStore.of(penstock).get(ref, int(sequence))
    if window is None:
        return document
    landed = store.receipts(ref, bronze_table(topic), window.sequence)
    receipts = store.receipts(ref, table, window.sequence)
    book = store.newest_book(ref, window.sequence)
    return document | {
        "window": window.name,
        "state": str(state_on(book, landed[-1].attempt_id if landed else "")),
        "receipt": receipt_document(receipts[-1]) if receipts else None,
    }


def _topic(penstock: Connections, table: str, window_ids: Sequence[str]) -> str | None:
    """The topic's name, which only bronze has: a table's name does not say it exactly. Else that
    of the one topic of the cluster whose tables have this name; None where nothing says it."""
    part = table.rpartition(".")[2]
    names = {part, part.rpartition("_v")[0]} - {""}
    for bronze in sorted(f"{table.split('.', maxsplit=1)[0]}.bronze.{name}" for name in names):
        for window_id in window_ids:
            where = EqualTo("window_id", window_id)  # type: ignore[call-arg,arg-type]
            try:
                rows = penstock.lake.find_rows(bronze, where, ("topic",), 1).rows
            except LakeError:
                break
            if rows.num_rows:
                return str(rows.column("topic")[0].as_py())
    topics = [topic for topic in penstock.kafka.topics() if table_part(topic) in names]
    return topics[0] if len(topics) == 1 else None
