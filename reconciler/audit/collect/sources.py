"""Sources of evidence that the command's options name: databases, or exports of tables as Parquet or Delta.

`--outbox GROUP=URL`, `--inbox TOPIC/GROUP=URL`, `--ledger URL`, `--effects TOPIC/GROUP=URL#QUERY`. URL is SQLAlchemy's
(sqlite, postgresql, mysql, mariadb), `parquet:PATH`, `delta:PATH`, or `@FILE`. `@FILE` names a file that holds the URL,
because a password must not appear in a list of processes. Only --from-configuration takes URLs from FILE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from reconciler.audit.errors import AuditError
from reconciler.audit.places import unreadable
from reconciler.contract.named_files import require_file
from reconciler.contract.urls import read_database_url, shown_value

SubscriptionKey = tuple[str, str]
SourceKind = Literal["database", "parquet", "delta"]

#: Text before the = of an option, made of names of groups and topics. The beginning of a URL does not match.
_NAME = re.compile(r"[%|a-zA-Z0-9_/-]{1,300}")
_SELECT = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place that holds tables."""

    kind: SourceKind
    #: SQLAlchemy URL of a database, or path or URL of a folder. The URL may hold a password.
    address: str = field(repr=False)
    #: Option that named the source, without secrets, for messages.
    option: str

    def __str__(self) -> str:
        return self.option


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsSource:
    """Source of a group's business effects. The source is a query, or an export of a query's result."""

    source: Source
    #: SELECT of each key with the number of its effects, or SELECT of keys with one row per effect. "": an export.
    query: str
    #: Number of keys that cut_copies.py left out of this export. No other table has these keys, so they belong to no
    #: window.
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All sources that were given."""

    outboxes: tuple[tuple[str, Source], ...] = ()
    inboxes: Mapping[SubscriptionKey, tuple[Source, ...]] = field(default_factory=dict)
    effects: Mapping[SubscriptionKey, EffectsSource] = field(default_factory=dict)
    ledger: Source | None = None

    @property
    def outbox_groups(self) -> tuple[str, ...]:
        """Producer groups whose outbox was given, sorted."""
        return tuple(sorted({group for group, _ in self.outboxes}))


def parse_sources(
    *, outbox: Sequence[str] = (), inbox: Sequence[str] = (), effects: Sequence[str] = (), ledger: str | None = None
) -> Sources:
    """Parses the options. Raises AuditError("usage") with every problem."""
    problems: list[str] = []
    outboxes: list[tuple[str, Source]] = []
    inboxes: dict[SubscriptionKey, tuple[Source, ...]] = {}
    counted: dict[SubscriptionKey, EffectsSource] = {}
    for text in outbox:
        name, source = _named(text, "--outbox", "GROUP=URL", problems)
        if source is not None:
            outboxes.append((name, source))
    for text in inbox:
        name, source = _named(text, "--inbox", "TOPIC/GROUP=URL", problems)
        key = subscription_key(name, "--inbox", problems) if source is not None else None
        if source is not None and key is not None:
            if source in inboxes.get(key, ()):
                problems.append(f"--inbox {name}: one database is given twice: each of its keys would look doubled")
            inboxes[key] = (*inboxes.get(key, ()), source)
    for text in effects:
        name, source, query = _with_query(text, problems)
        key = subscription_key(name, "--effects", problems) if source is not None else None
        if source is not None and key is not None:
            if key in counted:
                problems.append(f"--effects {name}: given twice; write one query with UNION ALL")
            counted[key] = EffectsSource(source=source, query=query)
    of_ledger = None if ledger is None else source_at(ledger, "--ledger", problems)
    if problems:
        raise AuditError("usage", "\n".join(problems))
    return Sources(outboxes=tuple(outboxes), inboxes=inboxes, effects=counted, ledger=of_ledger)


def _named(text: str, option: str, form: str, problems: list[str]) -> tuple[str, Source | None]:
    name, equals, url = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not url:
        # Without a name the text may be a URL with a password, so the message does not repeat it.
        problems.append(f"{option}: expected {form}")
        return "", None
    return name, source_at(url, f"{option} {name}", problems)


def _with_query(text: str, problems: list[str]) -> tuple[str, Source | None, str]:
    head, _, query = text.partition("#")
    name, source = _named(head, "--effects", "TOPIC/GROUP=URL#QUERY", problems)
    if source is None:
        return name, None, ""
    query = query.strip().removesuffix(";").strip()
    if source.kind != "database":
        if query:
            problems.append(f"--effects {name}: an export takes no query; its columns are key and effects")
        return name, source, ""
    if not _SELECT.match(query) or ";" in query:
        problems.append(f"--effects {name}: after '#' one SELECT of the key and the number of its effects is expected")
    return name, source, query


def subscription_key(name: str, option: str, problems: list[str]) -> SubscriptionKey | None:
    """Splits TOPIC/GROUP into a pair. Returns None and adds a line to `problems` if the name has another form."""
    topic, slash, group = name.partition("/")
    if slash and topic and group and "/" not in group:
        return topic, group
    problems.append(f"{option} {name}: expected TOPIC/GROUP")
    return None


def source_at(url: str, option: str, problems: list[str]) -> Source | None:
    """Makes the database or export that a URL names. Returns None and adds a line to `problems` for any other URL."""
    if url.startswith("@"):
        try:
            require_file(url[1:])
            url = Path(url[1:]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):  # the file is no UTF-8 text, or the text is no file name
            file = shown_value(url[1:])
            problems.append(f"{option}: the file {file} cannot be read; it should hold the URL")
            return None
    scheme, _, path = url.partition(":")
    if scheme in ("parquet", "delta"):
        if not path:
            problems.append(f"{option}: {scheme}: names no folder")
            return None
        why = unreadable(path) if scheme == "parquet" else None
        if why is not None:
            problems.append(f"{option}: {scheme}:{path}: {why}")
            return None
        kind: SourceKind = "parquet" if scheme == "parquet" else "delta"
        return Source(kind=kind, address=path, option=option)
    try:
        read_database_url(url)
    except ValueError as error:
        problems.append(f"{option}: {error}; or name parquet:PATH, delta:PATH or @FILE")
        return None
    return Source(kind="database", address=url, option=option)
