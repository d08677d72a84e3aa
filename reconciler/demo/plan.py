"""The plan of the demo's producers: the fate of each message, by the given numbers and the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from reconciler.errors import InvalidValue

#: Maximum number of messages of one demo.
MESSAGES_MAX = 100_000
#: Processes of the producer group that survives.
PRODUCERS = 2


class MessageFate(StrEnum):
    """The planned fate of one message."""

    DELIVER = "deliver"
    ROLL_BACK = "roll-back"
    #: END_TRANSACTION is dropped on its way. The producer lives, and announces the key.
    END_DROPPED = "end-dropped"
    #: SIGKILL comes between the database commit and END_TRANSACTION.
    KILLED_BEFORE_END = "killed-before-end"
    #: END_TRANSACTION is dropped, then SIGKILL comes before the announcement.
    KILLED_BEFORE_ANNOUNCING = "killed-before-announcing"
    #: END_TRANSACTION is dropped. The whole producer group is killed after its last commit.
    GROUP_DEAD = "group-dead"


LOSSES = frozenset(
    {
        MessageFate.END_DROPPED,
        MessageFate.KILLED_BEFORE_END,
        MessageFate.KILLED_BEFORE_ANNOUNCING,
        MessageFate.GROUP_DEAD,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMessage:
    """One message and its fate."""

    number: int
    fate: MessageFate
    #: Number of the producer process that sends the message. The dead group's process has the number PRODUCERS.
    producer: int
    tag: str


def plan_messages(messages: int, lose: int, seed: int) -> list[PlannedMessage]:
    """Returns `messages` committed messages, of which `lose` get lost, and max(1, messages/20) that are rolled back, in
    sending order.

    Raises InvalidValue unless 1 <= lose <= messages <= MESSAGES_MAX.
    """
    if not 1 <= messages <= MESSAGES_MAX:
        raise InvalidValue("--messages", messages, f"choose 1 to {MESSAGES_MAX}")
    if not 1 <= lose <= messages:
        raise InvalidValue("--lose", lose, "choose at least 1 and at most --messages")
    dice = random.Random(seed)
    fates = list(_loss_fates(lose))
    fates += [MessageFate.DELIVER] * (messages - lose)
    fates += [MessageFate.ROLL_BACK] * max(1, messages // 20)
    dice.shuffle(fates)
    # The first message is a loss of a living producer, which announces at once. So a spectator sees a loss early.
    early = fates.index(MessageFate.END_DROPPED)
    fates[0], fates[early] = fates[early], fates[0]
    return [
        PlannedMessage(
            number=number,
            fate=fate,
            producer=PRODUCERS if fate is MessageFate.GROUP_DEAD else dice.randrange(PRODUCERS),
            tag=dice.choice(("paid", "refunded")),
        )
        for number, fate in enumerate(fates)
    ]


def _loss_fates(lose: int) -> Iterator[MessageFate]:
    kills = min(8, lose // 4)
    yield from [MessageFate.KILLED_BEFORE_END] * kills
    yield from [MessageFate.KILLED_BEFORE_ANNOUNCING] * kills
    rest = lose - 2 * kills
    yield from [MessageFate.GROUP_DEAD] * (rest // 2)
    yield from [MessageFate.END_DROPPED] * (rest - rest // 2)


def consumer_kills(messages: int, seed: int) -> frozenset[int]:
    """Returns the numbers of messages whose first consumer is killed between effect and acknowledgement."""
    dice = random.Random(seed + 1)
    return frozenset(dice.sample(range(messages), k=min(3, messages // 20)))
