"""The error with which an old producer's client learns that it has been fenced.

PRODUCER_FENCED came with Kafka 2.7 (KIP-588); requests of versions before it get
INVALID_PRODUCER_EPOCH, which was the end of a producer then. On the Produce path the same code
means less, and always has: the producer may abort its transaction and continue (KAFKA-9911).
"""

from __future__ import annotations

from penstock_broker.errors import ErrorCode, KafkaError


def code_for(error: KafkaError, version: int, fenced_since: int) -> ErrorCode:
    """The code of an error in an answer of ``version``."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
