"""The sensors that keep windows moving. They read offsets and small objects, never records."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from functools import partial
from typing import Any

import dagster as dg

from penstock_platform.archive.store import ArchiveError
from penstock_platform.clock import Clock, from_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.landing.model.retries import (
    Action,
    Decision,
    choose_try,
    decide,
    hindered,
    pause_after,
)
from penstock_platform.landing.ownership import (
    attempts_of,
    landing_attempts,
    landing_subject,
)
from penstock_platform.landing.results import has_result
from penstock_platform.reconciliation.model.books import Book, Equation, WindowState
from penstock_platform.reconciliation.new_evidence import NewEvidence
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.names import (
    EMPTY_WINDOWS,
    EVIDENCE,
    LAND,
    LANDING_TAG,
    TOPICS_TAG,
    WINDOW_ID_TAG,
    WINDOW_TAG,
    Names,
    job_tags,
)
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import LANDING, PRIORITY_TAG
from penstock_platform.topics.starts import record_start
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore
from penstock_platform.windows.ticks import Look, Tick, build_tick_sensor

# A look costs Dagster a quarter of a second of a core, whatever it finds: as often as need be.
WINDOW_INTERVAL_SECONDS = 5
EVIDENCE_INTERVAL_SECONDS = 10
TOPIC_INTERVAL_SECONDS = 30
EVIDENCE_PAUSE_SECONDS = 5
# A run without a lease that was started so long ago is taken for dead.
RUN_MAX = timedelta(hours=1)
PRIORITY = {PRIORITY_TAG: LANDING}
# After a long pause: so many windows a look, that a sensor's minute is never used up.
FROZEN_AT_ONCE_MAX = 100


def build_topic_sensor(plans: Sequence[TopicPlan], job: Any, names: Names) -> dg.SensorDefinition:
    """Materialises topics that are declared and not there yet; once for each declaration."""

    @dg.sensor(
        name=names.of("topic_sensor"),
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
                and not WindowStore.of(penstock).incarnations(cluster_id, plan.name)
            ]
        except (ClusterError, ArchiveError) as error:
            return dg.SkipReason(f"not yet: {error}")
        if not missing:
            return dg.SkipReason(f"{len(plans)} declared topics, none missing")
        wanted = ", ".join(sorted(plan.name for plan in missing))
        key = f"topics/{cluster_id}/{wanted}"
        turn = next_turn(context.instance, penstock.clock, {TOPICS_TAG: wanted})
        if isinstance(turn, str):
            return dg.SkipReason(f"{wanted}: {turn}")
        return dg.RunRequest(
            run_key=f"{key}/{turn}",
            asset_selection=[plan.topic_key for plan in missing],
            asset_check_keys=[],
            tags={TOPICS_TAG: wanted},
        )

    return topic_sensor


def build_window_sensor(
    plans: Sequence[TopicPlan], jobs: Sequence[Any], names: Names
) -> dg.SensorDefinition:
    """Freezes what is due and requests one landing run for each window."""

    @dg.sensor(
        name=names.of("window_sensor"),
        jobs=jobs,
        minimum_interval_seconds=WINDOW_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="Freezes due windows (offsets only, milliseconds) and requests one landing run "
        "for each. Catches up by itself after a pause, in order.",
    )
    def window_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        penstock: Connections = context.resources.penstock
        tick = Tick(context, penstock, plans)
        requests: list[dg.RunRequest] = []
        empty: list[Window] = []
        for plan in tick.topics():
            with tick.alone(plan):
                for window in freeze(penstock, plan):
                    context.log.info(
                        "froze %s %s: %d records", plan.name, window.name, window.record_count
                    )
                full, idle = ready_ticks(tick, plan)
                empty += idle
                requests += landing_requests(context.instance, tick, plan, full)
        requests += empty_windows_request(context.instance, tick, empty, plans[0])
        return tick.result(requests, f"no window of {len(plans)} topics is due")

    return window_sensor


def freeze(penstock: Connections, plan: TopicPlan) -> list[Window]:
    """Publish the topic's due windows; returns those that this call published."""
    if plan.spec.land is None:
        return []
    penstock.kafka.ref(plan.name)  # a start is decided only for a topic that exists
    start = WindowStore.of(penstock).partition_start(
        plan.cluster, plan.name, plan.spec.land.cron, penstock.clock.now()
    )
    record_start(penstock.settings, plan.name, start)
    return freeze_due(
        penstock.kafka,
        WindowStore.of(penstock),
        plan.spec,
        penstock.clock,
        start=start,
        windows_max=FROZEN_AT_ONCE_MAX,
    )


def known_partition(plan: TopicPlan, window: Window) -> bool:
    """Whether the loaded definitions have this window's partition."""
    return from_iso(window.opened_at) >= plan.start


