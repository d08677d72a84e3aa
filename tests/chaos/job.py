"""What every process of one chaos run must know; travels as a JSON file in the run's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from reconciler.contract.least_rights import RECONCILER, RUN, SWEEP, RedisUser, Role
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials

#: Folder of a secured run, and what its users give.
CERTIFICATES, SECRET = "certificates", "secret-of-every-user"
ENVIRONMENT = "chaos"
#: Consumer groups that all get every message.
GROUPS = ("billing", "stock")
#: Producer groups; the last one has one process only, so that a kill leaves a dead group.
PRODUCER_GROUPS = ("orders", "orders", "solo")
#: Longer than any fault but a frozen process, which is frozen for longer than this on purpose.
LEASE_SECONDS = 4.0
#: The defaults, divided by five. The grace period is half a round shorter, since it must be no multiple of the
#: rounds: a key seen by one is judged by the sixth one after it, whatever the jitter.
ROUND_SECONDS = 1.0
GRACE_SECONDS = 5.5
SKEW_SECONDS = 2.0
#: Together the longest way of a dead producer's row into its announcement. The bound below has no term of its own for
#: it, nor for the announcement consumer's nap (0.5 s), the look-ups and the delivery: they have the skew margins' time.
SWEEP_AFTER_SECONDS = 0.5
SWEEP_SECONDS = 0.5
#: L1 in a healthy deployment: from the commit to the repaired effect.
L1_BOUND_SECONDS = 2 * ROUND_SECONDS + GRACE_SECONDS + 2 * SKEW_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosJob:
    """One run. All tables lie in one PostgreSQL database."""

    folder: str
    seed: int
    #: As the processes see it: through the proxy.
    name_servers: str
    redis_url: str
    database_url: str
    rate_per_second: float
    topic: str = "CHAOS"
    unique_key_topic: str = "CHAOS_UNIQUE_KEY"
    probe_topic: str = "CHAOS_PROBE"
    environment: str = ENVIRONMENT
    shards: int = 2

    @property
    def path(self) -> Path:
        """Where the job is kept."""
        return Path(self.folder) / "job.json"

    @property
    def driver_url(self) -> str:
        """The database as psycopg names it."""
        return self.database_url.replace("+psycopg", "")

    @property
    def config(self) -> Path:
        """The settings of `run`."""
        return Path(self.folder) / "reconciler.toml"

    @property
    def sweep_config(self) -> Path:
        """Those of `sweep`, which writes into the outboxes."""
        return Path(self.folder) / "sweep.toml"

    @property
    def stop_sending(self) -> Path:
        """Exists once producers must come to an end."""
        return Path(self.folder) / "stop-sending"

    @property
    def tls(self) -> TlsSettings | None:
        """How processes reach brokers; None in a run that is not secured."""
        folder = Path(self.folder) / CERTIFICATES
        if not folder.exists():
            return None
        authority, certificate, key = (str(folder / name) for name in ("authority.pem", "client.pem", "client.key"))
        return TlsSettings(ca_file=authority, certificate_file=certificate, key_file=key)

    def acl(self, role: Role) -> AclCredentials | None:
        """Keys of the role's user; None in a run that is not secured."""
        return AclCredentials(access_key=role.login, secret_key=SECRET) if self.tls else None

    def redis_url_of(self, user: RedisUser | str) -> str:
        """With this login in a secured run."""
        name = user if isinstance(user, str) else user.name
        return self.redis_url.replace("://", f"://{name}:{SECRET}@") if self.tls else self.redis_url

    def write(self, *, outboxes_url: str) -> None:
        """Keeps the job and the settings for the processes; `outboxes_url` is where `run` reads the outboxes."""
        self.path.write_text(json.dumps(asdict(self)))
        self.config.write_text(settings_toml(self, outboxes_url, RUN))
        self.sweep_config.write_text(settings_toml(self, self.database_url, SWEEP))

    @staticmethod
    def read(path: Path) -> ChaosJob:
        """The job that was kept."""
        return ChaosJob(**json.loads(path.read_text()))


def settings_toml(job: ChaosJob, outboxes_url: str, role: Role) -> str:
    """Short intervals; the breaker stays shut, since every fault makes many losses at once."""
    producers = "".join(
        f'\n[[producers]]\ngroup = "{group}"\ntopics = ["{job.topic}"]\noutbox_url = "{outboxes_url}"\n'
        for group in dict.fromkeys(PRODUCER_GROUPS)
    )
    subscriptions = "".join(
        f'\n[[subscriptions]]\ntopic = "{job.topic}"\ngroup = "{group}"\ninbox_url = "{job.database_url}"\n'
        f'grace_period_seconds = {GRACE_SECONDS}\nrepair_order = ["end", "republish"]\n'
        for group in GROUPS
    )
    return f"""environment = "{job.environment}"

[rocketmq]
name_servers = "{job.name_servers}"
probe_topic = "{job.probe_topic}"
{_security(job, role)}
[unique_key_topic]
name = "{job.unique_key_topic}"
queues = {job.shards}

[redis]
url = "{job.redis_url_of(RECONCILER)}"

[ledger]
url = "{job.database_url}"
{producers}{subscriptions}
[rounds]
interval_seconds = {ROUND_SECONDS}
skew_margin_seconds = {SKEW_SECONDS}
lease_seconds = {LEASE_SECONDS}

[repairs]
breaker_candidates_min = 1000000
claim_lease_seconds = {2 * LEASE_SECONDS}

[sweep]
interval_seconds = {SWEEP_SECONDS}
sweep_after_seconds = {SWEEP_AFTER_SECONDS}
settle_after_seconds = 20.0
announce_again_after_seconds = 60.0

[logging]
format = "json"
"""


def _security(job: ChaosJob, role: Role) -> str:
    acl, tls = job.acl(role), job.tls
    if acl is None or tls is None:
        return ""
    return f"""
[rocketmq.acl]
access_key = "{acl.access_key}"
secret_key = "{SECRET}"

[rocketmq.tls]
enabled = true
ca_file = "{tls.ca_file}"
certificate_file = "{tls.certificate_file}"
key_file = "{tls.key_file}"
"""
