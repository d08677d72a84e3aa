"""Reports to people: looks for news in the ledger, and sends the due messages of each notifier.

All unfinished work is in the ledger, so another process can continue it.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ulid import ULID

from reconciler.clock import Backoff, Clock
from reconciler.contract.facts import Code, Fact
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import NoticeKind
from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import ChannelAway, ChannelRefused, ReconcilerError
from reconciler.telling.conversations import (
    LEASE_SECONDS,
    PASSING_KINDS,
    Episodes,
    Pace,
    after_past,
    after_patience,
    after_standing,
    by_present_clock,
    is_untold,
    new_conversation,
    oldest_untold_ms,
    unheard,
)
from reconciler.telling.ledger_silence import SILENT_MS, LedgerSilence
from reconciler.telling.ports.notices import Conversation, Notice, NoticeChannel, Notices, Place, StandingTrouble
from reconciler.telling.ports.reports import LedgerReports

logger = logging.getLogger(__name__)

LEDGER_SILENT = Code("wiring.ledger-silent")

#: Maximum number of messages of all notifiers that are sent at the same moment. A notifier sends its messages one after
#: the other.
SENT_AT_ONCE_MAX = 4
BACKOFF = Backoff(first_seconds=5.0, longest_seconds=300.0)
#: Pause after a refusal by a receiver. The pause is long, because a person has to correct something.
REFUSED_SECONDS = 300.0
#: Kinds of troubles that are read from the ledger. Watches of a process may find further kinds.
_OF_LEDGER = frozenset({NoticeKind.QUARANTINED, NoticeKind.REPAIR_FAILED, NoticeKind.BREAKER_OPEN})

#: A function that returns kind -> the present troubles. A kind that could not be judged is missing from its answer, and
#: is not reported.
Watch = Callable[[LedgerReports, int], Mapping[NoticeKind, Sequence[StandingTrouble]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One notifier with its kinds of troubles, its pace, and its channel."""

    name: str
    kinds: frozenset[NoticeKind]
    pace: Pace
    channel: NoticeChannel
    #: Least seconds between two messages, usually of all processes together. The receiver may refuse faster messages.
    gap_seconds: float = 0.0
    #: True if the messages contain business ids.
    tells_business_ids: bool = True


