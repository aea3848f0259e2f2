"""When a window's landing is tried again: at once, later, or by a person.

A landing with an external cause (Spark, S3, the broker or the catalog is down, a killed process, a
cancelled run) is retried without a limit, at growing intervals: the cause ends, and the window is
landed without help. One with an internal cause (the data, the contract, a defect of the code) is
tried ``INSIDE_MAX`` times: a retry does not change the cause, so an incident names the window and
the command.

While the newest landing of a topic ended for something outside, one run at a time tries whether it
has passed; a hundred waiting windows would each wait for the same server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from penstock_platform.landing.model.leases import Lease

INSIDE_MAX = 5
# A run that was started and never asked for its lease: it imports and loads definitions that long.
START_MAX = timedelta(minutes=10)
# The first new try comes at once: most of what passes has passed by then.
PAUSES = tuple(timedelta(seconds=s) for s in (0, 10, 20, 40, 80, 160, 300))
# So many tries of one window before the next one is tried in its place.
TRIES_OF_ONE = 3
ERROR_CHARACTERS_MAX = 300


class Cause(StrEnum):
    """Why a landing ended without a result."""

    OUTSIDE = "outside"
    INSIDE = "inside"


class Phase(StrEnum):
    """How far a run has come, as Dagster records it."""

    QUEUED = "queued"  # waits for its turn, for as long as that takes
    STARTED = "started"  # created, launched or running
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run that lands, or tried to. ``since``: when its phase began, as far as it is known.

    ``cause`` is that of an ended run (``parse_outcome``).
    """

    run_id: str
    phase: Phase
    since: datetime
    lease: Lease | None = None
    cause: Cause | None = None
    error: str = ""
    succeeded: bool = False

    def under_way(self, now: datetime, start_max: timedelta = START_MAX) -> bool:
        """Whether it may still bring a result. Queued runs are Dagster's to start; a started one
        has to show that it lives: by its lease, before it has one by its age."""
        if self.phase is Phase.ENDED:
            return False
        if self.phase is Phase.QUEUED:
            return True
        if self.lease is not None:
            return self.lease.alive(now)
        return now - self.since < start_max

    def ended_at(self) -> datetime:
        """When it ended, or was last seen alive."""
        return self.lease.renewed_at if self.lease and self.phase is not Phase.ENDED else self.since


class Action(StrEnum):
    """What becomes of a window that has no result."""

    START = "start"
    UNDER_WAY = "under_way"
    PAUSE = "pause"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Decision:
    """``until``: when a pause ends. ``error``: what the newest attempt that ended reported."""

    action: Action
    attempts: int = 0
    until: datetime | None = None
    error: str = ""


def pause_after(failures: int) -> timedelta:
    """How long after so many failures in a row the next try comes; five minutes at most."""
    if failures <= 0:
        return timedelta()
    return PAUSES[min(failures, len(PAUSES)) - 1]


def decide(attempts: Sequence[Attempt], now: datetime) -> Decision:
    """What becomes of a window without a result, by its attempts, newest first."""
    ended = [a for a in attempts if not a.under_way(now)]
    error = ended[0].error if ended else ""
    if len(ended) < len(attempts):
        return Decision(Action.UNDER_WAY, len(ended), error=error)
    inside = sum(a.cause is Cause.INSIDE for a in ended)
    if inside >= INSIDE_MAX:
        reason = next(a.error for a in ended if a.cause is Cause.INSIDE)
        return Decision(Action.ABANDONED, len(ended), error=reason)
    if not ended:
        return Decision(Action.START)
    until = ended[0].ended_at() + pause_after(len(ended))
    action = Action.START if now >= until else Action.PAUSE
    return Decision(action, len(ended), until if action is Action.PAUSE else None, error)


def hindered(attempts: Sequence[Attempt], now: datetime) -> datetime | None:
    """Until when a topic's landings wait for something outside, or None where nothing hinders.

    ``attempts`` are the topic's newest runs of any window, newest first. Where the moment is past,
    one run may try. A run under way that follows a failure is that try: then ``datetime.max``.
    """
    ended = [a for a in attempts if not a.under_way(now)]
    failures = 0
    for attempt in ended:
        if attempt.phase is Phase.ENDED and attempt.cause is not Cause.OUTSIDE:
            break
        failures += 1
    if not failures:
        return None
    if len(ended) < len(attempts):
        return datetime.max.replace(tzinfo=now.tzinfo)
    return ended[0].ended_at() + pause_after(failures)


def choose_try(waiting: Iterable[tuple[int, int]]) -> int | None:
    """Of the windows that may be tried, (sequence, attempts), the one that tries for all: the
    oldest, until it has failed ``TRIES_OF_ONE`` times; then the others come before it."""
    best = min(waiting, key=lambda w: (w[1] // TRIES_OF_ONE, w[0]), default=None)
    return best[0] if best is not None else None


# Exceptions whose very type says that something outside is away. Names, not types: pure code
# imports neither boto3 nor PySpark, and a run's process may know several versions of them.
_OUTSIDE_TYPES = frozenset(
    {
        "ArchiveError",
        "ClusterError",
        "LandingOwnedError",
        "SparkUnavailableError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "BrokenPipeError",
        "TimeoutError",
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "OperationalError",
        "ServiceUnavailableError",
        "ServerError",
        "DagsterExecutionInterruptedError",
        "KeyboardInterrupt",
    }
)
# The same in what Spark passes on from the JVM, where every error has one type.
_OUTSIDE_TEXTS = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|OPERATION_CANCELED|INVALID_HANDLE\.|failed to connect"
    r"|Connection (?:refused|reset)|Connect(?:ion)?TimedOut|Read timed out|UnknownHostException"
    r"|Unable to execute HTTP request|SdkClientException|NoHttpResponse|Broken pipe"
    r"|Status Code: 5\d\d|ServiceUnavailable|SlowDown|InternalError"
    r"|errors\.(?:TimeoutException|DisconnectException|NetworkException"
    r"|BrokerNotAvailableException|LeaderNotAvailableException|NotLeaderOrFollowerException)"
    r"|database is locked|could not connect to server"
    r"|No space left on device"
)


def cause_of(errors: Iterable[tuple[str, str]]) -> Cause:
    """The cause by an error and those behind it: (name of the type, message) of each."""
    for name, message in errors:
        if name in _OUTSIDE_TYPES or _OUTSIDE_TEXTS.search(message):
            return Cause.OUTSIDE
    return Cause.INSIDE


DONE = "done"
_NO_RESULT = "it ended and left no result"


def outcome_text(cause: Cause, error: str) -> str:
    """``<cause>|<first line of the error>``: how a step ended, as its run's tag keeps it."""
    lines = error.strip().splitlines()
    return f"{cause}|{(lines[0] if lines else '')[:ERROR_CHARACTERS_MAX]}"


def parse_outcome(text: str) -> tuple[Cause, str]:
    """The cause and the error of a run that ended without a result.

    ``DONE`` was written by a step that came to its end: what followed failed, not the landing. No
    text: the process ended before it could write one, so something outside ended it.
    """
    if text == DONE:
        return Cause.INSIDE, _NO_RESULT
    name, _, error = text.partition("|")
    if name in set(Cause):
        return Cause(name), error
    return Cause.OUTSIDE, "its process ended without reporting an error"
