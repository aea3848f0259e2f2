"""Retention: the sweep of a topic's log, explained window by window.

The plan is ``retention/model.py``'s; this gathers what it needs to know (the log's starts, each
due window proven again in this run) and applies it through DeleteRecords. Bronze keeps everything.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.retention.model import (
    PartitionLog,
    SweepAction,
    SweepCandidate,
    SweepPlan,
    SweepPolicy,
    new_leaders,
    plan_sweep,
)
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.metadata import table
from penstock_platform.topics.names import RETENTION, Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import SWEEP, build_schedule
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.store import WindowStore

LOG = logging.getLogger("penstock.retention")
APPLY_TAG = "penstock/apply"
# A sweep checks this many of the oldest windows in the log; the next sweep checks later ones.
WINDOWS_MAX = 500
DECISION_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("window", "string"),
        dg.TableColumn("action", "string", "gone, delete, hold or keep"),
        dg.TableColumn("reason", "string", "Why"),
    ]
)


def build_retention(plan: TopicPlan, *, apply: bool) -> dg.AssetsDefinition:
    """``["retention", <topic>]``. Deletes only where the declaration says ``apply`` and the run
    carries the tag ``penstock/apply: true``, as runs of the job ``retention`` do; every other run,
    the one of a click on Materialize among them, only explains."""
    keep = plan.spec.retention

    @dg.asset(
        key=plan.retention_key,
        group_name="retention",
        kinds={"kafka"},
        owners=plan.owners,
        tags=plan.tags,
        deps=[plan.books_key],
        required_resource_keys={"penstock"},
        check_specs=[
            dg.AssetCheckSpec(
                "policy_kept",
                asset=plan.retention_key,
                blocking=False,
                description="No window outlives its policy: every due window is proven.",
            )
        ],
        description=(
            f"The sweep of `{plan.name}` (keep: "
            f"{keep.model_dump(mode='json', exclude_none=True)}). Deletes whole windows from the "
            "front of the log that are old enough, landed, proven again in this very run, and "
            "whose producers' evidence is complete. Whatever else is due is held, with the reason. "
            + (
                f"Only a run with the tag `{APPLY_TAG}: true`, such as one of the retention job, "
                "deletes; any other explains."
                if apply
                else "Nothing is deleted: the declaration says `retention: {apply: false}`."
            )
        ),
    )
    def retention(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult[Any]]:
        penstock: Connections = context.resources.penstock
        try:
            sweep, windows = explain(penstock, plan)
        except UnknownTopicError:
            raise dg.Failure(
                f"topic {plan.name} does not exist yet, so there is nothing to sweep",
                allow_retries=False,
            ) from None
        asked = context.run.tags.get(APPLY_TAG) == "true"
        applying = apply and asked
        if applying:
            apply_sweep(penstock, plan, sweep, windows)
        elif sweep.deleted:
            context.log.info(only_explained(len(sweep.deleted), apply=apply))
        for decision in sweep.decisions:
            if decision.action in (SweepAction.DELETE, SweepAction.HOLD):
                context.log.info("%s: %s, %s", decision.window, decision.action, decision.reason)
        yield dg.MaterializeResult(
            metadata={
                "applied": applying,
                "windows_deleted": len(sweep.deleted) if applying else 0,
                "windows_held": len(sweep.held),
                "records_deleted": records_of(windows, sweep.deleted) if applying else 0,
                "decisions": table(decision_rows(sweep), DECISION_SCHEMA),
            },
            check_results=[held_result(plan, sweep)],
        )

    return retention


def only_explained(windows: int, *, apply: bool) -> str:
    """Why a run deleted nothing, and what would make it."""
    if not apply:
        return (
            f"{windows} windows may be deleted and stay: the PlatformComponent says "
            "retention: {apply: false}; set apply: true there to delete"
        )
    return (
        f"{windows} windows may be deleted and stay: this run only explains. The retention job "
        f"deletes, or a run with the tag {APPLY_TAG}: true"
    )


def explain(penstock: Connections, plan: TopicPlan) -> tuple[SweepPlan, list[Window]]:
    """The plan, and its windows. Reads only. Raises UnknownTopicError."""
    ref = penstock.kafka.ref(plan.name)
    offsets = penstock.kafka.offsets(plan.name)
    starts = {p: o.log_start for p, o in offsets.items()}
    first = first_in_log(penstock, ref, starts)
    windows: list[Window] = []
    for window in WindowStore.of(penstock).all(ref, first):
        windows.append(window)
        if len(windows) == WINDOWS_MAX:
            break
    policy = SweepPolicy(
        retention=plan.spec.retention,
        accept_unaudited=plan.spec.audit.accept_unaudited,
        compacted=plan.spec.compacted,
    )
    now = penstock.clock.now()
    logs = log_sizes(penstock, plan, offsets)
    later = truncated_behind(penstock, windows)

    not_now = new_leader_reason(penstock, ref, offsets)

    def planned(candidates: Sequence[SweepCandidate]) -> SweepPlan:
        return plan_sweep(
            now, candidates, policy, starts, logs=logs, later_starts=later, not_now=not_now
        )

    # Which are due does not depend on proof: prove those alone.
    ages = planned([SweepCandidate(w) for w in windows])
    due = {d.sequence for d in ages.decisions if d.action is SweepAction.HOLD}
    return planned(
        [candidate(penstock, plan, w, proving=w.sequence in due) for w in windows]
    ), windows


def new_leader_reason(
    penstock: Connections, ref: TopicRef, offsets: Mapping[int, PartitionOffsets]
) -> str:
    """Why nothing is deleted before the next freeze; empty where no leader has changed."""
    newest = WindowStore.of(penstock).newest(ref)
    if newest is None:
        return ""
    moved = new_leaders(newest, {p: o.leader_epoch for p, o in offsets.items()})
    if not moved:
        return ""
    return (
        f"partitions {moved} have another leader since window {newest.name} was frozen; the next "
        "freeze looks for a truncation first"
    )


def log_sizes(
    penstock: Connections, plan: TopicPlan, offsets: Mapping[int, PartitionOffsets]
) -> dict[int, PartitionLog] | None:
    """The log as it is on disk, asked only where a size limits it; None where it is not known."""
    if plan.spec.retention.max_bytes is None:
        return None
    try:
        sizes = penstock.kafka.log_bytes(plan.name)
    except UnknownTopicError:
        raise
    except ClusterError as error:
        LOG.warning("%s: max_bytes limits nothing in this sweep: %s", plan.name, error)
        return None
    return {
        p: PartitionLog(o.log_start, o.high_watermark, sizes.get(p, 0)) for p, o in offsets.items()
    }


def truncated_behind(penstock: Connections, windows: Sequence[Window]) -> dict[int, int]:
    """Per partition the least offset at which a window behind these begins after a truncation."""
    least: dict[int, int] = {}
    newest = WindowStore.of(penstock).newest(windows[-1].ref) if windows else None
    place = newest.last_truncation if newest is not None else None
    while newest is not None and place is not None and place > windows[-1].sequence:
        window = WindowStore.of(penstock).get(newest.ref, place)
        before = WindowStore.of(penstock).get(newest.ref, place - 1)
        if window is None or before is None:
            raise ChainError(f"window {newest.topic_id}/{place} is missing inside its chain")
        for p in window.partitions:
            if p.truncated is not None:
                least[p.p] = min(p.start, least.get(p.p, p.start))
        place = before.last_truncation
    return least


def first_in_log(penstock: Connections, ref: TopicRef, starts: dict[int, int]) -> int:
    """The sequence of the oldest window that the log still holds anything of."""
    newest = WindowStore.of(penstock).newest(ref)
    low, high = 0, newest.sequence if newest is not None else 0
    while low < high:
        middle = (low + high) // 2
        window = WindowStore.of(penstock).get(ref, middle)
        gone = window is not None and all(starts.get(p.p, 0) >= p.end for p in window.partitions)
        low, high = (middle + 1, high) if gone else (low, middle)
    return low


def candidate(
    penstock: Connections, plan: TopicPlan, window: Window, *, proving: bool
) -> SweepCandidate:
    """A window with its book, and where it is due with equations 1 and 3 judged now."""
    if not proving:
        return SweepCandidate(window)
    books = Bookkeeper(penstock)
    return SweepCandidate(
        window=window,
        reproved=books.judge_landed(window, plan.spec).result,
        parsed=books.judge_parsed(window, plan.spec).result if plan.contract is not None else None,
        book=books.newest(window),
        acceptances=BookStore.of(penstock).acceptances(window.ref, window.sequence),
    )


def apply_sweep(
    penstock: Connections, plan: TopicPlan, sweep: SweepPlan, windows: Sequence[Window]
) -> None:
    """Delete, then record. Killed in between, the next sweep finds the windows gone already."""
    penstock.kafka.delete_records(plan.name, sweep.delete_before)
    reasons = {d.sequence: d.reason for d in sweep.decisions if d.action is SweepAction.DELETE}
    for window in windows:
        if window.sequence in reasons:
            BookStore.of(penstock).retire(window, penstock.clock.now(), reasons[window.sequence])


def held_result(plan: TopicPlan, sweep: SweepPlan) -> dg.AssetCheckResult:
    """Red when data outlives its policy: a person has to act, or the disk fills."""
    return dg.AssetCheckResult(
        asset_key=plan.retention_key,
        check_name="policy_kept",
        passed=not sweep.risks,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(sweep.risks) or "nothing outlives its policy",
        metadata={"held": len(sweep.held), "risks": list(sweep.risks)},
    )


def decision_rows(sweep: SweepPlan) -> list[dict[str, Any]]:
    """What is decided, the interesting first: held, deleted, kept, gone."""
    order = [SweepAction.HOLD, SweepAction.DELETE, SweepAction.KEEP, SweepAction.GONE]
    decisions = sorted(sweep.decisions, key=lambda d: (order.index(d.action), d.sequence))
    return [{"window": d.window, "action": str(d.action), "reason": d.reason} for d in decisions]


def records_of(windows: Sequence[Window], sequences: Sequence[int]) -> int:
    return sum(w.record_count for w in windows if w.sequence in set(sequences))


def build_retention_schedule(
    plans: Sequence[TopicPlan], cron: str, *, apply: bool, names: Names
) -> dg.Definitions:
    """The sweeps' assets, and one job for all of them on its schedule."""
    job = build_job(
        names.of(RETENTION),
        dg.AssetSelection.assets(*(plan.retention_key for plan in plans)),
        job=RETENTION,
        cluster=plans[0].cluster,
        description="Delete windows that are proven and old enough.",
        run_tags={APPLY_TAG: "true" if apply else "false"},
    )
    schedule = build_schedule(
        job,
        cron,
        priority=SWEEP,
        description="Delete windows that are proven and old enough; hold the others.",
    )
    assets = [build_retention(plan, apply=apply) for plan in plans]
    return dg.Definitions(assets=assets, jobs=[job], schedules=[schedule])
