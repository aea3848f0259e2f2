"""The landing run of one tick: bronze, silver, books, each proven before the next may start.

The Dagster partition key names the tick; its window objects name the offsets. A tick has one
window, or several where it holds more than `max_records`: they are landed and judged one after the
other in chain order, and the partition's check result is the worst of theirs. Everything here is
a pure function of those objects and can be run again at any time. The checks live in the steps of
their assets (``can_subset``): a blocking one stops the run before what follows, and any of them
can be run alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.landing.attempt import land_window, parse_window
from penstock_platform.landing.metadata import landing_metadata
from penstock_platform.landing.ownership import (
    LandingOwnedError,
    outcome_recorded,
    owned_landing,
)
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.checks import (
    blocks,
    judgement,
    window_check,
    worst,
)
from penstock_platform.reconciliation.model.books import Book, Equation, WindowState
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.metadata import table
from penstock_platform.topics.model.contract import Contract
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.topics.names import EVIDENCE, LAND
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.metadata import tick_metadata
from penstock_platform.windows.model.window import Window, rerun_command
from penstock_platform.windows.store import WindowStore, window_uri

CONTRACT_CHECK = "contract"
REASONS_IN_SENTENCE = 3
REASON_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("reason", "string", "Why a record does not keep the contract"),
        dg.TableColumn("records", "int", "How many"),
    ]
)
Events = Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]
# What passes by itself: Spark or S3 restarting. A failed proof is a result and not tried again.
RETRIES = dg.RetryPolicy(max_retries=3, delay=3, backoff=dg.Backoff.EXPONENTIAL)
BACKFILL = dg.BackfillPolicy.multi_run(1)


class WindowAssetContext:
    """What a step of a landing run works with: connections, the tick's windows, their books."""

    def __init__(self, context: dg.AssetExecutionContext, plan: TopicPlan) -> None:
        self.dagster = context
        self.plan = plan
        self.penstock: Connections = context.resources.penstock
        self.books = Bookkeeper(self.penstock)
        self.windows = find_windows(self.penstock, plan, context.partition_key)

    @property
    def materialising(self) -> bool:
        """False when only the check was asked for."""
        return bool(self.dagster.selected_asset_keys)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Own the landing of the partition: no other run interrupts it, nor does this one others.

        Raises Failure, without retries, while another run owns it.
        """
        clock, key = self.penstock.clock, self.dagster.partition_key
        try:
            with owned_landing(self.dagster, clock, self.windows[-1].topic_id, key):
                yield
        except LandingOwnedError as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    def land(self, window: Window) -> Receipt:
        """Land one window, reporting each step."""
        landed = land_window(self.penstock, window, lambda step: self.report(window, step))
        if landed.recovered:
            self.dagster.log.warning(
                "%s: %d records were restored from snapshot %s of the table: the log has deleted "
                "them",
                window.name,
                landed.recovered,
                landed.source.snapshot_id,
            )
        return landed.receipt

    def parse(self, window: Window, contract: Contract) -> Receipt:
        """Parse one landed window, reporting each step."""
        parsed = parse_window(
            self.penstock, window, contract, lambda step: self.report(window, step)
        )
        silver, bad = parsed.silver, parsed.quarantine
        return replace(silver, counts={**silver.counts, "quarantined": bad.rows})

    def quarantine_reasons(self) -> dict[str, int]:
        """Quarantined records of the windows by reason; none where nothing was parsed yet."""
        name = self.plan.quarantine_table
        reasons: Counter[str] = Counter()
        for window in self.windows:
            if self.penstock.lake.row_count(name, window.window_id):
                rows = self.penstock.lake.scan_table(name, window.window_id, ("reason",))
                reasons.update(str(reason) for reason in rows.column("reason").to_pylist())
        return reasons

    def report(self, window: Window, step: str) -> None:
        self.dagster.log.info("%s %s: %s", self.plan.name, window.name, step)

    def materialised(self, key: dg.AssetKey, metadata: dict[str, Any]) -> Any:
        uris = [window_uri(self.penstock, window) for window in self.windows]
        return dg.MaterializeResult(
            asset_key=key,
            metadata={**tick_metadata(self.windows, uris), **metadata},
            data_version=dg.DataVersion(self.windows[-1].sha256),
        )

    def judged(
        self, key: dg.AssetKey, books: Sequence[Book], equation: Equation
    ) -> dg.AssetCheckResult:
        """The check result of the partition: the worst of its windows'."""
        results = [
            judgement(self.plan, key, window, book, equation)
            for window, book in zip(self.windows, books, strict=True)
        ]
        return worst(results)


