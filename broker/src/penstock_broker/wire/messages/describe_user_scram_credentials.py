"""DescribeUserScramCredentials: which users have which SCRAM mechanisms (KIP-554)."""

from penstock_broker.wire.schema import INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 50
VERSIONS = range(1)
FLEXIBLE_FROM = 0


class UserName(Struct):
    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`users` null or empty asks for all of them."""

    users: list[UserName] | None = array(UserName, nullable_since=0, default=None)


class CredentialInfo(Struct):
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo, default=())


class DescribeUserScramCredentialsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    results: list[DescribeUserScramCredentialsResult] = array(
        DescribeUserScramCredentialsResult, default=()
    )
