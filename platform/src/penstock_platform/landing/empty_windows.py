"""Empty windows, proven many at a time.

A window without records needs no Spark: it is landed when the table holds nothing of it. Idle
topics close such windows all the time, and a pause of the platform leaves hundreds. One run proves
them all by the same equations, archives their books, and reports materialisation and check results
on each window's own partition.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.kafka.model import TopicRef
from penstock_platform.landing.assets import book_metadata, contract_result
from penstock_platform.landing.results import has_result
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.checks import judgement, report_check_result
from penstock_platform.reconciliation.model.books import Book, Equation
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.jobs import EXECUTOR
from penstock_platform.topics.names import EMPTY_WINDOWS, job_tags
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.metadata import window_metadata
from penstock_platform.windows.model.window import Window, check_link
from penstock_platform.windows.store import WindowStore, window_uri

# Of each topic in one run; the sensor asks again for the rest.
WINDOWS_MAX = 200


def build_empty_windows_job(plans: Sequence[TopicPlan]) -> dg.JobDefinition:
    """The job ``prove_empty_windows``."""
    names = plans[0].names

    @dg.op(
        name=names.of("prove_windows"),
        required_resource_keys={"penstock"},
        description="Proves windows that hold no records, and reports each on its partition.",
    )
    def prove_windows(context: dg.OpExecutionContext) -> None:
        penstock: Connections = context.resources.penstock
        failed: list[str] = []
        for plan in plans:
            proven, errors = prove_topic(context, penstock, plan)
            if proven:
                context.log.info("%s: %d empty windows proven", plan.name, proven)
            failed += errors
        if failed:  # every other topic and window is done
            raise dg.Failure("; ".join(failed), allow_retries=False)

    @dg.job(
        name=names.of(EMPTY_WINDOWS),
        executor_def=EXECUTOR,
        tags=job_tags(EMPTY_WINDOWS, plans[0].cluster),
        description="Prove windows that hold no records.",
    )
    def prove_empty_windows() -> None:
        prove_windows()

    return prove_empty_windows


def prove_topic(
    context: dg.OpExecutionContext, penstock: Connections, plan: TopicPlan
) -> tuple[int, list[str]]:
    """Prove the topic's empty windows that have no result yet, newest last.

    Returns how many, and a sentence for each that could not be: one stops no other.
    """
    proven = 0
    errors: list[str] = []
    try:
        ref = penstock.kafka.ref(plan.name)
        newest = WindowStore.of(penstock).newest(ref)
    except UnknownTopicError:
        return 0, []
    except Exception as error:  # noqa: BLE001 - one topic must not stop the others
        return 0, [f"{plan.name}: {error}"]
    last = newest.sequence if newest is not None else -1
    for sequence in range(max(0, last + 1 - WINDOWS_MAX), last + 1):
        try:
            proven += prove_if_due(context, penstock, plan, ref, sequence)
        except Exception as error:
            context.log.exception("%s window %d could not be proven", plan.name, sequence)
            errors.append(f"{plan.name} window {sequence}: {error}")
    return proven, errors


def prove_if_due(
    context: dg.OpExecutionContext,
    penstock: Connections,
    plan: TopicPlan,
    ref: TopicRef,
    sequence: int,
) -> bool:
    """Prove one window where it is empty and has no result; whether it was."""
    window = WindowStore.of(penstock).get(ref, sequence)
    if window is None or window.record_count:
        return False
    check_link(WindowStore.of(penstock).get(ref, sequence - 1) if sequence else None, window)
    if has_result(plan, BookStore.of(penstock).newest_book(ref, sequence)):
        return False
    prove_window(context, penstock, plan, window)
    return True


def prove_window(
    context: dg.OpExecutionContext, penstock: Connections, plan: TopicPlan, window: Window
) -> None:
    """Prove one empty window, and report what a landing run would have."""
    books = Bookkeeper(penstock)
    about = window_metadata(window, window_uri(penstock, window))
    stages: list[tuple[dg.AssetKey, Equation, Book]] = [
        (plan.bronze_key, Equation.STORED_EQUALS_LANDED, books.prove_landed(window, plan.spec))
    ]
    if plan.contract is not None:
        book = books.prove_parsed(window, plan.spec)
        stages.append((plan.silver_key, Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED, book))
        report_check_result(context, contract_result(plan.silver_key, {}), window.window)
    book = books.prove_produced(window, plan.spec)
    stages.append((plan.books_key, Equation.PRODUCED_EQUALS_STORED, book))
    for key, equation, made in stages:
        metadata: dict[str, Any] = {"rows": 0, "dagster/partition_row_count": 0}
        if key == plan.books_key:
            metadata = book_metadata([made])
        context.log_event(
            dg.AssetMaterialization(
                key,
                partition=window.window,
                metadata={**about, **metadata},
                tags={"dagster/data_version": window.sha256},
            )
        )
        report_check_result(context, judgement(plan, key, window, made, equation), window.window)
