"""Codes of a commit query's answers about a half that are none of the listed values. Verdicts keep these codes."""

from __future__ import annotations

from reconciler.contract.facts import Code, Field

# ---- of one half
NO_KEY = Code("query.no-key", source=Field.NAME, type=Field.NAME)
NULL_STATE = Code("query.null-state")
OTHER_STATE = Code("query.other-state", state=Field.TEXT)
STATES_DIFFER = Code("query.states-differ")
YOUNG = Code("query.young", seconds=Field.NUMBER)

# ---- of a statement
NO_ANSWER = Code("query.no-answer", why=Field.TEXT)
RESTS = Code("query.rests", times=Field.NUMBER)
NOT_THE_PRIMARY = Code("query.not-the-primary")
ROWS_TOO_MANY = Code("query.rows-too-many", keys=Field.NUMBER)
COLUMNS = Code("query.columns", number=Field.NUMBER)
KEY_NOT_ASKED = Code("query.key-not-asked", key=Field.TEXT)
KEY_OF_OTHER_TYPE = Code("query.key-of-other-type", found=Field.NAME, declared=Field.NAME)
