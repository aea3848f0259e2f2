"""The table of APIs: key, versions, message classes; and whole requests in, whole responses out.

Which of these a broker serves, and what it advertises, is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from penstock_broker.wire import header as headers
from penstock_broker.wire.header import RequestHeader
from penstock_broker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)
from penstock_broker.wire.primitives import Buffer
from penstock_broker.wire.schema import Struct, decode, encode_parts


@dataclass(frozen=True, slots=True)
class Api:
    """One API as this codec knows it."""

    key: int
    name: str
    versions: range
    flexible_from: int | None
    request: type[Struct]
    response: type[Struct]

    def flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


class UnsupportedVersionError(Exception):
    """A request for an API or a version that the codec does not have; its header is known."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"api key {header.api_key} version {header.api_version}")
        self.header = header


def _api(module: ModuleType) -> Api:
    name = "".join(word.capitalize() for word in module.__name__.rpartition(".")[2].split("_"))
    return Api(
        key=module.API_KEY,
        name=name,
        versions=module.VERSIONS,
        flexible_from=module.FLEXIBLE_FROM,
        request=getattr(module, f"{name}Request"),
        response=getattr(module, f"{name}Response"),
    )


APIS: Final[dict[int, Api]] = {
    module.API_KEY: _api(module)
    for module in (
        produce,
        fetch,
        list_offsets,
        metadata,
        offset_commit,
        offset_fetch,
        find_coordinator,
        join_group,
        heartbeat,
        leave_group,
        sync_group,
        describe_groups,
        list_groups,
        sasl_handshake,
        api_versions,
        create_topics,
        delete_topics,
        delete_records,
        init_producer_id,
        offset_for_leader_epoch,
        add_partitions_to_txn,
        add_offsets_to_txn,
        end_txn,
        txn_offset_commit,
        describe_acls,
        create_acls,
        delete_acls,
        describe_configs,
        alter_configs,
        sasl_authenticate,
        create_partitions,
        delete_groups,
        incremental_alter_configs,
        offset_delete,
        describe_cluster,
        elect_leaders,
        alter_replica_log_dirs,
        describe_log_dirs,
        describe_client_quotas,
        alter_client_quotas,
        describe_user_scram_credentials,
        alter_user_scram_credentials,
        describe_producers,
        describe_transactions,
        list_transactions,
        describe_topic_partitions,
    )
}
"""By API key."""


def decode_request(frame: Buffer) -> tuple[RequestHeader, Struct]:
    """Decode a request frame, header and body.

    Raises DecodeError for malformed bytes and UnsupportedVersionError where the header is fine
    but the codec has no such API or version. Bytes after the message are ignored, as Apache
    Kafka does.
    """
    header, position = headers.decode_request_header(frame)
    api = APIS.get(header.api_key)
    if api is None or header.api_version not in api.versions:
        raise UnsupportedVersionError(header)
    if api.flexible(header.api_version):
        position = headers.skip_header_tags(frame, position)
    request, _ = decode(api.request, header.api_version, frame, position)
    return header, request


def encode_response(header: RequestHeader, response: Struct, version: int) -> list[Any]:
    """Encode the response frame as a list of parts: bytes, and records objects between them.

    `version` is the request's, except for ApiVersions, which answers an unknown one in version 0.
    """
    parts = encode_parts(response, version)
    size = len(parts[0]) if len(parts) == 1 else sum(len(part) for part in parts)
    tagged = header.api_key != headers.API_VERSIONS_KEY and APIS[header.api_key].flexible(version)
    parts[0] = headers.response_prefix(header.correlation_id, size, tagged) + parts[0]
    return parts
