"""DescribeCluster (60), versions 0-1: the cluster's id, brokers and controller.

Behaviour:
* One broker, which is the controller. Authorized operations are unknown without an authorizer.

Version notes:
* v1: asks for brokers or controllers (KIP-919); only brokers are known to a client's listener,
  anything else is UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_cluster import (
    API_KEY,
    ENDPOINT_BROKERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def refuse(
    request: DescribeClusterRequest, error: KafkaError, version: int
) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error.code, error_message=str(error))


@api(API_KEY, DescribeClusterRequest, refuse=refuse)
def describe_cluster(
    services: Services, exchange: Exchange, request: DescribeClusterRequest
) -> Reply:
    if request.endpoint_type != ENDPOINT_BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    host, port = services.address_of()
    broker_id = services.config.broker_id
    return DescribeClusterResponse(
        cluster_id=services.metadata.cluster_id,
        controller_id=broker_id,
        brokers=[DescribeClusterBroker(broker_id=broker_id, host=host, port=port)],
    )
