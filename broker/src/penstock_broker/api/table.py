"""The registry as text: for the command line, and as docs/PROTOCOL.md."""

from __future__ import annotations

import penstock_broker.api  # noqa: F401 (registers the APIs)
from penstock_broker.api.registry import Api, api_table

TITLE = "# The protocol that the broker speaks"

PREFACE = """\
Written by `penstock-broker api-table --markdown` from the registry of APIs; a test compares the
two. Clients learn the same table from ApiVersions. Anything else, or another version, closes the
connection, as Apache Kafka does; only ApiVersions has an answer for versions that are not known.
"""

LEFT_OUT = (
    (
        "Produce 0-2, Fetch 0-3, ListOffsets 0, OffsetCommit 0-1, OffsetFetch 0",
        "message formats 0 and 1, and offsets in ZooKeeper; Apache Kafka 4 has none of them",
    ),
    (
        "Produce 10+, Fetch 13+, ListOffsets 8+, OffsetCommit 9+, OffsetFetch 9+, "
        "FindCoordinator 5+",
        "topic ids in the data path: to be taken all together, since clients send zero ids to "
        "brokers that know them only in part",
    ),
    (
        "transactions (24-28), producer state (61, 65, 66)",
        "there is no transaction coordinator yet",
    ),
    ("delegation tokens (38-41)", "SCRAM credentials can be made and removed at any time"),
    (
        "reassignment and election (43, 45, 46), log directories (34, 35)",
        "one broker is the only replica",
    ),
    (
        "ConsumerGroupHeartbeat and kin (68, 69), share groups (76-79, 83-87), "
        "streams groups (88, 89)",
        "off by default in every client",
    ),
    ("telemetry (71, 72)", "clients switch it off quietly when it is not offered"),
    ("inter-broker and KRaft APIs (4-7, 52-59, 62-64, 67, 70, 73, 80-82)", "not for clients"),
)


def _range(versions: range) -> str:
    last = versions.stop - 1
    return str(last) if versions.start == last else f"{versions.start}-{last}"


def _served(row: Api) -> str:
    served, advertised = _range(row.versions), _range(row.advertised)
    return served if served == advertised else f"{served} (advertised {advertised})"


def as_text() -> str:
    """One line per API."""
    return "".join(f"{row.key:3d}  {row.name:<24} {_served(row)}\n" for row in api_table().values())


def as_markdown() -> str:
    """docs/PROTOCOL.md."""
    lines = [TITLE, "", PREFACE, "| Key | API | Versions |", "|---|---|---|"]
    lines += [f"| {row.key} | {row.name} | {_served(row)} |" for row in api_table().values()]
    lines.append("")
    for row in api_table().values():
        first, _, rest = row.card.partition("\n")
        lines += [f"## {row.name}", "", first, rest.rstrip(), ""]
    lines += ["## Left out, and why", "", "| API | Why |", "|---|---|"]
    lines += [f"| {what} | {why} |" for what, why in LEFT_OUT]
    return "\n".join(lines) + "\n"
