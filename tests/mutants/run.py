"""``make mutants``: which small changes to the code that decides would no test notice?

    python tests/mutants/run.py [--jobs N] [--list] [MODULE ...]

Each mutant (``mutations.py``) is imported in the module's place by a forked process, which runs the
tests that ``SUBJECTS`` names until one fails. No file is changed. Survivors that ``survivors.md``
gives a reason for count as equivalent. Exit code 1 if fewer than 95 % of the others were killed.

Why not mutmut or cosmic-ray: mutmut leaves out properties and whole statements, of which
``books.py`` is made, and changes the words of messages instead; cosmic-ray edits the files in place
and starts pytest anew for each of some 1,600 mutants.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from mutations import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.md")
GOAL = 0.95
WALL_SECONDS = 600.0  # for a mutant that waits; one that loops meets its limit of CPU time
DOMAIN = "platform/src/penstock_platform/domain"
DOMAIN_TESTS = "tests/orchestration/domain"
CLIENT = "broker/client/src/penstock_client"
# The nearest tests first: a mutant ends at the first that fails.
SUBJECTS: dict[str, tuple[str, ...]] = {
    f"{DOMAIN}/{module}.py": tuple(f"{DOMAIN_TESTS}/test_{name}.py" for name in tests)
    for module, tests in {
        "ranges": ("ranges",),
        "reconcile": ("reconcile",),
        "books": ("books_object", "acceptance", "reconcile"),
        "retention": ("retention_plan", "acceptance"),
        "incidents": ("incidents",),
        "incident_states": ("incidents",),
        "chain_health": ("chain_health",),
    }.items()
}
SUBJECTS[f"{DOMAIN}/windows.py"] = (
    "tests/orchestration/archive/test_window_store.py",
    "tests/orchestration/archive/test_freezer_races.py",
    f"{DOMAIN_TESTS}/test_chain_health.py",
)
SUBJECTS[f"{CLIENT}/ledger.py"] = ("tests/client/test_ledger.py",)
OURS = ("penstock_platform", "penstock_client", "penstock_pipelines", "test_", "conftest")


@dataclass(frozen=True, slots=True)
class Subject:
    """A module under test, by its path, and the tests that should notice."""

    path: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        return ".".join(Path(self.path.split("/src/")[1]).with_suffix("").parts)

    @property
    def source(self) -> str:
        return (ROOT / self.path).read_text()


class Substitute(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the given source instead of its file."""

    def __init__(self, subject: Subject, source: str) -> None:
        self._subject, self._source = subject, source

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._subject.module:
            return None
        return importlib.util.spec_from_loader(name, self)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(ROOT / self._subject.path)
        exec(compile(self._source, module.__file__, "exec"), module.__dict__)


def run_tests(subject: Subject, source: str) -> int:
    """In a forked process: pytest's exit code for the tests with this source in place."""
    import pytest  # noqa: PLC0415
    from hypothesis import Phase, settings  # noqa: PLC0415

    sys.meta_path.insert(0, Substitute(subject, source))
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("mutants")
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:timeout"]
    return int(pytest.main([*options, "-o", "addopts=", "-o", "timeout=0", *subject.tests]))


def fork(subject: Subject, source: str, output: Path | None, cpu_seconds: int = 0) -> int:
    """Start such a process; its id. Nothing of ours may be imported before."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        out = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if cpu_seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        code = run_tests(subject, source)
    finally:
        sys.stdout.flush()
        os._exit(code)


def warm_up(subject: Subject) -> int:
    """Run the tests on the module as it is, then import what they need and is not ours.

    Returns the CPU seconds that a mutant may take. Raises SystemExit if the tests fail.
    """
    listing = ROOT / ".venv" / f"mutants-{os.getpid()}"
    process = os.fork()
    if not process:
        with listing.open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            code = run_tests(subject, subject.source)
            sys.stdout.flush()
            names = [n for n in sys.modules if not n.startswith(OURS) and "/tests/" not in n]
            out.write("\nmodules: " + " ".join(names) + "\n")
        os._exit(code)
    _, status, used = os.wait4(process, 0)
    text = listing.read_text()
    listing.unlink()
    if status:
        raise SystemExit(f"the tests of {subject.path} fail as it is:\n{text[-3000:]}")
    for name in text.rsplit("\nmodules: ", 1)[1].split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return int(used.ru_utime + used.ru_stime) * 5 + 10


def survivors_of(subject: Subject, found: Sequence[Mutant], jobs: int) -> Iterator[Mutant]:
    """Those that no test noticed."""
    limit = warm_up(subject)
    running: dict[int, tuple[Mutant, float]] = {}
    waiting = list(reversed(found))
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[fork(subject, mutant.source, None, limit)] = (mutant, time.monotonic())
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            mutant, _ = running.pop(process)
            if status == 0:
                yield mutant
            continue
        for late, (_, began) in running.items():
            if time.monotonic() - began > WALL_SECONDS:
                os.kill(late, signal.SIGKILL)
        time.sleep(0.01)


def excused() -> set[str]:
    """The mutants that survivors.md gives a reason for."""
    rows = [line for line in SURVIVORS.read_text().splitlines() if line.startswith("- ")]
    return {row.removeprefix("- ").split(" — ")[0].strip() for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="file names, such as books.py (all of them)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    options = parser.parse_args()
    os.chdir(ROOT)
    wanted = set(options.modules)
    unknown = wanted - {Path(path).name for path in SUBJECTS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(SUBJECTS)}")
    known, total, left, equivalent = excused(), 0, 0, 0
    for path, tests in SUBJECTS.items():
        if wanted and Path(path).name not in wanted:
            continue
        subject = Subject(path, tests)
        found = list(mutants(subject.source))
        if options.list:
            say(*(f"{path}:{m.line}: {m.before}  →  {m.after}" for m in found))
            continue
        began, survived, allowed = time.monotonic(), 0, 0
        for mutant in survivors_of(subject, found, options.jobs):
            if mutant.name in known:
                allowed += 1
                continue
            survived += 1
            say(f"  survived {path}:{mutant.line}", f"    {mutant.name}")
        counted = len(found) - allowed
        share = 1 - survived / counted if counted else 1.0
        took = time.monotonic() - began
        say(f"{path}: {counted} mutants, {survived} survived, {share:.1%} killed, {took:.0f} s")
        total, left, equivalent = total + counted, left + survived, equivalent + allowed
    if options.list:
        return 0
    score = 1 - left / total if total else 1.0
    say(f"{total - left} of {total} mutants killed ({score:.1%}); {equivalent} more are equivalent")
    return 0 if score >= GOAL else 1


def say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
