"""Sends a test message to each notifier. For `doctor`, a check of notifiers sends no test message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ulid import ULID

from reconciler.clock import Clock
from reconciler.commands.diagnosis import Diagnosis, as_told
from reconciler.contract.facts import Code, Field
from reconciler.contract.tables import NoticeKind
from reconciler.errors import ChannelRefused, InvalidValue, ReconcilerError, known_remedy
from reconciler.settings.notifiers import NotifierKind, NotifierSettings
from reconciler.settings.schema import Settings
from reconciler.telling.ports.notices import Conversation, Notice
from reconciler.wiring.channels import make_channel, make_ping, notifier_problem
from reconciler.wiring.connections import Connections

NOTIFIER = Code("doctor.notifier", notifier=Field.NAME)
NOTIFIER_UNUSABLE = Code("doctor.notifier-unusable", kind=Field.NAME, why=Field.TEXT)
CORRECT_SECTION = Code("doctor.correct-section")
MESSAGES_WAIT = Code("doctor.messages-wait", kind=Field.NAME, number=Field.NUMBER, why=Field.TEXT)
MEND_AND_NOTIFY = Code("doctor.mend-and-notify", notifier=Field.NAME)
TRIED_AGAIN = Code("doctor.tried-again")
NO_MESSAGE_SO_FAR = Code("doctor.no-message-so-far", kind=Field.NAME)
LAST_MESSAGE = Code("doctor.last-message", kind=Field.NAME, at_ms=Field.TIME)
ONLY_PINGS = Code("doctor.only-pings", kind=Field.NAME)
OWN_ADDRESS = Code("doctor.own-address")
ONE_ADDRESS = Code("doctor.one-address")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTest:
    """The result of one test message."""

    name: str
    kind: str
    #: One of: sent, away, refused.
    outcome: str
    #: Why the message did not reach every recipient. Empty: the message was sent to all.
    why: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 0: the message was sent.
        Exit code 3: the receiver is away.
        Exit code 1: a person has to correct something.
        """
        return {"sent": 0, "away": 3}.get(self.outcome, 1)


def send_tests(settings: Settings, *, clock: Clock, name: str | None = None) -> list[NoticeTest]:
    """Sends a test message to the notifier of that name, or to each notifier that carries messages.

    The message says that it is a test. A ping claims that all is well, so a ping is sent only if `name` names its
    notifier. Raises InvalidValue if there is no such notifier.
    """
    wanted = [one for one in settings.notifiers if one.name == name or (name is None and _carries_messages(one))]
    if not wanted:
        known = ", ".join(one.name for one in settings.notifiers) or "the settings have no [[notifiers]] section"
        raise InvalidValue("name", name or "", f"no such notifier; known: {known}")
    return [_test(one, settings, clock) for one in wanted]


def _carries_messages(notifier: NotifierSettings) -> bool:
    return notifier.kind is not NotifierKind.PING


def _test(notifier: NotifierSettings, settings: Settings, clock: Clock) -> NoticeTest:
    def of(outcome: str, why: str = "") -> NoticeTest:
        return NoticeTest(name=notifier.name, kind=notifier.kind.value, outcome=outcome, why=why)

    try:
        refusals = _send(notifier, settings, clock)
    except ChannelRefused as error:
        return of("refused", str(error))
    except ReconcilerError as error:
        return of("away", str(error))
    if refusals:
        remedy = f"correct recipients of notifier {notifier.name}; the others have the message"
        return of("refused", f"{'; '.join(refusals)}; {remedy}")
    return of("sent")


def _send(notifier: NotifierSettings, settings: Settings, clock: Clock) -> Sequence[str]:
    """Sends one test message. Returns recipients that were refused while other recipients were accepted.

    Raises ChannelAway and ChannelRefused.
    """
    if not _carries_messages(notifier):
        make_ping(notifier)()
        return ()
    now_ms = clock.now_ms()
    notice = Notice(
        notice_id=str(ULID()),
        environment=settings.environment,
        kind=NoticeKind.LOSS_PROVED,
        topic=None,
        group=None,
        is_over=False,
        count=0,
        since_ms=now_ms,
        until_ms=None,
        detail="",
        written_at_ms=now_ms,
        is_test=True,
    )
    channel = make_channel(notifier, public_url=settings.web.public_url)
    channel.send(notice, at_ms=clock.now_ms())
    return channel.refusals


def check_notifiers(connections: Connections) -> Sequence[Diagnosis]:
    """Returns one line for each notifier: what the notifier lacks, or the result of the last message. Sends nothing.

    A second line follows if `web.public_url` could give the notifier its address of the console.
    """
    settings = connections.settings
    if not settings.notifiers:
        return []
    conversations = connections.ledger.notices.conversations(settings.environment)
    found: list[Diagnosis] = []
    for one in settings.notifiers:
        found.append(_diagnosis(one, [c for c in conversations if c.notifier == one.name]))
        if one.console_url is not None and settings.web.public_url in (None, one.console_url):
            found.append(Diagnosis(check=found[-1].check, level="note", found=OWN_ADDRESS(), remedy=ONE_ADDRESS()))
    return found


def _diagnosis(notifier: NotifierSettings, conversations: Sequence[Conversation]) -> Diagnosis:
    check, kind = NOTIFIER(notifier=notifier.name), notifier.kind.value
    problem = notifier_problem(notifier)
    if problem is not None:
        known = known_remedy(problem)
        remedy = as_told(known) if known else CORRECT_SECTION()
        return Diagnosis(check=check, level="fail", found=NOTIFIER_UNUSABLE(kind=kind, why=str(problem)), remedy=remedy)
    failing = [one for one in conversations if one.error is not None]
    if failing:
        worst = max(failing, key=lambda one: one.is_refused)
        waits = sum(one.waiting is not None for one in conversations)
        found = MESSAGES_WAIT(kind=kind, number=waits, why=str(worst.error))
        if worst.is_refused:
            return Diagnosis(check=check, level="fail", found=found, remedy=MEND_AND_NOTIFY(notifier=notifier.name))
        return Diagnosis(check=check, level="note", found=found, remedy=TRIED_AGAIN())
    told_ms = max((one.told_at_ms for one in conversations if one.told_at_ms is not None), default=None)
    if not _carries_messages(notifier):
        return Diagnosis(check=check, level="ok", found=ONLY_PINGS(kind=kind))
    last = NO_MESSAGE_SO_FAR(kind=kind) if told_ms is None else LAST_MESSAGE(kind=kind, at_ms=told_ms)
    return Diagnosis(check=check, level="ok", found=last)
