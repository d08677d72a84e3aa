"""The service that receives: one decorator around the handler that you have."""

import json
from typing import Any

import sqlalchemy as sa

from checkback_consumers import CommitRecorder, TransactionalConsumer, transactional_handler


def bill_orders(database: sa.Engine, recorder: CommitRecorder, name_servers: str) -> TransactionalConsumer:
    """A consumer of the group `billing`; start it, or use it as a context manager."""

    @transactional_handler(database, group="billing", topics="ORDERS", recorder=recorder)
    def bill(message: Any, connection: sa.Connection) -> None:
        number = json.loads(message.body)["order"]  # runs at most once a message, in one transaction with the inbox row
        connection.execute(sa.text("INSERT INTO bills (number) VALUES (:number)"), {"number": number})

    return TransactionalConsumer(bill, name_servers=name_servers)
