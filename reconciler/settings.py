"""The service's settings: flag > environment > file > default; every problem is reported at once.

The file is TOML (config/reconciler.toml explains each setting). The environment overrides single settings with
``RECONCILER_`` and ``__`` for nesting (``RECONCILER_REDIS__URL``); ``RECONCILER_REDIS__URL_FILE`` names a file that
holds the value, for secrets; ``RECONCILER_CONFIG`` names the settings file. An unknown setting or variable is an
error, never ignored.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator

from reconciler.contract.announcement import UNIQUE_KEY_TOPIC_DEFAULT
from reconciler.contract.keyspace import COMMIT_GENERATIONS_DEFAULT, SHARDS_DEFAULT, SHARDS_MAX
from reconciler.contract.tables import Rung
from reconciler.errors import ConfigurationError
from reconciler.setting_types import (
    DatabaseUrl,
    GroupName,
    HostList,
    RedisUrl,
    TopicName,
    no_duplicates,
    split_tags,
)

ENVIRONMENT_PREFIX = "RECONCILER_"
#: Variables with our prefix that are not settings.
NOT_SETTINGS = frozenset({"RECONCILER_CONFIG"})

#: How much longer than the brokers keep a half its tombstone is kept.
TOMBSTONE_MARGIN_DAYS = 8
#: The brokers' default retention of 72 hours, and the margin.
SWEEP_KEEP_DAYS_MIN = 11

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


class Section(BaseModel):
    """Every section refuses unknown names and cannot be changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=False)


class RocketmqSettings(Section):
    """How brokers are reached."""

    name_servers: HostList = Field(description="Name servers, host:port, several separated by ';'.")
    request_timeout_seconds: Seconds = Field(default=3.0, description="Longest wait for one answer of a broker.")
    probe_topic: TopicName = Field(default="RECONCILER_PROBE", description="Topic of the index-horizon probes.")


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
    signature_secret: SecretStr | None = Field(
        default=None, description="If set, announcements without a valid HMAC-SHA256 are refused."
    )

    def name_for(self, topic: str) -> str:
        """The unique-key topic of a business topic."""
        return self.topics.get(topic, self.name)


class RedisSettings(Section):
    """Where the sets live."""

    url: RedisUrl = Field(description="redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// URL.")
    accept_unverified: bool = Field(
        default=False, description="Run although INFO and CONFIG cannot be asked: safety is then unverified."
    )
    half_set_keys_max: Annotated[int, Field(ge=1_000)] = Field(
        default=1_000_000, description="Announced keys in one shard above which announcements are suspended."
    )


class LedgerSettings(Section):
    """Where verdicts, repairs and rounds are kept."""

    url: DatabaseUrl = Field(description="SQLAlchemy URL: sqlite, postgresql, mysql or mariadb.")
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=90, description="Finished rows are deleted after this many days; unfinished ones never."
    )


class ProducerSettings(Section):
    """One producer group whose messages are reconciled."""

    group: GroupName = Field(description="Producer group.")
    topics: Annotated[list[TopicName], Field(min_length=1), BeforeValidator(no_duplicates)] = Field(
        description="Business topics it sends transactional messages to."
    )
    outbox_url: DatabaseUrl | None = Field(
        default=None, description="Database of its outbox. Without one the announcement is the only evidence (weaker)."
    )
    answer_checks: bool = Field(
        default=False, description="reconciler sweep joins the group and answers the broker's check-backs."
    )


class SubscriptionSettings(Section):
    """One consumer group's view of one topic: the unit that is reconciled."""

    topic: TopicName = Field(description="Business topic.")
    group: GroupName = Field(description="Consumer group.")
    tags: Annotated[str, Field(max_length=2_000)] = Field(
        default="*", description="Tag filter of the group, '*' or 'a || b'."
    )
    inbox_url: DatabaseUrl | None = Field(
        default=None, description="Database of its inbox. Without one effects are unknown (weaker)."
    )
    grace_period_seconds: Seconds = Field(default=30.0, description="A key younger than this is never judged.")
    late_after_seconds: Seconds = Field(default=300.0, description="An effect later than this is reported as late.")
    repair_order: Annotated[list[Rung], Field(min_length=1), BeforeValidator(no_duplicates)] = Field(
        default=[Rung.END, Rung.REPUBLISH, Rung.HAND_OVER], description="Rungs of the repair ladder, in order."
    )

    @property
    def tag_set(self) -> frozenset[str] | None:
        """Tags that the group takes; None: all."""
        return split_tags(self.tags)


