"""`reconciler dismiss`: closes quarantined keys after a person has dealt with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

from reconciler.commands.acts.dismissed_halves import DismissedHalves, HalfLine, not_looked_for
from reconciler.commands.acts.hand_over import ledger_rows
from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.acts.repair import seen_now, waiting_keys
from reconciler.commands.asking.availability import ask_ledger, require
from reconciler.commands.asking.business_ids import HINTS_MAX, other_case_note
from reconciler.contract.facts import Fact
from reconciler.contract.outcomes import DISMISSAL_TAKEN_BACK, TAKEN_BACK_NEVER_SENT
from reconciler.contract.row_rules import is_storable
from reconciler.contract.subscription import Subscription
from reconciler.contract.unique_key import UNIQUE_KEY_CHARACTERS_MAX, UNIQUE_KEY_SHAPE
from reconciler.contract.verdicts import NEVER_REPAIRED, Verdict
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import (
    CHANGED,
    CLOSED,
    DISMISSED,
    NOT_AS_SEEN,
    NOT_DISMISSED,
    TAKEN_BACK,
    Dismissals,
    EffectFound,
    effect_found,
    meaning_of,
)
from reconciler.policy.inquiry.delivery import message_of
from reconciler.policy.open_halves import HalfState
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.policy.ports.ledger import Candidate
from reconciler.telling.ports.reports import LedgerLife
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import build_witnesses
from reconciler.wiring.rounds import topic_plans
from reconciler.words import said

#: Maximum number of keys that one `dismiss --all` takes.
DISMISSED_MAX = 500
#: Maximum number of keys of one command whose halves are reported although the person did not ask. The half of one key
#: costs several questions to every broker.
HALVES_TOLD_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalLine:
    """The result of one key for one group."""

    topic: str
    group: str
    unique_key: str
    #: One of: dismissed, SETTLED, changed, "has its effect", "taken back", "not dismissed", or the state of a key on
    #: which the reconciler still works.
    outcome: str
    #: The meaning of the outcome, and what a person can do. None: the outcome says everything.
    told: Fact | None = None
    #: What the ledger has now. The value is set only for a key that has changed since the person saw it.
    now: Mapping[str, object] | None = None

    @property
    def sentence(self) -> str:
        """The key, the group and the outcome in one sentence. For a changed key, the sentence has the present state."""
        return f"{self.unique_key} of {self.topic}, {self.group}: {self._told or self._changed_to or self.outcome}"

    @property
    def _told(self) -> str:
        return "" if self.told is None else said(self.told)

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"told": self._told, "fact": None if self.told is None else self.told.as_dict()}

    @property
    def _changed_to(self) -> str:
        of_groups = (self.now or {}).get("verdicts")
        now = of_groups.get(self.group) if isinstance(of_groups, Mapping) else None
        return f"{now['state']} as {now['verdict']}" if self.outcome == CHANGED and now else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalReport:
    """What `reconciler dismiss` did, or would do."""

    keys: tuple[DismissalLine, ...]
    #: True: nothing was changed, and "dismissed" means that the key would be dismissed.
    dry_run: bool = False
    #: One line per key and topic. Only the first keys have a line, except in a dry run or if halves were to be closed.
    halves: tuple[HalfLine, ...] = ()
    #: True: the person asked to close halves, too.
    roll_back_half: bool = False
    #: Key -> the word for what a dry run saw. A later dismissal is compared with this word.
    seen: Mapping[str, str] = field(default_factory=dict)
    #: Every key that waits for a person, looked at or not. Only a preview of all keys has this list.
    waiting: tuple[str, ...] = ()

    columns = ("topic", "group", "unique key", "outcome")

    @property
    def changed(self) -> tuple[DismissalLine, ...]:
        """Lines of keys that have changed since the person saw them. The act closed none of these keys."""
        return tuple(line for line in self.keys if line.outcome in NOT_AS_SEEN)

    @property
    def dismissed(self) -> tuple[DismissalLine, ...]:
        """Lines that this act closed, or would close."""
        return tuple(line for line in self.keys if line.outcome == DISMISSED)

    @property
    def halves_left_out(self) -> int:
        """Number of messages whose half was not looked at."""
        return len({(line.topic, line.unique_key) for line in self.keys}) - len(self.halves)

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 5: a key has changed and stays, or a half that was to be closed was committed.
        Exit code 4: the reconciler still works on a key, or a half that was to be closed may still be open.
        Exit code 0: no key needs a person any more.
        """
        to_close = self.halves if self.roll_back_half else ()
        if self.changed or any(half.state is HalfState.COMMITTED for half in to_close):
            return ChangedMeanwhile.exit_code
        is_left = not self.dry_run and any(half.is_left for half in to_close)
        is_taken_back = any(line.outcome == TAKEN_BACK for line in self.keys)
        well = CLOSED | ({TAKEN_BACK, NOT_DISMISSED} if is_taken_back else set())
        return 4 if is_left or any(line.outcome not in well for line in self.keys) else 0

    def rows(self) -> list[tuple[str, ...]]:
        """Returns rows for people."""
        return [(line.topic, line.group, line.unique_key, line.outcome) for line in self.keys]

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        return {
            "dry_run": self.dry_run,
            "keys": [line.as_dict() for line in self.keys],
            "halves": [half.as_dict() for half in self.halves],
            "seen": dict(self.seen),
        }


