"""The alert sensor: from what happens to one alert an incident, and its resolve.

It reads what has happened since it last looked (judged checks, runs that ended), looks at the
health of every chain, lets ``alerts/model/incident_states.py`` decide, and hands the alerts to the
outbox, which delivers within a time budget.

What it knows is in one file, ``<home>/alerts/state.json``, written whole: the open incidents, how
far it has read, what it suspects. Dagster's cursor only names the database that was read, so it
holds no secret and does not grow. Killed after the outbox and before that file, it makes the same
alerts again and the outbox holds them once; killed after a delivery, an alert may come twice: same
``dedup_key``, and the local file recognises it.

It works when broker, object store or Spark do not answer: what needs them is read later.
"""

import copy
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from penstock_platform.alerts.channels import Alerts
from penstock_platform.alerts.events import (
    new_evaluations,
    new_runs,
)
from penstock_platform.alerts.health import HealthReader
from penstock_platform.alerts.model.chain_health import (
    CAUSES,
    Health,
    WaitingWindow,
    confirm,
    judge_chain,
    judge_platform,
)
from penstock_platform.alerts.model.incident_states import Observation, advance, answered, failure
from penstock_platform.alerts.observations import Translator
from penstock_platform.alerts.outbox import Delivery, Outbox
from penstock_platform.alerts.own import Own
from penstock_platform.alerts.state import AlertState, load_state, save_state
from penstock_platform.archive.store import ArchiveError
from penstock_platform.clock import from_iso, to_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.landing.model.retries import Action, decide
from penstock_platform.landing.ownership import landing_attempts
from penstock_platform.settings import Settings
from penstock_platform.topics.model.declaration import TopicSpec
from penstock_platform.topics.names import Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.sensor_problems import Problems

INTERVAL_SECONDS = 10
HEALTH_INTERVAL = timedelta(seconds=30)
DELIVERY_BUDGET_SECONDS = 15.0
# Of a topic's windows that wait: for so many of the oldest the attempts are looked at.
ATTEMPTS_LOOKED_AT = 5


def build_alert_sensor(
    plans: Sequence[TopicPlan], settings: Settings, names: Names
) -> dg.SensorDefinition:
    """``alert_sensor``."""
    readers: dict[int, HealthReader] = {}

    @dg.sensor(
        name=names.of("alert_sensor"),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="One alert for each incident, with exact offsets and the command that repairs "
        "it; a resolve when it is proven good again. To a local file and the log, and wherever "
        "`[alerts]` in penstock.toml says.",
    )
    def alert_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        penstock: Connections = context.resources.penstock
        keys = (
            list(context.repository_def.asset_graph.asset_check_keys)
            if (context.repository_def is not None)
            else []
        )
        reader = readers.setdefault(id(penstock), HealthReader(penstock))
        watch = Watch(
            context.instance,
            penstock,
            plans,
            keys=keys,
            reader=reader,
            dagster_url=settings.dagster_url,
        )
        tick = watch.tick(context.cursor)
        for alert in tick.alerts:
            context.log.warning("%s: %s", alert["event_action"], alert["payload"]["summary"])
        return dg.SensorResult(
            skip_reason=dg.SkipReason(
                f"{len(tick.alerts)} alerts made, {tick.delivery.delivered} delivered, "
                f"{len(tick.delivery.pending)} pending; "
                f"{len(tick.state.incidents.open)} incidents open"
            ),
            cursor=tick.state.marker,
        )

    return alert_sensor


@dataclass(frozen=True, slots=True)
class Tick:
    """The outcome of one evaluation of the sensor."""

    state: AlertState
    alerts: list[dict[str, Any]]
    delivery: Delivery


