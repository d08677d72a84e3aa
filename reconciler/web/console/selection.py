"""What of the page of losses can be repaired together: the rows that are chosen, or everything that a search finds."""

from __future__ import annotations

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


def finds_every_open_loss(chosen: Mapping[str, str]) -> bool:
    """True: no open loss of the topic, group and verdict is left out by this search, so that a repair of them is one of
    what it finds."""
    is_narrower = any(chosen[name] for name in _NARROWER)
    return not is_narrower and chosen["loss"] == "yes" and chosen["state"] in ("", CandidateState.OPEN)
