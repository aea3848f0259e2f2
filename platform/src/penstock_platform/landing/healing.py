"""The sensor ``heal``: lands damaged windows again, of topics that declare ``heal: auto``.

It looks at the newest windows and at those that the last re-verification found wrong, and requests
one run for each partition key with damage that a landing repairs (``model/healing.py``). The run is
a landing like any other; its tag ``penstock/heal`` records it as an attempt. Its check turns green
and the alert resolves by the proof in the run. A window that cannot be repaired is the alert's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.landing.model.healing import decide_heal, repairable, sound_since
from penstock_platform.landing.model.retries import Action
from penstock_platform.landing.ownership import attempts_of, landing_attempts, landing_subject
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.names import (
    HEAL_TAG,
    LANDING_TAG,
    WINDOW_ID_TAG,
    WINDOW_TAG,
    Names,
)
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import LANDING, PRIORITY_TAG
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore
from penstock_platform.windows.ticks import Tick, build_tick_sensor

INTERVAL_SECONDS = 30
RECENT_WINDOWS = 20
# Of a topic in one look; the next look takes the next ones.
HEALS_AT_ONCE_MAX = 5


def build_heal_sensor(
    plans: Sequence[TopicPlan], jobs: Sequence[Any], names: Names
) -> dg.SensorDefinition:
    """``plans``: those that declare ``heal: auto``; ``jobs``: their landing jobs."""

    return build_tick_sensor(
        names.of("heal_sensor"),
        plans,
        jobs,
        lambda context, tick: partial(heals, context.instance, tick),
        interval_seconds=INTERVAL_SECONDS,
        description="Lands damaged windows again, of topics that declare `heal: auto`; three times "
        "at most since a window was sound.",
        otherwise="no window has damage that a landing repairs",
    )


def heals(instance: dg.DagsterInstance, tick: Tick, plan: TopicPlan) -> list[dg.RunRequest]:
    """The runs that are due for a topic's damaged windows, oldest first."""
    ref = tick.penstock.kafka.ref(plan.name)
    requests: dict[str, dg.RunRequest] = {}
    for window in damaged(tick.penstock, ref):
        if window.window in requests or len(requests) >= HEALS_AT_ONCE_MAX:
            continue
        subject = heal_subject(tick.penstock, window)
        attempts = attempts_of(instance, dg.RunsFilter(tags={HEAL_TAG: subject}))
        found = decide_heal(attempts, tick.penstock.clock.now())
        if found.action is Action.START and not _landed_now(instance, tick, window):
            requests[window.window] = heal_request(plan, window, subject, len(attempts))
        elif found.action is Action.PAUSE and found.until is not None:
            tick.notes.append(
                f"{plan.name} {window.window}: landed again {found.attempts} times and still "
                f"damaged; again at {found.until:%H:%M:%S} UTC"
            )
        elif found.action is Action.ABANDONED:
            tick.notes.append(
                f"{plan.name} {window.window}: still damaged after {found.attempts} landings; a "
                f"person decides (penstock window show {plan.name} {window.window})"
            )
    return list(requests.values())


def damaged(penstock: Connections, ref: TopicRef) -> Iterator[Window]:
    """The windows whose newest book has damage that a landing repairs, oldest first."""
    windows, books = WindowStore.of(penstock), BookStore.of(penstock)
    newest = windows.newest(ref)
    if newest is None:
        return
    last = books.newest_proof(ref)
    recent = range(max(0, newest.sequence - RECENT_WINDOWS + 1), newest.sequence + 1)
    for sequence in sorted({*(last.open if last is not None else ()), *recent}):
        book = books.newest_book(ref, sequence)
        if book is not None and repairable(book):
            window = windows.get(ref, sequence)
            if window is not None and window.sha256 == book.window_sha256:
                yield window


def heal_subject(penstock: Connections, window: Window) -> str:
    """What the attempts have in common: the landing, and since when the window was not sound."""
    since = sound_since(BookStore.of(penstock).books(window.ref, window.sequence))
    return f"{landing_subject(window.topic_id, window.window)}@{since}"


def heal_request(plan: TopicPlan, window: Window, subject: str, before: int) -> dg.RunRequest:
    """A landing run of the window's partition key. The number of attempts before makes its key new:
    Dagster runs no key twice."""
    return dg.RunRequest(
        run_key=f"{window.sha256}/heal/{subject}/{before}",
        job_name=plan.landing_job,
        partition_key=window.window,
        tags={
            WINDOW_TAG: window.window,
            WINDOW_ID_TAG: window.window_id,
            LANDING_TAG: landing_subject(window.topic_id, window.window),
            HEAL_TAG: subject,
            PRIORITY_TAG: LANDING,
        },
    )


def _landed_now(instance: dg.DagsterInstance, tick: Tick, window: Window) -> bool:
    """Whether a run lands the window already, such as a person's."""
    now = tick.penstock.clock.now()
    return any(a.under_way(now) for a in landing_attempts(instance, window.topic_id, window.window))
