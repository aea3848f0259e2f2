"""``penstock completion bash | zsh | fish``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from penstock_platform.cli.console import CommandError, output_option, print_json

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@output_option
def command(shell: str, output: str) -> None:
    """Print the completion script of a SHELL: eval "$(penstock completion bash)"."""
    from penstock_platform.cli.main import cli  # noqa: PLC0415 - the root loads this module

    kind = get_completion_class(shell)
    if kind is None:
        raise CommandError(f"click has no completion for {shell}")
    script = kind(cli, {}, "penstock", "_PENSTOCK_COMPLETE").source()
    if output == "json":
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
