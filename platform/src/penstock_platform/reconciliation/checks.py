"""Partitioned asset checks, in the one place that touches Dagster's preview of them.

A window's result is an asset check on that window's partition. Three ways lead to one: inside the
landing run (``window_check`` in the asset's own step, so that it can block), check-only (the same
step with nothing but the check selected), and ``report_check_result`` for a job that judges several
windows at once (a single run over several partitions would record its checks without a partition,
Dagster 1.13).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.reconciliation.books import result_of
from penstock_platform.reconciliation.metadata import equation_metadata, equation_sentence
from penstock_platform.reconciliation.model.books import Book, Equation, EquationResult, WindowState
from penstock_platform.reconciliation.model.recovery import rerun_helps
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import Window, rerun_command
from penstock_platform.windows.store import WindowStore

# Nothing is known to be wrong. A check fails only for what a person has to look at.
PASSING = frozenset({WindowState.BALANCED, WindowState.PENDING})
# Not balanced, but nothing is lost: what compaction took, and what is still due.
WARNING = frozenset({WindowState.PENDING, WindowState.UNPROVEN})


def window_check(
    name: str,
    asset: dg.AssetKey,
    partitions: dg.PartitionsDefinition[str],
    *,
    blocking: bool,
    description: str,
    metadata: Mapping[str, Any] | None = None,
) -> dg.AssetCheckSpec:
    """The specification of a check that is evaluated window by window."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            name,
            asset=asset,
            blocking=blocking,
            description=description,
            metadata=metadata,
            partitions_def=partitions,
        )


def check_result(
    result: EquationResult,
    asset: dg.AssetKey,
    *,
    severity: str = "ERROR",
    accept_unaudited: bool = False,
    accepted: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> dg.AssetCheckResult:
    """An equation's outcome as the result of the check that bears its name.

    PENDING passes: evidence that is still due is no failure, and raises no alert. ``accepted``:
    a person has accepted all that the window's book found.
    """
    forgiven = accepted or (accept_unaudited and result.state is WindowState.UNAUDITED)
    sentence = equation_sentence(result)
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=str(result.equation),
        passed=forgiven or result.state in PASSING,
        severity=dg.AssetCheckSeverity("WARN" if result.state in WARNING else severity),
        description=f"ACCEPTED by a person. {sentence}" if accepted else sentence,
        metadata={**equation_metadata(result), **(metadata or {})},
    )


def report_check_result(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    result: dg.AssetCheckResult,
    partition: str,
) -> None:
    """Record a check's result for one window's partition, from a run that judges many.

    As an event of that run: Dagster keeps one evaluation of a check and partition for each run, and
    all reports outside of any run count as one run, so a second such report of a window would be
    refused (a unique index of ``asset_check_executions``).
    """
    if result.asset_key is None or result.check_name is None:
        raise ValueError("a result must name its asset and its check")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        evaluation = dg.AssetCheckEvaluation(
            asset_key=result.asset_key,
            check_name=result.check_name,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
            partition=partition,
        )
    said = "passed" if result.passed else "did not pass"
    event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_CHECK_EVALUATION.value,
        job_name=context.job_name,
        event_specific_data=evaluation,
        message=f"{result.check_name} of {partition} {said}. {result.description or ''}",
    )
    context.instance.report_dagster_event(event, context.run.run_id)


def worst(results: Sequence[dg.AssetCheckResult]) -> dg.AssetCheckResult:
    """The result that weighs most: failed before passed, ERROR before WARN, PENDING before
    BALANCED, the earlier window first. The others are counted in its metadata."""

    def weight(result: dg.AssetCheckResult) -> tuple[bool, bool, bool]:
        balanced = result.metadata["state"] == dg.TextMetadataValue(str(WindowState.BALANCED))
        return result.passed, result.severity is not dg.AssetCheckSeverity.ERROR, balanced

    first = min(results, key=weight)
    if len(results) == 1:
        return first
    failed = sum(not r.passed for r in results)
    counts = {"windows": dg.IntMetadataValue(len(results))}
    counts["windows_failed"] = dg.IntMetadataValue(failed)
    return first._replace(metadata={**first.metadata, **counts})


def judgement(
    plan: TopicPlan, key: dg.AssetKey, window: Window, book: Book, equation: Equation
) -> dg.AssetCheckResult:
    """What a window's book says of an equation, as the topic's declaration weighs it.

    A failed check has the command that repairs the table, where there is one.
    """
    audit = plan.spec.audit
    result = result_of(book, equation)
    shown = check_result(
        result,
        key,
        severity="ERROR" if blocks(equation) else audit.severity,
        accept_unaudited=audit.accept_unaudited,
        accepted=book.accepts(equation),
        metadata={"window": window.name, "window_id": window.window_id},
    )
    if shown.passed or not rerun_helps(result, result.findings):
        return shown
    command = dg.TextMetadataValue(rerun_command(window.topic, window.window))
    return shown._replace(metadata={**shown.metadata, "rerun": command})


def tick_judgement(
    penstock: Connections, plan: TopicPlan, key: dg.AssetKey, window: Window, equation: Equation
) -> dg.AssetCheckResult:
    """The check result of the window's partition: the worst of its tick's newest books, as far as
    they judge the equation."""
    windows = WindowStore.of(penstock).tick_of(window)
    newest = ((w, BookStore.of(penstock).newest_book(w.ref, w.sequence)) for w in windows)
    return worst(
        [
            judgement(plan, key, w, book, equation)
            for w, book in newest
            if book is not None and book.result(equation) is not None
        ]
    )


def blocks(equation: Equation) -> bool:
    """Evidence of producers comes when it comes; what is in the lake must be right at once."""
    return equation is not Equation.PRODUCED_EQUALS_STORED
