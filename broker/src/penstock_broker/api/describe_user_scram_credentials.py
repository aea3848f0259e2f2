"""DescribeUserScramCredentials (50), version 0: users and their SCRAM mechanisms (KIP-554).

Behaviour:
* Mechanisms and iterations of the users asked for, or of all; never anything secret. A user
  without credentials is RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE. Users of
  ``sasl.users.file`` are not the cluster's and are not listed. Needs DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections import Counter

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_user_scram_credentials import (
    API_KEY,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


def refuse(
    request: DescribeUserScramCredentialsRequest, error: KafkaError, version: int
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=str(error), results=[]
    )


@api(API_KEY, DescribeUserScramCredentialsRequest, refuse=refuse)
def describe_user_scram_credentials(
    services: Services, exchange: Exchange, request: DescribeUserScramCredentialsRequest
) -> Reply:
    require_cluster(services, exchange, Operation.DESCRIBE)
    wanted = Counter(user.name for user in request.users or ())
    names = wanted or Counter(services.scram.users())
    return DescribeUserScramCredentialsResponse(
        results=[_describe(services, name, count) for name, count in names.items()]
    )


def _describe(services: Services, name: str, count: int) -> DescribeUserScramCredentialsResult:
    error: KafkaError | None = None
    found = services.scram.mechanisms(name)
    if count > 1:
        error = KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            + name,
        )
    elif not found:
        error = KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    if error is not None:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=error.code, error_message=str(error), credential_infos=[]
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=MECHANISM_CODES[mechanism], iterations=iterations)
            for mechanism, iterations in found.items()
        ],
    )
