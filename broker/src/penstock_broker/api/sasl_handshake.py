"""SaslHandshake (17), versions 0-1: choose the mechanism to authenticate with.

Behaviour:
* On SASL listeners, before anything but ApiVersions. A mechanism that is not enabled is
  UNSUPPORTED_SASL_MECHANISM with those that are, and the end of the connection.
* On a known connection it begins a renewal, where sessions have an end (KIP-368); else, and on
  listeners without SASL, ILLEGAL_SASL_STATE.

Version notes:
* v0: the tokens follow as frames of their own, without header or answer format.
* v1: the tokens follow in SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from penstock_broker.api.context import DEFERRED, Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.sasl_handshake import (
    API_KEY,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def refuse(request: SaslHandshakeRequest, error: KafkaError, version: int) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error.code, mechanisms=[])


@api(API_KEY, SaslHandshakeRequest, refuse=refuse)
def sasl_handshake(services: Services, exchange: Exchange, request: SaslHandshakeRequest) -> Reply:
    authentication = exchange.session.authentication
    if authentication is None or not authentication.takes_handshake:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = list(authentication.mechanisms)
    if authentication.begin(request.mechanism, raw=exchange.api_version == 0):
        return SaslHandshakeResponse(mechanisms=mechanisms)
    refusal = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
    )
    authentication.refuse(
        f"mechanism {request.mechanism[:64]!r} is not enabled", lambda: exchange.respond(refusal)
    )
    return DEFERRED
