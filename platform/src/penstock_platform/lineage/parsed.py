"""Into which tables a topic's records were parsed, by the lake and the receipts: no
declaration is asked for, so the answer is there while Dagster is away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock_platform.lake.tables import Lake
from penstock_platform.reconciliation.silver_versions import parsed_into
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import table_part
from penstock_platform.windows.model.window import Window


def silver_versions(lake: Lake, topic: str) -> list[int]:
    """The versions of the topic's silver table that are there, newest first."""
    pattern = re.compile(rf"{re.escape(table_part(topic))}(?:_v(?P<version>[1-9][0-9]*))?")
    found = [m for name in lake.names("silver") if (m := pattern.fullmatch(name))]
    return sorted({int(m["version"] or 1) for m in found}, reverse=True)


def parsed_version(store: BookStore, window: Window, versions: Sequence[int]) -> int:
    """The newest of the versions that the window was parsed into; the newest for none."""
    return next((v for v in versions if parsed_into(store, window, v)), versions[0])
