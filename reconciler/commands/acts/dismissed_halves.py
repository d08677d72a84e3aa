"""The halves of messages that a person dismisses.

A half is reported before the act. If no group needs the half any more, the act can close it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields

from reconciler.clock import utc_text
from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.brokers import groups_reading
from reconciler.contract.facts import Fact
from reconciler.contract.outcomes import END_UNKNOWN, MUST_STAY, NOT_LOOKED_AT, NOT_LOOKED_FOR
from reconciler.errors import ReconcilerError
from reconciler.policy.open_halves import HalfState, OpenHalves
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import build_witnesses
from reconciler.wiring.rounds import broker_repairs
from reconciler.words import said

_OFFER = (
    "END ROLLBACK may close it: --roll-back-half, unless a broadcasting group needs it whose members are all stopped: "
    "no broker knows one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfLine:
    """The report about the half of one key."""

    topic: str
    unique_key: str
    state: HalfState
    told: Fact
    #: Approximate UTC time at which the broker gives the half up. None: the half is not open, or the time is unknown.
    until: str | None = None
    #: True if this look found nothing that forbids END ROLLBACK. Another look follows before END ROLLBACK is sent.
    can_be_closed: bool = False
    #: True if every broker with the half answered END ROLLBACK.
    closed: bool = False

    @property
    def sentence(self) -> str:
        """The report in one line, and what the person may do."""
        offer = f"; {_OFFER}" if self.can_be_closed else ""
        return f"{self.unique_key} of {self.topic}: {said(self.told)}{offer}"

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"told": said(self.told), "fact": self.told.as_dict()}

    @property
    def is_left(self) -> bool:
        """True if the broker may still deliver the half, as far as this is known."""
        return not self.closed and self.state in (HalfState.OPEN, HalfState.UNKNOWN)


class DismissedHalves:
    """Looks at the halves of one command's keys. A broker that is away is reported. It prevents no dismissal."""

    def __init__(self, connections: Connections) -> None:
        witnesses = build_witnesses(connections)
        self._connections = connections
        self._halves = OpenHalves(
            brokers=witnesses.brokers,
            sends=broker_repairs(connections),
            outbox=witnesses.outbox,
            inbox=witnesses.inbox,
            readers=lambda topic: groups_reading(connections, topic),
            clock=connections.clock,
        )

    def look(self, topic: TopicPlan, unique_key: str, *, ledger: KeyInLedger, dismissing: Collection[str]) -> HalfLine:
        """Looks at the half before the act. `dismissing`: the groups for which the act would dismiss the key."""
        try:
            found = self._halves.look(topic, unique_key, ledger=ledger, dismissing=dismissing)
        except ReconcilerError as error:
            return _unknown(topic.topic, unique_key, NOT_LOOKED_AT(error=str(error)))
        is_open = found.state is HalfState.OPEN
        told = found.told
        if is_open and found.objection is not None:
            told = MUST_STAY(half=told, why=found.objection)
        return HalfLine(
            topic=topic.topic,
            unique_key=unique_key,
            state=found.state,
            told=told,
            until=None if found.until_ms is None else utc_text(found.until_ms),
            can_be_closed=is_open and found.objection is None,
        )

    def close(
        self, topic: TopicPlan, unique_key: str, *, read_ledger: Callable[[], KeyInLedger], by: str, reason: str
    ) -> HalfLine:
        """Closes the half after the dismissal. The closing is recorded as a separate act."""
        try:
            with recorded(
                self._connections, "roll-back", by=by, topic=topic.topic, unique_key=unique_key, detail=reason
            ) as outcome:
                ended = self._halves.close(topic, unique_key, read_ledger=read_ledger)
                outcome.result = said(ended.told)
        except ReconcilerError as error:
            return _unknown(topic.topic, unique_key, END_UNKNOWN(error=str(error)))
        return HalfLine(
            topic=topic.topic, unique_key=unique_key, state=ended.state, told=ended.told, closed=ended.is_closed
        )


def not_looked_for(topic: str, unique_key: str) -> HalfLine:
    """Returns the report for a topic that is no longer configured."""
    return _unknown(topic, unique_key, NOT_LOOKED_FOR())


def _unknown(topic: str, unique_key: str, told: Fact) -> HalfLine:
    return HalfLine(topic=topic, unique_key=unique_key, state=HalfState.UNKNOWN, told=told)
