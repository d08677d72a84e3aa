"""The codes of answers to repairs, and of acts that decide about later commands. Ledger rows keep each code beside a
text.

The words of a handler, a broker or a driver stay text. Codes and fields must not change as long as a ledger may contain
old facts. A release that does not know a code shows the text.
"""

from __future__ import annotations

from reconciler.contract.facts import Code, Field

#: A person closed the repair, and either repairs the message by hand or leaves it. `by` has the prefix of its kind of
#: name (tables.py).
REPAIR_DISMISSED = Code("repair.dismissed", by=Field.NAME, reason=Field.TEXT)
DISMISSAL_TAKEN_BACK = Code("repair.dismissal-taken-back", by=Field.NAME, reason=Field.TEXT)
#: The words of a handler, or of a release whose code this release does not know.
IN_WORDS = Code("repair.in-words", text=Field.TEXT)
#: ---- how a repair ended, also one whose hand-over was taken back from its worker
EFFECT_SEEN = Code("repair.effect-seen")
HALVES_CLOSED = Code("repair.halves-closed")
HEALED = Code("repair.healed")
TAKEN_BY_NOBODY = Code("repair.taken-by-nobody")
CAME_LATER = Code("repair.came-later")
REPAIR_WITHDRAWN = Code("repair.withdrawn")


# ---- why a repair waits
WAITS_FOR_PUT_BACK = Code("repair.waits-for-put-back")
WAITS_FOR_EFFECT = Code("repair.waits-for-effect")
WAITS_FOR_WORKERS = Code("repair.waits-for-workers")
NO_OUTBOX = Code("repair.no-outbox")
#: The message was proved lost by a business row alone: a connected producer could still answer its broker.
PRODUCER_CONNECTED = Code("repair.producer-connected", group=Field.NAME, broker=Field.NAME)
PRODUCERS_BEHIND_PROXY = Code("repair.producers-behind-proxy", topic=Field.NAME, broker=Field.NAME)
PRODUCERS_UNKNOWN = Code("repair.producers-unknown", group=Field.NAME, broker=Field.NAME)
ENDED_OR_ASKED = Code("repair.ended-or-asked")
SENT_ANEW = Code("repair.sent-anew", unique_key=Field.NAME, word=Field.NAME)
NOT_PUT_BACK = Code("repair.not-put-back", group=Field.NAME, broker=Field.NAME)
PRODUCERS_AWAY = Code("repair.producers-away", group=Field.NAME, broker=Field.NAME)
UNREAD_VERDICT = Code("repair.unread-verdict", group=Field.NAME, damage=Field.TEXT)
#: The verdict on one of the groups that lack the effect.
POSITION = Code("repair.position", group=Field.NAME, verdict=Field.NAME)
BY_FORMER_NAME = Code("repair.by-former-name", group=Field.NAME)
POSITIONS = Code("repair.positions", groups=Field.FACTS)
HELD = Code("repair.held", by=Field.FACT)
DRY_RUN = Code("repair.dry-run")
QUERY_NOT_ACCEPTED = Code("repair.query-not-accepted", topic=Field.NAME)
RATE_LIMIT = Code("repair.rate-limit")
BY_HOLD = Code("repair.by-hold", kind=Field.NAME)
NOT_SENT = Code("repair.not-sent")
GOES_ON_LATER = Code("repair.goes-on-later")
NOT_DECIDED = Code("repair.not-decided")
CLOSE_UNSURE = Code("repair.close-unsure", outcome=Field.NAME, said=Field.TEXT)

