"""Retention: the sweep of a topic's log as an asset, explained window by window and range by range.

What is known of the log is ``look.py``'s, the plan is the model's; this applies it through
DeleteRecords. Bronze keeps everything.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.retention.documents import span_row
from penstock_platform.retention.look import SweepLook, look_at
from penstock_platform.retention.model.plan import SweepAction, SweepPlan
from penstock_platform.retention.model.spans import merged
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.metadata import table
from penstock_platform.topics.names import RETENTION, Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import SWEEP, build_schedule

APPLY_TAG = "penstock/apply"
# On the asset: whether the PlatformComponent lets its runs delete.
APPLY_METADATA = "penstock/apply"
DECISION_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("window", "string"),
        dg.TableColumn("action", "string", "gone, delete, hold or keep"),
        dg.TableColumn("reason", "string", "Why"),
    ]
)
RANGE_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("partition", "int"),
        dg.TableColumn("start", "int", "First offset"),
        dg.TableColumn("end", "int", "Offset after the last"),
        dg.TableColumn("records", "int", "Offsets between them"),
        dg.TableColumn("action", "string", "delete, hold or keep"),
        dg.TableColumn("windows", "string", "The windows that they are in"),
        dg.TableColumn("reason", "string", "Why; that of the first window"),
    ]
)


def build_retention(plan: TopicPlan, *, apply: bool) -> dg.AssetsDefinition:
    """``["retention", <topic>]``. Deletes only where the declaration says ``apply`` and the run
    carries the tag ``penstock/apply: true``, as runs of the job ``retention`` do; every other run,
    the one of a click on Materialize among them, only explains."""
    policy = plan.spec.retention.model_dump(mode="json", exclude_defaults=True)

    @dg.asset(
        key=plan.retention_key,
        group_name="retention",
        kinds={"kafka"},
        owners=plan.owners,
        tags=plan.tags,
        metadata={APPLY_METADATA: apply},
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
            f"The sweep of `{plan.name}` (keep: {policy}). Deletes whole windows from the front "
            "of the log that are old enough, landed, proven again in this very run, whose "
            "producers' evidence is complete, and which the declared groups have read. Whatever "
            "else is due is held, with the reason. "
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
            look = look_at(penstock, plan.spec)
        except UnknownTopicError:
            raise dg.Failure(
                f"topic {plan.name} does not exist yet, so there is nothing to sweep",
                allow_retries=False,
            ) from None
        asked = context.run.tags.get(APPLY_TAG) == "true"
        applying = apply and asked
        sweep = look.plan
        if applying:
            apply_sweep(penstock, look)
        elif sweep.deleted:
            context.log.info(only_explained(len(sweep.deleted), apply=apply))
        for decision in sweep.decisions:
            if decision.action in (SweepAction.DELETE, SweepAction.HOLD):
                context.log.info("%s: %s, %s", decision.window, decision.action, decision.reason)
        yield dg.MaterializeResult(
            metadata=sweep_metadata(look, applied=applying),
            check_results=[held_result(plan, sweep)],
        )

    return retention


def sweep_metadata(look: SweepLook, *, applied: bool) -> dict[str, Any]:
    """What a page shows of a sweep: numbers first, which Dagster plots."""
    return {
        "applied": applied,
        "windows_deleted": len(look.plan.deleted) if applied else 0,
        "windows_held": len(look.plan.held),
        "records_deleted": look.records_deleted if applied else 0,
        **look.forecast.numbers,
        "decisions": table(decision_rows(look.plan), DECISION_SCHEMA),
        "ranges": table(map(span_row, merged(look.spans)), RANGE_SCHEMA),
    }


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


def apply_sweep(penstock: Connections, look: SweepLook) -> None:
    """Delete, then record. Killed in between, the next sweep finds the windows gone already."""
    penstock.kafka.delete_records(look.spec.name, look.plan.delete_before)
    reasons = {d.sequence: d.reason for d in look.plan.decisions if d.action is SweepAction.DELETE}
    for window in look.windows:
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
