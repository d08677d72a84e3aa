"""What of the page of losses can be repaired together: the rows that are chosen, or everything that a search finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import is_unique_key
from reconciler.settings.schema import SubscriptionSettings

#: A repair of settled keys has nothing to do.
_CHOSEN_STATES = {str(CandidateState.OPEN), str(CandidateState.QUARANTINED)}
#: Of a search; a repair of everything is narrowed by topic, group and verdict only.
_NARROWER = ("name", "age")


def choosable(rows: Sequence[Mapping[str, object]], subscriptions: Collection[SubscriptionSettings]) -> Collection[int]:
    """Places of the rows of candidates that a repair takes by their key."""
    known = {(one.topic, one.group) for one in subscriptions}
    return {
        place
        for place, row in enumerate(rows)
        if row["state"] in _CHOSEN_STATES and (row["topic"], row["group"]) in known and is_unique_key(row["unique_key"])
    }


def verdicts_of(rows: Sequence[Mapping[str, object]], places: Collection[int]) -> Mapping[str, int]:
    """Verdict -> how many rows at these places have it; none where all have the same: one box takes them all."""
    found = Counter(str(rows[place]["verdict"]) for place in sorted(places))
    return found if len(found) > 1 else {}


def finds_every_open_loss(chosen: Mapping[str, str]) -> bool:
    """True: no open loss of the topic, group and verdict is left out by this search, so that a repair of them is one of
    what it finds."""
    is_narrower = any(chosen[name] for name in _NARROWER)
    return not is_narrower and chosen["loss"] == "yes" and chosen["state"] in ("", CandidateState.OPEN)


def finds_everything_that_waits(chosen: Mapping[str, str]) -> bool:
    """True: nothing that waits for a person, of the topic, group and verdict, is left out by this search."""
    is_narrower = any(chosen[name] for name in _NARROWER)
    return not is_narrower and chosen["loss"] == "all" and chosen["state"] == CandidateState.QUARANTINED
