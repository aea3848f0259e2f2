"""``penstock doctor``: checks of everything that commonly keeps services from starting.

Nothing is started or changed, except for probe objects in the archive, which its create-only
interface cannot remove again: a few bytes a call under one prefix of their own.
"""

from __future__ import annotations

import os
import platform
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import psutil

from penstock_platform.archive.model import probe_key
from penstock_platform.archive.store import Archive, ArchiveError, S3Archive
from penstock_platform.settings import Settings
from penstock_services import checks, jars
from penstock_services.catalogue import External, externals, needs_java, outline
from penstock_services.errors import ServiceError
from penstock_services.java import find_java
from penstock_services.probes import PROBES, NotReady
from penstock_services.supervisor import Supervisor

WRITERS = 16
OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was checked, the result, and how to fix it."""

    subject: str
    status: str
    text: str


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, one at a time, as they are made."""
    yield _python()
    yield _java(settings)
    yield _memory(settings)
    yield _judged("disk", checks.check_disk(settings), f"{settings.home} can be written")
    yield from _versions()
    yield _spark_python()
    yield _unknown_variables(os.environ)
    yield _jars(settings)
    yield from _ports(settings)
    for external in externals(settings):
        yield _external(settings, external)
    yield _store(settings)


def race(archive: Archive, writers: int = WRITERS) -> int:
    """How many of these writers, all at once, are answered that they created one and the same key.

    One, on a store that can carry the chain of windows. Raises ArchiveError when it cannot be
    asked.
    """
    key = probe_key(uuid.uuid4().hex)
    barrier = Barrier(writers)

    def write(number: int) -> bool:
        barrier.wait()
        return archive.create(key, b"%d" % number)

    with ThreadPoolExecutor(writers) as pool:
        return sum(pool.map(write, range(writers)))


def _judged(subject: str, problem: str | None, good: str) -> Finding:
    return Finding(subject, PROBLEM, problem) if problem else Finding(subject, OK, good)


def _attempt(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, OK, look())
    except (ServiceError, ArchiveError, NotReady) as error:
        return Finding(subject, PROBLEM, str(error))


def _python() -> Finding:
    good = f"{platform.python_version()} at {sys.executable}"
    return _judged("python", checks.check_python(), good)


def _java(settings: Settings) -> Finding:
    if not needs_java(settings):
        return Finding("java", OK, "not needed: S3 and Spark are elsewhere")

    def look() -> str:
        java = find_java()
        return f"Java {java.version}, {java.source}"

    return _attempt("java", look)


def _memory(settings: Settings) -> Finding:
    available = checks.memory_available_mb()
    if Supervisor(settings).pid() is not None:
        return Finding("memory", OK, f"{available} MB available beside the running services")
    problem = checks.check_memory(settings, outline(settings), available)
    return _judged("memory", problem, f"{available} MB available")


def _versions() -> Iterator[Finding]:
    problems = checks.check_versions()
    for problem in problems:
        yield Finding("versions", PROBLEM, problem)
    if not problems:
        yield Finding("versions", OK, "every installed package has the required version")


def _spark_python() -> Finding:
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen and os.path.realpath(chosen) != os.path.realpath(sys.executable):
        return Finding(
            "PYSPARK_PYTHON",
            NOTE,
            f"{chosen} is set; the services use {sys.executable}, since Spark refuses a mixture",
        )
    return Finding("PYSPARK_PYTHON", OK, "the services use this Python")


def _unknown_variables(env: Mapping[str, str]) -> Finding:
    if unknown := Settings.unknown_variables(env):
        return Finding("variables", NOTE, "; ".join(unknown))
    return Finding("variables", OK, "every PENSTOCK_… variable is a setting")


def _jars(settings: Settings) -> Finding:
    if not needs_java(settings):
        return Finding("jars", OK, "not needed: S3 and Spark are elsewhere")
    directory = jars.jars_directory()
    if not directory.is_dir():
        return Finding("jars", NOTE, "not here yet; the first `penstock up` downloads 190 MB")

    def look() -> str:
        jars.verify(directory, jars.read_lock())
        return f"{len(jars.read_lock())} jars in {directory}, each with its sha256"

    return _attempt("jars", look)


def _ports(settings: Settings) -> Iterator[Finding]:
    table = outline(settings)
    pid = Supervisor(settings).pid()
    own = {child.pid for child in psutil.Process(pid).children(recursive=True)} if pid else set()
    for problem in checks.check_distinct_ports(table):
        yield Finding("ports", PROBLEM, problem)
    for service in table:
        if service.port is None:
            continue
        subject = f"port {service.port}"
        if not checks.port_taken(settings.host, service.port):
            yield Finding(subject, OK, f"free for the {service.title}")
            continue
        holder = checks.port_holder(service.port)
        if holder.pid in own:
            yield Finding(subject, OK, f"the {service.title} of this directory")
        else:
            yield Finding(subject, PROBLEM, checks.port_sentence(service, holder))


def _external(settings: Settings, external: External) -> Finding:
    title = f"{external.title} at {external.endpoint}"
    try:
        return Finding(external.name, OK, f"{title}: {PROBES[external.name](settings)}")
    except NotReady as error:
        return Finding(
            external.name, PROBLEM, f"{title} does not serve: {error}; correct {external.setting}"
        )


def _store(settings: Settings) -> Finding:
    """The race of writers on the configured store."""
    if not settings.s3.endpoint and Supervisor(settings).pid() is None:
        return Finding("object store", NOTE, "not running: probed when the services are up")
    try:
        PROBES["s3"](settings)
    except NotReady as error:
        return Finding("object store", PROBLEM, f"{settings.s3_endpoint}: {error}")

    def look() -> str:
        archive = S3Archive(settings)
        archive.ensure_bucket()
        winners = race(archive)
        if winners != 1:
            raise ServiceError(
                f"{settings.s3_endpoint}: {winners} of {WRITERS} writers each got "
                "the answer that they created the same object, so windows would fork; "
                "use AWS S3, S3Proxy, MinIO or versitygw (s3.endpoint)"
            )
        return f"create-only: 1 of {WRITERS} racing writers won at {settings.s3_endpoint}"

    return _attempt("object store", look)
