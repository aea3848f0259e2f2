"""Does the chain of a topic's windows continue? What stops it, judged from facts of other modules.

The books judge windows that exist. A window that was never frozen, never landed, or whose topic is
gone, has no book: without this page everything would look balanced. The alert sensor,
``penstock audit`` and ``penstock status`` ask the same functions.

A judgement has two parts: the problems, and the kinds that were judged at all. What could not be
judged (the broker does not answer) is neither good nor bad, so nothing is resolved by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from penstock_platform.clock import from_iso, to_iso
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.model.recreation import LostTopic
from penstock_platform.retention.model.log import Disk
from penstock_platform.topics.model.cron import due_windows
from penstock_platform.topics.model.declaration import TopicSpec, format_duration
from penstock_platform.windows.model.window import Window

# A window is due when it has closed; the sensor that freezes it looks every few seconds, and a
# machine that has just started, or is busy, takes its time.
FREEZE_ALLOWANCE_MIN = timedelta(minutes=2)
FREEZE_ALLOWANCE_MAX = timedelta(minutes=10)
LANDING_ALLOWANCE_MIN = timedelta(minutes=30)
LANDING_ALLOWANCE_WINDOWS = 3
# Sweeps run now and then: so much longer than its policy may a window stay.
RETENTION_ALLOWANCE_MIN = timedelta(hours=2)
RETENTION_ALLOWANCE_SHARE = 0.1
# Daemons report every 30 s; Dagster itself calls one healthy for half an hour after its last word.
HEARTBEAT_SECONDS_MAX = 120.0
# The alert sensor looks every ten seconds; one tick of Dagster's may take a minute.
LOOKED_SECONDS_MAX = 180.0
DISK_FREE_SHARE_MIN = 0.1
DISK_FREE_BYTES_MIN = 10_000_000_000
DUE_COUNTED_MAX = 1000
# What may be gone at the next look must be seen for so long before it is alerted.
PATIENCE = timedelta(seconds=60)


class Kind(StrEnum):
    """What can be wrong with a chain, or with what carries all chains."""

    NOT_FROZEN = "not_frozen"
    EMPTY_CHAIN = "empty_chain"
    CHAIN_UNREADABLE = "chain_unreadable"
    TOPIC_ABSENT = "topic_absent"
    TOPIC_DELETED = "topic_deleted"
    TOPIC_RECREATED = "topic_recreated"
    LANDING_LATE = "landing_late"
    LANDING_ABANDONED = "landing_abandoned"
    RETENTION_HELD = "retention_held"
    QUARANTINE_SHARE = "quarantine_share"
    BROKER_UNANSWERED = "broker_unanswered"
    STORE_UNANSWERED = "store_unanswered"
    DAGSTER_UNANSWERED = "dagster_unanswered"
    DAEMON_STALE = "daemon_stale"
    DEFINITIONS_BROKEN = "definitions_broken"
    DISK_AT_RISK = "disk_at_risk"
    SERVICE_DOWN = "service_down"
    ALERTS_STALE = "alerts_stale"
    ALERTS_UNDELIVERED = "alerts_undelivered"


OF_A_TOPIC = (
    Kind.NOT_FROZEN,
    Kind.EMPTY_CHAIN,
    Kind.CHAIN_UNREADABLE,
    Kind.TOPIC_ABSENT,
    Kind.TOPIC_DELETED,
    Kind.TOPIC_RECREATED,
    Kind.LANDING_LATE,
    Kind.LANDING_ABANDONED,
    Kind.RETENTION_HELD,
    Kind.QUARANTINE_SHARE,
)
# The services whose silence stops chains; the names are those of ``incidents.outage``.
CAUSES = {Kind.BROKER_UNANSWERED: "broker", Kind.STORE_UNANSWERED: "store"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, in a sentence, with the command that helps where there is one.

    ``topic`` is empty where all topics are concerned. ``patience``: how long it must be seen
    before it is alerted; commands show it at once.
    """

    kind: Kind
    summary: str
    topic: str = ""
    severity: str = "critical"  # critical | error | warning
    command: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    patience: timedelta = timedelta()

    @property
    def source(self) -> str:
        return source_of(self.kind, self.topic)


