"""The stock remoting client for Go: it ends its keys in lower case, and sends again under the same key."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.push import TransactionalConsumer
from reconciler.contract.unique_key import is_digits
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.requirements import require
from tests.services.topics import create_topic, topic_name
from tests.unit.consumers.messages import KeptRecorder, effect_count, effects, inbox_engine, sqlite_url

SOURCE = Path(__file__).parent / "go"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(None if shutil.which("go") else "go is missing: apt-get install golang, or https://go.dev/dl/")
    program = tmp_path_factory.mktemp("go") / "client"
    built = subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCE, capture_output=True, timeout=800)
    assert built.returncode == 0, built.stderr.decode()
    return program


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


def pay(received: ConsumedMessage, connection: sa.Connection) -> None:
    connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))


@pytest.mark.parametrize("lost_replies", [0, 1])
def test_a_message_has_one_effect_although_the_answer_of_its_first_send_is_lost(
    client: Path, engine: sa.Engine, lost_replies: int
) -> None:
    recorder = KeptRecorder()
    with EmbeddedBroker(arguments=["--knob", f"lose_send_replies={lost_replies}"]) as broker:
        topic = create_topic(broker.port, topic_name("ORDERS"), queues=2, name_server_port=broker.port)
        handler = transactional_handler(engine, group=topic_name("billing"), topics=topic, recorder=recorder)(pay)
        with TransactionalConsumer(handler, name_servers=broker.name_servers):
            sent = subprocess.run(
                [str(client), broker.name_servers, topic], capture_output=True, text=True, timeout=300, check=True
            )
            key = sent.stdout.split()[-1]
            assert not is_digits(key)
            copies = 1 + lost_replies
            eventually(lambda: handler.counts.applied + handler.counts.duplicates == copies, within_seconds=120)
    assert (handler.counts.applied, effect_count(engine, key), effect_count(engine)) == (1, 1, 1)
    assert recorder.recorded == [(topic, key)] * copies
