"""Rows of a table that match a filter, without Spark.

Files are read a few at a time, and no more once there are enough rows, so that a filter that
matches much holds little in memory. Only files whose statistics do not exclude a match are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import Table
from pyparsing import ParseException

from penstock_platform.lake.errors import FilterError, LakeError

FILES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FoundRows:
    """``rows``: an Arrow table of the columns that were asked for. ``more``: further rows match.
    ``snapshot_id``: the state of the table that was read; None for one without a commit."""

    rows: pa.Table
    more: bool
    snapshot_id: int | None


def search(
    table: Table, name: str, where: BooleanExpression | str, columns: Sequence[str], limit: int
) -> FoundRows:
    """See ``Lake.find_rows``."""
    scan = table.scan(row_filter=_bound(table, name, where), selected_fields=tuple(columns))
    parts: list[pa.RecordBatch] = []
    count = 0
    try:
        planned = iter(scan.plan_files())
        while count <= limit and (tasks := list(islice(planned, FILES_AT_ONCE))):
            reader = ArrowScan(
                table.metadata, table.io, scan.projection(), scan.row_filter, limit=limit + 1
            )
            for part in reader.to_record_batches(tasks):
                parts.append(part)
                count += part.num_rows
    except (OSError, pa.ArrowException) as error:
        said = str(error).strip().split("\n", 1)[0]
        raise LakeError(f"a file of {name} cannot be read: {said}") from error
    empty = schema_to_pyarrow(scan.projection(), include_field_ids=False).empty_table()
    tables = [empty, *(pa.Table.from_batches([part]) for part in parts)]
    rows = pa.concat_tables(tables, promote_options="permissive").select(list(columns))
    return FoundRows(rows.slice(0, limit), count > limit, table.metadata.current_snapshot_id)


def _bound(table: Table, name: str, where: BooleanExpression | str) -> BooleanExpression:
    """The filter, after a look whether it fits the table's columns."""
    try:
        parsed = parse(where) if isinstance(where, str) else where
    except ParseException as error:
        raise FilterError(
            f"the filter {where!r} is not understood; write columns, comparisons and texts in "
            "single quotes, as in: total > 100 and customer = 'c-7'"
        ) from error
    try:
        bind(table.schema(), parsed, case_sensitive=True)
    except (ValueError, TypeError) as error:
        known = ", ".join(field.name for field in table.schema().fields)
        raise FilterError(
            f"the filter {str(where)!r} does not fit {name}: {error}; its columns are {known}"
        ) from error
    return parsed
