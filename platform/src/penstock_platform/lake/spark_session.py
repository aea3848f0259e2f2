"""What a Spark that serves Penstock is configured with: the catalog, S3, time zone, addresses.

``spark_conf`` is what ``penstock up`` starts the warm Connect server with, and what a user puts
into the configuration of a cluster of their own (leave out the ``local`` part there). It holds the
S3 secret: hand it over in a file that only the owner can read, never on a command line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

from penstock_platform.settings import Settings, SettingsError

CATALOG = "lake"
CATALOG_PREFIX = f"spark.sql.catalog.{CATALOG}"
SESSION_TIMEOUT = "10m"
SQLITE_SCHEME = "sqlite:///"
# The writer waits for another writer's commit this long before SQLite says "database is locked".
SQLITE_OPTIONS = "busy_timeout=15000&journal_mode=WAL"


def spark_conf(settings: Settings) -> dict[str, str]:
    """Every Spark property of the embedded Connect server, jars and master aside.

    Raises SettingsError where the catalog's address is none that this release can use.
    """
    state = settings.home / "spark"
    return {
        **_local_conf(settings, state),
        **session_conf(),
        **catalog_conf(settings),
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    }


def session_conf() -> dict[str, str]:
    """The properties a session may set for itself, so they hold on a user's own cluster too."""
    return {
        "spark.sql.session.timeZone": "UTC",
        # An overflow or a cast that fails is an error, never a silent null.
        "spark.sql.ansi.enabled": "true",
    }


def catalog_conf(settings: Settings) -> dict[str, str]:
    """The catalog ``lake``: Iceberg, JDBC on SQLite, files through S3FileIO.

    Caching is off: pyiceberg, people and other sessions write too, and a proof must see the
    table's current snapshot, not that of half a minute ago. It costs some 10 ms a statement.
    """
    conf = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{sqlite_path(settings)}?{SQLITE_OPTIONS}",
        "jdbc.schema-version": "V1",
        "warehouse": settings.warehouse,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": settings.s3_endpoint,
        "s3.path-style-access": "true",
        "client.region": settings.s3.region,
        "cache-enabled": "false",
    }
    if settings.s3.access_key:  # empty: the AWS SDK's own chain (instance role, environment …)
        conf["s3.access-key-id"] = settings.s3.access_key
        conf["s3.secret-access-key"] = settings.s3.secret_key
    return {f"{CATALOG_PREFIX}.{key}".rstrip("."): value for key, value in conf.items()}


def sqlite_path(settings: Settings) -> Path:
    """The embedded catalog's file: the state directory's, or that of ``sqlite:///<file>``."""
    uri = settings.lake.catalog_uri
    if not uri:
        return settings.catalog_path
    if not uri.startswith(SQLITE_SCHEME):
        raise SettingsError(
            f"lake.catalog_uri: this release keeps its catalog in SQLite ({SQLITE_SCHEME}<file>), "
            f"not in {urlsplit(uri).scheme or 'a file path'}; leave it empty for the default"
        )
    return Path(uri.removeprefix(SQLITE_SCHEME))


def properties_text(conf: dict[str, str]) -> str:
    """``conf`` as the text of a Spark properties file (``spark-submit --properties-file``)."""
    return "".join(f"{key} {_escaped(value)}\n" for key, value in sorted(conf.items()))


def _escaped(value: str) -> str:
    # java.util.Properties: a backslash escapes, a line's end ends the value.
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _local_conf(settings: Settings, state: Path) -> dict[str, str]:
    return {
        "spark.app.name": "penstock",
        "spark.driver.host": settings.local_address,
        "spark.driver.bindAddress": settings.host,
        "spark.connect.grpc.binding.address": settings.host,
        "spark.connect.grpc.binding.port": str(settings.spark.port),
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.local.dir": str(state / "scratch"),
        "spark.sql.warehouse.dir": (state / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The server lives for weeks: what it remembers of finished work is bounded.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.connect.ui.retainedSessions": "20",
        # A process that was killed leaves its session behind, with a catalog and an S3 client.
        "spark.connect.session.manager.defaultSessionTimeout": SESSION_TIMEOUT,
        # Named sessions come back under their id after a quiet hour (lake/spark_connect.py).
        "spark.connect.session.manager.closedSessionsTombstonesSize": "0",
        "spark.connect.ui.retainedStatements": "20",
        # PySpark walks its stack for each column otherwise, to name our lines in Spark's errors: a
        # fifth of the processor time of parsing's plan. The server's clients ask it for this.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Windows are small and the cores few: 200 shuffle partitions would be 200 empty tasks.
        "spark.sql.shuffle.partitions": "4",
    }
