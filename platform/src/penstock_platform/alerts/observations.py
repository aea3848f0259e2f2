"""From Dagster's events and the chains' health to observations of incidents.

For a check of a window the event only says where to look; what is wrong is read from the window's
newest book, so the alert has exact offsets.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from penstock_platform.alerts.events import EndedRun, Evaluation
from penstock_platform.alerts.model.chain_health import CAUSES, Health, Problem
from penstock_platform.alerts.model.incident_states import Observation, failure, outage
from penstock_platform.alerts.model.incidents import observe
from penstock_platform.clock import to_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.outages import service_away
from penstock_platform.reconciliation.model.books import Equation
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.cron import CronError
from penstock_platform.topics.names import EMPTY_WINDOWS, JOB_TAG, REVERIFY, TOPIC_TAG
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import ChainError, Window, rerun_command
from penstock_platform.windows.store import WindowStore, window_uri

ERROR_CHARACTERS_MAX = 300
STOPPED = {REVERIFY: "re-verification", EMPTY_WINDOWS: "the results of empty windows"}


class Translator:
    """From events and health to observations."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        penstock: Connections,
        plans: Sequence[TopicPlan],
        dagster_url: str,
    ) -> None:
        self._instance = instance
        self._penstock = penstock
        self._url = dagster_url
        self._cluster = plans[0].cluster if plans else penstock.settings.cluster
        self._landed = [plan for plan in plans if plan.spec.land is not None]
        self._plans = {
            key.to_user_string(): plan
            for plan in plans
            for key in (plan.bronze_key, plan.silver_key, plan.books_key)
        }

    def check(self, evaluation: Evaluation) -> Iterator[Observation]:
        """A window's equation by its newest book; any other check by its own word.

        Raises ClusterError and ArchiveError; an object that cannot be read is an incident of that
        check and stops no other.
        """
        name, asset = evaluation.key.name, evaluation.key.asset_key
        plan = self._plans.get(asset.to_user_string())
        at = _iso(evaluation.at)
        source = f"check/{asset.to_user_string()}/{name}/{evaluation.partition or ''}".rstrip("/")
        if plan is not None and evaluation.partition and name in set(Equation):
            try:
                yield from [
                    found
                    for window in self._windows(plan, evaluation.partition)
                    if (found := self._of_window(plan, window, evaluation)) is not None
                ]
                yield Observation(source, at=at)
            except (ChainError, ValueError) as error:  # an object of a format that is none
                summary = f"{plan.name} {evaluation.partition}: its books cannot be read: {error}"
                yield failure(self._cluster, source, component=plan.name, summary=summary, at=at)
            return
        if evaluation.passed or evaluation.severity != "ERROR":
            yield Observation(source, at=at)
            return
        yield failure(
            self._cluster,
            source,
            component=asset.path[-1],
            summary=f"{asset.to_user_string()}: {name} failed: {evaluation.description}",
            group="check",
            class_=name,
            details={"partition": evaluation.partition} if evaluation.partition else {},
            links=[self._asset_link(asset)],
            at=at,
        )

    def _of_window(
        self, plan: TopicPlan, window: Window, evaluation: Evaluation
    ) -> Observation | None:
        """The equation by the window's newest book. A good result about an older landing proves
        nothing: it changes nothing."""
        equation = Equation(evaluation.key.name)
        book = BookStore.of(self._penstock).newest_book(window.ref, window.sequence)
        result = book.result(equation) if book is not None else None
        if book is None or result is None:
            return None
        if book.accepts(equation):
            return Observation(f"{window.topic}/{window.window_id}/{equation}", at=book.made_at)
        if result.balanced and book.judged(equation) is None:
            return None
        return observe(
            self._cluster,
            window,
            result,
            severity=plan.spec.audit.severity,
            owners=plan.owners,
            accept_unaudited=plan.spec.audit.accept_unaudited,
            manifest=window_uri(self._penstock, window),
            links=[self._asset_link(evaluation.key.asset_key)],
            at=book.made_at,
        )

    def run(self, ended: EndedRun) -> Iterator[Observation]:
        """A job (and partition) that fails is one incident until it succeeds again.

        A run that failed on a blocking check is that check's incident, not one more; one that
        failed because a service did not answer is that service's.
        """
        run, at = ended.run, _iso(ended.at)
        partition = run.tags.get("dagster/partition", "")
        source = f"run/{run.job_name}/{partition}".rstrip("/")
        if not ended.failed:
            yield from self._succeeded(run, partition, Observation(source, at=at))
            return
        if run.tags.get("dagster/will_retry") == "true" or self._failed_on_check(run):
            return
        what = f"{run.job_name} of {partition}" if partition else run.job_name
        links = [(f"{self._url}/runs/{run.run_id}", "run")]
        away = service_away(self._chain_of_errors(run))
        if away is not None:
            plan = self._lands(run)
            landing = f"the landing of {plan.name} {partition}" if plan is not None else what
            stops = STOPPED.get(run.tags.get(JOB_TAG, ""), landing)
            error = self._first_error(run)
            yield outage(self._cluster, away, source, stops=stops, error=error, links=links, at=at)
            return
        details = self._run_details(run, partition)
        yield failure(
            self._cluster,
            source,
            component=run.tags.get(TOPIC_TAG, run.job_name),
            summary=f"{what} failed: {details['error']}",
            details=details,
            links=links,
            at=at,
        )

    def _succeeded(
        self, run: dg.DagsterRun, partition: str, good: Observation
    ) -> Iterator[Observation]:
        """A landing run is good news of its window only where it judged it."""
        plan = self._lands(run)
        if plan is None or not partition or self._judged(run, plan):
            yield good

    def _lands(self, run: dg.DagsterRun) -> TopicPlan | None:
        """The topic whose landing job the run is of."""
        return next((p for p in self._landed if p.landing_job == run.job_name), None)

    def _judged(self, run: dg.DagsterRun, plan: TopicPlan) -> bool:
        """Whether this very run compared what is stored with what is landed."""
        found = self._instance.get_records_for_run(
            run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
        )
        data = [
            event.event_specific_data
            for record in found.records
            if (event := record.event_log_entry.dagster_event) is not None
        ]
        return any(
            isinstance(e, dg.AssetCheckEvaluation)
            and e.asset_key == plan.bronze_key
            and e.check_name == Equation.STORED_EQUALS_LANDED
            for e in data
        )

    def health(self, health: Health, confirmed: Sequence[Problem]) -> Iterator[Observation]:
        """What was judged of a chain, or of the services: problems that have lasted long enough,
        and everything that is well."""
        for source in health.good:
            yield Observation(source)
        for problem in health.problems:
            if problem not in confirmed:
                continue
            service = CAUSES.get(problem.kind)
            if service is not None:
                yield outage(
                    self._cluster,
                    service,
                    problem.source,
                    stops="freezing of windows",
                    error=problem.summary.partition(": ")[2],
                )
                continue
            details: dict[str, Any] = {**problem.details}
            if problem.command:
                details["rerun" if " rerun " in problem.command else "command"] = problem.command
            yield failure(
                self._cluster,
                problem.source,
                component=problem.topic or "platform",
                summary=problem.summary,
                group="chain",
                class_=str(problem.kind),
                severity=problem.severity,
                details=details,
            )

    def _windows(self, plan: TopicPlan, partition: str) -> list[Window]:
        """All windows of a partition key; none where the topic or the key is gone."""
        try:
            ref = self._penstock.kafka.ref(plan.name)
            return WindowStore.of(self._penstock).find(ref, partition)
        except (UnknownTopicError, CronError):
            return []

    def _run_details(self, run: dg.DagsterRun, partition: str) -> dict[str, Any]:
        topic = run.tags.get(TOPIC_TAG)
        details: dict[str, Any] = {"run": run.run_id, "error": self._first_error(run)}
        if topic and partition:
            details["window"] = partition
            details["rerun"] = rerun_command(topic, partition)
        return details

    def _failed_on_check(self, run: dg.DagsterRun) -> bool:
        names = [error.cls_name for error in self._errors(run)]
        return bool(names) and all(name == "DagsterAssetCheckFailedError" for name in names)

    def _first_error(self, run: dg.DagsterRun) -> str:
        """The first real error of a run, without Dagster's frame around it."""
        for error in self._errors(run):
            found: SerializableErrorInfo = error
            while found.cause is not None:
                found = found.cause
            lines = found.message.strip().splitlines()
            if lines:
                return lines[0][:ERROR_CHARACTERS_MAX]
        return "its process ended without reporting an error"

    def _chain_of_errors(self, run: dg.DagsterRun) -> Iterator[tuple[str, str]]:
        """(type's name, message) of a run's errors and of those behind them."""
        for error in self._errors(run):
            found: SerializableErrorInfo | None = error
            while found is not None:
                yield found.cls_name or "", found.message
                found = found.cause

    def _errors(self, run: dg.DagsterRun) -> list[SerializableErrorInfo]:
        failures = self._instance.get_records_for_run(
            run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE
        )
        return [
            error
            for record in failures.records
            if (event := record.event_log_entry.dagster_event) is not None
            and (error := event.step_failure_data.error) is not None
        ]

    def _asset_link(self, asset: dg.AssetKey) -> tuple[str, str]:
        return f"{self._url}/assets/{'/'.join(asset.path)}?view=checks", "asset checks"


def _iso(seconds: float) -> str:
    return to_iso(datetime.fromtimestamp(seconds, UTC))
