"""``QualityComponent``: a Great Expectations suite on a topic's silver table, as asset checks.

::

    type: penstock_platform.QualityComponent
    attributes:
      topic: flights
      expectations:
        - type: expect_column_values_to_be_in_set
          kwargs: {column: origin, value_set: [EWR, JFK, LGA]}
          severity: critical                 # critical: ERROR; warning, info: WARN

Each expectation is one check, named by its type and column. The suite looks at the newest proven
windows of silver on a schedule of its own and blocks nothing: quality is an opinion about records
that the books have already accounted for. Great Expectations is imported when it runs (5 s).
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from penstock_platform.connections import Connections
from penstock_platform.extras import require_extra
from penstock_platform.reconciliation.model.books import Equation
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics import declarations
from penstock_platform.topics.metadata import table
from penstock_platform.topics.model.declaration import silver_key, silver_table
from penstock_platform.topics.names import Names
from penstock_platform.topics.scaffolding import QualityScaffolder
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUALITY_TAG = "penstock/quality"
VALUE_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("value", "string", "A value that was not expected"),
        dg.TableColumn("count", "int", "How often, among the checked values"),
    ]
)
_SEVERITIES = {"critical": "ERROR", "warning": "WARN", "info": "WARN"}
_TYPE = re.compile(r"expect_[a-z0-9_]+")


class ExpectationSpec(BaseModel):
    """One expectation under its name in Great Expectations, with its arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: str = Field(
        pattern=_TYPE.pattern,
        description="Name in Great Expectations, such as expect_column_values_to_be_in_set.",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the expectation, such as column and value_set.",
    )
    severity: Literal["critical", "warning", "info"] = Field(
        default="critical", description="critical: the check fails with ERROR; otherwise with WARN."
    )

    @property
    def check_name(self) -> str:
        column = self.kwargs.get("column") or "_".join(self.kwargs.get("column_list", ()))
        name = f"{self.type.removeprefix('expect_')}__{column}" if column else self.type
        return re.sub(r"\W", "_", name)

    @property
    def dagster_severity(self) -> dg.AssetCheckSeverity:
        return dg.AssetCheckSeverity(_SEVERITIES[self.severity])


class QualitySpec(BaseModel):
    """A suite: ``windows`` says how many of the newest proven windows it looks at; ``version`` is
    the silver table's, as the topic declares it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    topic: str = Field(description="The topic whose silver table is checked.")
    version: int = Field(
        default=1, ge=1, description="Version of the silver table, as the topic's schema has it."
    )
    expectations: tuple[ExpectationSpec, ...] = Field(
        min_length=1, description="One asset check each."
    )
    windows: int = Field(
        default=1, ge=1, le=100, description="How many of the newest proven windows are read."
    )


_ATTRIBUTES = declarations.attributes_model("QualityAttributes", QualitySpec)


@dg.scaffold_with(QualityScaffolder)
class QualityComponent(declarations.DeclaredComponent):
    """A Great Expectations suite on a topic's silver table, one asset check an expectation."""

    ATTRIBUTES = _ATTRIBUTES
    TAGS = ("great_expectations", "spark")
    PRODUCES = ("asset_check",)

    def __init__(self, spec: QualitySpec) -> None:
        self.spec = spec

    @classmethod
    def read(cls, values: Mapping[str, Any], source: declarations.Source) -> QualitySpec:
        """Raises DeclarationError with file and line of every problem."""
        spec = declarations.parse(QualitySpec, values, source)
        names = [e.check_name for e in spec.expectations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise declarations.DeclarationError(
                f"{source.at('expectations')}: {', '.join(twice)} is there twice; "
                "one expectation of a kind for a column"
            )
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions(asset_checks=[build_suite(self.spec)])


def build_suite(spec: QualitySpec) -> dg.AssetChecksDefinition:
    """All expectations of a topic in one step: Spark reads the windows once."""
    key = dg.AssetKey(silver_key(spec.topic, spec.version))
    names = {e.check_name: e for e in spec.expectations}

    @dg.multi_asset_check(
        name=Names().of(f"quality_{key.path[-1]}"),
        specs=[
            dg.AssetCheckSpec(name, asset=key, blocking=False, description=describe(e))
            for name, e in names.items()
        ],
        can_subset=True,
        required_resource_keys={"penstock"},
        op_tags={QUALITY_TAG: spec.topic},
    )
    def suite(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        penstock: Connections = context.resources.penstock
        windows = proven_windows(penstock, spec)
        if not windows:
            context.log.info("no window of %s is parsed and proven yet", spec.topic)
            for name, e in names.items():
                yield unjudged(key, name, e)
            return
        frame = silver_rows(penstock, silver_table(spec.topic, spec.version), windows)
        for e, outcome in zip(spec.expectations, validate(frame, spec.expectations), strict=True):
            yield check_result(key, e, outcome, windows)

    return suite


def proven_windows(penstock: Connections, spec: QualitySpec) -> list[Window]:
    """The newest windows whose silver is proven, newest first; at most ``spec.windows``."""
    ref = penstock.kafka.ref(spec.topic)
    found: list[Window] = []
    for window in reversed(WindowStore.of(penstock).recent(ref, spec.windows + 10)):
        book = BookStore.of(penstock).newest_book(ref, window.sequence)
        parsed = Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED
        result = book.result(parsed) if book is not None else None
        if result is not None and result.balanced and result.expected:
            found.append(window)
        if len(found) == spec.windows:
            break
    return found


def silver_rows(penstock: Connections, table: str, windows: Sequence[Window]) -> "DataFrame":
    session = penstock.spark.session()
    frame = session.table(table)
    return frame.where(frame["window_id"].isin([w.window_id for w in windows]))


def validate(
    frame: "DataFrame", expectations: Sequence[ExpectationSpec]
) -> list[Mapping[str, Any]]:
    """Run the suite on the rows; one outcome an expectation, in their order.

    An outcome has ``success``, ``result`` and, where it could not be evaluated, ``exception``.
    """
    require_extra("great_expectations")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx  # noqa: PLC0415 - 5 s

    context: Any = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("lake", persist=False)
    batch = source.add_dataframe_asset("silver").add_batch_definition_whole_dataframe("windows")
    suite = gx.ExpectationSuite("penstock")
    configurations = [_configuration(gx, e, n) for n, e in enumerate(expectations)]
    for configuration in configurations:
        suite.add_expectation_configuration(configuration)
    suite = context.suites.add(suite)
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name="penstock", data=batch, suite=suite)
    )
    results = definition.run(batch_parameters={"dataframe": frame}, result_format="SUMMARY")
    by_number: dict[int, Any] = {r.expectation_config.meta["number"]: r for r in results.results}
    return [_outcome(by_number[n]) for n in range(len(expectations))]


