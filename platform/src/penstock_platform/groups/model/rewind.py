"""Resets of a consumer group as values: the plan, its file, its undo, and whether it still holds.

A plan says for each partition which offset is committed now and which one will be. Nothing here
asks a cluster: offsets, logs and times are arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from penstock_platform.groups.model.lag import within
from penstock_platform.kafka.model import CommittedOffset, LogBounds
from penstock_platform.topics.model.declaration import parse_duration

FORMAT = "penstock-group-reset-v1"
PROBLEMS_SHOWN = 3
PARTITION_MAX, OFFSET_MAX = 2**31 - 1, 2**63 - 1
_ISO_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


class RewindError(ValueError):
    """A reset that cannot be planned: says why, and what would do."""


class PlanFileError(ValueError):
    """A file that is no plan."""


class StalePlanError(RuntimeError):
    """What a plan was made for has changed: names what."""


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of a plan. None is no committed offset: ``after`` None deletes it.

    ``wanted`` is the offset that was asked for, where the log does not have it.
    """

    partition: int
    before: CommittedOffset | None
    after: CommittedOffset | None
    wanted: int | None = None

    @property
    def difference(self) -> int | None:
        """Messages that are skipped; negative: that are read again. None where one is unknown."""
        if self.before is None or self.after is None:
            return None
        return self.after.offset - self.before.offset

    @property
    def changes(self) -> bool:
        return offset_of(self.before) != offset_of(self.after)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """A reset of one group on one incarnation of a topic. ``undo``: the offsets are those from
    before a reset, and are restored also where the log no longer has them."""

    cluster_id: str
    group: str
    topic: str
    topic_id: str
    target: str
    made_at: str
    moves: tuple[Move, ...]
    reason: str = ""
    undo: bool = False
    format: str = FORMAT

    def inverse(self, made_at: str, reason: str) -> ResetPlan:
        """The plan that undoes this one."""
        return replace(
            self,
            target=f"undo of {self.target}",
            made_at=made_at,
            moves=tuple(Move(m.partition, before=m.after, after=m.before) for m in self.moves),
            reason=f"undo: {reason}",
            undo=True,
        )

    def pending(self, committed: Mapping[int, CommittedOffset]) -> tuple[Move, ...]:
        """The moves that are still to be made. Each partition must have the offset of the plan, or
        already the one that it leads to: a plan may be executed again after a crash.

        Raises StalePlanError naming the partitions with another one.
        """
        stale, found = [], []
        for move in self.moves:
            now = offset_of(committed.get(move.partition))
            if now == offset_of(move.before) and move.changes:
                found.append(move)
            elif now != offset_of(move.after):
                stale.append(
                    f"partition {move.partition} has {said(now)}, "
                    f"not {said(offset_of(move.before))}"
                )
        if stale:
            raise StalePlanError(
                f"the plan of {self.made_at} does not hold: group {self.group}, topic "
                f"{self.topic}: {_some(stale)}; make a new plan"
            )
        return tuple(found)

    def require_log(self, logs: Mapping[int, LogBounds]) -> None:
        """The log still has every offset of the plan; an undo restores offsets as they were.

        Raises StalePlanError.
        """
        gone = [
            f"partition {m.partition} will have {m.after.offset:,}, its log is "
            f"{logs[m.partition].start:,} to {logs[m.partition].end:,}"
            for m in self.moves
            if m.after is not None and within(m.after.offset, logs[m.partition]) != m.after.offset
        ]
        if gone and not self.undo:
            raise StalePlanError(
                f"the plan of {self.made_at} does not hold: {_some(gone)}; make a new plan"
            )

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> ResetPlan:
        """Raises PlanFileError for anything but a whole plan."""
        try:
            plan = _PLANS.validate_json(data, strict=True)
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, p['loc'])) or 'the file'}: {p['msg']}" for p in error.errors()
            ]
            raise PlanFileError(f"not a plan of penstock group reset: {_some(problems)}") from error
        if plan.format != FORMAT:
            raise PlanFileError(f"format {plan.format!r}: this version reads {FORMAT}")
        partitions = [m.partition for m in plan.moves]
        offsets = [o.offset for m in plan.moves for o in (m.before, m.after) if o is not None]
        if len(set(partitions)) < len(partitions):
            raise PlanFileError("its moves name a partition twice")
        if not all(0 <= p <= PARTITION_MAX for p in partitions) or not all(
            0 <= offset <= OFFSET_MAX for offset in offsets
        ):
            raise PlanFileError("its moves name a partition or an offset that Kafka cannot have")
        return plan


