"""What one process sends to brokers when it repairs: END and republish by the product's own RemotingBrokerRepairs, over
simulated wires.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import reconciler.evidence.repairs as broker_repairs
from reconciler.errors import BrokerUnavailable, RequestTimeout
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.ports.asked import Asked
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.producer.ending import EndAnswer, EndDecision, EndRequest, EndStatus
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord
from reconciler.words import said
from tests.simulation.broker import GONE
from tests.simulation.kernel import Process
from tests.simulation.witnesses import Cluster, FamiliesSeen, RoutesSeen, SimulatedEvidence, SimulatedLookups, ask


class _InstanceSeen:
    def __init__(self, process: Process, cluster: Cluster, routes: RoutesSeen) -> None:
        self.routes = routes
        self.families = FamiliesSeen(cluster)


class SimulatedRepairs(RemotingBrokerRepairs):
    """The product's repairs; the checkers are told of a request before it leaves."""

    def __init__(self, process: Process, cluster: Cluster, evidence: SimulatedEvidence) -> None:
        self.__dict__.update(
            {
                "_instance": _InstanceSeen(process, cluster, evidence.routes),
                "_lookups": evidence.lookups,
                "_client": evidence.lookups,
                "_sender": _SenderSeen(process, cluster, evidence.lookups),
                "_english": said,
            }
        )


class _SenderSeen:
    """Sends ordinary messages to the first broker of the route that has a turn."""

    def __init__(self, process: Process, cluster: Cluster, wires: SimulatedLookups) -> None:
        self._process = process
        self._cluster = cluster
        self._wires = wires

    def send_soon(self, message: Message) -> Asked[Any]:
        cluster, process = self._cluster, self._process
        assert message.unique_key is not None
        routed = cluster.routed
        broker = routed[process.kernel.dice.randrange(len(routed))]
        queue_id = process.kernel.dice.randrange(cluster.queues)
        properties = message.wire_properties(message.unique_key)
        if not broker.facts.indexes_unique_key:
            properties["KEYS"] = " ".join((message.unique_key, *message.keys))

        def store() -> MessageRecord:
            on_repair(process, message.unique_key or "", "republish")
            record = broker.append(message.topic, queue_id, properties, message.body)
            broker.on_copy(record)
            return record

        on_repair = process.kernel.on_repair
        return self._wires.sent(lambda: _Sent(ask(process, broker, store, "SEND republish", unanswered=RequestTimeout)))


class _Sent:
    def __init__(self, record: MessageRecord) -> None:
        self.broker_name = record.broker_name
        self.queue_id = record.queue_id
        self.queue_offset = record.queue_offset
        self.status = SimpleNamespace(name="SEND_OK", value=0)


def _end_soon(wires: SimulatedLookups, request: EndRequest) -> Asked[EndAnswer]:
    """reconciler.rocketmq.producer.ending.end_soon, as the repairs call it."""
    process, broker = wires.process, wires.cluster.at(request.address)
    is_commit = request.decision is EndDecision.COMMIT

    def end() -> tuple[int, str]:
        if is_commit:
            process.kernel.on_repair(process, request.message_id, "end")
            process.kernel.on_end(process, broker, broker.at_offset(request.commit_log_offset))
        else:
            process.kernel.on_close(request.message_id)
        answer: tuple[int, str] = broker.end(
            group=request.producer_group,
            table_offset=request.tran_state_table_offset,
            log_offset=request.commit_log_offset,
            is_commit=is_commit,
        )
        return answer

    def answer() -> EndAnswer:
        try:
            code, remark = ask(process, broker, end, "END")
        except (RequestTimeout, ConnectionLost) as error:
            return EndAnswer(status=EndStatus.NO_ANSWER, remark=str(error))
        except BrokerUnavailable as error:
            return EndAnswer(status=EndStatus.REFUSED_FOR_NOW, remark=str(error))
        return end_answer(code, remark)

    return wires.sent(answer)


def end_answer(code: int, remark: str) -> EndAnswer:
    """Sorted as reconciler.rocketmq.producer.ending.answer_of does."""
    if code == 0:
        status = EndStatus.DONE
    elif code in (2, 11, 14, 215, 604):
        status = EndStatus.REFUSED_FOR_NOW
    else:
        status = EndStatus.HALF_GONE if (code, remark) == GONE else EndStatus.MISMATCH
    return EndAnswer(status=status, code=code, remark=remark)


setattr(broker_repairs, "end_soon", _end_soon)  # noqa: B010 - the module does not export it
