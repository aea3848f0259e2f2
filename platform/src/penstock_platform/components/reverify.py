"""The `reverify` schedule: proof goes stale, so recent windows are proven again.

One run reads each table's current snapshot with pyiceberg and judges the newest windows of every
topic. A verdict that says something new is reported on its window's partition and archived as the
window's newest book; that all others stand is told by this asset's own table, for an event each
minute and window would bury the rest. Nothing is landed, nothing is mended: the alert names the
command for it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg

from penstock_platform.components.checks import report_verdict
from penstock_platform.components.landing import tick_judgement
from penstock_platform.components.metadata import table
from penstock_platform.components.plan import TopicPlan
from penstock_platform.components.schedules import REVERIFY, build_schedule
from penstock_platform.domain.books import Book, Equation, EquationResult
from penstock_platform.domain.topics import bronze_table
from penstock_platform.domain.windows import Window
from penstock_platform.resources.books import Bookkeeper, changed
from penstock_platform.resources.connections import Connections
from penstock_platform.resources.kafka import UnknownTopicError

REVERIFY_KEY = dg.AssetKey(["ops", "reverification"])
EQUATION_ASSETS: dict[Equation, Callable[[TopicPlan], dg.AssetKey]] = {
    Equation.STORED_EQUALS_LANDED: lambda plan: plan.bronze_key,
    Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED: lambda plan: plan.silver_key,
}
WINDOW_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        dg.TableColumn("window", "string"),
        dg.TableColumn("equation", "string"),
        dg.TableColumn("state", "string"),
        dg.TableColumn("expected", "int"),
        dg.TableColumn("found", "int"),
        dg.TableColumn("new", "bool", "Whether this differs from the book before"),
    ]
)


def build_reverify(plans: Sequence[TopicPlan], cron: str, windows: int) -> dg.Definitions:
    """Asset, job and schedule."""

    @dg.asset(
        key=REVERIFY_KEY,
        group_name="ops",
        kinds={"iceberg"},
        deps=[key for plan in plans for key in plan.landing_keys[:-1]],
        required_resource_keys={"penstock"},
        description=f"The newest {windows} windows of every topic, proven again against what is in "
        "the tables now. Finds rows that vanished or were doubled after their landing.",
    )
    def reverification(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        penstock: Connections = context.resources.penstock
        started = penstock.clock.monotonic()
        rows: list[dict[str, Any]] = []
        for plan in plans:
            for row in reverify_topic(context, penstock, plan, windows):
                rows.append(row)
        wrong = [row for row in rows if row["state"] != "BALANCED"]
        yield dg.MaterializeResult(
            metadata={
                "verdicts": len(rows),
                "not_balanced": len(wrong),
                "seconds": round(penstock.clock.monotonic() - started, 3),
                "windows": table([*wrong, *(r for r in rows if r not in wrong)], WINDOW_SCHEMA),
            }
        )

    job = dg.define_asset_job(
        "reverify",
        selection=dg.AssetSelection.assets(REVERIFY_KEY),
        executor_def=dg.in_process_executor,
        description="Prove recent windows again.",
    )
    schedule = build_schedule(
        "reverify",
        job,
        cron,
        priority=REVERIFY,
        description="Proof goes stale: recent windows against the tables' current snapshots.",
    )
    return dg.Definitions(assets=[reverification], jobs=[job], schedules=[schedule])


def reverify_topic(
    context: dg.AssetExecutionContext, penstock: Connections, plan: TopicPlan, windows: int
) -> Iterator[dict[str, Any]]:
    """Judge a topic's newest windows; yields one row for each verdict."""
    try:
        ref = penstock.kafka.ref(plan.name)
    except UnknownTopicError:
        return
    books = Bookkeeper(penstock)
    for window in penstock.windows.recent(ref, windows):
        before = books.newest(window)
        if before is None:
            continue  # not landed yet: its own run is under way
        judged, snapshots = judge_again(books, plan, window, before)
        news = [result for result in judged if changed(before, result)]
        if news:
            books.archive(window, news, plan.spec, snapshots=snapshots)
        for result in judged:
            if result in news:
                key = EQUATION_ASSETS[result.equation](plan)
                shown = tick_judgement(penstock, plan, key, window, result.equation)
                report_verdict(context, shown, window.window)
                context.log.warning("%s %s: %s", plan.name, window.name, shown.description)
            yield {
                "topic": plan.name,
                "window": window.name,
                "equation": str(result.equation),
                "state": str(result.state),
                "expected": result.expected,
                "found": result.found,
                "new": result in news,
            }


def judge_again(
    books: Bookkeeper, plan: TopicPlan, window: Window, before: Book
) -> tuple[list[EquationResult], dict[str, int]]:
    """The equations of the lake that were judged once, judged now; and what was read.

    Silver is compared with bronze only where bronze itself comes out: an expectation is never
    taken from data that is in doubt.
    """
    result, snapshot_id = books.judge_landed(window, plan.spec)
    snapshots = {bronze_table(plan.name): snapshot_id} if snapshot_id is not None else {}
    judged = [result]
    parsed = Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED
    if plan.contract is not None and result.balanced and before.result(parsed) is not None:
        judged.append(books.judge_parsed(window, plan.spec))
    return judged, snapshots
