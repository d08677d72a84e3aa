"""What repairs were answered, and acts that later commands decide by: codes that rows of the ledger keep beside a text.

What a handler, a broker or a driver said is text. Codes and fields stay as they are for as long as a ledger may have
them: a release that does not know a code shows the text.
"""

from __future__ import annotations

from reconciler.contract.facts import Code, Field

#: A person closed the repair: it is done by hand, or not at all. `by` has the prefix of its kind of name (tables.py).
REPAIR_DISMISSED = Code("repair.dismissed", by=Field.NAME, reason=Field.TEXT)
DISMISSAL_TAKEN_BACK = Code("repair.dismissal-taken-back", by=Field.NAME, reason=Field.TEXT)
#: The ends of repairs, and of hand-overs that were taken from their workers.
EFFECT_SEEN = Code("repair.effect-seen")
HALVES_CLOSED = Code("repair.halves-closed")
HEALED = Code("repair.healed")
CAME_LATER = Code("repair.came-later")
REPAIR_WITHDRAWN = Code("repair.withdrawn")

ACT_GROUP_RENAME = Code("act.group-rename", old=Field.NAME, new=Field.NAME)
#: An error has ended it, and what it had changed was given back.
ACT_GROUP_RENAME_UNDONE = Code("act.group-rename-undone", old=Field.NAME, new=Field.NAME)
