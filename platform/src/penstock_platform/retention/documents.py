"""A sweep's plan as documents: what `penstock retention -o json` prints, and tables show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock_platform.clock import to_iso
from penstock_platform.retention.look import SweepLook
from penstock_platform.retention.model.plan import SweepAction
from penstock_platform.retention.model.spans import Span, merged, span_at
from penstock_platform.topics.model.declaration import RetentionSpec


def plan_document(look: SweepLook) -> dict[str, Any]:
    """A plan: per partition the offsets that go or stay, and why."""
    before = look.plan.delete_before
    return {
        "topic": look.spec.name,
        "at": to_iso(look.at),
        "retention": policy_document(look.spec.retention),
        "windows_looked_at": len(look.windows),
        "windows_deleted": names_of(look, SweepAction.DELETE),
        "windows_held": names_of(look, SweepAction.HOLD),
        "records_deleted": look.records_deleted,
        "partitions": [
            {
                "partition": p,
                "log_start": log.start,
                "log_end": log.end,
                "delete_before": before.get(p),
                "ranges": [span_row(s) for s in merged(s for s in look.spans if s.partition == p)],
            }
            for p, log in sorted(look.bounds.items())
        ],
        "forecast": asdict(look.forecast),
        "risks": list(look.plan.risks),
    }


def offset_document(look: SweepLook, partition: int, offset: int) -> dict[str, Any]:
    """What a sweep now would do with one offset, and why."""
    span = span_at(look.spans, partition, offset, look.bounds[partition])
    return {
        "topic": look.spec.name,
        "partition": partition,
        "offset": offset,
        "at": to_iso(look.at),
        "deletable": span.deleted,
        "action": str(span.action),
        "cause": str(span.cause),
        "reason": span.reason,
        "window": span.first or None,
        "range": [span.start, span.end],
    }


def policy_document(retention: RetentionSpec) -> dict[str, Any]:
    """The declaration's key ``retention``."""
    return retention.model_dump(mode="json")


def names_of(look: SweepLook, action: SweepAction) -> list[str]:
    """The windows that the plan does this with."""
    return [d.window for d in look.plan.decisions if d.action is action]


def span_row(span: Span) -> dict[str, Any]:
    """Offsets with one fate, in a line."""
    return {
        "partition": span.partition,
        "start": span.start,
        "end": span.end,
        "records": span.records,
        "action": str(span.action),
        "cause": str(span.cause),
        "windows": _windows(span),
        "reason": span.reason,
    }


def _windows(span: Span) -> str:
    if span.windows > 1:
        return f"{span.first} … {span.last} ({span.windows})"
    return span.first
