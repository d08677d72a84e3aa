"""The handler of each request code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from reconciler.embedded.channel import Channel
from reconciler.embedded.handlers import admin, client, forward, pull, query, routes, send, transaction
from reconciler.embedded.reply import Reply
from reconciler.embedded.services import BrokerServices
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

Handler: TypeAlias = "Callable[[BrokerServices, Channel, Command], Reply | None]"

NAME_SERVER_HANDLERS: dict[int, Handler] = {
    RequestCode.PUT_KV_CONFIG: routes.put_kv,
    RequestCode.GET_KV_CONFIG: routes.get_kv,
    RequestCode.DELETE_KV_CONFIG: routes.delete_kv,
    RequestCode.REGISTER_BROKER: routes.register_broker,
    RequestCode.UNREGISTER_BROKER: routes.unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.route,
    RequestCode.GET_BROKER_CLUSTER_INFO: routes.cluster_info,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: routes.all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: routes.delete_topic,
    219: routes.list_kv,
    224: routes.topics_of_cluster,
}

BROKER_HANDLERS: dict[int, Handler] = {
    RequestCode.SEND_MESSAGE: send.send,
    RequestCode.SEND_MESSAGE_V2: send.send,
    RequestCode.SEND_BATCH_MESSAGE: send.send,
    RequestCode.CONSUMER_SEND_MSG_BACK: send.send_back,
    RequestCode.PULL_MESSAGE: pull.pull,
    361: pull.pull,  # LITE_PULL_MESSAGE of DefaultLitePullConsumer, 5.x
    RequestCode.QUERY_MESSAGE: query.query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: query.view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: query.query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: query.update_consumer_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: query.offset_by_time,
    RequestCode.GET_MAX_OFFSET: query.max_offset,
    RequestCode.GET_MIN_OFFSET: query.min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: query.earliest_store_time,
    RequestCode.QUERY_CONSUME_QUEUE: query.query_consume_queue,
    RequestCode.END_TRANSACTION: transaction.end_transaction,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: transaction.resume_check,
    RequestCode.HEART_BEAT: client.heartbeat,
    RequestCode.UNREGISTER_CLIENT: client.unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: client.consumer_list,
    RequestCode.CHECK_CLIENT_CONFIG: client.check_client_config,
    RequestCode.LOCK_BATCH_MQ: client.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: client.unlock_queues,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: client.producer_connections,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: client.consumer_connections,
    RequestCode.UPDATE_AND_CREATE_TOPIC: admin.create_topic,
    RequestCode.DELETE_TOPIC_IN_BROKER: admin.delete_topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: admin.all_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin.create_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.all_groups,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin.groups_of_topic,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: admin.topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: client.subscription_of_group,
    RequestCode.SET_MESSAGE_REQUEST_MODE: admin.set_request_mode,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: admin.request_modes,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: admin.delete_group,
    RequestCode.GET_BROKER_CONFIG: admin.get_config,
    RequestCode.UPDATE_BROKER_CONFIG: admin.update_config,
    RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
    RequestCode.GET_TOPIC_STATS_INFO: admin.topic_stats,
    RequestCode.GET_CONSUME_STATS: admin.consume_stats,
    RequestCode.GET_CONSUMER_RUNNING_INFO: forward.forward,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: forward.forward,
}
