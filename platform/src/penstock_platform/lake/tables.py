"""The lake's tables without a JVM: pyiceberg on the catalog that Spark writes.

What the books, lineage and retention ask of a table. Nothing is cached: every call reads the
table's current metadata, because a proof must see what is there now.

A window's *newest content commit* is the newest snapshot that changed the window's rows. Snapshots
that only rearranged files (compaction: operation ``replace``) do not count. It is found from the
snapshots' summaries, which name the windows they touched (table property
``write.summary.partition-limit``), and where a writer left that out, from the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.expressions import BooleanExpression, EqualTo
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from sqlalchemy.exc import OperationalError

from penstock_platform.archive.store import s3_client
from penstock_platform.lake.content import FileStore, LargeWindows, WindowContent, WindowFiles
from penstock_platform.lake.errors import LakeError, MissingTableError
from penstock_platform.lake.search import FoundRows, search
from penstock_platform.lake.spark_session import CATALOG, sqlite_path
from penstock_platform.ranges import OffsetRange
from penstock_platform.settings import Settings

ATTEMPT_PROPERTY = "penstock.attempt"
WINDOW_PROPERTY = "penstock.window-id"
BUSY_TIMEOUT_SECONDS = 15
TAG_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """One commit of a table. ``summary``: counts and properties as Iceberg writes them."""

    snapshot_id: int
    parent_id: int | None
    committed_ms: int
    operation: str
    summary: dict[str, str]

    @property
    def attempt_id(self) -> str:
        return self.summary.get(ATTEMPT_PROPERTY, "")

    @property
    def added_bytes(self) -> int:
        return int(self.summary.get("added-files-size", 0))


class Lake:
    """Tables are named as in Spark, ``lake.<namespace>.<table>``."""

    def __init__(self, settings: Settings, large: Callable[[], LargeWindows] | None = None) -> None:
        """``large`` opens what reads windows of more than ``ROWS_HERE_MAX`` rows; without it they
        are read here, file by file."""
        self._settings = settings
        self._large = large
        self._opened: SqlCatalog | None = None

    # --- rows ---------------------------------------------------------------------------------

    def content(self, table: str, window_id: str) -> WindowContent:
        """A window's rows in the table's current snapshot, with their digests, and what cannot be
        read of them. Empty for a table that is not there.

        Raises StoreError when the object store does not answer, LakeError; for a large window also
        what its reader raises.
        """
        files = self.files(table, [window_id])
        return files.read(window_id) if files is not None else WindowContent.none()

    def content_at(self, table: str, window_id: str, snapshot_id: int) -> WindowContent | None:
        """The same as of a snapshot; None where that is not kept."""
        found = self._table(table)
        if found.metadata.snapshot_by_id(snapshot_id) is None:
            return None
        try:
            files = WindowFiles(found, self._store, [window_id], snapshot_id, self._large)
            return files.read(window_id)
        except FileNotFoundError:  # its manifests were deleted
            return None

    def files(self, table: str, window_ids: Sequence[str]) -> WindowFiles | None:
        """The files of these windows in the table's current snapshot; None without the table."""
        try:
            return WindowFiles(self._table(table), self._store, window_ids, None, self._large)
        except MissingTableError:
            return None

    def altered(
        self, table: str, window_id: str, before: int, now: int
    ) -> tuple[OffsetRange, ...] | None:
        """The offsets of a large window that have another row in snapshot ``now`` than in
        ``before``; None where they cannot be compared."""
        return self._large().altered(table, window_id, before, now) if self._large else None

    def first_rows(self, table: str, limit: int) -> pa.Table:
        """Up to ``limit`` rows of any table, in any order. Raises LakeError, MissingTableError."""
        return self._table(table).scan(limit=limit).to_arrow()

    def find_rows(
        self, table: str, where: BooleanExpression | str, columns: Sequence[str], limit: int
    ) -> FoundRows:
        """Up to ``limit`` rows that match, in any order, and whether there are more. Raises
        FilterError, LakeError, MissingTableError."""
        return search(self._table(table), table, where, columns, limit)

    def scan_table(
        self,
        table: str,
        window_id: str,
        columns: tuple[str, ...] = ("*",),
        limit: int | None = None,
    ) -> pa.Table:
        """A window's rows as an Arrow table, in any order; held in memory as a whole."""
        return (
            self._table(table)
            .scan(row_filter=_of(window_id), selected_fields=columns, limit=limit)
            .to_arrow()
        )

    def digest_at(self, table: str, window_id: str, snapshot_id: int) -> str | None:
        """The digest of a window's rows as of a snapshot; None where that or a file is gone.

        Raises StoreError, LakeError.
        """
        content = self.content_at(table, window_id, snapshot_id)
        return content.digest if content is not None and not content.unreadable else None

    def values(self, table: str, window_id: str) -> Iterator[tuple[int, int, bytes | None]]:
        """(partition, offset, value) of a window's bronze rows, in any order, batch by batch."""
        try:
            found = self._table(table)
        except MissingTableError:
            return
        columns = ("partition", "offset", "value")
        scan = found.scan(row_filter=_of(window_id), selected_fields=columns)
        for batch in scan.to_arrow_batch_reader():
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    def row_count(self, table: str, window_id: str | None = None) -> int:
        """Rows of a window, or of the whole table; 0 for a table that is not there."""
        try:
            found = self._table(table)
        except MissingTableError:
            return 0
        scan = found.scan(row_filter=_of(window_id)) if window_id else found.scan()
        return int(scan.count())

    def window_ids(self, table: str) -> list[str]:
        """The windows that have rows in the table, sorted."""
        try:
            found = self._table(table)
        except MissingTableError:
            return []
        partitions = found.inspect.partitions().column("partition").to_pylist()
        return sorted(str(p["window_id"]) for p in partitions)

    # --- tables -------------------------------------------------------------------------------

    def exists(self, table: str) -> bool:
        try:
            self._table(table)
        except MissingTableError:
            return False
        return True

    def names(self, namespace: str) -> list[str]:
        """The tables of a namespace, without it; none where the namespace is not there."""
        try:
            return sorted(identifier[-1] for identifier in self._catalog.list_tables(namespace))
        except NoSuchNamespaceError:
            return []
        except OperationalError as error:
            if "no such table" in str(error):  # nothing was landed yet
                return []
            raise LakeError(
                f"the catalog at {sqlite_path(self._settings)} cannot be read: {error}"
            ) from error

    def location(self, table: str) -> str:
        """Where the table's files are, as a URI."""
        return str(self._table(table).location())

    def columns(self, table: str) -> list[tuple[str, str]]:
        """(name, Iceberg type) in the table's order."""
        return [(f.name, str(f.field_type)) for f in self._table(table).schema().fields]

    def schema(self, table: str) -> Schema | None:
        """The table's present schema; None without the table. Raises LakeError, StoreError."""
        try:
            return self._table(table).schema()
        except MissingTableError:
            return None

    # --- snapshots ----------------------------------------------------------------------------

    def current_snapshot(self, table: str) -> LakeSnapshot | None:
        """The table's present state; None before the first commit and without the table."""
        try:
            snapshot = self._table(table).current_snapshot()
        except MissingTableError:
            return None
        return _described(snapshot) if snapshot is not None else None

    def snapshot_of_attempt(self, table: str, attempt_id: str) -> LakeSnapshot | None:
        """The commit that carries this attempt id; None when the attempt did not commit."""
        for snapshot in self._history(table):
            found = _described(snapshot)
            if found.attempt_id == attempt_id:
                return found
        return None

    def snapshots_with(self, table: str, window_id: str) -> list[LakeSnapshot]:
        """The retained commits that changed the window's rows, newest first."""
        try:
            found = self._table(table)
        except MissingTableError:
            return []
        return [_described(s) for s in self._history(table, found) if _changed(found, s, window_id)]

    def properties(self, table: str) -> dict[str, str]:
        """The table's properties."""
        return dict(self._table(table).properties)

    def manifest_bytes(self, table: str) -> list[int]:
        """How large the manifests of the current snapshot are."""
        found = self._table(table)
        snapshot = found.current_snapshot()
        return [m.manifest_length for m in snapshot.manifests(found.io)] if snapshot else []

    def commits(self, table: str) -> list[LakeSnapshot]:
        """All snapshots that are kept, oldest first; none without the table."""
        try:
            snapshots = self._table(table).metadata.snapshots
        except MissingTableError:
            return []
        return [_described(s) for s in sorted(snapshots, key=_sequence)]

    def tags(self, table: str) -> dict[str, int]:
        """The snapshots that have a tag of Iceberg's, by its name."""
        refs = self._table(table).metadata.refs
        tags = {n: r for n, r in refs.items() if r.snapshot_ref_type is SnapshotRefType.TAG}
        return {name: ref.snapshot_id for name, ref in tags.items()}

    def tag(self, table: str, tags: Mapping[str, int], age_max: timedelta) -> None:
        """Give snapshots a tag; Iceberg keeps each until it is ``age_max`` old.

        Raises LakeError where other commits came first ``TAG_TRIES_MAX`` times, or a snapshot is
        gone.
        """
        age_ms = round(age_max.total_seconds() * 1000)
        for tries in range(1, TAG_TRIES_MAX + 1):
            try:
                change = self._table(table).manage_snapshots()
                for name, snapshot_id in tags.items():
                    change = change.create_tag(snapshot_id, name, age_ms)
                change.commit()
            except CommitFailedException as error:
                if tries == TAG_TRIES_MAX:
                    raise LakeError(f"{table}: its snapshots got no tags: {error}") from error
            else:
                return

    # --- inside -------------------------------------------------------------------------------

    def _history(self, table: str, found: Table | None = None) -> Iterator[Snapshot]:
        """Newest first: along the line of the current snapshot, and then tagged ones from which
        the line does not come any more because snapshots between have expired."""
        try:
            metadata = (found or self._table(table)).metadata
        except MissingTableError:
            return
        current = metadata.current_snapshot_id
        start = metadata.snapshot_by_id(current) if current is not None else None
        if start is None:
            return
        line = list(ancestors_of(start, metadata))
        yield from line
        tagged = {
            ref.snapshot_id
            for ref in metadata.refs.values()
            if ref.snapshot_ref_type is SnapshotRefType.TAG
        } - {snapshot.snapshot_id for snapshot in line}
        apart = [s for s in metadata.snapshots if s.snapshot_id in tagged]
        yield from sorted(apart, key=_sequence, reverse=True)

    def _table(self, name: str) -> Table:
        catalog, _, identifier = name.partition(".")
        if catalog != CATALOG or not identifier:
            raise LakeError(f"{name} is not a table of the catalog {CATALOG}")
        try:
            return self._catalog.load_table(identifier)
        except NoSuchTableError as error:
            raise MissingTableError(f"{name} does not exist yet: nothing was landed") from error
        except OperationalError as error:
            if "no such table" in str(error):  # the catalog itself is younger than its first table
                raise MissingTableError(f"{name} does not exist yet: nothing was landed") from error
            raise LakeError(
                f"the catalog at {sqlite_path(self._settings)} cannot be read: {error}"
            ) from error

    @cached_property
    def _store(self) -> FileStore:
        return FileStore(s3_client(self._settings))

    @property
    def _catalog(self) -> SqlCatalog:
        if self._opened is None:
            self._opened = SqlCatalog(CATALOG, **pyiceberg_properties(self._settings))
        return self._opened


