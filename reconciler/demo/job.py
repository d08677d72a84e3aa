"""Values that all processes of one demo run share, in a JSON file of the demo's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from reconciler.demo.truth import DemoFiles

#: The audit's late_after_seconds: the longest time from a commit to an effect that is in time.
LATE_AFTER_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """One demo run. Topics and groups contain the run's name, so a real broker may also have those of earlier runs."""

    run: str
    folder: str
    name_servers: str
    redis_url: str
    messages: int
    lose: int
    seed: int
    shards: int
    #: Rungs of the repair ladder. Empty: repairs are off.
    repair_order: tuple[str, ...]
    accept_unverified_redis: bool
    #: True: the audit is the last step.
    is_audited: bool = True

    @property
    def files(self) -> DemoFiles:
        """Places of the databases."""
        return DemoFiles(Path(self.folder))

    @property
    def environment(self) -> str:
        """The environment of the settings."""
        return f"demo-{self.run}"

    @property
    def topic(self) -> str:
        """The business topic."""
        return f"DEMO_{self.run}"

    @property
    def unique_key_topic(self) -> str:
        """The topic of the announcements."""
        return f"DEMO_{self.run}_UNIQUE_KEY"

    @property
    def probe_topic(self) -> str:
        """The topic of the index probes."""
        return f"DEMO_{self.run}_PROBE"

    @property
    def producer_group(self) -> str:
        """The producer group that lives until the load has ended."""
        return f"demo-{self.run}-orders"

    @property
    def dead_producer_group(self) -> str:
        """The producer group whose only process is killed and never restarted."""
        return f"demo-{self.run}-doomed"

    def consumer_group(self, name: str) -> str:
        """Returns the broker's name of a consumer group."""
        return f"demo-{self.run}-{name}"

    @property
    def path(self) -> Path:
        """File of the job."""
        return Path(self.folder) / "job.json"

    def write(self) -> None:
        """Writes the file of the job, which the processes read."""
        self.path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> DemoJob:
        """Reads the written job."""
        document = json.loads(path.read_text())
        return DemoJob(**{**document, "repair_order": tuple(document["repair_order"])})


def settings_toml(job: DemoJob, *, groups: Sequence[str]) -> str:
    """Returns the reconciler's settings for the run, as TOML. Only their short intervals are unusual."""
    order = json.dumps(list(job.repair_order) or ["end"])
    files = job.files

    def subscription(name: str) -> str:
        return f"""
[[subscriptions]]
topic = "{job.topic}"
group = "{job.consumer_group(name)}"
inbox_url = "sqlite:///{files.inbox(name)}"
grace_period_seconds = 2.0
late_after_seconds = {LATE_AFTER_SECONDS}
repair_order = {order}
"""

    def producer(group: str) -> str:
        return f"""
[[producers]]
group = "{group}"
topics = ["{job.topic}"]
outbox_url = "sqlite:///{files.outbox}"
"""

    return f"""environment = "{job.environment}"

[rocketmq]
name_servers = "{job.name_servers}"
probe_topic = "{job.probe_topic}"

[unique_key_topic]
name = "{job.unique_key_topic}"
queues = {job.shards}

[redis]
url = "{job.redis_url}"
accept_unverified = {str(job.accept_unverified_redis).lower()}

[ledger]
url = "sqlite:///{files.ledger}"
{producer(job.producer_group)}{producer(job.dead_producer_group)}{"".join(map(subscription, groups))}
[rounds]
interval_seconds = 1.0
skew_margin_seconds = 0.5

[repairs]
enabled = {str(bool(job.repair_order)).lower()}

[sweep]
interval_seconds = 1.0
sweep_after_seconds = 2.0
settle_after_seconds = 5.0

[history]
path = "{files.history}"
seal_seconds = 1.0

[logging]
format = "json"
"""