# ---- why a repair proceeds, and what was sent
COPY_THERE = Code("repair.copy-there")
COPY_FOUND = Code("repair.copy-found")
NOT_EXECUTED = Code("repair.not-executed")
UNCONSUMED = Code("repair.unconsumed")
ENDS = Code("repair.ends")
REPUBLISHES = Code("repair.republishes")
HANDS_OVER = Code("repair.hands-over")
WITHDRAWS = Code("repair.withdraws", groups=Field.NAMES)
#: The answer of a broker, or of the hand-over table, to a send: a number, a remark, or both.
ANSWERED = Code("repair.answered", outcome=Field.NAME)
ANSWERED_WITH = Code("repair.answered-with", outcome=Field.NAME, said=Field.TEXT)
RUNG_TAKEN_OUT = Code("repair.rung-taken-out", rung=Field.NAME)
WOULD_REACH = Code("repair.would-reach", rung=Field.NAME, groups=Field.NAMES)
NO_HALF = Code("repair.no-half")
SECOND_EFFECT = Code("repair.second-effect", why=Field.FACT)
ACKNOWLEDGED = Code("repair.acknowledged", groups=Field.NAMES)

# ---- why a repair has failed
NO_RUNG = Code("repair.no-rung", why=Field.FACT)
BEYOND_INBOX = Code("repair.beyond-inbox", groups=Field.NAMES)
TOO_OFTEN = Code("repair.too-often", attempts=Field.NUMBER)
NOT_COMMITTED = Code("repair.not-committed")
NOTHING_TO_SEND = Code("repair.nothing-to-send")
SENT_LATE = Code("repair.sent-late")
HAND_OVER_FAILED = Code("repair.hand-over-failed", group=Field.NAME, why=Field.FACT)
NO_ANSWER = Code("repair.no-answer")
DEAD_LETTERED_BY = Code("repair.dead-lettered-by", groups=Field.NAMES)

# ---- why a pass leaves a repair alone
TAKEN = Code("repair.taken")
CLAIM_RAN_OUT = Code("repair.claim-ran-out")
FINISHED = Code("repair.finished")

#: The end of a hold: the hold is lifted once every clock has passed this time. The fact counts only with the reason
#: that it was written with, because a person using 0.2.0 may hold the topic, too. Holds of 0.2.0 have no end.
HOLD_ENDS = Code("hold.ends", at_ms=Field.TIME)

#: Why the circuit breaker opened.
TOO_MANY = Code("hold.too-many", losses=Field.NUMBER, ceiling=Field.NUMBER)
TOO_MANY_SO_FAR = Code(
    "hold.too-many-so-far",
    losses=Field.NUMBER,
    verified=Field.NUMBER,
    left_over=Field.NUMBER,
    ceiling=Field.NUMBER,
)
#: Why the circuit breaker opened for rounds less than five seconds apart. Such rounds are counted together over
#: `seconds`.
TOO_MANY_TOGETHER = Code("hold.too-many-together", losses=Field.NUMBER, seconds=Field.NUMBER, ceiling=Field.NUMBER)
TOO_MANY_TOGETHER_SO_FAR = Code(
    "hold.too-many-together-so-far",
    losses=Field.NUMBER,
    seconds=Field.NUMBER,
    verified=Field.NUMBER,
    left_over=Field.NUMBER,
    ceiling=Field.NUMBER,
)
TOO_ABSENT = Code("hold.too-absent", found_nowhere=Field.NUMBER, half_asked=Field.NUMBER)

ACT_GROUP_RENAME = Code("act.group-rename", old=Field.NAME, new=Field.NAME)
#: A person accepted the commit query with this digest, although these aspects of the query are not proved.
ACT_QUERY_ACCEPTED = Code("act.query-accepted", topic=Field.NAME, digest=Field.NAME, unproved=Field.NAMES)
#: A person has withdrawn the acceptance of the topic's commit query, which had this digest.
ACT_QUERY_WITHDRAWN = Code("act.query-withdrawn", topic=Field.NAME, digest=Field.NAME)
#: An error ended the renaming, and everything that the renaming had changed was restored.
ACT_GROUP_RENAME_UNDONE = Code("act.group-rename-undone", old=Field.NAME, new=Field.NAME)
