"""An outage is recognised by what the libraries really say, and nothing else is one."""

from __future__ import annotations

import pytest

from penstock_platform.outages import service_away


@pytest.mark.parametrize(
    ("service", "name", "message"),
    [
        (
            "store",
            "ArchiveError",
            "cannot get s3://penstock/archive/x at http://127.0.0.1:9000: Could not connect to the "
            'endpoint URL: "http://127.0.0.1:9000/penstock/archive/x"',
        ),
        ("store", "ReadTimeoutError", "Read timeout on endpoint URL: http://127.0.0.1:9000/p"),
        (
            "store",
            "OSError",
            "When reading information for key 'w/x' in bucket 'penstock': AWS Error "
            "NETWORK_CONNECTION during HeadObject operation: curlCode: 7",
        ),
        (
            "store",
            "SparkException",
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP "
            "request: Connect to 127.0.0.1:9000 failed: Connection refused",
        ),
        (
            "broker",
            "ClusterError",
            "no Kafka broker answers at 127.0.0.1:9092: [Errno 111] Connection refused. Is it up?",
        ),
        ("broker", "ClusterError", "127.0.0.1:9092: cannot describe: Broker transport failure"),
        (
            "broker",
            "StreamingQueryException",
            "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired",
        ),
        (
            "spark",
            "SparkConnectGrpcException",
            "<_InactiveRpcError of RPC that terminated with: status = StatusCode.UNAVAILABLE "
            'details = "failed to connect to all addresses; last error: ipv4:127.0.0.1:15002"',
        ),
    ],
)
def test_a_service_that_does_not_answer_is_named(service, name, message):
    assert service_away([("ValueError", "no"), (name, message)]) == service


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("AnalysisException", "[CANNOT_SAFELY_CAST] column amount"),
        (
            "ArchiveError",
            "cannot get s3://penstock/x at http://here:9000: Access Denied (403)",
        ),
        ("UnknownTopicError", "127.0.0.1:9092: cannot describe topic x: timed out"),
        ("ChainError", "window 7: place 6 is empty; s3://penstock/x unavailable"),
        ("ValueError", "the connection of two facts was refused"),
        ("TimeoutError", "timed out"),
    ],
)
def test_what_is_no_outage_is_its_own_incident(name, message):
    assert service_away([(name, message)]) is None
    assert service_away([]) is None
