"""Where evidence comes from, by the command's options: databases, or exports of their tables as Parquet or Delta.

`--outbox GROUP=URL`, `--inbox TOPIC/GROUP=URL`, `--ledger URL`, `--effects TOPIC/GROUP=URL#QUERY`. URL is SQLAlchemy's
(sqlite, postgresql, mysql, mariadb), `parquet:PATH` or `delta:PATH`, or `@FILE`: a file that holds the URL, so that a
password stands in no list of processes. Nothing is taken from FILE unless --from-configuration says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from reconciler.audit.collect.configuration import AuditedConfiguration
from reconciler.audit.errors import AuditError
from reconciler.audit.places import unreadable
from reconciler.audit.result.values import AuditedSubscription
from reconciler.contract.urls import read_database_url, shown_value

SubscriptionKey = tuple[str, str]
SourceKind = Literal["database", "parquet", "delta"]

#: What stands before the = of an option: names of groups and topics, and not the beginning of a URL.
_NAME = re.compile(r"[%|a-zA-Z0-9_/-]{1,300}")
_SELECT = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place that holds tables."""

    kind: SourceKind
    #: SQLAlchemy URL, or a path or URL of a folder. May hold a password.
    address: str = field(repr=False)
    #: The option that named it, without secrets, for messages.
    option: str

    def __str__(self) -> str:
        return self.option


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsSource:
    """Where a group's business effects are counted: a query, or an export of its result."""

    source: Source
    #: SELECT of key and number of effects (or of keys, one row an effect); "" for exports.
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that was given."""

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
    """The options. Raises AuditError("usage") with every problem."""
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
        key = _subscription_key(name, "--inbox", problems) if source is not None else None
        if source is not None and key is not None:
            if source in inboxes.get(key, ()):
                problems.append(f"--inbox {name}: one database is given twice: each of its keys would look doubled")
            inboxes[key] = (*inboxes.get(key, ()), source)
    for text in effects:
        name, source, query = _with_query(text, problems)
        key = _subscription_key(name, "--effects", problems) if source is not None else None
        if source is not None and key is not None:
            if key in counted:
                problems.append(f"--effects {name}: given twice; write one query with UNION ALL")
            counted[key] = EffectsSource(source=source, query=query)
    of_ledger = None if ledger is None else _source(ledger, "--ledger", problems)
    if problems:
        raise AuditError("usage", "\n".join(problems))
    return Sources(outboxes=tuple(outboxes), inboxes=inboxes, effects=counted, ledger=of_ledger)


def with_configured(sources: Sources, configuration: AuditedConfiguration) -> Sources:
    """--from-configuration: FILE's URLs where no option names another. Raises AuditError("configuration")."""
    problems: list[str] = []

    def of(url: str, where: str) -> Source | None:
        return _source(url, f"--subscriptions: {where}", problems)

    def several(urls: Iterable[str], where: str) -> Iterator[Source]:
        urls = list(urls)
        for number, url in enumerate(urls, start=1):
            source = of(url, where if len(urls) == 1 else f"{where} ({number} of {len(urls)})")
            if source is not None:
                yield source

    outboxes = list(sources.outboxes)
    given = set(sources.outbox_groups)
    configured: dict[str, dict[str, None]] = {}
    for producer in configuration.producers:
        if producer.group not in given:
            configured.setdefault(producer.group, {}).update(dict.fromkeys(producer.outbox_urls))
    for group, urls in configured.items():
        outboxes += [(group, source) for source in several(urls, f"outbox_url of {group}")]
    inboxes = dict(sources.inboxes)
    for key, listed in configuration.inbox_urls.items():
        if key not in inboxes:
            inboxes[key] = tuple(several(listed, f"inbox_url of {'/'.join(key)}"))
    ledger = sources.ledger
    if ledger is None and configuration.ledger_url is not None:
        ledger = of(configuration.ledger_url, "ledger.url")
    if problems:
        raise AuditError("configuration", "\n".join(problems))
    return Sources(outboxes=tuple(outboxes), inboxes=inboxes, effects=sources.effects, ledger=ledger)


def audited_subscriptions(
    configuration: AuditedConfiguration, sources: Sources, only: Sequence[str] = ()
) -> tuple[AuditedSubscription, ...]:
    """FILE's subscriptions with what was given for each. Raises AuditError("usage") for names that FILE does not know.

    `only`: TOPIC/GROUP of those that are asked for; nothing: all of them.
    """
    problems: list[str] = []
    known = {(s.topic, s.group): s for s in configuration.subscriptions}
    names = ", ".join("/".join(key) for key in known)
    groups = sorted({producer.group for producer in configuration.producers})
    problems += [
        f"--outbox {group}: FILE has no such producer group; it has {', '.join(groups)}"
        for group in sources.outbox_groups
        if group not in groups
    ]
    problems += [
        f"{option} {'/'.join(key)}: FILE has no such subscription; it has {names}"
        for option, keys in (("--inbox", sources.inboxes), ("--effects", sources.effects))
        for key in keys
        if key not in known
    ]
    wanted = [key for key in (_subscription_key(text, "--only", problems) for text in only) if key is not None]
    problems += [
        f"--only {'/'.join(k)}: FILE has no such subscription; it has {names}" for k in wanted if k not in known
    ]
    if problems:
        raise AuditError("usage", "\n".join(problems))
    chosen = [key for key in known if not only or key in wanted]
    return tuple(replace(known[key], inbox=key in sources.inboxes, effects=key in sources.effects) for key in chosen)


def _named(text: str, option: str, form: str, problems: list[str]) -> tuple[str, Source | None]:
    name, equals, url = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not url:
        # Without a name the text may be a URL with a password: it is not repeated.
        problems.append(f"{option}: expected {form}")
        return "", None
    return name, _source(url, f"{option} {name}", problems)


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


def _subscription_key(name: str, option: str, problems: list[str]) -> SubscriptionKey | None:
    topic, slash, group = name.partition("/")
    if slash and topic and group and "/" not in group:
        return topic, group
    problems.append(f"{option} {name}: expected TOPIC/GROUP")
    return None


def _source(url: str, option: str, problems: list[str]) -> Source | None:
    if url.startswith("@"):
        try:
            url = Path(url[1:]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):  # no UTF-8 text, or no file's name
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
