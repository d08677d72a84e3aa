"""Codes about a key that a person repairs or dismisses, and about the key's half. Answers with these codes are kept for
a day with their request, and with jobs."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.contract.facts import Code, Field

# ---- a repair by hand
WOULD_BE_OPENED = Code("manual.would-be-opened")
#: The key has the verdict QUARANTINED, and no repair begins.
OVER_WITHOUT_EFFECT = Code("manual.over-without-effect", why=Field.FACT, ending=Field.FACT)
HELD_FIRST = Code("manual.held-first", by=Field.NAMES, then=Field.FACT)
_CHANGED: Mapping[str, Field] = {"unique_key": Field.NAME, "group": Field.NAME}
HAS_CHANGED = Code("manual.has-changed", **_CHANGED, state=Field.NAME, verdict=Field.NAME)
HAS_GONE = Code("manual.has-gone", **_CHANGED)
UNHEARD = Code("manual.unheard")
KEY_FAILED = Code("manual.key-failed", error=Field.TEXT)
JUDGED_FIRST = Code("manual.judged-first", judged=Field.NUMBER, lines=Field.NUMBER)
SHOWN_FIRST = Code("manual.shown-first", shown=Field.NUMBER, messages=Field.NUMBER)

# ---- the half
HALF_NONE = Code("half.none")
HALF_UNKNOWN = Code("half.unknown", why=Field.FACT)
COMMITTED = Code("half.committed")
COMMITTED_UNKNOWN = Code("half.committed-unknown", why=Field.FACT)
GIVEN_UP = Code("half.given-up")
NEVER_ASKED = Code("half.never-asked")
ASKED_UNTIL = Code("half.asked-until", until_ms=Field.TIME)
ROLLED_BACK = Code("half.rolled-back")
_OPEN: Mapping[str, Field] = {"brokers": Field.NAMES}
OPEN_NOBODY_KNOWS = Code("half.open-nobody-knows", **_OPEN, broker=Field.NAME)
OPEN_UNTIL = Code("half.open-until", **_OPEN, until_ms=Field.TIME)
OPEN_UNTIL_OR_LATER = Code("half.open-until-or-later", **_OPEN, until_ms=Field.TIME, never_ms=Field.TIME)
AND_ANSWERED = Code("half.and-answered", half=Field.FACT, answer=Field.FACT)
ANSWER_UNKNOWN = Code("half.answer-unknown")
ANSWERS_NO_COMMIT = Code("half.answers-no-commit")
ANSWERS_COMMIT = Code("half.answers-commit")
MUST_STAY = Code("half.must-stay", half=Field.FACT, why=Field.FACT)
NOT_LOOKED_AT = Code("half.not-looked-at", error=Field.TEXT)
NOT_LOOKED_FOR = Code("half.not-looked-for")

# ---- why the half must not be closed
OUTBOX_SILENT = Code("half.outbox-silent", why=Field.FACT)
NOT_PROVED = Code("half.not-proved")
UNDER_REPAIR = Code("half.under-repair", state=Field.NAME)
GROUP_NEEDS_IT = Code("half.group-needs-it", group=Field.NAME, why=Field.FACT)
READERS_UNKNOWN = Code("half.readers-unknown")
STRANGE_READER = Code("half.strange-reader", group=Field.NAME)

# ---- the end of the half
CLOSED = Code("half.closed", places=Field.NAMES)
LEFT_OPEN = Code("half.left-open", why=Field.FACT)
END_REFUSED = Code("half.end-refused", broker=Field.NAME, outcome=Field.NAME)
END_FAILED = Code("half.end-failed", broker=Field.NAME, outcome=Field.NAME, detail=Field.TEXT)
PUT_BACK = Code("half.put-back", places=Field.NAMES)
END_UNKNOWN = Code("half.end-unknown", error=Field.TEXT)

# ---- the effect
EFFECT_UNKNOWN = Code("dismissal.effect-unknown", why=Field.FACT)
OTHER_ROW = Code("dismissal.other-row", why=Field.FACT)
TOOK_EFFECT = Code("dismissal.took-effect", at_ms=Field.TIME)

# ---- what the outcome means
_FOUND: Mapping[str, Field] = {"effect": Field.FACT}
DISMISSAL_HAS_EFFECT = Code("dismissal.has-effect", **_FOUND, unique_key=Field.NAME)
DISMISSED_BEFORE = Code("dismissal.dismissed-before", **_FOUND)
WITH_EFFECT = Code("dismissal.with-effect", **_FOUND, but=Field.FACT)
EFFECT_MAY_COME = Code("dismissal.effect-may-come", outcome=Field.NAME)
SENT_BEFORE = Code("dismissal.sent-before", rung=Field.NAME, at_ms=Field.TIME)
LOSS_IS_OPEN = Code("dismissal.loss-is-open", verdict=Field.NAME, topic=Field.NAME)
IS_OPEN = Code("dismissal.is-open", verdict=Field.NAME)
DISMISSAL_TAKEN_BACK = Code("dismissal.taken-back", unique_key=Field.NAME)
TAKEN_BACK_NEVER_SENT = Code("dismissal.taken-back-never-sent", verdict=Field.NAME, unique_key=Field.NAME)

# ---- a repair by hand that sends nothing
_WHY: Mapping[str, Field] = {"why": Field.FACT}
UNSENT_NOTHING = Code("unsent.nothing", **_WHY)
UNSENT_FAILED = Code("unsent.failed", **_WHY, ending=Field.FACT)
#: Word of the repair's outcome -> the code that says why nothing is sent now, and what would change that.
UNSENT: Mapping[str, Code] = {
    "held": Code("unsent.held", **_WHY),
    "taken": Code("unsent.taken", **_WHY),
    "waits": Code("unsent.waits", **_WHY),
}

# ---- a hand-over by hand
_OF_GROUP: Mapping[str, Field] = {"group": Field.NAME}
WORKER_LAST = Code("handed.worker-last", at_ms=Field.TIME)
WORKER_NEVER = Code("handed.worker-never")
HANDED_PLANNED = Code("handed.planned", **_OF_GROUP, worker=Field.FACT)
HANDED_WAITS = Code("handed.waits", **_OF_GROUP, worker=Field.FACT, unique_key=Field.NAME)
HANDED_HELD = Code("handed.held", topic=Field.NAME, brakes=Field.NAMES, unique_key=Field.NAME)
HANDED_CANCELLED = Code("handed.cancelled", **_OF_GROUP)
CANCEL_PLANNED = Code("handed.cancel-planned", **_OF_GROUP)

# ---- why nothing is handed over, or taken back
HANDED_REFUSED = Code("handed.refused", why=Field.FACT)
BY_VERDICT = Code("handed.by-verdict", verdict=Field.NAME, ending=Field.FACT)
IS_DISMISSED = Code("handed.is-dismissed", unique_key=Field.NAME)
NO_INBOX = Code("handed.no-inbox", **_OF_GROUP)
REPAIR_UNDER_WAY = Code("handed.repair-under-way", state=Field.NAME, rung=Field.NAME)
ROW_ENDED = Code("handed.row-ended", at_ms=Field.TIME)
ROW_TAKEN = Code("handed.row-taken", at_ms=Field.TIME)
NOT_CANCELLED = Code("handed.not-cancelled", why=Field.FACT)
NO_ROW = Code("handed.no-row")
ROW_FAILED = Code("handed.row-failed", why=Field.TEXT)
