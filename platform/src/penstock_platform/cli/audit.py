"""``penstock audit TOPIC``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.markup import escape

from penstock_platform.alerts.dagster_state import dagster_facts, managed
from penstock_platform.alerts.health import HealthReader
from penstock_platform.alerts.model.chain_health import (
    CAUSES,
    Kind,
    Problem,
    judge_chain,
    judge_platform,
)
from penstock_platform.cli.balance import unbalanced
from penstock_platform.cli.console import (
    NotBalancedError,
    console,
    output_option,
    print_json,
    settings,
)
from penstock_platform.cli.errors import NOT_BALANCED
from penstock_platform.cli.incarnation import chains_of, incarnation_option
from penstock_platform.cli.project import Connections
from penstock_platform.cli.proofs import change_sentence, changes, prove_now, with_proof_time
from penstock_platform.cli.topic import declarations
from penstock_platform.cli.window_documents import details, find, summary, windows_of
from penstock_platform.cli.window_tables import print_details, print_windows
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import TopicSpec


@click.command()
@click.argument("topic")
@click.option("--window", default=None, help="Only this window, with all findings.")
@click.option(
    "--now",
    "again",
    is_flag=True,
    help="First verify the windows again, row by row, and report changes.",
)
@click.option("--last", default=0, help="Only this many of the newest windows; 0 for all.")
@incarnation_option
@output_option
@click.pass_context
def command(ctx: click.Context, /, topic: str, output: str, **chosen: Any) -> None:
    """Report for every window of TOPIC whether its books balance. Exit code 3 if one does not.

    A window does not balance while its evidence is due, before it is landed, or if it could not be
    proven. Without --now the newest books are shown; "proven at" is the time of the proof. Exit
    code 3 also if the chain of windows stops: none is frozen though one is due, the topic was
    deleted or recreated, a service does not answer.
    """
    penstock = Connections(settings())
    name, incarnation = chosen["window"], chosen["incarnation"]
    problems = stopped(penstock, topic) if name is None and incarnation is None else ()
    try:
        chains = chains_of(penstock, topic, incarnation)
    except ClusterError as error:
        if not problems:
            raise
        raise NotBalancedError("; ".join(p.summary for p in problems)) from error
    newest = chains[-1]
    if name is not None:
        windows = [find(penstock, newest, name)]
    else:
        windows = [w for ref in chains for w in windows_of(penstock, ref, chosen["last"])]
    due = [w.sequence for w in windows if w.ref == newest]
    looked = prove_now(penstock, newest, due) if chosen["again"] else []
    describe = details if name is not None else summary
    proofs = {ref: BookStore.of(penstock).newest_proof(ref) for ref in chains}
    rows = [with_proof_time(describe(penstock, w), proofs.get(w.ref)) for w in windows]
    wrong = unbalanced(penstock, topic, rows)
    balanced = not wrong and not problems and not any(one.error for one in looked)
    changed = {"changed": changes(looked)} if chosen["again"] else {}
    if output == "json":
        document = {"topic": topic, "balanced": balanced, "windows": rows}
        document["problems"] = [described_problem(p) for p in problems]
        print_json({**(rows[0] if name is not None else document), **changed})
    else:
        for change in changed.get("changed", []):
            console().print(escape(change_sentence(change)))
        if name is not None:
            print_details(rows[0])
        else:
            print_result(topic, rows, wrong, problems)
    ctx.exit(0 if balanced else NOT_BALANCED)


def print_result(
    topic: str,
    rows: list[dict[str, Any]],
    wrong: list[dict[str, Any]],
    problems: Sequence[Problem],
) -> None:
    """All windows, and in a sentence whether they balance."""
    print_windows(rows)
    said = "balanced" if not wrong else f"{len(wrong)} of {len(rows)} windows not balanced"
    stops = " for the windows so far, but the chain stops" if problems and not wrong else ""
    console().print(f"{topic}: {said}{stops}")
    print_problems(problems)


def stopped(penstock: Connections, topic: str) -> Sequence[Problem]:
    """What stops the topic's chain, or all chains. Asks broker, object store and Dagster."""
    reader = HealthReader(penstock)
    found = list(judge_platform(reader.services()).problems)
    spec: TopicSpec | None = None
    if managed(penstock.settings):
        facts = dagster_facts(penstock.settings)
        found += judge_platform(facts).problems
    if not any(problem.kind is Kind.DAGSTER_UNANSWERED for problem in found):
        spec = (declarations(penstock) or {}).get(topic)
    if not any(problem.kind in CAUSES for problem in found):
        chain = judge_chain(reader.chain(topic, spec), penstock.clock.now())
        # A name that the cluster does not know and that nothing declares is a mistake of typing.
        known = spec is not None
        found += [p for p in chain.problems if known or p.kind is not Kind.TOPIC_ABSENT]
    return found


def described_problem(problem: Problem) -> dict[str, Any]:
    """A problem for programs."""
    return {
        "kind": str(problem.kind),
        "topic": problem.topic or None,
        "severity": problem.severity,
        "summary": problem.summary,
        "command": problem.command or None,
    }


def print_problems(problems: Sequence[Problem]) -> None:
    for problem in problems:
        command = f" ({problem.command})" if problem.command else ""
        console().print(f"  [red]✗[/] {escape(problem.summary + command)}")
