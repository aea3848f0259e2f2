"""The `observe` schedule: how far each topic has come, how fast, how large, and whether it drifts.

One run looks at all topics: an observation each (end offsets, rate, size), and two checks that
never block: ``config_drift`` (the broker agrees with the declaration) and ``lag`` (what is stored
and not yet landed).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from penstock_platform.clock import from_iso, to_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import PartitionOffsets
from penstock_platform.reconciliation.events_check import EVENTS_READABLE, events_readable
from penstock_platform.topics.apply import drift
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.metadata import table
from penstock_platform.topics.model.cron import tick_at_or_after
from penstock_platform.topics.model.declaration import AUDIT_TOPIC
from penstock_platform.topics.names import OBSERVE, Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import LOOK, build_schedule
from penstock_platform.windows.store import WindowStore

OFFSET_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("partition", "int", "Partition of the topic"),
        dg.TableColumn("log_start", "int", "First offset in the broker's log"),
        dg.TableColumn("end", "int", "Offset after the last record"),
        dg.TableColumn("records", "int", "Offsets between them"),
        dg.TableColumn("frozen", "int", "First offset that is in no window yet"),
        dg.TableColumn("lag", "int", "Offsets that are in no window yet"),
    ]
)
OBSERVATIONS_READ = 20
# A topic lags when it is further behind than this many of its windows.
LATE_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What one look at a topic gives."""

    at: datetime
    offsets: Mapping[int, PartitionOffsets]
    frozen: Mapping[int, int]  # where the chain of windows ends
    frozen_at: datetime | None

    @property
    def end(self) -> int:
        return sum(o.high_watermark for o in self.offsets.values())

    @property
    def kept(self) -> int:
        return sum(o.high_watermark - o.log_start for o in self.offsets.values())

    @property
    def lag(self) -> int:
        return sum(
            max(0, o.last_stable - self.frozen.get(p, o.log_start)) for p, o in self.offsets.items()
        )

    @property
    def lag_seconds(self) -> float | None:
        """Since the newest window closed; None before the first one."""
        if self.frozen_at is None:
            return None
        return round((self.at - self.frozen_at).total_seconds(), 1)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "partition": p,
                "log_start": o.log_start,
                "end": o.high_watermark,
                "records": o.high_watermark - o.log_start,
                "frozen": self.frozen.get(p, o.log_start),
                "lag": max(0, o.last_stable - self.frozen.get(p, o.log_start)),
            }
            for p, o in sorted(self.offsets.items())
        ]


def look_at(penstock: Connections, plan: TopicPlan) -> TopicFigures:
    """Offsets now, and where the chain ends. Raises ClusterError."""
    offsets = penstock.kafka.offsets(plan.name)
    newest = (
        WindowStore.of(penstock).newest(penstock.kafka.ref(plan.name)) if plan.spec.land else None
    )
    return TopicFigures(
        at=penstock.clock.now(),
        offsets=offsets,
        frozen={p.p: p.end for p in newest.partitions} if newest else {},
        frozen_at=from_iso(newest.closed_at) if newest else None,
    )


def rate_since(
    instance: dg.DagsterInstance, key: dg.AssetKey, figures: TopicFigures
) -> float | None:
    """Records a second since the last observation of this topic, None at the first."""
    # Other events of a topic are observations, too: resets of its groups.
    for record in instance.fetch_observations(key, limit=OBSERVATIONS_READ).records:
        metadata = record.asset_observation.metadata if record.asset_observation else {}
        end, at = metadata.get("kafka/end_offset"), metadata.get("observed_at")
        if end is not None and at is not None:
            seconds = (figures.at - from_iso(str(at.value))).total_seconds()
            return (figures.end - int(str(end.value))) / seconds if seconds > 0 else None
    return None


def observation_metadata(figures: TopicFigures, rate: float | None) -> dict[str, Any]:
    """What a page shows of a look: how fast and how late first, the partitions last."""
    metadata: dict[str, Any] = {}
    if rate is not None:
        metadata["kafka/records_per_second"] = round(rate, 1)
    metadata["kafka/lag_messages"] = figures.lag
    if figures.lag_seconds is not None:
        metadata["kafka/lag_seconds"] = figures.lag_seconds
    if figures.frozen_at is not None:
        metadata["kafka/complete_through"] = dg.MetadataValue.timestamp(figures.frozen_at)
    return metadata | {
        "kafka/records": figures.kept,
        "kafka/end_offset": figures.end,
        "observed_at": to_iso(figures.at),
        "kafka/offsets": table(figures.rows(), OFFSET_SCHEMA),
    }