def find_windows(penstock: Connections, plan: TopicPlan, key: str) -> list[Window]:
    """The frozen windows of a partition key, in chain order.

    Landing never freezes: without them all, it ends here.
    """
    try:
        ref = penstock.kafka.ref(plan.name)
    except UnknownTopicError as error:
        raise dg.Failure(
            f"topic {plan.name} does not exist yet, so window {key} holds nothing; materialise "
            f"the asset {plan.topic_key.to_user_string()}",
            allow_retries=False,
        ) from error
    windows = WindowStore.of(penstock).find(ref, key)
    if windows and not windows[-1].more:
        return windows
    newest = WindowStore.of(penstock).newest(ref)
    reached = f"the chain ends with {newest.name}" if newest else "its chain is empty"
    amount = f"only in part ({len(windows)} windows)" if windows else "not"
    raise dg.Failure(
        f"window {key} of {plan.name} is {amount} frozen: {reached}. Windows are frozen by "
        "the window sensor once they have closed; nothing was landed",
        metadata={"partition": key, "chain_ends_with": newest.name if newest else ""},
        allow_retries=False,
    )


def build_bronze(plan: TopicPlan) -> dg.AssetsDefinition:
    """``["lake", "bronze", <t>]``: every record of the window, in full fidelity, once."""
    key = plan.bronze_key

    def land(step: WindowAssetContext) -> Events:
        receipts: list[Receipt] = []
        books: list[Book] = []
        for window in step.windows:
            if step.materialising:
                receipts.append(step.land(window))
            books.append(step.books.prove_landed(window, plan.spec))
        if receipts:
            yield step.materialised(key, landing_metadata(receipts, step.penstock.lake))
        yield step.judged(key, books, Equation.STORED_EQUALS_LANDED)

    return _window_asset(
        plan,
        key,
        land,
        deps=[plan.topic_key],
        group="landing",
        kinds={"spark", "iceberg", "s3"},
        description=(
            f"Every record of topic `{plan.name}` with its key, value, headers, timestamps and "
            "coordinates: one frozen window of exact offsets a partition, landed by Spark in one "
            "commit. Also the archive: what retention deletes from the broker stays here."
        ),
        metadata={
            "dagster/table_name": bronze_table(plan.name),
            "dagster/storage_kind": "iceberg",
        },
        equation=Equation.STORED_EQUALS_LANDED,
        check="Every offset of the window's ranges is in the table once. The expectation is the "
        "window object; the table is read by pyiceberg, without the Spark job's own figures.",
    )


