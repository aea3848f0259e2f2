"""Partitioned asset checks, in the one place that touches Dagster's preview of them.

A window's result is an asset check on that window's partition. Three ways lead to one: inside the
landing run (``window_check`` in the asset's own step, so that it can block), check-only (the same
step with nothing but the check selected), and ``report_check_result`` for a job that judges several
windows at once (a single run over several partitions would record its checks without a partition,
Dagster 1.13).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import dagster as dg

from penstock_platform.components.metadata import equation_metadata, equation_sentence
from penstock_platform.domain.books import EquationResult, WindowState

# Nothing is known to be wrong. A check fails only for what a person has to look at.
PASSING = frozenset({WindowState.BALANCED, WindowState.PENDING})
# Amiss, but nothing is lost: what compaction took, and what is still due.
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