class Watch:
    """One evaluation of the sensor."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        penstock: Connections,
        plans: Sequence[TopicPlan],
        *,
        keys: Sequence[dg.AssetCheckKey],
        reader: HealthReader,
        dagster_url: str,
    ) -> None:
        self._instance = instance
        self._penstock = penstock
        self._plans = plans
        self._cluster = plans[0].cluster if plans else penstock.settings.cluster
        self._own = Own(plans, self._cluster)
        self._keys = self._own.checks(keys)
        self._reader = reader
        self._translator = Translator(instance, penstock, plans, dagster_url)
        self._directory = penstock.settings.alert_directory

    def tick(self, cursor: str | None) -> Tick:
        """Read, decide, keep, deliver."""
        state = load_state(self._directory)
        now = self._penstock.clock.now()
        if not cursor or cursor != state.marker:
            # Another Dagster database, or its first look: places in it mean nothing here.
            state.restart(uuid.uuid4().hex)
        observations = [*self._health(state, now), *self._events(state)]
        state.incidents, alerts = advance(state.incidents, observations, now)
        outbox = Outbox(self._directory, Alerts.of(self._penstock), self._penstock.clock)
        outbox.add(alerts)
        state.at = to_iso(now)
        save_state(self._directory, state)
        return Tick(state, alerts, outbox.deliver(DELIVERY_BUDGET_SECONDS))

    def _events(self, state: AlertState) -> list[Observation]:
        """What happened in Dagster. What needs a service that is away is read at a later look."""
        before = copy.deepcopy(state.position)
        if not state.away:
            try:
                return self._all_events(state)
            except (ArchiveError, ClusterError):
                state.position = before
        failed = new_runs(self._instance, state.position, self._own.run, only_failed=True)
        return [o for run in failed for o in self._translator.run(run)]

    def _all_events(self, state: AlertState) -> list[Observation]:
        evaluations = new_evaluations(self._instance, self._keys, state.position)
        found = [o for e in evaluations for o in self._translator.check(e)]
        # Of one job and partition the last word counts: a retry that succeeded sends no alert.
        last: dict[str, list[Observation]] = {}
        for run in new_runs(self._instance, state.position, self._own.run):
            for observation in self._translator.run(run):
                last[observation.source] = [observation]
        return [*found, *(o for observations in last.values() for o in observations)]

    def _health(self, state: AlertState, now: datetime) -> list[Observation]:
        """The chains and what carries them, looked at now and then."""
        if state.looked_at and now - from_iso(state.looked_at) < HEALTH_INTERVAL:
            return []
        state.looked_at = to_iso(now)
        found = list(self._judge(now))
        problems = [problem for health in found for problem in health.problems]
        confirmed, state.suspected = confirm(problems, state.suspected, now)
        state.problems = [problem.summary for problem in problems]
        state.away = sorted({CAUSES[p.kind] for p in problems if p.kind in CAUSES})
        observations = [o for health in found for o in self._translator.health(health, confirmed)]
        services = found[0]
        for kind, service in CAUSES.items():
            if kind in services.judged and service not in state.away:
                observations += answered(state.incidents, service, now)
        return [*observations, *self._of_sensors(state)]

    def _judge(self, now: datetime) -> Iterator[Health]:
        """The services first; the chains where both answer."""
        services = judge_platform(self._reader.services())
        yield services
        if any(problem.kind in CAUSES for problem in services.problems):
            return
        for plan in self._plans:
            if plan.spec.land is not None:
                yield judge_chain(self._reader.chain(plan.name, plan.spec, self._tried), now)

    def _tried(self, spec: TopicSpec, windows: Sequence[Window]) -> list[WaitingWindow]:
        """Windows whose landing has no result, with what became of the attempts at the oldest."""
        now = self._penstock.clock.now()
        found = []
        for number, window in enumerate(windows):
            if number >= ATTEMPTS_LOOKED_AT:
                found.append(WaitingWindow(window))
                continue
            tries = decide(landing_attempts(self._instance, window.topic_id, window.window), now)
            given_up = tries.action is Action.ABANDONED
            found.append(WaitingWindow(window, tries.attempts, given_up, tries.error))
        return found

    def _of_sensors(self, state: AlertState) -> Iterator[Observation]:
        """What the sensors could not do, topic by topic, and what they can do again."""
        bad = {
            f"sensor/{sensor}/{topic}": (sensor, topic, text)
            for sensor, topics in Problems(self._penstock.settings).all().items()
            for topic, text in topics.items()
        }
        known = {s for o in state.incidents.open.values() for s in o.sources}
        for source in sorted(known - bad.keys()):
            if source.startswith("sensor/"):
                yield Observation(source)
        for source, (sensor, topic, text) in bad.items():
            summary = f"{topic}: {sensor} could not look at it: {text}"
            yield failure(self._cluster, source, component=topic, summary=summary, group="sensor")
