"""The checks of `reconciler doctor`: Redis, ledger, brokers, topics, groups, tables; each with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import packages_distributions

from reconciler.commands.diagnosis import Check, Diagnosis, Level, failed, run_checks, without_remedy
from reconciler.commands.doctor.clocks import check_clocks, check_indexes
from reconciler.commands.doctor.environment import check_environment
from reconciler.commands.doctor.filters import check_filters, check_kept_tags
from reconciler.commands.doctor.floors import check_floors
from reconciler.commands.doctor.history import check_history_folders
from reconciler.commands.doctor.inboxes import check_inbox_lists, check_stranger
from reconciler.commands.doctor.producer_groups import check_producer_groups
from reconciler.commands.doctor.rights import check_rights
from reconciler.commands.doctor.rocksdb import check_rocksdb
from reconciler.commands.notify import check_notifiers
from reconciler.commands.renamed_groups import renames
from reconciler.commands.status.primaries import check_primaries
from reconciler.contract.facts import Code, Field
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import VERSION_TABLES
from reconciler.errors import ConfigurationError, DatabaseAway, ReconcilerError, TopicNotFound
from reconciler.policy.evidence import WatermarkState
from reconciler.policy.ports import StoredRound
from reconciler.wiring.availability import (
    REDIS_REMEDY,
    ask_brokers,
    ask_databases,
    ask_ledger,
    ask_redis,
    results_of,
)
from reconciler.wiring.broker_rights import refusals
from reconciler.wiring.brokers import (
    BROKER_REMEDY,
    OWN_GROUPS,
    READER_GROUPS,
    broker_facts,
    brokers_known_to,
    demand_and_remedy,
    missing_compressions,
)
from reconciler.wiring.check_services import check_services
from reconciler.wiring.clocks import probe_brokers
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import FOLDED_REMEDY, ConfiguredDatabase, commit_evidence, effect_evidence
from reconciler.wiring.evidence import broker_evidence, shared_identity
from reconciler.wiring.redis_safety import redis_findings
from reconciler.wiring.rights import NeededRights, lacks_right, needed_rights
from reconciler.wiring.subscriptions import subscription_of
from reconciler.words import said

CHECK_SERVICE_UNREADABLE = Code("doctor.check-service-unreadable", why=Field.TEXT)
LOOK_INTO_BROKER_LOG = Code("doctor.look-into-broker-log")

#: Property, value that does not work, value that does, why.
_BROKER_SETTINGS = (
    ("messageIndexEnable", "false", "true", "nothing can be looked up"),
    ("rejectTransactionMessage", "true", "false", "every half message is refused"),
    ("rejectPullConsumerEnable", "true", "false", "announcements are pulled"),
)
_LEVELS: dict[str, Level] = {"OK": "ok", "ADVICE": "note", "REFUSED": "fail"}


def examine(connections: Connections) -> list[Diagnosis]:
    """Runs every check; never raises for a dependency that is away."""
    _find_what_stands_still(connections)
    doctor = _Doctor(connections)
    probed = cache(lambda: probe_brokers(connections))  # clocks and indexes are told by the same probes
    return run_checks(
        [
            ("packages", "", lambda: [*check_packages()]),
            ("redis", REDIS_REMEDY, doctor.redis),
            *doctor.database_checks(),
            ("outbox identities", "", lambda: check_identities(connections)),
            ("producer groups", "", lambda: check_producer_groups(connections)),
            ("inboxes", "start the database, or correct inbox_url", lambda: check_inbox_lists(connections)),
            ("tags of settled rows", "", lambda: check_kept_tags(connections)),
            ("roles of databases", "", lambda: check_primaries(connections)),
            ("name servers", BROKER_REMEDY, doctor.name_servers),
            ("brokers", BROKER_REMEDY, doctor.brokers),
            ("environment", "", lambda: check_environment(connections)),
            ("rights at brokers", BROKER_REMEDY, lambda: check_broker_rights(connections)),
            ("check services", BROKER_REMEDY, lambda: check_check_services(connections)),
            ("topics", BROKER_REMEDY, doctor.topics),
            ("groups", BROKER_REMEDY, doctor.groups),
            ("clocks", REDIS_REMEDY, lambda: check_clocks(connections, probed)),
            ("indexes of brokers", BROKER_REMEDY, lambda: check_indexes(probed())),
            ("floors", "start the ledger's database", lambda: check_floors(connections)),
            ("history", "", lambda: check_history_folders(connections.settings)),
            ("notifiers", "start the ledger's database", lambda: check_notifiers(connections)),
        ]
    )


def _find_what_stands_still(connections: Connections) -> None:
    """Asks everything side by side: what does not answer in time is not asked again, and its checks say so at once."""
    results_of(
        ask_redis(connections)
        | ask_ledger(connections)
        | ask_databases(connections)
        | ask_brokers(connections)
        | {
            f"name server {address}": partial(brokers_known_to, connections, address)
            for address in connections.settings.rocketmq.name_servers.split(";")
        }
    )


def check_identities(connections: Connections) -> Sequence[Diagnosis]:
    """One line where two outboxes have the same identity."""
    problem = shared_identity(connections)
    if problem is None:
        return []
    remedy = "`run` and `sweep` refuse to start until each outbox has an identity of its own"
    return [Diagnosis(check="outbox identities", level="fail", found=problem, remedy=remedy)]


def check_broker_rights(connections: Connections) -> Sequence[Diagnosis]:
    """One line for each right that a broker refuses to our user; nothing where it refuses none."""
    return [failed("rights at brokers", error, "") for error in refusals(connections)]


def check_check_services(connections: Connections) -> Iterator[Diagnosis]:
    """A note for each broker whose check service stands still, or cannot be seen."""
    for one in check_services(connections):
        check = f"check service of {one.broker}"
        if one.stands is not None:
            yield Diagnosis(check=check, level="note", found=said(one.stands), remedy=said(LOOK_INTO_BROKER_LOG()))
        elif one.refusal is not None:
            why = without_remedy(str(one.refusal), one.refusal.remedy)
            found = said(CHECK_SERVICE_UNREADABLE(why=why))
            yield Diagnosis(check=check, level="note", found=found, remedy=one.refusal.remedy)


def check_packages() -> Iterator[Diagnosis]:
    """A note where one package hides another, and for each compression of bodies that cannot be read here."""
    owners = sorted(set(packages_distributions().get("rocketmq", [])))
    if len(owners) > 1:
        yield Diagnosis(
            check="package rocketmq",
            level="note",
            found=f"installed by {', '.join(owners)}: the last one won",
            remedy="keep one of them in an environment",
        )
    for package, compression in missing_compressions():
        yield Diagnosis(
            check=f"package {package}",
            level="note",
            found=f"not installed: what is looked up with a body in {compression} is UNKNOWN",
            remedy=f"pip install {package}, here and beside every consumer, if a producer compresses so",
        )


class _Doctor:
    """Checks over one set of connections. Used by one thread."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._settings = connections.settings
        # Asked once each: every subscription of a topic, and those that are not configured, need the same answers.
        self._groups = cache(lambda address: connections.admin.groups(address))
        self._readers = cache(lambda address, topic: connections.admin.groups_of_topic(address, topic))

    def redis(self) -> Sequence[Diagnosis]:
        return [
            Diagnosis(check=f"redis {f.name}", level=_LEVELS[f.severity.name], found=f.detail, remedy=f.remedy)
            for f in redis_findings(self._connections)
        ]

    def database_checks(self) -> Iterator[tuple[str, str, Check]]:
        settings = self._settings
        for needed in needed_rights(settings):
            database = needed.database
            yield database.name, "", partial(self._database, needed)
        for group in commit_evidence(settings).without_outbox:
            yield f"outbox of {group}", "", _weaker(f"outbox of {group}", "outbox_url")
        for source in effect_evidence(settings).sources:
            if source.url is None:
                name = f"inbox of {source.subscription}"
                yield name, "", _weaker(name, "inbox_url")

    def _database(self, needed: NeededRights) -> Iterator[Diagnosis]:
        database = needed.database
        try:
            yield from self._tables(needed)
        except DatabaseAway as error:
            away = failed(database.name, error, "start the database, or correct its URL")
            yield replace(away, remedy=away.remedy.replace("its URL", database.setting))

    def _tables(self, needed: NeededRights) -> Iterator[Diagnosis]:
        database = needed.database
        revision = check_revision(self._connections, database)
        if revision.level != "fail" and not database.has_tables(self._connections):
            revision = _fail(database.name, "tables are missing", f"run reconciler db upgrade {database.tree}")
        yield revision
        if revision.level == "fail":
            return
        yield from self._time_out(database)
        yield check_rights(self._connections, needed)
        yield from self._collations(database)

    def _collations(self, database: ConfiguredDatabase) -> Iterator[Diagnosis]:
        """Nothing where names and keys compare byte for byte: that is what is expected of every table."""
        folded = database.folded_names(self._connections)
        if folded:
            found = f"takes names for one another, so that the rows of two are one: {', '.join(folded)}"
            yield _fail(f"collations in the {database.name}", found, FOLDED_REMEDY)

    def _time_out(self, database: ConfiguredDatabase) -> Iterator[Diagnosis]:
        """Nothing where the server ends statements by itself: that is what is expected of it."""
        name = self._connections.missing_time_out(database.url)
        if name is not None:
            found = f"{name} is not in force: a statement that was given up goes on in the server"
            remedy = f"let the server, or the proxy before it, take SET {name} from this login"
            yield Diagnosis(check=database.name, level="note", found=found, remedy=remedy)

    def name_servers(self) -> Sequence[Diagnosis]:
        findings: list[Diagnosis] = []
        for address in self._settings.rocketmq.name_servers.split(";"):
            check = f"name server {address}"
            try:
                brokers = brokers_known_to(self._connections, address)
            except ReconcilerError as error:
                findings.append(_silent(check, error, address, "start it, or correct rocketmq.name_servers"))
                continue
            if brokers:
                findings.append(Diagnosis(check=check, level="ok", found=f"knows {', '.join(brokers)}"))
            else:
                findings.append(_fail(check, "knows no broker", "start a broker with namesrvAddr of this name server"))
        return findings

    def brokers(self) -> Sequence[Diagnosis]:
        findings: list[Diagnosis] = []
        for name, addresses in sorted(self._connections.rocketmq.routes.brokers().items()):
            check = f"broker {name}"
            if addresses.master is None:
                findings.append(_fail(check, "has no master", "start it: END_TRANSACTION goes to masters only"))
                continue
            try:
                findings += self._broker(check, addresses.master)
            except ReconcilerError as error:
                findings.append(_silent(check, error, addresses.master, "start it, or look at its log"))
        return findings

    def _broker(self, check: str, address: str) -> Iterator[Diagnosis]:
        admin = self._connections.admin
        facts = broker_facts(self._connections, address)
        config: dict[str, str] = {}
        try:
            config = admin.broker_config(address)
        except ReconcilerError as error:  # refusing its configuration is its right, refusing every request is not
            wanted = demand_and_remedy(error, address)
            if wanted is not None:
                yield _wanting(check, error, wanted)
                return
        how = "check-back" if facts.has_check_back else "no check-back: only the reconciler finds lost commits"
        yield Diagnosis(check=check, level="ok", found=f"{address}, family {facts.family}, {how}")
        for name, wrong, right, why in _BROKER_SETTINGS:
            if config.get(name) == wrong:
                yield _fail(check, f"{name}={wrong}", f"set it to {right}: {why}")
        yield from check_rocksdb(check, config)
        if config.get("autoCreateSubscriptionGroup") == "false":
            missing = sorted(set(READER_GROUPS) - set(admin.groups(address)))
            if missing:
                found = f"lacks the groups {', '.join(missing)} and creates none by itself"
                yield _fail(check, found, "run reconciler topics create")

    def topics(self) -> Sequence[Diagnosis]:
        settings = self._settings
        wanted = settings.unique_key_topic.queues
        names = dict.fromkeys(settings.unique_key_topic.name_for(s.topic) for s in settings.subscriptions)
        findings = [self._topic(name, wanted) for name in names]
        findings.append(self._topic(settings.rocketmq.probe_topic, 1))
        findings += [self._topic(topic, None) for topic in dict.fromkeys(s.topic for s in settings.subscriptions)]
        return findings

    def _topic(self, topic: str, queues: int | None) -> Diagnosis:
        check = f"topic {topic}"
        create = "run reconciler topics create"
        if queues is None:
            create = f"correct the name in the settings, or {create} --business"
        try:
            route = self._connections.rocketmq.routes.refresh(topic)
        except TopicNotFound:
            return _fail(check, "does not exist", create)
        counts = {name: sum(q.broker_name == name for q in route.readable_queues) for name in route.broker_names}
        masters = {n for n, a in self._connections.rocketmq.routes.brokers().items() if a.master is not None}
        missing = sorted(masters - counts.keys()) if queues is not None else []
        wrong = {name: count for name, count in counts.items() if queues is not None and count != queues}
        if missing or wrong:
            text = f"{_counted(counts)}, expected {queues} on every master" + (
                f"; missing on {missing}" if missing else ""
            )
            return _fail(check, text, create)
        return Diagnosis(check=check, level="ok", found=_counted(counts))

    def groups(self) -> Sequence[Diagnosis]:
        brokers = broker_evidence(self._connections)
        findings: list[Diagnosis] = []
        for configured in self._settings.subscriptions:
            subscription = subscription_of(self._settings, configured)
            if self._is_nobody(subscription):
                findings.append(self._nobody(subscription))
                continue
            watermark = brokers.watermark(subscription)
            is_known = watermark.state is not WatermarkState.UNKNOWN
            findings.append(
                Diagnosis(
                    check=f"group {subscription}",
                    level="ok" if is_known else "note",
                    found=watermark.detail,
                    remedy=""
                    if is_known
                    else "its offsets must be stored at the broker (a pull consumer reports them); until then only a "
                    "trickle of keys is judged",
                )
            )
        findings += check_filters(self._connections)
        findings += self._strangers()
        findings += self._producers()
        return findings

    def _is_nobody(self, subscription: Subscription) -> bool:
        """Whether every broker says that it has neither a configuration nor an offset nor a member of the group; one
        that does not answer, or refuses, may know it."""
        addresses = self._connections.rocketmq.cluster_addresses()
        try:
            return bool(addresses) and not any(
                subscription.group in (*self._groups(address), *self._readers(address, subscription.topic))
                for address in addresses
            )
        except ReconcilerError:
            return False

    def _nobody(self, subscription: Subscription) -> Diagnosis:
        """A group may be younger than its section: brokers hear of it with its first member."""
        rounds: Sequence[StoredRound] = ()
        with suppress(DatabaseAway):  # it has a line of its own
            rounds = self._connections.ledger.reports.last_rounds(subscription)
        return Diagnosis(
            check=f"group {subscription}",
            level="fail" if any(stored.done.generation > 1 for stored in rounds) else "note",
            found="no broker knows the group",
            remedy="correct its name, start its service, or make it: reconciler topics create --business",
        )

    def _strangers(self) -> Iterator[Diagnosis]:
        """Groups that read a configured topic and have no [[subscriptions]] section."""
        addresses = sorted(self._connections.rocketmq.cluster_addresses())
        retired: frozenset[str] = frozenset()
        with suppress(DatabaseAway):
            retired = renames(self._connections).retired
        for topic in dict.fromkeys(s.topic for s in self._settings.subscriptions):
            seen: set[str] = set()
            for address in addresses:
                with suppress(ReconcilerError):
                    seen.update(self._readers(address, topic))
            configured = {s.group for s in self._settings.subscriptions if s.topic == topic}
            for group in sorted(g for g in seen - configured if not g.startswith(OWN_GROUPS)):
                if group in retired:
                    yield Diagnosis(
                        check=f"group {topic}/{group}",
                        level="note",
                        found="was renamed, and brokers keep its offsets",
                        remedy="delete the group on the brokers (mqadmin deleteSubGroup), and never start it again",
                    )
                    continue
                yield check_stranger(self._connections, topic, group)

    def _producers(self) -> Iterator[Diagnosis]:
        admin = self._connections.admin
        addresses = sorted(self._connections.rocketmq.cluster_addresses())
        for producer in self._settings.producers:
            count = 0
            for address in addresses:
                with suppress(ReconcilerError):
                    count += len(admin.producer_connections(address, producer.group))
            yield Diagnosis(
                check=f"producer group {producer.group}",
                level="ok" if count else "note",
                found=f"{count} connection(s)",
                remedy="" if count else "no producer answers its check-backs just now",
            )


