"""The reconciler's settings as typed values. file.py reads the settings, and config/reconciler.toml explains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from reconciler.contract import defaults
from reconciler.contract.announcement import UNIQUE_KEY_TOPIC_DEFAULT
from reconciler.contract.keyspace import COMMIT_GENERATIONS_DEFAULT, SHARDS_DEFAULT, SHARDS_MAX
from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import signature_secrets
from reconciler.contract.tables import REPAIR_ORDER_DEFAULT, Rung
from reconciler.contract.urls import shown_value
from reconciler.settings.instruments import LoggingSettings, MetricsSettings, TracingSettings
from reconciler.settings.notifiers import NotifierSettings, notifier_problems
from reconciler.settings.rocketmq import RocketmqSettings
from reconciler.settings.types import (
    EVERYTHING,
    DatabaseUrl,
    DatabaseUrls,
    Folder,
    GroupName,
    RedisUrl,
    Seconds,
    SecretValues,
    Section,
    Since,
    TagFilter,
    TopicName,
    no_duplicates,
    read_since_ms,
    split_tags,
)
from reconciler.settings.web import WebSettings, web_problems

#: Days for which a tombstone is kept after brokers have deleted its half.
TOMBSTONE_MARGIN_DAYS = 8
#: The brokers' default retention of 72 hours, plus the margin.
SWEEP_KEEP_DAYS_MIN = 11

#: Days for which an inbox row must be kept after its message can no longer be repaired.
INBOX_MARGIN_DAYS = 7


class UniqueKeyTopicSettings(Section):
    """The topic that carries the announcements."""

    name: TopicName = Field(default=UNIQUE_KEY_TOPIC_DEFAULT, description="Topic of the announcements.")
    queues: Annotated[int, Field(ge=1, le=SHARDS_MAX)] = Field(
        default=SHARDS_DEFAULT, description="Queues on every master = shards. Changing it needs a drain."
    )
    topics: dict[str, TopicName] = Field(
        default_factory=dict, description="Business topics whose announcements have a topic of their own."
    )
    bare_keys: bool = Field(default=False, description="Announcements are version 0: one bare key each.")
    signature_secret: SecretValues | None = Field(
        default=None,
        description="If set, announcements without a valid HMAC-SHA256 are refused. If it is a list, the first one "
        "signs, and each is accepted.",
    )

    @property
    def signature_key(self) -> Callable[[], Sequence[bytes]] | None:
        """Returns a function that gives the present signing keys. Returns None if messages are not signed."""
        listed = self.signature_secret
        if listed is None:
            return None
        return lambda: [one.encode() for secret in listed for one in signature_secrets(secret)]

    def name_for(self, topic: str) -> str:
        """Returns the unique-key topic of a business topic."""
        return self.topics.get(topic, self.name)


class RedisSettings(Section):
    """The Redis that keeps half sets, commit sets and pending keys."""

    url: RedisUrl = Field(description="redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// URL.")
    accept_unverified: bool = Field(
        default=False, description="Run although INFO and CONFIG cannot be asked: safety is then unverified."
    )
    half_set_keys_max: Annotated[int, Field(ge=1_000)] = Field(
        default=defaults.HALF_SET_KEYS_MAX,
        description="Announced keys in one shard above which announcements are suspended.",
    )


class LedgerSettings(Section):
    """The database with verdicts, repairs and rounds."""

    url: DatabaseUrl = Field(description="SQLAlchemy URL: sqlite, postgresql, mysql or mariadb.")
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=90,
        description="Finished rows are deleted after this many days; unfinished ones never. With commit_queries at "
        "least rounds.retention_hours and a day.",
    )


class ProducerSettings(Section):
    """One producer group whose messages are reconciled."""

    group: GroupName = Field(description="Producer group.")
    topics: Annotated[list[TopicName], Field(min_length=1), BeforeValidator(no_duplicates)] = Field(
        description="Business topics it sends transactional messages to."
    )
    outbox_url: DatabaseUrls | None = Field(
        default=None,
        description="Database of its outbox, or a list of them. Without one the announcement is the only evidence "
        "(weaker).",
    )
    commit_queries: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="TOML file of commit queries, one for each of its topics, in place of outbox_url: rows of your own "
        "tables prove commits. repairs.topics says of each whether what is lost is sent.",
    )
    answer_checks: bool = Field(
        default=False, description="reconciler sweep answers the check-backs of keys that the outbox knows."
    )

    @property
    def outbox_urls(self) -> tuple[SecretText, ...]:
        """All databases of the group's outbox. Empty: no outbox can be read."""
        return tuple(self.outbox_url or ())