def build_silver(plan: TopicPlan) -> dg.AssetsDefinition:
    """``["lake", "silver", <t>]``: bronze parsed by the contract; the rest goes to quarantine."""
    key = plan.silver_key
    contract = plan.contract
    if contract is None:
        raise ValueError(f"topic {plan.name} declares no schema")

    def parse(step: WindowAssetContext) -> Events:
        receipts: list[Receipt] = []
        books: list[Book] = []
        for window in step.windows:
            if step.materialising:
                refuse_unproven(step, window)
                receipts.append(step.parse(window, contract))
            books.append(step.books.prove_parsed(window, plan.spec))
        if receipts:
            metadata = landing_metadata(receipts, step.penstock.lake)
            metadata["quarantine_table"] = plan.quarantine_table
            yield step.materialised(key, metadata)
        yield step.judged(key, books, Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED)
        yield contract_result(key, step.quarantine_reasons())

    return _window_asset(
        plan,
        key,
        parse,
        deps=[plan.bronze_key],
        group="silver",
        kinds={"spark", "iceberg", "s3"},
        description=(
            f"`{plan.name}` parsed by its contract ({contract.title or 'JSON Schema'}). Records "
            f"that do not parse are in `{plan.quarantine_table}` with reason and "
            "coordinates. A window whose landing is not proven is refused."
        ),
        metadata={
            "dagster/table_name": plan.silver_table,
            "dagster/storage_kind": "iceberg",
        },
        equation=Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED,
        check="Every landed record is parsed or quarantined, once: compared by coordinates in both "
        "directions, never by counts.",
        further=[
            window_check(
                CONTRACT_CHECK,
                key,
                plan.partitions,
                blocking=False,
                description="Records keep the contract. Those that do not are in quarantine, "
                "counted here by reason; they are not lost.",
            )
        ],
    )


def contract_result(key: dg.AssetKey, reasons: Mapping[str, int]) -> dg.AssetCheckResult:
    """How many records do not parse, and why. Not a loss: a warning."""
    bad = sum(reasons.values())
    most = sorted(reasons.items(), key=lambda item: -item[1])
    listed = "; ".join(f"{count:,} {reason}" for reason, count in most[:REASONS_IN_SENTENCE])
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CONTRACT_CHECK,
        passed=not bad,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{bad:,} records in quarantine: {listed}" if bad else "every record parses",
        metadata={
            "quarantined": bad,
            "reasons": table([{"reason": r, "records": n} for r, n in most], REASON_SCHEMA),
        },
    )


def build_books(plan: TopicPlan) -> dg.AssetsDefinition:
    """``["books", <topic>]``: the reconciliation of the window, archived."""
    key = plan.books_key

    def reconcile(step: WindowAssetContext) -> Events:
        books = [step.books.prove_produced(window, plan.spec) for window in step.windows]
        if step.materialising:
            yield step.materialised(key, book_metadata(books))
        yield step.judged(key, books, Equation.PRODUCED_EQUALS_STORED)

    upstream = plan.silver_key if plan.contract is not None else plan.bronze_key
    return _window_asset(
        plan,
        key,
        reconcile,
        deps=[upstream, plan.bronze_key] if upstream != plan.bronze_key else [upstream],
        group="books",
        kinds={"kafka", "s3"},
        description=(
            f"The books of `{plan.name}`: what producers say they sent, what the broker stored, "
            "what was landed, parsed and quarantined, per window, in exact offsets. Archived as "
            "create-only objects; a later one supersedes."
        ),
        metadata={},
        equation=Equation.PRODUCED_EQUALS_STORED,
        check="Offsets claimed by audited producers and offsets stored are the same sets, "
        "sequences are there once, digests agree. Passes (PENDING) while evidence is still due.",
    )


def book_metadata(books: Sequence[Book]) -> dict[str, Any]:
    """The tiers side by side, summed over the tick's windows, and each window's state."""
    tiers: Counter[str] = Counter()
    for book in books:
        tiers.update(book.tiers)
    evidence = {name: value for book in books for name, value in book.evidence.items()}
    if len(books) == 1:
        lines = [f"- `{r.equation}`: {r.state}" for r in books[0].equations]
    else:
        lines = [f"- {b.sequence} `{r.equation}`: {r.state}" for b in books for r in b.equations]
    return {
        "state": ", ".join(sorted({str(book.state) for book in books})),
        **{f"tier/{name}": count for name, count in tiers.items()},
        **{f"evidence/{name}": value for name, value in evidence.items()},
        "equations": dg.MetadataValue.md("\n".join(lines)),
    }


