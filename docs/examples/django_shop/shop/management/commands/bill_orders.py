"""`manage.py bill_orders`: bills orders until SIGTERM, in a process of its own."""

import json
import os
import signal
from threading import Event

import prometheus_client
from django.core.management.base import BaseCommand
from django.db import connection

from checkback_consumers import CommitRecorder, TransactionalConsumer, transactional_handler
from checkback_consumers.metrics import register_metrics
from shop.models import Bill


def of_this_thread():
    """Django's connection, not in autocommit: the inbox commits and closes it."""
    connection.close()
    connection.ensure_connection()
    connection.set_autocommit(False)
    return connection.connection


def billing(recorder):
    """The handler; a message that it raises for comes again."""

    @transactional_handler(of_this_thread, group="billing", topics="ORDERS", recorder=recorder)
    def bill(message, _):
        Bill.objects.create(number=json.loads(message.body)["order"])  # without atomic()

    return bill


class Command(BaseCommand):
    """The worker."""

    def handle(self, *args, **options):
        """Until SIGTERM."""
        stop = Event()
        signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
        recorder = CommitRecorder.open(
            os.environ["REDIS_URL"], environment="production", group="billing", topics=["ORDERS"], shards=16
        )
        bill = billing(recorder)
        register_metrics(prometheus_client.REGISTRY, handlers=[bill], recorders=[recorder])
        prometheus_client.start_http_server(int(os.environ["METRICS_PORT"]), "127.0.0.1")
        with recorder, TransactionalConsumer(bill, name_servers=os.environ["NAME_SERVERS"]):
            while not stop.wait(1):
                pass
