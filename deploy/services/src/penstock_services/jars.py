"""The Java libraries that no wheel carries: pinned, verified, retrieved once.

``ivy.xml`` pins each jar, ``jars.lock`` holds its SHA-256 (``sha256sum`` format). They are
retrieved on first use with the Ivy that PySpark's wheel already carries, run as a program of its
own, into a directory of the user's cache that is named after the lock::

    <cache>/jars-<first 16 digits of sha256(jars.lock)>/<artifact>-<revision>[-<classifier>].jar

Invariant: that directory exists only whole and verified. It is filled beside its place and
renamed into it, under a lock among processes, so any number of first starts at once retrieve one
time. Nothing is resolved or fetched again while the lock is unchanged; every process that uses
the jars re-hashes them (190 MB: 0.1 to 0.4 s).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

from penstock_services.errors import ServiceError
from penstock_services.java import Java, find_java
from penstock_services.paths import cache_directory, file_lock

IVY_SETTINGS_VARIABLE = "PENSTOCK_SPARK_IVY_SETTINGS"
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    """Progress without output."""


def read_lock(text: str | None = None) -> dict[str, str]:
    """``jars.lock`` as {file name: sha256 in hex}."""
    lines = (_resource("jars.lock") if text is None else text).split("\n")
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return {name.strip(): digest for digest, name in pairs}


def jars_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where the jars of this lock are, or will be."""
    digest = hashlib.sha256((_resource("jars.lock") + _resource("ivy.xml")).encode()).hexdigest()
    return cache_directory(env) / f"jars-{digest[:16]}"


def jar_paths(
    java: Java | None = None, progress: Progress = _silent, ivy_settings: str = ""
) -> list[Path]:
    """The jars for Spark's ``spark.jars``: present and verified; retrieved when missing."""
    directory = ensure_jars(java, progress, ivy_settings)
    return [directory / name for name in read_lock() if not name.startswith("s3proxy-")]


def s3proxy_jar(
    java: Java | None = None, progress: Progress = _silent, ivy_settings: str = ""
) -> Path:
    """The embedded S3 server, present and verified; retrieved when missing."""
    directory = ensure_jars(java, progress, ivy_settings)
    return next(directory / name for name in read_lock() if name.startswith("s3proxy-"))


def ensure_jars(
    java: Java | None = None, progress: Progress = _silent, ivy_settings: str = ""
) -> Path:
    """The directory with every jar of the lock, verified. Raises ``ServiceError``.

    ``ivy_settings`` names an Ivy settings file of the user's own (mirrors, offline directories).
    """
    directory = jars_directory()
    if not directory.is_dir():
        with file_lock(directory.with_suffix(".lock")):
            if not directory.is_dir():
                _retrieve(java or find_java(), directory, progress, ivy_settings)
    _verify_once(directory)
    return directory


@lru_cache(maxsize=8)
def _verify_once(directory: Path) -> None:
    verify(directory, read_lock())


def verify(directory: Path, lock: Mapping[str, str]) -> None:
    """Every jar of the lock is there with its SHA-256, or ``ServiceError`` names the first."""
    for name, expected in lock.items():
        file = directory / name
        if not file.is_file():
            raise ServiceError(
                f"{file} is missing; remove the directory {directory} and run the command again"
            )
        found = sha256(file)
        if found != expected:
            raise ServiceError(
                f"{file} has sha256 {found} instead of {expected}: the file is not the one that "
                f"jars.lock pins and will not be used; remove the directory {directory} and run "
                "the command again"
            )


def sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _retrieve(java: Java, directory: Path, progress: Progress, ivy_settings: str) -> None:
    lock = read_lock()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jars-") as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(_resource("ivy.xml"))
        _run_ivy(java, work, len(lock), progress, ivy_settings)
        progress("verifying")
        verify(work / "jars", lock)
        (work / "jars").chmod(0o755)
        shutil.rmtree(work / "cache", ignore_errors=True)
        (work / "jars").rename(directory)


def _run_ivy(java: Java, work: Path, total: int, progress: Progress, ivy_settings: str) -> None:
    command = [
        str(java.executable),
        "-jar",
        str(_ivy_jar()),
        *_ivy_settings(ivy_settings),
        *("-ivy", str(work / "ivy.xml")),
        *("-cache", str(work / "cache")),
        *("-retrieve", str(work / "jars" / _PATTERN)),
    ]
    progress(f"resolving {total} jars")
    tail: deque[str] = deque(maxlen=400)
    done = 0
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=work,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line.rstrip())
            if match := re.match(r"downloading \S*/(\S+\.jar)", line):
                progress(f"{done + 1}/{total} {match.group(1)}")
            elif "[SUCCESSFUL ]" in line:
                done += 1
    if process.returncode != 0:
        raise ServiceError(_ivy_failure(list(tail)))


def _ivy_failure(lines: list[str]) -> str:
    interesting = [
        line.strip()
        for line in lines
        if re.search(r"not found|PKIX|UNRESOLVED|[Ee]xception|refused|timed out|Host ", line)
    ]
    cause = "; ".join(dict.fromkeys(interesting[:3])) or (lines[-1] if lines else "no output")
    hint = (
        "is the network there? A mirror or a directory of jars goes into an Ivy settings file "
        f"named by spark.ivy_settings ({IVY_SETTINGS_VARIABLE})"
    )
    if "PKIX" in cause:
        hint = "Java does not trust the proxy's certificate: set SSL_CERT_FILE to its PEM bundle"
    return f"The Java libraries could not be retrieved: {cause}; {hint}"


def _ivy_settings(given: str) -> list[str]:
    chosen = given or os.environ.get(IVY_SETTINGS_VARIABLE)
    return ["-settings", chosen] if chosen else []


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceError("pyspark is not installed in this environment; run: make install")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ServiceError(f"PySpark at {spec.origin} has no Ivy jar; reinstall pyspark==4.1.3")
    return found[-1]


def _resource(name: str) -> str:
    return (resources.files("penstock_services") / name).read_text()
