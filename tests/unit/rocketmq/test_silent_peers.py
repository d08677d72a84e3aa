"""A broker or name server that takes connections and answers nothing costs who looks one deadline for all questions."""

from __future__ import annotations

from contextlib import closing, suppress
from math import inf

import pytest

from reconciler.clock import Backoff
from reconciler.errors import BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.rocketmq.client import demands
from reconciler.rocketmq.client.name_servers import NameServers
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import TopicNotFound
from reconciler.rocketmq.wire.frame import Command, reply_to
from tests.polling import eventually
from tests.unit.rocketmq.peers import Peer, answering, drain

ASK = Command(code=26)
NEVER = Backoff(first_seconds=inf, longest_seconds=inf)
TOPIC_UNKNOWN = answering(lambda request: reply_to(request, 17, remark="No topic route info"))


def ask(client: RemotingClient, address: str) -> ReconcilerError:
    """Why it did not answer."""
    try:
        client.request(address, ASK)
    except ReconcilerError as error:
        return error
    pytest.fail("it has answered")


@pytest.mark.parametrize("has_spoken", [False, True])
def test_a_silent_peer_is_not_asked_again_and_says_why(has_spoken: bool) -> None:
    spoken: list[Command] = []

    def once(request: Command) -> Command | None:
        spoken.append(request)
        return reply_to(request, 0) if has_spoken and len(spoken) == 1 else None

    with (
        Peer(answering(once)) as peer,
        closing(RemotingClient(request_timeout_seconds=0.5, silence_pauses=NEVER)) as client,
    ):
        if has_spoken:
            client.request(peer.address, ASK, timeout_seconds=60)
        assert isinstance(ask(client, peer.address), RequestTimeout)
        for _ in range(20):
            again = ask(client, peer.address)
            assert isinstance(again, BrokerUnavailable)
            assert "not asked again; the last failure" in str(again)
        eventually(lambda: peer.connections == 1, within_seconds=60)
        eventually(lambda: len(spoken) == 1 + has_spoken, within_seconds=60)


def test_a_silent_peer_is_asked_again_after_its_pause_and_by_all_once_it_answers() -> None:
    silent = [True]
    pauses = Backoff(first_seconds=0.2, longest_seconds=0.2)
    with (
        Peer(answering(lambda request: None if silent[0] else reply_to(request, 0))) as peer,
        closing(RemotingClient(request_timeout_seconds=0.3, silence_pauses=pauses)) as client,
    ):
        ask(client, peer.address)
        silent[0] = False

        def answers() -> bool:
            with suppress(ReconcilerError):
                return client.request(peer.address, ASK, timeout_seconds=60).code == 0
            return False

        eventually(answers, within_seconds=60)
        assert client.request(peer.address, ASK, timeout_seconds=60).code == 0


def test_a_silent_name_server_costs_unknown_topics_one_deadline_together() -> None:
    with (
        Peer(drain) as silent,
        Peer(TOPIC_UNKNOWN) as other,
        closing(RemotingClient(request_timeout_seconds=5, silence_pauses=NEVER)) as client,
    ):
        name_servers = NameServers(f"{silent.address};{other.address}", client)
        for number in range(20):
            with pytest.raises(TopicNotFound):
                name_servers.topic_route(f"%RETRY%group-{number}")
        eventually(lambda: silent.connections == 1, within_seconds=60)


def test_a_silent_peer_is_not_asked_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demands, "_HANDSHAKE_SECONDS", 0.5)
    with (
        Peer(drain) as peer,
        closing(RemotingClient(request_timeout_seconds=0.3, silence_pauses=NEVER)) as client,
    ):
        for _ in range(2):
            assert demands.demand_behind(ask(client, peer.address), peer.address) is None
        lost = BrokerUnavailable("no name server answers")
        lost.__cause__ = RequestTimeout("no answer in time")
        assert demands.demand_behind(lost, peer.address) is None
        eventually(lambda: peer.connections == 1, within_seconds=60)
