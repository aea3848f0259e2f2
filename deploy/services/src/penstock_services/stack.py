"""``up`` and ``down``: the services of one home, brought to where they serve, and ended.

Every step may be repeated. A second ``up`` starts what is not running, takes over changed
settings, and has the code server reload the definitions; ``down`` ends what runs, also
when supervisord itself is gone.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock_platform.components.definitions import DefinitionsError, require_valid
from penstock_platform.settings import Settings
from penstock_services import checks, configuration, jars, layout
from penstock_services.catalogue import (
    External,
    Service,
    Tools,
    externals,
    needs_java,
    services,
)
from penstock_services.errors import ServiceError
from penstock_services.java import find_java
from penstock_services.paths import file_lock, write_atomically
from penstock_services.probes import PROBES, Broken, NotReady, reload_code
from penstock_services.supervisor import Supervisor, end, orphans, supervisor_user
from penstock_services.warmup import start_warm_up

POLL_SECONDS = 0.25
EXTERNAL_SECONDS = 15


@dataclass(frozen=True)
class Progress:
    """One step of progress: ``phase`` is ``working``, ``starting``, ``ready`` or ``failed``."""

    name: str
    phase: str
    text: str
    seconds: float = 0.0


Listener = Callable[[Progress], None]


def tools(settings: Settings, listener: Listener) -> Tools | None:
    """Java and the jars; the first time they are retrieved."""
    if not needs_java(settings):
        return None
    java = find_java()

    def progress(text: str) -> None:
        listener(Progress("jars", "working", text))

    started = time.monotonic()
    ivy = settings.spark.ivy_settings
    spark_jars = tuple(jars.jar_paths(java, progress, ivy))
    s3proxy = jars.s3proxy_jar(java, progress, ivy)
    listener(
        Progress("java", "ready", f"Java {java.version}, {java.source}", time.monotonic() - started)
    )
    return Tools(java, spark_jars, s3proxy)


def up(settings: Settings, listener: Listener) -> list[Service]:
    """Start what is not running and wait until everything serves. Raises ServiceError."""
    _preflight(settings)
    _require_own_externals(settings)
    _record_starts(settings)
    found = services(settings, tools(settings, listener))
    with file_lock(settings.home / "services" / "up.lock"):
        supervisor = Supervisor(settings)
        fresh = not supervisor.running()
        again = settings.lake.catalog_uri or settings.catalog_path.is_file()
        if fresh:
            _end_orphans(settings, listener)
            if problem := checks.check_memory(settings, found):
                raise ServiceError(problem)
        else:
            _load_first(settings, supervisor, listener)
        _check_ports(settings, found, supervisor)
        write_files(settings, found)
        if fresh:
            supervisor.start()
        else:
            supervisor.apply()
        _reload_definitions(settings, supervisor, listener)
        _Waiting(settings, supervisor, found, listener).run()
        _record_identity(settings)
        if fresh and any(service.name == "spark" for service in found):
            start_warm_up(settings)
        if fresh and again:
            _compare_contracts(settings)
    return found


def _require_own_externals(settings: Settings) -> None:
    """Refuse a cluster or a store of the user's own that is not the recorded one, before anything
    is started that would write to it. One that does not answer is for the wait to report."""
    from penstock_platform.archive.store import ArchiveError  # noqa: PLC0415 - loads boto3
    from penstock_platform.identity import (  # noqa: PLC0415
        IdentityError,
        OwnConnections,
        recorded,
    )
    from penstock_platform.kafka.errors import ClusterError  # noqa: PLC0415

    try:
        known, own = recorded(settings), OwnConnections(settings)
        with contextlib.suppress(ArchiveError, ClusterError):
            if settings.kafka.bootstrap_servers and known.cluster_id:
                _ = own.kafka
        with contextlib.suppress(ArchiveError, ClusterError):
            if settings.s3.endpoint and known.archive_id:
                _ = own.archive
    except IdentityError as error:
        raise ServiceError(str(error)) from error


def _record_starts(settings: Settings) -> None:
    """Where windows begin, before the definitions are loaded: a home that is new, with an archive
    that is not."""
    from penstock_platform.archive.endpoint import reachable  # noqa: PLC0415
    from penstock_platform.archive.store import ArchiveError, S3Archive  # noqa: PLC0415
    from penstock_platform.topics.starts import record_creation, record_starts  # noqa: PLC0415

    if settings.s3.endpoint and reachable(settings.s3_endpoint):
        with contextlib.suppress(ArchiveError):
            record_starts(settings, S3Archive(settings))
    record_creation(settings)


def _record_identity(settings: Settings) -> None:
    from penstock_platform.identity import IdentityError, record_at_up  # noqa: PLC0415

    try:
        record_at_up(settings)
    except IdentityError as error:
        raise ServiceError(str(error)) from error


def _load_first(settings: Settings, supervisor: Supervisor, listener: Listener) -> None:
    """Load the new definitions in another process before they replace those that run."""
    states = supervisor.states()
    if "code" not in states or states["code"].pid is None:
        return
    listener(Progress("code", "working", "loading the new definitions next to the running ones"))
    try:
        require_valid(settings)
    except DefinitionsError as error:
        raise ServiceError(
            f"{error}\nThe new definitions do not load, so nothing was changed: the running "
            "services and definitions continue. Correct this and run: penstock up"
        ) from error


def _compare_contracts(settings: Settings) -> None:
    """Refuse contracts that do not fit the tables that an earlier ``up`` has left. Only now is the
    object store there to be asked."""
    try:
        require_valid(settings)
    except DefinitionsError as error:
        raise ServiceError(
            f"{error}\nThe services run. Windows are landed in bronze and wait there until this is "
            "corrected; then run: penstock up"
        ) from error


def _reload_definitions(settings: Settings, supervisor: Supervisor, listener: Listener) -> None:
    """Where code server and webserver run already, the definitions may have changed."""
    running = {name for name, state in supervisor.states().items() if state.state == "RUNNING"}
    if not running >= {"code", "webserver"}:
        return
    listener(Progress("code", "working", "reloading the definitions"))
    # Where they are not there yet after all, the wait that follows says so.
    with contextlib.suppress(NotReady):
        reload_code(settings)


def down(settings: Settings, listener: Listener) -> None:
    """Stop everything of this home, also what another process started."""
    supervisor = Supervisor(settings)
    if supervisor.pid() is not None:
        listener(Progress("supervisord", "working", "stopping services"))
        supervisor.shutdown()
    _end_orphans(settings, listener)
    layout.supervisor_socket(settings).unlink(missing_ok=True)


def purged_paths(settings: Settings) -> list[tuple[str, str]]:
    """What ``purge`` would remove now: (path, what it holds)."""
    found = [
        (str(settings.home / name), what)
        for name, what in layout.OWN_DIRECTORIES.items()
        if (settings.home / name).is_dir() and not (settings.home / name).is_symlink()
    ]
    if (settings.home / "identity.json").is_file():
        found.append((str(settings.home / "identity.json"), "the recorded cluster and archive"))
    if settings.alert_file.is_file():
        found.append((str(settings.alert_file), "alerts"))
    return found


def purge(settings: Settings) -> list[str]:
    """Remove what ``up`` made under the state directory, data included; names what went."""
    gone = []
    for path, _ in purged_paths(settings):
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)
        gone.append(path)
    if settings.home.is_dir() and not any(settings.home.iterdir()):
        settings.home.rmdir()
    return gone


def write_files(settings: Settings, found: Sequence[Service]) -> None:
    """Every generated file. Those that hold secrets are readable by the owner alone."""
    for directory in layout.OWN_DIRECTORIES:
        (settings.home / directory).mkdir(parents=True, exist_ok=True)
    names = {service.name for service in found}
    if "s3" in names:
        text = configuration.s3proxy_properties(settings)
        write_atomically(layout.s3proxy_properties(settings), text.encode(), mode=0o600)
    if "spark" in names:
        text = configuration.spark_properties(settings)
        write_atomically(layout.spark_properties(settings), text.encode(), mode=0o600)
    write_atomically(layout.dagster_yaml(settings), configuration.dagster_yaml(settings).encode())
    write_atomically(
        layout.workspace_yaml(settings), configuration.workspace_yaml(settings).encode()
    )
    text = configuration.supervisord_conf(settings, found, supervisor_user())
    write_atomically(layout.supervisor_conf(settings), text.encode(), mode=0o600)


def _preflight(settings: Settings) -> None:
    for problem in (checks.check_python(), checks.check_disk(settings)):
        if problem:
            raise ServiceError(problem)


def _check_ports(settings: Settings, found: Sequence[Service], supervisor: Supervisor) -> None:
    """Every port is free or held by the very services that are about to be looked after."""
    pid = supervisor.pid()
    own = {child.pid for child in psutil.Process(pid).children(recursive=True)} if pid else set()
    problems = [
        problem
        for service in found
        for problem in checks.check_ports(settings, [service])
        if service.port is not None and checks.port_holder(service.port).pid not in own
    ]
    problems += checks.check_distinct_ports(found)
    if problems:
        raise ServiceError("\n".join(problems))


def _end_orphans(settings: Settings, listener: Listener) -> None:
    left = orphans(settings.home)
    if left:
        names = ", ".join(f"{p.name()} ({p.pid})" for p in left if p.is_running())
        listener(Progress("orphans", "working", f"ending processes of an earlier run: {names}"))
        end(left)


class _Waiting:
    """Starts each service when what it needs serves, and waits for all of them at once."""

    def __init__(
        self,
        settings: Settings,
        supervisor: Supervisor,
        found: Sequence[Service],
        listener: Listener,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._services = found
        self._listener = listener
        self._ready = {service.name: threading.Event() for service in found}
        self._abandoned = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        outside = externals(self._settings)
        with ThreadPoolExecutor(len(self._services) + len(outside)) as pool:
            waits = [pool.submit(self._external, e) for e in outside]
            waits += [pool.submit(self._service, s) for s in self._services]
            try:
                failures = [error for wait in waits if (error := wait.exception()) is not None]
            except BaseException:  # Ctrl-C or SIGTERM: the threads end, what was started continues
                self._abandoned.set()
                raise
        real = [error for error in failures if not isinstance(error, _AbandonedError)]
        if real:
            raise real[0]

    def _external(self, external: External) -> None:
        started = time.monotonic()
        deadline = started + EXTERNAL_SECONDS
        while not self._abandoned.is_set():
            try:
                seen = self._probe(external.name)
            except NotReady as error:
                if isinstance(error, Broken) or time.monotonic() > deadline:
                    self._fail(
                        external.name,
                        f"{external.title} at {external.endpoint} ({external.setting}) does not "
                        f"serve: {error}; correct the address, or remove it to have one started",
                    )
                time.sleep(POLL_SECONDS)
            else:
                self._report(external.name, "ready", seen, time.monotonic() - started)
                return

    def _service(self, service: Service) -> None:
        for needed in service.after:
            while not self._ready[needed].wait(POLL_SECONDS):
                if self._abandoned.is_set():
                    raise _AbandonedError
        started = time.monotonic()
        self._report(service.name, "starting", service.title, 0.0)
        self._supervisor.start_service(service.name)
        last = "it did not answer"
        while True:
            if self._abandoned.is_set():
                raise _AbandonedError
            try:
                seen = self._probe(service.name)
            except Broken as error:
                self._fail(service.name, f"{service.title}: {error}")
            except NotReady as error:
                last = str(error)
            else:
                self._report(service.name, "ready", seen, time.monotonic() - started)
                self._ready[service.name].set()
                return
            self._check_alive(service, started, last)
            time.sleep(POLL_SECONDS)

    def _check_alive(self, service: Service, started: float, last: str) -> None:
        state = self._supervisor.states()[service.name]
        log = layout.log_file(self._settings, service.name)
        if state.state in ("FATAL", "BACKOFF") and time.monotonic() - started > 5:
            self._fail(
                service.name,
                f"{service.title} does not stay up: {last_words(self._settings, service.name)}; "
                f"see {log} (penstock logs {service.name})",
            )
        if time.monotonic() - started > service.ready_seconds:
            self._fail(
                service.name,
                f"{service.title} does not serve after {service.ready_seconds} s ({last}); "
                f"see {log} (penstock logs {service.name})",
            )

    def _probe(self, name: str) -> str:
        seen = PROBES[name](self._settings)
        if name != "s3":
            return seen
        # A store that lets a second create win would fork the chain of windows.
        from penstock_platform.archive.store import ArchiveError, S3Archive  # noqa: PLC0415

        archive = S3Archive(self._settings)
        try:
            archive.ensure_bucket()
            archive.probe()
        except ArchiveError as error:
            raise Broken(str(error)) from error
        return f"bucket {self._settings.s3.bucket}, create-only"

    def _fail(self, name: str, sentence: str) -> None:
        self._abandoned.set()
        self._report(name, "failed", sentence, 0.0)
        raise ServiceError(sentence)

    def _report(self, name: str, phase: str, text: str, seconds: float) -> None:
        with self._lock:
            self._listener(Progress(name, phase, text, seconds))


class _AbandonedError(Exception):
    """Another service failed: this wait is over."""


def last_words(settings: Settings, name: str) -> str:
    """The last line of a service's log that says something."""
    log = layout.log_file(settings, name)
    if not log.is_file():
        return "it left no message"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 20_000))
        lines = file.read().decode(errors="replace").splitlines()
    written = [line.strip() for line in lines if line.strip()]
    errors = [line for line in written if "rror" in line or "xception" in line]
    return (errors or written or ["it left no message"])[-1][:300]