@dataclass(frozen=True, slots=True)
class Health:
    """``judged``: the kinds that could be judged; those without a problem are proven good."""

    problems: tuple[Problem, ...]
    judged: frozenset[Kind]
    topic: str = ""

    @property
    def good(self) -> tuple[str, ...]:
        """The sources that were judged and are well."""
        bad = {problem.kind for problem in self.problems}
        return tuple(source_of(kind, self.topic) for kind in sorted(self.judged - bad))


@dataclass(frozen=True, slots=True)
class WaitingWindow:
    """A frozen window with records whose landing has no result yet. ``attempts`` have ended."""

    window: Window
    attempts: int = 0
    abandoned: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """How many records of a window its contract parsed, and how many went to the quarantine."""

    window: str
    parsed: int
    quarantined: int

    @property
    def share(self) -> float:
        total = self.parsed + self.quarantined
        return self.quarantined / total if total else 0.0


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """What was seen of one topic.

    ``spec`` is None where the declarations cannot be asked; a window's length is then taken from
    the chain itself. ``ref`` is None for a topic that the cluster does not have. ``start`` is when
    its first window opens, None before that was decided. ``stored`` counts the offsets between
    log start and end, ``unfrozen`` those beyond the chain's end.
    """

    topic: str
    spec: TopicSpec | None = None
    ref: TopicRef | None = None
    incarnations: tuple[str, ...] = ()
    start: datetime | None = None
    newest: Window | None = None
    stored: int = 0
    unfrozen: int = 0
    waiting: Sequence[WaitingWindow] = ()
    oldest_in_log: Window | None = None
    parsed: Parsed | None = None
    lost: LostTopic | None = None  # what a deleted or recreated topic took with it
    unreadable: str = ""  # the chain's own error
    unanswered: bool = False  # broker or store did not answer: nothing can be said


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """What was seen of what carries all topics. None: not asked. Texts are empty where all is well.

    ``heartbeats``: seconds since each daemon's last report, None for one that never did.
    ``looked``: seconds since the alert sensor last looked. ``undelivered``: {channel: its error}
    of those that have pending alerts for long. ``down``: {service: what the supervisor says}.
    """

    broker: str | None = None
    store: str | None = None
    dagster: str | None = None
    definitions: str | None = None
    heartbeats: Mapping[str, float | None] | None = None
    disks: Mapping[str, Disk] | None = None
    looked: float | None = None
    undelivered: Mapping[str, str] | None = None
    down: Mapping[str, str] | None = None


def source_of(kind: Kind, topic: str = "") -> str:
    """The name of one judgement for good: ``health/<topic>/<kind>``."""
    return f"health/{topic}/{kind}" if topic else f"health/{kind}"


def judge_chain(facts: ChainFacts, now: datetime) -> Health:
    """Judge one topic that is landed (a topic without ``land`` has no chain: nothing is judged)."""
    if facts.unanswered or (facts.spec is not None and facts.spec.land is None):
        return Health((), frozenset(), facts.topic)
    incarnation = {Kind.TOPIC_ABSENT, Kind.TOPIC_DELETED, Kind.TOPIC_RECREATED}
    if problem := _incarnation(facts):
        return Health((problem,), frozenset(incarnation), facts.topic)
    if facts.unreadable:
        problem = Problem(
            Kind.CHAIN_UNREADABLE,
            f"{facts.topic}: its chain of windows cannot be continued: {facts.unreadable}",
            facts.topic,
        )
        return Health((problem,), frozenset({*incarnation, problem.kind}), facts.topic)
    found = [
        _freezing(facts, now),
        _landing(facts, now),
        _retention(facts, now),
        _quarantine(facts),
    ]
    return Health(tuple(p for p in found if p is not None), frozenset(OF_A_TOPIC), facts.topic)


