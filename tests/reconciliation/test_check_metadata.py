"""What a page shows of an equation: the figures that say something, and no empty columns."""

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.metadata import equation_metadata
from penstock_platform.reconciliation.model.books import (
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.model.recovery import RerunSource, SourceKind, with_source

LOST = OffsetRange(2, 17, 20)


def result(*findings: Finding, **detail: int | str) -> EquationResult:
    return EquationResult(
        equation=Equation.STORED_EQUALS_LANDED,
        state=WindowState.MISSING if findings else WindowState.BALANCED,
        expected=100,
        found=97 if findings else 100,
        findings=findings,
        detail=detail,
    )


def test_details_that_are_zero_are_not_shown() -> None:
    shown = equation_metadata(result(rows=100, legal_holes=0))
    assert shown == {"state": "BALANCED", "expected": 100, "found": 100, "detail/rows": 100}


def test_what_a_rerun_reads_is_one_sentence() -> None:
    shown = equation_metadata(with_source(result(rows=100), RerunSource(SourceKind.LOG)))
    assert list(shown) == ["state", "expected", "found", "detail/rows", "rerun"]
    assert shown["rerun"] == "a re-run reads the log, which has every offset of the window"


def test_the_table_of_findings_has_no_empty_columns() -> None:
    shown = equation_metadata(result(Finding("missing", (LOST,))))["findings"]
    assert [c.name for c in shown.schema.columns] == [
        *("kind", "partition", "first", "last", "records")
    ]
    assert [r.data for r in shown.records] == [
        {"kind": "missing", "partition": 2, "first": 17, "last": 19, "records": 3}
    ]


def test_a_producer_is_a_column_where_one_is_known() -> None:
    findings = (Finding("missing", (LOST,)), Finding("unclaimed", (LOST,), incarnation="7"))
    shown = equation_metadata(result(*findings))["findings"]
    assert [c.name for c in shown.schema.columns][-1] == "incarnation"
    assert [r.data["incarnation"] for r in shown.records] == ["", "7"]
