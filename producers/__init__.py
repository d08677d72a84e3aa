"""Plug-in for the service that sends transactional messages: outbox, announcement, check answers.

    from producers import Message, open_producer

Loads SQLAlchemy and the remoting client, nothing heavier.
"""

from producers.announcer import AnnouncementRoute, Announcer
from producers.check_answer import CheckAnswerer
from producers.errors import (
    HalfNotSafe,
    KeyTaken,
    NotCommitted,
    NotRecorded,
    RolledBackAlready,
    UnsafeConnection,
)
from producers.outbox import SqlOutbox
from producers.outbox_reader import ReadOutbox, SqlOutboxReader
from producers.ports import CheckedHalf, Outcome, SentHalf
from producers.producer import TransactionalProducer
from producers.remoting import RemotingAnnouncements, RemotingHalves, open_producer
from producers.sweeper import OutboxSource, Sweeper, SweepPolicy, SweepReport, SweptSubscription
from producers.transaction import Transaction
from reconciler.rocketmq.message import Message

__all__ = [
    "AnnouncementRoute",
    "Announcer",
    "CheckAnswerer",
    "CheckedHalf",
    "HalfNotSafe",
    "KeyTaken",
    "Message",
    "NotCommitted",
    "NotRecorded",
    "OutboxSource",
    "Outcome",
    "ReadOutbox",
    "RemotingAnnouncements",
    "RemotingHalves",
    "RolledBackAlready",
    "SentHalf",
    "SqlOutbox",
    "SqlOutboxReader",
    "SweepPolicy",
    "SweepReport",
    "Sweeper",
    "SweptSubscription",
    "Transaction",
    "TransactionalProducer",
    "UnsafeConnection",
    "open_producer",
]