class SubscriptionSettings(Section):
    """A subscription: one topic as one consumer group takes it. Each subscription is reconciled by itself."""

    topic: TopicName = Field(description="Business topic.")
    group: GroupName = Field(description="Consumer group.")
    tags: TagFilter = Field(default="*", description="Tag filter of the group, '*' or 'a || b'.")
    announcements: Literal["unique_key_topic", "half_topic"] = Field(
        default="unique_key_topic",
        description="What tells of its messages: announcements of the services, or `half_topic`: the half messages, "
        "where services hold none of our code. The producers of the topic need commit_queries then.",
    )
    consumers_are_idempotent: bool = Field(
        default=False,
        description="True: its handlers recognise a message that comes twice. With half_topic nothing is sent without: "
        "a producer that answers late delivers a second copy.",
    )
    inbox_url: DatabaseUrls | None = Field(
        default=None,
        description="Database of its inbox, or a list where the handler's database is a function of the message. "
        "Without one effects are unknown (weaker).",
    )
    effect_query: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="TOML file of effect queries with one of this topic and group, in place of inbox_url where halves "
        "announce: rows of the consumer's own tables prove effects.",
    )
    inbox_keep_days: Annotated[float, Field(gt=0, le=36_500)] | None = Field(
        default=None,
        description="How long the consuming service keeps its inbox rows, or those that effect_query finds; unset: "
        "for ever.",
    )
    grace_period_seconds: Seconds = Field(
        default=defaults.GRACE_PERIOD_SECONDS, description="A key younger than this is never judged."
    )
    late_after_seconds: Seconds = Field(default=300.0, description="An effect later than this is reported as late.")
    lag_alarm_seconds: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        default=defaults.LAG_ALARM_SECONDS,
        description="A message that waits longer than this for the group is told by `status`; 0: never.",
    )
    since: Since | None = Field(
        default=None,
        description="The group answers for messages that groups were given from this time on, or for `everything`; "
        "unset: since its first round, which the ledger keeps. A time of the future is refused.",
    )
    repair_order: Annotated[list[Rung], Field(min_length=1), BeforeValidator(no_duplicates)] = Field(
        default=list(REPAIR_ORDER_DEFAULT), description="Rungs of the repair ladder, in order."
    )

    @property
    def reads_halves(self) -> bool:
        """True if half messages serve as the subscription's announcements."""
        return self.announcements == "half_topic"

    @property
    def takes_sends_by_query(self) -> bool:
        """True if the group may get a message that a commit query proves lost."""
        return self.reads_halves and self.consumers_are_idempotent

    @property
    def inbox_urls(self) -> tuple[SecretText, ...]:
        """All databases of the group's inbox. Empty: effects cannot be read."""
        return tuple(self.inbox_url or ())

    @property
    def since_ms(self) -> int | None:
        """Time from which the subscription covers messages, in milliseconds UTC. 0: it covers every message. None: the
        ledger says the time."""
        if self.since is None:
            return None
        return 0 if self.since == EVERYTHING else read_since_ms(self.since)

    @property
    def tag_set(self) -> frozenset[str] | None:
        """The tags that the group takes. None: the group takes every tag."""
        return split_tags(self.tags)


#: Remark on a file that has this setting. The example file of releases up to 0.2.0 has it.
MODE_NOT_NEEDED = 'rounds.mode = "full" is not needed: it is the only mode, and the next release refuses it; remove it'


