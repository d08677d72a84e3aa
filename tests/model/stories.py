"""The shortest accident of every weakened configuration, for people: docs/explanation/stories.md is written from here.

Run `python -m tests.model.stories` to write the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.model.actions import Step, healing, steps
from tests.model.halves.stories import section
from tests.model.search import unfinished, unsafe
from tests.model.state import Bounds, Rules, State, first_state, packed

PAGE = Path(__file__).parents[2] / "docs/explanation/stories.md"
STATES_MAX = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakened:
    """One thing taken away."""

    title: str
    without: str
    instead: str
    rules: Rules
    bounds: Bounds
    #: The promise that breaks first.
    kind: str
    #: What the plain rounds of this story do, one after the other.
    round_says: tuple[str, ...] = ("Rounds go on; the key is nowhere any more.",)

    @property
    def picture(self) -> str:
        """Name of its drawing, without an ending."""
        return "accident-" + re.sub(r"\W+", "-", self.title.split(" (")[0].lower()).strip("-")


_ONE = Bounds(messages=1, groups=1, crashes=1, redis_losses=0, lost_ends=1, takes_early=True)

WEAKENED = (
    Weakened(
        title="No outbox",
        without="the row that is written in the local transaction",
        instead="the announcement is the only evidence of a commit",
        rules=Rules(has_outbox=False),
        bounds=_ONE,
        kind="LOST",
    ),
    Weakened(
        title="Pending overwritten by every round",
        without="adding each round's difference to what is pending already",
        instead="`SDIFFSTORE pending half commit`",
        rules=Rules(keeps_pending=False),
        bounds=_ONE,
        kind="LOST",
        round_says=("The next round stores its own difference, which is empty, over the pending key.",),
    ),
    Weakened(
        title="No rewind",
        without="the announcement consumer's offset in Redis, beside the keys it brought",
        instead="the offset lies at the broker and stays where it was when Redis forgets",
        rules=Rules(rewinds=False),
        bounds=Bounds(messages=1, groups=1, crashes=0, redis_losses=1, lost_ends=1, takes_early=True),
        kind="LOST",
        round_says=("Rounds go on with empty sets; no process reads the announcement again.",),
    ),
    Weakened(
        title="Forgotten before it is written down",
        without="the ledger row before the ZREM",
        instead="the key leaves Redis before the ledger has its row",
        rules=Rules(ledger_first=False),
        bounds=_ONE,
        kind="LOST",
    ),
    Weakened(
        title="Dedupe in Redis",
        without="the inbox row in the transaction of the effect",
        instead="a mark in Redis after the effect",
        rules=Rules(has_inbox=False),
        bounds=Bounds(messages=1, groups=1, crashes=1, redis_losses=0, lost_ends=0, takes_early=True),
        kind="DOUBLE",
    ),
    Weakened(
        title="A floor that does not wait",
        without="keeping the floor in SQL below every pending key",
        instead="each round raises the floor to the offset that it saw",
        rules=Rules(floor_waits=False),
        bounds=Bounds(messages=1, groups=1, crashes=0, redis_losses=1, lost_ends=1, takes_early=True),
        kind="LOST",
        round_says=(
            "A round runs: the key becomes pending, and the floor is raised above its announcement.",
            "Rounds go on with empty sets; everything below the floor counts as settled.",
        ),
    ),
    Weakened(
        title="An announced tag that is believed",
        without="comparing a tag that the group does not take with the outbox",
        instead="the announcement decides that the key may leave",
        rules=Rules(compares_tags=False),
        bounds=Bounds(messages=1, groups=1, crashes=0, redis_losses=0, lost_ends=1, takes_early=True),
        kind="LOST",
    ),
    Weakened(
        title="The original as it was written (reconciler demo --classic)",
        without="a difference that outlives the process",
        instead="SDIFF and DEL in one MULTI, the keys in the process only",
        rules=Rules(is_original=True),
        bounds=_ONE,
        kind="LOST",
    ),
)


def shortest(weakened: Weakened) -> tuple[str, list[Step]]:
    """What goes wrong, and the shortest way there. Raises LookupError if nothing does."""
    start = first_state(weakened.bounds)
    came: dict[int, tuple[int, Step] | None] = {packed(start): None}
    frontier = [start]
    while frontier:
        following: list[State] = []
        for state in frontier:
            problem = unsafe(state, weakened.rules) or _stuck(state, weakened)
            if problem is not None and problem[0] == weakened.kind:
                return problem[1], _way(came, packed(state))
            for step in steps(state, weakened.rules, weakened.bounds):
                number = packed(step[3])
                if number not in came:
                    came[number] = (packed(state), step)
                    following.append(step[3])
        frontier = following
        if len(came) > STATES_MAX:
            break
    raise LookupError(f"{weakened.title}: nothing goes wrong within {len(came)} states")


def _stuck(state: State, weakened: Weakened) -> tuple[str, str] | None:
    """No process has anything left to do, even if nothing fails from here on."""
    calm: State = (*state[:3], 0, 0, 0)
    is_quiet = all(after == calm for after in healing(calm, weakened.rules, weakened.bounds))
    return unfinished(state) if is_quiet else None


def _way(came: dict[int, tuple[int, Step] | None], number: int) -> list[Step]:
    way: list[Step] = []
    while (origin := came[number]) is not None:
        number, step = origin
        way.append(step)
    return way[::-1]


#: What each action says to a reader.
SENTENCES = {
    "commits locally": "The producer's local transaction commits; its half message is at the broker.",
    "END": "END_TRANSACTION(COMMIT) arrives: the broker shows the message to its consumers.",
    "END lost": "END_TRANSACTION(COMMIT) is lost on its way.",
    "announces": "The producer announces the unique key.",
    "producer dies": "The producer dies.",
    "announcement taken: 0": "The announcement consumer puts the key into the half set and moves its offset.",
    "consumes": "The consumer applies the message, records the key in the commit set, acknowledges.",
    "consumer dies after the effect": "The consumer applies the message and dies before it has marked or recorded it.",
    "round runs, reconciler dies before storing it": (
        "A round runs: the key is in neither commit set and becomes pending. The reconciler dies before it looks at it."
    ),
    "round, 0 forgotten, reconciler dies before its ledger row": (
        "A round runs and finds the key lost; it takes the key out of Redis and dies before it has written it down."
    ),
    "round, 0 not taken": (
        "A stranger announces the key with another tag; a round believes it, and the key leaves pending."
    ),
    "round runs, reconciler dies before the hand-over": (
        "A round runs: EXEC returns the difference and both sets are empty. The reconciler dies before the hand-over."
    ),
    "Redis loses everything": (
        "Redis restarts empty; the announcement consumer goes on at the offset that it is left with."
    ),
}


def sentences_of(weakened: Weakened, way: list[Step]) -> list[str]:
    """What each step says to a reader; the plain rounds of a story say what its configuration makes of them."""
    rounds = iter(weakened.round_says)
    return [SENTENCES.get(step[0]) or next(rounds) for step in way]


def told(weakened: Weakened) -> str:
    """The story as a section of the page."""
    end, way = shortest(weakened)
    lines = [f"## {weakened.title}", "", f"Without {weakened.without}; instead, {weakened.instead}.", ""]
    lines += [f"{number}. {sentence}" for number, sentence in enumerate(sentences_of(weakened, way), 1)]
    ending = end.replace("message 0", "the message").replace(" in group 0", "")
    lines += ["", f"**{weakened.kind}**: {ending}."]
    lines += [
        "",
        f"![{weakened.title}: the accident, and what happens with the mechanism](pictures/{weakened.picture}.svg)",
    ]
    return "\n".join(lines)


_HEAD = """# What each mechanism is for: the shortest accident without it

Written by `python -m tests.model.stories`: an exhaustive search (`tests/model`) takes one mechanism away at a time and
finds the shortest history in which a promise of [the guarantees](guarantees.md) breaks. With all of them it finds none:
see [how it is tested](how-it-is-tested.md#the-exhaustive-model).
"""


def page() -> str:
    """docs/explanation/stories.md."""
    return "\n".join([_HEAD, *(f"{told(weakened)}\n" for weakened in WEAKENED), section()])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
