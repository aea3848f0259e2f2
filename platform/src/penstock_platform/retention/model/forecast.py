"""How long a log may grow as it does: from measured rates, the time until a limit is reached.

Rates are those of the newest windows: offsets that were frozen in a time that the windows' closes
measure, and the bytes that an offset takes in the log now. What the present sweep deletes counts as
deleted. A forecast is arithmetic; nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from penstock_platform.clock import from_iso
from penstock_platform.retention.model.log import Disk, PartitionLog, bytes_from
from penstock_platform.retention.model.plan import Cause, SweepAction, SweepPlan
from penstock_platform.topics.model.declaration import RetentionSpec
from penstock_platform.windows.model.window import Window

# How many of the newest windows the rates are measured over.
RATE_WINDOWS = 24


@dataclass(frozen=True, slots=True)
class Forecast:
    """Numbers that Dagster plots; None where one is not known, or where the limit is never reached
    at the present rate.

    ``overdue_seconds``: for how long the oldest held window is past ``keep``. ``until_due``: when
    the oldest window that is not due will be. ``until_max_bytes`` and ``until_disk_full``: when the
    limit is reached if nothing more is deleted; the disk also if only the policy deletes. The
    volume's other users are taken to stand still.
    """

    records_per_second: float | None = None
    bytes_per_second: float | None = None
    log_bytes: int | None = None
    disk_free_bytes: int | None = None
    overdue_seconds: int | None = None
    until_due_seconds: int | None = None
    until_max_bytes_seconds: int | None = None
    until_disk_full_seconds: int | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """Those that are known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def records_per_second(newest: Sequence[Window]) -> float | None:
    """Over these windows, oldest first; None without any."""
    if not newest:
        return None
    opened, closed = from_iso(newest[0].opened_at), from_iso(newest[-1].closed_at)
    seconds = (closed - opened).total_seconds()
    return sum(w.record_count for w in newest) / seconds if seconds > 0 else None


def forecast_of(
    now: datetime,
    retention: RetentionSpec,
    plan: SweepPlan,
    windows: Sequence[Window],
    *,
    newest: Sequence[Window],
    logs: Mapping[int, PartitionLog] | None,
    disk: Disk | None,
) -> Forecast:
    """``windows`` are those of the plan; ``newest`` the last of the chain, which give the rates."""
    records = records_per_second(newest)
    grows: float | None = None
    left: int | None = None
    if logs is not None:
        size = sum(log.size_bytes for log in logs.values())
        offsets = sum(log.end - log.start for log in logs.values())
        if records is not None and offsets > 0:
            grows = records * size / offsets
        left = _left(plan, windows, logs)
    due = _until_due(now, retention, plan, windows)
    until_limit = _until(retention.max_bytes, left, grows)
    deletes_in = [until_limit] if until_limit is not None else []
    if retention.keep is not None:
        deletes_in.append(due if due is not None else int(retention.keep.total_seconds()))
    return Forecast(
        records_per_second=round(records, 3) if records is not None else None,
        bytes_per_second=round(grows, 3) if grows is not None else None,
        log_bytes=left,
        disk_free_bytes=disk.free_bytes if disk is not None else None,
        overdue_seconds=_overdue(now, retention, plan, windows),
        until_due_seconds=due,
        until_max_bytes_seconds=until_limit,
        until_disk_full_seconds=_until_full(disk, grows, deletes_in, held=bool(plan.held)),
    )


def _left(plan: SweepPlan, windows: Sequence[Window], logs: Mapping[int, PartitionLog]) -> int:
    """Bytes of the log when the plan's windows are deleted."""
    deleted = len(plan.deleted)
    gone = sum(d.action is SweepAction.GONE for d in plan.decisions)
    if not deleted:
        return sum(log.size_bytes for log in logs.values())
    if gone + deleted < len(windows):
        return bytes_from(windows[gone + deleted], logs)
    return sum(
        log.size_bytes
        * max(0, log.end - max(log.start, plan.delete_before.get(p, 0)))
        // max(1, log.end - log.start)
        for p, log in logs.items()
    )


def _until(limit: int | None, size: int | None, grows: float | None) -> int | None:
    if limit is None or size is None or (not grows and size <= limit):
        return None
    return max(0, int((limit - size) / grows)) if grows else 0


def _overdue(
    now: datetime, retention: RetentionSpec, plan: SweepPlan, windows: Sequence[Window]
) -> int | None:
    held = next((w for w in windows if w.sequence in plan.held), None)
    if held is None or retention.keep is None:
        return None
    late = now - from_iso(held.closed_at) - retention.keep
    return int(late.total_seconds()) if late.total_seconds() >= 0 else None


def _until_due(
    now: datetime, retention: RetentionSpec, plan: SweepPlan, windows: Sequence[Window]
) -> int | None:
    if retention.keep is None:
        return None
    for window, decision in zip(windows, plan.decisions, strict=True):
        if decision.cause is Cause.NOT_DUE:
            due = from_iso(window.closed_at) + retention.keep - now
            return max(0, int(due.total_seconds()))
    return None


def _until_full(
    disk: Disk | None, grows: float | None, deletes_in: Sequence[int], *, held: bool
) -> int | None:
    """None where the policy deletes before the disk is full: unless something is held, the log
    grows only until its oldest window is due, or until ``max_bytes``."""
    if disk is None or not grows:
        return None
    full = int(disk.free_bytes / grows)
    return None if not held and deletes_in and full > min(deletes_in) else full
