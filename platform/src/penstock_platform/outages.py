"""Which service was away when something failed, by the errors alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

# That a service did not answer, in the words of the libraries.
_AWAY = re.compile(
    r"could not connect|cannot connect|failed to connect|connect(?:ion)? ?(?:was )?(?:refused|reset"
    r"|closed|aborted|timed out|timeout)|timed? ?out|unreachable|no route to host|no answer"
    r"|does not answer|no kafka broker answers|brokers? (?:are )?down|broker transport failure"
    r"|unavailable|unknownhost|name or service not known|name resolution|broken pipe"
    r"|slowdown|status code: 5\d\d|\b50[0234]\b|network_connection|nohttpresponse"
    r"|timeoutexception|disconnectexception|networkexception|all addresses|socket closed"
    r"|remotedisconnected|end of file",
    re.IGNORECASE,
)
# Whose words they are: the type's name, or what the text names. The first that fits.
_SERVICES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "spark",
        re.compile(
            r"SparkUnavailable|SparkConnectGrpc|_InactiveRpcError|_MultiThreadedRendezvous|grpc"
            r"|sc://|failed to connect to all addresses|Spark (?:server|does not answer)"
        ),
    ),
    (
        "store",
        re.compile(
            r"ArchiveError|EndpointConnectionError|ConnectTimeoutError|ReadTimeoutError"
            r"|ConnectionClosedError|botocore|boto3|s3://|s3a://|S3Exception|SdkClient|AWS Error"
            r"|endpoint URL|Unable to execute HTTP request|S3FileIO|software\.amazon"
        ),
    ),
    (
        "broker",
        re.compile(
            r"ClusterError|KafkaException|KafkaError|kafka\.common\.errors|apache\.kafka"
            r"|Kafka broker|bootstrap|librdkafka"
        ),
    ),
)
# These say that something is wrong which no waiting changes, whatever words they use.
_NOT_AWAY = frozenset({"UnknownTopicError", "ChainError", "NewIncarnationError"})


def service_away(errors: Iterable[tuple[str, str]]) -> str | None:
    """``broker``, ``store`` or ``spark`` where one of the errors (type's name, message) says that
    it did not answer; None for every other failure."""
    for name, message in errors:
        if name in _NOT_AWAY:
            return None
        text = f"{name}: {message}"
        if not _AWAY.search(text):
            continue
        for service, words in _SERVICES:
            if words.search(text):
                return service
    return None
