"""Settings: one file ``penstock.toml``, each overridable by an environment variable.

``PENSTOCK_<SECTION>_<NAME>`` overrides ``[section] name`` (``PENSTOCK_S3_ENDPOINT``); for the keys
outside a section it is ``PENSTOCK_<NAME>``. One key of a table (``[kafka.properties]``,
``[kafka.broker]``) has a variable of its own: ``PENSTOCK_KAFKA_PROPERTIES__SASL_PASSWORD`` is
``sasl.password``. Any of them with ``_FILE`` at its end names a file that holds the value, which is
how secrets come in. What a variable says is put on top of the file's table, key by key.

An address that is given means that the service is the
user's own: ``penstock up`` starts only what is not given.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock_platform.problems import KeyPath, is_secret, meant, place, problems_of
from penstock_platform.toml_lines import toml_lines

SETTINGS_FILE = "penstock.toml"
ENVIRONMENT_FILE = ".env"
PREFIX = "PENSTOCK_"
FILE_SUFFIX = "_FILE"  # the variable names a file that holds the value
HOME_VARIABLE = "PENSTOCK_HOME"
# The code location of a project that `penstock init` made, and that `penstock up` serves.
LOCATION_NAME = "pipelines"
# Read outside this file: the cache of jars, traces of errors, and what services carry.
OTHER_VARIABLES = (
    "PENSTOCK_CACHE",
    "PENSTOCK_DEBUG",
    "PENSTOCK_SERVICE",
    "PENSTOCK_BOOTSTRAP_SERVERS",  # of penstock-client
    "PENSTOCK_SEED",  # of the demo
    "PENSTOCK_WORKERS_RUNNING",
)
TEST_PREFIXES = ("PENSTOCK_TEST_", "PENSTOCK_GOLDEN", "PENSTOCK_REWRITE_", "PENSTOCK_MODEL_")


class SettingsError(ValueError):
    """A setting that cannot be used: names file or variable, key, and how to fix it."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Section):
    """``bootstrap_servers`` empty: Penstock's broker is started on ``port``."""

    bootstrap_servers: str = Field(
        default="",
        description="`host:port,…` of your Kafka. Empty: `penstock up` starts Penstock's broker.",
    )
    port: int = Field(default=9092, ge=1, le=65535, description="Port of Penstock's broker.")
    properties: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Properties of every Kafka client, named as in librdkafka (SASL, TLS); "
        "translated for Spark's Java client.",
    )
    broker: dict[str, str] = Field(
        default_factory=dict,
        description="Properties of Penstock's broker, named as in Kafka (below).",
    )


class S3Settings(_Section):
    """``endpoint`` empty: the embedded S3Proxy is started on ``port``."""

    endpoint: str = Field(
        default="", description="URL of your S3. Empty: `penstock up` starts S3Proxy."
    )
    port: int = Field(default=9000, ge=1, le=65535, description="Port of S3Proxy.")
    bucket: str = Field(default="penstock", description="Bucket of the archive and the tables.")
    prefix: str = Field(
        default="archive",
        description="Prefix of window objects, receipts and books in the bucket.",
    )
    region: str = Field(default="us-east-1", description="Region of the bucket.")
    access_key: str = Field(
        default="penstock",
        repr=False,
        description="Access key. If both keys are empty, the AWS SDK finds them.",
    )
    secret_key: str = Field(
        default="penstock-local-only", repr=False, description="Secret of `access_key`."
    )


class SparkSettings(_Section):
    """``remote`` empty: a warm Spark Connect server is started on ``port``."""

    remote: str = Field(
        default="",
        description="`sc://host:port` of your Spark Connect server. Empty: `penstock up` "
        "starts one.",
    )
    port: int = Field(
        default=15002, ge=1, le=65535, description="Port of Penstock's Spark Connect."
    )
    master: str = Field(default="local[2]", description="Master URL of Penstock's Spark Connect.")
    driver_memory: str = Field(
        default="1g",
        pattern=r"^\d+[kmgKMG]$",
        description="Memory of Penstock's Spark Connect, as `1g` or `512m`.",
    )
    ivy_settings: str = Field(
        default="",
        description="Ivy settings file for the download of jars: a mirror, or a directory.",
    )


