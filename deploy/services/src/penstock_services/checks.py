"""What must be true of a machine before services start; each failure says how to fix it."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from penstock_platform.settings import HOME_VARIABLE, SETTINGS_FILE, Settings
from penstock_services.catalogue import SERVICE_VARIABLE, Service
from penstock_services.errors import ServiceError

PYTHON_MIN, PYTHON_BELOW = (3, 11), (3, 14)
DISK_FREE_MB_MIN = 1_000
# Below this share of what the services usually take, the machine would swap or kill them.
MEMORY_SHARE_MIN = 0.6
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True)
class Holder:
    """The process that listens on a port: None where this user may not see it."""

    pid: int | None
    name: str | None
    home: str | None = None  # of the Penstock whose service it is

    def __str__(self) -> str:
        if self.pid is None:
            return "a process of another user (or outside this container)"
        whose = f", a service of {self.home} (penstock down there)" if self.home else ""
        return f"{self.name} (pid {self.pid}{whose})"


def variable(setting: str) -> str:
    """The environment variable of a setting: ``kafka.port`` → ``PENSTOCK_KAFKA_PORT``."""
    return "PENSTOCK_" + setting.upper().replace(".", "_")


def port_taken(host: str, port: int) -> bool:
    """Whether a server of ours could not listen there. Raises ServiceError for a bad address."""
    try:
        with socket.create_server((host, port)):
            return False
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return True
        if error.errno == errno.EACCES:
            raise ServiceError(
                f"Port {port} is reserved for root: choose one above 1023 in {SETTINGS_FILE}"
            ) from error
        raise ServiceError(
            f"{host}:{port} cannot be listened on ({error.strerror}): set host in {SETTINGS_FILE} "
            "(PENSTOCK_HOST) to an address of this machine"
        ) from error


def port_holder(port: int) -> Holder:
    """The process that listens on a TCP port of this machine."""
    try:
        for connection in psutil.net_connections("tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port:
                return _holder(connection.pid)
    except (psutil.Error, OSError):
        pass  # the sentence without a name still says which port and which setting
    return Holder(None, None)


def _holder(pid: int | None) -> Holder:
    if pid is None:
        return Holder(None, None)
    process = psutil.Process(pid)
    try:
        variables = process.environ()
    except (psutil.Error, OSError):
        variables = {}
    ours = SERVICE_VARIABLE in variables
    return Holder(pid, process.name(), variables.get(HOME_VARIABLE) if ours else None)


def port_sentence(service: Service, holder: Holder) -> str:
    return (
        f"Port {service.port} of the {service.title} is held by {holder}: stop that, or set "
        f"{service.port_setting} in {SETTINGS_FILE} ({variable(service.port_setting)})"
    )


def check_ports(settings: Settings, services: Iterable[Service]) -> list[str]:
    """A sentence for every port that cannot be had."""
    return [
        port_sentence(service, port_holder(service.port))
        for service in services
        if service.port is not None and port_taken(settings.host, service.port)
    ]


def check_distinct_ports(services: Iterable[Service]) -> list[str]:
    """A sentence for every two services that are set to one port."""
    seen: dict[int, Service] = {}
    problems = []
    for service in services:
        if service.port is None:
            continue
        other = seen.setdefault(service.port, service)
        if other is not service:
            problems.append(
                f"{other.port_setting} and {service.port_setting} are both {service.port}: "
                f"change one in {SETTINGS_FILE}"
            )
    return problems


def memory_available_mb() -> int:
    """What this process and its children may still take: the machine's or the container's."""
    available = psutil.virtual_memory().available
    for file in CGROUP_LIMITS:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):
            continue  # no limit ("max"), or another version of cgroups
        available = min(available, limit)
    return available // 1_000_000


def check_memory(
    settings: Settings, services: Sequence[Service], available_mb: int | None = None
) -> str | None:
    """A sentence when the services would not fit."""
    available = memory_available_mb() if available_mb is None else available_mb
    needed = sum(service.memory_mb for service in services)
    if available >= needed * MEMORY_SHARE_MIN:
        return None
    return (
        f"The services need about {needed} MB of memory and {available} MB are available: close "
        f"something, lower spark.driver_memory (now {settings.spark.driver_memory}) in "
        f"{SETTINGS_FILE}, or name a Spark, S3 or Kafka elsewhere (spark.remote, s3.endpoint, "
        "kafka.bootstrap_servers)"
    )


def check_disk(settings: Settings) -> str | None:
    place = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    if not os.access(place, os.W_OK):
        return f"{place} is not writable: set PENSTOCK_HOME to a directory of your own"
    free_mb = shutil.disk_usage(place).free // 1_000_000
    if free_mb < DISK_FREE_MB_MIN:
        return (
            f"{place} has {free_mb} MB of disk left, {DISK_FREE_MB_MIN} MB are needed: free some, "
            "or set PENSTOCK_HOME to another disk"
        )
    return None


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> str | None:
    if PYTHON_MIN <= version[:2] < PYTHON_BELOW:
        return None
    return (
        f"This is Python {'.'.join(map(str, version))} and Penstock runs on 3.11, 3.12 and 3.13: "
        "create the environment with one of them (uv venv --python 3.12)"
    )


def check_versions(
    distributions: Sequence[str] = ("penstock-services", "penstock-platform", "penstock-client"),
) -> list[str]:
    """A sentence for every installed version that is not the one these distributions were made
    for: a half-updated environment fails far from its cause."""
    problems = []
    for distribution in distributions:
        for text in importlib.metadata.requires(distribution) or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue
            try:
                found = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                problems.append(
                    f"{requirement.name} is not installed, {distribution} needs it; "
                    "run: make install"
                )
                continue
            if not requirement.specifier.contains(found, prereleases=True):
                problems.append(
                    f"{requirement.name} is {found} and {distribution} needs "
                    f"{requirement.specifier}; run: make install"
                )
    return problems
