"""A ledger in SQLite, notifiers, and services that are turned by hand, with a clock that the test moves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from reconciler.channels.http_post import HttpPost
from reconciler.channels.webhook import WebhookChannel
from reconciler.clock import ManualClock, SystemClock
from reconciler.contract.secret import SecretText
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, NoticeKind
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine
from reconciler.sql.rights import lacks_right
from reconciler.sql.tables import ledger_metadata
from reconciler.telling.conversations import Pace
from reconciler.telling.notifier import Listener, NoticeService, Watch
from reconciler.telling.ports.notices import NoticeChannel

ROOT = Path(__file__).parents[3]
ENVIRONMENT = "test"
BILLING = Subscription(environment=ENVIRONMENT, topic="ORDERS", group="billing")
PACE = Pace(interval_seconds=900, reminder_seconds=14_400, gather_seconds=5)


def webhook(url: str, *, step_seconds: float = 5.0) -> WebhookChannel:
    post = HttpPost(name="on-call", step_seconds=step_seconds)
    return WebhookChannel(name="on-call", url=SecretText(url), secrets=(), console_url=None, post=post)


def listener(channel: NoticeChannel, *, name: str = "on-call", pace: Pace = PACE) -> Listener:
    return Listener(name=name, kinds=frozenset(NoticeKind), pace=pace, channel=channel)


def settings_with(folder: Path, *notifiers: str) -> Settings:
    """Those of the example, with the ledger of the world in this folder and these sections."""
    path = folder / "reconciler.toml"
    listed = "".join(f"\n[[notifiers]]\n{notifier}\n" for notifier in notifiers)
    path.write_text((ROOT / "config/reconciler.toml").read_text() + listed)
    ledger = f"sqlite:///{folder}/ledger.db"
    return load_settings(path, {"RECONCILER_LEDGER__URL": ledger, "RECONCILER_ENVIRONMENT": ENVIRONMENT})


def section(name: str, url: str, *lines: str, kind: str = "webhook") -> str:
    """Of one notifier."""
    return "\n".join((f'name = "{name}"', f'kind = "{kind}"', f'url = "{url}"', *lines))


class NoticeWorld:
    """One ledger. Close it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.engine = open_engine(f"sqlite:///{folder}/ledger.db")
        ledger_metadata.create_all(self.engine)
        self.ledger = SqlLedger(self.engine, now=lambda _: sa.literal(self.clock.now_ms(), sa.BigInteger()))

    def service(self, *listeners: Listener, watches: Sequence[Watch] = ()) -> NoticeService:
        """As one process has it."""
        return NoticeService(
            self.ledger.notices,
            self.ledger.reports,
            environment=ENVIRONMENT,
            subscriptions=[BILLING],
            listeners=listeners,
            clock=self.clock,
            is_refusal=lacks_right,
            watches=watches,
        )

    def lose(self, first: int, count: int = 1) -> None:
        """Losses are proved."""
        record(self.ledger, range(first, first + count), CandidateState.OPEN, Verdict.LOST_CONFIRM)

    def settle(self, first: int, count: int = 1) -> None:
        """They have arrived."""
        record(self.ledger, range(first, first + count), CandidateState.SETTLED, Verdict.CONSUMED)

    def turn(self, *services: NoticeService, seconds: float = 0.0) -> None:
        """Time passes, and each process looks and sends."""
        self.clock.advance(seconds)
        for service in services:
            service.look()
            service.send("on-call")
            service.tell_silence()


def record(ledger: SqlLedger, numbers: Sequence[int], state: CandidateState, verdict: Verdict) -> None:
    """Verdicts of these keys."""
    seen = [
        VerdictEntry(
            unique_key=f"{number:032X}",
            verdict=verdict,
            evidence={},
            first_seen_ms=1,
            state=state,
            wait_seconds=0.0,
        )
        for number in numbers
    ]
    ledger.candidates.record(Shard(subscription=BILLING, number=0), seen)


def die_in_a_send(url: str, ledger_url: str, moment: str) -> None:
    """A process of its own, whose send is its end: `before` a byte leaves, or `after` the receiver has taken it."""
    import os
    import signal

    class Deadly(WebhookChannel):
        def send(self, *arguments: object, **named: object) -> None:
            if moment == "after":
                super().send(*arguments, **named)  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGKILL)

    channel = Deadly(name="on-call", url=SecretText(url), secrets=(), console_url=None, post=HttpPost(name="on-call"))
    ledger = SqlLedger(open_engine(ledger_url))
    pace = Pace(interval_seconds=900, reminder_seconds=14_400, gather_seconds=0)
    service = NoticeService(
        ledger.notices,
        ledger.reports,
        environment=ENVIRONMENT,
        subscriptions=[BILLING],
        listeners=[listener(channel, pace=pace)],
        clock=SystemClock(),
        is_refusal=lacks_right,
        lease_seconds=0.2,
    )
    service.look()
    service.send("on-call")


if __name__ == "__main__":
    die_in_a_send(*sys.argv[1:])
