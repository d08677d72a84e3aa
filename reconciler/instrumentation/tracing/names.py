"""Names of spans and attributes, in one place: the conventions for RocketMQ are still in development.

Those that begin with "messaging.", "error.", "service." and "deployment." are OpenTelemetry's semantic conventions, all
others this project's own.
"""

from __future__ import annotations

#: Operations: a span is named by one and its topic, as in "verify ORDERS".
ROUND = "round"
VERIFY = "verify"
REPAIR = "repair"

SYSTEM = "messaging.system"
ROCKETMQ = "rocketmq"
OPERATION = "messaging.operation.name"
TOPIC = "messaging.destination.name"
GROUP = "messaging.consumer.group.name"
#: The unique key: what producers get as the message's id.
MESSAGE_ID = "messaging.message.id"
MESSAGE_TYPE = "messaging.rocketmq.message.type"
TRANSACTION = "transaction"
ERROR_TYPE = "error.type"

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE = "service.instance.id"
DEPLOYMENT = "deployment.environment.name"

ENVIRONMENT = "reconciler.environment"
SUBSCRIPTION = "reconciler.subscription"
SHARD = "reconciler.shard"
#: Why a round did not run.
SUSPENDED = "reconciler.suspended"
#: Verifications and repairs of a round that have no span.
LEFT_OUT = "reconciler.left_out"
#: Before the figures of RoundFinished, which keep their names.
OF_A_ROUND = "reconciler.round."

VERDICT = "reconciler.verdict"
STATE = "reconciler.state"
REASON = "reconciler.reason"

RUNG = "reconciler.rung"
#: "*": every group of the topic; else the group of a hand-over.
SCOPE = "reconciler.repair.scope"
BEFORE = "reconciler.repair.before"
AFTER = "reconciler.repair.after"
ATTEMPTS = "reconciler.repair.attempts"
ANSWER = "reconciler.repair.answer"
#: From the proof of the loss until the verified repair, seconds.
TOOK = "reconciler.repair.took_seconds"
