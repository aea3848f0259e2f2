"""The jars: pinned twice alike, verified, retrieved once by whichever process comes first."""

from __future__ import annotations

import hashlib
import multiprocessing
import re
import shutil
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock_services import jars
from penstock_services.errors import ServiceError
from penstock_services.java import Java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    jars._verify_once.cache_clear()
    return tmp_path / "cache"


def fake_ivy(directory: Path, files: dict[str, bytes], code: int = 0, says: str = "") -> Java:
    """A `java` that does what Ivy does: fills the directory of `-retrieve`."""
    source = directory / "source"
    source.mkdir(parents=True)
    for name, data in files.items():
        (source / name).write_bytes(data)
    program = directory / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
echo run >> {directory}/runs
while [ $# -gt 0 ]; do [ "$1" = -retrieve ] && target=$(dirname "$2"); shift; done
mkdir -p "$target" && cp {source}/* "$target"
for f in {source}/*; do echo "downloading somewhere/$(basename $f) ..."; echo "[SUCCESSFUL ]"; done
echo "{says}"
exit {code}
"""
    )
    program.chmod(0o755)
    return Java(directory / "home", 17, "test")


def lock_of(files: dict[str, bytes]) -> str:
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())


FILES = {"one-1.0.jar": b"1" * 1000, "s3proxy-2.0.jar": b"2" * 1000}


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"jars.lock": lock_of(FILES), "ivy.xml": "<ivy-module/>"}
    monkeypatch.setattr(jars, "_resource", texts.__getitem__)


def test_lock_and_ivy_pin_the_same_jars() -> None:
    root = ElementTree.fromstring((resources.files("penstock_services") / "ivy.xml").read_text())
    pinned = set()
    for dependency in root.iter("dependency"):
        assert dependency.get("transitive") == "false"
        classifier = dependency.find("artifact")
        suffix = "-jar-with-dependencies" if classifier is not None else ""
        pinned.add(f"{dependency.get('name')}-{dependency.get('rev')}{suffix}.jar")
    lock = jars.read_lock()
    assert set(lock) == pinned
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in lock.values())


def test_retrieved_once_then_only_verified(cache: Path, pinned: None, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path / "ivy", FILES)
    seen: list[str] = []
    paths = jars.jar_paths(java, seen.append)
    assert [path.name for path in paths] == ["one-1.0.jar"]
    assert paths[0].read_bytes() == FILES["one-1.0.jar"]
    assert jars.s3proxy_jar(java).name == "s3proxy-2.0.jar"
    jars.jar_paths(java)
    assert (tmp_path / "ivy" / "runs").read_text().count("run") == 1
    assert any("1/2 one-1.0.jar" in text for text in seen)
    assert [p.name for p in cache.iterdir() if p.name.startswith(".jars-")] == []


def test_a_tampered_download_is_refused_and_nothing_stays(
    cache: Path, pinned: None, tmp_path: Path
) -> None:
    java = fake_ivy(tmp_path / "ivy", {**FILES, "one-1.0.jar": b"evil"})
    with pytest.raises(ServiceError, match=r"one-1\.0\.jar has sha256 .* instead of"):
        jars.jar_paths(java)
    assert not jars.jars_directory().exists()


def test_a_jar_tampered_with_later_is_refused(cache: Path, pinned: None, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path / "ivy", FILES)
    path = jars.jar_paths(java)[0]
    path.write_bytes(b"0" + FILES["one-1.0.jar"][1:])
    jars._verify_once.cache_clear()
    with pytest.raises(ServiceError, match="remove the directory"):
        jars.jar_paths(java)


def test_a_missing_jar_is_named(cache: Path, pinned: None, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path / "ivy", FILES)
    jars.jar_paths(java)[0].unlink()
    jars._verify_once.cache_clear()
    with pytest.raises(ServiceError, match=r"one-1\.0\.jar is missing"):
        jars.jar_paths(java)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("PKIX path building failed", "SSL_CERT_FILE"),
        ("Host somewhere not found.", "spark.ivy_settings"),
        ("module not found: org#thing;1.0", "module not found: org#thing;1.0"),
    ],
)
def test_failure_of_ivy_is_a_sentence(
    cache: Path, pinned: None, tmp_path: Path, says: str, words: str
) -> None:
    java = fake_ivy(tmp_path / "ivy", FILES, code=1, says=says)
    with pytest.raises(ServiceError) as error:
        jars.jar_paths(java)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def _retrieve_in_a_process(java: Java, results: multiprocessing.Queue) -> None:
    results.put([str(path) for path in jars.jar_paths(java)])


def test_processes_that_come_at_once_retrieve_once(
    cache: Path, pinned: None, tmp_path: Path
) -> None:
    java = fake_ivy(tmp_path / "ivy", FILES)
    context = multiprocessing.get_context("fork")  # keeps the patched pins
    results: multiprocessing.Queue = context.Queue()
    processes = [
        context.Process(target=_retrieve_in_a_process, args=(java, results)) for _ in range(6)
    ]
    for process in processes:
        process.start()
    answers = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(30)
    assert len({tuple(answer) for answer in answers}) == 1
    assert (tmp_path / "ivy" / "runs").read_text().count("run") == 1


def test_a_dead_attempt_is_in_nobodys_way(cache: Path, pinned: None, tmp_path: Path) -> None:
    """kill -9 in the middle leaves a scratch directory and a lock file: the next one succeeds."""
    left = cache / ".jars-dead"
    (left / "jars").mkdir(parents=True)
    (left / "jars" / "one-1.0.jar").write_bytes(b"half")
    jars.jars_directory().with_suffix(".lock").touch()
    assert jars.jar_paths(fake_ivy(tmp_path / "ivy", FILES))
    shutil.rmtree(left)