class LakeSettings(_Section):
    """``catalog_uri`` empty: SQLite under the state directory (JDBC for Spark, SQLAlchemy here)."""

    catalog_uri: str = Field(
        default="",
        description="`sqlite:///<file>` of the Iceberg catalog, the only kind in this release. "
        "Empty: a file in the state directory.",
    )
    warehouse: str = Field(
        default="", description="Location of the tables. Empty: `s3://<bucket>/warehouse`."
    )


class DagsterSettings(_Section):
    """``module`` holds the definitions; it is looked for under ``src`` and beside ``penstock.toml``
    too. ``url``: the webserver of a Dagster that is not ours; empty: the one on ``port``."""

    url: str = Field(
        default="", description="Webserver of a Dagster of your own; empty: the one on `port`."
    )
    port: int = Field(default=3000, ge=1, le=65535, description="Port of Dagster's webserver.")
    code_server_port: int = Field(
        default=4266, ge=1, le=65535, description="Port of the code server, on loopback."
    )
    module: str = Field(
        default="penstock_pipelines.definitions",
        description="Module with the definitions; also searched under `src` and beside "
        "`penstock.toml`.",
    )
    max_concurrent_runs: int = Field(default=6, ge=1, description="Maximum of concurrent runs.")


class AlertSettings(_Section):
    """Where alerts go. All but ``file`` and ``pagerduty_url`` hold secrets."""

    urls: tuple[str, ...] = Field(
        default=(),
        repr=False,
        description="Apprise addresses, as `slack://…` or `mailto://…`; separated by commas in "
        "a variable.",
    )
    webhook: str = Field(
        default="",
        repr=False,
        description="URL that gets a POST of PagerDuty's Events v2 document, without a key.",
    )
    pagerduty_routing_key: str = Field(
        default="", repr=False, description="Key of an Events API v2 integration of PagerDuty."
    )
    pagerduty_url: str = Field(
        default="https://events.pagerduty.com/v2/enqueue",
        description="Address of PagerDuty's Events API.",
    )
    heartbeat_url: str = Field(
        default="",
        repr=False,
        description="URL of a dead-man service, requested (GET) once a minute while all is well.",
    )
    file: str = Field(
        default="",
        description="File that gets every alert, one JSON document per line. Empty: `alerts.jsonl` "
        "in the state directory.",
    )


