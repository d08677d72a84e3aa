"""What `reconciler doctor` says about name servers, brokers and topics: which ones answer, and how they are set up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.commands.asking.broker_rights import refusals
from reconciler.commands.asking.brokers import READER_GROUPS, broker_fact, brokers_known_to
from reconciler.commands.asking.check_services import check_services
from reconciler.commands.diagnosis import Diagnosis, as_told, failed, listed
from reconciler.commands.doctor.areas import area
from reconciler.commands.doctor.half_topics import check_half_topics
from reconciler.commands.doctor.rocksdb import check_rocksdb
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import ConfigurationError, ReconcilerError, TopicNotFound, without_remedy
from reconciler.rocketmq.client.demands import PeerDemand, demand_behind, remedy_of
from reconciler.rocketmq.client.families import Families
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import unique_key_topics

NAME_SERVER = Code("doctor.name-server", address=Field.NAME)
KNOWS_BROKERS = Code("doctor.knows-brokers", brokers=Field.NAMES)
KNOWS_NO_BROKER = Code("doctor.knows-no-broker")
START_BROKER = Code("doctor.start-broker")
START_NAME_SERVER = Code("doctor.start-name-server")
NO_MASTER = Code("doctor.no-master")
START_MASTER = Code("doctor.start-master")
START_OR_LOOK_AT_LOG = Code("doctor.start-or-look-at-log")
BROKER_WITH_CHECK_BACK = Code("doctor.broker-with-check-back", address=Field.NAME, family=Field.NAME)
BROKER_WITHOUT_CHECK_BACK = Code("doctor.broker-without-check-back", address=Field.NAME, family=Field.NAME)
WRONG_PROPERTY = Code("doctor.wrong-property", name=Field.NAME, value=Field.NAME)
LACKS_GROUPS = Code("doctor.lacks-groups", groups=Field.NAMES)
CREATE_TOPICS = Code("doctor.create-topics")
KEEP_QUEUES = Code("doctor.keep-queues")
CREATE_BUSINESS_TOPICS = Code("doctor.create-business-topics")
TOPIC = Code("doctor.topic", topic=Field.NAME)
NO_SUCH_TOPIC = Code("doctor.no-such-topic")
QUEUES = Code("doctor.queues", on_brokers=Field.FACT)
QUEUES_ON = Code("doctor.queues-on", number=Field.NUMBER, broker=Field.NAME)
NO_QUEUES = Code("doctor.no-queues")
OTHER_QUEUES = Code("doctor.other-queues", queues=Field.FACT, number=Field.NUMBER)
QUEUES_MISSING = Code("doctor.queues-missing", queues=Field.FACT, number=Field.NUMBER, brokers=Field.NAMES)
CHECK_SERVICE_OF = Code("doctor.check-service-of", broker=Field.NAME)
CHECK_SERVICE_UNREADABLE = Code("doctor.check-service-unreadable", why=Field.TEXT)
LOOK_INTO_BROKER_LOG = Code("doctor.look-into-broker-log")

_DEMANDS = {
    PeerDemand.WANTS_TLS: Code("doctor.wants-tls", why=Field.TEXT),
    PeerDemand.TLS_FAILS: Code("doctor.tls-fails", why=Field.TEXT),
    PeerDemand.WANTS_AUTHENTICATION: Code("doctor.wants-authentication", why=Field.TEXT),
    PeerDemand.REFUSES_ACCESS: Code("doctor.refuses-access", why=Field.TEXT),
}
#: Broker property -> the value with which the reconciler cannot use the broker.
_WRONG = {"messageIndexEnable": "false", "rejectTransactionMessage": "true", "rejectPullConsumerEnable": "true"}
_SETTINGS = {
    "messageIndexEnable": Code("doctor.set-message-index"),
    "rejectTransactionMessage": Code("doctor.set-transactions"),
    "rejectPullConsumerEnable": Code("doctor.set-pull-consumers"),
}


def check_name_servers(connections: Connections) -> Iterator[Diagnosis]:
    """Checks each name server by itself. A name server that knows no broker leaves its clients without brokers."""
    for address in connections.settings.rocketmq.name_servers.split(";"):
        check = NAME_SERVER(address=address)
        try:
            brokers = brokers_known_to(connections, address)
        except ReconcilerError as error:
            yield _silent(check, error, address, START_NAME_SERVER())
            continue
        if brokers:
            yield Diagnosis(check=check, level="ok", found=KNOWS_BROKERS(brokers=tuple(brokers)))
        else:
            yield Diagnosis(check=check, level="fail", found=KNOWS_NO_BROKER(), remedy=START_BROKER())


def check_brokers(connections: Connections) -> Iterator[Diagnosis]:
    """Checks every master and its configuration."""
    for name, addresses in sorted(connections.rocketmq.routes.brokers().items()):
        check = broker_fact(name)
        if addresses.master is None:
            yield Diagnosis(check=check, level="fail", found=NO_MASTER(), remedy=START_MASTER())
            continue
        try:
            yield from _broker(connections, check, addresses.master)
        except ReconcilerError as error:
            yield _silent(check, error, addresses.master, START_OR_LOOK_AT_LOG())


def _broker(connections: Connections, check: Fact, address: str) -> Iterator[Diagnosis]:
    admin = connections.admin
    facts = Families(connections.rocketmq.client, clock=connections.clock).facts(address)
    config: dict[str, str] = {}
    try:
        config = admin.broker_config(address)
    except ReconcilerError as error:  # a broker may refuse to show its configuration, but not every request
        wanted = _demand_and_remedy(error, address)
        if wanted is not None:
            yield _wanting(check, error, wanted)
            return
    family = BROKER_WITH_CHECK_BACK if facts.has_check_back else BROKER_WITHOUT_CHECK_BACK
    yield Diagnosis(check=check, level="ok", found=family(address=address, family=str(facts.family)))
    for name, wrong in _WRONG.items():
        if config.get(name) == wrong:
            found = WRONG_PROPERTY(name=name, value=wrong)
            yield Diagnosis(check=check, level="fail", found=found, remedy=_SETTINGS[name]())
    yield from check_rocksdb(check, config)
    if config.get("autoCreateSubscriptionGroup") == "false":
        missing = sorted(set(READER_GROUPS) - set(admin.groups(address)))
        if missing:
            found = LACKS_GROUPS(groups=tuple(missing))
            yield Diagnosis(check=check, level="fail", found=found, remedy=_create_topics())


def check_broker_rights(connections: Connections) -> Iterator[Diagnosis]:
    """Yields one line for each right that a broker refuses to our user."""
    return (failed(area("rights"), error) for error in refusals(connections))


def check_check_services(connections: Connections) -> Iterator[Diagnosis]:
    """Yields a note for each broker whose check service does not move, or cannot be read."""
    for one in check_services(connections):
        check = CHECK_SERVICE_OF(broker=one.broker)
        if one.stands is not None:
            yield Diagnosis(check=check, level="note", found=one.stands, remedy=LOOK_INTO_BROKER_LOG())
        elif one.refusal is not None:
            found = CHECK_SERVICE_UNREADABLE(why=without_remedy(one.refusal, one.refusal.remedy))
            yield Diagnosis(check=check, level="note", found=found, remedy=as_told(one.refusal.remedy))


def check_topics(connections: Connections) -> Iterator[Diagnosis]:
    """Checks the topics on every master.

    The reconciler's own topics must exist with the queues of the settings. Topics of the services must exist.
    """
    settings = connections.settings
    topics = dict.fromkeys(s.topic for s in settings.subscriptions)
    for name in unique_key_topics(settings):
        yield _topic(connections, name, settings.unique_key_topic.queues)
    yield _topic(connections, settings.rocketmq.probe_topic, 1)
    for topic in topics:
        yield _topic(connections, topic, None)
    yield from check_half_topics(connections)


def _topic(connections: Connections, topic: str, queues: int | None) -> Diagnosis:
    check, routes = TOPIC(topic=topic), connections.rocketmq.routes
    try:
        route = routes.refresh(topic)
    except TopicNotFound:
        create = CREATE_BUSINESS_TOPICS() if queues is None else _create_topics()
        return Diagnosis(check=check, level="fail", found=NO_SUCH_TOPIC(), remedy=create)
    counts = {name: sum(q.broker_name == name for q in route.readable_queues) for name in route.broker_names}
    found = _counted(counts)
    if queues is None:
        return Diagnosis(check=check, level="ok", found=found)
    missing = sorted({n for n, a in routes.brokers().items() if a.master is not None} - counts.keys())
    if missing:
        found = QUEUES_MISSING(queues=found, number=queues, brokers=tuple(missing))
    elif any(count != queues for count in counts.values()):
        found = OTHER_QUEUES(queues=found, number=queues)
    else:
        return Diagnosis(check=check, level="ok", found=found)
    is_probed = topic == connections.settings.rocketmq.probe_topic
    is_too_many = not is_probed and any(count > queues for count in counts.values())
    return Diagnosis(check=check, level="fail", found=found, remedy=KEEP_QUEUES() if is_too_many else _create_topics())


def _counted(queues: Mapping[str, int]) -> Fact:
    if not queues:
        return NO_QUEUES()
    return QUEUES(on_brokers=listed(QUEUES_ON(number=count, broker=broker) for broker, count in sorted(queues.items())))


def _create_topics() -> Fact:
    return CREATE_TOPICS()


def _silent(check: Fact, error: ReconcilerError, address: str, remedy: Fact) -> Diagnosis:
    """Returns the finding for a peer that does not answer or refuses.

    The finding names what the peer demands, if anything.
    """
    if isinstance(error, ConfigurationError):
        return failed(check, error)
    wanted = _demand_and_remedy(error, address)
    if wanted is not None:
        return _wanting(check, error, wanted)
    return Diagnosis(check=check, level="fail", found=as_told(str(error)), remedy=remedy)


def _wanting(check: Fact, error: ReconcilerError, wanted: tuple[PeerDemand, str]) -> Diagnosis:
    demand, remedy = wanted
    found = _DEMANDS[demand](why=without_remedy(error, remedy))
    return Diagnosis(check=check, level="fail", found=found, remedy=as_told(remedy))


def _demand_and_remedy(error: ReconcilerError, address: str) -> tuple[PeerDemand, str] | None:
    """Returns a demand of the peer that this client does not fulfil, and the remedy. None: there is no such demand."""
    demand = demand_behind(error, address)
    return None if demand is None else (demand, remedy_of(demand, error))
