"""The sensors that keep windows moving. They read offsets and small objects, never records."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from penstock_platform.components.names import WINDOW_ID_TAG, WINDOW_TAG
from penstock_platform.components.plan import TopicPlan
from penstock_platform.components.schedules import LANDING, PRIORITY_TAG
from penstock_platform.components.settle import SETTLE_JOB
from penstock_platform.components.verdicts import came_to_verdict
from penstock_platform.domain.books import Equation, WindowState
from penstock_platform.domain.clock import Clock, from_iso
from penstock_platform.domain.windows import ChainError, TopicRef, Window
from penstock_platform.resources.archive import ArchiveError
from penstock_platform.resources.connections import Connections
from penstock_platform.resources.freezer import FreezeError, freeze_due
from penstock_platform.resources.kafka import ClusterError, UnknownTopicError

# A look costs Dagster a quarter of a second of a core, whatever it finds: as often as need be.
WINDOW_INTERVAL_SECONDS = 5
EVIDENCE_INTERVAL_SECONDS = 10
TOPIC_INTERVAL_SECONDS = 30
EVIDENCE_PAUSE_SECONDS = 5
ATTEMPTS_MAX = 5
PRIORITY = {PRIORITY_TAG: LANDING}
# After a long pause: so many windows a look, that a sensor's minute is never used up.
FROZEN_AT_ONCE_MAX = 100
# A run that is under way for longer was left behind by a process that died without a word.
RUN_LOST_SECONDS = 900.0


def build_topic_sensor(plans: Sequence[TopicPlan], job: Any) -> dg.SensorDefinition:
    """Materialises topics that are declared and not there yet; once for each declaration."""

    @dg.sensor(
        name="topic_sensor",
        job=job,
        minimum_interval_seconds=TOPIC_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="Creates declared topics that the cluster does not have. A topic that someone "
        "deleted is not created again by itself: its chain of windows would end in another topic.",
    )
    def topic_sensor(context: dg.SensorEvaluationContext) -> Any:
        penstock: Connections = context.resources.penstock
        try:
            cluster_id = penstock.kafka.cluster_id()
            present = set(penstock.kafka.topics())
            missing = [
                plan
                for plan in plans
                if plan.name not in present
                and not penstock.windows.incarnations(cluster_id, plan.name)
            ]
        except (ClusterError, ArchiveError) as error:
            return dg.SkipReason(f"not yet: {error}")
        if not missing:
            return dg.SkipReason(f"{len(plans)} declared topics, none missing")
        names = sorted(plan.name for plan in missing)
        return dg.RunRequest(
            run_key=f"topics/{cluster_id}/{'+'.join(names)}",
            asset_selection=[plan.topic_key for plan in missing],
            asset_check_keys=[],
            tags={"penstock/topics": ", ".join(names)},
        )

    return topic_sensor


def build_window_sensor(plans: Sequence[TopicPlan], jobs: Sequence[Any]) -> dg.SensorDefinition:
    """Freezes what is due and requests one landing run for each window."""

    @dg.sensor(
        name="window_sensor",
        jobs=jobs,
        minimum_interval_seconds=WINDOW_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="Freezes due windows (offsets only, milliseconds) and requests one landing run "
        "for each. Catches up by itself after a pause, in order.",
    )
    def window_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        penstock: Connections = context.resources.penstock
        landed: dict[str, int] = json.loads(context.cursor or "{}")
        requests: list[dg.RunRequest] = []
        notes: list[str] = []
        empty: list[Window] = []
        for plan in plans:
            try:
                for window in freeze(penstock, plan):
                    context.log.info(
                        "froze %s %s: %d records", plan.name, window.name, window.record_count
                    )
                ref = penstock.kafka.ref(plan.name)
                waiting, landed[ref.topic_id] = unlanded(
                    penstock, plan, ref, landed.get(ref.topic_id, 0)
                )
            except UnknownTopicError:
                notes.append(f"{plan.name}: not created yet")
                continue
            except (ClusterError, ArchiveError, ChainError, FreezeError) as error:
                context.log.error("%s: %s", plan.name, error)
                notes.append(f"{plan.name}: {error}")
                continue
            for tick in ticks_of(penstock, waiting):
                if not known_partition(plan, tick[0]):
                    notes.append(unknown_partition_note(plan, tick[0]))
                elif tick[-1].more:
                    notes.append(f"{plan.name}: {tick[-1].window} is not frozen to its end yet")
                elif any(window.record_count for window in tick):
                    request = landing_request(context.instance, penstock.clock, plan, tick)
                    requests += [request] if request is not None else []
                else:
                    empty += tick
        requests += settle_request(context.instance, empty)
        reason = "; ".join(notes) or f"no window of {len(plans)} topics is due"
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else dg.SkipReason(reason),
            cursor=json.dumps(landed),
        )

    return window_sensor


def freeze(penstock: Connections, plan: TopicPlan) -> list[Window]:
    """Publish the topic's due windows; returns those that this call published."""
    if plan.spec.land is None:
        return []
    penstock.kafka.ref(plan.name)  # a start is settled only for a topic that exists
    start = penstock.windows.partition_start(
        plan.cluster, plan.name, plan.spec.land.cron, penstock.clock.now()
    )
    return freeze_due(
        penstock.kafka,
        penstock.windows,
        plan.spec,
        penstock.clock,
        start=start,
        windows_max=FROZEN_AT_ONCE_MAX,
    )


