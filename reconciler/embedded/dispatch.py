"""Which function answers which request code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from reconciler.embedded import (
    handlers_admin,
    handlers_client,
    handlers_forward,
    handlers_pull,
    handlers_query,
    handlers_routes,
    handlers_send,
    handlers_transaction,
)
from reconciler.embedded.reply import Reply
from reconciler.rocketmq.codes import RequestCode
from reconciler.rocketmq.frame import Command

if TYPE_CHECKING:
    from reconciler.embedded.broker import Broker
    from reconciler.embedded.connection import Connection

Handler: TypeAlias = "Callable[[Broker, Connection, Command], Reply | None]"

NAME_SERVER_HANDLERS: dict[int, Handler] = {
    RequestCode.PUT_KV_CONFIG: handlers_routes.put_kv,
    RequestCode.GET_KV_CONFIG: handlers_routes.get_kv,
    RequestCode.DELETE_KV_CONFIG: handlers_routes.delete_kv,
    RequestCode.REGISTER_BROKER: handlers_routes.register_broker,
    RequestCode.UNREGISTER_BROKER: handlers_routes.unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: handlers_routes.route,
    RequestCode.GET_BROKER_CLUSTER_INFO: handlers_routes.cluster_info,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: handlers_routes.all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: handlers_routes.delete_topic,
    219: handlers_routes.list_kv,
    224: handlers_routes.topics_of_cluster,
}

BROKER_HANDLERS: dict[int, Handler] = {
    RequestCode.SEND_MESSAGE: handlers_send.send,
    RequestCode.SEND_MESSAGE_V2: handlers_send.send,
    RequestCode.SEND_BATCH_MESSAGE: handlers_send.send,
    RequestCode.CONSUMER_SEND_MSG_BACK: handlers_send.send_back,
    RequestCode.PULL_MESSAGE: handlers_pull.pull,
    361: handlers_pull.pull,  # LITE_PULL_MESSAGE of DefaultLitePullConsumer, 5.x
    RequestCode.QUERY_MESSAGE: handlers_query.query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: handlers_query.view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: handlers_query.query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: handlers_query.update_consumer_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: handlers_query.offset_by_time,
    RequestCode.GET_MAX_OFFSET: handlers_query.max_offset,
    RequestCode.GET_MIN_OFFSET: handlers_query.min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: handlers_query.earliest_store_time,
    RequestCode.QUERY_CONSUME_QUEUE: handlers_query.query_consume_queue,
    RequestCode.END_TRANSACTION: handlers_transaction.end_transaction,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: handlers_transaction.resume_check,
    RequestCode.HEART_BEAT: handlers_client.heartbeat,
    RequestCode.UNREGISTER_CLIENT: handlers_client.unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: handlers_client.consumer_list,
    RequestCode.CHECK_CLIENT_CONFIG: handlers_client.check_client_config,
    RequestCode.LOCK_BATCH_MQ: handlers_client.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: handlers_client.unlock_queues,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: handlers_client.producer_connections,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: handlers_client.consumer_connections,
    RequestCode.UPDATE_AND_CREATE_TOPIC: handlers_admin.create_topic,
    RequestCode.DELETE_TOPIC_IN_BROKER: handlers_admin.delete_topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: handlers_admin.all_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: handlers_admin.create_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: handlers_admin.all_groups,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: handlers_admin.groups_of_topic,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: handlers_admin.delete_group,
    RequestCode.GET_BROKER_CONFIG: handlers_admin.get_config,
    RequestCode.UPDATE_BROKER_CONFIG: handlers_admin.update_config,
    RequestCode.GET_BROKER_RUNTIME_INFO: handlers_admin.runtime_info,
    RequestCode.GET_TOPIC_STATS_INFO: handlers_admin.topic_stats,
    RequestCode.GET_CONSUME_STATS: handlers_admin.consume_stats,
    RequestCode.GET_CONSUMER_RUNNING_INFO: handlers_forward.forward,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: handlers_forward.forward,
}
