"""What the broker's commands share: errors as a sentence or as JSON, and completion.

The client has the same (``penstock_client.command_line``): the broker depends on no other
distribution and imports nothing of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

ERROR, USAGE = 1, 2
DEBUG_VARIABLE = "PENSTOCK_DEBUG"
SHELLS = ("bash", "zsh", "fish")


class UsageError(Exception):
    """The command line cannot be used."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see: {self.prog} --help")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether ``-o json`` is among the arguments, also of a command line that cannot be parsed."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(
        first in ("-ojson", "--output=json") or (first in ("-o", "--output") and second == "json")
        for first, second in pairs
    )


def report_error(text: str, *, as_json: bool, code: int = ERROR, kind: str = "error") -> int:
    """Print an error, once; returns the exit code."""
    if not as_json:
        sys.stderr.write(f"penstock-broker: {text}\n")
        return code
    what, _, fix = text.rpartition("; ") if "; " in text else (text, "", "")
    document = {"error": kind, "what": what, "where": "", "fix": fix, "exit_code": code}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()
    return code


def show_trace(error: BaseException) -> None:
    """The trace of an error, where PENSTOCK_DEBUG asks for it."""
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script for bash, zsh or fish that completes a parser's commands, flags and choices."""
    lines = list(_fish(parser) if shell == "fish" else _bash(parser))
    if shell == "zsh":
        lines = [f"#compdef {parser.prog}", "autoload -U bashcompinit && bashcompinit", *lines]
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _bash(parser: argparse.ArgumentParser) -> Iterator[str]:
    name = "_" + parser.prog.replace("-", "_")
    commands = _commands(parser)
    yield f"{name}() {{"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "  local IFS=$' \\t\\n'"
    yield '  case "${COMP_WORDS[1]}:$before" in'
    for command, below in commands.items():
        for action in below._actions:
            words = " ".join(map(str, action.choices or ()))
            how = f'-W "{words}"' if words else "-f"
            for flag in action.option_strings if action.nargs != 0 else ():
                yield f'    {command}:{flag}) COMPREPLY=($(compgen {how} -- "$word")); return ;;'
    yield "  esac"
    yield '  [ "$COMP_CWORD" -eq 1 ] && set -- "" || set -- "${COMP_WORDS[1]}"'
    yield '  case "$1" in'
    for command, below in commands.items():
        words = " ".join(_words(below))
        yield f'    {command}) COMPREPLY=($(compgen -f -W "{words}" -- "$word")) ;;'
    words = " ".join([*commands, *_words(parser)])
    yield f'    *) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
    yield "  esac"
    yield "}"
    yield f"complete -o filenames -F {name} {parser.prog}"


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Flags, and the choices of positional arguments."""
    found: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        found += action.option_strings or [str(choice) for choice in action.choices or ()]
    return found


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    commands = _commands(parser)
    program = f"complete -c {parser.prog}"
    for name in commands:
        yield f"{program} -n __fish_use_subcommand -f -a {name}"
    for name, below in commands.items():
        seen = f'-n "__fish_seen_subcommand_from {name}"'
        for action in below._actions:
            if not action.option_strings:
                if action.choices:
                    yield f'{program} {seen} -f -a "{" ".join(map(str, action.choices))}"'
                continue
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in action.option_strings
            )
            value = f' -x -a "{" ".join(map(str, action.choices))}"' if action.choices else ""
            value = value or (" -r" if action.nargs != 0 else "")
            yield f"{program} {seen} {flags}{value}"
