"""Landing windows again through Dagster: one run a partition key, a bounded number at once.

What ``penstock window rerun`` and ``penstock table remake`` do; the commands themselves only read
options and print.
"""

from __future__ import annotations

import bisect
import getpass
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import click

from penstock_platform.cli.dagster_api import DagsterApi, DagsterApiError, RunOutcome
from penstock_platform.clock import from_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.cron import opening_of
from penstock_platform.topics.names import JOB_TAG, LAND, TOPIC_TAG, WINDOW_ID_TAG, WINDOW_TAG
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.store import WindowStore

RUN_TIMEOUT_SECONDS = 900.0
RERUNS_AT_ONCE = 2
RERUNS_AT_ONCE_MAX = 16
PERSON_WAITS = "20"  # Dagster's run priority
Progress = Callable[[str], None]
Command = Callable[..., None]


def rerun_options(command: Command) -> Command:
    """The options of a command that launches runs: how many at a time, and how long each."""
    at_once = click.option(
        "--at-once",
        default=RERUNS_AT_ONCE,
        show_default=True,
        type=click.IntRange(1, RERUNS_AT_ONCE_MAX),
        help="Runs at a time.",
    )
    timeout = click.option(
        "--timeout", default=RUN_TIMEOUT_SECONDS, show_default=True, help="Seconds for each run."
    )
    return at_once(timeout(command))


@dataclass(frozen=True, slots=True)
class Rerun:
    """How landing one partition key again ended. ``problem``: why it did not run to its end; a
    check that found something wrong is no problem of the run, but of the books."""

    key: str
    windows: tuple[Window, ...]
    run_id: str = ""
    url: str = ""
    outcome: RunOutcome | None = None
    problem: str = ""


def windows_between(
    penstock: Connections, ref: TopicRef, first: str | None, last: str | None
) -> list[Window]:
    """The windows from one key to another, both included; an open side goes to the chain's end.

    Raises CronError for what is no key.
    """
    newest = WindowStore.of(penstock).newest(ref)
    chain = range(newest.sequence + 1 if newest is not None else 0)

    def opened(sequence: int) -> datetime:
        window = WindowStore.of(penstock).get(ref, sequence)
        if window is None:
            raise ChainError(f"window {ref.topic_id}/{sequence} is missing inside its chain")
        return from_iso(window.opened_at)

    start = bisect.bisect_left(chain, opening_of(first), key=opened) if first else 0
    end = bisect.bisect_right(chain, opening_of(last), key=opened) if last else len(chain)
    found = (WindowStore.of(penstock).get(ref, sequence) for sequence in chain[start:end])
    return [window for window in found if window is not None]


def quarantining(penstock: Connections, windows: Sequence[Window]) -> list[Window]:
    """Those whose newest book counts quarantined records."""
    books = ((w, BookStore.of(penstock).newest_book(w.ref, w.sequence)) for w in windows)
    return [w for w, book in books if book is not None and book.tiers.get("quarantined", 0)]


def rerun_all(
    api: DagsterApi,
    ticks: Sequence[Sequence[Window]],
    *,
    at_once: int,
    timeout: float,
    progress: Progress,
    assets: Sequence[Sequence[str]] | None = None,
) -> list[Rerun]:
    """Land the windows of these ticks of one topic again, oldest first; one outcome a tick.

    ``assets``: the asset keys that are made, all of the landing job's without.

    A run that cannot be launched or followed is a problem of its own and stops no other.
    """
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="rerun") as pool:
        return list(pool.map(lambda held: _rerun(api, held, timeout, progress, assets), ticks))


def _rerun(
    api: DagsterApi,
    windows: Sequence[Window],
    timeout: float,
    progress: Progress,
    assets: Sequence[Sequence[str]] | None,
) -> Rerun:
    window = windows[-1]
    tags = {
        "dagster/partition": window.window,
        WINDOW_TAG: window.window,
        WINDOW_ID_TAG: window.window_id,
        "penstock/rerun": getpass.getuser(),
        "dagster/priority": PERSON_WAITS,
    }
    run_id = url = ""
    try:
        job = {JOB_TAG: LAND, TOPIC_TAG: window.topic}
        run_id = api.launch(job, tags, assets)
        url = api.run_url(run_id)
        progress(f"{window.window}: run {run_id}: {url}")
        outcome = api.follow(run_id, timeout, lambda line: progress(f"{window.window}: {line}"))
    except DagsterApiError as error:
        return Rerun(window.window, tuple(windows), run_id, url, problem=str(error))
    return Rerun(window.window, tuple(windows), run_id, url, outcome, problem_of(outcome))


def problem_of(outcome: RunOutcome) -> str:
    """Why a run did not do its work, empty where it did. A blocking check that fails ends a run
    too; what it found is in the books."""
    if outcome.failures:
        return "; ".join(outcome.failures)
    if outcome.succeeded or any(not check.passed for check in outcome.checks):
        return ""
    return f"the run ended as {outcome.status} without a message"
