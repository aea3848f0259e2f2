"""``penstock``: the root of the command line.

Commands are looked up in one table and loaded when they are called, so ``penstock --help`` is
there in a tenth of a second. A command is the attribute ``command`` of its module.

Exit codes: 0 all is well, 1 an error, 2 wrong usage, 3 the books do not balance.
An error is one sentence: what, where, how to mend. ``--debug`` shows the trace as well.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

import click

ERROR, USAGE, NOT_BALANCED, INTERRUPTED = 1, 2, 3, 130

# command → (module under penstock_platform.cli, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Start the services of this directory and wait until they serve."),
    "down": ("down", "Stop them; with --purge remove their data too."),
    "status": ("status", "Every endpoint, process, health, memory and CPU."),
    "doctor": ("doctor", "Check Java, memory, ports, versions, jars and the object store."),
    "logs": ("logs", "Show or follow the log of a service."),
    "init": ("init", "Make a project of your own: topics, contracts, a mart, a test."),
    "produce": ("produce", "Send the rows of a file to a topic, every one accounted for."),
    "topic": ("topic", "List and describe topics: the cluster's, and what is declared."),
    "window": ("window", "List, show, re-run and accept the windows of a topic."),
    "audit": ("audit", "Say of every window whether its books balance (exit code 3 if not)."),
    "alert": ("alert", "List alerts, and try whether they get through."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock_platform.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the trace of an error.")
@click.version_option(package_name="penstock-platform", prog_name="penstock")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Kafka-compatible brokers and a lake in which every record is accounted for."""
    ctx.ensure_object(dict)["debug"] = debug


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one way to end, one line
    """Run one command; returns the exit code, and lets no exception pass."""
    debug = "--debug" in arguments or bool(os.environ.get("PENSTOCK_DEBUG"))
    try:
        result: Any = cli.main(args=arguments, prog_name="penstock", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        error.show()
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except Exception as error:  # noqa: BLE001 - the one place where errors become a sentence
        if debug:
            traceback.print_exc()
        click.echo(sentence(error), err=True)
        return ERROR
    return result if isinstance(result, int) else 0


def sentence(error: Exception) -> str:
    """What to tell a person. Errors of ours are sentences; others say where they came from."""
    text = " ".join(str(error).split(" ")).strip()
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    if type(error).__module__.startswith("penstock_"):
        return f"Error: {text}{notes}"
    if type(error).__name__ == "KafkaException" and error.args:
        reason = error.args[0].str() if hasattr(error.args[0], "str") else text
        return f"Error: Kafka says: {reason}{notes}; does it serve? penstock status"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "penstock_" in f.filename] or list(frames)
    place = f" (at {ours[-1].filename}:{ours[-1].lineno})" if ours else ""
    lines = text.splitlines() or ["no message"]
    return (
        f"Error: {type(error).__name__}: {lines[0]}{place}; "
        "the trace: penstock --debug, or PENSTOCK_DEBUG=1"
    )
