"""Resetting a consumer group's offsets: plan, execute, undo.

Kafka has no compare-and-set of offsets. What protects a reset: the coordinator refuses a commit
from outside while the group has members, the offsets are compared with the plan right before, and
read back right after.

Killed at any point: the undo plan is written before anything is changed, and a plan can be
executed again: partitions that have their new offset already are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock_platform.clock import to_iso
from penstock_platform.connections import Connections
from penstock_platform.groups.look import existing, labels_of
from penstock_platform.groups.model.rewind import (
    Move,
    ResetPlan,
    RewindError,
    StalePlanError,
    from_time,
    moves_to,
    offset_of,
    partitions_text,
    shifted,
)
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.groups import DEAD, KafkaGroups
from penstock_platform.kafka.model import CommittedOffset, LogBounds, TopicRef
from penstock_platform.problems import meant

EMPTY_STATES = frozenset({"Empty", DEAD})
MEMBERS_SHOWN = 5


class ActiveGroupError(RuntimeError):
    """The group has members, which commit offsets of their own: names them."""


class Kind(StrEnum):
    """Where a reset leads."""

    OFFSET = "--to-offset"
    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    TIME = "--to-time"
    DURATION = "--by-duration"
    SHIFT = "--shift-by"
    WINDOW = "--to-window"


@dataclass(frozen=True, slots=True)
class Target:
    """What the user asked for. ``text`` is the option's value; ``number`` an offset or a shift,
    ``timestamp_ms`` a time, ``starts`` the first offsets of a window."""

    kind: Kind
    text: str = ""
    number: int = 0
    timestamp_ms: int = 0
    starts: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.text}".strip()


def plan_reset(
    penstock: Connections,
    group: str,
    topic: str,
    partitions: Sequence[int],
    target: Target,
    *,
    reason: str = "",
) -> ResetPlan:
    """What a reset would do to these partitions, or to all of the topic without any. Changes
    nothing. Raises UnknownGroupError, UnknownTopicError, RewindError."""
    groups = penstock.kafka.groups
    existing(groups, group)
    ref, wanted = topic_of(penstock, topic), _partitions(groups, topic, partitions)
    logs = _logs(groups, topic, wanted)
    committed = _committed(groups, group, topic)
    offsets = _offsets(penstock, ref, target, logs, committed)
    return ResetPlan(
        cluster_id=ref.cluster_id,
        group=group,
        topic=topic,
        topic_id=ref.topic_id,
        target=str(target),
        made_at=to_iso(penstock.clock.now()),
        moves=moves_to(offsets, logs, committed),
        reason=reason,
    )


def apply_plan(
    penstock: Connections,
    plan: ResetPlan,
    reason: str,
    write_undo: Callable[[ResetPlan], None],
) -> ResetPlan:
    """Commit the offsets of a plan; returns the moves that were made, none where every partition
    has its offset already. ``write_undo`` gets the plan that undoes them before anything is
    changed, and is not called where there is nothing to do.

    Raises ActiveGroupError, StalePlanError, ClusterError.
    """
    groups = penstock.kafka.groups
    require_same_topic(penstock, plan)
    require_empty(groups, plan.group)
    committed = _committed(groups, plan.group, plan.topic)
    moves = plan.pending(committed)
    logs = _logs(groups, plan.topic, [m.partition for m in moves])
    # What is committed now, with its epoch and text, is what an undo restores.
    moves = tuple(replace(m, before=committed.get(m.partition)) for m in moves)
    done = replace(plan, moves=moves, reason=reason)
    done.require_log(logs)
    if not moves:
        return done
    write_undo(done.inverse(to_iso(penstock.clock.now()), reason))
    try:
        _commit(groups, done)
    except ClusterError:
        require_empty(groups, plan.group)  # a member may have come: that says more
        raise
    _require_committed(groups, done)
    return done


def require_empty(groups: KafkaGroups, name: str) -> None:
    """Raises ActiveGroupError naming the members."""
    found = groups.describe([name])[name]
    if not found.members and found.state in EMPTY_STATES:
        return
    labels = labels_of(found.members)
    named = [f"{labels[m.member_id]} ({m.host})" for m in found.members[:MEMBERS_SHOWN]]
    more = len(found.members) - MEMBERS_SHOWN
    named += [f"{more} more"] if more > 0 else []
    number = f"{len(found.members)} member{'' if len(found.members) == 1 else 's'}"
    members = f"{number}: {', '.join(named)}" if named else f"state {found.state}"
    raise ActiveGroupError(
        f"group {name} has {members}; only a group without members can be reset: stop them, then "
        "run it again"
    )


def require_same_topic(penstock: Connections, plan: ResetPlan) -> None:
    """Raises StalePlanError for another cluster, or for a topic that was recreated."""
    ref = topic_of(penstock, plan.topic)
    if ref.cluster_id != plan.cluster_id:
        raise StalePlanError(
            f"the plan is of cluster {plan.cluster_id}, and {penstock.kafka.servers} is cluster "
            f"{ref.cluster_id}; make a new plan"
        )
    if ref.topic_id != plan.topic_id:
        raise StalePlanError(
            f"topic {plan.topic} was recreated since the plan of {plan.made_at}: its offsets are "
            "of other records; make a new plan"
        )


def topic_of(penstock: Connections, topic: str) -> TopicRef:
    """Raises UnknownTopicError naming the nearest there is."""
    try:
        return penstock.kafka.ref(topic)
    except UnknownTopicError as error:
        hint = meant(topic, penstock.kafka.topics()) or "; see: penstock topic list"
        raise UnknownTopicError(f"{penstock.kafka.servers} has no topic {topic}{hint}") from error


def _partitions(groups: KafkaGroups, topic: str, wanted: Sequence[int]) -> list[int]:
    there = groups.partitions().get(topic, ())
    if unknown := sorted(set(wanted) - set(there)):
        raise RewindError(
            f"topic {topic} has no {partitions_text(unknown)}; it has 0 to {len(there) - 1}"
        )
    return sorted(wanted or there)


def _logs(groups: KafkaGroups, topic: str, partitions: Sequence[int]) -> dict[int, LogBounds]:
    found = groups.bounds([(topic, p) for p in partitions])
    return {p: bounds for (_, p), bounds in found.items()}


def _committed(groups: KafkaGroups, group: str, topic: str) -> dict[int, CommittedOffset]:
    return {p: o for (name, p), o in groups.committed([group])[group].items() if name == topic}


def _offsets(
    penstock: Connections,
    ref: TopicRef,
    target: Target,
    logs: Mapping[int, LogBounds],
    committed: Mapping[int, CommittedOffset],
) -> dict[int, int]:
    """The offset that is asked for, by partition; the log may not have it."""
    match target.kind:
        case Kind.EARLIEST:
            return {p: log.start for p, log in logs.items()}
        case Kind.LATEST:
            return {p: log.end for p, log in logs.items()}
        case Kind.OFFSET:
            return dict.fromkeys(logs, target.number)
        case Kind.SHIFT:
            return shifted(logs, committed, target.number)
        case Kind.WINDOW:  # a partition that was added later begins at 0, as in the chain
            return {p: target.starts.get(p, 0) for p in logs}
        case Kind.TIME | Kind.DURATION:
            found = penstock.kafka.groups.first_at(
                [(ref.topic, p) for p in logs], target.timestamp_ms
            )
            return from_time({p: offset for (_, p), offset in found.items()}, logs)


def _commit(groups: KafkaGroups, plan: ResetPlan) -> None:
    kept = {m.partition: m.after for m in plan.moves if m.after is not None}
    groups.commit(plan.group, plan.topic, kept)
    groups.remove(plan.group, plan.topic, [m.partition for m in plan.moves if m.after is None])


def _require_committed(groups: KafkaGroups, plan: ResetPlan) -> None:
    now = _committed(groups, plan.group, plan.topic)

    def missed(move: Move) -> bool:
        return offset_of(now.get(move.partition)) != offset_of(move.after)

    if other := [m.partition for m in plan.moves if missed(m)]:
        raise ClusterError(
            f"group {plan.group}: another client changed {partitions_text(other)} of topic "
            f"{plan.topic} at the same time; see: penstock group describe {plan.group}"
        )
