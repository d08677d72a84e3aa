"""What is fuzzed: the decoders and readers that meet bytes of strangers. Anything but their own errors is a finding."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from reconciler.announcing.rules import AdmittedKeys, AnnouncementRules, PulledAnnouncement
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.hand_over import decode_hand_over
from reconciler.contract.queue_proof import QueueRecord
from reconciler.embedded.faults import Faults
from reconciler.embedded.listening import parse_address
from reconciler.embedded.serving import turn
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import ConfigurationError, MalformedInput, MissingDependency, PermanentError, ProtocolViolation
from reconciler.evidence.stored_message import stored_message
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.rocketmq.wire.batch import decode_batch
from reconciler.rocketmq.wire.frame import FrameReader, Serialization, decode_frame, encode_frame
from reconciler.rocketmq.wire.record import decode_records
from reconciler.rocketmq.wire.tolerant_json import parse_tolerant_json
from reconciler.settings.file import load_settings
from tests.fuzz.embedded_broker import EmbeddedUnderFuzz
from tests.fuzz.mutation import NUMBERS, TEXTS, any_value, damaged, damaged_json, damaged_lines
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.recorded import recorded_frames, recorded_record_bodies

CORPUS = Path(__file__).parent / "corpus"
EXAMPLE_SETTINGS = Path(__file__).parents[2] / "config/reconciler.toml"

Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader of hostile input."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    #: Structure-aware damage; half of the inputs get damage to their bytes instead, or as well.
    mutate: Mutate
    #: Returns True if the input was taken, False if it was refused as it should be; raises for a finding.
    run: Callable[[bytes], bool]
    #: Its share of all executions.
    weight: int = 1
    #: Forgets what earlier inputs left; called before every `fresh_every`th input.
    refresh: Callable[[], None] | None = None
    fresh_every: int = 1


def corpus_of(name: str) -> list[bytes]:
    """Small inputs that were worth keeping: regressions among them."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


# ---- announcements

_RECORD = QueueRecord(queue_offset=1, stored_at_ms=1, commit_log_offset=1, unique_key="")
_QUEUE = AnnouncementQueue(unique_key_topic="KEYS", broker="b", queue_id=0)
_RULES = (
    AnnouncementRules(environment="test", topic="ORDERS"),
    AnnouncementRules(environment="test", topic="ORDERS", bare_keys=True),
    AnnouncementRules(environment="test", topic="ORDERS", signature_secret=b"secret"),
)


def _announcements() -> list[bytes]:
    keys = [
        AnnouncedKey(unique_key=f"{n:032X}", tag="paid" if n else None, committed_at_ms=1_700_000_000_000)
        for n in range(3)
    ]
    whole = Announcement(environment="test", topic="ORDERS", producer_group="orders", keys=tuple(keys))
    return [encode_announcement(whole), b"AB" * 16, *corpus_of("announcement")]


def _judge(data: bytes) -> bool:
    taken = False
    for rules in _RULES:
        signature = data[:64].decode("latin-1") if len(data) % 2 else None
        message = PulledAnnouncement(record=_RECORD, tag="ORDERS", body=data, signature=signature)
        judged = rules.screen(_QUEUE, message)
        taken = taken or isinstance(judged, AdmittedKeys)
    return taken


# ---- remoting frames


@cache
def _frames() -> tuple[bytes, ...]:
    return (*(frame.data for frame in recorded_frames() if len(frame.data) < 4_000), *corpus_of("frame"))


def _damaged_properties(chance: Random) -> str:
    """A property text of a message as a producer sends it."""
    names = [chance.choice(_PROPERTIES) for _ in range(chance.randint(1, 4))]
    return "".join(f"{name}\x01{chance.choice([*TEXTS, *NUMBERS])}\x02" for name in names)


def _damaged_frame(data: bytes, chance: Random) -> bytes:
    try:
        command = decode_frame(data[4:])
        fields = dict(command.fields)
        for _ in range(chance.randint(0, 3)):
            fields[chance.choice([*sorted(fields), chance.choice(TEXTS)])] = str(chance.choice([*TEXTS, *NUMBERS]))
        if chance.random() < 0.2:
            fields[chance.choice(("i", "properties"))] = _damaged_properties(chance)
        changed = replace(
            command,
            code=chance.choice((command.code, chance.randrange(-5, 70_000))),
            opaque=chance.choice((command.opaque, -1, 2**31 - 1)),
            remark=chance.choice((command.remark, None, chance.choice(TEXTS))),
            fields=fields,
            body=damaged_json(command.body, chance) if chance.random() < 0.5 else command.body,
            serialization=chance.choice(list(Serialization)),
        )
        return encode_frame(changed)
    except (ProtocolViolation, UnicodeError):
        return damaged(data, chance)


