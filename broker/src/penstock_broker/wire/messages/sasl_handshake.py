"""SaslHandshake: choose a mechanism."""

from penstock_broker.wire.schema import INT16, STRING, Struct, array, field

API_KEY = 17
VERSIONS = range(2)
FLEXIBLE_FROM = None


class SaslHandshakeRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    error_code: int = field(INT16, default=0)
    mechanisms: list[str] = array(STRING)
