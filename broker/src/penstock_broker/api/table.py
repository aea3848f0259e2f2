"""The registry as text: for the command line, and as docs/PROTOCOL.md."""

from __future__ import annotations

import penstock_broker.api  # noqa: F401 (registers the APIs)
from penstock_broker.api.registry import Api, api_table

TITLE = "# The protocol that the broker speaks"

PREFACE = """\
Written by `penstock-broker api-table --markdown` from the registry of APIs; a test compares the
two. Clients learn the same table from ApiVersions. Anything else, or another version, closes the
connection, as Apache Kafka does; only ApiVersions has an answer for versions that are not known.
The versions go as far as those of Apache Kafka 3.9, for all APIs that clients use; a test compares
them. What is left out is at the end.
"""

LEFT_OUT: tuple[tuple[str, tuple[int, ...], str], ...] = (
    (
        "Produce 0-2, Fetch 0-3, ListOffsets 0, OffsetCommit 0-1, OffsetFetch 0, "
        "CreateTopics 0-1, DeleteTopics 0, OffsetForLeaderEpoch 0-1, ACLs 0, DescribeConfigs 0, "
        "DescribeLogDirs 0, AlterReplicaLogDirs 0",
        (),
        "message formats 0 and 1, offsets in ZooKeeper, and what only clients older than 2.1 ask; "
        "Apache Kafka 4 has none of them either (KIP-896)",
    ),
    (
        "Metadata 13, Produce 12-13, Fetch 18, ListOffsets 10-11, OffsetCommit and OffsetFetch 10, "
        "DescribeGroups 6, DescribeCluster 2, DescribeLogDirs 5, ListTransactions 2",
        (),
        "Apache Kafka 4 has them; its clients take those of 3.9, which are all here. Produce 13, "
        "OffsetCommit 10 and OffsetFetch 10 know topics by id only, and belong together",
    ),
    (
        "AddPartitionsToTxn 4-5, AddOffsetsToTxn 5, EndTxn 5, TxnOffsetCommit 5, InitProducerId 6",
        (),
        "AddPartitionsToTxn 4-5 are for brokers; the others are version 2 of transactions (KIP-890 "
        "part 2) and two-phase commit (KIP-939) of Apache Kafka 4, on which clients agree by a "
        "feature that is not announced here",
    ),
    (
        "delegation tokens (38-41)",
        (38, 39, 40, 41),
        "SCRAM credentials can be made and removed at any time",
    ),
    ("reassignment (45, 46)", (45, 46), "one broker is the only replica"),
    (
        "features and quorum (UpdateFeatures 57, DescribeQuorum 55)",
        (55, 57),
        "no feature depends on the release of other brokers, and there is no quorum to describe",
    ),
    (
        "consumer groups of KIP-848 (68, 69), share groups (76-79, 83-87, 90-92), "
        "streams groups (88, 89)",
        (68, 69, *range(76, 80), *range(83, 93)),
        "off by default in every client; the classic protocol is complete. FindCoordinator 6 and "
        "ListGroups 5 know of them, and answer that there are none",
    ),
    (
        "telemetry (71, 72) and its resources (74)",
        (71, 72, 74),
        "clients switch it off quietly when it is not offered",
    ),
    (
        "inter-broker and KRaft APIs (4-7, 27 WriteTxnMarkers, 52-54, 56, 58, 59, 62-64, 67, 70, "
        "73, 80-82)",
        (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 64, 67, 70, 73, 80, 81, 82),
        "not for clients; a transaction unknown to the coordinator is aborted by the next start",
    ),
)
"""What Apache Kafka has and this broker has not: in words, the API keys, and why."""


def _range(versions: range) -> str:
    last = versions.stop - 1
    return str(last) if versions.start == last else f"{versions.start}-{last}"


def _served(row: Api) -> str:
    served, advertised = _range(row.versions), _range(row.advertised)
    return served if served == advertised else f"{served} (advertised {advertised})"


def rows() -> list[dict[str, object]]:
    """For JSON: key, name, first and last version served, and those that are advertised."""
    return [
        {
            "key": row.key,
            "name": row.name,
            "served": [row.versions.start, row.versions.stop - 1],
            "advertised": [row.advertised.start, row.advertised.stop - 1],
        }
        for row in api_table().values()
    ]


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
    lines += [f"| {what} | {why} |" for what, _keys, why in LEFT_OUT]
    return "\n".join(lines) + "\n"