def known_partition(plan: TopicPlan, window: Window) -> bool:
    """Whether the loaded definitions have this window's partition."""
    return from_iso(window.opened_at) >= plan.start


def unknown_partition_note(plan: TopicPlan, window: Window) -> str:
    """The archive knows older windows than these definitions: they were loaded without it."""
    return (
        f"{plan.name}: window {window.window} is older than the loaded definitions, which begin at "
        f"{plan.start:%Y-%m-%d-%H:%M}; load them again (penstock up)"
    )


def unlanded(
    penstock: Connections, plan: TopicPlan, ref: TopicRef, first: int
) -> tuple[list[Window], int]:
    """Windows from ``first`` on whose landing has not come to its verdict, oldest first, and the
    sequence before which all have."""
    waiting: list[Window] = []
    sequence = first
    while (window := penstock.windows.get(ref, sequence)) is not None:
        if not came_to_verdict(plan, penstock.windows.newest_book(ref, sequence)):
            waiting.append(window)
        sequence += 1
    return waiting, waiting[0].sequence if waiting else sequence


def ticks_of(penstock: Connections, windows: Sequence[Window]) -> list[list[Window]]:
    """The ticks that these windows of one topic belong to, each with all of its windows."""
    ticks: list[list[Window]] = []
    for window in windows:
        if not ticks or window.sequence > ticks[-1][-1].sequence:
            ticks.append(penstock.windows.tick_of(window))
    return ticks


def landing_request(
    instance: dg.DagsterInstance, clock: Clock, plan: TopicPlan, tick: Sequence[Window]
) -> dg.RunRequest | None:
    """One run for one tick: the key is its last window's own hash, which holds those before it,
    and Dagster runs no key twice.

    None while a run is under way. A run that ended without a verdict (its process was killed, Spark
    was gone for long) is followed by another, ``ATTEMPTS_MAX`` in all; then the alert has the word.
    """
    window = tick[-1]
    records = instance.get_run_records(
        dg.RunsFilter(job_name=plan.landing_job, tags={WINDOW_ID_TAG: window.window_id})
    )
    now = clock.now()
    for record in records:
        age = (now - record.create_timestamp.replace(tzinfo=UTC)).total_seconds()
        if not record.dagster_run.is_finished and age < RUN_LOST_SECONDS:
            return None
    if len(records) >= ATTEMPTS_MAX:
        return None
    return dg.RunRequest(
        run_key=window.sha256 if not records else f"{window.sha256}/{len(records)}",
        job_name=plan.landing_job,
        partition_key=window.window,
        tags={
            WINDOW_TAG: window.window,
            WINDOW_ID_TAG: window.window_id,
            **PRIORITY,
        },
    )


def settle_request(instance: dg.DagsterInstance, empty: Sequence[Window]) -> list[dg.RunRequest]:
    """One run for all windows that hold no records, unless one is under way."""
    if not empty:
        return []
    under_way = instance.get_run_records(
        dg.RunsFilter(job_name=SETTLE_JOB, statuses=list(NOT_FINISHED_STATUSES)), limit=1
    )
    if under_way:
        return []
    # A run that left one without a verdict is followed by another: the count makes its key new.
    names = "+".join(sorted(window.sha256 for window in empty))
    runs = instance.get_runs_count(dg.RunsFilter(job_name=SETTLE_JOB))
    key = hashlib.sha256(names.encode()).hexdigest()
    return [dg.RunRequest(run_key=f"{key}/{runs}", job_name=SETTLE_JOB, tags=PRIORITY)]


