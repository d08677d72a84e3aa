"""Plug-in for the service that sends transactional messages: outbox, announcement, check answers.

    from checkback_producers import Message, open_producer

Loads SQLAlchemy and the remoting client, nothing heavier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from checkback_producers.announcer import AnnouncementRoute, Announcer
    from checkback_producers.check_answer import CheckAnswerer, StandIn
    from checkback_producers.errors import (
        HalfNotSafe,
        KeyTaken,
        NotCommitted,
        NotRecorded,
        RolledBackAlready,
        UnsafeConnection,
    )
    from checkback_producers.filter_review import SweptSubscription
    from checkback_producers.outbox import SqlOutbox
    from checkback_producers.ports import CheckedHalf, Outcome, SentHalf
    from checkback_producers.producer import TransactionalProducer
    from checkback_producers.remoting import RemotingAnnouncements, RemotingHalves, open_producer
    from checkback_producers.sweeper import OutboxSource, Sweeper, SweepPolicy, SweepReport
    from checkback_producers.transaction import Transaction
    from reconciler.evidence.outbox import ReadOutbox, SqlOutboxReader
    from reconciler.rocketmq.wire.message import Message

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
            "checkback_producers.announcer": "AnnouncementRoute Announcer",
            "checkback_producers.check_answer": "CheckAnswerer StandIn",
            "checkback_producers.errors": (
                "HalfNotSafe KeyTaken NotCommitted NotRecorded RolledBackAlready UnsafeConnection"
            ),
            "checkback_producers.filter_review": "SweptSubscription",
            "checkback_producers.outbox": "SqlOutbox",
            "reconciler.evidence.outbox": "ReadOutbox SqlOutboxReader",
            "checkback_producers.ports": "CheckedHalf Outcome SentHalf",
            "checkback_producers.producer": "TransactionalProducer",
            "checkback_producers.remoting": "RemotingAnnouncements RemotingHalves open_producer",
            "checkback_producers.sweeper": "OutboxSource Sweeper SweepPolicy SweepReport",
            "checkback_producers.transaction": "Transaction",
            "reconciler.rocketmq.wire.message": "Message",
        },
    )
