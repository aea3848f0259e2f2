"""Settings: one file ``penstock.toml``, each overridable by an environment variable.

``PENSTOCK_<SECTION>_<NAME>`` overrides ``[section] name`` (``PENSTOCK_S3_ENDPOINT``); for the keys
outside a section it is ``PENSTOCK_<NAME>``. An address that is given means that the service is the
user's own: ``penstock up`` starts only what is not given.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SETTINGS_FILE = "penstock.toml"
HOME_VARIABLE = "PENSTOCK_HOME"
# Read outside this file: the cache of jars, traces of errors, and what services carry.
OTHER_VARIABLES = ("PENSTOCK_CACHE", "PENSTOCK_DEBUG", "PENSTOCK_SERVICE")


class SettingsError(ValueError):
    """A setting that cannot be used: names file or variable, key, and how to mend it."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Section):
    """``bootstrap_servers`` empty: our own broker is started on ``port``."""

    bootstrap_servers: str = ""
    port: int = Field(default=9092, ge=1, le=65535)
    properties: dict[str, str] = Field(default_factory=dict)  # librdkafka names: SASL, TLS …
    broker: dict[str, str] = Field(default_factory=dict)  # our broker's, under Kafka's names


class S3Settings(_Section):
    """``endpoint`` empty: the embedded S3Proxy is started on ``port``."""

    endpoint: str = ""
    port: int = Field(default=9000, ge=1, le=65535)
    bucket: str = "penstock"
    prefix: str = "archive"
    region: str = "us-east-1"
    access_key: str = "penstock"
    secret_key: str = "penstock-local-only"


class SparkSettings(_Section):
    """``remote`` empty: a warm Spark Connect server is started on ``port``."""

    remote: str = ""
    port: int = Field(default=15002, ge=1, le=65535)
    master: str = "local[2]"
    driver_memory: str = Field(default="1g", pattern=r"^\d+[kmgKMG]$")
    ivy_settings: str = ""  # an Ivy settings file: a mirror, or a directory of jars


class LakeSettings(_Section):
    """``catalog_uri`` empty: SQLite under the state directory (JDBC for Spark, SQLAlchemy here)."""

    catalog_uri: str = ""
    warehouse: str = ""  # empty: s3://<bucket>/warehouse


class DagsterSettings(_Section):
    """``module`` holds the definitions; it is looked for beside ``penstock.toml`` too."""

    port: int = Field(default=3000, ge=1, le=65535)
    code_server_port: int = Field(default=4266, ge=1, le=65535)
    module: str = "penstock_pipelines.definitions"
    max_concurrent_runs: int = Field(default=6, ge=1)


class AlertSettings(_Section):
    """Where alerts go. All but ``file`` and ``pagerduty_url`` hold secrets."""

    urls: tuple[str, ...] = ()  # Apprise addresses
    webhook: str = ""
    pagerduty_routing_key: str = ""  # of an Events API v2 integration
    pagerduty_url: str = "https://events.pagerduty.com/v2/enqueue"
    heartbeat_url: str = ""  # a dead-man service, asked (GET) while all is well
    file: str = ""  # one JSON document a line; empty: <home>/alerts.jsonl


class Settings(_Section):
    """All settings of one Penstock home, validated, with every address resolved."""

    home: Path
    cluster: str = "local"
    host: str = "127.0.0.1"  # what our services bind to
    kafka: KafkaSettings = KafkaSettings()
    s3: S3Settings = S3Settings()
    spark: SparkSettings = SparkSettings()
    lake: LakeSettings = LakeSettings()
    dagster: DagsterSettings = DagsterSettings()
    alerts: AlertSettings = AlertSettings()

    @property
    def project(self) -> Path:
        """The directory that holds ``penstock.toml`` and the state directory."""
        return self.home.parent

    @property
    def local_address(self) -> str:
        """Where a process of this machine reaches our own services."""
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
        return f"http://{self.local_address}:{self.dagster.port}"

    @property
    def alert_file(self) -> Path:
        return Path(self.alerts.file) if self.alerts.file else self.home / "alerts.jsonl"

    @property
    def alert_directory(self) -> Path:
        """State of incidents and undelivered alerts."""
        return self.home / "alerts"

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Every environment variable that sets something here."""
        names = {HOME_VARIABLE, *OTHER_VARIABLES}
        for name, field in cls.model_fields.items():
            section = field.annotation
            if isinstance(section, type) and issubclass(section, _Section):
                names |= {f"PENSTOCK_{name}_{key}".upper() for key in section.model_fields}
            else:
                names.add(f"PENSTOCK_{name}".upper())
        return frozenset(names)

    @classmethod
    def load(cls, home: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
        """Read ``penstock.toml`` beside or in the state directory, then the environment.

        The state directory is ``home``, else ``PENSTOCK_HOME``, else ``.penstock`` here. The file
        is ``<parent of home>/penstock.toml``, else ``<home>/penstock.toml``, else none.
        """
        env = os.environ if env is None else env
        home = (home or Path(env.get(HOME_VARIABLE) or ".penstock")).absolute()
        file = next(
            (f for f in (home.parent / SETTINGS_FILE, home / SETTINGS_FILE) if f.is_file()), None
        )
        values: dict[str, Any] = {}
        if file is not None:
            try:
                values = tomllib.loads(file.read_text())
            except tomllib.TOMLDecodeError as error:
                raise SettingsError(f"{file}: not TOML: {error}") from error
        _override(values, env)
        try:
            return cls(home=home, **values)
        except (ValidationError, TypeError) as error:
            raise SettingsError(f"{file or 'environment'}: {_sentence(error)}") from error


def _override(values: dict[str, Any], env: Mapping[str, str]) -> None:
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, _Section):
            for key in section.model_fields:
                text = env.get(f"PENSTOCK_{name}_{key}".upper())
                if text is not None:
                    values.setdefault(name, {})[key] = _from_text(section, key, text)
        elif name != "home" and (text := env.get(f"PENSTOCK_{name}".upper())) is not None:
            values[name] = text


def _from_text(section: type[_Section], key: str, text: str) -> Any:
    """A variable's text as its field wants it: lists by commas, tables as ``name=value,…``."""
    kind = str(section.model_fields[key].annotation)
    if kind.startswith("dict"):
        pairs = (pair.partition("=") for pair in _split(text))
        return {name.strip(): value.strip() for name, _, value in pairs}
    return _split(text) if kind.startswith("tuple") else text


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']} (found {e['input']!r})"
            for e in error.errors()
        )
    return str(error)