def _configuration(gx: Any, e: ExpectationSpec, number: int) -> Any:
    from great_expectations.expectations.expectation_configuration import (  # noqa: PLC0415
        ExpectationConfiguration,
    )

    return ExpectationConfiguration(**{**e.model_dump(), "meta": {"number": number}})


def _outcome(result: Any) -> dict[str, Any]:
    raised = result.exception_info or {}
    message = raised.get("exception_message") if "exception_message" in raised else None
    if message is None:
        messages = (v.get("exception_message") for v in raised.values() if isinstance(v, dict))
        message = next((m for m in messages if m), None)
    return {"success": bool(result.success), "result": result.result or {}, "exception": message}


def check_result(
    key: dg.AssetKey, e: ExpectationSpec, outcome: Mapping[str, Any], windows: Sequence[Window]
) -> dg.AssetCheckResult:
    """Counts and examples; a share only beside the counts that it was made of."""
    result = outcome["result"]
    counted = result.get("element_count")
    unexpected = result.get("unexpected_count")
    metadata: dict[str, Any] = {"windows": [w.window for w in windows], "expectation": e.type}
    if counted is not None:
        metadata["rows"] = int(counted)
    if unexpected is not None:
        metadata["unexpected_rows"] = int(unexpected)
    examples = result.get("partial_unexpected_counts") or ()
    if examples:
        rows = [{"value": str(x["value"]), "count": int(x["count"])} for x in examples]
        metadata["examples"] = table(rows, VALUE_SCHEMA)
    if outcome["exception"]:
        said = f"could not be evaluated: {outcome['exception']}"
    elif unexpected is not None:
        said = f"{unexpected:,} of {counted:,} rows are not as expected"
    else:
        said = "as expected" if outcome["success"] else "not as expected"
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=e.check_name,
        passed=bool(outcome["success"]),
        severity=e.dagster_severity,
        description=f"{said} (window {', '.join(w.window for w in windows)})",
        metadata=metadata,
    )


def unjudged(key: dg.AssetKey, name: str, e: ExpectationSpec) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=True,
        severity=dg.AssetCheckSeverity.WARN,
        description="no window is parsed and proven yet, so nothing was checked",
        metadata={"rows": 0, "expectation": e.type},
    )


def describe(e: ExpectationSpec) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in e.kwargs.items())
    return f"Great Expectations: {e.type}({arguments})"