def _read_frames(data: bytes) -> bool:
    reader, cut = FrameReader(), len(data) // 3
    try:
        commands = [*reader.feed(data[:cut]), *reader.feed(data[cut:])]
    except ProtocolViolation:
        return False
    for command in commands:
        with contextlib.suppress(ProtocolViolation):
            parse_tolerant_json(command.body)
    return bool(commands)


# ---- stored records, batches, hand-over rows


#: Properties that somebody reads as something.
_PROPERTIES = (
    *("TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "REAL_TOPIC", "REAL_QID", "DELAY", "UNIQ_KEY"),
    *("PGROUP", "TAGS", "KEYS", "TRAN_MSG", "WAIT", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "INNER_NUM", "INNER_BASE"),
)


@cache
def _records() -> tuple[bytes, ...]:
    return (*(body for body in recorded_record_bodies() if len(body) < 6_000), *corpus_of("record"))


def _damaged_record(data: bytes, chance: Random) -> bytes:
    try:
        record = decode_records(data)[0]
        properties = dict(record.properties)
        for _ in range(chance.randint(0, 3)):
            properties[chance.choice([*sorted(properties), *_PROPERTIES, chance.choice(TEXTS)])] = str(
                chance.choice([*TEXTS, *NUMBERS])
            )
        changed = replace(
            record,
            properties=properties,
            system_flag=chance.choice((record.system_flag, 1, 3 << 8 | 1, 2 << 8 | 1, 0xFFFF)),
            body=damaged(record.body, chance) if chance.random() < 0.5 else record.body,
            queue_offset=chance.choice((record.queue_offset, 0, 2**63 - 1)),
        )
        return encode_record(changed)
    except (PermanentError, ValueError, IndexError):
        return damaged(data, chance)


def _read_records(data: bytes) -> bool:
    try:
        for record in decode_records(data):
            with contextlib.suppress(MissingDependency):
                record.plain_body(maximum_bytes=1024 * 1024)
                stored_message(record)
            with contextlib.suppress(ProtocolViolation):
                decode_batch(record.body)
    except PermanentError:
        return False
    return True


def _hand_overs() -> list[bytes]:
    return corpus_of("hand_over")


def _read_hand_over(data: bytes) -> bool:
    try:
        decode_hand_over(data.decode("utf-8", "replace"))
    except MalformedInput:
        return False
    return True


# ---- settings

_VALUES = [
    *("true", "false", "0", "-1", "1", "1e400", "nan", "inf", "99999999999999999999", "''", '"x"', "[]", "{}", "0x10"),
    *("[[[[1]]]]", "1979-05-27", "[1, 'a']", "{a = 1}", '"redis://[::1"', '"redis://u:p@h:99999/x"', '"sqlite:///"'),
    *('"postgresql://h:x/y"', '"mysql://"', '"a;b;c"', '"*"', '"a || || b"', '"\\u0000"', '"' + "a" * 2_000 + '"'),
    *("[" * 300, "{a=" * 300, "[" * 20_000),
    *(f"{number}" for number in NUMBERS if isinstance(number, int)),
]


@cache
def _settings() -> tuple[bytes, ...]:
    text = EXAMPLE_SETTINGS.read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if line and not line.startswith("#"))
    return (lines.encode(), *corpus_of("settings"))


@cache
def _scratch() -> Path:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="reconciler-fuzz-", dir=folder)) / "reconciler.toml"


def _load(data: bytes) -> bool:
    path = _scratch()
    path.write_bytes(data)
    name, _, value = data[-60:].decode("utf-8", "replace").partition("=")
    environ = {f"RECONCILER_{name.strip().upper()[:30]}": value} if value and len(data) % 3 == 0 else {}
    try:
        load_settings(path, environ)
    except ConfigurationError:
        return False
    return True


# ---- command lines


@cache
def _command() -> Any:
    from typer.main import get_command

    from reconciler.cli.app import app

    return get_command(app)


@cache
def _words() -> tuple[str, ...]:
    found: set[str] = set()

    def collect(command: Any) -> None:
        for parameter in command.params:
            found.update(parameter.opts)
        for name, inner in getattr(command, "commands", {}).items():
            found.add(name)
            collect(inner)

    collect(_command())
    return tuple(sorted(found))


