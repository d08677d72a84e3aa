"""Every error of the project, grouped by what the caller does next.

ReconcilerError
├── ConfigurationError        fix the settings and start again (exit 2)
│   ├── InvalidValue              one field: name, value, remedy
│   └── MissingDependency         an extra or a native library is not installed
├── UsageError                the calling code is wrong: NotRecorded, NotCommitted, ... (exit 2)
├── TransientError            nothing is lost: try again later, the id stays pending (exit 3)
│   ├── DependencyAway            Redis, a database or a broker does not answer
│   │   ├── RedisAway
│   │   │   └── RedisUnasked              this process lacks file descriptors or memory
│   │   ├── DatabaseAway
│   │   │   ├── DatabaseSilent            no answer in time: what was asked may have been executed
│   │   │   └── StatementTooSlow          the database ended it: it answers, and nothing was written
│   │   ├── BrokerUnavailable         connection refused, reset or closed
│   │   │   └── AccessRefused             it refuses the user: grant what the error names, and it goes on
│   │   ├── RequestTimeout            no answer in time: the request may have been executed
│   │   └── ChannelAway               the receiver of notices does not answer, or asks to wait
│   └── BrokerBusy                the broker refused for now (SYSTEM_BUSY, FLOW_CONTROL)
├── PermanentError            settle or quarantine, never try again as it is
│   ├── MalformedInput            an announcement, key, frame or record that breaks its format
│   │   └── ProtocolViolation         a peer sent bytes that are no RocketMQ frame or record
│   ├── BrokerRefused             the broker answered with an error code
│   │   └── TopicNotFound             no name server knows the topic
│   ├── ChannelRefused            the receiver of notices refuses: mend address, token or signature
│   └── Collision                 one unique key, two contents
└── InvariantViolation        a bug: stop this step, alarm (exit 70)

Driver errors are translated at the edge with ``raise ... from error``; policy never sees a driver's class.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_TREE = str(Path(__file__).parents[1])

#: Maximum number of characters that are repeated of an error of a service's code.
TOLD_CHARACTERS_MAX = 300
_SEARCHED_CHARACTERS_MAX = 3_000
#: Matches the name of a secret and its separator: "password=", "X-Api-Key: ", '"access_token": '. The words
#: "unexpected token: " name no secret.
_NAMED = r"""(?:(?:password|passwd|passphrase|pwd|secret|token)(?:[_-]?access)?(?:[_-]?key)?
    |(?:api|access|account|private|secret|shared|signing)[_ -]?(?:access[_-]?)?key|authorization)
    \\?["']?\s{0,9}(?:=>?|(?<![\s(]token):)\s{0,9}(?:(?:Bearer|Basic)\s{1,9})?"""
#: Matches a value without quotes, unless the word speaks of a secret: "using password: YES", "Bearer token".
_BARE = r"""(?!\\|(?:yes|no|none|null|true|false|required|missing|empty|expired|invalid|incorrect|wrong
    |must|is|was|has|not|auth|authentication|tokens?|realm=\S*)(?:[\s,;.:)"'\]}]|$))(?P<secret>[^\s&,;"')]+)"""
#: The forms of secrets. A repetition that a failure can shorten is bounded, or ends before the next match can begin. So
#: the time stays small for hostile texts.
_SECRETS = tuple(
    re.compile(form, re.I | re.X)
    for form in (
        r"://(?P<secret>[^\s/]+)@",
        # A password with a slash. A port that a path follows is none.
        r"""://(?P<secret>[^\s/:@"']{0,100}:(?!\d{1,5}[/?\#])[^\s"']{1,500})@""",
        # user:password@host:port and user:password@tcp(host:port)
        r"""(?<![^\s"'`(=,<])(?P<secret>[\w.+-]{1,60}:(?!//)[^\s"']{1,500})@(?=[a-z]{3,8}[46]?\(|[\w.-]{1,100}:\d)""",
        r"\b(?:(?:password|passwd|passphrase|pwd)|IDENTIFIED\s{1,9}BY)\s{1,9}'(?P<secret>[^']{1,500})'",
        rf"""{_NAMED}"(?P<secret>(?:[^"\\]|\\.)*)""",
        rf"{_NAMED}'(?P<secret>(?:[^'\\]|\\.)*)",
        rf"""{_NAMED}\\"(?P<secret>[^"\\]*)""",
        rf"(?:{_NAMED}|\b(?:Bearer|Basic)\s{{1,9}}){_BARE}",
    )
)


class ReconcilerError(Exception):
    """The base class of every error of the project."""

    exit_code = 70
    #: What a person can do about the error. Empty: the error knows no remedy. The error's text contains the remedy,
    #: too.
    remedy = ""


class ConfigurationError(ReconcilerError):
    """The configuration cannot work. Fix the configuration and start again."""

    exit_code = 2


class InvalidValue(ConfigurationError):
    """One setting or argument has a value that cannot work."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field} = {value!r}: {remedy}")


class MissingDependency(ConfigurationError):
    """An optional package or a native library is not installed. The message says what to install."""


class UsageError(ReconcilerError):
    """The calling code used an object in a way that cannot be safe."""

    exit_code = 2


class ChangedMeanwhile(ReconcilerError):
    """The thing on which a person acts has changed since the person saw it. Nothing was done, and the person has to
    look again."""

    exit_code = 5

    def __init__(self, about: str, *, now: Mapping[str, object], told: str | None = None) -> None:
        """`told` is the present state, for people. With None, the plain values of `now` say what the present state
        is."""
        #: The present state, JSON-ready.
        self.now = now
        words = ", ".join(f"{name} = {value}" for name, value in now.items()) if told is None else told
        super().__init__(f"{about} has changed since it was looked at, nothing was done; now: {words}")


class TransientError(ReconcilerError):
    """The step failed, but nothing is lost. The same step may be tried again later."""

    exit_code = 3


class DependencyAway(TransientError):
    """Something outside the process does not answer."""

    def __init__(self, found: str = "", *, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}" if remedy else found)


class RedisAway(DependencyAway):
    """Redis is away, read-only, out of memory or refuses the login."""


class RedisUnasked(RedisAway):
    """This process could not ask Redis, because it lacks file descriptors or memory. Redis may be well."""


class DatabaseAway(DependencyAway):
    """A database is away, locked or refuses the login."""


class DatabaseSilent(DatabaseAway):
    """A database did not answer in time, or is not asked because it has not answered before. A write may have been
    executed, or may still be executed when the server runs again."""


class StatementTooSlow(DatabaseAway):
    """A database ended a statement that took too long. The database answers, and the statement has written nothing."""


class BrokerUnavailable(DependencyAway):
    """A broker or name server refused, reset or closed the connection."""


class Lacking(StrEnum):
    """The reason why a broker with access control refuses a request. Each member names its remedy."""

    SIGNATURE = "SIGNATURE"
    USER = "USER"
    SECRET = "SECRET"  # noqa: S105  # not one
    RIGHT = "RIGHT"


class AccessRefused(BrokerUnavailable):
    """A broker with access control refused a request. The broker executed nothing and gave no result.

    Callers must treat the broker as away for this user. Callers must not take this error for an absence, an empty list
    or the end of a transaction.
    """

    def __init__(
        self, lacking: Lacking, *, request: str, user: str = "", right: str = "", code: int = 0, remark: str = ""
    ) -> None:
        self.lacking = lacking
        self.user = user
        #: The lacking right as a grant names it, for example "SUB on topic ORDERS". Empty: no right is lacking.
        self.right = right
        self.code = code
        self.remark = remark
        named = f"user {user}" if user else "the user"
        found, remedy = {
            Lacking.SIGNATURE: (
                "wants a signature, and got none",
                "set rocketmq.acl, or the argument acl of the plug-in",
            ),
            Lacking.USER: (
                f"does not know {named}, or has disabled it",
                "create or enable it at every broker, or correct access_key",
            ),
            Lacking.SECRET: (
                f"did not accept the signature of {named}",
                "correct secret_key: it is not the one that the broker has",
            ),
            Lacking.RIGHT: (f"{named} lacks {right or 'a right'}", f"grant {named} {right or 'it'} at every broker"),
        }[lacking]
        super().__init__(f"{request} refused: {found}; {remedy} [code {code}: {remark}]")
        self.remedy = remedy


class RequestTimeout(DependencyAway):
    """No answer came in time. The request may or may not have been executed."""


class ChannelAway(DependencyAway):
    """The receiver of notices does not answer, fails, or asks to wait. The notice may have arrived."""

    def __init__(self, found: str, *, retry_after_seconds: float | None = None, remedy: str = "") -> None:
        #: Seconds that the receiver asks to wait. None: the receiver does not say how long.
        self.retry_after_seconds = retry_after_seconds
        super().__init__(found, remedy=remedy)


class BrokerBusy(TransientError):
    """The broker refused for now: SYSTEM_BUSY, FLOW_CONTROL or a full thread pool."""


class PermanentError(ReconcilerError):
    """The unchanged request will never work. Settle the key by its verdict, or quarantine it."""

    exit_code = 1


class MalformedInput(PermanentError):
    """A value from outside breaks its format."""


class ProtocolViolation(MalformedInput):
    """A peer sent bytes that are no RocketMQ frame or record."""


class BrokerRefused(PermanentError):
    """The broker answered with an error code (org.apache.rocketmq.remoting.protocol.ResponseCode)."""

    def __init__(self, code: int, remark: str | None, *, request: str = "request", remedy: str = "") -> None:
        """`remedy` stands in place of the further lines of the remark, which are links."""
        self.code = code
        self.remark = remark
        self.request = request
        said = remark or "no remark"
        if remedy:
            said = f"{said.splitlines()[0].strip()}; {remedy}"
        super().__init__(f"{request} refused with code {code}: {said}")


class TopicNotFound(BrokerRefused):
    """No name server knows the topic (TOPIC_NOT_EXIST)."""


class ChannelRefused(PermanentError):
    """The receiver of notices refuses this sender. A person has to correct address, token or signature."""

    def __init__(self, found: str, *, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}" if remedy else found)


class Collision(PermanentError):
    """Two different contents have one unique key."""


class InvariantViolation(ReconcilerError):
    """A promise of the code does not hold, which is a bug. The step must be stopped, and people must be alarmed."""

    def __init__(self, found: str, *, cause: str = "bug") -> None:
        """`cause` is a word for logs. If the content of Redis breaks the promise, the word says what is wrong with the
        content."""
        self.cause = cause
        super().__init__(found)


def told_error(error: BaseException) -> str:
    """Returns the class and the first line of an error of a service's code. Readers who may not see the message can
    read these.

    SQLAlchemy's texts repeat the parameters of the statement. A driver's text may contain values of the row after its
    first line. Secrets of known forms are hidden, and a long line is cut.
    """
    original = getattr(error, "orig", None)
    shown = original if isinstance(original, BaseException) else error
    return ": ".join([type(error).__name__, *(_shortened(line) for line in str(shown).splitlines()[:1])])


def told_to_operators(error: BaseException) -> str:
    """Returns the class and the whole text of an error of ours. Another error is told as by told_error()."""
    return f"{type(error).__name__}: {error}" if isinstance(error, ReconcilerError) else told_error(error)


def told_value(value: object) -> str:
    """Returns what a service's code answered in place of an expected value, as its errors are told."""
    return _shortened(repr(value))


def _shortened(line: str) -> str:
    # A secret is hidden before the cut, because half a secret has no known form.
    shown = line[:_SEARCHED_CHARACTERS_MAX]
    for form in _SECRETS:
        shown = form.sub(_hidden, shown)
    return shown if len(shown) <= TOLD_CHARACTERS_MAX else f"{shown[:TOLD_CHARACTERS_MAX]}..."


def _hidden(found: re.Match[str]) -> str:
    first, end = found.span("secret")
    return f"{found.string[found.start() : first]}***{found.string[end : found.end()]}"


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error, what caused it or was handled when it was raised, and so on. Yields each once, because such a
    chain may be a circle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def known_remedy(error: BaseException | None) -> str:
    """Returns the remedy of the error, or of an error that caused it. Returns an empty text if none of these errors
    knows a remedy."""
    while error is not None:
        if isinstance(error, ReconcilerError) and error.remedy:
            return error.remedy
        error = error.__cause__
    return ""


def without_remedy(error: ReconcilerError, remedy: str | None = None) -> str:
    """Returns the text of an error without its remedy, which is shown in a place of its own. `remedy` is the remedy to
    leave out. With None, it is the remedy that the error knows."""
    remedy = known_remedy(error) if remedy is None else remedy
    return str(error).replace(f"; {remedy}", "", 1) if remedy else str(error)


class FormerPath(DeprecationWarning):
    """A name was imported from a module that a page of 0.2.0 showed. The next release may move the name."""


def warn_of_former_paths(module: str, today: Mapping[str, str]) -> None:
    """Makes later imports of these names from the module warn. `today` maps each name to its public module.

    Imports within the product do not warn, because the names still are in this module.
    """

    class WithFormerPaths(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            if name in today and _is_of_a_service(inspect.currentframe()):
                told = f"{module}.{name} is private: import {name} from {today[name]}"
                warnings.warn(told, FormerPath, stacklevel=2)
            return super().__getattribute__(name)

    sys.modules[module].__class__ = WithFormerPaths


def _is_of_a_service(frame: FrameType | None) -> bool:
    caller = frame.f_back if frame is not None else None
    file = caller.f_code.co_filename if caller is not None else ""
    return not file.startswith((_TREE, "<frozen"))
