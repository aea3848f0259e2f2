"""Where the archive keeps what: one table of key shapes.

::

    clusters/<cluster_id>/
       incarnations/<topic>/0000000000.json           which topic ids this name has had, in order
       incarnations/<topic>/0000000000-begun.json     the first window of its chain was written
       topics/<topic>-<topic_id>/
          windows/0000000042.json                     the chain; hash of the one before
          receipts/<table>/0000000042/000.json        one per landing attempt that committed
          books/0000000042/000.json                   the reconciliation; a later one supersedes
          proofs/0000000007.json                      one per pass of re-verification
          acceptances/0000000042/000.json             a person's word, with reason
          retired/0000000042.json                     swept from the log
    starts/<cluster name>/<topic>.json                first window of the partition definition
    identity.json                                     the archive's own id
    probes/<uuid>                                     proof that the store refuses a second create

Every key is created once and never replaced. Sequences have ten digits and attempts three, so
that keys sort as numbers do; neither is a limit. Topic names hold only letters, digits, ``.``,
``_`` and ``-`` (Kafka's own rule), so they are in a key unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from penstock_platform.kafka.model import TopicRef


def topic_prefix(ref: TopicRef) -> str:
    return f"clusters/{ref.cluster_id}/topics/{ref.topic}-{ref.topic_id}"


def incarnation_key(cluster_id: str, topic: str, number: int) -> str:
    return f"clusters/{cluster_id}/incarnations/{topic}/{number:010d}.json"


def begun_key(cluster_id: str, topic: str, number: int) -> str:
    return f"clusters/{cluster_id}/incarnations/{topic}/{number:010d}-begun.json"


def windows_prefix(ref: TopicRef) -> str:
    return f"{topic_prefix(ref)}/windows/"


def window_key(ref: TopicRef, sequence: int) -> str:
    return f"{topic_prefix(ref)}/windows/{sequence:010d}.json"


def is_window_key(key: str) -> bool:
    """Whether an object's key is a place of a chain, and not what a store lists while it writes."""
    return re.fullmatch(r".*/windows/[0-9]{10,}\.json", key) is not None


def receipt_key(ref: TopicRef, table: str, sequence: int, number: int) -> str:
    return f"{topic_prefix(ref)}/receipts/{table}/{sequence:010d}/{number:03d}.json"


def book_key(ref: TopicRef, sequence: int, number: int) -> str:
    return f"{topic_prefix(ref)}/books/{sequence:010d}/{number:03d}.json"


def acceptance_key(ref: TopicRef, sequence: int, number: int) -> str:
    return f"{topic_prefix(ref)}/acceptances/{sequence:010d}/{number:03d}.json"


def proof_key(ref: TopicRef, number: int) -> str:
    return f"{topic_prefix(ref)}/proofs/{number:010d}.json"


def retired_key(ref: TopicRef, sequence: int) -> str:
    return f"{topic_prefix(ref)}/retired/{sequence:010d}.json"


def start_key(cluster: str, topic: str) -> str:
    return f"starts/{cluster}/{topic}.json"


def probe_key(token: str) -> str:
    return f"probes/{token}"


def identity_key() -> str:
    return "identity.json"


def canonical(value: Mapping[str, object]) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8: the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
