"""ApiVersions: what the broker speaks. The first request on every connection."""

from penstock_broker.wire.schema import BOOL, INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 18
VERSIONS = range(5)
FLEXIBLE_FROM = 3


class ApiVersionsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    client_software_name: str = field(STRING, since=3, default="")
    client_software_version: str = field(STRING, since=3, default="")


class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    name: str = field(STRING, since=3)
    min_version: int = field(INT16, since=3)
    max_version: int = field(INT16, since=3)


class FinalizedFeatureKey(Struct):
    name: str = field(STRING, since=3)
    max_version_level: int = field(INT16, since=3)
    min_version_level: int = field(INT16, since=3)


class ApiVersionsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    error_code: int = field(INT16, default=0)
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = field(INT32, since=1, default=0)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, default=()
    )
    finalized_features_epoch: int = field(INT64, since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, default=()
    )
    zk_migration_ready: bool = field(BOOL, since=3, tag=3, default=False)
