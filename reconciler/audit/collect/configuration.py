"""Reads FILE, the reconciler's settings, for the audit. One message reports all problems.

The reconciler's own code parses file, RECONCILER_ variables and secrets into plain data (`read_document`). This module
decides what the values mean (tags, producer groups, shards, times). It shares no code with the reconciler for this,
because the audit must not repeat a misreading. Sections that say nothing about evidence are ignored. Only the driver
reads settings. Executors get the settings from evidence.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.audit.collect.sources import Source, Sources, source_at, subscription_key
from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import AuditedSubscription
from reconciler.contract.secret import SecretText
from reconciler.contract.urls import read_database_url, shown_url, shown_value
from reconciler.errors import ConfigurationError
from reconciler.settings.file import read_document

SHARDS_DEFAULT = 16
SHARDS_MAX = 1024
SKEW_SECONDS_DEFAULT = 10.0
GRACE_SECONDS_DEFAULT = 30.0
#: Sources from which the reconciler learns of messages: announcements of services, or half messages.
ANNOUNCING = ("unique_key_topic", "half_topic")
LATE_SECONDS_DEFAULT = 300.0
SECONDS_MAX = 7 * 86_400.0

#: Settings of the sections that are read. Any other name is a misspelling. A test compares the names with
#: reconciler/settings.
PRODUCER_NAMES = frozenset({"group", "topics", "outbox_url", "answer_checks", "commit_queries"})
SUBSCRIPTION_NAMES = frozenset(
    {
        "topic",
        "group",
        "tags",
        "announcements",
        "consumers_are_idempotent",
        "inbox_url",
        "effect_query",
        "inbox_keep_days",
        "grace_period_seconds",
        "lag_alarm_seconds",
        "late_after_seconds",
        "repair_order",
        "since",
    }
)
_ENVIRONMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,160}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredProducer:
    """One [[producers]] section."""

    group: str
    topics: tuple[str, ...]
    #: URLs, which may hold passwords and are never shown.
    outbox_urls: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedConfiguration:
    """Settings of FILE about evidence."""

    environment: str
    shards: int
    skew_bound_ms: int
    producers: tuple[ConfiguredProducer, ...]
    #: Subscriptions, sorted by topic and group. `audited_subscriptions` sets the fields `inbox` and `effects`.
    subscriptions: tuple[AuditedSubscription, ...]
    #: (topic, group) -> URLs.
    inbox_urls: Mapping[tuple[str, str], tuple[str, ...]] = field(repr=False)
    ledger_url: str | None = field(repr=False)


def read_configuration(path: Path, environ: Mapping[str, str]) -> AuditedConfiguration:
    """Reads FILE and the variables. Raises AuditError("configuration") with all problems."""
    try:
        document = read_document(path, environ)
    except ConfigurationError as error:
        cause = error.__cause__
        if isinstance(cause, OSError):
            message = f"--subscriptions {path}: cannot be read: {cause.strerror}; name the reconciler's settings file"
            raise AuditError("configuration", message) from error
        raise AuditError("configuration", f"--subscriptions {error}") from error
    problems = document.problems
    reader = _Reader(problems)
    found = _read(reader, document.values)
    if problems or found is None:
        lines = "\n".join(f"  {line}" for line in problems)
        raise AuditError("configuration", f"--subscriptions {path}: {len(problems)} problem(s)\n{lines}")
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader of typed values from TOML tables. A value that does not fit becomes a line of `problems`."""

    problems: list[str]

    def section(self, document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = document.get(name, {})
        if isinstance(value, Mapping):
            return value
        self.problems.append(f"{name}: expected a section [{name}]")
        return {}

    def sections(
        self, document: Mapping[str, Any], name: str, known: frozenset[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        value = document.get(name, [])
        if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
            self.problems.append(f"{name}: expected one section [[{name}]] or more")
            return
        for number, item in enumerate(value):
            where = f"{name}[{number}]"
            for unknown in sorted(item.keys() - known):
                self.problems.append(f"{where}.{unknown}: unknown setting; remove it or correct its spelling")
            yield where, item

    def text(self, table: Mapping[str, Any], name: str, where: str, shape: re.Pattern[str]) -> str:
        value = table.get(name)
        if isinstance(value, str) and shape.fullmatch(value):
            return value
        shown = "missing" if value is None else f"{shown_value(value)} does not fit {shape.pattern}"
        self.problems.append(f"{where}{name}: {shown}")
        return ""

    def number(self, table: Mapping[str, Any], name: str, where: str, default: float, most: float) -> float:
        value = table.get(name, default)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= most:
            self.problems.append(f"{where}{name} = {shown_value(value)}: expected a number from 0 to {most:g}")
            return default
        return number

    def url(self, table: Mapping[str, Any], name: str, where: str) -> str | None:
        value = table.get(name)
        if value is None:
            return None
        try:
            read_database_url(value)
        except ValueError as error:
            self.problems.append(f"{where}{name} = {shown_url(value)}: {error}")
            return None
        return value.reveal() if isinstance(value, SecretText) else str(value)

    def urls(self, table: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
        """Reads one URL, or a list of URLs."""
        value = table.get(name)
        if not isinstance(value, list):
            url = self.url(table, name, where)
            return () if url is None else (url,)
        found = [self.url({f"{name}[{place}]": url}, f"{name}[{place}]", where) for place, url in enumerate(value)]
        if not found or len(set(found)) != len(found):
            self.problems.append(f"{where}{name} = a list: expected one URL or more, each once")
        return tuple(url for url in found if url is not None)


def _read(reader: _Reader, document: Mapping[str, Any]) -> AuditedConfiguration | None:
    environment = reader.text(document, "environment", "", _ENVIRONMENT)
    queues = reader.number(
        reader.section(document, "unique_key_topic"), "queues", "unique_key_topic.", SHARDS_DEFAULT, SHARDS_MAX
    )
    if queues < 1 or queues != int(queues):
        reader.problems.append(f"unique_key_topic.queues = {queues:g}: expected a whole number from 1 to {SHARDS_MAX}")
    skew = reader.number(
        reader.section(document, "rounds"), "skew_margin_seconds", "rounds.", SKEW_SECONDS_DEFAULT, 3600
    )
    producers = tuple(_producers(reader, document))
    subscriptions: dict[tuple[str, str], AuditedSubscription] = {}
    inbox_urls: dict[tuple[str, str], tuple[str, ...]] = {}
    for where, item in reader.sections(document, "subscriptions", SUBSCRIPTION_NAMES):
        found = _subscription(reader, where, item, producers)
        key = (found.topic, found.group)
        if key in subscriptions:
            reader.problems.append(f"{where} = {'/'.join(key)}: is listed twice; remove one")
        subscriptions[key] = found
        urls = reader.urls(item, "inbox_url", f"{where}.")
        if urls:
            inbox_urls[key] = urls
    ledger_url = reader.url(reader.section(document, "ledger"), "url", "ledger.")
    if reader.problems:
        return None
    return AuditedConfiguration(
        environment=environment,
        shards=int(queues),
        skew_bound_ms=round(skew * 1000),
        producers=producers,
        subscriptions=tuple(subscriptions[key] for key in sorted(subscriptions)),
        inbox_urls=inbox_urls,
        ledger_url=ledger_url,
    )


def _producers(reader: _Reader, document: Mapping[str, Any]) -> Iterator[ConfiguredProducer]:
    for where, item in reader.sections(document, "producers", PRODUCER_NAMES):
        topics = item.get("topics")
        is_list = (
            isinstance(topics, list) and topics and all(isinstance(t, str) and _TOPIC.fullmatch(t) for t in topics)
        )
        if not is_list:
            reader.problems.append(f"{where}.topics = {shown_value(topics)}: expected a list of topics")
        yield ConfiguredProducer(
            group=reader.text(item, "group", f"{where}.", _GROUP),
            topics=tuple(topics or ()) if is_list else (),
            outbox_urls=reader.urls(item, "outbox_url", f"{where}."),
        )


def _subscription(
    reader: _Reader, where: str, item: Mapping[str, Any], producers: Sequence[ConfiguredProducer]
) -> AuditedSubscription:
    topic = reader.text(item, "topic", f"{where}.", _TOPIC)
    group = reader.text(item, "group", f"{where}.", _GROUP)
    tags = item.get("tags", "*")
    if not isinstance(tags, str):
        reader.problems.append(f"{where}.tags = {shown_value(tags)}: expected '*' or 'a || b'")
        tags = "*"
    announcing = item.get("announcements", ANNOUNCING[0])
    if announcing not in ANNOUNCING:
        reader.problems.append(
            f"{where}.announcements = {shown_value(announcing)}: expected one of {', '.join(ANNOUNCING)}"
        )
    of_topic = sorted({producer.group for producer in producers if topic in producer.topics})
    if topic and not of_topic:
        reader.problems.append(f"{where}.topic = {topic!r}: no producer sends it; add it to topics of a [[producers]]")
    grace = reader.number(item, "grace_period_seconds", f"{where}.", GRACE_SECONDS_DEFAULT, SECONDS_MAX)
    late = reader.number(item, "late_after_seconds", f"{where}.", LATE_SECONDS_DEFAULT, SECONDS_MAX)
    if late < grace:
        # A window closes `late_after_seconds` after its end. Keys that are younger than the grace period cannot be
        # judged.
        reader.problems.append(
            f"{where}.late_after_seconds = {late:g} is shorter than grace_period_seconds = {grace:g}"
        )
    return AuditedSubscription(
        topic=topic,
        group=group,
        tags=split_tags(tags),
        producer_groups=tuple(of_topic),
        grace_period_seconds=grace,
        late_after_seconds=late,
        inbox=False,
        effects=False,
        of_halves=announcing == "half_topic",
    )


def split_tags(expression: str) -> tuple[str, ...] | None:
    """Splits 'a || b' into sorted tags. None: '*' or an empty text (FilterAPI.buildSubscriptionData, 4.9.7)."""
    if expression.strip() in {"", "*"}:
        return None
    return tuple(sorted({tag.strip() for tag in expression.split("||") if tag.strip()}))


def with_configured(sources: Sources, configuration: AuditedConfiguration) -> Sources:
    """Adds FILE's URLs where no option names a URL (`--from-configuration`). Raises AuditError("configuration")."""
    problems: list[str] = []

    def of(url: str, where: str) -> Source | None:
        return source_at(url, f"--subscriptions: {where}", problems)

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
    """Chooses FILE's subscriptions and marks the sources that were given for each.

    `only` lists the chosen subscriptions as TOPIC/GROUP. An empty list chooses all subscriptions. Raises
    AuditError("usage") for names that FILE lacks.
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
    wanted = [key for key in (subscription_key(text, "--only", problems) for text in only) if key is not None]
    problems += [
        f"--only {'/'.join(k)}: FILE has no such subscription; it has {names}" for k in wanted if k not in known
    ]
    if problems:
        raise AuditError("usage", "\n".join(problems))
    chosen = [key for key in known if not only or key in wanted]
    return tuple(replace(known[key], inbox=key in sources.inboxes, effects=key in sources.effects) for key in chosen)
