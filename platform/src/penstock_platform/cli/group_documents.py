"""Consumer groups as documents: what ``-o json`` prints, and the tables show."""

from __future__ import annotations

from typing import Any

from penstock_platform.clock import to_iso
from penstock_platform.groups.look import GroupLook, GroupSummary
from penstock_platform.groups.model.lag import PartitionLag, total
from penstock_platform.groups.model.rewind import Move, ResetPlan, offset_of


def summary_document(found: GroupSummary) -> dict[str, Any]:
    """One group in a line."""
    return {
        "group": found.listing.name,
        "state": found.listing.state,
        "type": found.listing.kind,
        "protocol_type": found.listing.protocol_type,
        "members": found.members,
        "topics": list(found.topics),
        "lag": found.lag,
    }


def look_document(look: GroupLook) -> dict[str, Any]:
    """A group with its members and partitions."""
    described = look.description
    return {
        "group": described.name,
        "state": described.state,
        "type": described.kind,
        "assignor": described.assignor,
        "at": to_iso(look.at),
        "lag": total(look.lags),
        "members": [
            {
                "member_id": m.member_id,
                "name": look.labels[m.member_id],
                "client_id": m.client_id,
                "host": m.host,
                "instance_id": m.instance_id,
                "partitions": len(m.assigned),
            }
            for m in described.members
        ],
        "partitions": [_partition(look, lag) for lag in look.lags],
    }


def _partition(look: GroupLook, lag: PartitionLag) -> dict[str, Any]:
    return {
        "topic": lag.topic,
        "partition": lag.partition,
        "committed": lag.committed.offset if lag.committed is not None else None,
        "log_start": lag.log.start if lag.log is not None else None,
        "log_end": lag.log.end if lag.log is not None else None,
        "lag": lag.messages,
        "lag_seconds": lag.seconds(look.at),
        "member": lag.owner,
        "member_name": look.labels.get(lag.owner, ""),
        "outside": lag.outside,
    }


def reset_document(
    plan: ResetPlan,
    *,
    plan_file: str | None = None,
    executed: bool = False,
    by: str = "",
    undo: str = "",
    event_problem: str = "",
) -> dict[str, Any]:
    """A plan, or what was executed of it. ``event_problem``: why no asset event was recorded."""
    return {
        "group": plan.group,
        "topic": plan.topic,
        "target": plan.target,
        "executed": executed,
        "plan_file": plan_file,
        "by": by,
        "reason": plan.reason,
        "undo": undo,
        "event_problem": event_problem,
        "partitions": [_move(move) for move in plan.moves],
    }


def _move(move: Move) -> dict[str, Any]:
    return {
        "partition": move.partition,
        "now": offset_of(move.before),
        "then": offset_of(move.after),
        "difference": move.difference,
        "wanted": move.wanted,
    }
