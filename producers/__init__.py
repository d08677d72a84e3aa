"""Plug-in for the service that sends transactional messages: outbox, announcement, check answers.

    from producers import Message, open_producer

Loads SQLAlchemy and the remoting client, nothing heavier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from producers.announcer import AnnouncementRoute, Announcer
    from producers.check_answer import CheckAnswerer, StandIn
    from producers.errors import (
        HalfNotSafe,
        KeyTaken,
        NotCommitted,
        NotRecorded,
        RolledBackAlready,
        UnsafeConnection,
    )
    from producers.filter_review import SweptSubscription
    from producers.outbox import SqlOutbox
    from producers.outbox_reader import ReadOutbox, SqlOutboxReader
    from producers.ports import CheckedHalf, Outcome, SentHalf
    from producers.producer import TransactionalProducer
    from producers.remoting import RemotingAnnouncements, RemotingHalves, open_producer
    from producers.sweeper import OutboxSource, Sweeper, SweepPolicy, SweepReport
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
    "StandIn",
    "SweepPolicy",
    "SweepReport",
    "Sweeper",
    "SweptSubscription",
    "Transaction",
    "TransactionalProducer",
    "UnsafeConnection",
    "open_producer",
]

if not TYPE_CHECKING:  # the checker sees the imports above, and no attribute besides them
    __getattr__ = loading(
        __name__,
        {
            "producers.announcer": "AnnouncementRoute Announcer",
            "producers.check_answer": "CheckAnswerer StandIn",
            "producers.errors": "HalfNotSafe KeyTaken NotCommitted NotRecorded RolledBackAlready UnsafeConnection",
            "producers.filter_review": "SweptSubscription",
            "producers.outbox": "SqlOutbox",
            "producers.outbox_reader": "ReadOutbox SqlOutboxReader",
            "producers.ports": "CheckedHalf Outcome SentHalf",
            "producers.producer": "TransactionalProducer",
            "producers.remoting": "RemotingAnnouncements RemotingHalves open_producer",
            "producers.sweeper": "OutboxSource Sweeper SweepPolicy SweepReport",
            "producers.transaction": "Transaction",
            "reconciler.rocketmq.message": "Message",
        },
    )
