"""The create-only archive on a real S3, and on one that answers badly."""

from __future__ import annotations

import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock_platform.archive.store import ArchiveError, S3Archive, probe
from penstock_platform.settings import S3Settings, Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.topics.model.declaration import load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import WindowStore

WRITERS = 16


@pytest.fixture(scope="session")
def archive(embedded_s3: Settings) -> S3Archive:
    found = S3Archive(embedded_s3)
    found.ensure_bucket()
    found.ensure_bucket()
    return found


def fresh() -> str:
    return f"tests/{uuid.uuid4().hex}"


@pytest.mark.services
def test_a_key_is_created_once(archive):
    key = fresh()
    assert archive.get(key) is None
    assert archive.create(key, b"first")
    assert not archive.create(key, b"second")
    assert archive.get(key) == b"first"
    assert archive.object_uri(key).endswith(f"/archive/{key}")


@pytest.mark.services
def test_keys_are_listed_in_order_below_a_prefix(archive):
    prefix = fresh()
    for number in (3, 1, 2):
        archive.create(f"{prefix}/{number:03d}.json", b"{}")
    assert archive.list(f"{prefix}/") == [f"{prefix}/{n:03d}.json" for n in (1, 2, 3)]
    assert archive.list(f"{prefix}/x") == []


@pytest.mark.services
def test_the_store_is_proven_to_refuse_a_second_create(archive):
    archive.probe()


@pytest.mark.services
def test_of_sixteen_racing_writers_one_wins(archive):
    for _ in range(10):
        key, start = fresh(), threading.Barrier(WRITERS)

        def write(number, key=key, start=start):
            start.wait(timeout=120)
            return archive.create(key, str(number).encode())

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(write, range(WRITERS)))
        assert won.count(True) == 1
        assert archive.get(key) == str(won.index(True)).encode()


class KilledError(BaseException):
    """The freezer's process ends here."""


class Mortal:
    """An archive whose user may be killed before or after any call."""

    def __init__(self, archive, rng):
        self._archive, self._rng = archive, rng

    def create(self, key, data):
        self._perhaps_die()
        done = self._archive.create(key, data)
        self._perhaps_die()
        return done

    def get(self, key):
        self._perhaps_die()
        return self._archive.get(key)

    def list(self, prefix):
        return self._archive.list(prefix)

    def first_after(self, prefix, after):
        self._perhaps_die()
        return self._archive.first_after(prefix, after)

    def _perhaps_die(self):
        if self._rng.random() < 0.02:
            raise KilledError


@pytest.mark.services
def test_freezers_race_and_die_on_a_real_store_and_keep_one_chain(archive):
    seed = random.randrange(2**32)
    spec = load_topic("metadata: {name: t}\nland: {window: minutely, max_records: 50}")
    cluster, clock, prefix = MemoryCluster(), ManualClock(), fresh()
    cluster.add_topic("t", 3)

    def freezer(number):
        rng = random.Random(seed + number)
        for _ in range(12):
            for _ in range(rng.randrange(40)):
                cluster.append("t", number % 3)
            clock.advance(rng.choice([1, 31, 61]))
            try:
                store = WindowStore(Mortal(archive, rng), prefix)
                freeze_due(cluster, store, spec, clock, start=EPOCH)
            except KilledError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(freezer, range(4)))
    store = WindowStore(archive, prefix)
    clock.advance(60)
    freeze_due(cluster, store, spec, clock, start=EPOCH)
    chain = list(store.all(cluster.ref("t")))
    reached = {p.p: p.end for p in chain[-1].partitions}
    assert reached == {p: o.last_stable for p, o in cluster.offsets("t").items()}, f"seed {seed}"
    assert len({window.name for window in chain}) == len(chain), f"seed {seed}"
    assert len(archive.list(f"{prefix}/clusters/{cluster.id}/topics/")) == len(chain)


# --- a store that answers badly -------------------------------------------------------------------


class Answers(BaseHTTPRequestHandler):
    """Answers a PUT with the next status of ``server.script``; 200 and 412 do what they say."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.script.pop(0) if self.server.script else 200
        self.server.asked.append((self.headers.get("If-None-Match"), status))
        if status == 500 and self.path not in self.server.objects:
            self.server.objects[self.path] = body  # done, and the answer says otherwise
        elif status == 200:
            self.server.objects.setdefault(self.path, body)
        self._reply(status)

    def do_GET(self):
        found = self.server.objects.get(self.path)
        self._reply(200 if found is not None else 404, found)

    def _reply(self, status, body=None):
        codes = {404: "NoSuchKey", 409: "ConditionalRequestConflict", 412: "PreconditionFailed"}
        if body is None and status != 200:
            body = f"<Error><Code>{codes.get(status, 'InternalError')}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def bad_store():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.script, server.asked, server.objects = [], [], {}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    yield server, S3Archive(Settings(home=Path("home"), s3=S3Settings(endpoint=endpoint)))
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_create_whose_answer_was_lost_is_known_as_ours(bad_store):
    server, archive = bad_store
    server.script = [500, 412]
    assert archive.create("k", b"mine")
    server.script = [412]
    assert not archive.create("k", b"mine"), "without a repeat, the object is another writer's"
    server.script = [500, 412]
    assert not archive.create("k", b"another's")
    assert {condition for condition, _ in server.asked} == {"*"}


def test_a_conflict_under_way_is_asked_again(bad_store):
    server, archive = bad_store
    server.script = [409, 409, 200]
    assert archive.create("k", b"x")
    server.script = [409] * 50
    with pytest.raises(ArchiveError, match="still in conflict"):
        archive.create("other", b"x")


def test_refusals_name_endpoint_and_key(bad_store):
    server, archive = bad_store
    server.script = [403]
    with pytest.raises(ArchiveError, match=r"cannot create s3://penstock/archive/k at http://127"):
        archive.create("k", b"x")
    assert archive.get("nothing") is None


def test_an_absent_store_is_named():
    settings = Settings(home=Path("home"), s3=S3Settings(endpoint="http://127.0.0.1:1"))
    with pytest.raises(ArchiveError, match="cannot get"):
        S3Archive(settings).get("k")


def test_a_store_that_replaces_is_found_out(bad_store):
    class Replacing(MemoryArchive):
        def create(self, key, data):
            self.objects[key] = data
            return True

    with pytest.raises(ArchiveError, match=r"does not honour If-None-Match"):
        probe(Replacing(), "here")
    probe(MemoryArchive(), "memory")
