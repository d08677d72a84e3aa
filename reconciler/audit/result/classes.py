"""Ordered list of classes. Every key of a subscription is in exactly one class: the first class whose rule matches.

Docs, findings, the judgement and the SQL reference take names, order and words from this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KeyClass(StrEnum):
    """Outcome of a key in one subscription. The members are in the order in which the rules are tried."""

    EFFECT_INCOMPLETE = "EFFECT_INCOMPLETE"
    EFFECT_WITHOUT_COMMIT = "EFFECT_WITHOUT_COMMIT"
    DOUBLE_EFFECT = "DOUBLE_EFFECT"
    REPAIR_DIFFERS = "REPAIR_DIFFERS"
    UNNECESSARY_REPAIR = "UNNECESSARY_REPAIR"
    NOT_ANNOUNCED_NOT_FOUND = "NOT_ANNOUNCED_NOT_FOUND"
    UNACCOUNTED = "UNACCOUNTED"
    LOST = "LOST"
    QUARANTINED = "QUARANTINED"
    REPAIRED = "REPAIRED"
    EFFECT_LATE = "EFFECT_LATE"
    EFFECT_IN_TIME = "EFFECT_IN_TIME"
    FILTERED = "FILTERED"
    REJECTED = "REJECTED"
    ROLLED_BACK = "ROLLED_BACK"
    PENDING = "PENDING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One class of the list, with its rule."""

    name: KeyClass
    #: Condition of the rule. It is tested only if all earlier rules have failed.
    rule: str
    #: Meaning for the system's operators.
    meaning: str
    #: Example: the story of one key in this class.
    example: str
    #: True: the system has broken a promise (exit 1).
    violation: bool = False
    #: True: the report lists the keys one by one.
    listed: bool = False

    @property
    def number(self) -> int:
        """Number in the list, from 1."""
        return NUMBERS[self.name]

    @property
    def text(self) -> str:
        """Text of the rule in findings."""
        return f"{self.number}. {self.rule}"


RULES: tuple[Rule, ...] = (
    Rule(
        name=KeyClass.EFFECT_INCOMPLETE,
        rule="an inbox row that is incomplete",
        meaning="The handler ended the transaction before it returned: a part of the effect may be missing, and nobody "
        "has accepted or deleted the row. It is no effect and no absence, so that no later rule is tried.",
        example="The inbox of `billing` has the key, written 10:00:07, with a mark in `incomplete`.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.EFFECT_WITHOUT_COMMIT,
        rule="effect, and no outbox row or only a tombstone",
        meaning="A consumer acted on a message whose local transaction was never committed.",
        example="The inbox of `billing` holds the key, applied 10:00:07; the outbox of every producer group was given "
        "and none has a row of the key.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.DOUBLE_EFFECT,
        rule="more than one effect in the business tables, or an effect in more than one inbox of the group",
        meaning="The message took effect twice.",
        example="The business table of `billing` counts 2 payments for the key; one inbox, which holds one row a key "
        "by its primary key, could not show it. Or two inboxes of `billing` have the key.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.REPAIR_DIFFERS,
        rule="a repair was sent that reaches the group, effect, and the digests of outbox and inbox are unequal",
        meaning="What was consumed after a repair is not what was committed.",
        example="Republished at 10:02:00; the outbox row's content digest is 5A.., the inbox row's is 91..",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.UNNECESSARY_REPAIR,
        rule="the first send of a repair is later, by more than the skew bound, than the effect in a group it reaches",
        meaning="A message was sent again though it had taken effect already.",
        example="Applied in `billing` at 10:00:07, END sent again at 10:01:40, skew bound 10 s.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.NOT_ANNOUNCED_NOT_FOUND,
        rule="committed, tag accepted, no effect, older than the grace period, neither announced in history nor in the "
        "ledger",
        meaning="A commit that the reconciler never saw: it was not announced, and no effect came of it.",
        example="Outbox row of 10:00:00, state NEW; no inbox row, no row in `announced`, no candidate.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.UNACCOUNTED,
        rule="announced, then neither consumed, nor left, nor in the next snapshot of pending, nor in the ledger, nor "
        "committed with a tag that is not accepted",
        meaning="The reconciler took the key and forgot it.",
        example="Taken by the round of 10:00:05; no row in `left` or `consumed`; the snapshot of 00:00:00 lacks it; "
        "no candidate.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.LOST,
        rule="committed, tag accepted, no effect, not quarantined, older than the grace period",
        meaning="A committed message took no effect, and no person or setting has given it up. Where the ledger has it "
        "as LAGGING or RETRYING, the broker still delivers it, which a note says: a later audit of the window finds it "
        "EFFECT_LATE.",
        example="Outbox row of 10:00:00, announced 10:00:05, candidate OPEN with LOST_CONFIRM; at 12:00:00 no "
        "inbox row.",
        violation=True,
        listed=True,
    ),
    Rule(
        name=KeyClass.QUARANTINED,
        rule="the ledger holds it as QUARANTINED, a person dismissed it from there, or its verdict is BEFORE_SINCE",
        meaning="Given up with a verdict, dead-lettered ones too: a person must look. What was sent before the group's "
        "subscription began is the setting `since` to decide.",
        example="Candidate QUARANTINED with verdict DEAD_LETTERED.",
        listed=True,
    ),
    Rule(
        name=KeyClass.REPAIRED,
        rule="effect, and a repair was sent that reaches the group",
        meaning="The message was lost, found, sent again, and took effect.",
        example="END sent again at 10:01:40, applied at 10:01:41.",
    ),
    Rule(
        name=KeyClass.EFFECT_LATE,
        rule="effect more than late_after_seconds after the commit",
        meaning="Took effect once, without a repair, later than promised.",
        example="Committed 10:00:00, applied 10:07:00, late_after_seconds 300.",
        listed=True,
    ),
    Rule(
        name=KeyClass.EFFECT_IN_TIME,
        rule="any other effect",
        meaning="As it should be.",
        example="Committed 10:00:00, applied 10:00:01.",
    ),
    Rule(
        name=KeyClass.FILTERED,
        rule="committed, no effect, tag not accepted",
        meaning="Not taken: the group does not subscribe to the message's tag.",
        example="Tag `audit`; the group takes `payment` only.",
    ),
    Rule(
        name=KeyClass.REJECTED,
        rule="no outbox row, no effect",
        meaning="Announced or judged, but never committed.",
        example="In `announced` with a key that no outbox holds.",
    ),
    Rule(
        name=KeyClass.ROLLED_BACK,
        rule="tombstone, no effect",
        meaning="The local transaction ended without a commit, and nothing happened.",
        example="Outbox row with state ROLLED_BACK, no inbox row.",
    ),
    Rule(
        name=KeyClass.PENDING,
        rule="committed, tag accepted, no effect, younger than the grace period",
        meaning="Too early to say.",
        example="Committed 20 s before the watermark, grace period 60 s.",
    ),
)

#: Number of each class in the list, from 1.
NUMBERS: dict[str, int] = {name: index for index, name in enumerate(KeyClass, start=1)}
NAMES: tuple[str, ...] = tuple(str(rule.name) for rule in RULES)
VIOLATIONS = frozenset(str(rule.name) for rule in RULES if rule.violation)
LISTED = frozenset(str(rule.name) for rule in RULES if rule.listed)
BY_NAME: dict[str, Rule] = {str(rule.name): rule for rule in RULES}
