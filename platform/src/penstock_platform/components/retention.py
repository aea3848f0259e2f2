"""Retention: the sweep of a topic's log, explained window by window.

The plan is ``domain/retention.py``'s; this gathers what it needs to know (the log's starts, each
due window proven again in this run) and applies it through DeleteRecords. Bronze keeps everything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg

from penstock_platform.components.metadata import table
from penstock_platform.components.plan import TopicPlan
from penstock_platform.components.schedules import SWEEP, build_schedule
from penstock_platform.domain.retention import (
    SweepAction,
    SweepPlan,
    SweepPolicy,
    WindowStanding,
    plan_sweep,
)
from penstock_platform.domain.topics import bronze_table
from penstock_platform.domain.windows import Window
from penstock_platform.resources.books import Bookkeeper
from penstock_platform.resources.connections import Connections
from penstock_platform.resources.kafka import UnknownTopicError

APPLY_TAG = "penstock/apply"
# A sweep looks at this many windows of the log's front; what lies behind them is the next one's.
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
                description="Nothing outlives its policy: no due window is held for want of proof.",
            )
        ],
        description=(
            f"The sweep of `{plan.name}` (keep: "
            f"{keep.model_dump(mode='json', exclude_none=True)}). Deletes whole windows from the "
            "front of the log that are old enough, landed, proven again in this very run, and "
            "whose producers' evidence is complete. Whatever else is due is held, with the reason. "
            + (
                f"Only a run with the tag `{APPLY_TAG}: true`, such as one of the job `retention`, "
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
        f"{windows} windows may be deleted and stay: this run only explains. The job `retention` "
        f"deletes, or a run with the tag {APPLY_TAG}: true"
    )


def explain(penstock: Connections, plan: TopicPlan) -> tuple[SweepPlan, list[Window]]:
    """The plan, and the windows that it speaks of. Reads only. Raises UnknownTopicError."""
    ref = penstock.kafka.ref(plan.name)
    starts = {p: o.log_start for p, o in penstock.kafka.offsets(plan.name).items()}
    first = first_in_log(penstock, ref, starts)
    windows: list[Window] = []
    for window in penstock.windows.all(ref, first):
        windows.append(window)
        if len(windows) == WINDOWS_MAX:
            break
    policy = SweepPolicy(
        retention=plan.spec.retention,
        accept_unaudited=plan.spec.audit.accept_unaudited,
        compacted=plan.spec.compacted,
    )
    now = penstock.clock.now()
    # Which are due does not depend on proof: prove those alone.
    sizes = {w.sequence: size_of(penstock, plan, w) for w in windows}
    unproven = [WindowStanding(w, size_bytes=sizes[w.sequence]) for w in windows]
    ages = plan_sweep(now, unproven, policy, starts)
    due = {d.sequence for d in ages.decisions if d.action is SweepAction.HOLD}
    standings = [
        replace(
            standing(penstock, plan, w, proving=w.sequence in due), size_bytes=sizes[w.sequence]
        )
        for w in windows
    ]
    return plan_sweep(now, standings, policy, starts), windows


def size_of(penstock: Connections, plan: TopicPlan, window: Window) -> int:
    """Bytes of the window's records, by its newest receipt; asked only where size is limited."""
    if plan.spec.retention.max_bytes is None:
        return 0
    receipts = penstock.windows.receipts(window.ref, bronze_table(plan.name), window.sequence)
    return receipts[-1].size_bytes if receipts else 0


def first_in_log(penstock: Connections, ref: Any, starts: dict[int, int]) -> int:
    """The sequence of the oldest window that the log still holds anything of."""
    newest = penstock.windows.newest(ref)
    low, high = 0, newest.sequence if newest is not None else 0
    while low < high:
        middle = (low + high) // 2
        window = penstock.windows.get(ref, middle)
        gone = window is not None and all(starts.get(p.p, 0) >= p.end for p in window.partitions)
        low, high = (middle + 1, high) if gone else (low, middle)
    return low


def standing(
    penstock: Connections, plan: TopicPlan, window: Window, *, proving: bool
) -> WindowStanding:
    """A window with its book, and where it is due with equation 1 judged now."""
    if not proving:
        return WindowStanding(window)
    books = Bookkeeper(penstock)
    return WindowStanding(
        window=window,
        reproved=books.judge_landed(window, plan.spec)[0],
        book=books.newest(window),
        acceptances=penstock.windows.acceptances(window.ref, window.sequence),
    )


def apply_sweep(
    penstock: Connections, plan: TopicPlan, sweep: SweepPlan, windows: Sequence[Window]
) -> None:
    """Delete, then record. Killed in between, the next sweep finds the windows gone already."""
    penstock.kafka.delete_records(plan.name, sweep.delete_before)
    reasons = {d.sequence: d.reason for d in sweep.decisions if d.action is SweepAction.DELETE}
    for window in windows:
        if window.sequence in reasons:
            penstock.windows.retire(window, penstock.clock.now(), reasons[window.sequence])


def held_result(plan: TopicPlan, sweep: SweepPlan) -> dg.AssetCheckResult:
    """Red when data outlives its policy: somebody has to look, or the disk fills."""
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
    plans: Sequence[TopicPlan], cron: str, *, apply: bool
) -> dg.Definitions:
    """The sweeps' assets, and one job for all of them on its schedule."""
    job = dg.define_asset_job(
        "retention",
        selection=dg.AssetSelection.assets(*(plan.retention_key for plan in plans)),
        executor_def=dg.in_process_executor,
        description="Sweep what is proven and old enough.",
        run_tags={APPLY_TAG: "true" if apply else "false"},
    )
    schedule = build_schedule(
        "retention",
        job,
        cron,
        priority=SWEEP,
        description="Delete what is proven and old enough; hold the rest, and say why.",
    )
    assets = [build_retention(plan, apply=apply) for plan in plans]
    return dg.Definitions(assets=assets, jobs=[job], schedules=[schedule])
