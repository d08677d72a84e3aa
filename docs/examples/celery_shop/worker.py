"""Bills orders until SIGTERM: a process of its own, beside the web process."""

import json
import os
import signal
from threading import Event

import prometheus_client
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker
from tables import Bill

from checkback_consumers import (
    CommitRecorder,
    ConsumedMessage,
    TransactionalConsumer,
    TransactionalHandler,
    transactional_handler,
)
from checkback_consumers.metrics import register_metrics
from checkback_consumers.tables import open_engine


def billing(database: sa.Engine, recorder: CommitRecorder) -> TransactionalHandler:
    """The handler; a message that it raises for comes again."""

    @transactional_handler(sessionmaker(database), group="billing", topics="ORDERS", recorder=recorder)
    def bill(message: ConsumedMessage, session: Session) -> None:
        session.add(Bill(number=json.loads(message.body)["order"]))

    return bill


def work() -> None:
    """Until SIGTERM."""
    stop = Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    database = open_engine(os.environ["DATABASE_URL"])
    recorder = CommitRecorder.open(
        os.environ["REDIS_URL"], environment="production", group="billing", topics=["ORDERS"], shards=16
    )
    bill = billing(database, recorder)
    register_metrics(prometheus_client.REGISTRY, handlers=[bill], recorders=[recorder])
    prometheus_client.start_http_server(int(os.environ["METRICS_PORT"]), "127.0.0.1")
    with recorder, TransactionalConsumer(bill, name_servers=os.environ["NAME_SERVERS"]):
        while not stop.wait(1):
            pass
    database.dispose()


if __name__ == "__main__":
    work()
