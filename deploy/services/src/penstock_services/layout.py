"""Where things lie under the state directory.

::

    <home>/services/   generated configuration, supervisord's pid                 (re-creatable)
    <home>/logs/       one log file a service, rotated                            (re-creatable)
    <home>/broker/     the broker's segments and metadata                         (data)
    <home>/s3/         the embedded object store                                  (data)
    <home>/lake/       the embedded catalog                                       (data)
    <home>/spark/      scratch                                                    (re-creatable)
    <home>/dagster/    runs, events, schedules; dagster.yaml and workspace.yaml   (data)
    <home>/alerts/     open incidents, undelivered alerts                         (data)
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from penstock_platform.settings import SETTINGS_FILE, Settings

# Directory of ``up`` → what it holds, as `penstock down --purge` names it.
OWN_DIRECTORIES = {
    "services": "generated configuration",
    "logs": "logs of the services",
    "broker": "topics: every record of the log",
    "s3": "the object store: windows, receipts, books, and the tables' files",
    "lake": "the catalog of the tables",
    "spark": "scratch",
    "dagster": "runs, events and schedules of Dagster",
    "alerts": "open incidents and alerts that are not delivered yet",
}
# sockaddr_un holds 108 bytes on Linux, 104 on macOS.
SOCKET_PATH_MAX = 100


def services_directory(settings: Settings) -> Path:
    return settings.home / "services"


def supervisor_conf(settings: Settings) -> Path:
    return settings.supervisor_conf


def supervisor_pid_file(settings: Settings) -> Path:
    return services_directory(settings) / "supervisord.pid"


def spark_conf_directory(settings: Settings) -> Path:
    return services_directory(settings) / "spark"


def spark_properties(settings: Settings) -> Path:
    return spark_conf_directory(settings) / "spark-defaults.conf"


def s3proxy_properties(settings: Settings) -> Path:
    return services_directory(settings) / "s3proxy.properties"


def s3_directory(settings: Settings) -> Path:
    return settings.home / "s3"


def broker_directory(settings: Settings) -> Path:
    return settings.home / "broker"


def dagster_yaml(settings: Settings) -> Path:
    return settings.dagster_home / "dagster.yaml"


def workspace_yaml(settings: Settings) -> Path:
    return settings.dagster_home / "workspace.yaml"


def watcher_directory(settings: Settings) -> Path:
    return settings.alert_directory / "watcher"


def log_file(settings: Settings, service: str) -> Path:
    return settings.home / "logs" / f"{service}.log"


def supervisor_socket(settings: Settings) -> Path:
    return _socket(settings, "supervisor")


def workers_socket(settings: Settings) -> Path:
    return _socket(settings, "workers")


def _socket(settings: Settings, name: str) -> Path:
    """In the state directory, or elsewhere where that path is too long for a socket."""
    path = services_directory(settings) / f"{name}.sock"
    if len(str(path).encode()) <= SOCKET_PATH_MAX:
        return path
    digest = hashlib.sha256(str(settings.home).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"penstock-{digest}-{name}.sock"


def definition_sources(settings: Settings) -> tuple[Path, ...]:
    """What a load of the definitions reads beside the project's package: settings, and where the
    partition definitions begin (``topics/starts.py``)."""
    return (
        settings.project / SETTINGS_FILE,
        settings.home / SETTINGS_FILE,
        settings.dagster_home / "starts",
    )
