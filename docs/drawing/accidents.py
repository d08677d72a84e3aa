"""The shortest accidents of tests/model/stories.py as drawings, each with what happens where the mechanism is there.

The steps of an accident are those that the search found; what each looks like stands here.
"""

from __future__ import annotations

from docs.drawing.sequence import Arrow, Lane, Mark, Part, Step, Story
from tests.model import stories

_PRODUCER, _DATABASE, _BROKER, _CONSUMER, _REDIS, _RECONCILER = Lane

_COMMITS = (Arrow(_PRODUCER, _BROKER, "half"), Arrow(_PRODUCER, _DATABASE, "commit"))
_CONSUMES = (Arrow(_BROKER, _CONSUMER, "message"), Mark(_CONSUMER, "effect"))
_DIES = Mark(_RECONCILER, "dies", is_accident=True)
_EMPTY = Mark(_REDIS, "empty", is_accident=True)
_PENDING = Arrow(_RECONCILER, _REDIS, "pending")
_TAKEN = (Arrow(_BROKER, _RECONCILER, "announcement"), Arrow(_RECONCILER, _REDIS, "half set"))
_SAYS_COMMIT = "COMMIT"

#: What each action of the model looks like.
_ACTIONS: dict[str, tuple[Arrow | Mark, ...]] = {
    "commits locally": _COMMITS,
    "END": (Arrow(_PRODUCER, _BROKER, _SAYS_COMMIT),),
    "END lost": (Arrow(_PRODUCER, _BROKER, _SAYS_COMMIT, is_lost=True),),
    "announces": (Arrow(_PRODUCER, _BROKER, "announcement"),),
    "producer dies": (Mark(_PRODUCER, "dies", is_accident=True),),
    "announcement taken: 0": _TAKEN,
    "consumes": (*_CONSUMES, Arrow(_CONSUMER, _REDIS, "key")),
    "consumer dies after the effect": (*_CONSUMES, Mark(_CONSUMER, "dies", is_accident=True)),
    "round runs, reconciler dies before storing it": (_PENDING, _DIES),
    "round, 0 forgotten, reconciler dies before its ledger row": (
        Mark(_REDIS, "key is gone", is_accident=True),
        _DIES,
    ),
    "round, 0 not taken": (
        Arrow(_BROKER, _RECONCILER, "another tag"),
        Mark(_REDIS, "key is gone", is_accident=True),
    ),
    "round runs, reconciler dies before the hand-over": (
        Arrow(_REDIS, _RECONCILER, "difference"),
        _DIES,
    ),
    "Redis loses everything": (_EMPTY,),
}
_PLAIN_ROUND = (Mark(_REDIS, "nothing pending", is_accident=True),)
#: The first plain round of the floor's story.
_RAISED = "A round runs: the key becomes pending, and the floor is raised above its announcement."

_JUDGED = Step(
    "After the grace period: no inbox row, the outbox row says committed, the broker has the half. The verdict goes "
    "into the ledger.",
    (
        Arrow(_RECONCILER, _CONSUMER, "effect?"),
        Arrow(_RECONCILER, _DATABASE, "committed?"),
        Arrow(_RECONCILER, _BROKER, "copies?"),
    ),
)
_ENDED = Step(
    "END_TRANSACTION(COMMIT) again; its answer is read. The message arrives: inbox row and effect are one transaction.",
    (Arrow(_RECONCILER, _BROKER, _SAYS_COMMIT), *_CONSUMES),
)
_REPAIRED = (_JUDGED, _ENDED)
_REWOUND = (_EMPTY, Arrow(_RECONCILER, _BROKER, "from the floor"), *_TAKEN)

