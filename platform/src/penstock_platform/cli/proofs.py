"""Proving windows again from the command line, and when each was last proven."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock_platform.cli.project import Connections
from penstock_platform.cli.topic import declarations
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.model.reverification import ProofPass
from penstock_platform.reconciliation.reverification import Looked, Reverifier
from penstock_platform.topics.model.declaration import TopicSpec, parse_topic, silver_table

# Windows whose files are planned together; each part leaves a proof object.
WINDOWS_AT_ONCE = 100
# Versions of a silver table that are looked for where no declaration names the newest.
VERSIONS_TRIED = range(1, 51)


def prove_now(penstock: Connections, ref: TopicRef, sequences: Sequence[int]) -> list[Looked]:
    """Read every row of these windows, judge equations 1 and 3, archive what is new."""
    reverifier = Reverifier(penstock, spec_of(penstock, ref.topic))
    newest_first = sorted(sequences, reverse=True)
    found: list[Looked] = []
    for first in range(0, len(newest_first), WINDOWS_AT_ONCE):
        found += reverifier.now(ref, newest_first[first : first + WINDOWS_AT_ONCE])
    return found


def spec_of(penstock: Connections, topic: str) -> TopicSpec:
    """The topic's declaration; where Dagster is away, what its tables say of it."""
    declared = (declarations(penstock) or {}).get(topic)
    if declared is not None:
        return declared
    document: dict[str, Any] = {"metadata": {"name": topic}, "land": {}}
    versions = [n for n in VERSIONS_TRIED if penstock.lake.exists(silver_table(topic, n))]
    if versions:
        document["schema"] = {"file": "unknown", "version": versions[-1]}
    return parse_topic(document)


def changes(found: Sequence[Looked]) -> list[dict[str, Any]]:
    """What proving again changed, and what could not be proven; ready for JSON."""
    rows: list[dict[str, Any]] = []
    for one in sorted(found, key=lambda o: o.sequence):
        if one.error:
            rows.append({"window": one.name, "error": one.error})
        rows += [
            {
                "window": one.name,
                "equation": str(result.equation),
                "state": str(result.state),
                "findings": [
                    {
                        "kind": f.kind,
                        "records": f.count,
                        "ranges": [[r.partition, r.start, r.end] for r in f.ranges],
                        "detail": f.detail,
                    }
                    for f in result.findings
                ],
            }
            for result in one.news
        ]
    return rows


def change_sentence(change: dict[str, Any]) -> str:
    if "error" in change:
        return f"{change['window']}: could not be proven: {change['error']}"
    found = "; ".join(
        f"{f['records']:,} {f['kind']} {', '.join(f'{p}:{a}-{b - 1}' for p, a, b in f['ranges'])}"
        f" {f['detail']}".strip()
        for f in change["findings"]
    )
    return f"{change['window']}: {change['equation']} is now {change['state']}" + (
        f": {found}" if found else ""
    )


def with_proof_time(row: dict[str, Any], proof: ProofPass | None) -> dict[str, Any]:
    """The row with ``proven_at`` as of the newest pass, where that is later than the book's."""
    passed = proof.proven_at(row["sequence"]) if proof is not None else ""
    return {**row, "proven_at": max(row["proven_at"], passed)}
