"""What the task does, without Celery: an order and its message are committed together, or neither is."""

import json

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker
from tables import Order

from checkback_producers import Message, TransactionalProducer


def place(producer: TransactionalProducer, sessions: sessionmaker[Session], number: str, customer: str) -> bool:
    """Commits the order and sends its message; False: an earlier run has committed it."""
    with sessions() as session:
        if session.scalar(sa.select(Order.id).where(Order.number == number)) is not None:
            return False
    message = Message(topic="ORDERS", body=json.dumps({"order": number}).encode())
    with producer.transaction(message, business_id=number) as tx, sessions.begin() as session:
        tx.record(session)
        session.add(Order(number=number, customer=customer))
    return True
