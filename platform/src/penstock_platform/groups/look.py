"""What is known of consumer groups now: one look at members, committed offsets and logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock_platform.connections import Connections
from penstock_platform.groups.model.lag import PartitionLag, total, within
from penstock_platform.kafka.errors import ClusterError, UnknownGroupError, UnknownTopicError
from penstock_platform.kafka.groups import DEAD, KafkaGroups, Place
from penstock_platform.kafka.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    LogBounds,
)
from penstock_platform.problems import meant


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a line. ``lag`` is None where nothing is committed."""

    listing: GroupListing
    members: int
    topics: tuple[str, ...]
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group with every partition that it has an offset for, or a member."""

    at: datetime
    description: GroupDescription
    lags: tuple[PartitionLag, ...]
    labels: Mapping[str, str] = field(default_factory=dict)  # member id → a short name

    @property
    def topics(self) -> list[str]:
        return sorted({lag.topic for lag in self.lags})

    def of_topic(self, topic: str) -> list[PartitionLag]:
        return [lag for lag in self.lags if lag.topic == topic]


def summaries(penstock: Connections) -> list[GroupSummary]:
    """All groups of the cluster, by name; a fixed number of requests a broker."""
    groups = penstock.kafka.groups
    listings = groups.listings()
    names = [listing.name for listing in listings]
    described, committed = groups.describe(names), groups.committed(names)
    there = _existing(groups, (place for offsets in committed.values() for place in offsets))
    bounds = groups.bounds(there)
    return [
        _summary(listing, described[listing.name], committed[listing.name], bounds)
        for listing in listings
    ]


def look_at(penstock: Connections, name: str, topic: str | None = None) -> GroupLook:
    """One group with its lag, of all topics or of one. Raises UnknownGroupError, or
    UnknownTopicError for a topic that the group has nothing to do with."""
    groups = penstock.kafka.groups
    description = existing(groups, name)
    committed = groups.committed([name])[name]
    owners = {place: member for member in description.members for place in member.assigned}
    places = sorted(set(committed) | set(owners))
    if topic is not None:
        places = [place for place in places if place[0] == topic]
        if not places:
            raise _unrelated(groups, name, topic, {t for t, _ in [*committed, *owners]})
    bounds = groups.bounds(_existing(groups, places))
    unread = {
        place: within(offset.offset, bounds[place])
        for place, offset in committed.items()
        if place in bounds and place in places and offset.offset < bounds[place].end
    }
    stamps = groups.first_stamps(unread)
    labels = labels_of(description.members)
    lags = [
        PartitionLag(
            topic=place[0],
            partition=place[1],
            committed=committed.get(place),
            log=bounds.get(place),
            owner=owners[place].member_id if place in owners else "",
            unread_ms=stamps.get(place),
            all_read=place in stamps and stamps[place] is None,
        )
        for place in places
    ]
    return GroupLook(penstock.clock.now(), description, tuple(lags), labels)


def existing(groups: KafkaGroups, name: str) -> GroupDescription:
    """The group. Raises UnknownGroupError naming the nearest there is."""
    found = groups.describe([name])[name]
    if found.state != DEAD:
        return found
    names = [listing.name for listing in groups.listings()]
    if name in names:  # about to expire, with offsets that can still be read
        return found
    hint = meant(name, names) or "; see: penstock group list"
    raise UnknownGroupError(f"{groups.servers} has no consumer group {name}{hint}")


def labels_of(members: Sequence[GroupMember]) -> dict[str, str]:
    """A short name of each member: its client id, with the end of its member id where several
    have the same."""
    clients = [member.client_id for member in members]
    return {
        m.member_id: m.client_id
        if clients.count(m.client_id) == 1
        else f"{m.client_id}…{m.member_id[-6:]}"
        for m in members
    }


def _summary(
    listing: GroupListing,
    description: GroupDescription,
    committed: Mapping[Place, CommittedOffset],
    bounds: Mapping[Place, LogBounds],
) -> GroupSummary:
    lags = [PartitionLag(*at, offset, bounds.get(at)) for at, offset in committed.items()]
    assigned = {topic for member in description.members for topic, _ in member.assigned}
    return GroupSummary(
        listing=listing,
        members=len(description.members),
        topics=tuple(sorted(assigned | {topic for topic, _ in committed})),
        lag=total(lags),
    )


def _existing(groups: KafkaGroups, places: Iterable[Place]) -> list[Place]:
    """Those of the cluster: a group may have offsets of a topic that was deleted."""
    partitions = groups.partitions()
    return sorted({(topic, p) for topic, p in places if p in partitions.get(topic, ())})


def _unrelated(groups: KafkaGroups, name: str, topic: str, topics: Iterable[str]) -> ClusterError:
    known = sorted(topics)
    if topic not in groups.partitions():
        hint = meant(topic, known) or "; see: penstock topic list"
        return UnknownTopicError(f"{groups.servers} has no topic {topic}{hint}")
    return ClusterError(
        f"group {name} has no offsets of topic {topic} and no member that reads it"
        f"{meant(topic, known) or '; see: penstock group describe ' + name}"
    )
