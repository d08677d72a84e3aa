"""What can happen next in the world in which halves announce. Verdicts and decisions on repairs are the product's.

The looks right before a byte, and the byte, are one action (`Repairer._unless_answered`): nothing comes between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.policy.evidence import EndOutcome
from tests.model.halves.product import Seen, after, decided, judged, seen_of
from tests.model.halves.state import (
    Answer,
    Bounds,
    Copies,
    Half,
    Hand,
    Known,
    Repairing,
    Rules,
    State,
    Transaction,
    Try,
    Wrong,
)


class Step(NamedTuple):
    """What happens, to which try (-1: to none), and what follows."""

    name: str
    number: int
    after: State
    #: False: it may happen, and nothing may depend on it.
    is_work: bool = True


#: Verdicts that the ledger keeps open: it looks at the try again.
_OPEN = frozenset(
    {
        Known.NONE, Known.LOST, Known.TRIES, Known.OTHER_DELIVERED, Known.NO_TRY_DELIVERED, Known.LAGGING,
        Known.UNKNOWN,
    }
)  # fmt: skip
_UNDER_WAY = frozenset({Repairing.OPEN, Repairing.SENDING, Repairing.SENT})


def steps(s: State, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    """Everything that can follow."""
    for i, one in enumerate(s.tries):
        if one.half is Half.NONE:
            yield from _tried_again(s, i)
            continue
        yield from _service(s, i, one)
        yield from _broker(s, i, one, bounds)
        if rules.has_effect_query and one.copies and not one.applied:
            yield Step("the handler writes its row", i, _with(s, i, one._replace(applied=1)), is_work=False)
        if one.hand:
            yield from _last_looks(s, i, one, rules)
        elif one.aged:
            yield from _judged(s, i, one, rules)
            yield from _decided(s, i, one, rules)
    yield from _producers(s)
    if any(one.half and not one.aged for one in s.tries):
        aged = tuple(one._replace(aged=1) if one.half else one for one in s.tries)
        yield Step("time passes", -1, s._replace(tries=aged))
    if s.away == 1 and not s.connected:
        yield Step("an interval passes without a producer", -1, s._replace(away=2))


def _with(s: State, i: int, one: Try) -> State:
    return s._replace(tries=(*s.tries[:i], one, *s.tries[i + 1 :]))


# ---- services


def _tried_again(s: State, i: int) -> Iterator[Step]:
    if s.connected and s.tries[i - 1].half is not Half.NONE:
        again = Try(transaction=Transaction.RUNNING, half=Half.OPEN)
        yield Step("the service tries the order again", i, _with(s, i, again), is_work=False)


def _service(s: State, i: int, one: Try) -> Iterator[Step]:
    """The local transaction ends, and the service says so to the broker."""
    if one.transaction is Transaction.RUNNING:
        commits = one._replace(transaction=Transaction.COMMITTED, answer=Answer.COMMIT)
        yield Step("commits locally", i, _with(s, i, commits))
        undoes = one._replace(transaction=Transaction.ROLLED_BACK, answer=Answer.ROLLBACK)
        yield Step("rolls back", i, _with(s, i, undoes))
        yield Step("gives the try up", i, _with(s, i, one._replace(transaction=Transaction.GIVEN_UP)))
        if s.lost:
            misled = one._replace(transaction=Transaction.MISBELIEVED, answer=Answer.ROLLBACK)
            yield Step("commits locally, believes in a rollback", i, _with(s, i, misled)._replace(lost=s.lost - 1))
    if one.answer:
        yield Step("END", i, _with(s, i, _ended(one)))
        if s.lost:
            yield Step("END lost", i, _with(s, i, _silent(one))._replace(lost=s.lost - 1))


def _silent(one: Try) -> Try:
    return one._replace(answer=Answer.NONE, aims_low=0)


def _ended(one: Try) -> Try:
    """END of a producer closes the newest half alone, and each COMMIT makes a copy."""
    half = Half.ENDED if one.half is Half.OPEN and not one.aims_low else one.half
    copies = one.copies
    if one.answer is Answer.COMMIT:
        copies = Copies.THEIRS if copies in (Copies.NONE, Copies.THEIRS) else Copies.TWICE
    return _silent(one)._replace(half=half, copies=copies, passed=one.passed if copies is one.copies else 0)


def _producers(s: State) -> Iterator[Step]:
    """Go and come. A broker reads what a connection brought before it sees that the connection is closed."""
    if s.connected and s.leaves:
        left = tuple(map(_left_alone, s.tries))
        yield Step("all producers go", -1, s._replace(tries=left, connected=0, leaves=s.leaves - 1))
    if not s.connected and s.comes:
        yield Step("a producer comes back", -1, s._replace(connected=1, comes=s.comes - 1))


def _left_alone(one: Try) -> Try:
    is_running = one.transaction is Transaction.RUNNING
    return _silent(one)._replace(transaction=Transaction.GIVEN_UP if is_running else one.transaction)


# ---- the broker and its consumers


def _broker(s: State, i: int, one: Try, bounds: Bounds) -> Iterator[Step]:
    if one.half is Half.OPEN and one.put_back == bounds.questions:
        yield Step("the broker gives the half up", i, _with(s, i, one._replace(half=Half.PARKED)))
    elif one.half is Half.OPEN:
        answer = one.answer or (_says(one.transaction) if s.connected else Answer.NONE)
        back = one._replace(
            put_back=one.put_back + 1,
            fresh=int(s.away > 0),
            answer=answer,
            aims_low=int(one.answer > 0),
            hand_low=int(one.hand is Hand.END),
        )
        yield Step("check round", i, _with(s, i, back))
    if one.copies and not one.passed:
        yield Step("the group passes the copy", i, _with(s, i, one._replace(passed=1)))


def _says(transaction: Transaction) -> Answer:
    """The listener of any instance; it never decides a try that was given up."""
    if transaction is Transaction.COMMITTED:
        return Answer.COMMIT
    is_over = transaction in (Transaction.ROLLED_BACK, Transaction.MISBELIEVED)
    return Answer.ROLLBACK if is_over else Answer.NONE


# ---- the reconciler


def _seen(s: State, i: int) -> Seen:
    return seen_of(s.tries, i, connected=s.connected, away=s.away)


def _judged(s: State, i: int, one: Try, rules: Rules) -> Iterator[Step]:
    seen = _seen(s, i)
    is_asked_again = one.known is Known.REJECTED and seen.is_paid and rules.asks_again_for_rows
    is_asked_again |= one.known is Known.DELIVERED_NOT_APPLIED and seen.is_applied
    if not (is_asked_again or one.known in _OPEN):
        return
    known = judged(seen, rules)
    now = one._replace(known=known, was_lost=int(one.was_lost or known is Known.LOST))
    if known is Known.LOST and one.repair is Repairing.NONE:
        now = now._replace(repair=Repairing.OPEN)
    yield Step(f"verdict: {known.name}", i, _with(s, i, now)._replace(wrong=_wrong(s, one, known, rules)))


def _wrong(s: State, one: Try, known: Known, rules: Rules) -> Wrong:
    """What a verdict breaks."""
    has_row = any(other.applied for other in s.tries)
    if known is Known.DELIVERED_NOT_APPLIED and has_row:
        return Wrong.ROW_UNSEEN
    if (known is Known.CONSUMED and not has_row) or (known is Known.DELIVERED and rules.has_effect_query):
        return Wrong.NO_ROW
    is_called_passed = known in (Known.DELIVERED, Known.DELIVERED_NOT_APPLIED)
    return Wrong.NOT_PASSED if is_called_passed and not (one.copies and one.passed) else s.wrong


def _decided(s: State, i: int, one: Try, rules: Rules) -> Iterator[Step]:
    """A repair is claimed and decided. While its owner is about to send, nobody else decides."""
    if one.repair not in _UNDER_WAY:
        return
    seen = _seen(s, i)
    made = decided(seen, rules)
    then = _looked(s) if made.looked_for_producers else s
    is_sending = made.hand is not Hand.NOTHING
    now = then.tries[i]._replace(
        repair=made.repair,
        hand=made.hand,
        hand_low=int(made.aims_low),
        tried=int(one.tried or is_sending),
        hand_beside=int(is_sending and seen.has_other),
    )
    name = "SENDING is written" if is_sending else f"repair: {made.repair.name}"
    yield Step(name, i, _with(then, i, now)._replace(wrong=Wrong.CLOSED if made.closes else s.wrong))


def _looked(s: State) -> State:
    """One more look for producers. The first look that finds none notes where the half queue ends."""
    away = 0 if s.connected else max(1, s.away)
    is_noted_anew = away == 0 or s.away == 0
    tries = tuple(one._replace(fresh=0) for one in s.tries) if is_noted_anew else s.tries
    return s._replace(away=away, tries=tries)


def _last_looks(s: State, i: int, one: Try, rules: Rules) -> Iterator[Step]:
    """The looks right before the byte, and the byte."""
    seen, idle, is_end = _seen(s, i), _idle(one), one.hand is Hand.END
    is_held_back = (
        (rules.looks_for_newest and one.hand_low)
        or (rules.looks_for_copies and one.copies)
        or (rules.looks_for_producers and is_end and s.connected)
    )
    if is_held_back:
        back = idle._replace(repair=after(seen, one.hand, EndOutcome.HELD_BACK, rules), tried=0)
        yield Step("a last look holds the send back", i, _with(s, i, back))
    else:
        wrong = Wrong.RACE if is_end and one.half is Half.OPEN and s.connected else s.wrong
        wrong = Wrong.SIBLING if one.hand_beside else wrong
        unanswered, sent = after(seen, one.hand, EndOutcome.NO_ANSWER, rules), _sent(one)
        done = sent._replace(repair=after(seen, one.hand, EndOutcome.DONE, rules))
        yield Step(f"{one.hand.name} by us", i, _with(s, i, done)._replace(wrong=wrong))
        if s.lost:
            silent = _with(s, i, sent._replace(repair=unanswered))
            yield Step(f"{one.hand.name} by us, answer lost", i, silent._replace(wrong=wrong, lost=s.lost - 1))
            gone = _with(s, i, idle._replace(repair=unanswered))
            yield Step(f"{one.hand.name} by us, request lost", i, gone._replace(lost=s.lost - 1))
    if s.crashes:
        left = s._replace(tries=tuple(map(_idle, s.tries)), away=0, crashes=s.crashes - 1)
        yield Step("reconciler dies before its send", i, left)


def _idle(one: Try) -> Try:
    return one._replace(hand=Hand.NOTHING, hand_low=0, hand_beside=0)


def _sent(one: Try) -> Try:
    """Our copy. What a producer had on its way before may make one more: that is said in the guarantees."""
    is_closed = one.hand is Hand.END and one.half is Half.OPEN and not one.hand_low
    return _idle(one)._replace(
        copies=Copies.OURS if one.copies is Copies.NONE else Copies.TWICE,
        passed=0,
        half=Half.ENDED if is_closed else one.half,
        answer=Answer.NONE if one.answer is Answer.COMMIT else one.answer,
    )
