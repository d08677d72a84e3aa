"""Fault knobs, which make an embedded broker misbehave on purpose.

Any thread may set a knob through the Python API. The command line sets knobs with ``apply``. Clients set them with
UPDATE_BROKER_CONFIG, as properties named ``fault.<knob>``. A lock protects the knobs. Every knob is off at first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from reconciler.clock import Clock, SystemClock
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode

FOREVER = -1
SEND_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})


class EndFate(Enum):
    """The fate of one END_TRANSACTION."""

    NORMAL = "normal"
    DROP = "drop"  # neither executed nor answered, as if lost on its way
    CLOSE = "close"  # not executed, and the connection is closed
    DELAY = "delay"  # executed and answered later
    KILL = "kill"  # the producer is dead from now on


@dataclass(slots=True)
class _Countdown:
    """The number of times that a fault still strikes, or the time until which it strikes."""

    remaining: int = 0
    until_seconds: float | None = None

    def strikes(self, now_seconds: float) -> bool:
        if self.until_seconds is not None:
            if now_seconds < self.until_seconds:
                return True
            self.until_seconds = None
        if self.remaining == FOREVER:
            return True
        if self.remaining > 0:
            self.remaining -= 1
            return True
        return False


class Faults:
    """The knobs of one broker. ``count`` is the number of times that a fault strikes. With FOREVER, the fault strikes
    until it is cleared."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Fault -> number of times that it struck. "end" counts every END. "check_sent" and "check_answered" count
        #: check-backs.
        self.counts: Counter[str] = Counter()
        self._reset()

    def _reset(self) -> None:
        self._ends_seen = 0
        self._dropped_numbers: set[int] = set()
        self._dropped_keys: set[str] = set()
        self._drop_ends = _Countdown()
        self._close_ends = _Countdown()
        self._delay_ends = _Countdown()
        self._delay_seconds = 0.0
        self._kill_on_ends = _Countdown()
        self._dead_producers: set[str] = set()
        self._busy: dict[int, _Countdown] = {}
        self._lost_replies: dict[int, _Countdown] = {}
        self._silent = _Countdown()
        self._refusing = _Countdown()
        self._disk_full = _Countdown()
        self._flush = _Countdown()
        self._flush_code = int(ResponseCode.SUCCESS)
        self._checks = _Countdown()
        self._check_rounds = _Countdown()
        self._index_lag_seconds = 0.0
        self._tail_to_lose = 0

    def clear(self) -> None:
        """Turns every knob off, and keeps the counters."""
        with self._lock:
            self._reset()

    # -- END_TRANSACTION ---------------------------------------------------------------------------
    def drop_nth_end(self, *numbers: int) -> None:
        """Drops the ENDs with these numbers, counted from now on. The next END has number 1."""
        with self._lock:
            self._dropped_numbers |= {self._ends_seen + number for number in numbers}

    def drop_ends(self, count: int = FOREVER) -> None:
        """Drops the next `count` END requests."""
        with self._lock:
            self._drop_ends.remaining = count

    def drop_end_of(self, *keys: str) -> None:
        """Drops every END of the messages with these unique keys or business keys (KEYS)."""
        with self._lock:
            self._dropped_keys |= set(keys)

    def close_on_end(self, count: int = 1) -> None:
        """Closes the connection on which an END arrives, without executing it."""
        with self._lock:
            self._close_ends.remaining = count

    def delay_ends(self, seconds: float, count: int = FOREVER) -> None:
        """Executes and answers END requests after a delay of `seconds`."""
        with self._lock:
            self._delay_seconds = seconds
            self._delay_ends.remaining = count if seconds > 0 else 0

    def kill_producers_on_end(self, count: int = 1) -> None:
        """Kills the producer group of each END that arrives, and drops this END. Until `revive`, the broker asks no
        member of the group, and refuses the group's sends."""
        with self._lock:
            self._kill_on_ends.remaining = count

    def revive(self, *groups: str) -> None:
        """Revives these producer groups. Without names, revives all of them."""
        with self._lock:
            self._dead_producers -= set(groups or self._dead_producers)

    def bury(self, group: str) -> None:
        """Records a killed producer group. The broker calls this method, because it knows the group of the END."""
        with self._lock:
            self._dead_producers.add(group)

    def is_dead(self, group: str) -> bool:
        """Returns True for a killed producer group. The broker calls this method for each heartbeat and each send."""
        return bool(self._dead_producers) and group in self._dead_producers

    def fate_of_end(self, keys: Callable[[], set[str]]) -> tuple[EndFate, float]:
        """Returns the fate of an END, and the delay in seconds. ``keys`` returns the message's keys, and is called only
        if they matter."""
        with self._lock:
            self._ends_seen += 1
            self.counts["end"] += 1
            now = self._clock.monotonic_seconds()
            numbered = self._ends_seen in self._dropped_numbers
            self._dropped_numbers.discard(self._ends_seen)
            if numbered or (self._dropped_keys and self._dropped_keys & keys()) or self._drop_ends.strikes(now):
                self.counts["drop_end"] += 1
                return EndFate.DROP, 0.0
            if self._kill_on_ends.strikes(now):
                self.counts["kill_producer_on_end"] += 1
                return EndFate.KILL, 0.0
            if self._close_ends.strikes(now):
                self.counts["close_on_end"] += 1
                return EndFate.CLOSE, 0.0
            if self._delay_ends.strikes(now):
                self.counts["delay_end"] += 1
                return EndFate.DELAY, self._delay_seconds
            return EndFate.NORMAL, 0.0

    # -- any request -------------------------------------------------------------------------------
    def busy(self, *codes: int, count: int | None = None, seconds: float | None = None) -> None:
        """Answers SYSTEM_BUSY to requests with these codes, by default to all sends. `count` or `seconds` limits this
        fault. Without both limits, it lasts until clear()."""
        with self._lock:
            until = None if seconds is None else self._clock.monotonic_seconds() + seconds
            times = count if count is not None else 0 if until is not None else FOREVER
            for code in codes or SEND_CODES:
                self._busy[code] = _Countdown(times, until)

    def lose_replies(self, *codes: int, count: int = 1) -> None:
        """Executes requests with these codes, by default all sends, and never answers them."""
        with self._lock:
            for code in codes or SEND_CODES:
                self._lost_replies[code] = _Countdown(count)

    def stop_answering(self, seconds: float | None = None) -> None:
        """Makes the broker hang. Connections stay open, but requests are read and dropped. If `seconds` is None, this
        lasts until clear()."""
        with self._lock:
            if seconds is None:
                self._silent = _Countdown(FOREVER)
            else:
                self._silent = _Countdown(0, self._clock.monotonic_seconds() + seconds)

    def refuse(self, count: int = FOREVER) -> None:
        """Answers NO_PERMISSION to every request for a broker except UPDATE_BROKER_CONFIG. A count of 0 ends this
        fault.

        Version 5.3.3 with access control answers a client without credentials in this way. The name server still
        answers normally.
        """
        with self._lock:
            self._refusing.remaining = count

    def is_busy(self, code: int) -> bool:
        """Returns True if the broker must answer SYSTEM_BUSY to this request."""
        return self._strikes(self._busy.get(code), "busy")

    def is_refused(self, code: int) -> bool:
        """Returns True if this request for the broker is refused."""
        return code != RequestCode.UPDATE_BROKER_CONFIG and self._strikes(self._refusing, "refuse")

    def loses_reply(self, code: int) -> bool:
        """Returns True if the answer is lost."""
        return self._strikes(self._lost_replies.get(code), "lose_reply")

    def is_silent(self) -> bool:
        """Returns True if the request is dropped."""
        return self._strikes(self._silent, "silent")

    def _strikes(self, countdown: _Countdown | None, name: str) -> bool:
        if countdown is None or (countdown.remaining == 0 and countdown.until_seconds is None):
            return False
        with self._lock:
            if not countdown.strikes(self._clock.monotonic_seconds()):
                return False
            self.counts[name] += 1
            return True

    # -- storage -----------------------------------------------------------------------------------
    def fill_disk(self, count: int = FOREVER) -> None:
        """Refuses sends with SERVICE_NOT_AVAILABLE, like a broker with a full disk. A count of 0 ends this fault."""
        with self._lock:
            self._disk_full.remaining = count

    def answer_flush(self, status: str, count: int = FOREVER) -> None:
        """Stores sends, but answers FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE."""
        if status not in ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"):
            remedy = "FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE"
            raise InvalidValue("flush status", status, remedy)
        with self._lock:
            self._flush_code = int(ResponseCode[status])
            self._flush.remaining = count

    def lag_index(self, seconds: float) -> None:
        """Delays the index. Messages that are stored from now on become visible to QUERY_MESSAGE after these
        seconds."""
        with self._lock:
            self._index_lag_seconds = max(0.0, seconds)

    def lose_tail(self, count: int) -> None:
        """Loses the newest messages of the log before the next request. This happens after a power failure with
        asynchronous flush, or after a restored backup. New messages get the offsets of the lost messages. Offsets of
        groups stay."""
        with self._lock:
            self._tail_to_lose = max(0, count)

    def take_lost_tail(self) -> int:
        """Returns the number of messages that the broker loses before this request."""
        if not self._tail_to_lose:
            return 0
        with self._lock:
            count, self._tail_to_lose = self._tail_to_lose, 0
            self.counts["lose_tail"] += bool(count)
            return count

    def drop_checks(self, count: int = FOREVER) -> None:
        """Makes the check service put halves back, but send no CHECK_TRANSACTION_STATE."""
        with self._lock:
            self._checks.remaining = count

    def fail_check_rounds(self, count: int = FOREVER) -> None:
        """Ends each round of the check service after the first open half is put back. The service then saves no offset.
        So each round meets the same half, and later halves are neither put back nor asked about (RocketMQ #9500)."""
        with self._lock:
            self._check_rounds.remaining = count

    def fails_check_round(self) -> bool:
        """Returns True if the check round ends after this open half."""
        return self._strikes(self._check_rounds, "fail_check_round")

    def disk_is_full(self) -> bool:
        """Returns True if this send is refused."""
        return self._strikes(self._disk_full, "disk_full")

    def flush_code(self) -> int:
        """Returns the response code of a stored message."""
        return self._flush_code if self._strikes(self._flush, "flush") else int(ResponseCode.SUCCESS)

    def drops_check(self) -> bool:
        """Returns True if this check is not sent."""
        return self._strikes(self._checks, "drop_check")

    @property
    def index_lag_seconds(self) -> float:
        """Seconds by which the index lags behind the log."""
        return self._index_lag_seconds

    # -- by name -----------------------------------------------------------------------------------
    def apply(self, knob: str, value: str) -> None:
        """Sets one knob by its name. The command line and ``fault.<knob>`` properties use this method.

        Raises InvalidValue for an unknown knob or an unreadable value.
        """
        action = self.KNOBS.get(knob)
        if action is None:
            raise InvalidValue("fault", knob, "one of " + ", ".join(self.KNOBS))
        try:
            action(self, value)
        except ValueError as error:
            raise InvalidValue(knob, value, "a number, or numbers separated by commas") from error

    KNOBS: ClassVar[Mapping[str, Callable[[Faults, str], None]]] = {
        "drop_nth_end": lambda faults, text: faults.drop_nth_end(*map(int, text.split(","))),
        "drop_ends": lambda faults, text: faults.drop_ends(int(text)),
        "drop_end_of": lambda faults, text: faults.drop_end_of(*text.split(",")),
        "close_on_end": lambda faults, text: faults.close_on_end(int(text)),
        "kill_producers_on_end": lambda faults, text: faults.kill_producers_on_end(int(text)),
        "revive": lambda faults, text: faults.revive(*filter(None, text.split(","))),
        "delay_ends": lambda faults, text: faults.delay_ends(float(text)),
        "busy": lambda faults, text: faults.busy(count=int(text)),
        "busy_ends": lambda faults, text: faults.busy(RequestCode.END_TRANSACTION, count=int(text)),
        "busy_seconds": lambda faults, text: faults.busy(seconds=float(text)),
        "lose_end_replies": lambda faults, text: faults.lose_replies(RequestCode.END_TRANSACTION, count=int(text)),
        "lose_send_replies": lambda faults, text: faults.lose_replies(*SEND_CODES, count=int(text)),
        "stop_answering": lambda faults, text: faults.stop_answering(float(text)),
        "refuse": lambda faults, text: faults.refuse(int(text)),
        "fill_disk": lambda faults, text: faults.fill_disk(int(text)),
        "answer_flush": lambda faults, text: faults.answer_flush(text),
        "lag_index": lambda faults, text: faults.lag_index(float(text)),
        "lose_tail": lambda faults, text: faults.lose_tail(int(text)),
        "drop_checks": lambda faults, text: faults.drop_checks(int(text)),
        "fail_check_rounds": lambda faults, text: faults.fail_check_rounds(int(text)),
        "clear": lambda faults, _text: faults.clear(),
    }