class NoticeService:
    """Looks for news and sends messages.

    Each method belongs to certain threads. One thread calls look(). Each notifier has a thread that calls send(). A
    thread that never asks the ledger calls tell_silence().
    """

    def __init__(
        self,
        notices: Notices,
        reports: LedgerReports,
        *,
        environment: str,
        subscriptions: Sequence[Subscription],
        listeners: Sequence[Listener],
        clock: Clock,
        is_refusal: Callable[[ReconcilerError], bool],
        watches: Sequence[Watch] = (),
        kinds: frozenset[NoticeKind] = frozenset(NoticeKind),
        lease_seconds: float = LEASE_SECONDS,
        name_of: Callable[[str], str] = lambda _key: "",
    ) -> None:
        """`is_refusal`: returns True for an error by which the ledger refuses this login.

        `watches`: find troubles that the ledger does not show. `kinds`: kinds of troubles about which this service
        decides. `name_of`: returns the business id of a unique key from its outbox, and raises nothing.
        """
        self._notices = notices
        self._reports = reports
        self._environment = environment
        self._subscriptions = subscriptions
        self._places = {(one.topic, one.group) for one in subscriptions}
        self._listeners = {one.name: one for one in listeners}
        self._clock = clock
        self._is_refusal = is_refusal
        self._watches = watches
        self._kinds = kinds
        self._lease_seconds = lease_seconds
        self._name_of = name_of
        self._dice = random.Random()
        self._at_once = threading.BoundedSemaphore(SENT_AT_ONCE_MAX)
        self._lock = threading.Lock()
        self._silences = dict.fromkeys(self._listeners, LedgerSilence())
        #: Only the thread that calls look() uses this.
        self._episodes: dict[Place, Episodes] = {}
        #: The monotonic time at which the present look began. None: no look is under way.
        self._looking_since: float | None = None
        #: Notifier -> number of failures in a row. A second mapping has the monotonic time before which nothing is
        #: sent.
        self._failures: Counter[str] = Counter()
        self._paused_until: dict[str, float] = {}
        #: (Notifier, outcome) -> number of messages. Outcomes are sent, failed and refused.
        self.outcomes: Counter[tuple[str, str]] = Counter()
        #: Notifier -> the time since which a message is due and unsent, by the ledger's clock. None: no message is due.
        self.untold_since_ms: Mapping[str, int | None] = {}
        self.looked_at_ms: int | None = None

    def look(self) -> None:
        """Looks once, and decides what to report. Raises nothing."""
        problem: str | None = None
        asked_at_ms = self._clock.now_ms()
        with self._lock:
            self._looking_since = self._clock.monotonic_seconds()
        try:
            self._look()
        except ReconcilerError as error:
            # A ledger that refuses this login has answered, so nobody is woken. `doctor` names the missing right.
            problem = None if self._is_refusal(error) else str(error)
            logger.warning("notices_unread", extra={"error": str(error)})
        except Exception:  # the next look finds all news that this look missed, because they stay in the ledger
            logger.exception("notices_failed")
        with self._lock:
            self._looking_since = None
            self._note(problem, asked_at_ms)

    def _note(self, problem: str | Fact | None, asked_at_ms: int) -> None:
        now_ms = self._clock.now_ms()
        self._silences = {
            name: silence.after_look(problem, asked_at_ms=asked_at_ms, now_ms=now_ms)
            for name, silence in self._silences.items()
        }

    def _look(self) -> None:
        known = self._conversations()
        now_ms = self._notices.now_ms()  # read after the rows, so no row has a later time
        new = [name for name in self._listeners if name not in known]
        for name in new:
            self._notices.begin(self._environment, name)
        stepped = list(self._set_back(known, now_ms))
        for one in stepped:
            self._write(one)
        if new or stepped:
            known = self._conversations()
        known = {name: known.get(name, {}) for name in self._listeners}  # damaged rows belong to no listener
        born_ms = {
            name: min([now_ms, *(one.created_at_ms for one in of_notifier.values())])
            for name, of_notifier in known.items()
        }
        self._decide_past(known, born_ms, now_ms)
        self._decide_standing(known, born_ms, now_ms)
        self.untold_since_ms = {name: oldest_untold_ms(known[name].values(), now_ms=now_ms) for name in self._listeners}
        self.looked_at_ms = now_ms

    def _conversations(self) -> dict[str, dict[Place, Conversation]]:
        found: dict[str, dict[Place, Conversation]] = {}
        for one in self._notices.conversations(self._environment):
            if one.notifier in self._listeners:
                found.setdefault(one.notifier, {})[one.place] = one
        return found

    def _set_back(self, known: Mapping[str, Mapping[Place, Conversation]], now_ms: int) -> Iterator[Conversation]:
        for name, of_notifier in known.items():
            listener = self._listeners[name]
            for one in of_notifier.values():
                is_heard = one.kind in listener.kinds
                present = by_present_clock(one if is_heard else unheard(one), pace=listener.pace, now_ms=now_ms)
                if present != one and not one.is_claimed:
                    yield present

    def _decide_past(
        self, known: Mapping[str, Mapping[Place, Conversation]], born_ms: Mapping[str, int], now_ms: int
    ) -> None:
        places: list[Place] = [(NoticeKind.OUTAGE, None, None)]
        places += [(NoticeKind.LOSS_PROVED, one.topic, one.group) for one in self._subscriptions]
        asked = [
            (listener, self._conversation(known, born_ms, listener, place))
            for listener in self._listeners.values()
            for place in places
            if place[0] in listener.kinds & self._kinds
        ]
        found = self._notices.past(self._environment, [(one.place, one.mark_ms) for _, one in asked])
        pasts = [found[one.place, one.mark_ms] for _, one in asked]
        for (_, one), past in zip(asked, pasts, strict=True):
            newest_ms = past.until_ms if past.count > one.mark_count else 0
            # The first unreported loss may have passed long ago. Only a process that has just begun uses its time.
            since_ms = now_ms if one.place in self._episodes else past.since_ms
            self._note_episode(one.place, is_open=past.is_open, since_ms=since_ms, newest_ms=newest_ms, now_ms=now_ms)
        for (listener, one), past in zip(asked, pasts, strict=True):
            if self._passes(listener, one, now_ms):
                self._write(after_patience(one, past, now_ms=now_ms))
            else:
                self._write(after_past(one, past, pace=listener.pace, now_ms=now_ms, new_id=_new_id))

    def _note_episode(self, place: Place, *, is_open: bool, since_ms: int, newest_ms: int = 0, now_ms: int) -> None:
        known = self._episodes.get(place, Episodes())
        since_ms = since_ms or now_ms
        self._episodes[place] = known.after(is_open=is_open, since_ms=since_ms, newest_ms=newest_ms, now_ms=now_ms)

    def _passes(self, listener: Listener, one: Conversation, now_ms: int) -> bool:
        """Returns True if the trouble may still pass by itself, so that it is not reported yet."""
        if one.kind not in PASSING_KINDS or not is_untold(one):
            return False
        return not self._episodes.get(one.place, Episodes()).are_told(listener.pace, now_ms=now_ms)

    def _decide_standing(
        self, known: Mapping[str, Mapping[Place, Conversation]], born_ms: Mapping[str, int], now_ms: int
    ) -> None:
        judged: dict[NoticeKind, Sequence[StandingTrouble]] = {kind: [] for kind in _OF_LEDGER & self._kinds}
        judged |= self._watched(now_ms)
        standing = {(one.kind, one.topic, one.group): one for of_kind in judged.values() for one in of_kind}
        if judged.keys() & _OF_LEDGER:
            found = self._notices.standing(self._environment, self._subscriptions)
            standing |= {(one.kind, one.topic, one.group): one for one in found}
        for kind in judged.keys() & PASSING_KINDS:
            for place in {place for place in (*self._episodes, *standing) if place[0] is kind}:
                there = standing.get(place)
                since_ms = 0 if there is None else there.since_ms
                self._note_episode(place, is_open=there is not None, since_ms=since_ms, now_ms=now_ms)
        for listener in self._listeners.values():
            ended = {place for place in known[listener.name] if self._is_judged(place)} - standing.keys()
            for place in sorted(ended | standing.keys(), key=str):
                if place[0] in listener.kinds & judged.keys():
                    one = self._conversation(known, born_ms, listener, place)
                    if not self._passes(listener, one, now_ms):
                        trouble = standing.get(place)
                        self._write(after_standing(one, trouble, pace=listener.pace, now_ms=now_ms, new_id=_new_id))

    def _is_judged(self, place: Place) -> bool:
        """Returns True if a trouble of this place that is not found has ended. Watches find troubles of configured
        subscriptions only."""
        kind, topic, group = place
        return kind in _OF_LEDGER or group is None or (topic, group) in self._places

    def _watched(self, now_ms: int) -> dict[NoticeKind, Sequence[StandingTrouble]]:
        found: dict[NoticeKind, Sequence[StandingTrouble]] = {}
        for watch in self._watches:
            try:
                seen = watch(self._reports, now_ms)
            except ReconcilerError:
                raise
            except Exception:  # a bug in one watch must not silence all other watches
                logger.exception("notices_failed")
                continue
            found |= {kind: troubles for kind, troubles in seen.items() if kind in self._kinds}
        return found

    def _conversation(
        self,
        known: Mapping[str, Mapping[Place, Conversation]],
        born_ms: Mapping[str, int],
        listener: Listener,
        place: Place,
    ) -> Conversation:
        one = known[listener.name].get(place)
        name = listener.name
        return one or new_conversation(self._environment, name, place, born_ms=born_ms[name])

    def _write(self, decided: Conversation | None) -> None:
        if decided is not None:
            self._notices.write(decided)  # if another process was faster, its decision stays

    def send(self, name: str) -> None:
        """Sends a notifier's due messages one after the other, until a message fails. Raises nothing."""
        listener = self._listeners[name]
        try:
            if not self._is_paused(name):
                self._send_due(listener)
        except ReconcilerError as error:  # the ledger is away, which tell_silence() reports
            logger.debug("notices_unsent: %s", error)
        except Exception:
            logger.exception("notices_failed")

    def _is_paused(self, name: str) -> bool:
        """Returns True if the notifier's receiver failed a moment ago, so that no message is sent now."""
        return self._clock.monotonic_seconds() < self._paused_until.get(name, 0.0)

    def tell_silence(self) -> None:
        """Reports that the ledger is away or back, from memory. Raises nothing, and never waits for the ledger."""
        with self._lock:
            began = self._looking_since
            hangs_seconds = 0.0 if began is None else self._clock.monotonic_seconds() - began
            if hangs_seconds * 1000 >= SILENT_MS:
                self._note(LEDGER_SILENT(), self._clock.now_ms() - round(hangs_seconds * 1000))
        for listener in self._listeners.values():
            if NoticeKind.LEDGER_AWAY in listener.kinds & self._kinds:
                self._tell_silence(listener)

    def _tell_silence(self, listener: Listener) -> None:
        name, interval_ms = listener.name, round(listener.pace.interval_seconds * 1000)
        if self._is_paused(name):
            return
        now_ms = self._clock.now_ms()
        with self._lock:
            notice = self._silences[name].due(self._environment, interval_ms=interval_ms, now_ms=now_ms)
        if notice is None or self._try(listener, notice, tries=1) is not None:
            return
        with self._lock:
            self._silences[name] = self._silences[name].once_told(notice, now_ms=now_ms)

    def _send_due(self, listener: Listener) -> None:
        due = self._notices.due(self._environment, listener.name, gap_seconds=listener.gap_seconds)
        for one in due:
            if one.kind not in listener.kinds:
                continue
            if not self._send_one(listener, one) or listener.gap_seconds:
                return

    def _send_one(self, listener: Listener, one: Conversation) -> bool:
        """Sends one message, unless another process was faster. Returns False if the receiver needs a pause."""
        with self._at_once:
            token = secrets.token_hex(16)
            mine = self._notices.claim(one, token=token, lease_seconds=self._lease_seconds)
            if mine is None or mine.waiting is None:
                return True
            failure = self._try(listener, mine.waiting.notice, tries=mine.attempts)
        if failure is None:
            self._notices.told(mine, token=token)
            return True
        self._notices.failed(
            mine, token=token, wait_seconds=failure.wait_seconds, error=failure.why, is_refused=failure.is_refused
        )
        return False

    def _try(self, listener: Listener, notice: Notice, *, tries: int) -> _Failure | None:
        """Tries to send once. Returns None if the message was sent. A receiver that failed gets a pause."""
        name = listener.name
        about = {"notifier": name, "kind": notice.kind.value, "topic": notice.topic, "notice_id": notice.notice_id}
        try:
            is_named = listener.tells_business_ids and is_unique_key(notice.detail)
            named = self._name_of(notice.detail) if is_named else ""
            listener.channel.send(replace(notice, business_id=named), at_ms=self._clock.now_ms())
        except ChannelRefused as error:
            failure = _Failure(str(error), REFUSED_SECONDS, is_refused=True)
        except ReconcilerError as error:
            asked = error.retry_after_seconds if isinstance(error, ChannelAway) else None
            pause = BACKOFF.jittered_seconds(max(tries - 1, self._failures[name]), self._dice)
            failure = _Failure(str(error), max(pause, asked or 0.0))
        except Exception as error:  # a bug of a channel must not end the thread, which has other messages to send
            logger.exception("notice_failed", extra=about)
            failure = _Failure(f"a bug: {type(error).__name__}", BACKOFF.longest_seconds)
        else:
            self.outcomes[name, "sent"] += 1
            self._failures[name] = 0
            logger.info("notice_sent", extra=about | {"is_over": notice.is_over, "count": notice.count})
            return None
        self.outcomes[name, "refused" if failure.is_refused else "failed"] += 1
        is_first = self._failures[name] == 0
        self._failures[name] += 1
        self._paused_until[name] = self._clock.monotonic_seconds() + failure.wait_seconds
        # Only the first failed try is logged above DEBUG. Metrics count further tries, and `doctor` shows the last one.
        level = logging.DEBUG if not is_first else logging.ERROR if failure.is_refused else logging.WARNING
        logger.log(level, "notice_unsent", extra=about | {"error": failure.why})
        return failure


@dataclass(frozen=True, slots=True)
class _Failure:
    why: str
    wait_seconds: float
    is_refused: bool = False


def _new_id() -> str:
    return str(ULID())
