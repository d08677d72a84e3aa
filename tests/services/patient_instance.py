"""A client instance for sending and looking: a process that is off the CPU for seconds is no failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypedDict, Unpack

from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.heartbeat import INTERVAL_SECONDS
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.producer.ending import EndAnswer, EndDecision, EndRequest, end_transaction
from reconciler.rocketmq.wire.acl import AclCredentials

#: For connecting, and for an answer. As delivered it is 3 s, and `eventually` raises a RequestTimeout at once.
TIMEOUT_SECONDS = 30.0


def patient_client(*, request_timeout_seconds: float = TIMEOUT_SECONDS, **more: Any) -> RemotingClient:
    """`more`: as RemotingClient takes it."""
    return RemotingClient(
        connect_timeout_seconds=TIMEOUT_SECONDS, request_timeout_seconds=request_timeout_seconds, **more
    )


@contextlib.contextmanager
def patient_instance(
    name_servers: str,
    *,
    acl: AclCredentials | None = None,
    tls: TlsSettings | None = None,
    request_timeout_seconds: float = TIMEOUT_SECONDS,
    heartbeat_interval_seconds: float = INTERVAL_SECONDS,
) -> Iterator[ClientInstance]:
    """Not for tests of time-outs. What a producer or consumer bounds by itself stays as it is."""
    with (
        patient_client(acl=acl, tls=tls, request_timeout_seconds=request_timeout_seconds) as client,
        ClientInstance(name_servers, client=client, heartbeat_interval_seconds=heartbeat_interval_seconds) as instance,
    ):
        yield instance


class OtherValues(TypedDict, total=False):
    """Those of EndRequest that a test gives in place of the half's own."""

    tran_state_table_offset: int
    commit_log_offset: int
    from_transaction_check: bool


def end_half(
    client: RemotingClient,
    half: SendResult,
    decision: EndDecision,
    *,
    address: str,
    group: str,
    **others: Unpack[OtherValues],
) -> EndAnswer:
    """END_TRANSACTION two-way (UNKNOWN: one-way)."""
    request = EndRequest(
        address=address,
        producer_group=group,
        decision=decision,
        message_id=half.unique_key,
        transaction_id=half.transaction_id,
        tran_state_table_offset=others.get("tran_state_table_offset", half.queue_offset),
        commit_log_offset=others.get("commit_log_offset", half.commit_log_offset),
        from_transaction_check=others.get("from_transaction_check", False),
    )
    return end_transaction(client, request)
