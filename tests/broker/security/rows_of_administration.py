"""Requests that change or show topics, settings, ACLs, users and quotas, and their rights."""

from __future__ import annotations

from typing import Any

from authorization_rows import CLUSTER, DESCRIBE, NO_CLUSTER, NO_TOPIC, READ, TOPIC, Row, any_acl

from penstock_broker.security.acls import (
    Operation,
    Permission,
)
from penstock_broker.wire.messages import (
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
)


def configs(module: Any, **more: Any) -> Any:
    return module.AlterConfigsResource(
        resource_type=describe_configs.RESOURCE_TOPIC, resource_name=more.pop("name"), configs=[]
    )


def broker_resource(module: Any) -> Any:
    return module.AlterConfigsResource(
        resource_type=describe_configs.RESOURCE_BROKER, resource_name="0", configs=[]
    )


ROWS = [
    Row(
        "CreateTopics",
        7,
        lambda s: create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(name=s.topic, num_partitions=1, replication_factor=1)
            ],
            timeout_ms=1000,
            validate_only=True,
        ),
        NO_TOPIC,
        [[(Operation.CREATE, TOPIC)], [(Operation.CREATE, CLUSTER)]],
    ),
    Row(
        "DeleteTopics",
        5,
        lambda s: delete_topics.DeleteTopicsRequest(topic_names=[s.topic], timeout_ms=1000),
        NO_TOPIC,
        [[(Operation.DELETE, TOPIC)]],
    ),
    Row(
        "DeleteTopics",
        6,
        lambda s: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=s.topic_id)],
            timeout_ms=1000,
        ),
        NO_TOPIC,
        [[(Operation.DELETE, TOPIC)]],
    ),
    Row(
        "CreatePartitions",
        3,
        lambda s: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=s.topic, count=5)],
            timeout_ms=1000,
            validate_only=True,
        ),
        NO_TOPIC,
        [[(Operation.ALTER, TOPIC)]],
    ),
    Row(
        "DescribeConfigs",
        4,
        lambda s: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=describe_configs.RESOURCE_TOPIC, resource_name=s.topic
                )
            ]
        ),
        NO_TOPIC,
        [[(Operation.DESCRIBE_CONFIGS, TOPIC)], [(Operation.ALTER_CONFIGS, TOPIC)]],
    ),
    Row(
        "DescribeConfigs",
        1,
        lambda s: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=describe_configs.RESOURCE_BROKER, resource_name="0"
                )
            ]
        ),
        NO_CLUSTER,
        [[(Operation.DESCRIBE_CONFIGS, CLUSTER)]],
    ),
    Row(
        "AlterConfigs",
        2,
        lambda s: alter_configs.AlterConfigsRequest(
            resources=[configs(alter_configs, name=s.topic)], validate_only=True
        ),
        NO_TOPIC,
        [[(Operation.ALTER_CONFIGS, TOPIC)]],
    ),
    Row(
        "AlterConfigs",
        2,
        lambda s: alter_configs.AlterConfigsRequest(
            resources=[broker_resource(alter_configs)], validate_only=True
        ),
        NO_CLUSTER,
        [[(Operation.ALTER_CONFIGS, CLUSTER)]],
    ),
    Row(
        "IncrementalAlterConfigs",
        1,
        lambda s: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[configs(incremental_alter_configs, name=s.topic)], validate_only=True
        ),
        NO_TOPIC,
        [[(Operation.ALTER_CONFIGS, TOPIC)]],
    ),
    Row(
        "IncrementalAlterConfigs",
        1,
        lambda s: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[broker_resource(incremental_alter_configs)], validate_only=True
        ),
        NO_CLUSTER,
        [[(Operation.ALTER_CONFIGS, CLUSTER)]],
    ),
    Row(
        "DescribeAcls",
        3,
        lambda s: any_acl(describe_acls.DescribeAclsRequest),
        NO_CLUSTER,
        [[(DESCRIBE, CLUSTER)], [(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "CreateAcls",
        3,
        lambda s: create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=TOPIC,
                    resource_name="unrelated",
                    principal="User:unknown",
                    host="*",
                    operation=READ,
                    permission_type=Permission.ALLOW,
                )
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "DeleteAcls",
        3,
        lambda s: delete_acls.DeleteAclsRequest(filters=[any_acl(delete_acls.DeleteAclsFilter)]),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "DescribeUserScramCredentials",
        0,
        lambda s: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(),
        NO_CLUSTER,
        [[(DESCRIBE, CLUSTER)]],
    ),
    Row(
        "AlterUserScramCredentials",
        0,
        lambda s: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[
                alter_user_scram_credentials.ScramCredentialDeletion(name="unknown", mechanism=1)
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "DescribeClientQuotas",
        1,
        lambda s: describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False),
        NO_CLUSTER,
        [[(Operation.DESCRIBE_CONFIGS, CLUSTER)]],
    ),
    Row(
        "AlterClientQuotas",
        1,
        lambda s: alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterEntryData(
                    entity=[
                        alter_client_quotas.AlterEntityData(
                            entity_type="user", entity_name="unknown"
                        )
                    ],
                    ops=[],
                )
            ],
            validate_only=True,
        ),
        NO_CLUSTER,
        [[(Operation.ALTER_CONFIGS, CLUSTER)]],
    ),
    Row(
        "DescribeLogDirs",
        4,
        lambda s: describe_log_dirs.DescribeLogDirsRequest(topics=None),
        NO_CLUSTER,
        [[(DESCRIBE, CLUSTER)]],
    ),
    Row("DescribeLogDirs", 1, lambda s: describe_log_dirs.DescribeLogDirsRequest(), None),
    Row(
        "AlterReplicaLogDirs",
        2,
        lambda s: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="elsewhere",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=s.topic, partitions=[0])
                    ],
                )
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "ElectLeaders",
        2,
        lambda s: elect_leaders.ElectLeadersRequest(
            topic_partitions=[
                elect_leaders.ElectLeadersTopicPartitions(topic=s.topic, partitions=[0])
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
]
