"""The half of a message that a person dismisses: told with its end, and closed only where nobody needs it any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconciler.contract.outcomes import GROUP_NEEDS_IT
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import EndOutcome, HalfQuestions, Recorded, SendAnswer, StoredMessage
from reconciler.policy.open_halves import HalfState, OpenHalf, OpenHalves
from reconciler.policy.ports.asked import Asked, known
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

GROUPS = ("billing", "shipping")


class Errand:
    """A committed message whose half is open on one broker, and the groups that a person has dismissed it for."""

    def __init__(self, *dismissed: str) -> None:
        self.world = World(shards=1, groups=GROUPS)
        self.world.lose(1)
        self.readers: Sequence[str] | None = GROUPS
        self.asks(minutes=8)
        for group in dismissed:
            self.dismiss(group)

    def asks(self, *, minutes: int) -> None:
        """From now on, by the broker's settings."""
        until_ms = self.world.clock.now_ms() + minutes * 60_000
        self.world.broker.check_back = HalfQuestions(
            is_asked=True, until_ms=until_ms, never_after_ms=until_ms + 72 * 3_600_000
        )

    def dismiss(self, group: str) -> None:
        told = {"dismissed_by": "operator anna", "dismissed_because": "paid by hand"}
        self.rule(group, CandidateState.SETTLED, told)

    def rule(self, group: str, state: CandidateState, evidence: Mapping[str, object]) -> None:
        (subscription,) = [s for s in self.world.subscriptions if s.group == group]
        verdict = VerdictEntry(
            unique_key=key(1),
            verdict=Verdict.QUARANTINED,
            state=state,
            evidence=evidence,
            first_seen_ms=1,
            wait_seconds=0,
        )
        self.world.ledger.candidates.record(Shard(subscription=subscription, number=0), [verdict])

    def ledger(self) -> KeyInLedger:
        life = self.world.ledger.reports.life(ENVIRONMENT, key(1))
        return KeyInLedger(candidates=life.candidates, repairs=life.repairs)

    @property
    def halves(self) -> OpenHalves:
        world = self.world
        return OpenHalves(
            brokers=world.broker,
            sends=world.broker,
            outbox=world.outbox,
            inbox=world.inbox,
            readers=lambda _: self.readers,
            clock=world.clock,
        )

    def look(self, *dismissing: str) -> OpenHalf:
        return self.halves.look(self.world.topic, key(1), ledger=self.ledger(), dismissing=dismissing)

    def close(self) -> tuple[bool, str]:
        ended = self.halves.close(self.world.topic, key(1), read_ledger=self.ledger)
        return ended.is_closed, said(ended.told)

    @property
    def rolled_back(self) -> list[int]:
        return [offset for _, offset, commit in self.world.broker.ends if not commit]


def test_an_open_half_is_told_with_what_is_answered_and_until_when() -> None:
    found = Errand().look()
    assert found.state is HalfState.OPEN
    assert "broker-a, which may deliver it until about 2023-11-14T22:21" in said(found.told)
    assert "if it stands still, until 2023-11-17T22:21" in said(found.told)
    assert "its producer answers COMMIT" in said(found.told)


def test_it_may_be_closed_once_each_group_is_dismissed_by_this_act_or_another_or_has_its_effect() -> None:
    errand = Errand("billing")
    objection = errand.look().objection
    assert objection is not None
    assert (objection.code, objection.fields["group"]) == (GROUP_NEEDS_IT, "shipping")
    assert errand.look("shipping").objection is None, "the act that is looked at dismisses it"
    errand.world.apply("shipping", errand.world.broker.halves[0])
    assert errand.look().objection is None
    assert errand.close()[0]
    assert errand.rolled_back == [errand.world.broker.halves[0].commit_log_offset]


def _other_effect(errand: Errand) -> None:
    errand.rule("shipping", CandidateState.QUARANTINED, {})
    half = errand.world.broker.halves[0]
    errand.world.apply("shipping", replace(half, body=b"of another message"))


