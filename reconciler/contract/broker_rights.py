"""The rights that each role needs on brokers, in both generations of access control. least_rights.py assigns these
rights to the roles.

ACL 1.0 (4.4 to 5.2) knows PUB and SUB on topics and groups, and accounts that are admin. Authorization (from 5.3) knows
more actions, and also the cluster. In both generations, a producer's heartbeat and END_TRANSACTION need a signature but
no right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["topic", "group", "cluster", "broker"]
Right = Literal["PUB", "SUB", "GET", "CREATE", "ADMIN"]

#: Placeholders for names of the settings. `filled` replaces placeholders by names.
BUSINESS_TOPIC = "TOPIC"
GROUP = "GROUP"
UNIQUE_KEY_TOPIC = "UNIQUE_KEY_TOPIC"
PROBE_TOPIC = "PROBE_TOPIC"
#: The new name that `group rename` gives to a group. No setting has this name yet, so the placeholder stays.
NEW_GROUP = "NEW_GROUP"
#: The name of the retry topic of a group that pops.
POP_GROUP = f"{GROUP}_{BUSINESS_TOPIC}"
_NEW_POP_GROUP = f"{NEW_GROUP}_{BUSINESS_TOPIC}"
_PLACES = (UNIQUE_KEY_TOPIC, PROBE_TOPIC, POP_GROUP, _NEW_POP_GROUP, BUSINESS_TOPIC, GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRight:
    """What an account may do with a topic, a group or the cluster. An empty tuple: this generation of access control
    demands no right."""

    kind: Kind
    #: A name, or a name with one of the placeholders above.
    name: str
    acl: tuple[Right, ...] = ()
    authorization: tuple[Right, ...] = ()
    why: str

    def filled(self, *, topic: str, group: str, unique_key_topic: str, probe_topic: str) -> str:
        """Returns the name with its placeholders replaced by names of the settings."""
        names = (unique_key_topic, probe_topic, f"{group}_{topic}", f"{NEW_GROUP}_{topic}", topic, group)
        named = dict(zip(_PLACES, names, strict=True))
        for place in _PLACES:
            if self.name == place or self.name.endswith(f"%{place}"):
                return self.name.removesuffix(place) + named[place]
        return self.name


def _topic(name: str, *rights: Right, authorization: tuple[Right, ...] | None = None, why: str) -> BrokerRight:
    """Makes a right on a topic. `authorization`: the actions that authorization demands, if they differ from ACL
    1.0."""
    return BrokerRight(kind="topic", name=name, acl=rights, authorization=authorization or rights, why=why)


def _group(name: str, *rights: Right, authorization: tuple[Right, ...] | None = None, why: str) -> BrokerRight:
    return BrokerRight(kind="group", name=name, acl=rights, authorization=authorization or rights, why=why)


_SUB_OR_GET: tuple[Right, ...] = ("SUB", "GET")
_ANNOUNCES = _topic(UNIQUE_KEY_TOPIC, "PUB", why="announcements are sent")
_TAKES_ANNOUNCEMENTS = (
    _topic(
        UNIQUE_KEY_TOPIC, "SUB", authorization=_SUB_OR_GET, why="announcements are pulled, ends of queues are asked for"
    ),
    _group("RECONCILER_ANNOUNCEMENTS", "SUB", why="announcements are pulled under this group"),
)
_LOOKS = (
    _group("RECONCILER_SCAN", "SUB", why="queues are read under this group, not under one of yours"),
    _topic(
        BUSINESS_TOPIC,
        "SUB",
        authorization=_SUB_OR_GET,
        why="committed copies are looked up, ends of queues are asked for",
    ),
    _topic("RMQ_SYS_TRANS_HALF_TOPIC", "SUB", why="half messages are looked up"),
    _topic("TRANS_CHECK_MAX_TIME_TOPIC", "SUB", why="half messages that the broker has given up are looked up"),
    _group(GROUP, "SUB", authorization=("GET",), why="offsets, filters and retries of the group"),
    BrokerRight(
        kind="group",
        name="CID_RMQ_SYS_TRANS",
        authorization=("GET",),
        why="how far the check service has come; without it a half that it never came to looks rolled back",
    ),
    BrokerRight(kind="group", name=POP_GROUP, authorization=("GET",), why="whether the group pops"),
    BrokerRight(
        kind="cluster",
        name="*",
        authorization=("GET",),
        why="whether a producer is connected that could answer check-backs",
    ),
)
#: Rights to look up the messages of single keys.
_INQUIRES = (
    _topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "SUB", why="half messages are looked up, from 5.4 on"),
    _topic("SCHEDULE_TOPIC_XXXX", "SUB", why="retries that wait for their delay"),
    _topic("rmq_sys_wheel_timer", "SUB", why="retries that wait for their delay, on 5.x"),
    _topic(f"%DLQ%{GROUP}", "SUB", why="dead letters are looked up"),
    _topic(f"%RETRY%{GROUP}", authorization=("SUB",), why="retries are looked up"),
)
#: Rights to look at groups that pop. No role has these rights by default, because few groups pop.
OF_GROUPS_THAT_POP = (
    BrokerRight(kind="group", name=POP_GROUP, acl=("SUB",), why="retries are looked up"),
    _topic(f"%RETRY%{POP_GROUP}", authorization=("SUB",), why="retries are looked up"),
)
#: Rights to take announcements of subscriptions whose announcements are the half messages.
OF_HALF_TOPIC = (
    _group("TOOLS_CONSUMER", "SUB", why="half messages are read under this group, which every broker has"),
    _topic("RMQ_SYS_TRANS_HALF_TOPIC", "SUB", authorization=_SUB_OR_GET, why="half messages are read"),
    _topic(
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "SUB", authorization=_SUB_OR_GET, why="the same, from 5.4 on, before a send"
    ),
)
_PROBES = _topic(PROBE_TOPIC, "PUB", "SUB", why="probes show how far the index of each broker reaches back")

OF_ANNOUNCING_SERVICE = (_topic(BUSINESS_TOPIC, "PUB", why="half messages are sent"), _ANNOUNCES)
OF_CONSUMING_SERVICE = (
    _topic(BUSINESS_TOPIC, "SUB", authorization=_SUB_OR_GET, why="messages are pulled, ends of queues are asked for"),
    _group(GROUP, "SUB", authorization=_SUB_OR_GET, why="membership, offsets and retries of the group"),
)
OF_DOCTOR = (*_TAKES_ANNOUNCEMENTS, *_LOOKS, *_INQUIRES, _PROBES)
OF_CONSOLE = OF_DOCTOR
OF_RUN = (*OF_DOCTOR, _topic(BUSINESS_TOPIC, "PUB", why="lost messages are republished"))
OF_SWEEP = (_ANNOUNCES,)
OF_ANNOUNCEMENTS = _TAKES_ANNOUNCEMENTS
OF_GROUP_RENAME = (
    BrokerRight(
        kind="broker", name="*", acl=("ADMIN",), why="the new group is made where it is missing; it may all else then"
    ),
    _topic(BUSINESS_TOPIC, authorization=_SUB_OR_GET, why="offsets in its queues are read and stored"),
    _group(GROUP, authorization=("GET",), why="members and offsets of the old name"),
    _group(NEW_GROUP, authorization=_SUB_OR_GET, why="members of the new name; its offsets are read and stored"),
    _group("RECONCILER_SCAN", authorization=("SUB",), why="queues are read under this group, not under one of yours"),
    _topic("SCHEDULE_TOPIC_XXXX", authorization=("SUB",), why="retries that wait for their delay"),
    BrokerRight(kind="group", name=POP_GROUP, authorization=("GET",), why="whether the group pops"),
    _group(_NEW_POP_GROUP, authorization=("GET",), why="whether the new name pops already"),
)
OF_SCAN = (
    _group("TOOLS_CONSUMER", "SUB", why="queues are read under this group, which every broker has from its start"),
    _topic("RMQ_SYS_TRANS_HALF_TOPIC", "SUB", authorization=_SUB_OR_GET, why="half messages are read"),
    _topic(
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SUB",
        authorization=_SUB_OR_GET,
        why="which half messages were ended; without GET all of them are read",
    ),
    _topic("TRANS_CHECK_MAX_TIME_TOPIC", "SUB", why="half messages that the broker has given up"),
    _topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "SUB", why="half messages are read, from 5.4 on"),
    _topic("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "SUB", why="which of these were ended, from 5.4 on"),
    _topic(
        BUSINESS_TOPIC,
        "SUB",
        authorization=_SUB_OR_GET,
        why="committed copies are looked up; GET with --classify",
    ),
    BrokerRight(
        kind="group",
        name="CID_RMQ_SYS_TRANS",
        authorization=("GET",),
        why="how far the check service has come; without it all half messages are read",
    ),
    BrokerRight(
        kind="cluster",
        name="*",
        authorization=("GET",),
        why="which producers are connected; else it is not told",
    ),
)
OF_TOPICS_CREATE = (
    BrokerRight(kind="broker", name="*", acl=("ADMIN",), why="topics and groups are made"),
    _topic(UNIQUE_KEY_TOPIC, authorization=("CREATE",), why="the topic is made"),
    _topic(PROBE_TOPIC, authorization=("CREATE",), why="the topic is made"),
    _topic(BUSINESS_TOPIC, authorization=("CREATE",), why="the topic is made, with --business"),
)
