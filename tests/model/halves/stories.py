"""The shortest accident of each configuration that leaves a question out where halves announce.

`python -m tests.model.stories` writes them into docs/explanation/stories.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.halves.actions import Step
from tests.model.halves.search import search
from tests.model.halves.state import Bounds, Rules

STATES_MAX = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakened:
    """One question left out."""

    title: str
    without: str
    instead: str
    rules: Rules
    bounds: Bounds
    #: The promise that breaks first.
    kind: str


_ALONE = Bounds(tries=1, leaves=1, comes=0, lost=0, crashes=0, questions=1)
_TWO = Bounds(tries=2, leaves=0, comes=0, lost=0, crashes=0, questions=1)

WEAKENED = (
    Weakened(
        title="A half that counts as a commit",
        without="the row of the business",
        instead="the half is the only evidence of a commit",
        rules=Rules(asks_row=False),
        bounds=_ALONE,
        kind="PHANTOM",
    ),
    Weakened(
        title="A row that proves each try",
        without="looking for other halves of the order",
        instead="the row proves the commit of each half with its key",
        rules=Rules(asks_for_tries=False),
        bounds=_TWO,
        kind="PHANTOM",
    ),
    Weakened(
        title="Tries that were looked for once",
        without="looking for other halves of the order before a send",
        instead="the look of the verdict counts",
        rules=Rules(asks_for_tries_again=False),
        bounds=_TWO,
        kind="SIBLING",
    ),
    Weakened(
        title="Copies above the group's offset",
        without="comparing a copy with the group's offset",
        instead="each stored copy counts as delivered",
        rules=Rules(asks_offset=False),
        bounds=_ALONE,
        kind="NOT PASSED",
    ),
    Weakened(
        title="An absence that is final",
        without="asking for the row again",
        instead="a half without a row stays rejected",
        rules=Rules(asks_again_for_rows=False),
        bounds=_ALONE,
        kind="LOST",
    ),
    Weakened(
        title="A producer that comes back unseen",
        without="the look for producers right before the END",
        instead="the looks before the claim of the send count",
        rules=Rules(looks_for_producers=False),
        bounds=Bounds(tries=1, leaves=1, comes=1, lost=0, crashes=0, questions=1),
        kind="RACE",
    ),
    Weakened(
        title="A delivery that comes before the send",
        without="the look for a copy right before the send",
        instead="the answer from before the attempt counts",
        rules=Rules(looks_for_copies=False),
        bounds=_ALONE,
        kind="DOUBLE",
    ),
    Weakened(
        title="A half that is put back before the END",
        without="the look for a newer copy of the half right before the END",
        instead="END names the copy that was the newest when the attempt was recorded",
        rules=Rules(looks_for_newest=False),
        bounds=Bounds(tries=1, leaves=1, comes=1, lost=0, crashes=0, questions=3),
        kind="DOUBLE",
    ),
)

#: What each action says to a reader; {} is the number of the try, where an order has two.
SENTENCES = {
    "commits locally": "The local transaction{} commits.",
    "rolls back": "The local transaction{} rolls back.",
    "gives the try up": "The service gives up{}. No listener ever decides the half.",
    "the service tries the order again": "The service tries the order again, with a half of its own.",
    "END": "The producer's END{} arrives.",
    "all producers go": "All producers stop. Each END that they had not sent is lost.",
    "a producer comes back": "A producer comes back.",
    "time passes": "The grace period, the time of the broker's questions and the longest transaction are over.",
    "an interval passes without a producer": "An interval passes in which no producer is connected.",
    "check round": "The broker puts the half{} back, and asks a producer if one is connected.",
    "the broker gives the half up": "The broker gives the half{} up.",
    "the group passes the copy": "The group's offset passes the copy{}.",
    "verdict: LOST": "The reconciler calls the message{} lost, and opens a repair.",
    "verdict: DELIVERED": "The reconciler calls the message{} delivered.",
    "verdict: REJECTED": "The reconciler finds no row, and rejects the half{}.",
    "repair: OPEN": "The reconciler looks for producers, and the repair{} waits.",
    "SENDING is written": "The ledger records the attempt{}. Nothing is sent yet.",
    "END by us": "The reconciler sends END{}.",
    "REPUBLISH by us": "The reconciler publishes the message{}.",
}


def shortest(weakened: Weakened) -> tuple[str, tuple[Step, ...]]:
    """What goes wrong, and the shortest way there. Raises LookupError if nothing does."""
    found = search(weakened.bounds, weakened.rules, kind=weakened.kind, states_max=STATES_MAX)
    if not found.kind:
        raise LookupError(f"{weakened.title}: nothing goes wrong within {found.states} states")
    return found.detail, found.way


def told(weakened: Weakened) -> str:
    """The story as a section of the page."""
    end, way = shortest(weakened)
    lines = [f"### {weakened.title}", "", f"Without {weakened.without}; instead, {weakened.instead}.", ""]
    lines += [f"{number}. {_said(weakened, step)}" for number, step in enumerate(way, 1)]
    return "\n".join([*lines, "", f"**{weakened.kind}**: {end}."])


def _said(weakened: Weakened, step: Step) -> str:
    of = f" of try {step.number + 1}" if weakened.bounds.tries > 1 and step.number >= 0 else ""
    return SENTENCES[step.name].replace("{}", of)


_HEAD = """## Where halves announce

Here services hold none of our code. The half is the announcement, and a row of the business proves the commit. These
accidents come from a second search, whose verdicts and decisions are those of the product's own functions. At the
beginning the first half is at its broker, and its local transaction is running.
"""


def section() -> str:
    """The second part of docs/explanation/stories.md."""
    return "\n".join([_HEAD, *(f"{told(weakened)}\n" for weakened in WEAKENED)])
