"""Claims that come after a window was decided: which windows are to be judged again.

A book says how far the audit topic was read for it. An event behind that place, with a claim on
offsets of the window, is news for the window. A claim past the end of the log concerns the newest
window, which looks for a lost tail. Windows are open to late evidence until the horizon: the
reading of their evidence ends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.audit_events import PlacedEvent
from penstock_platform.windows.model.window import Window

Places = Mapping[int, int]  # partition of the audit topic to the offset behind what is meant
_SPAN = re.compile(r"(\d+):(\d+)-(\d+)")


def read_until(audit_ranges: str) -> dict[int, int]:
    """Up to where the audit topic was read, by the ``audit_ranges`` of a book's evidence."""
    return {int(p): int(end) for p, _, end in _SPAN.findall(audit_ranges)}


def concerned(
    windows: Sequence[Window], events: Iterable[PlacedEvent], log_ends: Mapping[int, int]
) -> dict[int, dict[int, int]]:
    """Sequences of the windows that these events claim something of, each with how far the audit
    topic has to be read for that.

    ``windows``: of one incarnation of a topic, oldest first, the last being the newest.
    ``log_ends``: the topic's high watermarks, read after the events.
    """
    needed: dict[int, dict[int, int]] = {}
    for placed in events:
        for window in _claimed(windows, placed, log_ends):
            places = needed.setdefault(window.sequence, {})
            end = placed.offset + 1
            places[placed.partition] = max(places.get(placed.partition, 0), end)
    return needed


def news(needed: Places, audit_ranges: str) -> bool:
    """Whether a book that read these ranges did not read what is needed."""
    known = read_until(audit_ranges)
    return any(known.get(p, 0) < end for p, end in needed.items())


def _claimed(
    windows: Sequence[Window], placed: PlacedEvent, log_ends: Mapping[int, int]
) -> list[Window]:
    if not windows:
        return []
    ref = windows[-1].ref
    claims = [
        OffsetRange(claim.partition, claim.start, claim.end)
        for account in placed.event.topics
        if account.topic == ref.topic and account.topic_id in {None, ref.topic_id}
        for claim in account.claims
    ]
    found = [w for w in windows if any(_overlap(r, c) for r in w.ranges for c in claims)]
    beyond = any(c.end > log_ends.get(c.partition, c.end) for c in claims)
    if beyond and windows[-1] not in found:
        found.append(windows[-1])
    return found


def _overlap(a: OffsetRange, b: OffsetRange) -> bool:
    return a.partition == b.partition and a.start < b.end and b.start < a.end