def _one_mode(value: object) -> object:
    if value == "classic":
        raise ValueError("`run` has no other mode than full: `reconciler demo --classic` shows the original algorithm")
    return value


class RoundSettings(Section):
    """How often rounds run, and how carefully they judge."""

    mode: Annotated[Literal["full"] | None, BeforeValidator(_one_mode)] = Field(
        default=None, description='Not needed: "full" is the only mode, and the next release refuses it.'
    )
    interval_seconds: Seconds = Field(default=5.0, description="Time between two rounds of a subscription.")
    commit_generations: Annotated[int, Field(ge=1, le=16)] = Field(
        default=COMMIT_GENERATIONS_DEFAULT, description="Rounds of 5 s for which consumed keys are kept."
    )
    skew_margin_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=defaults.SKEW_MARGIN_SECONDS,
        description="Largest difference between the clocks of Redis, brokers and databases.",
    )
    statement_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        default=defaults.STATEMENT_SECONDS,
        description="How long a statement to a database is waited for in rounds, sweeps, status, doctor, console and "
        "acts; then the database counts as away.",
    )
    lease_seconds: Seconds = Field(
        default=defaults.LEASE_SECONDS, description="Lease of a shard's rounds and of its announcements."
    )
    candidates_max: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=defaults.CANDIDATES_MAX,
        description="Keys verified in a round of a subscription, fewer if rounds come more often than every 5 s; ten "
        "times as many while databases alone settle most.",
    )
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(
        default=64,
        description="Look-ups and repairs that wait for one broker at the same time, of all topics of the process.",
    )
    retention_hours: Annotated[float, Field(gt=0)] = Field(
        default=defaults.RETENTION_HOURS, description="fileReservedTime of the brokers: how long a half can be found."
    )

    @property
    def retention_seconds(self) -> float:
        """retention_hours in seconds."""
        return self.retention_hours * 3600


class RepairSettings(Section):
    """The limits of repairs."""

    enabled: bool = Field(default=True, description="False: shadow mode; verdicts are written, nothing is sent.")
    topics: dict[TopicName, bool] = Field(
        default_factory=dict, description="Business topics with a value of their own in place of `repairs.enabled`."
    )
    rate_per_second: Annotated[float, Field(gt=0, le=10_000)] = Field(
        default=defaults.REPAIRS_PER_SECOND,
        description="Repairs a second and topic of each process that repairs; several processes: their sum.",
    )
    breaker_candidates_min: Annotated[int, Field(ge=1)] = Field(
        default=defaults.BREAKER_CANDIDATES_MIN,
        description="Fewer new losses in a round, or in 5 s, never open the breaker.",
    )
    breaker_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=defaults.BREAKER_SHARE, description="Share of the round's announcements above which the breaker opens."
    )
    check_back_wait_seconds: Annotated[float, Field(ge=0, le=7 * 86_400)] | None = Field(
        default=None,
        description="How long a half is left to the broker's check-back; unset: asked from the broker, and 0 while no "
        "producer of its group is connected, since no producer could answer.",
    )
    claim_lease_seconds: Seconds = Field(default=defaults.CLAIM_LEASE_SECONDS, description="Lease of a claimed repair.")

    def is_enabled_for(self, topic: str) -> bool:
        """Returns True if lost messages of the topic are repaired. Returns False if the topic is in shadow mode."""
        return self.topics.get(topic, self.enabled)


class SweepSettings(Section):
    """The sweeper (reconciler sweep)."""

    interval_seconds: Seconds = Field(
        default=10.0,
        description="Time between two sweeps. Between them NEW rows that became due are looked for: five times a "
        "sweep, and no more often than every 2 s.",
    )
    sweep_after_seconds: Seconds = Field(
        default=defaults.SWEEP_AFTER_SECONDS, description="A NEW row older than this is announced."
    )
    settle_after_seconds: Seconds = Field(
        default=defaults.SETTLE_AFTER_SECONDS, description="An ANNOUNCED row older than this is settled."
    )
    announce_again_after_seconds: Seconds = Field(
        default=defaults.ANNOUNCE_AGAIN_AFTER_SECONDS,
        description="An unsettled row older than this is announced again.",
    )
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=defaults.OUTBOX_KEEP_DAYS,
        description="SETTLED and ROLLED_BACK rows are deleted after this many days: at least 11, and at least "
        "rounds.retention_hours and 8 days. Others are never deleted.",
    )

    @property
    def due_interval_seconds(self) -> float:
        """Time between two looks for NEW rows that became due."""
        return min(self.interval_seconds, max(2.0, self.interval_seconds / 5))


