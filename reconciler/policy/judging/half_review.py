"""Reviews by its half a verdict that rests on a missing outbox row. Pure, like judgement.py.

The outbox that was asked may be the wrong one. A half with a mark names the outbox that must have the row. For a half
without a mark its end decides. A half that was rolled back confirms the absence: its key was announced before its
transaction failed. But if the half is open, or its message was delivered, only the outbox says that there was no
commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.facts import Fact
from reconciler.contract.reasons import UNNAMED_LACKS_ROW
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.inquiry.delivery import copies_unknown, half_unknown, outbox_unknown
from reconciler.policy.judging.judgement import Judgement, missed_commit, rejected
from reconciler.policy.judging.suspect import Suspect


def review_half(suspect: Suspect) -> Judgement | Question:
    """Judges an announced key without a committed row once more, or returns the next question. REJECTED: the half
    confirms the absence, or there is none. UNKNOWN as a contradiction: the half denies the absence. Another UNKNOWN:
    the half does not tell yet."""
    own = suspect.own_halves
    if own is None:
        return Question.HALF_COPIES
    missed = missed_commit(suspect)
    if missed is None and suspect.outbox is not None and suspect.outbox.is_unknown:
        return _silent(outbox_unknown(suspect.outbox))  # another outbox of the topic has proved its absence
    if missed is None and own.is_unknown:
        return _silent(half_unknown(own))
    if missed is None or missed.reason.code is not UNNAMED_LACKS_ROW:
        return missed or rejected(suspect)
    return _by_its_end(suspect, own.records, missed)


def _by_its_end(suspect: Suspect, halves: Sequence[StoredMessage], missed: Judgement) -> Judgement | Question:
    """Judges a key whose half has no mark. `missed`: the verdict if the half was not rolled back."""
    look = suspect.check_back
    if suspect.plan.reads_halves:
        return rejected(suspect)  # each half announces its key before its transaction ends
    if look is None:
        return Question.CHECK_BACK
    if look.may_become_evident(halves):
        return Judgement(verdict=missed.verdict, reason=missed.reason)  # only time keeps it undecided
    if not look.looks_rolled_back(halves) or look.is_past_check is False:
        return missed
    if suspect.copies is None:
        return Question.COMMITTED_COPIES
    if suspect.copies.is_unknown:
        return _silent(copies_unknown(suspect.copies))
    return missed if suspect.copies.is_found else rejected(suspect)


def _silent(why: Fact) -> Judgement:
    return Judgement(verdict=Verdict.UNKNOWN, reason=why, undecided_by=Undecided.WITNESS)
