"""A service that sends orders and bills them, on the test kit."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from checkback_consumers import TransactionalConsumer, TransactionalHandler, transactional_handler
from checkback_producers import Message
from reconciler.testing.kit import Checkback


class Shop:
    """`order-service` sends to ORDERS, `billing` receives it."""

    def __init__(self, kit: Checkback) -> None:
        self.kit = kit
        kit.sends("order-service", "ORDERS")
        kit.receives("billing", "ORDERS")
        with kit.database.begin() as connection:
            connection.execute(sa.text("CREATE TABLE bills (number INTEGER)"))
        self.producer = kit.producer("order-service")
        self.recorder = kit.recorder("billing")
        #: How often the handler is still to fail.
        self.failures = 0
        kit.run("billing", lambda: TransactionalConsumer(self.handler(), name_servers=kit.name_servers))

    def handler(self) -> TransactionalHandler:
        @transactional_handler(self.kit.database, group="billing", topics="ORDERS", recorder=self.recorder)
        def bill(message: Any, connection: sa.Connection) -> None:
            if self.failures:
                self.failures -= 1
                raise ValueError("no bill today")
            number = json.loads(message.body)["order"]
            connection.execute(sa.text("INSERT INTO bills (number) VALUES (:number)"), {"number": number})

        return bill

    def place(self, number: int) -> str:
        message = Message(topic="ORDERS", body=json.dumps({"order": number}).encode())
        with (
            self.producer.transaction(message, business_id=f"order-{number}") as tx,
            self.kit.database.begin() as connection,
        ):
            tx.record(connection)
        return tx.unique_key

    def bills(self) -> list[int]:
        with self.kit.database.connect() as connection:
            return list(connection.scalars(sa.text("SELECT number FROM bills ORDER BY number")))
