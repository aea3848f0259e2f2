"""The `reverify` schedule: proof goes stale, so windows are proven again.

One run looks at the newest windows of every topic, at those that do not balance, and at a share of
the older ones (``model/reverification.py``). A new result is reported on its window's partition and
archived as the window's newest book; this asset's own table lists the unchanged ones, because an
event each minute for each window would bury the rest. What could not be
looked at fails the check ``all_reverified``. Nothing is landed, nothing is repaired: the alert
names the command for it.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Protocol

import dagster as dg

from penstock_platform.archive.store import ArchiveError
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.lake.errors import StoreError
from penstock_platform.reconciliation.checks import report_check_result, tick_judgement
from penstock_platform.reconciliation.model.books import Equation
from penstock_platform.reconciliation.model.reverification import Pace
from penstock_platform.reconciliation.reverification import Looked, Reverifier
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.metadata import table
from penstock_platform.topics.names import Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import REVERIFY, build_schedule

CHECK = "all_reverified"
ERRORS_SHOWN = 5
JOB = "reverify"
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
        dg.TableColumn("error", "string", "Why the window could not be checked"),
        dg.TableColumn("new", "bool", "Whether this differs from the book before"),
    ]
)


class Settings(Protocol):
    """The block `reverify` of the PlatformComponent."""

    @property
    def cron(self) -> str: ...
    @property
    def windows(self) -> int: ...
    @property
    def older(self) -> int: ...
    @property
    def reads(self) -> int: ...
    @property
    def horizon(self) -> timedelta: ...


def build_reverify(plans: Sequence[TopicPlan], settings: Settings, names: Names) -> dg.Definitions:
    """Asset, job and schedule."""

    @dg.asset(
        key=REVERIFY_KEY,
        group_name="ops",
        kinds={"iceberg"},
        deps=[key for plan in plans for key in plan.landing_keys[:-1]],
        required_resource_keys={"penstock"},
        check_specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=REVERIFY_KEY,
                blocking=False,
                description="Every window that was due was proven again, or does not balance.",
            )
        ],
        description=f"The newest {settings.windows} windows of every topic, all that do not "
        f"balance, and {settings.older} older ones at a time within the repair horizon, proven "
        "again against what is in the tables now. Finds rows that vanished, were doubled or "
        "changed after their landing. Reads only what is not as it was at the last proof.",
    )
    def reverification(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        penstock: Connections = context.resources.penstock
        started = penstock.clock.monotonic()
        looked = [(p, one) for p in plans for one in reverify_topic(context, penstock, p, settings)]
        rows = [row for plan, one in looked for row in rows_of(plan, one)]
        failed = [(plan.name, one) for plan, one in looked if one.error]
        wrong = [row for row in rows if row["state"] != "BALANCED"]
        yield dg.MaterializeResult(
            metadata={
                "results": len(rows) - len(failed),
                "not_balanced": len(wrong) - len(failed),
                "not_verified": len(failed),
                "windows_read": sum(bool(one.judged) for _, one in looked),
                "windows_unchanged": sum(one.proven and not one.judged for _, one in looked),
                "seconds": round(penstock.clock.monotonic() - started, 3),
                "windows": table([*wrong, *(r for r in rows if r not in wrong)], WINDOW_SCHEMA),
            },
            check_results=[all_reverified(failed)],
        )

    job = build_job(
        names.of(JOB),
        dg.AssetSelection.assets(REVERIFY_KEY),
        job=JOB,
        cluster=plans[0].cluster,
        description="Prove windows again.",
    )
    schedule = build_schedule(
        job,
        settings.cron,
        priority=REVERIFY,
        description="Proof goes stale: windows against the tables' current snapshots.",
    )
    return dg.Definitions(assets=[reverification], jobs=[job], schedules=[schedule])


def reverify_topic(
    context: dg.AssetExecutionContext,
    penstock: Connections,
    plan: TopicPlan,
    settings: Settings,
) -> list[Looked]:
    """One pass over a topic. What is new is reported, once for each partition and equation."""
    pace = Pace(settings.windows, settings.older)
    found: list[Looked] = []
    try:
        ref = penstock.kafka.ref(plan.name)
        passed = Reverifier(penstock, plan.spec).look(ref, pace, settings.horizon, settings.reads)
        for one in passed:
            found.append(one)
            if one.error:
                context.log.error("%s %s: %s", plan.name, one.name, one.error)
        report_news(context, penstock, plan, found)
    except UnknownTopicError:
        pass  # not created yet
    except (StoreError, ArchiveError):  # of no topic: the run fails
        raise
    except Exception as error:
        context.log.exception("%s could not be proven again", plan.name)
        found.append(Looked(-1, "all windows", error=f"{error}" or type(error).__name__))
    return found


def report_news(
    context: dg.AssetExecutionContext,
    penstock: Connections,
    plan: TopicPlan,
    found: Sequence[Looked],
) -> None:
    """Record what is new on the partitions of its windows."""
    new = {
        (one.window.window, result.equation): one.window
        for one in found
        if one.window is not None
        for result in one.news
    }
    for (partition, equation), window in new.items():
        key = EQUATION_ASSETS[equation](plan)
        shown = tick_judgement(penstock, plan, key, window, equation)
        report_check_result(context, shown, partition)
        context.log.warning("%s %s: %s", plan.name, window.name, shown.description)


def rows_of(plan: TopicPlan, one: Looked) -> Iterator[dict[str, Any]]:
    """A row for each result, or for what could not be looked at."""
    place = {"topic": plan.name, "window": one.name, "error": one.error}
    if one.error:
        yield {**place, "state": "NOT VERIFIED", "new": True}
    for result in one.judged:
        yield {
            **place,
            "equation": str(result.equation),
            "state": str(result.state),
            "expected": result.expected,
            "found": result.found,
            "new": result in one.news,
        }


def all_reverified(failed: Sequence[tuple[str, Looked]]) -> dg.AssetCheckResult:
    """Red when anything could not be looked at: its damage, if any, would not be seen."""
    shown = [f"{topic} {one.name}: {one.error}" for topic, one in failed[:ERRORS_SHOWN]]
    more = len(failed) - len(shown)
    said = "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])
    return dg.AssetCheckResult(
        asset_key=REVERIFY_KEY,
        check_name=CHECK,
        passed=not failed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{len(failed)} windows could not be proven again: {said}"
        if failed
        else "every window that was due was checked",
        metadata={"not_verified": len(failed)},
    )
