"""Services on asyncio, each a process: `send` commits orders side by side, `receive` has their effects.

python -m tests.acceptance.asynchronous_shop send|receive CONFIG [NUMBER]

CONFIG is the settings file of a deployment: its databases, groups and names are theirs. `send` ends after NUMBER
commits. Of each tenth message END_TRANSACTION never leaves, and no question about it arrives. A worker of `reconciler
replay` loads `bill` from here: SHOP_CONFIG names the same file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

from checkback_consumers import CommitRecorder, PushSettings, TransactionalConsumer, transactional_handler
from checkback_producers import AsyncTransactionalProducer, open_producer
from checkback_producers.announcer import AnnouncementRoute
from reconciler.contract.secret import SecretText
from reconciler.errors import ReconcilerError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from tests.acceptance.deployment import EFFECTS, ORDERS
from tests.services.patient_instance import TIMEOUT_SECONDS, patient_client

#: Of the service's loop, by the database.
DRIVERS = {"postgresql": "asyncpg", "mysql": "asyncmy", "mariadb": "asyncmy"}
AT_A_TIME = 10
CONFIG_VARIABLE = "SHOP_CONFIG"


def is_lost(unique_key: str) -> bool:
    """Keys end with a number that counts up."""
    return int(unique_key[-4:], 16) % 10 == 0


def async_engine_of(url: SecretText) -> AsyncEngine:
    """As the service opens its database."""
    parsed = make_url(url.reveal())
    backend = parsed.get_backend_name()
    return create_async_engine(
        parsed.set(drivername=f"{backend}+{DRIVERS[backend]}"), pool_size=AT_A_TIME, max_overflow=0
    )


def _without_ends(_address: str, command: Command) -> Command | None:
    is_about_end = command.code in {RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE}
    return None if is_about_end and is_lost(command.fields.get("msgId", "0")) else command


# ----------------------------------------------------------------- sends


async def send(settings: Settings, number: int) -> None:
    """Commits so many orders; a failure of any kind costs that message only."""
    (service,) = settings.producers
    client = patient_client(outgoing=_without_ends, incoming=_without_ends)
    instance = ClientInstance(settings.rocketmq.name_servers, client=client)
    (outbox_url,) = service.outbox_urls
    producer = open_producer(
        group=service.group,
        environment=settings.environment,
        instance=instance,
        outbox_url=outbox_url,
        announcements=AnnouncementRoute(
            environment=settings.environment,
            unique_key_topic=settings.unique_key_topic.name,
            queues=settings.unique_key_topic.queues,
        ),
        send_timeout_seconds=TIMEOUT_SECONDS,
        end_timeout_seconds=1.0,
    )
    database = async_engine_of(outbox_url)
    left = iter(range(number))
    try:
        async with AsyncTransactionalProducer(producer, database=database) as opened:

            async def orders() -> None:
                for one in left:
                    await _order(opened, database, Message(topic=service.topics[0], body=b"order %d" % one))

            await asyncio.gather(*(orders() for _ in range(AT_A_TIME)))
    finally:
        await database.dispose()
        instance.close()
        client.close()


async def _order(producer: AsyncTransactionalProducer, database: AsyncEngine, message: Message) -> None:
    while True:
        try:
            async with producer.transaction(message) as tx, AsyncSession(database) as session, session.begin():
                await tx.record(session)
                await session.execute(sa.insert(ORDERS).values(unique_key=tx.unique_key))
        except (ReconcilerError, sa.exc.SQLAlchemyError) as error:
            print(f"not sent: {error!r}", flush=True)  # noqa: T201 - the log of the service
        else:
            return


# ----------------------------------------------------------------- receives


async def _bill(message: Any, connection: AsyncConnection) -> None:
    await connection.execute(sa.insert(EFFECTS).values(unique_key=message.unique_key, applied_at_ms=0))


def _decorated(settings: Settings) -> Any:
    (subscription,) = settings.subscriptions
    recorder = CommitRecorder.open(
        settings.redis.url,
        environment=settings.environment,
        group=subscription.group,
        shards=settings.unique_key_topic.queues,
    )
    (inbox_url,) = subscription.inbox_urls
    database = async_engine_of(inbox_url)
    decorate = transactional_handler(
        database, group=subscription.group, topics=subscription.topic, recorder=recorder, running_max=AT_A_TIME
    )
    return decorate(_bill)


async def receive(settings: Settings) -> None:
    """A member of the group, until SIGTERM."""
    handler = _decorated(settings)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer = TransactionalConsumer(
        handler,
        name_servers=settings.rocketmq.name_servers,
        offset_commit_interval_seconds=0.5,
        settings=PushSettings(threads=AT_A_TIME),
    )
    async with handler, consumer:
        print("receives", flush=True)  # noqa: T201 - the log of the service
        await stopped.wait()


def main(act: str, config: str, *number: str) -> None:
    settings = load_settings(Path(config), {})
    asyncio.run(send(settings, int(number[0])) if act == "send" else receive(settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
else:
    if _config := os.environ.get(CONFIG_VARIABLE):
        #: For `reconciler replay`.
        bill = _decorated(load_settings(Path(_config), {}))
