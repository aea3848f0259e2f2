"""SaslAuthenticate: one step of the mechanism's exchange."""

from penstock_broker.wire.schema import BYTES, INT16, INT64, STRING, Struct, field

API_KEY = 36
VERSIONS = range(3)
FLEXIBLE_FROM = 2


class SaslAuthenticateRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    auth_bytes: bytes = field(BYTES, default=b"")
    session_lifetime_ms: int = field(INT64, since=1, default=0)
