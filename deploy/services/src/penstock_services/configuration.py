"""The text of every generated file, as pure functions of the settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import yaml

from penstock_platform.lake.spark_session import properties_text, spark_conf
from penstock_platform.settings import LOCATION_NAME, Settings
from penstock_services import layout
from penstock_services.catalogue import SPARK_JVM, Service
from penstock_services.errors import ServiceError

LOG_BYTES_MAX = 20_000_000
LOG_BACKUPS = 2


def supervisord_conf(
    settings: Settings, services: Sequence[Service], user: str | None = None
) -> str:
    """Supervisord's configuration. A service that dies is started again, at once and then with
    pauses that grow by a second; one that never stays up ends as FATAL, which ``up`` and
    ``status`` report. ``user`` is named where supervisord runs as root, so that it keeps still.
    """
    head = {
        "unix_http_server": {
            "file": str(layout.supervisor_socket(settings)),
            "chmod": "0700",
        },
        "supervisord": {
            "logfile": str(layout.log_file(settings, "supervisord")),
            "logfile_maxbytes": "5MB",
            "logfile_backups": "1",
            "pidfile": str(layout.supervisor_pid_file(settings)),
            "childlogdir": str(settings.home / "logs"),
            "identifier": "penstock",
            "minfds": "1024",
            "silent": "true",  # its log file is enough; standard output is for early failures
            **({"user": user} if user else {}),
        },
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": ("supervisor.rpcinterface:make_main_rpcinterface"),
        },
    }
    sections = {**head, **{f"program:{s.name}": _program(settings, s) for s in services}}
    return "\n".join(_section(name, values) for name, values in sections.items())


def _program(settings: Settings, service: Service) -> dict[str, str]:
    return {
        "command": shlex.join(service.command),
        "directory": str(settings.project),
        "environment": _environment(service.environment),
        "autostart": "false",  # `up` starts them in their order
        "autorestart": "true",
        "startsecs": "2",
        "startretries": "20",
        "stopsignal": "TERM",
        "stopwaitsecs": "20",
        "stopasgroup": "true",
        "killasgroup": "true",
        "redirect_stderr": "true",
        "stdout_logfile": str(layout.log_file(settings, service.name)),
        "stdout_logfile_maxbytes": str(LOG_BYTES_MAX),
        "stdout_logfile_backups": str(LOG_BACKUPS),
        "priority": str(service.priority),
    }


def _section(name: str, values: Mapping[str, str]) -> str:
    # Supervisord expands %(name)s in every value.
    lines = (f"{key}={value.replace('%', '%%')}" for key, value in values.items())
    return f"[{name}]\n" + "\n".join(lines) + "\n"


def _environment(variables: Mapping[str, str]) -> str:
    """Supervisord's own quoting: either kind of quotes around, and no way to escape one."""
    pairs = []
    for name, value in sorted(variables.items()):
        quote = "'" if '"' in value else '"'
        if quote in value or "\n" in value:
            raise ServiceError(
                f"{name} cannot be handed to the services: its value holds both kinds of quotes "
                "or a line break"
            )
        pairs.append(f"{name}={quote}{value}{quote}")
    return ",".join(pairs)


def s3proxy_properties(settings: Settings) -> str:
    """S3Proxy on plain files (filesystem-nio2: its create-only keys hold under 16 racing writers,
    and acknowledged objects survive kill -9)."""
    return "".join(
        f"{key}={value}\n"
        for key, value in {
            "s3proxy.endpoint": f"http://{settings.host}:{settings.s3.port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": settings.s3.access_key,
            "s3proxy.credential": settings.s3.secret_key,
            "s3proxy.jetty.max-threads": "40",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "local",
            "jclouds.credential": "local",
            "jclouds.filesystem.basedir": str(layout.s3_directory(settings)),
        }.items()
    )


def spark_properties(settings: Settings) -> str:
    """The Connect server's properties; they hold the S3 secret, so the file is the owner's only."""
    conf = spark_conf(settings)
    options = conf.get("spark.driver.extraJavaOptions", "")
    conf["spark.driver.extraJavaOptions"] = " ".join([options, *SPARK_JVM]).strip()
    conf.setdefault("spark.log.level", "WARN")
    return properties_text(conf)


def dagster_yaml(settings: Settings) -> str:
    """The Dagster instance: SQLite, one second from request to launch, bounded concurrency."""
    return _yaml(
        {
            "telemetry": {"enabled": False},
            "nux": {"enabled": False},
            "freshness": {"enabled": True},
            "storage": {
                "custom": {
                    "module": "penstock_services.instance_storage",
                    "class": "QuickSqliteStorage",
                    "config": {"base_dir": str(settings.dagster_home / "storage")},
                }
            },
            "run_coordinator": {
                "module": "dagster.core.run_coordinator",
                "class": "QueuedRunCoordinator",
                "config": {
                    "max_concurrent_runs": settings.dagster.max_concurrent_runs,
                    "dequeue_interval_seconds": 1,
                },
            },
            "run_launcher": {
                "module": "penstock_services.run_launcher",
                "class": "WatchedRunLauncher",
                "config": {"socket": str(layout.workers_socket(settings))},
            },
            "run_monitoring": {
                "enabled": True,
                "poll_interval_seconds": 5,
                "start_timeout_seconds": 900,
                "cancel_timeout_seconds": 60,
            },
            "run_retries": {"enabled": True, "max_retries": 0},
            "sensors": {"use_threads": True, "num_workers": 4},
            "schedules": {"use_threads": True, "num_workers": 2},
            "retention": {
                "sensor": {"purge_after_days": {"skipped": 1, "success": 7, "failure": 30}},
                "schedule": {"purge_after_days": {"skipped": 1, "success": 7, "failure": 30}},
            },
        }
    )


def workspace_yaml(settings: Settings) -> str:
    """Where webserver and daemon find the code: always the code server, never a process of
    their own."""
    return _yaml(
        {
            "load_from": [
                {
                    "grpc_server": {
                        "host": settings.local_address,
                        "port": settings.dagster.code_server_port,
                        "location_name": LOCATION_NAME,
                    }
                }
            ]
        }
    )


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False)
