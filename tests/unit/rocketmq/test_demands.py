"""A broker that wants TLS or a signature looks like one that is away, or like a bug: it is named instead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from reconciler.errors import AccessRefused, BrokerRefused, BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.rocketmq.client import demands
from reconciler.rocketmq.client.demands import (
    REMEDIES,
    PeerDemand,
    demand_behind,
    explained,
    remedy_of,
)
from reconciler.rocketmq.wire.access_refusal import access_refusal
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from tests.services.ports import free_port

NOWHERE = "127.0.0.1:1"
#: As the brokers sent them.
OF_4_9_7 = (
    "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, "
    "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)"
)
OF_5_3_3 = "username cannot be null."
#: A TLS record: fatal alert, handshake_failure; as from a server that wants a certificate of ours.
ALERT = bytes.fromhex("15030300020228")
LOST = BrokerUnavailable("closed by the peer")


@pytest.fixture(autouse=True)
def _patient_hand_shakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that answers late is none that answers nothing."""
    monkeypatch.setattr(demands, "_HANDSHAKE_SECONDS", 30.0)


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Answers whatever comes first with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", free_port())) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("code", "remark"), [(1, OF_4_9_7), (16, OF_5_3_3)])
def test_broker_with_access_control_is_told_from_one_that_fails(code: int, remark: str) -> None:
    error = access_refusal(Command(code=code, remark=remark), RequestCode.GET_MAX_OFFSET, {"topic": "T"}, NOWHERE)
    assert isinstance(error, AccessRefused)
    assert demand_behind(error, NOWHERE) == PeerDemand.WANTS_AUTHENTICATION
    assert "rocketmq.acl" in remedy_of(PeerDemand.WANTS_AUTHENTICATION, error)
    assert explained(error, NOWHERE) == f"wants authentication: {error}"


@pytest.mark.parametrize(
    "error",
    [
        BrokerRefused(16, "the topic[ORDERS] sending message is forbidden"),
        BrokerRefused(1, "NullPointerException"),
        BrokerRefused(1, None),
        RequestTimeout("no answer"),
        BrokerUnavailable("connection refused"),
    ],
)
def test_what_fails_for_another_reason_keeps_its_own(error: ReconcilerError) -> None:
    assert demand_behind(error, NOWHERE) is None
    assert explained(error, NOWHERE) == str(error)


def test_peer_that_answers_tls_with_tls_wants_it() -> None:
    with server(ALERT) as address:
        assert demand_behind(LOST, address) == PeerDemand.WANTS_TLS
    assert "[rocketmq.tls] enabled = true" in REMEDIES[PeerDemand.WANTS_TLS]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_peer_that_closes_or_talks_otherwise_does_not_want_tls(answer: bytes) -> None:
    ask: Callable[[str], str | None] = lambda address: demand_behind(LOST, address)  # noqa: E731
    with server(answer) as address:
        assert ask(address) is None
