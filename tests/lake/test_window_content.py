"""Reading a window's content on a real table, without Spark and S3: pyiceberg on local files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

from penstock_platform.lake.content import FileStore, StoreError, WindowFiles
from penstock_platform.lake.model.digests import digest_of, row_digests
from penstock_platform.lake.model.rows import altered_rows
from penstock_platform.ranges import OffsetRange

SCHEMA = pa.schema(
    [
        ("window_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
    ]
)


class LocalFiles:
    """What ``FileStore`` asks of an S3 client, on the disk."""

    def __init__(self) -> None:
        self.down = False
        self.lists = 0

    def get_paginator(self, name: str) -> Any:
        assert name == "list_objects_v2"
        return self

    def paginate(self, Bucket: str, Prefix: str) -> list[dict[str, Any]]:  # noqa: N803
        self._ask()
        self.lists += 1
        found = sorted(Path("/", Prefix).glob("*"))
        return [
            {"Contents": [{"Key": str(f)[1:], "Size": f.stat().st_size, "ETag": self._tag(f)}]}
            for f in found
        ]

    def head_object(self, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        self._ask()
        file = Path("/", Key)
        if not file.exists():
            raise ClientError({"Error": {"Code": "404"}}, "HeadObject")
        return {"ContentLength": file.stat().st_size, "ETag": self._tag(file)}

    def _ask(self) -> None:
        if self.down:
            raise EndpointConnectionError(endpoint_url="http://s3")

    def _tag(self, file: Path) -> str:
        return f'"{file.stat().st_mtime_ns}"'


class Table:
    def __init__(self, folder: Path) -> None:
        catalog = SqlCatalog(
            "lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        catalog.create_namespace("bronze")
        table = catalog.create_table("bronze.orders", schema=SCHEMA)
        with table.update_spec() as update:
            update.add_field("window_id", IdentityTransform(), "window_id")
        self.table = catalog.load_table("bronze.orders")
        self.s3 = LocalFiles()

    def put(self, window_id: str, *offsets: int, value: bytes = b"x") -> pa.Table:
        rows = pa.Table.from_pylist(
            [
                {"window_id": window_id, "partition": 0, "offset": o, "value": value + b"%d" % o}
                for o in offsets
            ],
            schema=SCHEMA,
        )
        self.table.append(rows)
        return rows

    def files(self, *window_ids: str, snapshot: int | None = None) -> WindowFiles:
        return WindowFiles(self.table, FileStore(self.s3), window_ids, snapshot)

    def path(self, window_id: str, number: int = 0) -> Path:
        tasks = self.files(window_id).by_window[window_id]
        return Path(urlsplit(sorted(t.file.file_path for t in tasks)[number]).path)


@pytest.fixture
def lake(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_windows_rows_are_read_with_their_digest(lake: Table) -> None:
    rows = lake.put("t/1", 5, 3, 4)
    lake.put("t/2", 6)
    content = lake.files("t/1", "t/2").read("t/1")
    assert content.coverage.there(0).pairs() == [(3, 6)]
    assert content.digest == digest_of([row_digests(rows)])
    assert content.count == 3
    assert not content.unreadable
    assert content.snapshot_id == lake.table.current_snapshot().snapshot_id
    nothing = lake.files("t/1", "t/9").read("t/9")
    assert (nothing.count, nothing.digest) == (0, "0" * 16)
    assert lake.files("t/9").fingerprint("t/9") == nothing.fingerprint != ""


def test_a_fingerprint_stays_until_a_file_of_the_window_changes(lake: Table) -> None:
    lake.put("t/1", 1)
    before = lake.files("t/1").fingerprint("t/1")
    lake.put("t/2", 2)
    assert lake.files("t/1", "t/2").fingerprint("t/1") == before
    lake.put("t/1", 3)
    more = lake.files("t/1").fingerprint("t/1")
    assert more not in ("", before)
    file = lake.path("t/1")
    data = file.read_bytes()
    file.write_bytes(data)
    assert lake.files("t/1").fingerprint("t/1") not in ("", more), "written again: another ETag"
    file.write_bytes(data + b"x")
    assert lake.files("t/1").fingerprint("t/1") == "", "not as large as the manifest says"
    file.unlink()
    assert lake.files("t/1").fingerprint("t/1") == ""


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_an_unreadable_file_is_named_and_the_others_are_read(lake: Table, damage: str) -> None:
    lake.put("t/1", 1, 2)
    lake.put("t/1", 7, 9)
    tasks = {t.file.record_count: t for t in lake.files("t/1").by_window["t/1"]}
    assert tasks
    odd = next(
        t
        for t in lake.files("t/1").by_window["t/1"]
        if lake.files("t/1")._may_hold(t.file)[0].start == 7
    )
    file = Path(urlsplit(odd.file.file_path).path)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9])
    content = lake.files("t/1").read("t/1")
    assert content.coverage.there(0).pairs() == [(1, 3)]
    ((reason, ranges),) = content.unreadable.items()
    assert reason.startswith(odd.file.file_path)
    assert ("is not there" in reason) == (damage == "gone")
    assert ranges == (OffsetRange(0, 7, 10),)


def test_a_store_that_does_not_answer_proves_nothing(lake: Table) -> None:
    lake.put("t/1", 1)
    lake.s3.down = True
    with pytest.raises(StoreError, match="cannot list"):
        lake.files("t/1").read("t/1")


def test_many_windows_are_asked_for_with_one_listing_a_directory(lake: Table) -> None:
    ids = [f"t/{n}" for n in range(5)]
    for n, window_id in enumerate(ids):
        lake.put(window_id, n)
    files = lake.files(*ids)
    assert len({files.fingerprint(w) for w in ids}) == 5
    assert lake.s3.lists == len({str(lake.path(w).parent) for w in ids})


def test_an_older_snapshot_shows_which_rows_were_altered(lake: Table) -> None:
    lake.put("t/1", 1, 2, 3)
    first = lake.table.current_snapshot().snapshot_id
    lake.table.delete("offset == 2")
    lake.put("t/1", 2, value=b"forged")
    now, then = lake.files("t/1").read("t/1"), lake.files("t/1", snapshot=first).read("t/1")
    assert altered_rows(now.rows, then.rows) == (OffsetRange(0, 2, 3),)
    assert now.digest != then.digest
