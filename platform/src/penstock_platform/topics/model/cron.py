"""Window keys of a topic's cron, exactly as Dagster's TimeWindowPartitionsDefinition names them.

A window runs from one tick of the cron to the next, in UTC. Its key is the tick that opens it,
written ``%Y-%m-%d-%H:%M`` for every cron, so that a topic may go from hourly to minutely windows
without its keys changing shape. A tick at or after the definition's start opens the first window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from croniter import croniter  # type: ignore[import-untyped]

KEY_FORMAT = "%Y-%m-%d-%H:%M"
NAMED_CRONS = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
}


class CronError(ValueError):
    """A cron or window key that cannot be used: says what is wrong and what would do."""


@dataclass(frozen=True, slots=True, order=True)
class CronWindow:
    """One window of a cron: ``opens <= t < closes``."""

    opens: datetime
    closes: datetime

    @property
    def key(self) -> str:
        return window_key(self.opens)


def cron_of(text: str) -> str:
    """The five-field cron for ``minutely``, ``hourly``, ``daily`` or a cron itself.

    Raises CronError for anything else, also for crons with seconds: a key has minutes.
    """
    cron = " ".join(NAMED_CRONS.get(text.strip(), text).split())
    if len(cron.split(" ")) != 5 or not croniter.is_valid(cron):
        names = ", ".join(NAMED_CRONS)
        raise CronError(f"{text!r} is neither one of {names} nor a cron of five fields")
    return cron


def window_key(opens: datetime) -> str:
    """The Dagster partition key of the window that opens then."""
    return opens.astimezone(UTC).strftime(KEY_FORMAT)


def opening_of(key: str) -> datetime:
    """When the window of that key opens. Raises CronError for what is not a key."""
    try:
        return datetime.strptime(key, KEY_FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise CronError(
            f"{key!r} is not a window key; they look like 2026-11-20-05:00 (UTC)"
        ) from error


def tick_at_or_after(cron: str, moment: datetime) -> datetime:
    """The first tick of the cron not before that moment."""
    moment = moment.astimezone(UTC)
    floor = moment.replace(second=0, microsecond=0)
    if floor == moment and croniter.match(cron, moment):
        return moment
    return _next(cron, moment)


def due_windows(cron: str, since: datetime, now: datetime) -> Iterator[CronWindow]:
    """Windows that open at or after ``since`` and have closed by ``now``, oldest first."""
    opens = tick_at_or_after(cron, since)
    now = now.astimezone(UTC)
    while (closes := _next(cron, opens)) <= now:
        yield CronWindow(opens, closes)
        opens = closes


def window_of(cron: str, key: str) -> CronWindow:
    """The window of that key. Raises CronError when the cron has no tick there."""
    opens = opening_of(key)
    if tick_at_or_after(cron, opens) != opens:
        raise CronError(f"no window of cron {cron!r} opens at {key} (UTC)")
    return CronWindow(opens, _next(cron, opens))


@lru_cache(maxsize=4096)
def _next(cron: str, moment: datetime) -> datetime:
    tick: datetime = croniter(cron, moment.astimezone(UTC)).get_next(datetime)
    return tick


def last_tick(cron: str, now: datetime) -> datetime:
    """The last tick at or before ``now``; found forwards, as windows are."""
    span = timedelta(minutes=1)
    while (tick := tick_at_or_after(cron, now - span)) > now:
        span *= 2
    while (later := tick_at_or_after(cron, tick + timedelta(minutes=1))) <= now:
        tick = later
    return tick
