"""``penstock group list | describe | reset``."""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from penstock_platform.cli.console import output_option, print_json, settings
from penstock_platform.cli.group_documents import look_document, reset_document, summary_document
from penstock_platform.cli.group_events import report_reset
from penstock_platform.cli.group_plans import (
    given,
    read_plan,
    target_of,
    target_options,
    undo_path,
    write_new,
)
from penstock_platform.cli.group_tables import print_groups, print_look, print_reset
from penstock_platform.cli.project import Connections
from penstock_platform.groups.look import look_at, summaries
from penstock_platform.groups.model.rewind import ResetPlan, RewindError, topic_and_partitions
from penstock_platform.groups.reset import apply_plan, plan_reset


@click.group()
def command() -> None:
    """Consumer groups of the cluster: members, committed offsets, lag, resets."""


@command.command("list")
@output_option
def list_groups(output: str) -> None:
    """List the consumer groups of the cluster.

    The lag is the number of messages that a group can still read, over all partitions for which
    it has committed an offset.
    """
    rows = [summary_document(found) for found in summaries(Connections(settings()))]
    if output == "json":
        print_json(rows)
        return
    print_groups(rows)


@command.command()
@click.argument("group")
@click.option("--topic", default=None, help="Only this topic.")
@output_option
def describe(group: str, topic: str | None, output: str) -> None:
    """Show one GROUP: per partition the committed offset, the log, the lag and the member.

    The lag is given in messages and in seconds: the age of the oldest record that the group has
    not read. A committed offset that is not in the log is reported.
    """
    document = look_document(look_at(Connections(settings()), group, topic))
    if output == "json":
        print_json(document)
        return
    print_look(document)


@command.command()
@click.argument("group", required=False)
@click.option("--topic", metavar="TOPIC[:P,P]", help="The topic, or some of its partitions.")
@target_options
@click.option("--plan", "plan_file", metavar="FILE", help="Write the plan to a new file.")
@click.option("--execute", is_flag=True, help="Do it; without, nothing is changed.")
@click.option("--execute-plan", metavar="FILE", help="Execute a plan, or an undo, from its file.")
@click.option("--reason", help="Why; required to execute, unless the plan has one.")
@click.option("--by", default=None, help="Who resets the group; your user name by default.")
@click.option(
    "--undo", "undo_file", metavar="FILE", help="Where the undo is written; default: here."
)
@output_option
def reset(
    *,
    group: str | None,
    topic: str | None,
    plan_file: str | None,
    execute: bool,
    execute_plan: str | None,
    reason: str | None,
    by: str | None,
    undo_file: str | None,
    output: str,
    **asked: Any,
) -> None:
    """Change the committed offsets of GROUP for a topic: plan, execute, undo.

    Without --execute or --execute-plan the plan is printed, and nothing is changed. A plan is
    executed only while the group has no members and the committed offsets are those of the plan.
    Before it changes anything it writes the undo, a plan with the present offsets. Offsets beyond
    the log are moved to its start or end, and reported. What was executed is recorded as an
    observation of the topic's asset: who, why, before and after.
    """
    executes = execute or execute_plan is not None
    _check_usage(
        planned=bool(group or topic or given(asked)),
        execute=execute,
        execute_plan=execute_plan,
        plan_file=plan_file,
        undo_file=undo_file,
    )
    penstock = Connections(settings())
    if execute_plan is not None:
        plan = read_plan(execute_plan)
    else:
        plan = _plan(penstock, group, topic, asked, reason or "")
    if not executes:
        if plan_file is not None:
            write_new(Path(plan_file), plan)
        document = reset_document(plan, plan_file=plan_file)
    else:
        document = _execute(penstock, plan, reason, by or getpass.getuser(), undo_file)
    if output == "json":
        print_json(document)
        return
    print_reset(document)


def _plan(
    penstock: Connections, group: str | None, topic: str | None, asked: Mapping[str, Any], why: str
) -> ResetPlan:
    if group is None or topic is None:
        raise click.UsageError("give a GROUP and its --topic, or --execute-plan FILE")
    try:
        name, partitions = topic_and_partitions(topic)
    except RewindError as error:
        raise click.UsageError(f"--topic: {error}") from error
    target = target_of(penstock, name, asked)
    return plan_reset(penstock, group, name, partitions, target, reason=why)


def _execute(
    penstock: Connections, plan: ResetPlan, reason: str | None, by: str, undo_file: str | None
) -> dict[str, Any]:
    why = reason or plan.reason
    if not why.strip():
        raise click.UsageError("--reason is required to execute: why is the group reset?")
    undo = Path(undo_file) if undo_file else undo_path(plan, penstock.clock.now())
    done = apply_plan(penstock, plan, why, lambda inverse: write_new(undo, inverse))
    command = f"penstock group reset --execute-plan {shlex.quote(str(undo))}"
    if not done.moves:
        return reset_document(done, executed=True, by=by)
    problem = report_reset(penstock, done, by, command)
    return reset_document(done, executed=True, by=by, undo=command, event_problem=problem)


def _check_usage(
    *,
    planned: bool,
    execute: bool,
    execute_plan: str | None,
    plan_file: str | None,
    undo_file: str | None,
) -> None:
    if execute_plan is not None and (planned or execute or plan_file):
        raise click.UsageError("--execute-plan FILE takes group, topic and target from the file")
    if execute and plan_file:
        raise click.UsageError("--plan writes a plan and changes nothing: leave out --execute")
    if undo_file and not (execute or execute_plan):
        raise click.UsageError("--undo names the file that --execute writes")
