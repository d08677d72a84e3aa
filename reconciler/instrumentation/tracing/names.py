"""Names of spans and attributes, in one place, because the conventions for RocketMQ are still in development.

Names that begin with "messaging.", "error.", "service." and "deployment." are OpenTelemetry's semantic conventions. All
others are this project's own.
"""

from __future__ import annotations

#: Operations. The name of a span is its operation and topic, as in "verify ORDERS".
ROUND = "round"
VERIFY = "verify"
REPAIR = "repair"

SYSTEM = "messaging.system"
ROCKETMQ = "rocketmq"
OPERATION = "messaging.operation.name"
TOPIC = "messaging.destination.name"
GROUP = "messaging.consumer.group.name"
#: The unique key, which producers get as the message's id.
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
#: Reason why a round did not run.
SUSPENDED = "reconciler.suspended"
#: Number of verifications and repairs of a round that have no span.
LEFT_OUT = "reconciler.left_out"
#: Prefix of the figures of RoundFinished, which keep their names.
OF_A_ROUND = "reconciler.round."

VERDICT = "reconciler.verdict"
STATE = "reconciler.state"
REASON = "reconciler.reason"

RUNG = "reconciler.rung"
#: Scope of a repair: "*" for every group of the topic, or the group of a hand-over.
SCOPE = "reconciler.repair.scope"
BEFORE = "reconciler.repair.before"
AFTER = "reconciler.repair.after"
ATTEMPTS = "reconciler.repair.attempts"
ANSWER = "reconciler.repair.answer"
#: Seconds from the proof of the loss to the verified repair.
TOOK = "reconciler.repair.took_seconds"
