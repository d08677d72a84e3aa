"""The losses that the page can repair together: chosen rows, or everything that a search finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import is_unique_key
from reconciler.settings.schema import SubscriptionSettings

#: States of keys that a repair may help. A repair does nothing for settled keys.
_CHOSEN_STATES = {str(CandidateState.OPEN), str(CandidateState.QUARANTINED)}
#: Fields of a search that a repair of everything does not know. It knows only topic, group and verdict.
_NARROWER = ("name", "age")


def choosable(rows: Sequence[Mapping[str, object]], subscriptions: Collection[SubscriptionSettings]) -> Collection[int]:
    """Returns the positions of the candidates' rows whose keys a repair accepts."""
    known = {(one.topic, one.group) for one in subscriptions}
    return {
        place
        for place, row in enumerate(rows)
        if row["state"] in _CHOSEN_STATES and (row["topic"], row["group"]) in known and is_unique_key(row["unique_key"])
    }


def verdicts_of(rows: Sequence[Mapping[str, object]], places: Collection[int]) -> Mapping[str, int]:
    """Counts the rows at these positions by verdict. Returns an empty mapping if all have the same verdict, because one
    box then takes them all."""
    found = Counter(str(rows[place]["verdict"]) for place in sorted(places))
    return found if len(found) > 1 else {}


def finds_every_open_loss(chosen: Mapping[str, str]) -> bool:
    """Returns True if this search finds every open loss of its topic, group and verdict. Then a repair of all repairs
    what the search finds."""
    is_narrower = any(chosen[name] for name in _NARROWER)
    return not is_narrower and chosen["loss"] == "yes" and chosen["state"] in ("", CandidateState.OPEN)


def finds_everything_that_waits(chosen: Mapping[str, str]) -> bool:
    """Returns True if this search finds everything that waits for a person in its topic, group and verdict."""
    is_narrower = any(chosen[name] for name in _NARROWER)
    return not is_narrower and chosen["loss"] == "all" and chosen["state"] == CandidateState.QUARANTINED