def _only_settled(errand: Errand) -> None:
    errand.rule("shipping", CandidateState.SETTLED, {})


def _half_an_effect(errand: Errand) -> None:
    errand.rule("shipping", CandidateState.QUARANTINED, {})
    half = errand.world.broker.halves[0]
    row = replace(errand.world.inbox_row("shipping", key(1), half.content_digest), incomplete="4711")
    errand.world.inbox.rows["shipping", key(1)] = row


def _inbox_away(errand: Errand) -> None:
    errand.world.apply("shipping", errand.world.broker.halves[0])
    errand.world.inbox.away = True


def _row(errand: Errand, **changes: Any) -> None:
    errand.world.outbox.rows[key(1)] = replace(errand.world.outbox.rows[key(1)], **changes)


def _repair_at_work(errand: Errand) -> None:
    errand.world.ledger.repairs.open(ENVIRONMENT, TOPIC, key(1), rung=Rung.END)


DOUBTS: dict[str, tuple[Callable[[Errand], object], str]] = {
    "a group that is no subscription": (lambda e: setattr(e, "readers", (*GROUPS, "audit")), "group audit reads"),
    "a broker that does not name its groups": (lambda e: setattr(e, "readers", None), "did not tell which groups"),
    "a group that was settled otherwise": (_only_settled, "group shipping has no effect"),
    "an effect of another message": (_other_effect, "group shipping has no effect"),
    "half an effect": (_half_an_effect, "group shipping has no effect"),
    "an inbox that is away": (_inbox_away, "group shipping has no effect"),
    "an outbox that is away": (lambda e: setattr(e.world.outbox, "away", True), "the outbox is not known"),
    "a row that was rolled back": (lambda e: _row(e, state=OutboxState.ROLLED_BACK), "no committed row"),
    "no row": (lambda e: e.world.outbox.rows.clear(), "no committed row"),
    "a repair that has not ended": (_repair_at_work, "a repair of it is OPEN"),
}


@pytest.mark.parametrize("doubt", list(DOUBTS))
def test_it_is_not_closed_while_somebody_may_need_it(doubt: str) -> None:
    make, told = DOUBTS[doubt]
    errand = Errand("billing") if "shipping" in told else Errand(*GROUPS)
    make(errand)
    found = errand.look()
    assert found.state is HalfState.OPEN
    assert found.objection is not None
    assert told in said(found.objection)
    is_closed, why = errand.close()
    assert (is_closed, errand.world.broker.ends) == (False, [])
    assert told in why


def _committed(errand: Errand) -> None:
    errand.world.broker.commit(errand.world.broker.halves[0])


def _parked(errand: Errand) -> None:
    errand.world.broker.parked.append(errand.world.broker.halves[0])


def _never_asks(errand: Errand) -> None:
    errand.world.broker.check_back = HalfQuestions(is_asked=False, until_ms=0, never_after_ms=0)


def _rolled_back(errand: Errand) -> None:
    errand.world.broker.rollback_evident_after = 60.0
    errand.world.clock.advance(61)


STATES: dict[str, tuple[Callable[[Errand], object], HalfState, str]] = {
    "no half": (lambda e: e.world.broker.halves.clear(), HalfState.NONE, "no broker has a half"),
    "a copy": (_committed, HalfState.COMMITTED, "the message is in its topic"),
    "a parked copy": (_parked, HalfState.ENDED, "given the half up"),
    "up to 4.2": (_never_asks, HalfState.ENDED, "never asks"),
    "a half that was rolled back": (_rolled_back, HalfState.ENDED, "rolled back"),
    "its time is over": (lambda e: e.world.clock.advance(481), HalfState.ENDED, "asks no more"),
    "another message's half": (
        lambda e: _row(e, content_digest=b"x" * 32),
        HalfState.NONE,
        "no broker has a half",
    ),
    "a broker that does not answer": (lambda e: e.world.broker.unknown.add("halves"), HalfState.UNKNOWN, "timed out"),
    "an index that is behind": (
        lambda e: setattr(e.world.broker, "proves_horizon", False),
        HalfState.UNKNOWN,
        "committed is not known",
    ),
}


