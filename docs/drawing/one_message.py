"""The way of one message whose END_TRANSACTION is lost, with all that takes part."""

from __future__ import annotations

from docs.drawing.sequence import Arrow, Lane, Mark, Part, Step, Story

_PRODUCER, _DATABASE, _BROKER, _CONSUMER, _REDIS, _RECONCILER = Lane

_LOSES = Part(
    steps=(
        Step("The half message: consumers cannot see it yet.", (Arrow(_PRODUCER, _BROKER, "half"),)),
        Step(
            "The local transaction writes business rows and the outbox row, and commits.",
            (Arrow(_PRODUCER, _DATABASE, "commit"),),
        ),
        Step("END_TRANSACTION(COMMIT) is lost on its way.", (Arrow(_PRODUCER, _BROKER, "COMMIT", is_lost=True),)),
        Step("The producer announces the unique key.", (Arrow(_PRODUCER, _BROKER, "announcement"),)),
    ),
    end="The money has moved, and no consumer knows.",
)
_FINDS = Part(
    heading="What the reconciler does:",
    steps=(
        Step(
            "The announcement consumer puts the key into the half set and moves its offset.",
            (Arrow(_BROKER, _RECONCILER, "announcement"), Arrow(_RECONCILER, _REDIS, "half set")),
        ),
        Step(
            "Every few seconds a round stores what was announced and not consumed as pending.",
            (Arrow(_RECONCILER, _REDIS, "pending"),),
        ),
        Step(
            "After the grace period it asks for evidence, and writes the verdict into the ledger.",
            (
                Arrow(_RECONCILER, _CONSUMER, "effect?"),
                Arrow(_RECONCILER, _DATABASE, "committed?"),
                Arrow(_RECONCILER, _BROKER, "copies?"),
                Mark(_RECONCILER, "ledger row"),
            ),
        ),
        Step("It sends END_TRANSACTION(COMMIT) again and reads the answer.", (Arrow(_RECONCILER, _BROKER, "COMMIT"),)),
        Step(
            "The broker delivers. Inbox row and effect are one transaction; then the key is recorded as consumed.",
            (
                Arrow(_BROKER, _CONSUMER, "message"),
                Mark(_CONSUMER, "effect"),
                Arrow(_CONSUMER, _REDIS, "commit set"),
            ),
        ),
        Step(
            "The reconciler waits until the inbox has the row. Only then is the repair done.",
            (Arrow(_RECONCILER, _CONSUMER, "inbox row"),),
        ),
    ),
    first=5,
    end="One effect.",
    is_repair=True,
)
ONE_MESSAGE = Story(name="one-message", title="The way of one message", parts=(_LOSES, _FINDS))