def judge_platform(facts: PlatformFacts) -> Health:
    """Judge what was asked of the services; what was not asked (None) is not judged."""
    problems: list[Problem] = []
    judged: set[Kind] = set()
    for kind, said, text in (
        (Kind.BROKER_UNANSWERED, facts.broker, "the broker does not answer, nothing is frozen"),
        (Kind.STORE_UNANSWERED, facts.store, "the object store does not answer, nothing is frozen"),
        (Kind.DAGSTER_UNANSWERED, facts.dagster, "Dagster does not answer, nothing is seen to run"),
        (Kind.DEFINITIONS_BROKEN, facts.definitions, "the definitions do not load, nothing runs"),
    ):
        if said is None:
            continue
        judged.add(kind)
        if said:
            # A file that does not load is not repaired by waiting; a service may be restarting.
            patience = timedelta() if kind is Kind.DEFINITIONS_BROKEN else PATIENCE
            problems.append(
                Problem(kind, f"{text}: {said}", command=_COMMANDS[kind], patience=patience)
            )
    if facts.heartbeats is not None:
        judged.add(Kind.DAEMON_STALE)
        problems += _daemons(facts.heartbeats)
    if facts.disks is not None:
        judged.add(Kind.DISK_AT_RISK)
        problems += _disks(facts.disks)
    found, asked = _watched(facts)
    return Health((*problems, *found), frozenset(judged | asked))


def _watched(facts: PlatformFacts) -> tuple[list[Problem], set[Kind]]:
    """What only the watcher asks: whether the alert sensor runs, and whether alerts arrive."""
    problems: list[Problem] = []
    judged: set[Kind] = set()
    if facts.looked is not None:
        judged.add(Kind.ALERTS_STALE)
        if facts.looked > LOOKED_SECONDS_MAX:
            text = f"alert_sensor has not looked for {facts.looked:.0f} s: no chain is watched"
            problems.append(Problem(Kind.ALERTS_STALE, text, command="penstock status"))
    if facts.undelivered is not None:
        judged.add(Kind.ALERTS_UNDELIVERED)
        if facts.undelivered:
            said = "; ".join(error or name for name, error in sorted(facts.undelivered.items()))
            text = f"alerts are not delivered: {said}"
            problems.append(Problem(Kind.ALERTS_UNDELIVERED, text, command="penstock alert test"))
    if facts.down is not None:
        judged.add(Kind.SERVICE_DOWN)
        if facts.down:
            said = "; ".join(f"{name}: {state}" for name, state in sorted(facts.down.items()))
            problems.append(
                Problem(
                    Kind.SERVICE_DOWN,
                    f"services do not run: {said}",
                    command="penstock status",
                    details={"services": sorted(facts.down)},
                    patience=PATIENCE,
                )
            )
    return problems, judged


_COMMANDS = {
    Kind.BROKER_UNANSWERED: "penstock status",
    Kind.STORE_UNANSWERED: "penstock status",
    Kind.DAGSTER_UNANSWERED: "penstock status",
    Kind.DEFINITIONS_BROKEN: "penstock validate",
}


def confirm(
    problems: Sequence[Problem], suspected: Mapping[str, str], now: datetime
) -> tuple[list[Problem], dict[str, str]]:
    """The problems seen for as long as each needs, and {source: first seen} of all of them.

    ``suspected`` is what the call before returned. One that is absent once starts over.
    """
    seen = {p.source: suspected.get(p.source, to_iso(now)) for p in problems}
    ripe = [p for p in problems if now - from_iso(seen[p.source]) >= p.patience]
    return ripe, seen


def freeze_allowance(length: timedelta) -> timedelta:
    """How long after its close a window may be unfrozen: two of its lengths, within bounds."""
    return min(max(2 * length, FREEZE_ALLOWANCE_MIN), FREEZE_ALLOWANCE_MAX)