def unknown_partition_note(plan: TopicPlan, window: Window) -> str:
    """The archive knows older windows than these definitions: they were loaded before this home had
    recorded where the windows begin."""
    return (
        f"{plan.name}: window {window.window} is older than the loaded definitions, which begin at "
        f"{plan.start:%Y-%m-%d-%H:%M}; load them again (penstock up, or "
        "reload the code location)"
    )


def unlanded(tick: Tick, plan: TopicPlan) -> list[Window]:
    """Windows whose landing has no result yet, oldest first."""
    store = BookStore.of(tick.penstock)
    ref = tick.penstock.kafka.ref(plan.name)

    def waits(window: Window) -> bool:
        return not has_result(plan, store.newest_book(ref, window.sequence))

    return tick.waiting(ref, waits)


def ready_ticks(tick: Tick, plan: TopicPlan) -> tuple[list[Sequence[Window]], list[Window]]:
    """The topic's ticks (partition keys, each with all of its windows) that wait for a landing, and
    the windows of those that hold no records at all."""
    full: list[Sequence[Window]] = []
    empty: list[Window] = []
    for windows in ticks_of(tick.penstock, unlanded(tick, plan)):
        if not known_partition(plan, windows[0]):
            tick.notes.append(unknown_partition_note(plan, windows[0]))
        elif windows[-1].more:
            tick.notes.append(f"{plan.name}: {windows[-1].window} is not frozen to its end yet")
        elif any(window.record_count for window in windows):
            full.append(windows)
        else:
            empty += windows
    return full, empty


def ticks_of(penstock: Connections, windows: Sequence[Window]) -> list[list[Window]]:
    """The ticks that these windows of one topic belong to, each with all of its windows."""
    ticks: list[list[Window]] = []
    for window in windows:
        if not ticks or window.sequence > ticks[-1][-1].sequence:
            ticks.append(WindowStore.of(penstock).tick_of(window))
    return ticks


def landing_requests(
    instance: dg.DagsterInstance, tick: Tick, plan: TopicPlan, waiting: Sequence[Sequence[Window]]
) -> list[dg.RunRequest]:
    """One run for each partition key that is to be landed now (``model/retries.py`` decides)."""
    now = tick.penstock.clock.now()
    ready: dict[int, tuple[Sequence[Window], int]] = {}
    for windows in waiting:
        last = windows[-1]
        found = decide(landing_attempts(instance, last.topic_id, last.window), now)
        if found.action is Action.START:
            ready[last.sequence] = (windows, found.attempts)
        elif found.action is not Action.UNDER_WAY:
            tick.notes.append(f"{plan.name} {last.window}: {waiting_note(found)}")
    if ready:
        hindrance = hindered(
            attempts_of(instance, dg.RunsFilter(tags=job_tags(LAND, plan.cluster, plan.name))), now
        )
        if hindrance is not None:
            tick.notes.append(f"{plan.name}: its newest landing failed for something outside")
            chosen = choose_try((n, attempts) for n, (_, attempts) in ready.items())
            ready = {n: ready[n] for n in ready if n == chosen and hindrance <= now}
    return [
        landing_request(plan, windows[-1], attempts)
        for windows, attempts in ready.values()
        # A run may have come to its result between the two looks.
        if not attempts or any(unfinished(tick, plan, window) for window in windows)
    ]


def unfinished(tick: Tick, plan: TopicPlan, window: Window) -> bool:
    book = BookStore.of(tick.penstock).newest_book(window.ref, window.sequence)
    return not has_result(plan, book)


def waiting_note(found: Decision) -> str:
    """Why a window is not tried now."""
    if found.action is Action.ABANDONED:
        return f"abandoned after {found.attempts} attempts: {found.error}"
    return f"tried {found.attempts} times, again at {found.until:%H:%M:%S} UTC: {found.error}"


def landing_request(plan: TopicPlan, window: Window, attempts: int) -> dg.RunRequest:
    """One run for the tick that this window ends. The run's key is the window's own hash, which
    holds those before it, and the number of attempts before: Dagster runs no key twice, and each
    attempt that has ended makes the next one's key new."""
    return dg.RunRequest(
        run_key=window.sha256 if not attempts else f"{window.sha256}/{attempts}",
        job_name=plan.landing_job,
        partition_key=window.window,
        tags={
            WINDOW_TAG: window.window,
            WINDOW_ID_TAG: window.window_id,
            LANDING_TAG: landing_subject(window.topic_id, window.window),
            **PRIORITY,
        },
    )


def empty_windows_request(
    instance: dg.DagsterInstance, tick: Tick, empty: Sequence[Window], plan: TopicPlan
) -> list[dg.RunRequest]:
    """One run for all windows that hold no records, unless one is under way or has just failed."""
    if not empty:
        return []
    tags = job_tags(EMPTY_WINDOWS, plan.cluster)
    turn = next_turn(instance, tick.penstock.clock, tags)
    if isinstance(turn, str):
        tick.notes.append(f"{len(empty)} empty windows wait: {turn}")
        return []
    # A run that left one without a result is followed by another: the count makes its key new.
    hashes = "+".join(sorted(window.sha256 for window in empty))
    key = hashlib.sha256(hashes.encode()).hexdigest()
    job = plan.names.of(EMPTY_WINDOWS)
    return [dg.RunRequest(run_key=f"{key}/{turn}", job_name=job, tags=PRIORITY)]


