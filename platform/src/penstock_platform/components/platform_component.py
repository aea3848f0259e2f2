"""``PlatformComponent``: the sensors and schedules that keep every declared topic moving.

::

    type: penstock_platform.PlatformComponent
    attributes:
      reverify: {cron: "*/10 * * * *", windows: 12, horizon: 30d}
      retention: {cron: "5 * * * *", apply: true}
      observe: {cron: "* * * * *"}
      quality: {cron: "*/15 * * * *"}
      maintenance: {cron: "35 * * * *", keep: 6h, repair_horizon: 90d}

One document a code location; all keys have defaults. Names of jobs, schedules and sensors begin
with ``prefix`` (``penstock_``). The resource ``penstock`` is a ResourceComponent's; without one it
is declared here, with its defaults. The executor of the project stays the project's;
``topics/jobs.py`` says what the platform's own jobs have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Self

import dagster as dg
from croniter import croniter  # type: ignore[import-untyped]
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from penstock_platform.alerts.sensor import build_alert_sensor
from penstock_platform.components.resource_component import (
    ResourceSpec,
    build_resource,
    declared,
    settings_at_load,
)
from penstock_platform.components.topic import TopicComponent
from penstock_platform.lag.observe import build_observe
from penstock_platform.landing.assets import (
    CONTRACT_CHECK,
    build_evidence_job,
    build_landing_job,
)
from penstock_platform.landing.empty_windows import build_empty_windows_job
from penstock_platform.landing.healing import build_heal_sensor
from penstock_platform.landing.maintenance_assets import build_maintenance
from penstock_platform.landing.sensors import (
    build_evidence_sensor,
    build_topic_sensor,
    build_window_sensor,
    evidence_request,
)
from penstock_platform.quality.suite import QualityComponent
from penstock_platform.reconciliation.late_evidence import build_late_evidence_sensor
from penstock_platform.reconciliation.model.books import Equation
from penstock_platform.reconciliation.model.recovery import REPAIR_HORIZON_DAYS
from penstock_platform.reconciliation.reverify import build_reverify
from penstock_platform.retention.sweep import build_retention_schedule
from penstock_platform.settings import Settings
from penstock_platform.topics import declarations
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.model.declaration import Duration, TopicError, refuse_collisions
from penstock_platform.topics.names import PREFIX, QUALITY, TOPICS, Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.scaffolding import PlatformScaffolder
from penstock_platform.topics.schedules import LOOK, build_schedule

SILVERS_OWN_CHECKS = (str(Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED), CONTRACT_CHECK)


def _cron(text: str) -> str:
    if len(text.split()) != 5 or not croniter.is_valid(text):
        raise ValueError(f"{text!r} is not a cron of five fields")
    return text


Cron = Annotated[str, AfterValidator(_cron)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _at_least_an_hour(age: timedelta) -> timedelta:
    if age < timedelta(hours=1):
        raise ValueError(
            "snapshots that are being read or written upon are younger; write 1h or more"
        )
    return age


def _at_least_a_day(age: timedelta) -> timedelta:
    if age < timedelta(days=1):
        raise ValueError("damage is found by the proofs of the next hours; write 1d or more")
    return age


class ReverifySpec(_Part):
    """Every run looks at each topic's newest ``windows``, at all that do not balance, and at
    ``older`` further ones, newest first, until all that closed within ``horizon`` were looked at;
    then it begins again. Files that are as they were at the last proof are not read; of the others
    ``reads`` windows are read in one run, the rest in the next."""

    cron: Cron = Field(default="*/10 * * * *", description="When: a cron of five fields, in UTC.")
    windows: int = Field(
        default=12, ge=1, le=150, description="The newest windows of each topic, in every run."
    )
    older: int = Field(
        default=40, ge=1, le=150, description="Further windows of a run, newest first."
    )
    reads: int = Field(
        default=50, ge=1, le=10_000, description="Windows whose changed files one run reads."
    )
    horizon: Duration = Field(
        default=timedelta(days=30), description="Windows that closed earlier are not proven again."
    )


class SweepSpec(_Part):
    """``apply: false`` only explains what would be deleted, also in a run started by hand."""

    cron: Cron = Field(default="5 * * * *", description="When: a cron of five fields, in UTC.")
    apply: bool = Field(default=True, description="false: explain what would be deleted, only.")


class ObserveSpec(_Part):
    """Lag and sizes of all topics are measured."""

    cron: Cron = Field(default="* * * * *", description="When: a cron of five fields, in UTC.")


class QualityScheduleSpec(_Part):
    """The Great Expectations suites run."""

    cron: Cron = Field(default="*/15 * * * *", description="When: a cron of five fields, in UTC.")


class MaintenanceSpec(_Part):
    """Every landing adds a snapshot to its tables; those older than ``keep`` expire. The ones that
    could heal a window which closed within ``repair_horizon`` stay."""

    cron: Cron = Field(
        default="35 * * * *", description="When snapshots expire: a cron of five fields, in UTC."
    )
    keep: Annotated[Duration, AfterValidator(_at_least_an_hour)] = Field(
        default=timedelta(hours=6), description="Younger snapshots are kept, 1h at least."
    )
    repair_horizon: Annotated[Duration, AfterValidator(_at_least_a_day)] = Field(
        default=timedelta(days=REPAIR_HORIZON_DAYS),
        description="How long rows that were replaced or removed can be restored.",
    )
    orphans_cron: Cron = Field(
        default="50 3 * * *",
        description="When files that no snapshot has are removed: a cron of five fields, in UTC.",
    )


class PlatformSpec(_Part):
    """When the platform looks again. The names of all its jobs, schedules and sensors begin with
    ``prefix``."""

    prefix: str = Field(
        default=PREFIX,
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$",
        max_length=60,
        description="What the names of all jobs, schedules and sensors begin with.",
    )
    reverify: ReverifySpec = Field(
        default=ReverifySpec(), description="Prove landed windows again."
    )
    retention: SweepSpec = Field(
        default=SweepSpec(), description="Delete from the broker what is proven and due."
    )
    observe: ObserveSpec = Field(default=ObserveSpec(), description="Measure lag and sizes.")
    quality: QualityScheduleSpec = Field(
        default=QualityScheduleSpec(), description="Run the Great Expectations suites."
    )
    maintenance: MaintenanceSpec = Field(
        default=MaintenanceSpec(), description="Keep the lake's tables healthy."
    )

    @model_validator(mode="after")
    def _healing(self) -> Self:
        if self.reverify.horizon > self.maintenance.repair_horizon:
            raise ValueError(
                f"reverify.horizon is {self.reverify.horizon.days}d, and what could heal a window "
                f"is kept for {self.maintenance.repair_horizon.days}d: declare a longer "
                "maintenance.repair_horizon"
            )
        return self


_ATTRIBUTES = declarations.attributes_model("PlatformAttributes", PlatformSpec)


@dg.scaffold_with(PlatformScaffolder)
class PlatformComponent(declarations.DeclaredComponent):
    """Sensors, schedules and jobs of all topics declared in this code location."""

    ATTRIBUTES = _ATTRIBUTES
    TAGS = ("kafka", "retention", "alerts")
    PRODUCES = ("sensor", "schedule", "job", "resource")

    def __init__(self, spec: PlatformSpec | None = None) -> None:
        self.spec = spec or PlatformSpec()

    @classmethod
    def read(cls, values: Mapping[str, Any], source: declarations.Source) -> PlatformSpec:
        """Raises DeclarationError with file and line of every problem."""
        return declarations.parse(PlatformSpec, values, source)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        settings = settings_at_load(context)
        tree = context.component_tree
        names = Names(self.spec.prefix)
        plans = [c.plan(settings, names) for c in tree.get_all_components(of_type=TopicComponent)]
        try:
            refuse_collisions((plan.spec, plan.declared_at) for plan in plans)
        except TopicError as error:
            raise declarations.DeclarationError(str(error)) from None
        suites = tree.get_all_components(of_type=QualityComponent)
        built = build_platform(self.spec, plans, settings, has_quality=bool(suites))
        if declared(context) is not None:
            return built
        return dg.Definitions.merge(built, build_resource(ResourceSpec()))


def build_platform(
    spec: PlatformSpec, plans: Sequence[TopicPlan], settings: Settings, *, has_quality: bool
) -> dg.Definitions:
    """Sensors, schedules and jobs for these topics. They need the resource ``penstock``."""
    landed = [plan for plan in plans if plan.spec.land is not None]
    names = Names(spec.prefix)
    sensors: list[Any] = [build_alert_sensor(plans, settings, names)]
    parts: list[dg.Definitions] = []
    jobs: list[Any] = []
    if plans:
        topics_job = _topics_job(plans, names)
        jobs.append(topics_job)
        sensors.append(build_topic_sensor(plans, topics_job, names))
        parts.append(build_observe(plans, spec.observe.cron, names))
    if landed:
        landing = [build_landing_job(plan) for plan in landed]
        evidence = [build_evidence_job(plan) for plan in landed]
        empty = build_empty_windows_job(landed)
        jobs += [*landing, *evidence, empty]
        sensors.append(build_window_sensor(landed, [*landing, empty], names))
        sensors.append(build_evidence_sensor(landed, evidence, names))
        sensors.append(build_late_evidence_sensor(landed, evidence, evidence_request, names))
        healed = [plan for plan in landed if plan.spec.heal == "auto"]
        if healed:
            sensors.append(build_heal_sensor(healed, landing, names))
        parts.append(build_reverify(landed, spec.reverify, names))
        parts.append(build_maintenance(landed, spec.maintenance, names))
        swept = [plan for plan in landed if plan.swept]
        if swept:
            cron, apply = spec.retention.cron, spec.retention.apply
            parts.append(build_retention_schedule(swept, cron, apply=apply, names=names))
    if has_quality:
        parts.append(_quality_schedule(landed, spec.quality.cron, names))
    return dg.Definitions.merge(dg.Definitions(sensors=sensors, jobs=jobs), *parts)


def _topics_job(plans: Sequence[TopicPlan], names: Names) -> Any:
    return build_job(
        names.of(TOPICS),
        dg.AssetSelection.assets(*(plan.topic_key for plan in plans)).without_checks(),
        job=TOPICS,
        cluster=plans[0].cluster,
        description="Make the cluster agree with the declarations of topics.",
    )


def _quality_schedule(plans: Sequence[TopicPlan], cron: str, names: Names) -> dg.Definitions:
    keys = [plan.silver_key for plan in plans if plan.contract is not None]
    job = build_job(
        names.of(QUALITY),
        dg.AssetSelection.checks_for_assets(*keys)
        - dg.AssetSelection.checks(
            *(dg.AssetCheckKey(key, name) for key in keys for name in SILVERS_OWN_CHECKS)
        ),
        job=QUALITY,
        cluster=plans[0].cluster,
        description="Run the Great Expectations suites on the newest proven windows of silver.",
    )
    schedule = build_schedule(
        job,
        cron,
        priority=LOOK,
        description="Quality of silver, off the landing's critical path.",
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])