def pyiceberg_properties(settings: Settings) -> dict[str, str]:
    """The catalog's properties for pyiceberg: the same SQLite file and S3 that Spark uses.

    Creates the file's directory. The catalog's own tables are left to Spark to create.
    """
    file = sqlite_path(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    properties = {
        "uri": f"sqlite:///{file}?timeout={BUSY_TIMEOUT_SECONDS}",
        "init_catalog_tables": "false",
        "warehouse": settings.warehouse,
        "s3.endpoint": settings.s3_endpoint,
        "s3.region": settings.s3.region,
    }
    if settings.s3.access_key:
        properties["s3.access-key-id"] = settings.s3.access_key
        properties["s3.secret-access-key"] = settings.s3.secret_key
    return properties


def _of(window_id: str) -> BooleanExpression:
    # pyiceberg types its expressions as pydantic models; this is their documented constructor.
    return EqualTo("window_id", window_id)  # type: ignore[call-arg,arg-type]


def _sequence(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def _described(snapshot: Snapshot) -> LakeSnapshot:
    summary = snapshot.summary
    properties: dict[str, str] = dict(summary.additional_properties) if summary else {}
    return LakeSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        committed_ms=snapshot.timestamp_ms,
        operation=summary.operation.value if summary else "",
        summary=properties,
    )


def _changed(table: Table, snapshot: Snapshot, window_id: str) -> bool:
    summary = snapshot.summary
    if summary is None:
        return _touched_files(table, snapshot, window_id)
    if summary.operation is Operation.REPLACE:
        return False
    properties: Mapping[str, Any] = summary.additional_properties
    if properties.get(WINDOW_PROPERTY) == window_id:
        return True  # also of an empty window, which touches no file
    if properties.get("changed-partition-count") == "0":
        return False
    if properties.get("partition-summaries-included") == "true":
        return f"partitions.window_id={quote_plus(window_id)}" in properties
    return _touched_files(table, snapshot, window_id)


def _touched_files(table: Table, snapshot: Snapshot, window_id: str) -> bool:
    """Whether the commit added or removed a file of the window, from its manifests."""
    changes = (ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED)
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            mine = entry.status in changes and entry.snapshot_id == snapshot.snapshot_id
            if mine and entry.data_file.partition[0] == window_id:
                return True
    return False
