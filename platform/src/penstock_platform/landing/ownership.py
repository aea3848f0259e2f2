"""A landing run's lease and outcome, kept in tags of the run itself.

Tags are where the sensor and every other run can read them, in whatever database Dagster has, and
they go when the run goes. Nothing has to be tidied up after a crash:

- the run's process dies: its service reports the run as failed, or the lease lapses in 90 seconds;
- the daemon dies: the run continues and renews; the sensor finds it alive when it is back;
- the machine dies: the run is "started" forever in the records, its lease lapses, and the next
  attempt begins; Dagster's run monitoring marks the old one as failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg
from dagster._core.storage.dagster_run import RunRecord

from penstock_platform.clock import Clock
from penstock_platform.landing.model.leases import RENEW, Lease, LeaseFormatError, ask, owner
from penstock_platform.landing.model.retries import (
    DONE,
    Attempt,
    Cause,
    Phase,
    cause_of,
    outcome_text,
    parse_outcome,
)
from penstock_platform.topics.names import LANDING_TAG, LEASE_TAG, OUTCOME_TAG

LOG = logging.getLogger("penstock.landing")
# So long a run waits for another one's landing of the same window, before it ends and says whose.
WAIT_SECONDS = 60.0
POLL_SECONDS = 2.0
# Of one landing; more are not needed to decide.
ATTEMPTS_READ_MAX = 50
ERRORS_READ_MAX = 10


class LandingOwnedError(RuntimeError):
    """Another run lands these windows: names it."""


def landing_subject(topic_id: str, key: str) -> str:
    """What a lease is about: the landing of one partition key of one topic incarnation."""
    return f"{topic_id}/{key}"


def attempts_of(
    instance: dg.DagsterInstance, filters: dg.RunsFilter, most: int = ATTEMPTS_READ_MAX
) -> list[Attempt]:
    """The runs of a filter as attempts, newest first."""
    return [attempt_of(record) for record in instance.get_run_records(filters, limit=most)]


def landing_attempts(instance: dg.DagsterInstance, topic_id: str, key: str) -> list[Attempt]:
    """The attempts to land one partition key, newest first."""
    tags = {LANDING_TAG: landing_subject(topic_id, key)}
    return attempts_of(instance, dg.RunsFilter(tags=tags))


def attempt_of(record: RunRecord) -> Attempt:
    """What a run's record says of its landing."""
    run = record.dagster_run
    cause: Cause | None = None
    error = ""
    if run.is_finished:
        phase, since = Phase.ENDED, record.end_time
        cause, error = parse_outcome(run.tags.get(OUTCOME_TAG, ""))
        if run.status is dg.DagsterRunStatus.CANCELED:
            cause, error = Cause.OUTSIDE, "it was cancelled"
        elif run.status is dg.DagsterRunStatus.SUCCESS:
            cause, error = parse_outcome(DONE)
    elif run.status is dg.DagsterRunStatus.QUEUED:
        phase, since = Phase.QUEUED, None
    else:
        phase, since = Phase.STARTED, record.start_time
    changed = record.update_timestamp.replace(tzinfo=UTC).timestamp()
    moment = from_dagster(since if since is not None else changed)
    return Attempt(run.run_id, phase, moment, lease_of(run), cause, error, run.is_success)


def from_dagster(seconds: float) -> datetime:
    """A time of Dagster's records, which are the machine's."""
    return datetime.fromtimestamp(seconds, UTC)


def lease_of(run: dg.DagsterRun) -> Lease | None:
    try:
        return Lease.from_text(run.run_id, run.tags[LEASE_TAG])
    except (KeyError, LeaseFormatError):
        return None


@contextmanager
def owned_landing(
    context: dg.AssetExecutionContext, clock: Clock, topic_id: str, key: str
) -> Iterator[None]:
    """Own the landing for as long as the block runs. Raises LandingOwnedError."""
    subject = landing_subject(topic_id, key)
    lease = _take(context.instance, clock, context.run.run_id, subject)
    ended = threading.Event()
    renewing = threading.Thread(
        target=_renew,
        args=(context.instance, clock, lease, ended),
        name=f"lease of {subject}",
        daemon=True,
    )
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join(timeout=RENEW.total_seconds())


@contextmanager
def outcome_recorded(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Write into the run's tags how the block ended, for the sensor that decides on a next try."""
    try:
        yield
    except Exception as error:
        chain = list(_causes(error))
        cause = cause_of((type(e).__name__, str(e)) for e in chain)
        text = getattr(error, "description", None) or str(error)
        _tag(context.instance, context.run.run_id, {OUTCOME_TAG: outcome_text(cause, text)})
        raise
    _tag(context.instance, context.run.run_id, {OUTCOME_TAG: DONE})


def _take(instance: dg.DagsterInstance, clock: Clock, run_id: str, subject: str) -> Lease:
    """Ask, and wait while another run owns the landing."""
    deadline = clock.monotonic() + WAIT_SECONDS
    run = instance.get_run_by_id(run_id)
    lease = ask(run_id, lease_of(run) if run is not None else None, clock.now())
    while True:
        tags = {LANDING_TAG: subject, LEASE_TAG: lease.to_text(), OUTCOME_TAG: ""}
        _tag(instance, run_id, tags)
        others = [
            attempt.lease
            for attempt in attempts_of(instance, dg.RunsFilter(tags={LANDING_TAG: subject}))
            if attempt.lease is not None
            and attempt.phase is not Phase.ENDED
            and attempt.run_id != run_id
        ]
        first = owner([lease, *others], clock.now())
        if first is None or first.run_id == run_id:
            return lease
        if clock.monotonic() >= deadline:
            raise LandingOwnedError(
                f"run {first.run_id} lands {subject} since {first.asked_at:%Y-%m-%d %H:%M:%S} UTC "
                "and is alive; wait until it ends, or cancel it in Dagster, and try again"
            )
        clock.sleep(POLL_SECONDS)
        lease = ask(run_id, lease, clock.now())


def _renew(
    instance: dg.DagsterInstance, clock: Clock, lease: Lease, ended: threading.Event
) -> None:
    """Renew until the block has ended. A lease that lapsed meanwhile (the machine was suspended) is
    not taken up again: another run may own the landing by now, and interrupts this one's work."""
    while not ended.wait(RENEW.total_seconds()):
        now = clock.now()
        if not lease.alive(now):
            return
        if _tag(instance, lease.run_id, {LEASE_TAG: lease.renewed(now).to_text()}):
            lease = lease.renewed(now)


def _tag(instance: dg.DagsterInstance, run_id: str, tags: dict[str, str]) -> bool:
    """Write tags of a run. A database that is busy or away must not end a landing: the tags only
    say how it goes. Returns whether they were written."""
    try:
        instance.add_run_tags(run_id, tags)
    except Exception as error:  # noqa: BLE001 - whatever the user's database raises
        LOG.warning("run %s: its tags were not written: %s", run_id, error)
        return False
    return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those behind it, outermost first; bounded, for a chain may be a circle."""
    found: BaseException | None = error
    for _ in range(ERRORS_READ_MAX):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__
