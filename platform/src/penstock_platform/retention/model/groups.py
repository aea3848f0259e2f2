"""Consumer groups that a sweep waits for: what each of them has read, and what it has not.

A committed offset is the one that the group reads next: it has read everything before it. Where a
group has committed nothing, it has read nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock_platform.kafka.model import CommittedOffset, LogBounds
from penstock_platform.windows.model.window import Window


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A declared group: per partition the offset before which it has read the log as it is now.
    ``odd``: why a committed offset does not count, or counts only in part. ``problem``: why
    nothing is known of the group."""

    group: str
    read_to: Mapping[int, int] = field(default_factory=dict)
    odd: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def progress_of(
    group: str,
    committed: Mapping[int, CommittedOffset],
    bounds: Mapping[int, LogBounds],
    windows: Iterable[Window] = (),
) -> GroupProgress:
    """What these offsets prove about the log as it is now. ``bounds`` were read after them.

    ``windows`` say where the log was truncated: an offset committed before that, by the leader
    epoch that is stored with it, says nothing about the records that have those offsets now. (An
    offset that was stored without an epoch is believed, unless it is beyond the log's end.)
    """
    read_to = {p: found.offset for p, found in committed.items()}
    odd: dict[int, str] = {}
    for window in windows:
        for part in window.partitions:
            cut, found = part.truncated, committed.get(part.p)
            if cut is None or found is None or not 0 <= found.leader_epoch <= cut.from_epoch:
                continue
            if read_to[part.p] > cut.offset:
                read_to[part.p] = cut.offset
                odd[part.p] = (
                    f"committed {found.offset:,} of partition {part.p} before its log was cut "
                    f"at {cut.offset:,}"
                )
    for p, offset in read_to.items():
        if p in bounds and offset > bounds[p].end:
            read_to[p] = bounds[p].start
            odd[p] = (
                f"committed {offset:,} of partition {p}, beyond the log's end at "
                f"{bounds[p].end:,}: its log was cut"
            )
    return GroupProgress(group, read_to, odd)


def unread_reason(
    progress: GroupProgress, reach: Mapping[int, int], log_starts: Mapping[int, int]
) -> str | None:
    """Why the group still needs records before these offsets; None where it does not.

    ``reach``: per partition the offset before which records would be deleted. A partition of which
    nothing would be deleted needs no commit.
    """
    wanted = {p: end for p, end in sorted(reach.items()) if end > log_starts.get(p, 0)}
    unread = [p for p, end in wanted.items() if progress.read_to.get(p, -1) < end]
    if not unread:
        return None
    name = f"group {progress.group}"
    if progress.problem:
        return f"{name} {progress.problem}"
    if not progress.read_to:
        return f"{name} has committed nothing of this topic"
    first = unread[0]
    more = f" (and {len(unread) - 1} more partitions)" if len(unread) > 1 else ""
    if first in progress.odd:
        return f"{name} {progress.odd[first]}{more}"
    if first not in progress.read_to:
        return f"{name} has committed nothing of partition {first}{more}"
    return (
        f"{name} has read partition {first} up to {progress.read_to[first]:,}, and the window ends "
        f"there at {wanted[first]:,}{more}"
    )
