"""The service that sends: one block around the local transaction."""

import sqlalchemy as sa

from checkback_producers import Message, TransactionalProducer


def place_order(producer: TransactionalProducer, database: sa.Engine, number: int) -> str:
    """Commits an order and tells the world, or does neither."""
    message = Message(topic="ORDERS", tags="paid", body=f'{{"order": {number}}}'.encode())
    with producer.transaction(message, business_id=f"order-{number}") as tx, database.begin() as connection:
        tx.record(connection)  # the first statement of your transaction
        connection.execute(sa.text("INSERT INTO orders (number) VALUES (:number)"), {"number": number})
    return tx.unique_key  # committed; END_TRANSACTION sent, its key announced within a moment
