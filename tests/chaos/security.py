"""A secured run: TLS with certificates on both sides, a user a role at the brokers and at Redis, with its least rights.

What processes need of it lies in the run's folder: a job with certificates is a secured one.
"""

from __future__ import annotations

from pathlib import Path

from reconciler.contract import least_rights
from reconciler.contract.least_rights import Role
from reconciler.rocketmq.client.tls import TlsSettings
from tests.chaos.job import CERTIFICATES, GROUPS, SECRET, ChaosJob
from tests.services.certificates import Authority
from tests.services.rocketmq import ClusterTls
from tests.services.rocketmq_users import Right, create_users_at

#: What `run` and its neighbours are to the brokers.
ROLES = (
    least_rights.ANNOUNCING_SERVICE,
    least_rights.CONSUMING_SERVICE,
    least_rights.RUN,
    least_rights.SWEEP,
)
#: The run's own user of Redis.
TESTER = "tester"


def make_certificates(folder: Path) -> ClusterTls:
    """From now on the job of this folder is secured."""
    authority = Authority(folder / CERTIFICATES)
    return ClusterTls(
        authority=authority,
        server=authority.issue("server"),
        client=authority.issue("client"),
        requires_client_certificate=True,
    )


def make_users(addresses: list[str], job: ChaosJob, tls: TlsSettings | None) -> None:
    """One a role, on each broker."""
    users = {role.login: _rights_of(role, job) for role in ROLES}
    for address in addresses:
        create_users_at(address, users, secret=SECRET, tls=tls)


def redis_options(folder: Path, environment: str) -> dict[str, str]:
    """For RedisServer: nobody comes in without a login."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["user default off", f"user {TESTER} on >{SECRET} ~* &* +@all"]
    lines += [user.line(environment=environment, password=SECRET) for user in least_rights.REDIS_USERS]
    file = folder / "users.acl"
    file.write_text("\n".join(lines) + "\n")
    return {"aclfile": str(file)}


def _rights_of(role: Role, job: ChaosJob) -> list[Right]:
    every: dict[Right, None] = {}
    for right in role.brokers:
        for group in GROUPS:
            name = right.filled(
                topic=job.topic, group=group, unique_key_topic=job.unique_key_topic, probe_topic=job.probe_topic
            )
            every |= {(action, right.kind, name): None for action in right.authorization}
    return list(every)
