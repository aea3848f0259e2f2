"""The alert sensor: from Dagster's events to one alert an incident, and its resolve.

It reads what has happened since it last looked: check evaluations (also those that a job reported
for several windows), and runs that failed or succeeded. For a check of a window the event only
says where to look; what is wrong is read from the window's newest book, so the alert has exact
offsets. ``domain/incidents.py`` decides what is an incident; this module only fetches, delivers
and remembers.

Everything it knows is in the cursor: how far it has read, the open incidents, and alerts that a
channel did not take, which are tried again. Killed after a delivery and before the cursor was
kept, it delivers again: same ``dedup_key``, and the local file recognises it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster_shared.error import SerializableErrorInfo

from penstock_platform.components.plan import TopicPlan
from penstock_platform.domain.books import Equation
from penstock_platform.domain.incidents import (
    Incidents,
    Observation,
    advance,
    failure,
    observe,
    rerun_command,
)
from penstock_platform.domain.windows import Window
from penstock_platform.resources.alerts import Alert
from penstock_platform.resources.connections import Connections
from penstock_platform.settings import Settings

INTERVAL_SECONDS = 10
# Per check: how many of its newest evaluations are looked at after a long pause of the sensor.
EVALUATIONS_MAX = 1000
PAGE_ROWS = 40
ERROR_CHARACTERS_MAX = 300
RUNS_MAX = 200
# An evaluation's row keeps its place from when it was planned; its time is when it was judged.
# Events of other processes may be a little late: look back a little, and recognise what was seen.
OVERLAP_SECONDS = 30.0
DELIVERY_ATTEMPTS_MAX = 720
JUDGED = frozenset(
    {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
)


@dataclass(slots=True)
class AlertCursor:
    """What the sensor remembers.

    ``rows``: per check its newest row's id and status, and whether rows are planned and not judged.
    ``outbox``: alerts with the channels that still owe them.
    """

    evaluated_until: float | None = None
    seen: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[Any]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    incidents: Incidents = field(default_factory=Incidents)
    outbox: list[dict[str, Any]] = field(default_factory=list)

    def to_text(self) -> str:
        return json.dumps(
            {
                "evaluated_until": self.evaluated_until,
                "seen": self.seen,
                "rows": self.rows,
                "runs": self.runs,
                "incidents": json.loads(self.incidents.to_text()),
                "outbox": self.outbox,
            }
        )

    @classmethod
    def from_text(cls, text: str | None) -> "AlertCursor":
        if not text:
            return cls()
        raw = json.loads(text)
        return cls(
            evaluated_until=raw["evaluated_until"],
            seen=raw["seen"],
            rows=raw["rows"],
            runs=raw["runs"],
            incidents=Incidents.from_text(json.dumps(raw["incidents"])),
            outbox=raw["outbox"],
        )


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


def build_alert_sensor(plans: Sequence[TopicPlan], settings: Settings) -> dg.SensorDefinition:
    """``alert_sensor``."""
    dagster_url = settings.dagster_url

    @dg.sensor(
        name="alert_sensor",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="One alert for each incident, with exact offsets and the command that mends "
        "it; a resolve when it is green again. To a local file and the log, and wherever "
        "`[alerts]` in penstock.toml says.",
    )
    def alert_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        penstock: Connections = context.resources.penstock
        cursor = AlertCursor.from_text(context.cursor)
        keys = (
            list(context.repository_def.asset_graph.asset_check_keys)
            if (context.repository_def is not None)
            else []
        )
        alerts = collect(context.instance, penstock, plans, keys, cursor, dagster_url=dagster_url)
        delivered = deliver(penstock, cursor, alerts)
        for alert in alerts:
            context.log.warning("%s: %s", alert["event_action"], alert["payload"]["summary"])
        return dg.SensorResult(
            skip_reason=dg.SkipReason(
                f"{len(alerts)} alerts made, {delivered} delivered, {len(cursor.outbox)} owed; "
                f"{len(cursor.incidents.open)} incidents open"
            ),
            cursor=cursor.to_text(),
        )

    return alert_sensor


def collect(
    instance: dg.DagsterInstance,
    penstock: Connections,
    plans: Sequence[TopicPlan],
    keys: Sequence[dg.AssetCheckKey],
    cursor: AlertCursor,
    *,
    dagster_url: str,
) -> list[dict[str, Any]]:
    """Read what is new, advance the incidents; returns the alerts to send."""
    translator = Translator(instance, penstock, plans, dagster_url)
    observations = [
        *(o for e in new_evaluations(instance, keys, cursor) for o in translator.check(e)),
        *(o for r, failed in new_runs(instance, cursor) for o in translator.run(r, failed)),
    ]
    cursor.incidents, alerts = advance(cursor.incidents, observations, penstock.clock.now())
    return alerts


def new_evaluations(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey], cursor: AlertCursor
) -> list[Evaluation]:
    """Judged since the last look, oldest first. The first look takes all that there is.

    Most looks find nothing: one query tells which checks have a newer row than last time. A row
    keeps its place from when it was planned, so checks with a planned row are read every time.
    """
    keys = list(keys)
    horizon = (cursor.evaluated_until or 0.0) - OVERLAP_SECONDS
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    fresh: list[Evaluation] = []
    rows_of: dict[str, list[Any]] = {}
    for key, latest in newest.items():
        name = key.to_user_string()
        place = [latest.id, latest.status.value]
        known = cursor.rows.get(name)
        if known is not None and known[:2] == place and not known[2]:
            rows_of[name] = known
            continue
        rows = _rows_since(instance, key, horizon)
        found = [e for row in rows if (e := _evaluation(key, row)) is not None]
        fresh += [e for e in found if e.at > horizon and e.identity not in cursor.seen]
        planned = any(row.status is AssetCheckExecutionRecordStatus.PLANNED for row in rows)
        rows_of[name] = [*place, planned]
    cursor.rows = rows_of
    fresh.sort(key=lambda e: e.at)
    if fresh:
        cursor.evaluated_until = max(fresh[-1].at, cursor.evaluated_until or 0.0)
    until = (cursor.evaluated_until or 0.0) - OVERLAP_SECONDS
    cursor.seen = {
        **{k: at for k, at in cursor.seen.items() if at > until},
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
    instance: dg.DagsterInstance, cursor: AlertCursor
) -> Iterator[tuple[dg.DagsterRun, bool]]:
    """Runs that ended since the last look, with whether they failed; failures first told, then
    what succeeded after them."""
    ended: list[tuple[float, dg.DagsterRun, bool]] = []
    for kind in (dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_SUCCESS):
        page = instance.fetch_run_status_changes(
            kind, limit=RUNS_MAX, cursor=cursor.runs.get(kind.value), ascending=True
        )
        cursor.runs[kind.value] = page.cursor
        for record in page.records:
            run = instance.get_run_by_id(record.run_id)
            if run is not None:
                failed = kind is dg.DagsterEventType.RUN_FAILURE
                ended.append((record.timestamp, run, failed))
    for _, run, failed in sorted(ended, key=lambda item: item[0]):
        yield run, failed


class Translator:
    """From Dagster's events to observations."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        penstock: Connections,
        plans: Sequence[TopicPlan],
        dagster_url: str,
    ) -> None:
        self._instance = instance
        self._penstock = penstock
        self._url = dagster_url
        self._cluster = plans[0].cluster if plans else penstock.settings.cluster
        self._plans = {
            key.to_user_string(): plan
            for plan in plans
            for key in (plan.bronze_key, plan.silver_key, plan.books_key)
        }

    def check(self, evaluation: Evaluation) -> Iterator[Observation]:
        """A window's equation by its newest book; any other check by its own word."""
        name, asset = evaluation.key.name, evaluation.key.asset_key
        plan = self._plans.get(asset.to_user_string())
        if plan is not None and evaluation.partition and name in set(Equation):
            ref = self._penstock.kafka.ref(plan.name)
            for window in self._penstock.windows.find(ref, evaluation.partition):
                found = self._of_window(plan, window, evaluation, Equation(name))
                if found is not None:
                    yield found
            return
        source = f"check/{asset.to_user_string()}/{name}/{evaluation.partition or ''}".rstrip("/")
        if evaluation.passed or evaluation.severity != "ERROR":
            yield Observation(source)
            return
        yield failure(
            self._cluster,
            source,
            component=asset.path[-1],
            summary=f"{asset.to_user_string()}: {name} failed: {evaluation.description}",
            group="check",
            class_=name,
            details={"partition": evaluation.partition} if evaluation.partition else {},
            links=[self._asset_link(asset)],
        )

    def _of_window(
        self, plan: TopicPlan, window: Window, evaluation: Evaluation, equation: Equation
    ) -> Observation | None:
        book = self._penstock.windows.newest_book(window.ref, window.sequence)
        result = book.result(equation) if book is not None else None
        if book is None or result is None:
            return None
        if book.accepts(equation):
            return Observation(f"{window.topic}/{window.window_id}/{equation}")
        return observe(
            self._cluster,
            window,
            result,
            severity=plan.spec.audit.severity,
            owners=plan.owners,
            accept_unaudited=plan.spec.audit.accept_unaudited,
            manifest=self._penstock.window_uri(window),
            links=[self._asset_link(evaluation.key.asset_key)],
        )

    def run(self, run: dg.DagsterRun, failed: bool) -> Iterator[Observation]:
        """A job (and partition) that fails is one incident until it succeeds again.

        A run that failed on a blocking check is that check's incident, not one more.
        """
        partition = run.tags.get("dagster/partition", "")
        source = f"run/{run.job_name}/{partition}".rstrip("/")
        if not failed:
            yield Observation(source)
            return
        if run.tags.get("dagster/will_retry") == "true" or self._failed_on_check(run):
            return
        what = f"{run.job_name} of {partition}" if partition else run.job_name
        details = self._run_details(run, partition)
        yield failure(
            self._cluster,
            source,
            component=run.tags.get("penstock/topic", run.job_name),
            summary=f"{what} failed: {details['error']}",
            details=details,
            links=[(f"{self._url}/runs/{run.run_id}", "run")],
        )

    def _run_details(self, run: dg.DagsterRun, partition: str) -> dict[str, Any]:
        topic = run.tags.get("penstock/topic")
        details: dict[str, Any] = {"run": run.run_id, "error": self._first_error(run)}
        if topic and partition:
            details["window"] = partition
            details["rerun"] = rerun_command(topic, partition)
        return details

    def _failed_on_check(self, run: dg.DagsterRun) -> bool:
        names = [error.cls_name for error in self._errors(run)]
        return bool(names) and all(name == "DagsterAssetCheckFailedError" for name in names)

    def _first_error(self, run: dg.DagsterRun) -> str:
        """The first real error of a run, without Dagster's frame around it."""
        for error in self._errors(run):
            found: SerializableErrorInfo = error
            while found.cause is not None:
                found = found.cause
            lines = found.message.strip().splitlines()
            if lines:
                return lines[0][:ERROR_CHARACTERS_MAX]
        return "its process ended without a word"

    def _errors(self, run: dg.DagsterRun) -> list[SerializableErrorInfo]:
        failures = self._instance.get_records_for_run(
            run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE
        )
        return [
            error
            for record in failures.records
            if (event := record.event_log_entry.dagster_event) is not None
            and (error := event.step_failure_data.error) is not None
        ]

    def _asset_link(self, asset: dg.AssetKey) -> tuple[str, str]:
        return f"{self._url}/assets/{'/'.join(asset.path)}?view=checks", "asset checks"


def deliver(penstock: Connections, cursor: AlertCursor, alerts: Sequence[Alert]) -> int:
    """Send what is owed and what is new; what a channel does not take stays in the outbox.

    Alerts of one incident keep their order on each channel: a later one waits for the earlier.
    """
    outbox: list[dict[str, Any]] = []
    delivered = 0
    waiting: dict[tuple[str, str], bool] = {}
    owed: list[Mapping[str, Any]] = [
        *cursor.outbox,
        *({"alert": a, "channels": list(penstock.alerts.names), "attempts": 0} for a in alerts),
    ]
    for entry in owed:
        key = str(entry["alert"]["dedup_key"])
        behind = [c for c in entry["channels"] if waiting.get((key, c))]
        now = [c for c in entry["channels"] if c not in behind]
        failed = penstock.alerts.deliver(entry["alert"], only=now)
        delivered += len(now) > len(failed)
        left = [*failed, *behind]
        for channel in left:
            waiting[key, channel] = True
        if left and entry["attempts"] < DELIVERY_ATTEMPTS_MAX:
            outbox.append({**entry, "channels": left, "attempts": entry["attempts"] + 1})
    cursor.outbox = outbox
    return delivered