class Settings(_Section):
    """All settings of one Penstock home, validated, with every address resolved."""

    home: Path = Field(description="The state directory (`PENSTOCK_HOME`).")
    cluster: str = Field(
        default="local", description="Name of the cluster in asset keys (`local/topic/orders`)."
    )
    host: str = Field(default="127.0.0.1", description="Address that Penstock's services bind to.")
    kafka: KafkaSettings = Field(default=KafkaSettings(), description="The brokers.")
    s3: S3Settings = Field(default=S3Settings(), description="The object store.")
    spark: SparkSettings = Field(default=SparkSettings(), description="Spark Connect.")
    lake: LakeSettings = Field(default=LakeSettings(), description="The Iceberg tables.")
    dagster: DagsterSettings = Field(default=DagsterSettings(), description="Dagster's services.")
    alerts: AlertSettings = Field(default=AlertSettings(), description="Where alerts go.")

    @property
    def project(self) -> Path:
        """The directory that holds ``penstock.toml`` and the state directory."""
        return self.home.parent

    @property
    def code_folder(self) -> Path:
        """Where ``dagster.module`` is looked for, beside what is installed: ``src`` of the
        project where its package is there, as `dg` lays projects out, else the project."""
        package = self.dagster.module.partition(".")[0]
        source = self.project / "src"
        there = (source / package).is_dir() or (source / f"{package}.py").is_file()
        return source if there else self.project

    def project_variables(self) -> dict[str, str]:
        """What ``.env`` of the project sets, for ``{{ env.X }}`` in declarations: `dg` reads this
        file too, and it comes before the shell's variables. Settings do not come from it."""
        from dotenv import dotenv_values  # noqa: PLC0415 - few commands need it

        found = dotenv_values(self.project / ENVIRONMENT_FILE)
        return {k: v for k, v in found.items() if v is not None and not k.startswith(PREFIX)}

    @property
    def local_address(self) -> str:
        """Where a process of this machine reaches the services of this home."""
        return "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers or f"{self.local_address}:{self.kafka.port}"

    @property
    def s3_endpoint(self) -> str:
        return self.s3.endpoint or f"http://{self.local_address}:{self.s3.port}"

    @property
    def spark_remote(self) -> str:
        return self.spark.remote or f"sc://{self.local_address}:{self.spark.port}"

    @property
    def catalog_path(self) -> Path:
        return self.home / "lake" / "catalog.db"

    @property
    def warehouse(self) -> str:
        return self.lake.warehouse or f"s3://{self.s3.bucket}/warehouse"

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"

    @property
    def dagster_url(self) -> str:
        own = f"http://{self.local_address}:{self.dagster.port}"
        return self.dagster.url.rstrip("/") or own

    @property
    def supervisor_conf(self) -> Path:
        """There where ``penstock up`` has started services of this home."""
        return self.home / "services" / "supervisord.conf"

    @property
    def alert_file(self) -> Path:
        return Path(self.alerts.file) if self.alerts.file else self.home / "alerts.jsonl"

    @property
    def alert_directory(self) -> Path:
        """State of incidents and undelivered alerts."""
        return self.home / "alerts"

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Every environment variable that sets something here, but for keys of tables (``__``)."""
        names = {HOME_VARIABLE, *OTHER_VARIABLES}
        for path in _settable():
            names |= {_variable(path), f"{_variable(path)}{FILE_SUFFIX}"}
        return frozenset(names)

    @classmethod
    def unknown_variables(cls, env: Mapping[str, str]) -> list[str]:
        """A sentence for each ``PENSTOCK_…`` variable that sets nothing: misspelt, most likely."""
        known = cls.variables()
        tables = tuple(f"{_variable(path)}__" for path, is_table in _settable().items() if is_table)
        unknown = (
            name
            for name in sorted(env)
            if name.startswith(PREFIX)
            and name not in known
            and not (name.startswith(tables) and not name.endswith("__"))
            and not name.startswith(TEST_PREFIXES)
        )
        return [
            f"{name} sets nothing{meant(name, known, shown_max=0) or '; remove it'}"
            for name in unknown
        ]

    @classmethod
    def load(cls, home: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
        """Read ``penstock.toml`` beside or in the state directory, then the environment.

        The state directory is ``home``, else ``PENSTOCK_HOME``, else ``.penstock`` here. The file
        is ``<parent of home>/penstock.toml``, else ``<home>/penstock.toml``, else none. Raises
        SettingsError with a line for every problem of file and environment.
        """
        env = os.environ if env is None else env
        home = (home or Path(env.get(HOME_VARIABLE) or ".penstock")).absolute()
        file = next(
            (f for f in (home.parent / SETTINGS_FILE, home / SETTINGS_FILE) if f.is_file()), None
        )
        values, lines = _read_file(file) if file is not None else ({}, {})
        problems: list[str] = []
        if values.pop("home", None) is not None:
            problems.append(
                f"{place(str(file), lines.get(('home',)))}: home is not a key here; the state "
                f"directory is {HOME_VARIABLE}"
            )
        origins = _override(values, env, problems)
        try:
            found = cls.model_validate({"home": home, **values})
        except ValidationError as error:
            problems += problems_of(error, cls, str(file or "environment"), lines, origins)
        if problems:
            raise SettingsError("\n".join(problems))
        return found


def _read_file(file: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """(values, line of every key)."""
    try:
        text = file.read_text()
        return tomllib.loads(text), toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(at[1]) if at else None
        raise SettingsError(f"{place(str(file), line)}: not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"{file}: cannot be read: {reason}") from error


def _settable() -> dict[KeyPath, bool]:
    """Every key that a variable may set → whether it is a table of texts."""
    found: dict[KeyPath, bool] = {}
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, _Section):
            for key, value in section.model_fields.items():
                found[name, key] = str(value.annotation).startswith("dict")
        elif name != "home":
            found[name,] = False
    return found


def _variable(path: KeyPath) -> str:
    return f"{PREFIX}{'_'.join(map(str, path))}".upper()


def _override(
    values: dict[str, Any], env: Mapping[str, str], problems: list[str]
) -> dict[KeyPath, str]:
    """Put the environment's values on top; returns which variable each of them came from."""
    origins: dict[KeyPath, str] = {}
    for path, is_table in _settable().items():
        name = _variable(path)
        text = _text_of(name, env, problems)
        table: dict[str, str] = {}
        if is_table:
            table = _pairs(name, text or "", problems) | _single_keys(name, env, problems)
        if text is None and not table:
            continue
        origins[path] = name
        section = values
        if len(path) == 2:
            section = values.setdefault(str(path[0]), {})
            if not isinstance(section, dict):
                continue  # a wrong file: validation names it
        key = str(path[-1])
        if is_table:
            before = section.get(key, {})
            section[key] = {**before, **table} if isinstance(before, dict) else before
        else:
            section[key] = _split(text or "") if _is_list(path) else text
    return origins


