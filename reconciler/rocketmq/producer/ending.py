"""END_TRANSACTION, which is sent two-way so that the answer is known (EndTransactionRequestHeader,
EndTransactionProcessor).

Brokers check only the group and the offsets of an END. So each accepted COMMIT delivers the message once more, even
after a rollback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from reconciler.errors import BrokerBusy, BrokerUnavailable, ProtocolViolation, ReconcilerError, RequestTimeout
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command

_FOR_NOW = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.ILLEGAL_OPERATION,
    }
)
#: Maximum number of characters of an END's remark, which is for the broker's log.
_REMARK_CHARACTERS = 500
#: The remark of every broker version, apart from the case of the first letter.
_HALF_GONE = "find prepared transaction message failed"


class EndDecision(IntEnum):
    """Values of commitOrRollback."""

    UNKNOWN = 0
    COMMIT = int(SystemFlag.COMMIT)
    ROLLBACK = int(SystemFlag.ROLLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The request that ends a transaction. Offsets are those of the newest half copy on the master at the address."""

    address: str
    producer_group: str
    #: The queueOffset of the half copy, or 0 for brokers up to 4.2.
    tran_state_table_offset: int
    commit_log_offset: int
    decision: EndDecision
    #: Unique key. Brokers never compare it.
    message_id: str
    transaction_id: str | None = None
    #: True for an answer to a check-back. Brokers accept this END even after the immunity window, when 5.1.1 refuses
    #: any other END (code 604).
    from_transaction_check: bool = False
    #: The reason why a listener's answer is UNKNOWN. END carries the reason as remark, which brokers log. The remark is
    #: cut to 500 characters.
    remark: str | None = None

    def as_command(self) -> Command:
        """Makes the request."""
        fields = {
            "producerGroup": self.producer_group,
            "tranStateTableOffset": str(self.tran_state_table_offset),
            "commitLogOffset": str(self.commit_log_offset),
            "commitOrRollback": str(int(self.decision)),
            "fromTransactionCheck": "true" if self.from_transaction_check else "false",
            "msgId": self.message_id,
        }
        if self.transaction_id is not None:
            fields["transactionId"] = self.transaction_id
        remark = self.remark[:_REMARK_CHARACTERS] if self.remark else None
        return Command(code=RequestCode.END_TRANSACTION, fields=fields, remark=remark)


class EndStatus(StrEnum):
    """The outcome of an END, grouped by what follows from it."""

    #: Code 0: executed.
    DONE = "DONE"
    #: END was certainly not executed, and another try is worth it. The code was 2, 11, 14, 215 or 604, or the request
    #: never left.
    REFUSED_FOR_NOW = "REFUSED_FOR_NOW"
    #: Another record is at the offset.
    MISMATCH = "MISMATCH"
    #: The half is gone. The broker's remark is "find prepared transaction message failed".
    HALF_GONE = "HALF_GONE"
    #: No answer came. END may have been executed.
    NO_ANSWER = "NO_ANSWER"
    #: This client did not send the END.
    NOT_SENT = "NOT_SENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAnswer:
    """The outcome of an END. If no broker answered, `code` is None and `remark` says why."""

    status: EndStatus
    code: int | None = None
    remark: str | None = None


#: Errors of a failing broker. answer_of() turns them into outcomes.
_FAILURES = (BrokerUnavailable, BrokerBusy, RequestTimeout, ProtocolViolation)
#: The outcome of an END that is sent one-way. Nobody learns whether it was executed.
NOT_ASKED = EndAnswer(status=EndStatus.NO_ANSWER, remark="sent one-way")


def end_transaction(client: RemotingClient, request: EndRequest, *, timeout_seconds: float | None = None) -> EndAnswer:
    """Sends END and returns its outcome. Never raises for a failing broker. An END with UNKNOWN always goes one-way."""
    try:
        if request.decision is EndDecision.UNKNOWN:
            client.oneway(request.address, request.as_command())
            return NOT_ASKED
        return answer_of(client.request(request.address, request.as_command(), timeout_seconds=timeout_seconds))
    except _FAILURES as error:
        return answer_of(error)


def end_soon(client: RemotingClient, request: EndRequest) -> Callable[[], EndAnswer]:
    """Sends one of many ENDs, and does not wait for the answer. The returned function waits and returns the outcome."""
    try:
        future = client.pipeline(request.address, request.as_command())
    except _FAILURES as error:
        refused = answer_of(error)
        return lambda: refused

    def hear() -> EndAnswer:
        try:
            return answer_of(client.wait(future, client.request_timeout_seconds, f"{request.address}: END"))
        except _FAILURES as error:
            return answer_of(error)

    return hear


def answer_of(answer: Command | ReconcilerError) -> EndAnswer:
    """Returns the outcome that an answer, or an error in place of an answer, stands for."""
    if isinstance(answer, RequestTimeout | ConnectionLost):
        return EndAnswer(status=EndStatus.NO_ANSWER, remark=str(answer))
    if isinstance(answer, ReconcilerError):
        return EndAnswer(status=EndStatus.REFUSED_FOR_NOW, remark=str(answer))
    if answer.code == ResponseCode.SUCCESS:
        status = EndStatus.DONE
    elif answer.code in _FOR_NOW:
        status = EndStatus.REFUSED_FOR_NOW
    elif _HALF_GONE in (answer.remark or "").lower():
        status = EndStatus.HALF_GONE
    else:
        status = EndStatus.MISMATCH
    return EndAnswer(status=status, code=answer.code, remark=answer.remark)