class RoundSettings(Section):
    """How often and how carefully it looks."""

    interval_seconds: Seconds = Field(default=5.0, description="Time between two rounds of a subscription.")
    commit_generations: Annotated[int, Field(ge=1, le=16)] = Field(
        default=COMMIT_GENERATIONS_DEFAULT, description="Rounds for which consumed keys are kept."
    )
    skew_margin_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0, description="Largest difference between the clocks of Redis, brokers and databases."
    )
    lease_seconds: Seconds = Field(default=30.0, description="Lease of a shard's rounds.")
    candidates_max: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=2_000, description="Keys verified in one round of a subscription."
    )
    retention_hours: Annotated[float, Field(gt=0)] = Field(
        default=72.0, description="fileReservedTime of the brokers: how long a half can be found."
    )


class RepairSettings(Section):
    """Brakes."""

    enabled: bool = Field(default=True, description="False: dry run; verdicts are written, nothing is repaired.")
    rate_per_second: Annotated[float, Field(gt=0, le=10_000)] = Field(
        default=200.0, description="Repairs a second and topic."
    )
    breaker_candidates_min: Annotated[int, Field(ge=1)] = Field(
        default=1_000, description="Fewer due candidates in a round never open the breaker."
    )
    breaker_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.05, description="Share of the round's announcements above which the breaker opens."
    )
    check_back_wait_seconds: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="How long a half is left to the broker's check-back; unset: asked from the broker."
    )
    claim_lease_seconds: Seconds = Field(default=60.0, description="Lease of a claimed repair.")


class SweepSettings(Section):
    """The sweeper (reconciler sweep)."""

    interval_seconds: Seconds = Field(default=10.0, description="Time between two sweeps.")
    sweep_after_seconds: Seconds = Field(default=60.0, description="A NEW row older than this is announced.")
    settle_after_seconds: Seconds = Field(default=3_600.0, description="An ANNOUNCED row older than this is settled.")
    announce_again_after_seconds: Seconds = Field(
        default=21_600.0, description="An unsettled row older than this is announced again."
    )
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=30,
        description="SETTLED and ROLLED_BACK rows are deleted after this many days, at least 11; others never.",
    )
    local_transaction_timeout_seconds: Seconds = Field(
        default=60.0, description="Must exceed the longest local transaction: absent rows are UNKNOWN until then."
    )


class LoggingSettings(Section):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level written.")
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else JSON."
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
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        problems = list(contradictions(self))
        if problems:
            raise ValueError("\n".join(problems))
        return self