def _is_list(path: KeyPath) -> bool:
    section: Any = Settings.model_fields[str(path[0])].annotation
    return len(path) == 2 and str(section.model_fields[str(path[1])].annotation).startswith("tuple")


def _text_of(name: str, env: Mapping[str, str], problems: list[str]) -> str | None:
    """The variable's text, or that of the file which ``<name>_FILE`` names."""
    file = env.get(f"{name}{FILE_SUFFIX}")
    if file is None:
        return env.get(name)
    if name in env:
        problems.append(f"{name}{FILE_SUFFIX}: {name} is set too; keep one of them")
    try:
        return Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{name}{FILE_SUFFIX}: cannot read {file}: {reason}")
        return None


def _single_keys(name: str, env: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """``<name>__SASL_PASSWORD`` (and ``…_FILE``) → ``sasl.password``."""
    found: dict[str, str] = {}
    begin = f"{name}__"
    for variable in sorted(v for v in env if v.startswith(begin)):
        single = variable.removesuffix(FILE_SUFFIX)
        key = single.removeprefix(begin).lower().replace("_", ".")
        text = _text_of(single, env, problems)
        if key and text is not None:
            found[key] = text
    return found


def _pairs(name: str, text: str, problems: list[str]) -> dict[str, str]:
    """``name=value,…``. Values with commas, and secrets, have variables of their own: a secret may
    hold a comma, and half of one is a wrong one."""
    found: dict[str, str] = {}
    for number, part in enumerate(_split(text), start=1):
        key, separator, value = part.partition("=")
        single = f"{name}__{key.strip().upper().replace('.', '_')}"
        if not separator:
            problems.append(
                f"{name}: its part {number} is not name=value; a value with a comma goes into a "
                f"variable of its own, as {name}__SASL_PASSWORD (or {name}__SASL_PASSWORD_FILE)"
            )
        elif is_secret([key]):
            problems.append(
                f"{name}: {key.strip()} is a secret, which may hold a comma; set {single}, or "
                f"{single}{FILE_SUFFIX}"
            )
        else:
            found[key.strip()] = value.strip()
    return found


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