def dismiss_keys(
    connections: Connections,
    unique_keys: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    reason: str,
    by: str,
    seen: Mapping[str, str] | None = None,
    dry_run: bool = False,
    roll_back_half: bool = False,
) -> DismissalReport:
    """Dismisses keys, so that they no longer need a person. Keys that have changed or have an effect stay.

    `seen`: key -> the word for what the person saw of the key (ports.seen_of). A key without such a word is compared
    with what is read first. `dry_run`: changes nothing, and returns the outcomes and whether a half is open.
    `roll_back_half`: after the dismissal, closes the half if no group needs it any more. A key whose half was committed
    is then not dismissed. Raises InvalidValue for a key without a verdict, and DatabaseAway.
    """
    keys, topics = _known(connections, unique_keys, topic=topic, group=group)
    errand = _Errand(connections, topics, group=group, roll_back_half=roll_back_half)
    for key, life in keys.items():
        for name, rows in topics[key].items():
            if dry_run:
                errand.preview(key, name, rows)
            else:
                errand.do(key, name, rows, is_as_seen=_is_as_seen(key, life, seen), by=by, reason=reason)
    return DismissalReport(
        keys=tuple(errand.lines),
        dry_run=dry_run,
        halves=tuple(errand.halves),
        roll_back_half=roll_back_half,
        seen={key: life.seen for key, life in keys.items()} if dry_run else {},
    )


def preview_of_all(
    connections: Connections,
    *,
    topic: str | None,
    group: str | None,
    verdict: Verdict | None = None,
    looked_at_max: int,
    roll_back_half: bool = False,
) -> DismissalReport:
    """Returns the outcomes for keys that wait for a person.

    `looked_at_max`: number of keys whose halves and effects are looked at. The report's `seen` has up to DISMISSED_MAX
    keys. Raises what dismiss_keys() raises.
    """
    keys = waiting_keys(connections, topic=topic, group=group, verdict=verdict)
    told = keys[:looked_at_max]
    preview = partial(dismiss_keys, reason="", by="", dry_run=True, roll_back_half=roll_back_half)
    report = preview(connections, told, topic=topic, group=group)
    more = seen_now(connections, keys[len(told) : DISMISSED_MAX])
    return replace(report, seen={**report.seen, **more}, waiting=tuple(keys))


def take_back_dismissals(
    connections: Connections,
    unique_keys: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    reason: str,
    by: str,
    seen: Mapping[str, str] | None = None,
) -> DismissalReport:
    """Makes dismissed keys wait for a person again. Keys that have changed meanwhile stay dismissed.

    Nothing is sent. `seen` has the meaning that it has in dismiss_keys(). Raises InvalidValue for a key without a
    verdict, and DatabaseAway.
    """
    keys, topics = _known(connections, unique_keys, topic=topic, group=group)
    dismissals = Dismissals(closings=connections.ledger.closings, configured=())
    lines: list[DismissalLine] = []
    for key, of in topics.items():
        is_as_seen = _is_as_seen(key, keys[key], seen)
        for name, rows in of.items():
            with recorded(
                connections, "take-back", by=by, topic=name, group=group, unique_key=key, detail=reason
            ) as outcome:
                if is_as_seen:
                    outcomes = dismissals.take_back(rows, group=group, by=by, reason=reason)
                else:
                    left = (row.subscription.group for row in rows.candidates if _has_group(row, group))
                    outcomes = dict.fromkeys(left, CHANGED)
                outcome.result = ", ".join(f"{of_group}: {what}" for of_group, what in outcomes.items())
            now = _now(connections, key, name) if CHANGED in outcomes.values() else None
            verdicts = {row.subscription.group: row.verdict for row in rows.candidates}
            lines += [
                DismissalLine(
                    topic=name,
                    group=of_group,
                    unique_key=key,
                    outcome=what,
                    told=_after_take_back(key, verdicts[of_group]) if what == TAKEN_BACK else None,
                    now=now if what == CHANGED else None,
                )
                for of_group, what in outcomes.items()
            ]
    return DismissalReport(keys=tuple(lines))


