"""The task, and what each process of the pool opens after its fork."""

import os
from functools import cache

import prometheus_client
from billiard import current_process
from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown
from orders import place
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import sessionmaker

from checkback_producers import open_producer
from checkback_producers.errors import TransientError
from checkback_producers.metrics import register_metrics
from checkback_producers.tables import open_engine

app = Celery("shop", broker=os.environ.get("CELERY_BROKER_URL"))
app.conf.task_ignore_result = True


@cache
def opened():
    """Producer and sessions of this process. The parent never calls it: what is opened before a fork serves no child."""
    url = os.environ["DATABASE_URL"]
    producer = open_producer(
        group="order-service", outbox_url=url, environment="production", name_servers=os.environ["NAME_SERVERS"]
    )
    return producer.start(), sessionmaker(open_engine(url))


@worker_process_init.connect
def begin(**_):
    """Each process answers check-backs from its start, and has a port of its own for Prometheus."""
    producer, _sessions = opened()
    registry = prometheus_client.CollectorRegistry()
    register_metrics(registry, producers=[producer])
    ports = os.environ["METRICS_PORTS"].split(",")
    prometheus_client.start_http_server(int(ports[current_process().index]), "127.0.0.1", registry)


@worker_process_shutdown.connect
def end(**_):
    """Announces what waits, and leaves the group."""
    producer, _sessions = opened()
    producer.shutdown()


@app.task(
    acks_late=True,  # a task whose process dies runs again
    reject_on_worker_lost=True,
    autoretry_for=(TransientError, DBAPIError),
    retry_backoff=1,
    max_retries=5,
)
def place_order(number, customer):
    """`number` comes with the call, so that each run of it has the same one."""
    place(*opened(), number, customer)
