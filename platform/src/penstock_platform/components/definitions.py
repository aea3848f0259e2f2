"""The declarations of a project, looked at before anything runs on them.

``penstock validate`` shows what this finds; ``penstock up`` calls ``require_valid(settings)``
before it replaces running services::

    from penstock_platform.components.definitions import require_valid

    topics = require_valid(settings)   # raises DefinitionsError, whose text is a line a problem

It takes as long as loading the definitions does (some seconds), in a process of its own, so that
neither the user's code nor Dagster is loaded into the caller, and needs no service. Contracts are
compared with the tables that they were written to, where the object store answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from penstock_platform.settings import HOME_VARIABLE, Settings

TIMEOUT_SECONDS = 900
LAST_LINES = 5


class DefinitionsError(RuntimeError):
    """The definitions do not load. The text has one line a problem: `file:line: what; how`."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Validation:
    """What was found: ``problems`` (none: it loads), the topics that are declared, and ``notes``
    on what could not be looked at."""

    module: str
    problems: tuple[str, ...]
    topics: tuple[str, ...]
    notes: tuple[str, ...] = ()


def validate(settings: Settings, timeout_seconds: float = TIMEOUT_SECONDS) -> Validation:
    """Load the definitions of ``dagster.module`` in another process. Never raises for what is wrong
    with them; raises DefinitionsError where that process does not come to an end."""
    module = settings.dagster.module
    with tempfile.TemporaryDirectory(prefix="penstock-validate-") as directory:
        result = Path(directory) / "result.json"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "penstock_platform.components.validation", module, result],
                env=_environment(settings),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            sentence = (
                f"{module} did not load in {timeout_seconds:.0f} s; does it wait for something "
                "when it is imported?"
            )
            raise DefinitionsError((sentence,)) from error
        if not result.is_file():  # the user's code ended the interpreter
            last = "; ".join(done.stderr.strip().splitlines()[-LAST_LINES:]) or "no message"
            problem = f"{module}: loading it ended with exit code {done.returncode}: {last}"
            return Validation(module, (problem,), ())
        document = json.loads(result.read_text())
    found = (tuple(document[key]) for key in ("problems", "topics", "notes"))
    return Validation(module, *found)


def require_valid(settings: Settings) -> tuple[str, ...]:
    """The declared topics. Raises DefinitionsError with every problem of every file."""
    found = validate(settings)
    if found.problems:
        raise DefinitionsError(found.problems)
    return found.topics


def _environment(settings: Settings) -> dict[str, str]:
    """The caller's, with this home, and the project's own modules importable."""
    path = [str(settings.code_folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **settings.project_variables(),
        HOME_VARIABLE: str(settings.home),
        "PYTHONPATH": os.pathsep.join(path),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