def _after_take_back(unique_key: str, verdict: Verdict) -> Fact:
    if verdict in NEVER_REPAIRED:
        return TAKEN_BACK_NEVER_SENT(verdict=str(verdict), unique_key=unique_key)
    return DISMISSAL_TAKEN_BACK(unique_key=unique_key)


def _known(
    connections: Connections, unique_keys: Sequence[str], *, topic: str | None, group: str | None
) -> tuple[Mapping[str, LedgerLife], Mapping[str, Mapping[str, KeyInLedger]]]:
    """Returns what the ledger has about each key: once as a whole, and once by topic.

    Raises InvalidValue for a key without a verdict.
    """
    if unkept := [key for key in unique_keys if not is_storable(key)]:
        raise InvalidValue(
            "KEYS", unkept[0][:UNIQUE_KEY_CHARACTERS_MAX], f"no unique key, which has {UNIQUE_KEY_SHAPE}"
        )
    require(ask_ledger(connections))
    # The ledger gives the topics of a key, because keys of topics that the settings lack may need a person, too.
    keys = {key: ledger_rows(connections, key) for key in dict.fromkeys(unique_keys)}
    topics = {key: _by_topic(life, topic=topic) for key, life in keys.items()}
    unheard = [key for key, of in topics.items() if not any(_has(rows, group) for rows in of.values())]
    if unheard:
        notes = [said(note) for key in sorted(unheard)[:HINTS_MAX] if (note := other_case_note(connections, key))]
        why = "; ".join(["no verdict has it: see reconciler explain", *notes])
        raise InvalidValue("KEYS", ", ".join(sorted(unheard)), why)
    return keys, topics


class _Errand:
    """Works on the keys of one command one after the other, and collects the results. Used by one thread only."""

    def __init__(
        self,
        connections: Connections,
        topics: Mapping[str, Mapping[str, KeyInLedger]],
        *,
        group: str | None,
        roll_back_half: bool,
    ) -> None:
        self.lines: list[DismissalLine] = []
        self.halves: list[HalfLine] = []
        self._connections = connections
        self._group = group
        self._roll_back_half = roll_back_half
        self._plans: Mapping[str, TopicPlan] = {plan.topic: plan for plan in topic_plans(connections.settings)}
        configured = {plan.subscription for topic_plan in self._plans.values() for plan in topic_plan.subscriptions}
        held = connections.ledger.holds.active(connections.settings.environment)
        self._dismissals = Dismissals(closings=connections.ledger.closings, configured=configured, held=held)
        self._looking = DismissedHalves(connections)
        self._effects = _effects(connections, topics, group=group)
        #: Topics for which a broker did not answer. The command does not wait for this broker again without need.
        self._silent: set[str] = set()

    def preview(self, key: str, topic: str, rows: KeyInLedger) -> None:
        """Adds what the dismissal would do."""
        outcomes = self._outcomes(key, topic, rows)
        half = self._half(key, topic, rows, dismissing=_dismissed(outcomes))
        self.halves.append(half)
        self._tell(key, topic, rows, self._unless_committed(outcomes, half))

    def do(self, key: str, topic: str, rows: KeyInLedger, *, is_as_seen: bool, by: str, reason: str) -> None:
        """Dismisses the key as a recorded act, and then closes the half."""
        outcomes = self._outcomes(key, topic, rows)
        half: HalfLine | None = None
        if self._roll_back_half:
            half = self._half(key, topic, rows, dismissing=_dismissed(outcomes))
            outcomes = self._unless_committed(outcomes, half)
        is_free = half is None or half.state is not HalfState.COMMITTED
        with recorded(
            self._connections, "dismiss", by=by, topic=topic, group=self._group, unique_key=key, detail=reason
        ) as outcome:
            if not is_as_seen:
                outcomes = dict.fromkeys(outcomes, CHANGED)
            elif is_free:
                effects = self._effects_of(key, topic)
                outcomes = self._dismissals.dismiss(rows, group=self._group, by=by, reason=reason, effects=effects)
            outcome.result = ", ".join(f"{of}: {what}" for of, what in outcomes.items())
        self._tell(key, topic, rows, outcomes)
        if not self._roll_back_half:
            self._tell_half(key, topic)
        elif is_free and topic in self._plans:
            read = partial(_read, self._connections, key, topic)
            self.halves.append(self._looking.close(self._plans[topic], key, read_ledger=read, by=by, reason=reason))
        elif half is not None:
            self.halves.append(half)

    def _tell_half(self, key: str, topic: str) -> None:
        """Reports the half of a dismissal that does not close the half."""
        if len(self.halves) < HALVES_TOLD_MAX and topic not in self._silent:
            half = self._half(key, topic, _read(self._connections, key, topic), dismissing=())
            self.halves.append(half)
            self._silent |= {topic} if half.state is HalfState.UNKNOWN else set()

    def _outcomes(self, key: str, topic: str, rows: KeyInLedger) -> dict[str, str]:
        return self._dismissals.outcomes(rows, group=self._group, effects=self._effects_of(key, topic))

    def _half(self, key: str, topic: str, rows: KeyInLedger, *, dismissing: Collection[str]) -> HalfLine:
        if topic not in self._plans:
            return not_looked_for(topic, key)
        return self._looking.look(self._plans[topic], key, ledger=rows, dismissing=dismissing)

    def _unless_committed(self, outcomes: dict[str, str], half: HalfLine) -> dict[str, str]:
        """Returns `outcomes`, or outcomes that dismiss nothing if the half was committed.

        A person who wants the half closed believes that the message is in no topic.
        """
        if not self._roll_back_half or half.state is not HalfState.COMMITTED:
            return outcomes
        return outcomes | dict.fromkeys(_dismissed(outcomes), CHANGED)

    def _effects_of(self, key: str, topic: str) -> Mapping[str, EffectFound]:
        return self._effects.get((topic, key), {})

    def _tell(self, key: str, topic: str, rows: KeyInLedger, outcomes: Mapping[str, str]) -> None:
        """Adds one line per group."""
        now = _now(self._connections, key, topic) if NOT_AS_SEEN & set(outcomes.values()) else None
        effects = self._effects_of(key, topic)
        for row in rows.candidates:
            group = row.subscription.group
            if group in outcomes:
                self.lines.append(
                    DismissalLine(
                        topic=topic,
                        group=group,
                        unique_key=key,
                        outcome=outcomes[group],
                        told=meaning_of(outcomes[group], row, effects.get(group, EffectFound()), rows.repairs),
                        now=now if outcomes[group] in NOT_AS_SEEN else None,
                    )
                )


