"""Which version of silver and quarantine a window was parsed into.

A topic whose contract changed beyond what its table allows declares a new version. Windows that
were parsed before stay in the tables of their version, and are proven there, until
``penstock table remake`` has parsed them into the new ones.
"""

from __future__ import annotations

from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import TopicSpec, quarantine_table, silver_table
from penstock_platform.windows.model.window import Window


def parsed_tables(store: BookStore, window: Window, spec: TopicSpec) -> tuple[str, str]:
    """Silver and quarantine of the newest version that the window has a receipt in.

    Those of the declared version where it has none.
    """
    declared = spec.silver_version
    for version in range(declared, 1, -1):
        if parsed_into(store, window, version):
            return silver_table(spec.name, version), quarantine_table(spec.name, version)
    # The first version needs no look: it is where everything else is, if anywhere.
    known = 1 if declared == 1 or parsed_into(store, window, 1) else declared
    return silver_table(spec.name, known), quarantine_table(spec.name, known)


def parsed_into(store: BookStore, window: Window, version: int) -> bool:
    """Whether the window has receipts in both tables of this version."""
    tables = silver_table(window.topic, version), quarantine_table(window.topic, version)
    return all(store.receipts(window.ref, table, window.sequence) for table in tables)