def _incarnation(facts: ChainFacts) -> Problem | None:
    topic, known = facts.topic, facts.incarnations
    if facts.ref is None and not known:
        return Problem(
            Kind.TOPIC_ABSENT,
            f"{topic} is declared and the cluster does not have it",
            topic,
            severity="error",
            patience=timedelta(minutes=5),
        )
    if facts.ref is None:
        return Problem(
            Kind.TOPIC_DELETED,
            f"{topic} was deleted from the cluster; {_safe(facts)}",
            topic,
            details={"topic_id": known[-1]},
        )
    if known and facts.ref.topic_id != known[-1]:
        return Problem(
            Kind.TOPIC_RECREATED,
            f"{topic} was deleted and recreated: its chain belongs to topic id {known[-1]}, the "
            f"broker now has {facts.ref.topic_id}; {_safe(facts)}; the new topic's records are in "
            "no window",
            topic,
            command=f"penstock window begin {topic}",
            details={"topic_id": facts.ref.topic_id, "chain_of": known[-1]},
        )
    return None


def _safe(facts: ChainFacts) -> str:
    if facts.lost is not None:
        return str(facts.lost)
    if facts.newest is None:
        return "none of its records was in a window"
    return (
        f"its windows until {facts.newest.name} hold {sum(_ends(facts.newest)):,} offsets, and "
        "those that were landed are safe in the lake; all others are lost with it"
    )


def _ends(window: Window) -> list[int]:
    return [partition.end for partition in window.partitions]


def _freezing(facts: ChainFacts, now: datetime) -> Problem | None:
    """No window was frozen when one was due."""
    newest = facts.newest
    since = from_iso(newest.closed_at) if newest is not None else facts.start
    if since is None:
        return _never_begun(facts)
    late = _late_windows(facts, since, now)
    if not late:
        return None
    count = f"{late:,} windows are" if late > 1 else "one window is"
    if late == DUE_COUNTED_MAX:
        count = f"{late:,} windows or more are"
    empty = newest is None and facts.stored > 0
    behind = f", {facts.unfrozen:,} records are in no window" if facts.unfrozen else ""
    what = "no window was ever frozen" if newest is None else "no window is frozen"
    return Problem(
        Kind.EMPTY_CHAIN if empty else Kind.NOT_FROZEN,
        f"{facts.topic}: {what} since {to_iso(since)}; {count} overdue{behind}",
        facts.topic,
        command="penstock status",
        details={"since": to_iso(since), "windows_due": late, "records": facts.unfrozen},
        patience=PATIENCE,
    )


def _never_begun(facts: ChainFacts) -> Problem | None:
    if not facts.stored:
        return None
    return Problem(
        Kind.EMPTY_CHAIN,
        f"{facts.topic} holds {facts.stored:,} records and no window was ever frozen; is it "
        "declared with land, and is window_sensor on?",
        facts.topic,
        command="penstock status",
        details={"records": facts.stored},
        patience=timedelta(minutes=5),
    )