def next_turn(instance: dg.DagsterInstance, clock: Clock, tags: Mapping[str, str]) -> int | str:
    """How many runs of this kind there were, which makes the next one's key new; or, as a sentence,
    why it is not its time: one is under way, or the newest have failed and a pause is due."""
    filters = dg.RunsFilter(tags=dict(tags))
    attempts = attempts_of(instance, filters)
    now = clock.now()
    if any(attempt.under_way(now, RUN_MAX) for attempt in attempts):
        return "a run is under way"
    failures = 0
    for attempt in attempts:
        if attempt.succeeded:
            break
        failures += 1
    if failures and now < (until := attempts[0].ended_at() + pause_after(failures)):
        return f"{failures} runs failed, the next one comes at {until:%H:%M:%S} UTC"
    return int(instance.get_runs_count(filters))


def build_evidence_sensor(
    plans: Sequence[TopicPlan], jobs: Sequence[Any], names: Names
) -> dg.SensorDefinition:
    """Asks again for the producers' evidence of windows that are PENDING."""

    def begin(context: dg.SensorEvaluationContext, tick: Tick) -> Look:
        return partial(evidence_requests, context.instance, tick, NewEvidence(tick.penstock))

    return build_tick_sensor(
        names.of("evidence_sensor"),
        plans,
        jobs,
        begin,
        interval_seconds=EVIDENCE_INTERVAL_SECONDS,
        description="Evaluates produced_equals_stored again, alone, for windows whose evidence is "
        "still due. PENDING raises no alert; after the topic's grace it is UNAUDITED.",
        otherwise="no window waits for evidence",
    )


def evidence_requests(
    instance: dg.DagsterInstance, tick: Tick, new: NewEvidence, plan: TopicPlan
) -> list[dg.RunRequest]:
    """One run judges all windows of a tick: of those that wait, the last asks for it."""
    by_tick = {w.window: (w, pause) for w, pause in undecided_windows(tick, plan, new)}
    requests = [
        evidence_request(instance, tick.penstock.clock, plan, window, pause)
        for window, pause in by_tick.values()
        if known_partition(plan, window)
    ]
    return [request for request in requests if request is not None]


def undecided_windows(tick: Tick, plan: TopicPlan, new: NewEvidence) -> list[tuple[Window, float]]:
    """Windows whose evidence is to be judged again now, each with the seconds that lie between two
    judgements.

    A window's turn comes later each time, by ``EVIDENCE_PAUSE_SECONDS`` a book: evidence is
    there at once or, after a producer's death, not before the grace is over. While nothing came for
    it, it is not judged at all.
    """
    penstock = tick.penstock
    ref = penstock.kafka.ref(plan.name)
    books: dict[int, list[Book]] = {}

    def waits(window: Window) -> bool:
        books[window.sequence] = found = BookStore.of(penstock).books(ref, window.sequence)
        result = found[-1].judged(Equation.PRODUCED_EQUALS_STORED) if found else None
        return result is None or result.state is WindowState.PENDING

    due: list[tuple[Window, float]] = []
    for window in tick.waiting(ref, waits):
        found = books[window.sequence]
        if found:
            # Without any result the landing run is still on its way, or died on it.
            judged = found[-1].judged(Equation.PRODUCED_EQUALS_STORED) is not None
            pause = float(EVIDENCE_PAUSE_SECONDS * (len(found) if judged else 12))
            age = penstock.clock.now() - from_iso(found[-1].made_at)
            if age.total_seconds() >= pause and (
                not judged or new.came_for(window, plan.spec, found[-1])
            ):
                due.append((window, pause))
    return due


def evidence_request(
    instance: dg.DagsterInstance, clock: Clock, plan: TopicPlan, window: Window, pause: float = 0.0
) -> dg.RunRequest | None:
    """Only the check: a check-only job with a partition key raises, an asset job does not.

    None while such a run is under way, or when the last began less than ``pause`` seconds ago. The
    run key names the run before it, which may have died without a book: Dagster runs no key twice.
    """
    records = instance.get_run_records(
        dg.RunsFilter(
            tags={**job_tags(EVIDENCE, plan.cluster, plan.name), WINDOW_TAG: window.window}
        ),
        limit=1,
    )
    before = "none"
    for record in records:
        before = record.dagster_run.run_id
        age = (clock.now() - record.create_timestamp.replace(tzinfo=UTC)).total_seconds()
        if age < (pause if record.dagster_run.is_finished else RUN_MAX.total_seconds()):
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
