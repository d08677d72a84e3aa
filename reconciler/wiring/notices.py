"""Makes the threads that send notices: one thread looks at the ledger, and each notifier has a thread that sends.

No other thread of the process waits for a thread of notices. The threads of notices have their own database pool. A
stop does not wait for these threads, because they are daemon threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from reconciler.clock import Clock
from reconciler.contract.tables import NoticeKind
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.settings.notifiers import NotifierKind, NotifierSettings
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine
from reconciler.sql.pools import close_engine
from reconciler.sql.rights import lacks_right
from reconciler.telling.conversations import Pace
from reconciler.telling.notifier import Listener, NoticeService, Watch
from reconciler.wiring.channels import GAP_SECONDS, make_channel
from reconciler.wiring.subscriptions import subscription_of

#: Pause between two looks at the ledger, and between two looks of a sender for due messages.
LOOK_SECONDS = 5.0
SEND_SECONDS = 1.0
#: Number of connections that looks and senders share.
_POOL_SIZE = 2


def pace_of(notifier: NotifierSettings) -> Pace:
    """Returns the notifier's pace from its settings."""
    return Pace(
        interval_seconds=notifier.interval_minutes * 60,
        reminder_seconds=notifier.reminder_hours * 3_600,
        patience_seconds=notifier.patience_minutes * 60,
    )


def listeners_of(settings: Settings) -> Sequence[Listener]:
    """Returns every notifier that carries notices."""
    return [
        Listener(
            name=one.name,
            kinds=frozenset(one.notices if one.notices is not None else NoticeKind),
            pace=pace_of(one),
            channel=make_channel(one, public_url=settings.web.public_url),
            gap_seconds=GAP_SECONDS.get(one.kind, 0.0),
            tells_business_ids=one.business_ids,
        )
        for one in settings.notifiers
        if one.kind is not NotifierKind.PING
    ]


@contextmanager
def telling_people(
    settings: Settings,
    *,
    clock: Clock,
    watches: Sequence[Watch] = (),
    kinds: frozenset[NoticeKind] = frozenset(NoticeKind),
    sends: bool = True,
    name_of: Callable[[str], str] = lambda _key: "",
) -> Iterator[NoticeService | None]:
    """Looks for news and sends messages within the block, on threads of its own. None: no notifier is configured.

    `sends`: False if the process already sends due messages of all kinds. The end of the block does not wait for a
    running send, which ends with the process at the latest.
    """
    listeners = listeners_of(settings)
    if not listeners:
        yield None
        return
    engine = open_engine(
        settings.ledger.url,
        pool_size=_POOL_SIZE,
        must_exist=True,
        statement_seconds=settings.rounds.statement_seconds,
    )
    ledger = SqlLedger(engine)
    service = NoticeService(
        ledger.notices,
        ledger.reports,
        environment=settings.environment,
        subscriptions=[subscription_of(settings, configured) for configured in settings.subscriptions],
        listeners=listeners,
        clock=clock,
        is_refusal=lacks_right,
        watches=watches,
        kinds=kinds,
        name_of=name_of,
    )
    turns: dict[str, Callable[[], None]] = {}
    if sends:
        turns = {f"notices of {one.name}": partial(service.send, one.name) for one in listeners}
        turns["silence of the ledger"] = service.tell_silence
    try:
        with (
            repeating(turns, clock=clock, seconds=SEND_SECONDS),
            repeating({"notices": service.look}, clock=clock, seconds=LOOK_SECONDS),
        ):
            yield service
    finally:
        close_engine(engine)


@contextmanager
def repeating(turns: Mapping[str, Callable[[], None]], *, clock: Clock, seconds: float) -> Iterator[None]:
    """Repeats each turn in a daemon thread of its own until the block ends.

    The end of the block does not wait for running turns.
    """
    stop = threading.Event()

    def repeat(turn: Callable[[], None]) -> None:
        while not stop.is_set():
            turn()
            clock.wait(stop, seconds)

    for name, turn in turns.items():
        threading.Thread(target=repeat, args=(turn,), name=name, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
