"""The replay worker runs the hand-over rows of its group through the group's own handler and inbox.

The daemon never loads user code. For each group that lacks the effect, the daemon inserts a row with the message. A
worker in the consuming service, or `reconciler replay`, claims the row. When a worker dies, its claim expires, and the
next worker runs the message again. The inbox makes a second run harmless.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from checkback_consumers.errors import InboxNotReached
from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.inbox import SOURCE_HAND_OVER, InboxAnswer
from checkback_consumers.message import HandedOverMessage
from reconciler.clock import Backoff, Clock, SystemClock
from reconciler.contract.defaults import STATEMENT_SECONDS
from reconciler.contract.secret import Secret
from reconciler.contract.tables import HoldKind, RepairState
from reconciler.errors import Collision, InvalidValue, PermanentError, ReconcilerError, told_error
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.plan import inbox_reaches
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.sql.engines import open_engine
from reconciler.sql.pools import close_engine

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 16
LEASE_SECONDS = 60.0
POLL_SECONDS = 1.0
BACK_OFF = Backoff(first_seconds=1.0, longest_seconds=300.0)
_AWAY_SECONDS_MAX = 30.0
ROWS_AT_ONCE = 100
#: The run ends after this many rows in succession that did not reach the handler's database, because further rows would
#: not reach the database either.
UNREACHED_ROWS_MAX = 3


class HandOverQueue(Protocol):
    """The calls of ports.Repairs, ports.HandOvers and ports.Holds that a worker needs."""

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Returns each held topic with the kinds of its holds."""
        ...

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Returns due rows of the group."""
        ...

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Claims a row."""
        ...

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Changes a row that is claimed under the token."""
        ...

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """Returns the row's message. Raises MalformedInput if somebody changed the stored message."""
        ...

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """Makes a row DONE that is claimed under the token."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCounts:
    """Numbers of rows that one run handled, by their result."""

    applied: int = 0
    #: The inbox had the key, because the effect came another way first.
    already_applied: int = 0
    #: The row failed, and another try follows.
    postponed: int = 0
    #: The handler's database was away before the handler began. Such a try does not count as an attempt.
    unreached: int = 0
    #: The row was given up and is FAILED.
    failed: int = 0
    #: Another worker claimed the row, before this worker ran the row or meanwhile.
    lost_claims: int = 0
    #: The row was not run, because a person or the circuit breaker holds the topic.
    held: int = 0

    @property
    def has_reached(self) -> bool:
        """True if a row reached the handler."""
        return self.applied + self.already_applied + self.postponed + self.failed > 0

    def __add__(self, other: ReplayCounts) -> ReplayCounts:
        return ReplayCounts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


class ReplayWorker:
    """Runs hand-over rows in one thread. Several workers of one group do not disturb each other."""

    def __init__(
        self,
        #: The result of `@transactional_handler`. The worker runs the rows of the handler's group.
        handler: TransactionalHandler,
        *,
        #: Environment of the reconciler's settings.
        environment: str,
        #: Topics whose rows the worker takes.
        topics: str | Iterable[str],
        #: URL of the ledger. The login of the URL needs the rights of replay. Give this or `queue`.
        ledger_url: Secret | None = None,
        #: Another source of rows, for tests.
        queue: HandOverQueue | None = None,
        #: How long a claim keeps the row for its worker.
        lease_seconds: float = LEASE_SECONDS,
        #: Pause while no row is due.
        poll_seconds: float = POLL_SECONDS,
        #: Number of tries after which a row is given up.
        attempts_max: int = ATTEMPTS_MAX,
        #: The age at which your service deletes inbox rows. Rows for older messages are given up. None: it deletes
        #: none.
        inbox_keep_days: float | None = None,
        #: The value of unique_key_topic.signature_secret in the settings. A row without a valid signature is refused.
        #: None: signatures are not checked.
        signature_secret: str | Callable[[], Sequence[bytes]] | None = None,
        #: For tests.
        clock: Clock | None = None,
        #: For tests.
        jitter: random.Random | None = None,
    ) -> None:
        """Raises InvalidValue."""
        if not isinstance(handler, TransactionalHandler):
            raise InvalidValue("handler", handler, "decorate it with @transactional_handler")
        if (ledger_url is None) == (queue is None):
            raise InvalidValue("ledger_url", ledger_url, "give either ledger_url or queue")
        self._engine = None if ledger_url is None else open_engine(ledger_url, statement_seconds=STATEMENT_SECONDS)
        secret = signature_secret.encode() if isinstance(signature_secret, str) else signature_secret
        self._queue: HandOverQueue | None = (
            queue if self._engine is None else HandOverRows(self._engine, signature_secret=secret)
        )
        self._handler = handler
        self._environment = environment
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._attempts_max = attempts_max
        self._inbox_keep_seconds = None if inbox_keep_days is None else inbox_keep_days * 86_400
        self._clock = clock or SystemClock()
        self._jitter = jitter or random.Random()
        #: Counts of `run` since the worker was made.
        self.counts = ReplayCounts()
        self._turns = 0
        #: Topics that were held at the last look. The set makes sure that each hold is logged once.
        self._held: set[str] = set()

    def run_once(self, *, limit: int = ROWS_AT_ONCE, stop: threading.Event | None = None) -> ReplayCounts:
        """Runs the rows that are due, at most `limit` per topic. Each call starts with another topic.

        Stops when several rows in succession did not reach the handler's database. A single row may have met an error
        of its own. Holds are read before each row, and rows of a held topic are not run. Raises DatabaseAway if the
        ledger is away. Raises ConfigurationError if the ledger's login may not read the holds. Raises UsageError if an
        asynchronous handler is not open.
        """
        counts = ReplayCounts()
        unreached = 0
        first = self._turns % max(1, len(self._topics))
        self._turns += 1
        for topic in self._topics[first:] + self._topics[:first]:
            rows = self._open_queue.claimable(self._environment, topic, scope=self._handler.group, limit=limit)
            for position, row in enumerate(rows):
                if stop is not None and stop.is_set():
                    return counts
                self._handler.require_open()
                if self._is_held(topic):
                    counts += ReplayCounts(held=len(rows) - position)
                    break
                done = self._work_on(row)
                counts += done
                unreached = unreached + done.unreached if not done.has_reached else 0
                if unreached == UNREACHED_ROWS_MAX:
                    return counts
        return counts

    def run(self, stop: threading.Event) -> ReplayCounts:
        """Runs due rows until the event is set, and finishes the row that it is running then. If a database is away,
        the worker tries again later."""
        counts = ReplayCounts()
        failures = 0
        away = Backoff(self._poll_seconds, _AWAY_SECONDS_MAX)
        while not stop.is_set():
            try:
                done = self.run_once(stop=stop)
                failures = failures + 1 if done.unreached and not done.has_reached else 0
            except ReconcilerError as error:
                failures += 1
                logger.warning("hand_overs_wait: hand-overs of %s wait: %s", self._handler.group, error)
                done = ReplayCounts()
            counts += done
            self.counts += done
            pause = away.pause_seconds(failures) if failures else self._poll_seconds
            self._clock.wait(stop, pause)
        return counts

    def close(self) -> None:
        """Closes the ledger's connections, if they are the worker's own."""
        if self._engine is not None:
            close_engine(self._engine)

    @property
    def _open_queue(self) -> HandOverQueue:
        assert self._queue is not None  # noqa: S101 - one of the two was given
        return self._queue

    def _is_held(self, topic: str) -> bool:
        kinds = self._open_queue.active(self._environment).get(topic, ())
        if kinds and topic not in self._held:
            logger.warning(
                "hand_overs_held: hand-overs of %s to %s wait: the topic is held (%s)",
                topic,
                self._handler.group,
                kinds[0],
            )
        (self._held.add if kinds else self._held.discard)(topic)
        return bool(kinds)

    def _work_on(self, row: Repair) -> ReplayCounts:
        token = f"replay:{secrets.token_hex(16)}"
        queue = self._open_queue
        claimed = queue.claim(row, token=token, lease_seconds=self._lease_seconds)
        if claimed is None:
            return ReplayCounts(lost_claims=1)
        if claimed.attempts >= self._attempts_max:
            return self._note_failure(claimed, UnfitHandOver("every attempt ended without an answer"), token)
        # The attempt is counted before the handler runs, because a message that kills its process must not do so for
        # ever.
        start = RepairChange(state=RepairState.SENDING, rung=claimed.rung, counts_as_attempt=True)
        sending = queue.change(claimed, start, token=token)
        if sending is None:
            return ReplayCounts(lost_claims=1)
        try:
            entered = self._apply(sending)
        except InboxNotReached as error:
            return self._put_back(sending, error, token)
        except Exception as error:  # noqa: BLE001 - every error of the service's code is written down and tried again
            return self._note_failure(sending, error, token)
        answer = "applied" if entered is InboxAnswer.NEW else f"already applied ({entered})"
        if queue.finish(sending, token=token, answer=answer) is None:
            logger.info(
                "hand_over_finished_late: hand-over of %s was finished after its claim had ended", row.unique_key
            )
            return ReplayCounts(lost_claims=1)
        return ReplayCounts(
            applied=int(entered is InboxAnswer.NEW), already_applied=int(entered is not InboxAnswer.NEW)
        )

    def _apply(self, row: Repair) -> InboxAnswer:
        message = self._open_queue.message_of(row)
        if message is None:
            raise UnfitHandOver(f"the hand-over row of {row.unique_key} holds no message")
        if message.unique_key != row.unique_key or message.real_topic != row.topic:
            raise UnfitHandOver(f"the hand-over row of {row.unique_key} holds another message")
        # If the effect came another way, the service may delete the inbox row while the hand-over row waits.
        written_ms = min(message.born_timestamp_ms, row.created_at_ms)
        if not inbox_reaches(self._inbox_keep_seconds, written_ms, now_ms=self._now_ms(row)):
            raise UnfitHandOver("older than inbox_keep_days: its inbox row may have been deleted")
        return self._handler.apply(HandedOverMessage.of(message), source=SOURCE_HAND_OVER)

    def _now_ms(self, row: Repair) -> int:
        """Returns the database time of the claim: the end of its lease minus the lease."""
        if row.lease_until_ms is None:
            return self._clock.now_ms()
        return row.lease_until_ms - round(self._lease_seconds * 1000)

    def _note_failure(self, row: Repair, error: Exception, token: str) -> ReplayCounts:
        """Writes the failure into the row. Collisions and unreadable rows fail at once. After any other error, the row
        is tried again, up to the maximum number of attempts."""
        text = told_error(error)
        is_final = row.attempts >= self._attempts_max or isinstance(error, PermanentError)
        logger.log(
            logging.ERROR if is_final else logging.WARNING,
            "hand_over_failed: hand-over of %s to %s failed (attempt %d%s): %s",
            row.unique_key,
            row.scope,
            row.attempts,
            ", given up" if is_final else "",
            text,
            exc_info=None if isinstance(error, Collision) else error,
        )
        change = RepairChange(
            state=RepairState.FAILED if is_final else RepairState.OPEN,
            rung=row.rung,
            answer=text,
            wait_seconds=0.0 if is_final else BACK_OFF.jittered_seconds(row.attempts - 1, self._jitter),
            releases=True,
        )
        if self._open_queue.change(row, change, token=token) is None:
            return ReplayCounts(lost_claims=1)
        return ReplayCounts(failed=int(is_final), postponed=int(not is_final))

    def _put_back(self, row: Repair, error: InboxNotReached, token: str) -> ReplayCounts:
        """Puts the row back without counting the attempt, because an outage of hours must not use up the attempts of
        every message."""
        logger.warning("hand_over_waits: hand-over of %s to %s waits: %s", row.unique_key, row.scope, error)
        change = RepairChange(
            state=RepairState.OPEN,
            rung=row.rung,
            answer=told_error(error),
            wait_seconds=BACK_OFF.first_seconds,
            releases=True,
            takes_back_attempt=True,
        )
        is_mine = self._open_queue.change(row, change, token=token) is not None
        return ReplayCounts(unreached=1, lost_claims=int(not is_mine))


class UnfitHandOver(PermanentError):
    """The row can never have an effect."""
