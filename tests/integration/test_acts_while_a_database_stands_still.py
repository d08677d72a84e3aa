"""A PostgreSQL server stands still in the middle of an act of a person: the act ends in time, and is run again later.

The process that is stopped keeps its connections, and what was sent to it is executed when it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from reconciler.clock import SystemClock
from reconciler.commands.renaming import renamed_groups
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.sql import incomplete_rows, renamed_group
from reconciler.sql import silence as silences
from reconciler.sql.engines import open_engine
from tests.integration.consumers.test_renamed_rows import row
from tests.integration.test_group_rename import KEYS, NEW, OLD, of
from tests.integration.test_group_rename import Shop as RenamedShop
from tests.integration.test_incomplete_rows_ended import Shop as HalfwayShop
from tests.polling import eventually
from tests.services.postgres import PostgresServer
from tests.services.requirements import postgres_missing, require

pytestmark = [pytest.mark.sql("postgres"), pytest.mark.timeout(300)]

#: Longer than a busy machine takes. While the server stands still, time passes so much faster.
STATEMENT_SECONDS, FASTER = 20, 20
ROWS = 5
DEADLINE = f"rounds.statement_seconds = {STATEMENT_SECONDS}\n"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    require(postgres_missing())
    with PostgresServer() as started:
        yield started


@pytest.fixture
def server(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """Pages have two rows, and each command is one of a new process, which knows of no silence."""
    monkeypatch.setattr(renamed_groups, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(renamed_group, "PAGE_ROWS", 2)
    monkeypatch.setattr(renamed_group, "COUNTED_ROWS", 2)
    monkeypatch.setattr(incomplete_rows, "ROWS_READ", 2)
    monkeypatch.setattr("reconciler.commands.acts.incomplete.ROWS_AT_ONCE", 2)
    yield own_server
    own_server.thaw()


class Hurried(SystemClock):
    """Faster from the moment that the server stands still."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._since: float | None = None

    def stop_server(self) -> None:
        self._server.freeze()
        self._since = super().monotonic_seconds()

    def monotonic_seconds(self) -> float:
        now = super().monotonic_seconds()
        return now if self._since is None else self._since + FASTER * (now - self._since)


@contextmanager
def standing_at(server: PostgresServer, moment: str, *, nth: int) -> Iterator[None]:
    """The server stands still when something is about to be sent for the nth time; it goes on at the end. A COMMIT is
    named with the statement before it."""
    seen: list[str] = []
    last, clock = "", Hurried(server)

    def count(text: str) -> None:
        if re.match(moment, text):
            seen.append(text)
            if len(seen) == nth:
                clock.stop_server()

    def statement(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        nonlocal last
        last = " ".join(text.split())
        count(last)

    def commit(_connection: Any) -> None:
        count(f"COMMIT {last}")

    event.listen(sa.Engine, "before_cursor_execute", statement)
    event.listen(sa.Engine, "commit", commit)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("reconciler.sql.postgres_deadline._clock", clock)
            yield
    finally:
        event.remove(sa.Engine, "before_cursor_execute", statement)
        event.remove(sa.Engine, "commit", commit)
        server.thaw()
    assert len(seen) >= nth, "the moment never came"


def in_a_new_process(command: Callable[[], int]) -> int:
    """It knows of no silence."""
    silences._silences.clear()
    return command()


@pytest.mark.parametrize(
    ("moment", "nth"),
    [
        pytest.param("SELECT .* AS is_there", 2, marks=pytest.mark.nightly),
        pytest.param("INSERT INTO reconciler_inbox", 2, marks=pytest.mark.nightly),
        ("COMMIT INSERT INTO reconciler_inbox", 2),
        pytest.param("UPDATE reconciler_candidate", 1, marks=pytest.mark.nightly),
        ("COMMIT UPDATE reconciler_candidate", 1),
    ],
)
def test_a_group_is_renamed_by_a_second_run_wherever_the_first_one_met_a_standing_database(
    server: PostgresServer, tmp_path: Path, moment: str, nth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker(family="5.x") as broker:
        shop = RenamedShop(broker, tmp_path, lambda: server.create_database().replace("+psycopg", ""))
        shop.settings.write_text(DEADLINE + shop.settings.read_text())
        for url in shop.inboxes:
            shop.write(url, *(row(number) for number in range(10, 10 + ROWS)))
        engine = open_engine(shop.ledger_url)
        ledger = SqlLedger(engine)
        closed = VerdictEntry(
            unique_key=KEYS[0], verdict=Verdict.DELIVERED_NOT_APPLIED, evidence={}, first_seen_ms=1,
            state=CandidateState.QUARANTINED, wait_seconds=0.0,
        )  # fmt: skip
        ledger.candidates.record(Shard(subscription=of(OLD), number=0), [closed])

        def rename() -> int:
            return shop.rename(capsys, "--yes")[0]

        with standing_at(server, moment, nth=nth):
            assert in_a_new_process(rename) == 3
        # Where the ledger stood still, too, the first one holds the second one up until its lease is over.
        eventually(lambda: in_a_new_process(rename) == 0, within_seconds=60)
        assert shop.rows(NEW) == shop.rows(OLD) == [ROWS + 1] * 2
        assert shop.offset(NEW) == 3
        assert not ledger.candidates.of_keys(of(OLD), KEYS[:1])
        assert ledger.candidates.of_keys(of(NEW), KEYS[:1])[KEYS[0]].state is CandidateState.QUARANTINED
        engine.dispose()
        shop.client.close()


#: What is sent for each row.
ACTS = {"accept": "UPDATE reconciler_inbox", "delete": "DELETE FROM reconciler_inbox .*incomplete ="}


@pytest.mark.parametrize(
    ("ending", "names_keys", "moment", "nth"),
    [
        pytest.param("accept", True, ACTS["accept"], 3, marks=pytest.mark.nightly),
        ("accept", False, "COMMIT UPDATE reconciler_inbox", 2),
        pytest.param("delete", True, "COMMIT DELETE FROM reconciler_inbox", 2, marks=pytest.mark.nightly),
        ("delete", False, ACTS["delete"], 3),
    ],
)
def test_rows_are_ended_and_judged_again_by_a_second_run_where_the_first_one_met_a_standing_database(
    server: PostgresServer, tmp_path: Path, ending: str, names_keys: bool, moment: str, nth: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def new_url() -> str:
        return server.create_database().replace("+psycopg", "")

    shop = HalfwayShop(new_url(), new_url(), tmp_path)
    shop.settings.write_text(DEADLINE + shop.settings.read_text())
    messages = [shop.halfway() for _ in range(ROWS)]
    keys = [message.unique_key for message in messages] if names_keys else ["--all", "--yes"]

    def end() -> int:
        return shop.command(ending, *keys)

    with standing_at(server, moment, nth=nth):
        assert in_a_new_process(end) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert f"for certain 2 rows {ending.removesuffix('e')}ed of {ROWS}:" in told, told[-500:]
    assert "run it again" in told
    in_a_new_process(end)
    assert shop.rows() == ({message.unique_key: True for message in messages} if ending == "accept" else {})
    assert {shop.state(message) for message in messages} == {CandidateState.OPEN}
    shop.close()
