"""Errors of the command line: what, where, how to fix it, and the exit code.

Every command of `penstock` ends through ``end``: an error is one sentence on standard error, or
with ``-o json`` one document on standard output::

    {"error": "ServiceError", "what": "...", "where": "...", "fix": "...", "exit_code": 1}

There is no trace for a user's mistake; ``PENSTOCK_DEBUG=1`` (or ``penstock --debug``) shows it.
This module loads nothing heavy, because ``penstock --help`` loads it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

OK, ERROR, USAGE, NOT_BALANCED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143
EXIT_CODES = {
    OK: "success",
    ERROR: "error: the command failed",
    USAGE: "wrong usage: nothing was done",
    NOT_BALANCED: "the books do not balance or cannot be checked yet, or a chain stops",
    INTERRUPTED: "interrupted (Ctrl-C, SIGINT)",
    TERMINATED: "ended by SIGTERM",
}
DEBUG_VARIABLE = "PENSTOCK_DEBUG"
# `path:12: …` or `path: …`, as errors about files begin.
_PLACE = re.compile(r"(?P<where>[^\s:]+\.(?:toml|ya?ml|json|csv|jsonl|py)(?::\d+)?): (?P<what>.+)")


class CommandError(click.ClickException):
    """A command cannot do what was asked: what, where, how to fix it; ``code`` is the exit code.

    ``str()`` is the sentence for people. Errors of other layers become one by ``described``.
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "", code: int = ERROR) -> None:
        place = f"{where}: " if where else ""
        super().__init__(f"{place}{what}" + (f"; {fix}" if fix else ""))
        self.what = what
        self.where = where
        self.fix = fix
        self.exit_code = code  # type: ignore[misc]  # click has it per class


class NotBalancedError(CommandError):
    """The books do not balance, or cannot be judged: exit code 3."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what, where=where, fix=fix, code=NOT_BALANCED)


def described(error: BaseException) -> CommandError:  # noqa: PLR0911 - one kind, one line
    """What, where and how to fix it, of any exception.

    Errors of this project are sentences: an optional `file:line: `, what is wrong, and after the
    last semicolon how to fix it. Those may also carry ``where`` and ``fix`` as attributes. What is
    not ours says where in the code it came from.
    """
    if isinstance(error, CommandError):
        return error
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "penstock"
        return CommandError(
            error.format_message(), fix=f"see: {command} --help", code=error.exit_code
        )
    if isinstance(error, click.ClickException):
        return _sentence_of(error.format_message(), error, error.exit_code)
    text = str(error).strip()
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    if type(error).__module__.startswith("penstock_"):
        return _sentence_of(text + notes, error, ERROR)
    if type(error).__name__ == "KafkaException" and error.args:
        reason = error.args[0].str() if hasattr(error.args[0], "str") else text
        return CommandError(f"Kafka says: {reason}{notes}", fix="see: penstock status")
    if isinstance(error, OSError) and error.filename is not None:
        return CommandError(
            error.strerror or text, where=str(error.filename), fix="check path and permissions"
        )
    return _unexpected(error, text)


def _sentence_of(text: str, error: BaseException, code: int) -> CommandError:
    where, fix = str(getattr(error, "where", "")), str(getattr(error, "fix", ""))
    if "\n" in text:  # several problems, each with its own place and remedy
        return CommandError(text, where=where, fix=fix, code=code)
    if not where and (placed := _PLACE.fullmatch(text)):
        where, text = placed["where"], placed["what"]
    if not fix and "; " in text:
        text, _, fix = text.rpartition("; ")
    return CommandError(text, where=where, fix=fix, code=code)


def _unexpected(error: BaseException, text: str) -> CommandError:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "penstock_" in f.filename] or list(frames)
    line = next(iter(text.splitlines()), "no message")
    return CommandError(
        f"{type(error).__name__}: {line}",
        where=f"{ours[-1].filename}:{ours[-1].lineno}" if ours else "",
        fix=f"for the traceback use penstock --debug, or {DEBUG_VARIABLE}=1",
    )


def document_of(error: BaseException) -> dict[str, Any]:
    """The JSON document of an error; ``problems`` has one line each where there are several."""
    found = described(error)
    lines = found.what.splitlines()
    return {
        "error": type(error).__name__,
        "what": found.what,
        "where": found.where,
        "fix": found.fix,
        **({"problems": lines} if len(lines) > 1 else {}),
        "exit_code": found.exit_code,
    }


def end(error: BaseException, *, as_json: bool = False, debug: bool = False) -> int:
    """Report how a command ended, and return its exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # as in `penstock logs | head`: the reader has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        error = CommandError("interrupted", code=INTERRUPTED)
    elif isinstance(error, Terminated):
        error = CommandError("ended by SIGTERM", code=TERMINATED)
    elif debug:
        traceback.print_exception(error)
    found = described(error)
    if as_json:
        click.echo(json.dumps(document_of(error), indent=2))
    elif isinstance(error, click.UsageError):
        error.show()
    else:
        click.echo(str(found) if found.exit_code > NOT_BALANCED else f"Error: {found}", err=True)
    return found.exit_code


class Terminated(BaseException):
    """SIGTERM came: ``finally`` and ``with`` blocks run, then the command ends with 143."""


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether ``-o json`` is among the arguments, also of a command line that cannot be parsed."""
    for position, argument in enumerate(arguments):
        if argument in ("-ojson", "--output=json"):
            return True
        if argument in ("-o", "--output") and list(arguments[position + 1 : position + 2]) == [
            "json"
        ]:
            return True
    return False


def wants_trace(arguments: Sequence[str]) -> bool:
    return "--debug" in arguments or bool(os.environ.get(DEBUG_VARIABLE))