def build_observe(plans: Sequence[TopicPlan], cron: str, names: Names) -> dg.Definitions:
    """The checks, the job that runs them beside the observations, and its schedule."""
    specs = [
        dg.AssetCheckSpec(name, asset=plan.topic_key, blocking=False, description=text)
        for plan in plans
        for name, text in (
            ("config_drift", "The topic on the broker is as declared."),
            ("lag", "Stored records are frozen in windows in time."),
            (EVENTS_READABLE, "The records of the audit topic are monitoring events."),
        )
        if name in checks_of(plan)
    ]

    @dg.multi_asset_check(
        name=names.of("observe_topics"),
        specs=specs,
        can_subset=True,
        required_resource_keys={"penstock"},
        description="Observes every topic: offsets, rate, lag, configuration.",
    )
    def observe_topics(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        penstock: Connections = context.resources.penstock
        for plan in plans:
            try:
                figures = look_at(penstock, plan)
                yield drift_result(penstock, plan)
            except ClusterError as error:
                yield from unanswered(plan, error)
                continue
            rate = rate_since(context.instance, plan.topic_key, figures)
            context.op_execution_context.log_event(
                dg.AssetObservation(plan.topic_key, metadata=observation_metadata(figures, rate))
            )
            if plan.spec.land is not None:
                yield lag_result(plan, figures, rate)
            if EVENTS_READABLE in checks_of(plan):
                yield readable_result(penstock, plan)

    job = build_job(
        names.of(OBSERVE),
        dg.AssetSelection.checks(observe_topics),
        job=OBSERVE,
        cluster=plans[0].cluster,
        description="Observe every topic.",
    )
    schedule = build_schedule(
        job,
        cron,
        priority=LOOK,
        description="End offsets, rate, size, lag and configuration of every topic.",
    )
    return dg.Definitions(asset_checks=[observe_topics], jobs=[job], schedules=[schedule])


def checks_of(plan: TopicPlan) -> list[str]:
    """The names of the checks that a topic has here."""
    found = ["config_drift"]
    if plan.spec.land is not None:
        found.append("lag")
        if plan.name == AUDIT_TOPIC:
            found.append(EVENTS_READABLE)
    return found


def readable_result(penstock: Connections, plan: TopicPlan) -> dg.AssetCheckResult:
    try:
        return events_readable(penstock, plan)
    except ClusterError as error:
        return unanswered_check(plan, EVENTS_READABLE, error)


def drift_result(penstock: Connections, plan: TopicPlan) -> dg.AssetCheckResult:
    found = drift(plan.spec, penstock.kafka.describe(plan.name))
    return dg.AssetCheckResult(
        asset_key=plan.topic_key,
        check_name="config_drift",
        passed=not found,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(map(str, found)) or "as declared",
        metadata={"drift": len(found)},
    )


def lag_result(plan: TopicPlan, figures: TopicFigures, rate: float | None) -> dg.AssetCheckResult:
    """Late means that windows which have closed are not frozen: the freezer does not run."""
    land = plan.spec.land
    if land is None:
        raise ValueError(f"topic {plan.name} is not landed")
    seconds = figures.lag_seconds or 0.0
    window = window_seconds(land.cron, figures.at)
    late = figures.lag > 0 and seconds > LATE_WINDOWS * window
    speed = f"{rate:,.0f} records a second; " if rate is not None else ""
    rates = {"records_per_second": round(rate, 1)} if rate is not None else {}
    return dg.AssetCheckResult(
        asset_key=plan.topic_key,
        check_name="lag",
        passed=not late,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{speed}{figures.lag:,} records are in no window yet; the last window closed "
        f"{seconds:.0f} s ago (a window is {window:.0f} s)",
        metadata={"lag_messages": figures.lag, "lag_seconds": seconds} | rates,
    )


def window_seconds(cron: str, at: datetime) -> float:
    """How long a window of this cron is about now."""
    first = tick_at_or_after(cron, at)
    return (tick_at_or_after(cron, first + timedelta(minutes=1)) - first).total_seconds()


def unanswered(plan: TopicPlan, error: ClusterError) -> Iterator[dg.AssetCheckResult]:
    """The broker did not answer for a topic: all its checks say so."""
    for name in checks_of(plan):
        yield unanswered_check(plan, name, error)


def unanswered_check(plan: TopicPlan, name: str, error: ClusterError) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=plan.topic_key,
        check_name=name,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        description=str(error),
    )
