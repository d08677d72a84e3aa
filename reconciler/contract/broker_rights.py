"""What each role needs on brokers, in both generations of access control; least_rights.py gives it to the roles.

ACL 1.0 (4.4 to 5.2) knows PUB and SUB on topics and groups, and accounts that are admin. Authorization (from 5.3) knows
more actions, and the cluster. A heartbeat of a producer and END_TRANSACTION need a signature and no right in either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["topic", "group", "cluster", "broker"]
Right = Literal["PUB", "SUB", "GET", "CREATE", "ADMIN"]

#: Stand for names of the settings; `filled` puts these in.
BUSINESS_TOPIC = "TOPIC"
GROUP = "GROUP"
UNIQUE_KEY_TOPIC = "UNIQUE_KEY_TOPIC"
PROBE_TOPIC = "PROBE_TOPIC"
_PLACES = (UNIQUE_KEY_TOPIC, PROBE_TOPIC, BUSINESS_TOPIC, GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRight:
    """What an account may do with a topic, a group or the cluster; an empty tuple: that generation demands nothing."""

    kind: Kind
    #: A name, or a name in which one of the places above stands for that of the settings.
    name: str
    acl: tuple[Right, ...] = ()
    authorization: tuple[Right, ...] = ()
    why: str

    def filled(self, *, topic: str, group: str, unique_key_topic: str, probe_topic: str) -> str:
        """The name with those of the settings."""
        named = dict(zip(_PLACES, (unique_key_topic, probe_topic, topic, group), strict=True))
        for place in _PLACES:
            if self.name == place or self.name.endswith(f"%{place}"):
                return self.name.removesuffix(place) + named[place]
        return self.name


_ANNOUNCES = BrokerRight(
    kind="topic", name=UNIQUE_KEY_TOPIC, acl=("PUB",), authorization=("PUB",), why="announcements are sent"
)
_TAKES_ANNOUNCEMENTS = (
    BrokerRight(
        kind="topic",
        name=UNIQUE_KEY_TOPIC,
        acl=("SUB",),
        authorization=("SUB", "GET"),
        why="announcements are pulled, ends of queues are asked for",
    ),
    BrokerRight(
        kind="group",
        name="RECONCILER_ANNOUNCEMENTS",
        acl=("SUB",),
        authorization=("SUB",),
        why="announcements are pulled under this group",
    ),
)
_ENDS_OF_ANNOUNCEMENTS = (
    BrokerRight(
        kind="topic",
        name=UNIQUE_KEY_TOPIC,
        acl=("SUB",),
        authorization=("SUB", "GET"),
        why="ends of queues are asked for, and what waits there",
    ),
    BrokerRight(
        kind="group",
        name="RECONCILER_SCAN",
        acl=("SUB",),
        authorization=("SUB",),
        why="queues are read under this group, not under one of yours",
    ),
)
_LOOKS = (
    BrokerRight(
        kind="topic",
        name=BUSINESS_TOPIC,
        acl=("SUB",),
        authorization=("SUB", "GET"),
        why="committed copies are looked up, ends of queues are asked for",
    ),
    *(
        BrokerRight(kind="topic", name=name, acl=("SUB",), authorization=("SUB",), why=why)
        for name, why in (
            ("RMQ_SYS_TRANS_HALF_TOPIC", "half messages are looked up"),
            ("TRANS_CHECK_MAX_TIME_TOPIC", "half messages that the broker has given up are looked up"),
        )
    ),
    BrokerRight(
        kind="group", name=GROUP, acl=("SUB",), authorization=("GET",), why="offsets, filters and retries of the group"
    ),
    BrokerRight(
        kind="cluster",
        name="*",
        authorization=("GET",),
        why="whether a producer is connected that could answer check-backs",
    ),
)
#: Of keys that are inquired into.
_INQUIRES = (
    *(
        BrokerRight(kind="topic", name=name, acl=("SUB",), authorization=("SUB",), why=why)
        for name, why in (
            ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "half messages are looked up, on 5.4"),
            ("SCHEDULE_TOPIC_XXXX", "retries that wait for their delay"),
            ("rmq_sys_wheel_timer", "retries that wait for their delay, on 5.x"),
            (f"%DLQ%{GROUP}", "dead letters are looked up"),
        )
    ),
    BrokerRight(kind="topic", name=f"%RETRY%{GROUP}", authorization=("SUB",), why="retries are looked up"),
)
_PROBES = BrokerRight(
    kind="topic",
    name=PROBE_TOPIC,
    acl=("PUB", "SUB"),
    authorization=("PUB", "SUB"),
    why="probes show how far the index of each broker reaches back",
)

OF_ANNOUNCING_SERVICE = (
    BrokerRight(kind="topic", name=BUSINESS_TOPIC, acl=("PUB",), authorization=("PUB",), why="half messages are sent"),
    _ANNOUNCES,
)
OF_CONSUMING_SERVICE = (
    BrokerRight(
        kind="topic",
        name=BUSINESS_TOPIC,
        acl=("SUB",),
        authorization=("SUB", "GET"),
        why="messages are pulled, ends of queues are asked for",
    ),
    BrokerRight(
        kind="group",
        name=GROUP,
        acl=("SUB",),
        authorization=("SUB", "GET"),
        why="membership, offsets and retries of the group",
    ),
)
OF_RUN = (
    *_TAKES_ANNOUNCEMENTS,
    *_ENDS_OF_ANNOUNCEMENTS[1:],
    *_LOOKS,
    *_INQUIRES,
    _PROBES,
    BrokerRight(
        kind="topic", name=BUSINESS_TOPIC, acl=("PUB",), authorization=("PUB",), why="lost messages are republished"
    ),
)
OF_SWEEP = (_ANNOUNCES,)
OF_ANNOUNCEMENTS = _TAKES_ANNOUNCEMENTS
OF_TOPICS_CREATE = (
    BrokerRight(kind="broker", name="*", acl=("ADMIN",), why="topics and groups are made"),
    *(
        BrokerRight(kind="topic", name=name, authorization=("CREATE",), why=why)
        for name, why in (
            (UNIQUE_KEY_TOPIC, "the topic is made"),
            (PROBE_TOPIC, "the topic is made"),
            (BUSINESS_TOPIC, "the topic is made, with --business"),
        )
    ),
)
OF_DOCTOR = (*_TAKES_ANNOUNCEMENTS, *_ENDS_OF_ANNOUNCEMENTS[1:], *_LOOKS, *_INQUIRES, _PROBES)
OF_CONSOLE = OF_DOCTOR
