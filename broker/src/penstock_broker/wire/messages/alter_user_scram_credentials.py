"""AlterUserScramCredentials: set or remove SCRAM credentials of users (KIP-554)."""

from penstock_broker.wire.schema import BYTES, INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 51
VERSIONS = range(1)
FLEXIBLE_FROM = 0

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2
"""The mechanisms; 0 is unknown."""


class ScramCredentialDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class ScramCredentialUpsertion(Struct):
    """`salted_password` is SaltedPassword of RFC 5802: the password itself is never sent."""

    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)


class AlterUserScramCredentialsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, default=())
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, default=())


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


class AlterUserScramCredentialsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