def refuse_unproven(step: WindowAssetContext, window: Window) -> None:
    """Silver's own gate: the books, not this run's luck, say whether the landing is proven."""
    book = step.books.newest(window)
    result = book.judged(Equation.STORED_EQUALS_LANDED) if book is not None else None
    if book is not None and result is not None:
        compacted = result.state is WindowState.UNPROVEN and step.plan.spec.compacted
        if result.balanced or compacted or book.accepts(Equation.STORED_EQUALS_LANDED):
            return
    state = result.state if result is not None else WindowState.FROZEN
    raise dg.Failure(
        f"window {window.name} of {step.plan.name} is {state}: its landing is not proven, "
        f"so it is not parsed. Run: {rerun_command(window.topic, window.window)}",
        metadata={"state": str(state)},
        allow_retries=False,
    )


def landing_selection(plan: TopicPlan) -> dg.AssetSelection:
    """The assets with their own equations, and none of the checks that others hang on them."""
    own = dg.AssetSelection.assets(*plan.landing_keys)
    checks = [(plan.bronze_key, Equation.STORED_EQUALS_LANDED)]
    checks += [(plan.books_key, Equation.PRODUCED_EQUALS_STORED)]
    keys = [dg.AssetCheckKey(key, str(equation)) for key, equation in checks]
    if plan.contract is not None:
        parsed = str(Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED)
        keys += [dg.AssetCheckKey(plan.silver_key, n) for n in (parsed, CONTRACT_CHECK)]
    return own.without_checks() | dg.AssetSelection.checks(*keys)


def build_landing_job(plan: TopicPlan) -> Any:
    """One run a tick, whatever the number of its windows."""
    return build_job(
        plan.landing_job,
        landing_selection(plan),
        job=LAND,
        cluster=plan.cluster,
        topic=plan.name,
        description=f"Land, parse and reconcile one window of {plan.name}.",
    )


def build_evidence_job(plan: TopicPlan) -> Any:
    """An asset job whose check is run alone while evidence is due."""
    return build_job(
        plan.evidence_job,
        dg.AssetSelection.assets(plan.books_key),
        job=EVIDENCE,
        cluster=plan.cluster,
        topic=plan.name,
        description=f"Read the producers' evidence for one window of {plan.name} again.",
    )


def freshness_of(plan: TopicPlan) -> dg.FreshnessPolicy | None:
    """Dagster's own watch over the time since the last landing, where one is declared."""
    declared = plan.spec.freshness
    if declared is None:
        return None
    return dg.FreshnessPolicy.time_window(
        fail_window=declared.fail_after, warn_window=declared.warn_after
    )


def _window_asset(
    plan: TopicPlan,
    key: dg.AssetKey,
    body: Callable[[WindowAssetContext], Events],
    *,
    deps: list[dg.AssetKey],
    group: str,
    kinds: set[str],
    description: str,
    metadata: dict[str, Any],
    equation: Equation,
    check: str,
    further: Sequence[dg.AssetCheckSpec] = (),
) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=key.to_python_identifier(),
        can_subset=True,
        specs=[
            dg.AssetSpec(
                key,
                deps=deps,
                skippable=True,
                group_name=group,
                kinds=kinds,
                owners=plan.owners,
                tags=plan.tags,
                description=description,
                metadata=metadata,
                freshness_policy=freshness_of(plan) if group == "landing" else None,
            )
        ],
        check_specs=[
            window_check(
                str(equation), key, plan.partitions, blocking=blocks(equation), description=check
            ),
            *further,
        ],
        partitions_def=plan.partitions,
        backfill_policy=BACKFILL,
        retry_policy=RETRIES,
        required_resource_keys={"penstock"},
    )
    def window_asset(context: dg.AssetExecutionContext) -> Events:
        if not context.selected_asset_keys:  # a check alone reads, and lands nothing
            yield from body(WindowAssetContext(context, plan))
            return
        with outcome_recorded(context):
            step = WindowAssetContext(context, plan)
            with step.owned():
                yield from body(step)

    return window_asset
