"""A sensor's tick over all topics: each topic by itself, within a time budget, in turns.

What goes wrong with one topic is caught and kept for the alert sensor, and ends nothing for the
others. A tick that has used up its time stops between two topics, or between two windows, and the
next one continues there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from penstock_platform.archive.store import ArchiveError
from penstock_platform.clock import Clock
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.model import TopicRef
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.watch import Watch, rotated
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.sensor_problems import Problems
from penstock_platform.windows.store import NewIncarnationError, WindowStore

# Dagster ends a tick after 60 seconds, and what it had found is lost. One answer of a service that
# is about to fail may take 30 more.
TICK_SECONDS = 20.0
# Waiting windows of a topic that are looked at in one tick: some milliseconds each.
LOOKS_MAX = 100
CURSOR_VERSION = 2
NOTES_IN_REASON = 10
# What one tick asks of a topic: the runs to request.
Look = Callable[[TopicPlan], Sequence[dg.RunRequest]]


class Tick:
    """One evaluation of a sensor. Its cursor holds a watch for each topic, and whose turn it is."""

    def __init__(
        self,
        context: dg.SensorEvaluationContext,
        penstock: Connections,
        plans: Sequence[TopicPlan],
        seconds: float = TICK_SECONDS,
    ) -> None:
        self.penstock = penstock
        self.notes: list[str] = []
        self.problems: dict[str, str] = {}
        self._context = context
        self._plans = {plan.name: plan for plan in plans}
        self._clock: Clock = penstock.clock
        self._deadline = self._clock.monotonic() + seconds
        self._turn, self._watches = _read_cursor(context.cursor)
        self._looked_at: set[str] = set()
        self._stopped = ""

    @property
    def late(self) -> bool:
        """Whether the tick's time is used up."""
        return bool(self._stopped) or self._clock.monotonic() >= self._deadline

    def topics(self) -> Iterator[TopicPlan]:
        """Every topic once, from the one whose turn it is, until the time is used up."""
        for name in rotated(list(self._plans), self._turn):
            if self.late:
                self._turn = name
                self.notes.append(f"time is up before {name}; the next look begins there")
                return
            self._looked_at.add(name)
            yield self._plans[name]
        self._turn = ""

    @contextmanager
    def alone(self, plan: TopicPlan) -> Iterator[None]:
        """Whatever goes wrong in this block is this topic's and ends only the block."""
        try:
            yield
        except UnknownTopicError:
            self.notes.append(f"{plan.name}: not created yet")
        except NewIncarnationError as error:  # the chain's health names what is lost, once
            self.notes.append(f"{plan.name}: {error}")
        except (ClusterError, ArchiveError) as error:
            # The service is away for all topics, and each would wait for it in vain.
            self._context.log.error("%s: %s", plan.name, error)
            self.notes.append(f"{plan.name}: {error}")
            self._stopped = plan.name
        except Exception as error:  # one topic's defect must not stop all others
            text = f"{type(error).__name__}: {error}"
            self._context.log.exception("%s: %s", plan.name, text)
            self.notes.append(f"{plan.name}: {text}")
            self.problems[plan.name] = text

    def waiting(
        self, ref: TopicRef, waits: Callable[[Window], bool], looks: int = LOOKS_MAX
    ) -> list[Window]:
        """The topic's windows for which ``waits`` holds, oldest first: those known to wait whose
        turn it is, and all that were never looked at, as far as time allows."""
        store = WindowStore.of(self.penstock)
        watch = self._watches.get(ref.topic_id, Watch())
        seen: dict[int, bool] = {}
        found: list[Window] = []
        for sequence in watch.turn(looks):
            if self.late:
                break
            window = store.get(ref, sequence)
            seen[sequence] = window is not None and waits(window)
            found += [window] if window is not None and seen[sequence] else []
        sequence = watch.unread
        space = min(looks, watch.space)
        while space > 0 and not self.late and (window := store.get(ref, sequence)) is not None:
            seen[sequence] = waits(window)
            if seen[sequence]:
                found.append(window)
                space -= 1
            sequence += 1
        self._watches[ref.topic_id] = watch.after(seen)
        return sorted(found, key=lambda window: window.sequence)

    def result(self, requests: Sequence[dg.RunRequest], otherwise: str) -> dg.SensorResult:
        """What the sensor returns; keeps the problems for the alert sensor."""
        Problems(self.penstock.settings).report(
            str(self._context.sensor_name), self._looked_at, self.problems
        )
        cursor = {
            "v": CURSOR_VERSION,
            "turn": self._turn,
            "topics": {topic_id: w.to_json() for topic_id, w in sorted(self._watches.items())},
        }
        more = len(self.notes) - NOTES_IN_REASON
        notes = self.notes[:NOTES_IN_REASON] + ([f"and {more} more"] if more > 0 else [])
        return dg.SensorResult(
            run_requests=list(requests),
            skip_reason=None if requests else dg.SkipReason("; ".join(notes) or otherwise),
            cursor=json.dumps(cursor, separators=(",", ":")),
        )


def build_tick_sensor(
    name: str,
    plans: Sequence[TopicPlan],
    jobs: Sequence[Any],
    begin: Callable[[dg.SensorEvaluationContext, Tick], Look],
    *,
    interval_seconds: int,
    description: str,
    otherwise: str,
) -> dg.SensorDefinition:
    """A sensor that looks at each topic by itself. ``begin`` gives what one tick asks of a topic:
    the runs to request. ``otherwise``: why there are none."""

    @dg.sensor(
        name=name,
        jobs=jobs,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description=description,
    )
    def tick_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = Tick(context, context.resources.penstock, plans)
        look = begin(context, tick)
        requests: list[dg.RunRequest] = []
        for plan in tick.topics():
            with tick.alone(plan):
                requests += look(plan)
        return tick.result(requests, otherwise)

    return tick_sensor


def _read_cursor(text: str | None) -> tuple[str, dict[str, Watch]]:
    """Whose turn it is, and a watch for each topic id. What cannot be read starts over: every look
    can be taken again."""
    try:
        raw: Any = json.loads(text or "{}")
        if not isinstance(raw, dict) or raw.get("v") != CURSOR_VERSION:
            return "", {}
        watches = {str(i): Watch.from_json(w) for i, w in dict(raw["topics"]).items()}
        return str(raw["turn"]), watches
    except (KeyError, TypeError, ValueError):
        return "", {}