def contradictions(settings: Settings) -> list[str]:
    """Values that are fine alone and cannot work together; each line names fields, values and remedy."""
    problems: list[str] = []
    produced = {topic for producer in settings.producers for topic in producer.topics}
    seen: set[tuple[str, str]] = set()
    for number, s in enumerate(settings.subscriptions):
        where = f"subscriptions[{number}]"
        if s.topic not in produced:
            problems.append(
                f"{where}.topic = {s.topic!r}: no producer sends it; add it to topics of a [[producers]] section"
            )
        if (s.topic, s.group) in seen:
            problems.append(f"{where} = {s.topic}/{s.group}: stands twice; remove one")
        seen.add((s.topic, s.group))
        first = next(other for other in settings.subscriptions if other.topic == s.topic)
        if s.repair_order != first.repair_order:
            problems.append(
                f"{where}.repair_order differs from that of {first.topic}/{first.group}: END and republish reach every "
                "group of a topic, so all its subscriptions share one ladder; make them equal"
            )
        if s.grace_period_seconds < settings.rounds.interval_seconds:
            problems.append(
                f"{where}.grace_period_seconds = {s.grace_period_seconds:g} is shorter than rounds.interval_seconds = "
                f"{settings.rounds.interval_seconds:g}: raise it to two intervals"
            )
        if s.late_after_seconds < s.grace_period_seconds:
            problems.append(
                f"{where}.late_after_seconds = {s.late_after_seconds:g} is shorter than grace_period_seconds = "
                f"{s.grace_period_seconds:g}: raise it"
            )
    for number, producer in enumerate(settings.producers):
        if producer.answer_checks and producer.outbox_url is None:
            problems.append(
                f"producers[{number}].answer_checks = true needs outbox_url: an answer without evidence is a guess"
            )
    keep_days_min = max(SWEEP_KEEP_DAYS_MIN, settings.rounds.retention_hours / 24 + TOMBSTONE_MARGIN_DAYS)
    if settings.sweep.keep_days < keep_days_min:
        problems.append(
            f"sweep.keep_days = {settings.sweep.keep_days}: must be {keep_days_min:g} or more (rounds.retention_hours "
            f"= {settings.rounds.retention_hours:g}, and {TOMBSTONE_MARGIN_DAYS} days): a tombstone must outlive every "
            "half that a broker could still ask about, or the answer changes"
        )
    retention_seconds = settings.rounds.retention_hours * 3600
    longest = max(s.grace_period_seconds for s in settings.subscriptions)
    if longest * 4 > retention_seconds:
        problems.append(
            f"grace_period_seconds = {longest:g} is more than a quarter of rounds.retention_hours = "
            f"{settings.rounds.retention_hours:g}: the half could be gone before it is looked for"
        )
    return problems


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Reads the file (if any), the environment and the flags; raises ConfigurationError with all problems at once."""
    document: dict[str, Any] = {}
    origin = "environment"
    if path is not None:
        origin = str(path)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigurationError(f"{path}: no such file; name one with --config or RECONCILER_CONFIG") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{path}: no valid TOML: {error}") from error
    problems = apply_environment(document, environ)
    _merge(document, overrides or {})
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        problems += [line for detail in error.errors() for line in describe(detail)]
    if problems:
        listed = "\n".join(f"  {line}" for line in problems)
        raise ConfigurationError(f"{origin}: {len(problems)} problem(s) in the settings\n{listed}")
    return settings


def describe(detail: Any) -> list[str]:
    """One line a problem: field = value: what is expected."""
    location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    if not location:
        return str(detail["msg"]).removeprefix("Value error, ").splitlines()
    message = str(detail["msg"]).removeprefix("Value error, ")
    match detail["type"]:
        case "missing":
            return [f"{location}: missing; config/reconciler.toml shows an example"]
        case "extra_forbidden":
            return [f"{location}: unknown setting; remove it or correct its spelling"]
        case _:
            # A malformed URL may hold a password.
            shown = re.sub(r"//.*@", "//***@", repr(detail["input"]))[:120]
            value = "(hidden)" if "secret" in location else shown
            return [f"{location} = {value}: {message}"]


def apply_environment(document: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    """Writes RECONCILER_ variables into the document; returns problems (unknown names are found by validation)."""
    problems: list[str] = []
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in NOT_SETTINGS:
            continue
        value = environ[name]
        path = [part.lower() for part in name.removeprefix(ENVIRONMENT_PREFIX).split("__")]
        if path[-1].endswith("_file"):
            path[-1] = path[-1].removesuffix("_file")
            try:
                value = Path(value).read_text(encoding="utf-8").strip()
            except OSError as error:
                problems.append(f"{name} = {value!r}: cannot be read: {error.strerror}")
                continue
        problem = _set(document, path, _parsed(value))
        if problem:
            problems.append(f"{name}: {problem}")
    return problems


def _parsed(value: str) -> Any:
    # Lists and tables come as TOML/JSON values; anything else is text that validation converts.
    if value.startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            return value
    return value


def _set(document: dict[str, Any], path: list[str], value: Any) -> str | None:
    place: Any = document
    for part in path[:-1]:
        if isinstance(place, list):
            if not part.isdigit() or int(part) >= len(place):
                return f"there is no entry {part} in the file; give the whole list as JSON"
            place = place[int(part)]
        else:
            place = place.setdefault(part, {})
        if not isinstance(place, (dict, list)):
            return f"{part} is no section"
    if isinstance(place, list):
        return "names a list; give the whole list as JSON"
    place[path[-1]] = value
    return None


def _merge(document: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    for name, value in overrides.items():
        if isinstance(value, Mapping):
            _merge(document.setdefault(name, {}), value)
        else:
            document[name] = value


def settings_path(flag: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the settings are: --config, RECONCILER_CONFIG, $CONFIGURATION_DIRECTORY, /etc/reconciler, or nowhere."""
    if flag is not None:
        return flag
    if environ.get("RECONCILER_CONFIG"):
        return Path(environ["RECONCILER_CONFIG"])
    for folder in (environ.get("CONFIGURATION_DIRECTORY"), "/etc/reconciler"):
        if folder and (Path(folder) / "reconciler.toml").is_file():
            return Path(folder) / "reconciler.toml"
    return None