def _command_lines() -> list[bytes]:
    known = ("list candidates --state OPEN", "db sql outbox --dialect sqlite", "topics create", "once --wait 1", "run")
    return [*(line.replace(" ", "\0").encode() for line in known), *corpus_of("cli")]


def _damaged_command_line(data: bytes, chance: Random) -> bytes:
    arguments = data.decode("utf-8", "replace").split("\0")
    for _ in range(chance.randint(1, 4)):
        word = chance.choice((chance.choice(_words()), chance.choice(TEXTS), str(chance.choice(NUMBERS))))
        at = chance.randrange(len(arguments) + 1)
        if chance.random() < 0.3:
            arguments[at : at + 1] = [word]
        else:
            arguments.insert(at, chance.choice((word, f"{chance.choice(_words())}={word}")))
    return "\0".join(arguments[:40]).encode("utf-8", "surrogatepass")[:LONGEST_LINE]


LONGEST_LINE = 8_192


def _parse_command_line(data: bytes) -> bool:
    from typer.exceptions import Abort, TyperException

    arguments = data.decode("utf-8", "surrogateescape").split("\0")
    quiet = io.StringIO()
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            _resolve(_command(), "reconciler", arguments, None)
    except (TyperException, Abort, ConfigurationError, SystemExit):
        return False
    except Exception as error:
        if type(error).__name__ in {"Exit", "NoArgsIsHelpError"}:
            return True
        raise
    return True


def _resolve(command: Any, name: str, arguments: list[str], parent: Any) -> None:
    """Parses as `main` does, and stops before anything is run."""
    context = command.make_context(name, list(arguments), parent=parent)
    if not hasattr(command, "resolve_command"):
        return
    rest = [*getattr(context, "_protected_args", []), *context.args]
    if rest:
        inner_name, inner, left = command.resolve_command(context, rest)
        _resolve(inner, inner_name, left, context)


def _short_texts() -> list[bytes]:
    known = [b"127.0.0.1:9876", b"[::1]:9876", b"drop_ends=3", b"transactionTimeOut=100", b"2026-01-01/2026-01-02"]
    return [*known, *corpus_of("text")]


def _damaged_text(data: bytes, chance: Random) -> bytes:
    if chance.random() < 0.3:
        return f"{chance.choice(TEXTS)}{chance.choice('=:/-')}{chance.choice([*TEXTS, *NUMBERS])}".encode(
            "utf-8", "surrogatepass"
        )
    return damaged(data, chance)


def _read_text(data: bytes) -> bool:
    """Arguments that commands take apart themselves."""
    from reconciler.audit.collect.window import parse_window
    from reconciler.audit.errors import AuditError
    from reconciler.cli.options import require_key

    text = data.decode("utf-8", "replace")
    taken = False
    readers: tuple[Callable[[], object], ...] = (
        lambda: parse_address(text),
        lambda: turn(text, Faults(), BrokerSettings()),
        lambda: require_key(text),
        lambda: parse_window(text),
    )
    for read in readers:
        with contextlib.suppress(ConfigurationError, AuditError):
            read()
            taken = True
    return taken


def _any_json(data: bytes, chance: Random) -> bytes:
    if chance.random() < 0.1:
        import json

        return json.dumps(any_value(chance)).encode("utf-8", "surrogatepass")
    return damaged_json(data, chance)


_EMBEDDED = EmbeddedUnderFuzz()

TARGETS = (
    Target(name="announcement", seeds=_announcements, mutate=_any_json, run=_judge, weight=4),
    Target(name="frame", seeds=_frames, mutate=_damaged_frame, run=_read_frames, weight=4),
    Target(name="record", seeds=_records, mutate=_damaged_record, run=_read_records, weight=4),
    Target(name="hand_over", seeds=_hand_overs, mutate=_any_json, run=_read_hand_over, weight=2),
    Target(
        name="settings",
        seeds=_settings,
        mutate=lambda data, chance: damaged_lines(data, chance, _VALUES),
        run=_load,
        weight=1,
    ),
    Target(name="cli", seeds=_command_lines, mutate=_damaged_command_line, run=_parse_command_line, weight=1),
    Target(name="text", seeds=_short_texts, mutate=_damaged_text, run=_read_text, weight=1),
    Target(
        name="embedded",
        seeds=_frames,
        mutate=_damaged_frame,
        run=_EMBEDDED.run,
        weight=3,
        refresh=_EMBEDDED.refresh,
        fresh_every=200,
    ),
)
