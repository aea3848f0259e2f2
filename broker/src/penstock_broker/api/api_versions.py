"""ApiVersions (18), versions 0-4: which APIs and versions this broker speaks.

Behaviour:
* Answered before anything else and without authentication.
* Built from the registry; nothing is listed twice. Produce is advertised from 0 although 3 is the
  oldest that is served: librdkafka up to 2.11.0 drops compression silently otherwise.
* An unsupported version is answered in the form of version 0 with UNSUPPORTED_VERSION and the
  entry of ApiVersions itself, so that clients try again with a version that both know.

Version notes:
* v0-v4: the response header is always version 0, without tagged fields.
* v3: flexible; the client's software name and version must be well formed, else INVALID_REQUEST.
* v4: feature ranges may begin at 0 (KAFKA-17011). None are advertised.
"""

from __future__ import annotations

import re

from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import Api, api, api_table
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.api_versions import (
    API_KEY,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def refuse(request: ApiVersionsRequest, error: KafkaError, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code, api_keys=[])


@api(API_KEY, ApiVersionsRequest, refuse=refuse)
def api_versions(services: Services, exchange: Exchange, request: ApiVersionsRequest) -> Reply:
    if exchange.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    entries = [_entry(row) for row in api_table().values()]
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=entries)


def unsupported_version(table: dict[int, Api]) -> ApiVersionsResponse:
    """The answer to a version from the future, to be encoded as version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(table[API_KEY])]
    )


def _entry(row: Api) -> ApiVersion:
    return ApiVersion(
        api_key=row.key, min_version=row.advertised.start, max_version=row.advertised.stop - 1
    )
