"""AlterUserScramCredentials (51), version 0: set or remove SCRAM credentials (KIP-554).

Behaviour:
* In force, and on the disk, when the answer comes; connections that exist stay. The password itself
  never comes here: clients send what PBKDF2 made of it, and what is kept proves less than that.
* A user named twice: DUPLICATE_RESOURCE. Removing what is not there: RESOURCE_NOT_FOUND. No name,
  fewer than 4,096 or more than 16,384 iterations, no salt, a salted password of the wrong size:
  UNACCEPTABLE_CREDENTIAL. Another mechanism: UNSUPPORTED_SASL_MECHANISM. Each user succeeds or
  fails for itself. Needs ALTER on the cluster.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.describe_user_scram_credentials import MECHANISM_CODES
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.security.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential
from penstock_broker.wire.messages.alter_user_scram_credentials import (
    API_KEY,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

Change = ScramCredentialDeletion | ScramCredentialUpsertion
NAME_BYTES_MAX = 1_024
SALT_BYTES_MAX = 1_024
_MECHANISMS = {code: name for name, code in MECHANISM_CODES.items()}


def _changes(request: AlterUserScramCredentialsRequest) -> list[Change]:
    return [*request.deletions, *request.upsertions]


def refuse(
    request: AlterUserScramCredentialsRequest, error: KafkaError, version: int
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(each.name for each in _changes(request))
    return AlterUserScramCredentialsResponse(results=[_result(name, error) for name in names])


@api(API_KEY, AlterUserScramCredentialsRequest, refuse=refuse)
def alter_user_scram_credentials(
    services: Services, exchange: Exchange, request: AlterUserScramCredentialsRequest
) -> Steps:
    return services.alterations.through(_alter_all(services, exchange, request))


def _alter_all(
    services: Services, exchange: Exchange, request: AlterUserScramCredentialsRequest
) -> Steps:
    require_cluster(services, exchange, Operation.ALTER)
    named = Counter(each.name for each in _changes(request))
    if services.scram.is_full(len(request.upsertions)):
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "There are too many users.")
    errors: dict[str, KafkaError | None] = {}
    removed: list[tuple[str, str]] = []
    put: list[tuple[str, ScramCredential]] = []
    for each in _changes(request):
        errors[each.name] = None
        try:
            if named[each.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            if isinstance(each, ScramCredentialDeletion):
                removed.append((each.name, _existing(services, each)))
            else:
                put.append((each.name, _credential(each)))
        except KafkaError as error:
            errors[each.name] = error
    try:
        if removed or put:
            yield from services.scram.changing(removed, put)
    except OSError as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "The credentials cannot be written."
        ) from error
    return AlterUserScramCredentialsResponse(
        results=[_result(name, error) for name, error in errors.items()]
    )


def _mechanism(each: Change) -> str:
    if not each.name or len(each.name.encode()) > NAME_BYTES_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty or huge")
    found = _MECHANISMS.get(each.mechanism)
    if found is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return found


def _existing(services: Services, each: ScramCredentialDeletion) -> str:
    mechanism = _mechanism(each)
    if mechanism not in services.scram.mechanisms(each.name):
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return mechanism


def _credential(each: ScramCredentialUpsertion) -> ScramCredential:
    mechanism = _mechanism(each)
    problem = None
    if each.iterations < ITERATIONS_MIN:
        problem = "Too few iterations"
    elif each.iterations > ITERATIONS_MAX:
        problem = "Too many iterations"
    elif not 0 < len(each.salt) <= SALT_BYTES_MAX:
        problem = "The salt must not be empty or huge"
    elif len(each.salted_password) != hashlib.new(HASHES[mechanism]).digest_size:
        problem = "The salted password has the wrong size"
    if problem is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    return ScramCredential.of_salted_password(
        mechanism, bytes(each.salt), each.iterations, bytes(each.salted_password)
    )


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=error.code if error is not None else 0,
        error_message=str(error) if error is not None else None,
    )
