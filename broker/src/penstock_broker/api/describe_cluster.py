"""DescribeCluster (60), versions 0-1: the cluster's id, brokers and controller.

Behaviour:
* One broker, which is the controller. Authorized operations are unknown without an authorizer.

Version notes:
* v1: asks for brokers or controllers (KIP-919); a client's listener is one of brokers, so that
  controllers are MISMATCHED_ENDPOINT_TYPE, and anything else UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from penstock_broker.api.authorization import NOT_ASKED, cluster_operations
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_cluster import (
    API_KEY,
    ENDPOINT_BROKERS,
    ENDPOINT_CONTROLLERS,
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
        if request.endpoint_type == ENDPOINT_CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
                "type CONTROLLER",
            )
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    host, port = services.address_of(exchange.session.listener_name)
    broker_id = services.config.broker_id
    return DescribeClusterResponse(
        cluster_authorized_operations=cluster_operations(services, exchange)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        cluster_id=services.metadata.cluster_id,
        controller_id=broker_id,
        brokers=[DescribeClusterBroker(broker_id=broker_id, host=host, port=port)],
    )