def _weaker(name: str, setting: str) -> Check:
    found = f"no {setting} is configured: weaker"
    remedy = f"configure {setting}: what it would prove is UNKNOWN without it"
    return lambda: [Diagnosis(check=name, level="note", found=found, remedy=remedy)]


def check_revision(connections: Connections, database: ConfiguredDatabase) -> Diagnosis:
    """Whether this release goes on with the tables. Raises DatabaseAway."""
    name, tree = database.name, database.tree
    try:
        found, newest = database.revision(connections), database.newest_revision()
    except DatabaseAway as error:
        if not lacks_right(error):
            raise
        text, remedy = "its revision cannot be read", f"GRANT SELECT ON {VERSION_TABLES[tree]}"
        return Diagnosis(check=name, level="note", found=text, remedy=remedy)
    if found is not None and found > newest:  # revisions are numbered
        text = f"revision {found} is newer than this release, which has {newest}"
        return Diagnosis(check=name, level="note", found=text, remedy="install the release that upgraded the database")
    if found is not None and found < (oldest := database.oldest_revision()):
        text = f"revision {found} is older than {oldest}, which upgrades start from"
        return _fail(name, text, "upgrade to 0.2.0 first")
    if found not in (None, newest):
        return Diagnosis(
            check=name,
            level="note",
            found=f"revision {found}, this release has {newest}",
            remedy=f"run reconciler db upgrade {tree}",
        )
    return Diagnosis(check=name, level="ok", found=f"revision {found or 'of its own'}")


def _counted(queues: Mapping[str, int]) -> str:
    return "queues: " + (", ".join(f"{count} on {broker}" for broker, count in sorted(queues.items())) or "none")


def _silent(check: str, error: ReconcilerError, address: str, remedy: str) -> Diagnosis:
    """A peer that does not answer, or refuses: what it wants, where that is the reason."""
    if isinstance(error, ConfigurationError):
        return failed(check, error, "")
    wanted = demand_and_remedy(error, address)
    return _fail(check, str(error), remedy) if wanted is None else _wanting(check, error, wanted)


def _wanting(check: str, error: ReconcilerError, wanted: tuple[str, str]) -> Diagnosis:
    demand, remedy = wanted
    return _fail(check, without_remedy(f"{demand}: {error}", remedy), remedy)


def _fail(check: str, found: str, remedy: str) -> Diagnosis:
    return Diagnosis(check=check, level="fail", found=found, remedy=remedy)
