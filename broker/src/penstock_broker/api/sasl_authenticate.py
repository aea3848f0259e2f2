"""SaslAuthenticate (36), versions 0-2: one token of the mechanism's exchange (KIP-152).

Behaviour:
* PLAIN takes one token, SCRAM two. A failure is SASL_AUTHENTICATION_FAILED, sent after
  ``connection.failed.authentication.delay.ms``, and the end of the connection. The error message
  does not say whether the user exists.
* On a connection that is known already, without a renewal: ILLEGAL_SASL_STATE.

Version notes:
* v1: how long the session lasts (KIP-368), 0 for no limit: ``connections.max.reauth.ms``.
* v2: flexible.
"""

from __future__ import annotations

from penstock_broker.api.context import DEFERRED, Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.security.sasl import AuthenticationError
from penstock_broker.wire.messages.sasl_authenticate import (
    API_KEY,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def refuse(
    request: SaslAuthenticateRequest, error: KafkaError, version: int
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))


@api(API_KEY, SaslAuthenticateRequest, refuse=refuse)
def sasl_authenticate(
    services: Services, exchange: Exchange, request: SaslAuthenticateRequest
) -> Reply:
    authentication = exchange.session.authentication
    if authentication is None or not authentication.takes_token:
        raise KafkaError(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
        )
    try:
        answer = authentication.step(bytes(request.auth_bytes))
    except AuthenticationError as error:
        refusal = refuse(
            request,
            KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)),
            exchange.api_version,
        )
        authentication.refuse(error.detail, lambda: exchange.respond(refusal))
        return DEFERRED
    done = not authentication.takes_token
    return SaslAuthenticateResponse(
        auth_bytes=answer, session_lifetime_ms=authentication.lifetime_ms if done else 0
    )