class HistorySettings(Section):
    """The history: Parquet files of everything that the reconciler did. The audit reads them."""

    path: Folder | None = Field(
        default=None, description="Folder of the history, on a file system with hard links; unset: none is written."
    )
    spool_path: Folder | None = Field(
        default=None, description="Folder where rows wait to be sealed; unset: .spool in the history's folder."
    )
    spool_max_mebibytes: Annotated[int, Field(ge=16, le=1_048_576)] = Field(
        default=1_024, description="Rows that cannot be sealed wait up to this size; then they become a gap."
    )
    seal_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=300.0, description="Rows become Parquet after this; the audit sees nothing younger."
    )
    compact_files: Annotated[int, Field(ge=2, le=1_000)] = Field(
        default=8, description="Files of one day, stream and prefix above which they are merged."
    )
    keep_days: Annotated[int, Field(ge=1, le=36_500)] = Field(
        default=400, description="Days of rows that are kept; older ones are retired by an entry of the manifest."
    )


class Settings(Section):
    """All settings."""

    environment: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = Field(
        description="Name of the deployment; keeps Redis keys and ledger rows of two deployments apart."
    )
    rocketmq: RocketmqSettings
    unique_key_topic: UniqueKeyTopicSettings = UniqueKeyTopicSettings()
    redis: RedisSettings
    ledger: LedgerSettings
    producers: list[ProducerSettings] = Field(min_length=1, description="Producer groups.")
    subscriptions: list[SubscriptionSettings] = Field(min_length=1, description="Subscriptions.")
    rounds: RoundSettings = RoundSettings()
    repairs: RepairSettings = RepairSettings()
    sweep: SweepSettings = SweepSettings()
    history: HistorySettings = HistorySettings()
    metrics: MetricsSettings = MetricsSettings()
    web: WebSettings = WebSettings()
    notifiers: Annotated[list[NotifierSettings], Field(max_length=20)] = Field(
        default_factory=list, description="Receivers of notices."
    )
    tracing: TracingSettings = TracingSettings()
    logging: LoggingSettings = LoggingSettings()

    def subscriptions_of_topics(self) -> Mapping[str, Sequence[SubscriptionSettings]]:
        """Returns topic -> its subscriptions, in the order of the settings."""
        found: dict[str, list[SubscriptionSettings]] = {}
        for one in self.subscriptions:
            found.setdefault(one.topic, []).append(one)
        return found

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        problems = list(contradictions(self))
        if problems:
            raise ValueError("\n".join(problems))
        return self


def may_send_by_query(of_topic: Sequence[SubscriptionSettings]) -> bool:
    """Returns True if every group of a topic allows that messages are sent which a commit query proves lost."""
    return bool(of_topic) and all(one.takes_sends_by_query for one in of_topic)