@pytest.mark.parametrize("state", list(STATES))
def test_what_is_not_open_is_told_as_what_it_is_and_nothing_is_sent(state: str) -> None:
    errand = Errand(*GROUPS)
    make, expected, told = STATES[state]
    make(errand)
    found = errand.look()
    assert (found.state, told in said(found.told)) == (expected, True), found.told
    assert errand.close()[0] is False
    assert errand.world.broker.ends == []


def test_an_open_half_whose_broker_does_not_tell_its_settings_has_no_end() -> None:
    errand = Errand(*GROUPS)
    errand.world.broker.check_back = None
    found = errand.look()
    assert (found.state, found.until_ms, found.objection) == (HalfState.OPEN, None, None)
    assert "until when broker-a may deliver it is not known" in said(found.told)


@pytest.mark.parametrize("stands", ["ab", "a", "b"])
@pytest.mark.parametrize(("hours", "state"), [(1, HalfState.OPEN), (73, HalfState.ENDED)])
def test_a_half_that_a_check_service_has_not_come_to_in_time_is_open_until_it_may_not_ask_any_more(
    hours: int, state: HalfState, stands: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two brokers with a half, the service of each stands still, or that of one."""
    errand = Errand(*GROUPS)
    broker = errand.world.broker
    broker.halves.append(replace(broker.halves[0], broker="broker-b", commit_log_offset=7))
    monkeypatch.setattr(broker, "is_past_check", lambda half: half.broker[-1] not in stands)
    errand.world.clock.advance(hours * 3_600)
    found = errand.look()
    assert found.state is state, found.told
    assert "2023-11-17T22:21" in said(found.told)
    assert errand.close()[0] is (state is HalfState.OPEN)


def test_a_copy_that_a_check_puts_back_meanwhile_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    errand = Errand(*GROUPS)
    broker = errand.world.broker
    plain = broker.end_transaction

    def end(half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        answer = plain(half, expected=expected, commit=commit)()()
        if len(broker.halves) == 1:
            broker.put_back(half)
        return lambda: known(answer)

    monkeypatch.setattr(broker, "end_transaction", end)
    assert errand.close()[0]
    assert errand.rolled_back == [half.commit_log_offset for half in broker.halves]
    assert len(errand.rolled_back) == 2


def test_a_repair_by_hand_that_begins_between_two_ends_stops_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    errand = Errand(*GROUPS)
    broker = errand.world.broker
    plain = broker.end_transaction

    def end(half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        answer = plain(half, expected=expected, commit=commit)()()
        broker.put_back(half)
        _repair_at_work(errand)
        return lambda: known(answer)

    monkeypatch.setattr(broker, "end_transaction", end)
    is_closed, why = errand.close()
    assert (is_closed, len(errand.rolled_back)) == (False, 1)
    assert "a repair of it is OPEN" in why


@pytest.mark.parametrize("outcome", [EndOutcome.NO_ANSWER, EndOutcome.REFUSED_FOR_NOW, EndOutcome.NOT_SENT])
def test_an_end_that_was_not_answered_is_not_told_as_closed(outcome: EndOutcome) -> None:
    errand = Errand(*GROUPS)
    errand.world.broker.scripted = [SendAnswer(outcome=outcome, detail="broker is busy")]
    is_closed, told = errand.close()
    assert not is_closed
    assert f"{outcome} broker is busy" in told


def test_halves_on_two_brokers_are_both_closed() -> None:
    errand = Errand(*GROUPS)
    broker = errand.world.broker
    broker.halves.append(replace(broker.halves[0], broker="broker-b", commit_log_offset=7))
    assert errand.close()[0]
    assert len(errand.rolled_back) == 2
    assert RepairState.DONE not in {repair.state for repair in errand.ledger().repairs}
