"""The producer of this process, and the transaction that sends an order."""

import atexit
import json
import os
import time
from threading import Lock
from uuid import uuid4

import prometheus_client
from django.conf import settings
from django.db import connection, transaction

from checkback_producers import Message, open_producer
from checkback_producers.errors import TransientError
from checkback_producers.metrics import register_metrics
from shop.models import Order

_lock = Lock()
_of_process = {}


def sending():
    """Producer and metrics, opened once a process: a child that was forked opens its own."""
    with _lock:
        if os.getpid() not in _of_process:
            producer = open_producer(**settings.CHECKBACK).start()
            atexit.register(producer.shutdown)
            registry = prometheus_client.CollectorRegistry()
            register_metrics(registry, producers=[producer])
            _of_process[os.getpid()] = producer, registry
        return _of_process[os.getpid()]


def place(customer):
    """Commits an order and sends its message; a TransientError means that neither happened."""
    number = uuid4().hex
    message = Message(topic="ORDERS", body=json.dumps({"order": number}).encode())
    producer, _ = sending()
    # durable: Django refuses it inside another atomic(), whose commit would come after the block
    with producer.transaction(message, business_id=number) as tx, transaction.atomic(durable=True):
        tx.record(connection.connection)
        Order.objects.create(number=number, customer=customer)
    return number


def placed(customer):
    """Tries the whole block up to three times."""
    for pause_seconds in (0.1, 0.5):
        try:
            return place(customer)
        except TransientError:
            time.sleep(pause_seconds)
    return place(customer)