_PLANS: TypeAdapter[ResetPlan] = TypeAdapter(ResetPlan)


def moves_to(
    wanted: Mapping[int, int],
    logs: Mapping[int, LogBounds],
    committed: Mapping[int, CommittedOffset],
) -> tuple[Move, ...]:
    """The moves to these offsets, each clamped to its partition's log."""
    return tuple(
        Move(
            partition=p,
            before=committed.get(p),
            after=CommittedOffset(within(offset, logs[p])),
            wanted=offset if within(offset, logs[p]) != offset else None,
        )
        for p, offset in sorted(wanted.items())
    )


def shifted(
    partitions: Iterable[int], committed: Mapping[int, CommittedOffset], by: int
) -> dict[int, int]:
    """The committed offsets, so many messages later. Raises RewindError for partitions without."""
    wanted = list(partitions)
    if without := [p for p in wanted if p not in committed]:
        raise RewindError(
            f"nothing is committed for {partitions_text(without)}, so there is nothing to shift; "
            "name the other partitions (--topic TOPIC:0,1), or use another target"
        )
    return {p: committed[p].offset + by for p in wanted}


def from_time(found: Mapping[int, int | None], logs: Mapping[int, LogBounds]) -> dict[int, int]:
    """The offsets that were found for a time; the log's end where no record is that late."""
    return {p: logs[p].end if offset is None else offset for p, offset in found.items()}


def duration_of(text: str) -> timedelta:
    """ISO 8601 (``PT1H30M``, ``P7D``), or as in declarations (``90m``). Raises RewindError."""
    if match := _ISO_DURATION.fullmatch(text.strip()):
        return timedelta(**{unit: float(n) for unit, n in match.groupdict().items() if n})
    try:
        return parse_duration(text)
    except ValueError as error:
        raise RewindError(f"{text!r} is not a duration; write PT1H30M, P7D, 90m or 2h") from error


def topic_and_partitions(text: str) -> tuple[str, tuple[int, ...]]:
    """``orders``, or ``orders:0,2``: no partitions are all of them. Raises RewindError."""
    topic, colon, listed = text.partition(":")
    parts = listed.split(",") if colon else []
    if not topic or not all(part.isdecimal() for part in parts):
        raise RewindError(f"{text!r} is not a topic; write TOPIC, or TOPIC:0,2 for partitions")
    return topic, tuple(sorted({int(part) for part in parts}))


def partitions_text(partitions: Iterable[int]) -> str:
    """``partition 3``, ``partitions 0, 2``."""
    numbers = sorted(partitions)
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def offset_of(committed: CommittedOffset | None) -> int | None:
    return None if committed is None else committed.offset


def said(offset: int | None) -> str:
    return "no offset" if offset is None else f"{offset:,}"


def _some(sentences: list[str]) -> str:
    more = len(sentences) - PROBLEMS_SHOWN
    shown = ", ".join(sentences[:PROBLEMS_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def plain(plan: ResetPlan) -> dict[str, Any]:
    """Offsets before and after by partition, as an event records them."""
    return {
        "before": {str(m.partition): offset_of(m.before) for m in plan.moves},
        "after": {str(m.partition): offset_of(m.after) for m in plan.moves},
    }