def contradictions(settings: Settings) -> list[str]:
    """Returns one line for each contradiction between values that are valid by themselves. The line contains fields,
    values and remedy."""
    problems: list[str] = []
    produced = {topic for producer in settings.producers for topic in producer.topics}
    named: dict[str, Iterable[str]] = {
        "unique_key_topic.topics": settings.unique_key_topic.topics,
        "repairs.topics": settings.repairs.topics,
    }
    problems += [
        f"{field} has {shown_value(topic)}, which no producer sends; correct the name, or add it to topics of a "
        "[[producers]] section"
        for field, topics in named.items()
        for topic in topics
        if topic not in produced
    ]
    problems += _check_topics(settings, produced)
    seen: set[tuple[str, str]] = set()
    of_topics = settings.subscriptions_of_topics()
    for number, s in enumerate(settings.subscriptions):
        where = f"subscriptions[{number}]"
        if s.topic not in produced:
            problems.append(
                f"{where}.topic = {s.topic!r}: no producer sends it; add it to topics of a [[producers]] section"
            )
        if (s.topic, s.group) in seen:
            problems.append(f"{where} = {s.topic}/{s.group}: is listed twice; remove one")
        seen.add((s.topic, s.group))
        first = of_topics[s.topic][0]
        if s.repair_order != first.repair_order:
            problems.append(
                f"{where}.repair_order differs from that of {first.topic}/{first.group}: END and republish reach every "
                "group of a topic, so all its subscriptions share one ladder; make them equal"
            )
        keep_days_min = settings.rounds.retention_hours / 24 + INBOX_MARGIN_DAYS
        if s.inbox_keep_days is not None and s.inbox_keep_days < keep_days_min:
            problems.append(
                f"{where}.inbox_keep_days = {s.inbox_keep_days:g} is shorter than rounds.retention_hours and "
                f"{INBOX_MARGIN_DAYS} days: a repair could come after its inbox row was deleted and take effect twice; "
                f"keep at least {keep_days_min:g} days"
            )
        problems += _check_times(settings, s, where)
    if settings.history.spool_path is not None and settings.history.path is None:
        problems.append("history.spool_path is set and history.path is not: no history is written; set both")
    problems += web_problems(settings.web)
    problems += notifier_problems(settings.notifiers)
    problems += _check_answerers(settings.producers)
    problems += _check_queries(settings)
    problems += _check_halves(settings)
    problems += _check_effect_queries(settings)
    keep_days_min = max(SWEEP_KEEP_DAYS_MIN, settings.rounds.retention_hours / 24 + TOMBSTONE_MARGIN_DAYS)
    if settings.sweep.keep_days < keep_days_min:
        problems.append(
            f"sweep.keep_days = {settings.sweep.keep_days}: must be {keep_days_min:g} or more (rounds.retention_hours "
            f"= {settings.rounds.retention_hours:g}, and {TOMBSTONE_MARGIN_DAYS} days): a tombstone must outlive every "
            "half that a broker could still ask about, or the answer changes"
        )
    longest = max(s.grace_period_seconds for s in settings.subscriptions)
    if longest * 4 > settings.rounds.retention_seconds:
        problems.append(
            f"grace_period_seconds = {longest:g} is more than a quarter of rounds.retention_hours = "
            f"{settings.rounds.retention_hours:g}: the half could be gone before it is looked for"
        )
    return problems


def _check_topics(settings: Settings, produced: Set[str]) -> list[str]:
    """Checks that each kind of message has topics of its own, because probes, announcements and business messages must
    not mix."""
    announced = settings.unique_key_topic
    fields = {"rocketmq.probe_topic": settings.rocketmq.probe_topic, "unique_key_topic.name": announced.name}
    fields |= {f"unique_key_topic.topics.{topic}": name for topic, name in announced.topics.items()}
    problems = [
        f"{field} = {name!r} is a business topic: its consumers would get messages that are not meant for them; "
        "give it a topic of its own"
        for field, name in fields.items()
        if name in produced
    ]
    probes = fields.pop("rocketmq.probe_topic")
    return problems + [
        f"{field} = {name!r} is rocketmq.probe_topic, too; give each a topic of its own"
        for field, name in fields.items()
        if name == probes
    ]


