"""Logs on standard error: one JSON object per line, or text on a terminal. A log contains no body and no secret."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Literal

from reconciler.contract.visible_text import visible_json, visible_line

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
#: Packages whose log records begin with an event word. The test of all log calls reads this list.
_OURS = frozenset({"checkback_producers", "checkback_consumers", "reconciler"})
_WORD = re.compile(r"(?P<word>[a-z][a-z0-9_]*)(?:(?P<has_sentence>: )|$)")
#: Word of the records of other packages.
OF_A_LIBRARY = "library_message"
#: Fields that could carry a body or a secret. They are hidden, wherever they come from.
_NEVER = frozenset({"body", "password", "secret", "token", "signature"})


def configure_logging(level: str, style: Literal["auto", "json", "console"]) -> None:
    """Sends all records of the process (ours, APScheduler's, redis') through one formatter."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LateFormatter(is_for_people=style == "console" or (style == "auto" and sys.stderr.isatty())))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("apscheduler").setLevel(max(logging.WARNING, root.level))


class _LateFormatter(logging.Formatter):
    """Makes its formatter when the first record comes. Most commands log nothing, and structlog is slow to load."""

    def __init__(self, *, is_for_people: bool) -> None:
        super().__init__()
        self._is_for_people = is_for_people
        self._formatter: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Formats one line."""
        if self._formatter is None:
            self._formatter = _formatter(is_for_people=self._is_for_people)
        return self._formatter.format(record)


def _formatter(*, is_for_people: bool) -> logging.Formatter:
    import structlog

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _word_first,
        _extra_fields,
        _without_secrets,
    ]
    rendered: list[Any] = [structlog.processors.JSONRenderer(_visible_document, default=str)]
    if is_for_people:
        rendered = [_made_visible, structlog.dev.ConsoleRenderer()]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *rendered,
        ],
    )


def _word_first(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Puts the constant word, which people search for, into `event`, and the sentence about it into `message`."""
    record = event.get("_record")
    if not isinstance(record, logging.LogRecord):
        return event
    is_ours = record.name.partition(".")[0] in _OURS
    found = _WORD.match(record.msg) if is_ours and isinstance(record.msg, str) else None
    if found is None:
        event["message"], event["event"] = event["event"], OF_A_LIBRARY
    elif found["has_sentence"]:
        event["message"] = str(event["event"])[found.end() :]
        event["event"] = found["word"]
    return event


def _extra_fields(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        for name, value in vars(record).items():
            if name not in _STANDARD and not name.startswith("_"):
                event.setdefault(name, value)
    return event


def _made_visible(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if not isinstance(value, (int, float, type(None))):
            event[name] = visible_line(value if isinstance(value, str) else repr(value))
    return event


def _visible_document(event: object, **how: Any) -> str:
    return visible_json(json.dumps(event, **how))


def _without_secrets(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    for name in _NEVER & event.keys():
        event[name] = "(hidden)"
    return event
