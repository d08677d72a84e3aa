"""What a process tells of a ledger that is away, from its memory alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from reconciler.telling.ledger_silence import AGAIN_MS, SILENT_MS, LedgerSilence
from reconciler.telling.ports.notices import Notice

INTERVAL_MS = 900_000
#: Time of the first look.
BEGIN_MS = 1_700_000_000_000


@dataclass
class Watcher:
    """One process and one notifier; looks every five seconds."""

    now_ms: int = BEGIN_MS
    silence: LedgerSilence = field(default_factory=LedgerSilence)

    def look(self, problem: str | None, *, seconds: float = 0.0) -> None:
        """Looks for so long, once at least."""
        end_ms = self.now_ms + round(seconds * 1000)
        while True:
            self.silence = self.silence.after_look(problem, asked_at_ms=self.now_ms, now_ms=self.now_ms)
            if self.now_ms >= end_ms:
                return
            self.now_ms += 5_000

    def due(self) -> Notice | None:
        return self.silence.due("test", interval_ms=INTERVAL_MS, now_ms=self.now_ms)

    def told(self, notice: Notice) -> None:
        self.silence = self.silence.once_told(notice, now_ms=self.now_ms)

    def tell(self) -> Notice:
        """What is due is told."""
        notice = self.due()
        assert notice is not None
        self.told(notice)
        return notice


def test_a_ledger_that_comes_back_while_its_absence_is_being_sent_is_told_to_be_back() -> None:
    watcher = Watcher()
    watcher.look("no answer", seconds=125)
    begin = watcher.due()
    assert begin is not None
    watcher.look(None)
    watcher.told(begin)
    over = watcher.tell()
    assert (over.is_over, over.since_ms, over.until_ms) == (True, BEGIN_MS, watcher.now_ms)
    assert watcher.due() is None


def test_an_absence_after_one_that_ended_in_a_send_is_told_when_it_is_its_turn() -> None:
    watcher = Watcher()
    watcher.look("no answer", seconds=125)
    begin = watcher.due()
    assert begin is not None
    watcher.look(None, seconds=5)
    watcher.look("no answer", seconds=5)
    watcher.told(begin)
    watcher.look("no answer", seconds=INTERVAL_MS / 1000)
    second = watcher.tell()
    assert (second.is_over, second.since_ms) == (False, BEGIN_MS + 130_000)
    watcher.look(None)
    assert watcher.tell().since_ms == second.since_ms
    assert watcher.due() is None


def test_the_end_of_an_absence_is_owed_although_the_ledger_is_away_for_a_moment_once_more() -> None:
    watcher = Watcher()
    watcher.look("no answer", seconds=125)
    watcher.tell()
    watcher.look(None)
    assert watcher.due() is not None  # and its receiver does not take it
    watcher.look("no answer", seconds=10)
    watcher.look(None)
    assert watcher.tell().is_over
    assert watcher.due() is None


def test_two_absences_of_one_hour_have_ids_of_their_own_and_each_try_the_same() -> None:
    watcher = Watcher(now_ms=BEGIN_MS // AGAIN_MS * AGAIN_MS + AGAIN_MS - 130_000)
    watcher.look("no answer", seconds=125)
    first_try = watcher.due()
    watcher.look("no answer", seconds=10)  # into the next hour
    begin = watcher.tell()
    assert first_try is not None
    assert first_try.notice_id == begin.notice_id
    ids = [begin.notice_id]
    watcher.look(None)
    ids.append(watcher.tell().notice_id)
    watcher.look("no answer", seconds=INTERVAL_MS / 1000)
    ids.append(watcher.tell().notice_id)
    watcher.look("no answer", seconds=AGAIN_MS / 1000)
    ids.append(watcher.tell().notice_id)
    watcher.look(None)
    ids.append(watcher.tell().notice_id)
    assert len(set(ids)) == 5


def test_a_ledger_that_comes_and_goes_is_told_once_an_interval() -> None:
    watcher, begun = Watcher(), []
    for _ in range(20):
        watcher.look("no answer", seconds=180)
        if watcher.due() is not None:
            begun.append(watcher.tell().written_at_ms)
        watcher.look(None, seconds=5)
        if watcher.due() is not None:
            assert watcher.tell().is_over
    assert 3 <= len(begun) <= 5
    assert all(later - earlier >= INTERVAL_MS for earlier, later in pairwise(begun))


def test_a_clock_that_is_set_back_delays_no_message_for_as_long() -> None:
    watcher = Watcher()
    watcher.look("no answer", seconds=125)
    watcher.tell()
    watcher.now_ms -= 86_400_000
    watcher.look("no answer", seconds=AGAIN_MS / 1000)
    assert not watcher.tell().is_over


def test_two_processes_tell_an_absence_under_one_id() -> None:
    one, other = Watcher(), Watcher(now_ms=BEGIN_MS + 4_000)
    ids = set()
    for watcher in (one, other):
        watcher.look("no answer", seconds=SILENT_MS / 1000)
        ids.add(watcher.tell().notice_id)
    assert BEGIN_MS // SILENT_MS == (BEGIN_MS + 4_000) // SILENT_MS
    assert len(ids) == 1