#: By the accident's title: the number of the step from which on it goes another way with the mechanism, and that way.
_MENDED: dict[str, tuple[int, tuple[Step, ...]]] = {
    "No outbox": (
        3,
        (
            Step(
                "The sweep finds the row, which nobody has announced, and announces the key.",
                (
                    Arrow(_DATABASE, _RECONCILER, "row"),
                    Arrow(_RECONCILER, _BROKER, "announcement"),
                    *_TAKEN,
                ),
            ),
            *_REPAIRED,
        ),
    ),
    "Pending overwritten by every round": (
        6,
        (
            Step(
                "The next round adds its difference to what is pending: the key is still there.",
                (Mark(_REDIS, "pending"),),
            ),
            *_REPAIRED,
        ),
    ),
    "No rewind": (
        5,
        (
            Step(
                "Redis restarts empty. The offset is lost with the keys, so the announcement consumer goes back to the "
                "floor in SQL and reads the announcement again.",
                _REWOUND,
            ),
            *_REPAIRED,
        ),
    ),
    "Forgotten before it is written down": (
        5,
        (
            Step(
                "A round runs and finds the key lost; it dies before it has written it down. The key has not left Redis.",
                (_DIES, Mark(_REDIS, "pending")),
            ),
            Step(
                "The next round finds it pending: it writes the verdict into the ledger first, then takes the key out of "
                "Redis, and repairs.",
                (
                    Arrow(_REDIS, _RECONCILER, "key"),
                    Mark(_RECONCILER, "ledger row"),
                    Arrow(_RECONCILER, _BROKER, _SAYS_COMMIT),
                    *_CONSUMES,
                ),
            ),
        ),
    ),
    "Dedupe in Redis": (
        3,
        (
            Step(
                "The consumer commits inbox row and effect in one transaction, and dies before it has recorded the key.",
                _ACTIONS["consumer dies after the effect"],
            ),
            Step(
                "The broker delivers again. The inbox has the row: no second effect. The key is recorded, the message "
                "acknowledged.",
                (
                    Arrow(_BROKER, _CONSUMER, "message"),
                    Mark(_CONSUMER, "known"),
                    Arrow(_CONSUMER, _REDIS, "key"),
                ),
            ),
        ),
    ),
    "A floor that does not wait": (
        5,
        (
            Step(
                "A round runs: the key becomes pending, and the floor stays below its announcement.",
                (_PENDING,),
            ),
            Step(
                "Redis restarts empty. The announcement consumer goes back to the floor and reads the announcement again.",
                _REWOUND,
            ),
            *_REPAIRED,
        ),
    ),
    "An announced tag that is believed": (
        5,
        (
            Step(
                "A stranger announces the key with another tag. The round compares it with the outbox row: they differ, "
                "and the key stays pending.",
                (
                    Arrow(_BROKER, _RECONCILER, "another tag"),
                    Arrow(_RECONCILER, _DATABASE, "which tag?"),
                    Mark(_REDIS, "pending"),
                ),
            ),
            *_REPAIRED,
        ),
    ),
    "The original as it was written (reconciler demo --classic)": (
        5,
        (
            Step(
                "A round runs: EXEC stores the difference as pending, in Redis. The reconciler dies.",
                (_PENDING, _DIES),
            ),
            Step("The next process finds the key pending.", (Arrow(_REDIS, _RECONCILER, "key"),)),
            *_REPAIRED,
        ),
    ),
}

_ENDS = {
    "LOST": "LOST: the message was committed and never took effect.",
    "DOUBLE": "DOUBLE: the message took effect twice.",
}


def all_stories() -> list[Story]:
    """One for each configuration of the model that has an accident. Raises KeyError for one that nobody has drawn."""
    return [_story(weakened) for weakened in stories.WEAKENED]


def _story(weakened: stories.Weakened) -> Story:
    _, way = stories.shortest(weakened)
    texts = stories.sentences_of(weakened, way)
    accident = Part(
        steps=tuple(Step(text, _shown(action, text)) for (action, *_), text in zip(way, texts, strict=True)),
        end=_ENDS[weakened.kind],
    )
    first, steps = _MENDED[weakened.title]
    mended = Part(heading=f"With {weakened.without}:", steps=steps, first=first, end="One effect.", is_repair=True)
    return Story(name=weakened.picture, title=weakened.title, parts=(accident, mended))


def _shown(action: str, text: str) -> tuple[Arrow | Mark, ...]:
    return (_PENDING,) if text == _RAISED else _ACTIONS.get(action, _PLAIN_ROUND)