def _late_windows(facts: ChainFacts, since: datetime, now: datetime) -> int:
    """How many windows have been due for longer than they may be."""
    if facts.spec is not None and facts.spec.land is not None:
        cron = facts.spec.land.cron
        first = next(iter(due_windows(cron, since, now)), None)
        if first is None:
            return 0
        latest = now - freeze_allowance(first.closes - first.opens)
        return sum(1 for _ in islice(due_windows(cron, since, latest), DUE_COUNTED_MAX))
    if facts.newest is None:
        return 0
    length = from_iso(facts.newest.closed_at) - from_iso(facts.newest.opened_at)
    overdue = now - freeze_allowance(length) - since
    return max(0, min(overdue // length, DUE_COUNTED_MAX))


def _landing(facts: ChainFacts, now: datetime) -> Problem | None:
    """A window whose landing is not tried any more, else one that takes too long."""
    abandoned = [w for w in facts.waiting if w.abandoned]
    if abandoned:
        first = abandoned[0]
        more = f" and {len(abandoned) - 1} more" if len(abandoned) > 1 else ""
        why = f": {first.error}" if first.error else ""
        return Problem(
            Kind.LANDING_ABANDONED,
            f"{facts.topic}: window {first.window.name}{more} is not landed and not tried again "
            f"after {first.attempts} attempts{why}",
            facts.topic,
            command=f"penstock window rerun {facts.topic} {first.window.name}",
            details={"windows": [w.window.name for w in abandoned[:100]]},
        )
    late = [w for w in facts.waiting if now - from_iso(w.window.frozen_at) > _patience(w.window)]
    if not late:
        return None
    age = format_duration(timedelta(seconds=int((now - _frozen(late[0])).total_seconds())))
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return Problem(
        Kind.LANDING_LATE,
        f"{facts.topic}: window {late[0].window.name}{more} was frozen {age} ago and its landing "
        "has no result",
        facts.topic,
        severity="error",
        details={"windows": [w.window.name for w in late[:100]]},
    )


def _frozen(waiting: WaitingWindow) -> datetime:
    return from_iso(waiting.window.frozen_at)


def _patience(window: Window) -> timedelta:
    length = from_iso(window.closed_at) - from_iso(window.opened_at)
    return max(LANDING_ALLOWANCE_WINDOWS * length, LANDING_ALLOWANCE_MIN)


def _retention(facts: ChainFacts, now: datetime) -> Problem | None:
    """The log's oldest window should have been deleted long ago."""
    keep = facts.spec.retention.keep if facts.spec is not None else None
    oldest = facts.oldest_in_log
    if keep is None or oldest is None or (facts.spec is not None and facts.spec.compacted):
        return None
    age = now - from_iso(oldest.closed_at)
    if age <= keep + max(RETENTION_ALLOWANCE_MIN, keep * RETENTION_ALLOWANCE_SHARE):
        return None
    closed = format_duration(timedelta(minutes=int(age.total_seconds() // 60)))
    return Problem(
        Kind.RETENTION_HELD,
        f"{facts.topic}: window {oldest.name} is in the log still, closed {closed} ago and to be "
        f"kept for {format_duration(keep)}; the sweep holds it or does not run",
        facts.topic,
        severity="error",
        command=f"penstock window show {facts.topic} {oldest.name}",
        details={"window": oldest.name},
    )


def _quarantine(facts: ChainFacts) -> Problem | None:
    """More of the newest parsed window is in the quarantine than the topic declares."""
    limit = facts.spec.quarantine.max_share if facts.spec is not None else None
    parsed = facts.parsed
    if limit is None or parsed is None or parsed.share <= limit:
        return None
    return Problem(
        Kind.QUARANTINE_SHARE,
        f"{facts.topic}: {parsed.quarantined:,} of {parsed.parsed + parsed.quarantined:,} records "
        f"of window {parsed.window} do not keep to the contract ({parsed.share:.1%}, declared at "
        f"most {limit:.1%})",
        facts.topic,
        severity="error",
        command=f"penstock window show {facts.topic} {parsed.window}",
        details={"window": parsed.window, "quarantined": parsed.quarantined},
    )


def _daemons(heartbeats: Mapping[str, float | None]) -> list[Problem]:
    stale = {n: s for n, s in heartbeats.items() if s is None or s > HEARTBEAT_SECONDS_MAX}
    if not stale:
        return []
    names = ", ".join(
        f"{name} (never)" if age is None else f"{name} ({age:.0f} s ago)"
        for name, age in sorted(stale.items())
    )
    return [
        Problem(
            Kind.DAEMON_STALE,
            f"Dagster's daemon has stopped reporting: {names}; nothing is launched",
            command="penstock status",
            details={"daemons": sorted(stale)},
            patience=PATIENCE,
        )
    ]


def _disks(disks: Mapping[str, Disk]) -> list[Problem]:
    full = {
        name: disk
        for name, disk in disks.items()
        if disk.free_bytes < disk.total_bytes * DISK_FREE_SHARE_MIN
        and disk.free_bytes < DISK_FREE_BYTES_MIN
    }
    if not full:
        return []
    places = "; ".join(
        f"{name}: {disk.free_bytes:,} of {disk.total_bytes:,} bytes"
        for name, disk in sorted(full.items())
    )
    return [
        Problem(
            Kind.DISK_AT_RISK,
            f"little disk is left for {places}",
            severity="error",
            details={"disks": sorted(full)},
        )
    ]