def build_evidence_sensor(plans: Sequence[TopicPlan], jobs: Sequence[Any]) -> dg.SensorDefinition:
    """Asks again for the producers' evidence of windows that are PENDING."""

    @dg.sensor(
        name="evidence_sensor",
        jobs=jobs,
        minimum_interval_seconds=EVIDENCE_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="Evaluates produced_equals_stored again, alone, for windows whose evidence is "
        "still due. PENDING alerts nobody; after the topic's grace it is UNAUDITED.",
    )
    def evidence_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        penstock: Connections = context.resources.penstock
        decided: dict[str, int] = json.loads(context.cursor or "{}")
        requests: list[dg.RunRequest] = []
        notes: list[str] = []
        for plan in plans:
            try:
                ref = penstock.kafka.ref(plan.name)
                first = decided.get(ref.topic_id, 0)
                waiting, decided[ref.topic_id] = undecided_windows(penstock, ref, first)
            except (ClusterError, ArchiveError, ChainError) as error:
                notes.append(f"{plan.name}: {error}")
                continue
            # One run judges all windows of a tick: of those that wait, the last one asks for it.
            by_tick = {window.window: (window, pause) for window, pause in waiting}
            for window, pause in by_tick.values():
                if known_partition(plan, window):
                    request = evidence_request(
                        context.instance, penstock.clock, plan, window, pause
                    )
                    requests += [request] if request is not None else []
        reason = "; ".join(notes) or "no window waits for evidence"
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else dg.SkipReason(reason),
            cursor=json.dumps(decided),
        )

    return evidence_sensor


def undecided_windows(
    penstock: Connections, ref: TopicRef, first: int
) -> tuple[list[tuple[Window, float]], int]:
    """Windows from ``first`` on whose evidence is to be judged again now, each with the seconds
    that lie between two judgements; and the sequence before which every window is decided.

    A window's turn comes later each time, by ``EVIDENCE_PAUSE_SECONDS`` a book: evidence is
    there at once or, after a producer's death, not before the grace is over.
    """
    waiting: list[tuple[Window, float]] = []
    undecided: int | None = None
    sequence = first
    while (window := penstock.windows.get(ref, sequence)) is not None:
        books = penstock.windows.books(ref, sequence)
        result = books[-1].judged(Equation.PRODUCED_EQUALS_STORED) if books else None
        if result is None or result.state is WindowState.PENDING:
            undecided = sequence if undecided is None else undecided
            if books:
                age = penstock.clock.now() - from_iso(books[-1].made_at)
                # Without any result the landing run is still on its way, or died on it.
                pause = EVIDENCE_PAUSE_SECONDS * (len(books) if result is not None else 12)
                if age.total_seconds() >= pause:
                    waiting.append((window, float(pause)))
        sequence += 1
    return waiting, sequence if undecided is None else undecided


def evidence_request(
    instance: dg.DagsterInstance, clock: Clock, plan: TopicPlan, window: Window, pause: float = 0.0
) -> dg.RunRequest | None:
    """Only the check: a check-only job with a partition key raises, an asset job does not.

    None while such a run is under way, or when the last began less than ``pause`` seconds ago. The
    run key names the run before it, which may have died without a book: Dagster runs no key twice.
    """
    records = instance.get_run_records(
        dg.RunsFilter(job_name=plan.evidence_job, tags={WINDOW_TAG: window.window}), limit=1
    )
    before = "none"
    for record in records:
        before = record.dagster_run.run_id
        age = (clock.now() - record.create_timestamp.replace(tzinfo=UTC)).total_seconds()
        if age < (pause if record.dagster_run.is_finished else RUN_LOST_SECONDS):
            return None
    check = dg.AssetCheckKey(plan.books_key, str(Equation.PRODUCED_EQUALS_STORED))
    return dg.RunRequest(
        run_key=f"{window.sha256}/evidence/after-{before}",
        job_name=plan.evidence_job,
        partition_key=window.window,
        asset_selection=[],
        asset_check_keys=[check],
        tags={WINDOW_TAG: window.window, WINDOW_ID_TAG: window.window_id},
    )
