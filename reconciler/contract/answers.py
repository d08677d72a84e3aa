"""Codes for what witnesses answer about a key. Verdicts and life stories keep these codes.

A foreign text, such as a driver's error, is the field of FOREIGN and is shown unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.contract.facts import Code, Field

FOREIGN = Code("answer.foreign", detail=Field.TEXT)
#: The answer of one witness, and the answers of all witnesses.
ANSWER = Code("answer.answer", witness=Field.NAME, presence=Field.NAME, detail=Field.FACT)
SAYS = Code("answer.says", witness=Field.NAME, detail=Field.FACT)
ANSWERS = Code("answer.answers", each=Field.FACTS)
OF_ANOTHER_MESSAGE = Code("answer.of-another-message", detail=Field.FACT)
BOTH = Code("answer.both", one=Field.FACT, other=Field.FACT)
MISSING = Code("answer.missing")

# ---- databases
NO_ROW = Code("answer.no-row")
NO_ROW_DOUBTED = Code("answer.no-row-doubted", doubt=Field.FACT)
ANSWER_NOT_PROVED = Code("answer.not-proved")
NODE_NOT_PROVED = Code("answer.node-not-proved")
ROWS_HIDDEN = Code("answer.rows-hidden")
PRIMARY_NOT_PROVED = Code("answer.primary-not-proved", what=Field.FACT, life=Field.FACT)
REPLICA = Code("answer.replica")
NODE = Code("answer.node")
FORMER = Code("answer.former")
NO_LIFE = Code("answer.no-life")
LIFE = Code("answer.life", at_ms=Field.TIME)
LIFE_AHEAD = Code("answer.life-ahead", at_ms=Field.TIME)
NO_TOPIC = Code("answer.no-topic")
NO_OUTBOX = Code("answer.no-outbox")
OUTBOX_ROW = Code("answer.outbox-row", state=Field.NAME)
NO_INBOX = Code("answer.no-inbox")
EFFECT = Code("answer.effect", source=Field.NAME, at_ms=Field.EXACT_TIME)
HALF_EFFECT = Code("answer.half-effect", source=Field.NAME, at_ms=Field.EXACT_TIME)
#: The answers of an effect query.
EFFECT_ROW = Code("answer.effect-row")
NO_EFFECT_ROW = Code("answer.no-effect-row")
NOT_APPLIED = Code("answer.not-applied")
NO_COPY_WITH_KEY = Code("answer.no-copy-with-key")

# ---- brokers
RECORDS = Code("answer.records", number=Field.NUMBER)
OTHER_HITS = Code("answer.other-hits", number=Field.NUMBER)
NO_HIT = Code("answer.no-hit")
MAY_BE_MORE = Code("answer.may-be-more", number=Field.NUMBER)
SCANNED = Code("answer.scanned", number=Field.NUMBER)
NOTHING_AT = Code("answer.nothing-at", offset=Field.NUMBER)
NO_MASTER = Code("answer.no-master")
NO_BROKER = Code("answer.no-broker")
#: Facts about half queues, which are read to find messages with the same business key.
HALVES_UNREAD = Code("answer.halves-unread")
HALVES_LEFT = Code("answer.halves-left", broker=Field.NAME, number=Field.NUMBER)
HALVES_UNPROVED = Code("answer.halves-unproved", broker=Field.NAME)
HALVES_SILENT = Code("answer.halves-silent", broker=Field.NAME, why=Field.TEXT)
LEFT_THE_ROUTE = Code("answer.left-the-route")
NOT_INDEXING = Code("answer.not-indexing", brokers=Field.NAMES)
_INDEX: Mapping[str, Field] = {"detail": Field.FACT}
INDEX_WITHOUT_PROBE = Code("answer.index-without-probe", **_INDEX)
INDEX_UNPROVED = Code("answer.index-unproved", **_INDEX, why=Field.FACT)
PROBE_TOPIC_MISSING = Code("answer.probe-topic-missing", broker=Field.NAME, topic=Field.NAME)
INDEX_BEHIND = Code("answer.index-behind", **_INDEX, seconds=Field.NAME)
