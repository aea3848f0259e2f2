"""What a person reads in Dagster's pages: tables of exact offsets, counts, sentences.

Numbers stay numbers, so that Dagster plots them; names are stable. Tables are bounded: beyond
``TABLE_ROWS_MAX`` rows the last one says how many were left out, and the archive has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    pass

TABLE_ROWS_MAX = 200


def table(
    rows: Iterable[Mapping[str, Any]], schema: dg.TableSchema, limit: int = TABLE_ROWS_MAX
) -> dg.TableMetadataValue:
    """A metadata table with every column of the schema in every row, bounded."""
    names = [column.name for column in schema.columns]
    given = list(rows)
    records = [dg.TableRecord({name: row.get(name) for name in names}) for row in given[:limit]]
    if len(given) > limit:
        left_out = f"… and {len(given) - limit} more rows; the archive holds all"
        texts = [c.name for c in schema.columns if c.type == "string"]
        last = texts[-1] if texts else names[0]
        records.append(dg.TableRecord(dict.fromkeys(names) | {last: left_out}))
    return dg.MetadataValue.table(records, schema)


def column_schema(columns: Sequence[tuple[str, str]]) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns])
