"""Asking log, archive and lake for what ``model/recovery.py`` needs to choose a re-run's source.

Only reads. The log is asked for its starts and, where leaders changed, its cuts; the table is read
only where the log has deleted or lost a part of the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_platform.kafka.errors import ClusterError
from penstock_platform.lake.errors import LakeError, StoreError
from penstock_platform.ranges import OffsetRange, merge
from penstock_platform.reconciliation.model.books import Equation, EquationResult
from penstock_platform.reconciliation.model.equations import retained_away
from penstock_platform.reconciliation.model.recovery import (
    DAMAGE,
    DigestOf,
    KeptSnapshot,
    RerunSource,
    choose_source,
    with_source,
)
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.truncations import lost_from_log

if TYPE_CHECKING:
    from penstock_platform.connections import Connections


def rerun_source(
    penstock: Connections, window: Window, digest_of: DigestOf, *, wholly: bool = False
) -> RerunSource:
    """Where a landing of this window takes its rows from now.

    ``digest_of``: the digest of the window's bronze rows as of a snapshot. ``wholly``: as if the
    log had none of its offsets. Raises ClusterError when the broker does not say where its log
    begins.
    """
    gone = window.ranges if wholly else missing_in_log(penstock, window)
    if not any(gone):
        return choose_source((), (), (), digest_of)
    table = bronze_table(window.topic)
    return choose_source(
        gone,
        BookStore.of(penstock).receipts(window.ref, table, window.sequence),
        kept_snapshots(penstock, table, window),
        digest_of,
    )


def noting_source(penstock: Connections, window: Window, result: EquationResult) -> EquationResult:
    """Equation 1's result with a note of what a re-run would read, where something is wrong.

    Without the note where broker or lake do not answer: it is advice, and the result is valid.
    """
    if result.equation is not Equation.STORED_EQUALS_LANDED or result.state not in DAMAGE:
        return result
    table = bronze_table(window.topic)

    def digest_at(snapshot_id: int) -> str | None:
        return penstock.lake.digest_at(table, window.window_id, snapshot_id)

    try:
        return with_source(result, rerun_source(penstock, window, digest_at))
    except (ChainError, ClusterError, LakeError, StoreError, OSError):
        return result


def missing_in_log(penstock: Connections, window: Window) -> tuple[OffsetRange, ...]:
    """The window's offsets that the log has deleted, or lost when it was cut."""
    offsets = penstock.kafka.offsets(window.topic)
    deleted = retained_away(window, {p: o.log_start for p, o in offsets.items()})
    return merge([*deleted, *lost_from_log(penstock, window, offsets)])


def kept_snapshots(penstock: Connections, table: str, window: Window) -> list[KeptSnapshot]:
    """The snapshots that may have the window's rows as they once were, newest first.

    Beside every commit that changed the window's rows the one before it: what a compaction wrote
    has the same rows in other files, and may be kept when the landing's own snapshot is not.
    """
    current = penstock.lake.current_snapshot(table)
    found = {current.snapshot_id: ""} if current is not None else {}
    for snapshot in penstock.lake.snapshots_with(table, window.window_id):
        found[snapshot.snapshot_id] = snapshot.attempt_id
        if snapshot.parent_id is not None:
            found.setdefault(snapshot.parent_id, "")
    return [KeptSnapshot(snapshot_id, attempt) for snapshot_id, attempt in found.items()]