def _check_times(settings: Settings, s: SubscriptionSettings, where: str) -> list[str]:
    problems: list[str] = []
    if s.grace_period_seconds < settings.rounds.interval_seconds:
        problems.append(
            f"{where}.grace_period_seconds = {s.grace_period_seconds:g} is shorter than rounds.interval_seconds = "
            f"{settings.rounds.interval_seconds:g}: raise it to two intervals"
        )
    twice_skew = 2 * settings.rounds.skew_margin_seconds
    if s.grace_period_seconds <= twice_skew:
        problems.append(
            f"{where}.grace_period_seconds = {s.grace_period_seconds:g} must be more than {twice_skew:g}, twice "
            "rounds.skew_margin_seconds: the group's watermark stays that far behind, and its gate would never "
            "open; raise it, or lower the margin"
        )
    if s.late_after_seconds < s.grace_period_seconds:
        problems.append(
            f"{where}.late_after_seconds = {s.late_after_seconds:g} is shorter than grace_period_seconds = "
            f"{s.grace_period_seconds:g}: raise it"
        )
    return problems


def _check_answerers(producers: Sequence[ProducerSettings]) -> list[str]:
    return [
        f"producers[{number}].answer_checks = true needs outbox_url: an answer without evidence is a guess"
        for number, producer in enumerate(producers)
        if producer.answer_checks and producer.outbox_url is None
    ]


def _check_queries(settings: Settings) -> list[str]:
    """Checks that a commit query is the only proof of its topic's commits, and that messages are sent by it only where
    the settings allow this."""
    problems: list[str] = []
    of_topics = settings.subscriptions_of_topics()
    sections = Counter(topic for producer in settings.producers for topic in producer.topics)
    for number, producer in enumerate(settings.producers):
        if producer.commit_queries is None:
            continue
        where = f"producers[{number}].commit_queries"
        if producer.outbox_url is not None:
            problems.append(f"{where} stands in place of outbox_url, which is set, too; remove one of them")
        for topic in producer.topics:
            if sections[topic] > 1:
                problems.append(
                    f"{where}: {topic} is in another [[producers]] section, too; a topic of a commit query has one"
                )
            if not settings.repairs.is_enabled_for(topic):
                continue
            if not (topic in settings.repairs.topics and may_send_by_query(of_topics.get(topic, ()))):
                problems.append(
                    f"{where}: what it proves lost is sent only where that is said; set repairs.topics.{topic} = false "
                    '(shadow mode), or = true, with announcements = "half_topic" and consumers_are_idempotent = true '
                    "in each [[subscriptions]] section of the topic"
                )
    keep_days_min = settings.rounds.retention_hours / 24 + 1
    has_queries = any(producer.commit_queries is not None for producer in settings.producers)
    if has_queries and settings.ledger.keep_days < keep_days_min:
        problems.append(
            f"ledger.keep_days = {settings.ledger.keep_days}: must be {keep_days_min:g} or more "
            "(rounds.retention_hours and a day): a row of the business may be of any half that a broker still has, and "
            "the ledger must know it"
        )
    return problems


def _check_halves(settings: Settings) -> list[str]:
    """Checks that a commit query answers for each half topic. A half proves no commit, and an outbox without a row for
    the half disproves none."""
    without: dict[str, list[int]] = {}
    for place, producer in enumerate(settings.producers):
        for topic in producer.topics if producer.commit_queries is None else ():
            without.setdefault(topic, []).append(place)
    return [
        f'subscriptions[{number}].announcements = "half_topic": a half proves no commit, and producers[{place}], which '
        f"sends {s.topic}, has no commit_queries that tell which half was committed; set them"
        for number, s in enumerate(settings.subscriptions)
        if s.reads_halves
        for place in without.get(s.topic, ())
    ]


def _check_effect_queries(settings: Settings) -> list[str]:
    """Checks that an effect query is the only proof of its subscription's effects. Its key is read from halves and
    copies, so services may hold none of our code."""
    problems: list[str] = []
    for number, s in enumerate(settings.subscriptions):
        where = f"subscriptions[{number}].effect_query"
        if s.effect_query is not None and s.inbox_url is not None:
            problems.append(f"{where} stands in place of inbox_url, which is set, too; remove one of them")
        if s.effect_query is not None and not s.reads_halves:
            problems.append(
                f'{where} needs announcements = "half_topic"; set it, or set inbox_url in place of effect_query'
            )
    return problems
