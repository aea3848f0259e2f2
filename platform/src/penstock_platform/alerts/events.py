"""What happened in Dagster since the last look: checks that were judged, runs that ended."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

# Per check: how many of its newest evaluations are looked at after a long pause of the sensor.
EVALUATIONS_MAX = 1000
PAGE_ROWS = 40
RUNS_MAX = 200
# An evaluation's row keeps its place from when it was planned; its time is when it was judged.
# Events of other processes may be a little late: look back a little, and recognise what was seen.
OVERLAP_SECONDS = 30.0
JUDGED = frozenset(
    {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
)


@dataclass(slots=True)
class Position:
    """How far Dagster's events were read. It belongs to one Dagster database.

    ``rows``: per check its newest row's id and status, and whether rows are planned and not judged.
    ``runs``: Dagster's own cursor per kind of event.
    """

    evaluated_until: float | None = None
    seen: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[Any]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, raw: Mapping[str, Any]) -> "Position":
        """Raises TypeError for other keys."""
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One judged check, as far as alerts care."""

    key: dg.AssetCheckKey
    partition: str | None
    passed: bool
    severity: str
    description: str
    at: float
    run_id: str

    @property
    def identity(self) -> str:
        return f"{self.key.to_user_string()}|{self.partition}|{self.run_id}|{self.at}"


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that failed or succeeded, and when, in seconds since the epoch."""

    run: dg.DagsterRun
    failed: bool
    at: float


def new_evaluations(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey], position: Position
) -> list[Evaluation]:
    """Judged since the last look, oldest first. The first look takes all that there is.

    Most looks find nothing: one query returns the checks with a newer row than last time. A row
    keeps its place from when it was planned, so checks with a planned row are read every time.
    """
    keys = list(keys)
    horizon = (position.evaluated_until or 0.0) - OVERLAP_SECONDS
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    fresh: list[Evaluation] = []
    rows_of: dict[str, list[Any]] = {}
    for key, latest in newest.items():
        name = key.to_user_string()
        place = [latest.id, latest.status.value]
        known = position.rows.get(name)
        if known is not None and known[:2] == place and not known[2]:
            rows_of[name] = known
            continue
        rows = _rows_since(instance, key, horizon)
        found = [e for row in rows if (e := _evaluation(key, row)) is not None]
        fresh += [e for e in found if e.at > horizon and e.identity not in position.seen]
        planned = any(row.status is AssetCheckExecutionRecordStatus.PLANNED for row in rows)
        rows_of[name] = [*place, planned]
    position.rows = rows_of
    fresh.sort(key=lambda e: e.at)
    if fresh:
        position.evaluated_until = max(fresh[-1].at, position.evaluated_until or 0.0)
    until = (position.evaluated_until or 0.0) - OVERLAP_SECONDS
    position.seen = {
        **{k: at for k, at in position.seen.items() if at > until},
        **{e.identity: e.at for e in fresh if e.at > until},
    }
    return fresh


def _rows_since(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey, horizon: float
) -> list[AssetCheckExecutionRecord]:
    """The check's newest rows, back to the first page that holds none judged after the horizon."""
    rows: list[AssetCheckExecutionRecord] = []
    while len(rows) < EVALUATIONS_MAX:
        page = instance.event_log_storage.get_asset_check_execution_history(
            key, limit=PAGE_ROWS, cursor=rows[-1].id if rows else None
        )
        rows += page
        judged = [row for row in page if row.status in JUDGED and row.event is not None]
        old = all(row.event.timestamp <= horizon for row in judged if row.event is not None)
        if len(page) < PAGE_ROWS or (judged and old):
            break
    return rows


def _evaluation(key: dg.AssetCheckKey, row: AssetCheckExecutionRecord) -> Evaluation | None:
    if row.status not in JUDGED or row.event is None or row.event.dagster_event is None:
        return None
    data = row.event.dagster_event.event_specific_data
    if not isinstance(data, dg.AssetCheckEvaluation):
        return None
    return Evaluation(
        key=key,
        partition=data.partition,
        passed=data.passed,
        severity=data.severity.value,
        description=data.description or "",
        at=row.event.timestamp,
        run_id=row.run_id or "",
    )


def new_runs(
    instance: dg.DagsterInstance,
    position: Position,
    ours: Callable[[dg.DagsterRun], bool],
    *,
    only_failed: bool = False,
) -> list[EndedRun]:
    """Runs of ours that ended since the last look, in the order in which they did. The instance may
    have runs of other projects.

    ``only_failed`` leaves the others for a later look: what they prove cannot be read now.
    """
    kinds = [dg.DagsterEventType.RUN_FAILURE]
    if not only_failed:
        kinds.append(dg.DagsterEventType.RUN_SUCCESS)
    ended: list[EndedRun] = []
    for kind in kinds:
        page = instance.fetch_run_status_changes(
            kind, limit=RUNS_MAX, cursor=position.runs.get(kind.value), ascending=True
        )
        position.runs[kind.value] = page.cursor
        at = {record.run_id: record.timestamp for record in page.records}
        failed = kind is dg.DagsterEventType.RUN_FAILURE
        runs = instance.get_runs(dg.RunsFilter(run_ids=list(at))) if at else []
        ended += [EndedRun(run, failed, at[run.run_id]) for run in runs if ours(run)]
    return sorted(ended, key=lambda run: run.at)