def _effects(
    connections: Connections, topics: Mapping[str, Mapping[str, KeyInLedger]], *, group: str | None
) -> Mapping[tuple[str, str], Mapping[str, EffectFound]]:
    """Returns (topic, key) -> what each group's inbox says.

    The outbox is asked about effects that are found. One statement reads up to 500 keys of a group.
    """
    asked: dict[Subscription, list[str]] = {}
    for key, of in topics.items():
        for row in (row for rows in of.values() for row in rows.candidates if _has_group(row, group)):
            asked.setdefault(row.subscription, []).append(key)
    witnesses = build_witnesses(connections)
    effects: dict[tuple[str, str], dict[str, EffectFound]] = {}
    for subscription, keys in asked.items():
        inbox = witnesses.inbox.look_up(subscription, keys)
        there = {key: WHENEVER_COMMITTED_MS for key in keys if inbox[key].is_found}
        outbox = witnesses.outbox.look_up(subscription.topic, there) if there else {}
        for key in keys:
            found = effect_found(inbox[key], message_of(outbox.get(key)))
            effects.setdefault((subscription.topic, key), {})[subscription.group] = found
    return effects


def _dismissed(outcomes: Mapping[str, str]) -> Collection[str]:
    return {group for group, what in outcomes.items() if what == DISMISSED}


def _is_as_seen(unique_key: str, life: LedgerLife, seen: Mapping[str, str] | None) -> bool:
    """Returns True if the key is as the person saw it, or if the person gave no word for it."""
    return (seen or {}).get(unique_key, life.seen) == life.seen


def _read(connections: Connections, unique_key: str, topic: str) -> KeyInLedger:
    return _by_topic(ledger_rows(connections, unique_key), topic=topic).get(topic, KeyInLedger())


def _now(connections: Connections, unique_key: str, topic: str) -> Mapping[str, object]:
    """Returns the present state of a changed key, as a person reads it."""
    life = ledger_rows(connections, unique_key)
    rows = _by_topic(life, topic=topic).get(topic, KeyInLedger())
    return {"seen": life.seen} | rows.as_dict()


def _by_topic(life: LedgerLife, *, topic: str | None) -> dict[str, KeyInLedger]:
    names = dict.fromkeys(row.subscription.topic for row in life.candidates if topic in (None, row.subscription.topic))
    return {
        name: KeyInLedger(
            candidates=[row for row in life.candidates if row.subscription.topic == name],
            repairs=[row for row in life.repairs if row.topic == name],
        )
        for name in names
    }


def _has(rows: KeyInLedger, group: str | None) -> bool:
    return any(_has_group(row, group) for row in rows.candidates)


def _has_group(row: Candidate, group: str | None) -> bool:
    return group in (None, row.subscription.group)
