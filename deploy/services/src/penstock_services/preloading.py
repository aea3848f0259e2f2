"""What the service ``workers`` holds in memory before it forks: libraries, and the definitions.

Importing Dagster, PySpark, pyarrow and pyiceberg takes some five seconds of a core, and loading a
project's definitions another half a second; a run is often shorter than either. Both are done once
in the parent, and every fork has them.

A run must never execute yesterday's code. Libraries and the platform's own code: the parent begins
again when they change (``code_signature``). Definitions: what they were loaded from is looked at
again in every run (``Definitions.current``); a run that finds a change drops the modules that it
inherited and loads them from their files, as Dagster does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import logging
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LOG = logging.getLogger("penstock.workers")
OWN_PACKAGES = ("penstock_platform", "penstock_client")
PRELOAD = (
    "dagster",
    "dagster._cli.api",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.instance.runs.run_domain",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.storage.sqlite_storage",
    "dagster._daemon.controller",
    "dagster.components",
    "penstock_platform.components.platform_component",
    "penstock_platform.quality.suite",
    "penstock_platform.components.topic",
    "penstock_platform.alerts.channels",
    "penstock_platform.archive.store",
    "penstock_platform.reconciliation.books",
    "penstock_platform.reconciliation.evidence",
    "penstock_platform.kafka.cluster",
    "penstock_platform.lake.tables",
    "penstock_platform.landing.attempt",
    "penstock_platform.lake.spark_connect",
    "penstock_services.run_launcher",
    "boto3.s3.inject",
    "pandas",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.functions",
    "sqlalchemy.dialects.sqlite",
)
# A folder with more files than that is not looked through in every run: nothing is loaded ahead.
FILES_MAX = 5000
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
Signature = tuple[int, ...]


def preload(names: Sequence[str] = PRELOAD) -> int:
    """Import what runs need; returns how many modules that makes. What is not there is left out:
    a run that needs it says so better."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            LOG.warning("not imported ahead: %s (%s)", name, error)
    if (count := threads()) > 1:
        LOG.warning("threads are running before the first fork: %d", count)
    freeze()
    return len(sys.modules)


def freeze() -> None:
    """Keep a child's garbage collector from copying what it only inherited."""
    gc.collect()
    gc.freeze()


def threads() -> int:
    """Threads of this process; 1 where the system does not list them."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 1


def code_signature() -> Signature:
    """Changes when the platform's code or the set of installed packages does."""
    newest, count = 0, 0
    for package in OWN_PACKAGES:
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations if spec else None) or ():
            for file in Path(root).rglob("*.py"):
                with contextlib.suppress(OSError):
                    newest = max(newest, file.stat().st_mtime_ns)
                    count += 1
    return newest, count, Path(sysconfig.get_path("purelib")).stat().st_mtime_ns


@dataclass(frozen=True)
class Definitions:
    """A project's definitions as this process loaded them, and the state of their sources then.

    ``modules`` were imported for them and are the project's own; ``sources`` are the files and
    folders that decide what they say: the modules' files, the package's folder with its YAML, and
    what the caller named.
    """

    modules: tuple[str, ...]
    sources: tuple[Path, ...]
    signature: Signature

    @property
    def current(self) -> bool:
        """Whether the sources are still what was loaded."""
        return signature_of(self.sources) == self.signature

    def drop(self) -> None:
        """Let the next import of these modules read their files."""
        for name in self.modules:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()


def load_definitions(module: str, folder: Path, further: Sequence[Path]) -> Definitions | None:
    """Import a code location's module and build its jobs; None where that does not work.

    Its errors are the code server's to report, which loads the same module. ``folder`` holds it
    where it is not installed; ``further`` are sources beside the modules that it imports.
    """
    directory = str(folder)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    present = set(sys.modules)
    try:
        further = (*_package_folders(module), *further)
        before = signature_of(further)
        build_jobs(module)
        own = tuple(name for name in sys.modules if name not in present and _is_own(name))
        sources = (*further, *(Path(str(sys.modules[name].__file__)) for name in own))
        if signature_of(further) != before:
            LOG.info("the definitions changed while they were loaded; runs load them")
            return None
        signature = signature_of(sources)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        LOG.warning("definitions are not loaded ahead: %s: %r", module, error)
        return None
    freeze()
    return Definitions(own, sources, signature)


def _package_folders(module: str) -> tuple[Path, ...]:
    spec = importlib.util.find_spec(module.split(".", 1)[0])
    return tuple(Path(p) for p in (spec.submodule_search_locations if spec else None) or ())


def _is_own(name: str) -> bool:
    """Whether a module is the project's, not an installed library's or Python's."""
    file = getattr(sys.modules[name], "__file__", None)
    if not file:
        return False
    installed = (sysconfig.get_path(n) for n in ("purelib", "platlib", "stdlib", "platstdlib"))
    return not any(Path(file).is_relative_to(path) for path in installed)


def build_jobs(module: str) -> int:
    """Import the module and build the jobs of its definitions, which Dagster then finds made."""
    import dagster as dg  # noqa: PLC0415 - preload imported it

    found = importlib.import_module(module)
    jobs = 0
    for value in vars(found).values():
        if isinstance(value, dg.Definitions):
            jobs += len(value.get_repository_def().get_all_jobs())
    return jobs


def signature_of(sources: Sequence[Path]) -> Signature:
    """Changes when a file of these, or under these folders, is written, made or removed."""
    newest, size, count = 0, 0, 0
    for file in (f for source in sources for f in _files(source)):
        with contextlib.suppress(OSError):
            found = file.stat()
            newest = max(newest, found.st_mtime_ns)
            size += found.st_size
            count += 1
        if count > FILES_MAX:
            raise ValueError(f"more than {FILES_MAX} files under {', '.join(map(str, sources))}")
    return newest, size, count


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    elif source.is_dir():
        for entry in source.iterdir():
            if entry.name not in SKIPPED_FOLDERS:
                yield from _files(entry)
