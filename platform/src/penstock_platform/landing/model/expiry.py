"""Which snapshots of a table may expire: none that could still heal a window.

A window's rows are in every snapshot from the commit that wrote them to the one that replaced or
removed them. While nothing has replaced them, the current snapshot has them, and older snapshots
are worth nothing. So only a commit that takes rows away ends the life of a version of some window:
the snapshot before it is the last that has that version. Both get a tag of Iceberg's, which
protects them from expiry for the repair horizon: the snapshot because it can heal the window, the
commit because it says which windows it touched (``Lake.snapshots_with``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

TAG_PREFIX = "penstock-heal-"
# Keys of a snapshot's summary that count what a commit took away.
_TAKEN_AWAY = (
    "deleted-data-files",
    "added-delete-files",
    "added-position-delete-files",
    "added-equality-delete-files",
    "added-dvs",
)


@dataclass(frozen=True, slots=True)
class Commit:
    """One snapshot of a table that is kept. ``takes_away``: rows of some window were replaced or
    removed by it."""

    snapshot_id: int
    parent_id: int | None
    committed_ms: int
    takes_away: bool


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """``tag``: snapshots that get a tag now. ``before``: snapshots committed earlier may go, but
    for tagged ones. ``expirable`` counts those."""

    tag: tuple[int, ...]
    before: datetime
    expirable: int


def tag_name(snapshot_id: int) -> str:
    return f"{TAG_PREFIX}{snapshot_id}"


def takes_away(operation: str, summary: Mapping[str, str]) -> bool:
    """Whether a commit replaced or removed rows, by its summary. A compaction did not; a commit
    whose writer does not say may have."""
    if operation in ("append", "replace"):
        return False
    if operation != "overwrite" or "changed-partition-count" not in summary:
        return True
    return any(int(summary.get(key, 0)) for key in _TAKEN_AWAY)


def plan_expiry(
    commits: Sequence[Commit],
    tagged: Collection[int],
    *,
    now: datetime,
    keep: timedelta,
    repair_horizon: timedelta,
    keep_last: int,
) -> ExpiryPlan:
    """What to protect and what may expire. ``commits`` oldest first; the last is the current one.

    ``keep_last`` snapshots are kept whatever their age, as those younger than ``keep`` are: a
    commit that comes while the plan is carried out finds the snapshot before it in its place.
    """
    since_ms = _ms(now - repair_horizon)
    young = {c.snapshot_id for c in commits if c.committed_ms >= since_ms}
    worth: dict[int, None] = {}
    for commit in commits:
        if commit.takes_away:
            pair = (commit.parent_id, commit.snapshot_id)
            worth |= dict.fromkeys(i for i in pair if i is not None and i in young)
    before = now - keep
    spared = {c.snapshot_id for c in commits[-keep_last:]} | set(worth) | set(tagged)
    old = [c for c in commits if c.committed_ms < _ms(before) and c.snapshot_id not in spared]
    return ExpiryPlan(tuple(i for i in worth if i not in tagged), before, len(old))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
