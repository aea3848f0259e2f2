"""Warms the Spark server that ``penstock up`` has just started, in a process beside it.

Ends by itself within a minute, whatever happens: nothing waits for it, and nothing needs it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys

from penstock_platform.settings import HOME_VARIABLE, Settings
from penstock_services.catalogue import SERVICE_VARIABLE
from penstock_services.layout import log_file

LOG = logging.getLogger("penstock.warmup")


def start_warm_up(settings: Settings) -> None:
    """Start the process and leave it; its words go to ``logs/warmup.log``."""
    log = log_file(settings, "warmup")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        subprocess.Popen(
            [sys.executable, "-m", "penstock_services.warmup"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=settings.project,
            env={
                **os.environ,
                HOME_VARIABLE: str(settings.home),
                SERVICE_VARIABLE: "warmup",  # `down` ends it with the rest
            },
            start_new_session=True,
        )


def main() -> int:
    """Run the warm-up once; 0 also where it could not: a cold server is slower, not wrong."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only this process needs it

    from penstock_platform.lake.spark_connect import SparkConnect, SparkUnavailableError  # noqa: PLC0415
    from penstock_platform.landing.warmup import warm_up  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        warm_up(SparkConnect(Settings.load()).session())
        LOG.info("the Spark server is warm")
    except (PySparkException, SparkUnavailableError) as error:
        LOG.warning("not warmed: %s", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
