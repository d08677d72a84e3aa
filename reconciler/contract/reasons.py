"""Why a key has its verdict. Rows of candidates, and the history, keep these codes beside the English text."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.contract.facts import Code, Field

#: A text that was written without a code, or with the code of another release.
AS_WRITTEN = Code("reason.as-written", text=Field.TEXT)

# ---- of effects
_WITNESS: Mapping[str, Field] = {"why": Field.FACT}
INCOMPLETE = Code("reason.incomplete", **_WITNESS)
INBOX_UNKNOWN = Code("reason.inbox-unknown", **_WITNESS)
NOT_COMPARED = Code("reason.not-compared", **_WITNESS)
OTHER_EFFECT = Code("reason.other-effect", why=Field.FACT)
OTHER_EFFECT_OF = Code("reason.other-effect-of", group=Field.NAME, why=Field.FACT)
CONSUMED = Code("reason.consumed")
CONSUMED_BY_QUERY = Code("reason.consumed-by-query")
EFFECT_QUERY_UNKNOWN = Code("reason.effect-query-unknown", **_WITNESS)
UNDER_REPAIR = Code("reason.under-repair", state=Field.NAME, rung=Field.NAME)
DOUBLE_EFFECT = Code("reason.double-effect", applied=Field.EXACT_TIMES)
TOOK_EFFECT_DISMISSED = Code(
    "reason.took-effect-dismissed", verdict=Field.NAME, by=Field.NAME, because=Field.TEXT, applied=Field.FACT
)
APPLIED_AT = Code("reason.applied-at", at_ms=Field.EXACT_TIME)

# ---- of the group
NOT_TAKEN = Code("reason.not-taken", tag=Field.NAME)
GATE_SHUT = Code("reason.gate-shut")
LAGGING = Code("reason.lagging")
DEAD_LETTERED = Code("reason.dead-lettered")
OFFSETS_UNKNOWN = Code("reason.offsets-unknown")
_QUEUE: Mapping[str, Field] = {"topic": Field.NAME, "queue": Field.NUMBER, "broker": Field.NAME}
OFFSETS_AGAIN = Code("reason.offsets-again", **_QUEUE)
UNREADABLE_QUEUE = Code("reason.unreadable-queue", **_QUEUE)
POPPED = Code("reason.popped")
POPPED_WITHOUT_INBOX = Code("reason.popped-without-inbox")
MODE_UNKNOWN = Code("reason.mode-unknown")
GROUP_UNKNOWN = Code("reason.group-unknown")
WITHOUT_INBOX = Code("reason.without-inbox")
PASSED = Code("reason.passed")
PASSED_BY_QUERY = Code("reason.passed-by-query")
DELIVERED = Code("reason.delivered")
GIVEN_BEFORE = Code("reason.given-before", given_ms=Field.EXACT_TIME, since_ms=Field.EXACT_TIME)
RENAMED = Code("reason.renamed", group=Field.NAME, verdict=Field.NAME)
BY_SQL92 = Code("reason.by-sql92")
FILTER_UNKNOWN = Code("reason.filter-unknown")

# ---- of the commit
OUTBOX_UNKNOWN = Code("reason.outbox-unknown", **_WITNESS)
OUTBOX_NOT_ASKED = Code("reason.outbox-not-asked")
NO_ROW = Code("reason.no-row")
ROLLED_BACK = Code("reason.rolled-back")
UNPROVED = Code("reason.unproved")
ANNOUNCED_BY_HALF = Code("reason.announced-by-half")
YOUNG = Code("reason.young")
#: The answer of a commit query.
BUSINESS_UNKNOWN = Code("reason.business-unknown", **_WITNESS)
BUSINESS_ROLLED_BACK = Code("reason.business-rolled-back")
NO_BUSINESS_ROW = Code("reason.no-business-row")
NO_KEY_COPY = Code("reason.no-key-copy")
SIBLINGS = Code("reason.siblings", number=Field.NUMBER, unique_keys=Field.NAMES)
SIBLINGS_OF_OTHER_TAGS = Code("reason.siblings-of-other-tags", number=Field.NUMBER, unique_keys=Field.NAMES)
SIBLING_DELIVERED = Code("reason.sibling-delivered", unique_key=Field.NAME)
NO_SIBLING_DELIVERED = Code("reason.no-sibling-delivered", number=Field.NUMBER, unique_keys=Field.NAMES)
SIBLING_MAY_BE_GONE = Code("reason.sibling-may-be-gone", number=Field.NUMBER, unique_keys=Field.NAMES)
SIBLINGS_UNKNOWN = Code("reason.siblings-unknown")
SIBLINGS_UNREAD = Code("reason.siblings-unread", **_WITNESS)
_HALF: Mapping[str, Field] = {"producer_group": Field.NAME, "half_at": Field.NAME}
NAMED_LACKS_ROW = Code("reason.named-lacks-row", **_HALF, witness=Field.NAME, **_WITNESS)
NAMED_NOT_ASKED = Code("reason.named-not-asked", **_HALF, identity=Field.NAME, **_WITNESS)
UNNAMED_LACKS_ROW = Code("reason.unnamed-lacks-row", **_HALF, **_WITNESS)
#: Committed rows of one key in several databases differ.
DIGESTS_DIFFER = Code("reason.digests-differ", digests=Field.NAMES)
TAGS_DIFFER = Code("reason.tags-differ", tags=Field.NAMES)

# ---- of copies
COPIES_UNKNOWN = Code("reason.copies-unknown", **_WITNESS)
COPY_GONE = Code("reason.copy-gone")
COPY_MAY_BE_GONE = Code("reason.copy-may-be-gone")
SEEN_COPY_GONE = Code("reason.seen-copy-gone")
COPY_MAY_BE_GONE_BESIDE_OTHER_TAGS = Code(
    "reason.copy-may-be-gone-beside-other-tags", number=Field.NUMBER, unique_keys=Field.NAMES
)
HALF_UNKNOWN = Code("reason.half-unknown", **_WITNESS)
CHECK_BACK = Code("reason.check-back")
NOT_CHECKED = Code("reason.not-checked")
HALF_FOUND = Code("reason.half-found")
PARKED_UNKNOWN = Code("reason.parked-unknown", **_WITNESS)
PARKED_AND_HALF = Code("reason.parked-and-half")
ROLLED_BACK_WRONGLY = Code("reason.rolled-back-wrongly")
PARKED = Code("reason.parked")
NO_COPY = Code("reason.no-copy")
NO_OWN_COPY = Code("reason.no-own-copy", other=Field.FACT)
#: Kind of copy -> the code that says that the copy is of another message.
OTHER_COPIES: Mapping[str, Code] = {
    "committed": Code("reason.other-committed-copy", why=Field.FACT),
    "half": Code("reason.other-half", why=Field.FACT),
    "parked": Code("reason.other-parked-copy", why=Field.FACT),
}
SUSPECT_ROW = Code("reason.suspect-row", why=Field.FACT)

# ---- of a person's turn
GIVEN_UP = Code("reason.given-up", verdict=Field.NAME, why=Field.FACT)
KEPT_TOO_SHORT = Code("reason.kept-too-short")
SEEN_LATE = Code("reason.seen-late")
DAMAGED = Code("reason.damaged", looks=Field.NUMBER, damage=Field.FACT)
REPAIR_OVER = Code("reason.repair-over", verdict=Field.NAME, state=Field.NAME, answer=Field.TEXT)
REPAIR_OVER_SILENT = Code("reason.repair-over-silent", verdict=Field.NAME, state=Field.NAME)

# ---- of a repair that waits
MEND = Code("reason.mend", damage=Field.FACT)
HALVES_UNKNOWN = Code("reason.halves-unknown", **_WITNESS)
EFFECT_UNKNOWN = Code("reason.effect-unknown", **_WITNESS)
NO_READABLE_COPY = Code("reason.no-readable-copy", **_WITNESS)

# ---- why a copy, or an effect, is that of another message
_SEEN: Mapping[str, Field] = {"seen": Field.NAME, "expected": Field.NAME}
OTHER_TAG = Code("reason.other-tag", **_SEEN)
OTHER_DIGEST = Code("reason.other-digest", **_SEEN)
OTHER_TOPIC = Code("reason.other-topic", **_SEEN)
OTHER_EFFECT_DIGEST = Code("reason.other-effect-digest", **_SEEN)
OTHER_REAL_TOPIC = Code("reason.other-real-topic", **_SEEN)
OTHER_GROUP = Code("reason.other-group", **_SEEN)
FOREIGN_GROUP = Code("reason.foreign-group", group=Field.NAME, topic=Field.NAME)

# ---- beside the reason
TAG_COMPARED = Code("reason.tag-compared")
EFFECT_NOT_COMPARED = Code("reason.effect-not-compared")
OTHER_MESSAGE_AT = Code("reason.other-message-at", topic=Field.NAME, place=Field.NAME, why=Field.FACT)
