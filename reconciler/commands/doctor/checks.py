"""All checks of `reconciler doctor`, such as Redis, ledger, brokers, topics, groups and tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache, partial
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from threading import Event, Lock

from reconciler.commands.asking.availability import ask_brokers, ask_databases, ask_ledger, ask_redis, results_of
from reconciler.commands.asking.brokers import brokers_known_to
from reconciler.commands.asking.witness_roles import shared_identity
from reconciler.commands.diagnosis import Diagnosis, Level, NamedCheck, failed, run_checks
from reconciler.commands.doctor.areas import area
from reconciler.commands.doctor.brokers import (
    check_broker_rights,
    check_brokers,
    check_check_services,
    check_name_servers,
    check_topics,
)
from reconciler.commands.doctor.clocks import check_clocks, check_indexes
from reconciler.commands.doctor.commit_queries import query_checks
from reconciler.commands.doctor.databases import database_checks
from reconciler.commands.doctor.environment import check_environment
from reconciler.commands.doctor.filters import check_kept_tags
from reconciler.commands.doctor.floors import check_floors
from reconciler.commands.doctor.groups import GroupChecks
from reconciler.commands.doctor.history import check_history_folders
from reconciler.commands.doctor.inboxes import check_inbox_lists
from reconciler.commands.doctor.producer_groups import check_producer_groups
from reconciler.commands.doctor.roles import check_primaries
from reconciler.commands.doctor.server_clocks import BrokerProbes, probe_brokers
from reconciler.commands.notify import check_notifiers
from reconciler.commands.safety import redis_findings
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import MissingDependency
from reconciler.rocketmq.wire.compression import OPTIONAL_MODULES
from reconciler.settings.schema import Settings
from reconciler.shards.checks import RedisQuality, Severity
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import inbox_databases, outbox_databases
from reconciler.wiring.history import require_pyarrow
from reconciler.wiring.metrics import require_prometheus_client
from reconciler.wiring.tracing import require_opentelemetry

START_REDIS = Code("doctor.start-redis")
START_ROCKETMQ = Code("doctor.start-rocketmq")
START_LEDGER = Code("doctor.start-ledger")
START_INBOX = Code("doctor.start-inbox")
PACKAGE = Code("doctor.package", package=Field.NAME)
INSTALLED_TWICE = Code("doctor.installed-twice", packages=Field.NAMES)
KEEP_ONE_PACKAGE = Code("doctor.keep-one-package")
NOT_INSTALLED = Code("doctor.not-installed", compression=Field.NAME)
INSTALL_PACKAGE = Code("doctor.install-package", package=Field.NAME)
OWN_IDENTITIES = Code("doctor.own-identities")

REDIS_QUALITY = Code("doctor.redis-quality", quality=Field.FACT)
REDIS_NODE_QUALITY = Code("doctor.redis-node-quality", node=Field.NAME, quality=Field.FACT)
_QUALITIES = {
    RedisQuality.ROLE: Code("doctor.redis-role"),
    RedisQuality.VERSION: Code("doctor.redis-version"),
    RedisQuality.EVICTION: Code("doctor.redis-eviction"),
    RedisQuality.MEMORY: Code("doctor.redis-memory"),
    RedisQuality.PERSISTENCE: Code("doctor.redis-persistence"),
    RedisQuality.LAZY_FREE: Code("doctor.redis-lazy-free"),
    RedisQuality.PERMISSIONS: Code("doctor.redis-permissions"),
}
_LEVELS: dict[Severity, Level] = {Severity.OK: "ok", Severity.ADVICE: "note", Severity.REFUSED: "fail"}


def examine(connections: Connections) -> list[Diagnosis]:
    """Runs every check. A dependency that is away becomes a finding, and no exception."""
    silent = _who_is_silent(connections)
    probe, probing = cache(lambda: probe_brokers(connections)), Lock()
    topics_seen = Event()

    def topics() -> Iterator[Diagnosis]:
        try:
            yield from check_topics(connections)
        finally:
            topics_seen.set()

    def probed() -> BrokerProbes:
        """Returns the probes that the checks of clocks and indexes share. The first of these checks sends the probes.

        A probe creates its topic on brokers that create topics automatically, so topics are checked first.
        """
        topics_seen.wait()
        with probing:
            return probe()

    redis, brokers, ledger = START_REDIS(), START_ROCKETMQ(), START_LEDGER()
    of_brokers, of_ledger = ("rocketmq",), (connections.settings.ledger.url,)
    groups = GroupChecks(connections)
    checks = [
        NamedCheck(area("redis"), redis, lambda: check_redis(connections), tells="redis"),
        *database_checks(connections),
        *query_checks(connections),
        NamedCheck(area("identities"), None, lambda: check_identities(connections)),
        NamedCheck(area("producers"), None, lambda: check_producer_groups(connections)),
        NamedCheck(area("inboxes"), START_INBOX(), lambda: check_inbox_lists(connections)),
        NamedCheck(area("tags"), None, lambda: check_kept_tags(connections)),
        NamedCheck(area("roles"), None, lambda: check_primaries(connections)),
        NamedCheck(area("name servers"), brokers, lambda: check_name_servers(connections), tells="rocketmq"),
        NamedCheck(area("brokers"), brokers, lambda: check_brokers(connections), tells="rocketmq"),
        NamedCheck(area("environment"), None, lambda: check_environment(connections), tells="rocketmq"),
        NamedCheck(area("rights"), brokers, lambda: check_broker_rights(connections), needs=of_brokers),
        NamedCheck(area("check services"), brokers, lambda: check_check_services(connections), needs=of_brokers),
        NamedCheck(area("topics"), brokers, topics, needs=of_brokers),
        NamedCheck(area("groups"), brokers, groups.check, needs=of_brokers),
        NamedCheck(area("clocks"), redis, lambda: check_clocks(connections, probed), needs=("redis", *of_brokers)),
        NamedCheck(area("indexes"), brokers, lambda: check_indexes(probed()), needs=of_brokers),
        NamedCheck(area("floors"), ledger, lambda: check_floors(connections), needs=of_ledger),
        NamedCheck(area("history"), None, lambda: check_history_folders(connections.settings)),
        NamedCheck(area("notifiers"), ledger, lambda: check_notifiers(connections), needs=of_ledger),
    ]
    return [*check_packages(connections.settings), *run_checks(checks, silent=silent)]


def _who_is_silent(connections: Connections) -> set[Hashable]:
    """Returns the dependencies that do not answer. All dependencies are asked in parallel.

    A dependency that does not answer in time is not asked again, so its checks report the silence at once.
    """
    settings = connections.settings
    databases = [*outbox_databases(settings), *inbox_databases(settings)]
    known_as: dict[str, Hashable] = {"ledger": settings.ledger.url, **{one.name: one.url for one in databases}}
    results = results_of(
        ask_redis(connections)
        | ask_ledger(connections)
        | ask_databases(connections)
        | ask_brokers(connections)
        | {
            f"name server {address}": partial(brokers_known_to, connections, address)
            for address in settings.rocketmq.name_servers.split(";")
        }
    )
    return {known_as.get(name, name) for name, problem in results.items() if problem is not None}


def check_redis(connections: Connections) -> Iterator[Diagnosis]:
    """Checks whether Redis can safely keep the sets. Raises RedisAway."""
    for one in redis_findings(connections):
        quality = _QUALITIES[one.about]()
        check = REDIS_NODE_QUALITY(node=one.node, quality=quality) if one.node else REDIS_QUALITY(quality=quality)
        yield Diagnosis(check=check, level=_LEVELS[one.severity], found=one.found, remedy=one.remedy)


def check_identities(connections: Connections) -> Iterator[Diagnosis]:
    """Yields one line if two outboxes have the same identity."""
    problem = shared_identity(connections)
    if problem is not None:
        yield Diagnosis(check=area("identities"), level="fail", found=problem, remedy=OWN_IDENTITIES())


def check_packages(settings: Settings) -> list[Diagnosis]:
    """Returns a failure for each missing package that `run` needs.

    Returns a note if one package hides another, and a note for each compression of bodies that cannot be read here.
    """
    owners = sorted(set(packages_distributions().get("rocketmq", [])))
    noted = [("rocketmq", INSTALLED_TWICE(packages=tuple(owners)), KEEP_ONE_PACKAGE())] if len(owners) > 1 else []
    noted += [
        (module, NOT_INSTALLED(compression=compression), INSTALL_PACKAGE(package=module))
        for module, compression in OPTIONAL_MODULES.items()
        if find_spec(module) is None
    ]
    findings = [Diagnosis(check=_package(name), level="note", found=what, remedy=to_do) for name, what, to_do in noted]
    for name, is_needed, require in (
        ("pyarrow", settings.history.path, require_pyarrow),
        ("prometheus-client", settings.metrics.listen, require_prometheus_client),
        ("opentelemetry", settings.tracing.enabled, require_opentelemetry),
    ):
        try:
            if is_needed:
                require()
        except MissingDependency as error:
            findings.append(failed(_package(name), error))
    return findings


def _package(name: str) -> Fact:
    return PACKAGE(package=name)
