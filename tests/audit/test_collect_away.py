"""A source that is away for a while costs the wait and nothing else; one that stays away is named, and no answer."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect import database
from reconciler.audit.collect.asking import WAIT_SECONDS_MAX, Runner, Waiting
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.sources import Sources
from reconciler.audit.collect.tasks import Answer, EffectsTask, LookUpTask, RowsTask, Task
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import JudgedWindow
from reconciler.sql import tables
from tests.audit.audited_databases import EFFECTS, Databases, load_databases, quiet
from tests.engines import disposed
from tests.services.relay import Relay, shut

#: With the audit's other long tests.
pytestmark = pytest.mark.spark

ACCIDENTS = {"LOST": 2, "EFFECT_WITHOUT_COMMIT": 2, "EFFECT_LATE": 2}
KEY = "AB" * 16


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=200, seed=5, accidents=ACCIDENTS, topics=1), folder)
    return folder


@dataclass
class Hours:
    """A clock on which the reading took an hour before a source was away, and its pauses."""

    between: Callable[[], None] = lambda: None
    is_begun: bool = False
    pauses: list[float] = field(default_factory=list)

    def clock(self) -> float:
        if self.is_begun:
            return 3_600 + sum(self.pauses)
        self.is_begun = True
        return 0

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.between()

    def waiting(self) -> Waiting:
        return Waiting(clock=self.clock, pause=self.pause)


@dataclass
class Locked:
    """Runs tasks, those that `of` picks behind another connection's lock on a database until `is_over`."""

    url: str
    of: Callable[[Task], bool]
    is_over: bool = False
    refused: int = 0

    def run(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
        if self.is_over or not any(self.of(task) for task in tasks):
            return one_by_one(function, tasks)
        with closing(sqlite3.connect(str(make_url(self.url).database))) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            answers = one_by_one(function, tasks)
        self.refused += sum(bool(one.away) for one in answers)
        return answers


def is_of(table: str) -> Callable[[Task], bool]:
    return lambda task: isinstance(task, RowsTask) and task.selection.table == table


def commit(databases: Databases) -> None:
    """A message of the window with its effect in each group, long after its row was written."""
    at_ms = databases.asked["window"]["start_ms"] + 1_000
    (topic,) = {s["topic"] for s in databases.asked["subscriptions"]}
    sends = next(group for s in databases.asked["subscriptions"] for group in s["producer_groups"])
    tag = next((s["tags"][0] for s in databases.asked["subscriptions"] if s["tags"]), None)
    row = {"unique_key": KEY, "topic": topic, "tag": tag, "producer_group": sends, "created_at_ms": at_ms}
    groups = [s["group"] for s in databases.asked["subscriptions"]]
    effects = [{"unique_key": KEY, "topic": topic, "consumer_group": group} for group in groups]
    inbox = [{**one, "source": "consumer", "applied_at_ms": at_ms + 1_000} for one in effects]
    paid = [{"message_key": KEY, "topic": topic, "consumer_group": group} for group in groups]
    for url, table, rows in (
        (databases.outbox_url, tables.outbox, [{**row, "state": "ANNOUNCED"}]),
        (databases.inbox_url, tables.inbox, inbox),
        (databases.inbox_url, EFFECTS, paid),
    ):
        with disposed(sa.create_engine(url)) as engine, engine.begin() as connection:
            connection.execute(sa.insert(table), rows)


def given_sources(databases: Databases, given: str) -> Sources:
    """Effects are of the window's time, says their query."""
    sources = databases.sources()
    effects = {
        key: replace(one, query=one.query.replace("WHERE", "WHERE :start_ms < :end_ms AND"))
        for key, one in sources.effects.items()
    }
    return replace(sources, effects=effects, inboxes=sources.inboxes if "inboxes" in given else {})


def judged(
    databases: Databases, folder: Path, sources: Sources, run: Runner = one_by_one, waiting: Waiting | None = None
) -> JudgedWindow:
    folder.mkdir()
    request = databases.request(sources)
    if not sources.inboxes:
        request = replace(request, subscriptions=tuple(replace(s, inbox=False) for s in request.subscriptions))
    collect(request, folder, run, quiet, waiting)
    return judge_here(folder)


@pytest.fixture
def databases(sqlite: Databases, monkeypatch: pytest.MonkeyPatch) -> Databases:
    """In SQLite, which waits for no lock."""
    monkeypatch.setattr(database, "CONNECT_TIMEOUT_SECONDS", 0)
    return sqlite


BOTH, EFFECTS_ALONE = "inboxes and effects", "effects alone"
OUTBOX, INBOX, LEDGER = is_of(tables.outbox.name), is_of(tables.inbox.name), is_of(tables.candidate.name)


@pytest.mark.parametrize(
    ("away", "of", "given", "is_counted"),
    [
        ("outbox", OUTBOX, BOTH, True),
        ("outbox", OUTBOX, EFFECTS_ALONE, True),
        ("inbox", INBOX, BOTH, True),
        ("inbox", lambda task: isinstance(task, EffectsTask), BOTH, True),
        ("inbox", lambda task: isinstance(task, EffectsTask), EFFECTS_ALONE, True),
        # Neither row was there when outboxes and inboxes were read: the next window counts the commit.
        ("ledger", LEDGER, BOTH, False),
        ("inbox", lambda task: isinstance(task, LookUpTask), BOTH, False),
    ],
    ids=["outbox", "outbox-effects-alone", "inbox", "effects", "effects-alone", "ledger", "look-ups"],
)
def test_a_commit_while_a_source_is_away_is_never_lost(
    databases: Databases, tmp_path: Path, away: str, of: Callable[[Task], bool], given: str, is_counted: bool
) -> None:
    sources = given_sources(databases, given)
    before = judged(databases, tmp_path / "before", sources)
    locked = Locked(getattr(databases, f"{away}_url"), of)

    def back() -> None:
        locked.is_over = True
        commit(databases)

    hours = Hours(back)
    found = judged(databases, tmp_path / "away", sources, locked.run, hours.waiting())
    assert (locked.refused > 0, len(hours.pauses)) == (True, 1)
    after = judged(databases, tmp_path / "after", sources)
    assert after.classes["EFFECT_IN_TIME"] > before.classes["EFFECT_IN_TIME"]
    expected = after if is_counted else before
    assert (found.classes, found.findings) == (expected.classes, expected.findings)


def test_a_source_that_stays_away_is_named_and_no_evidence(databases: Databases, tmp_path: Path) -> None:
    locked, hours = Locked(databases.inbox_url, INBOX), Hours()
    asked = []

    def run(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
        if parts := [task.part for task in tasks if isinstance(task, RowsTask)]:
            asked.append(parts)
        return locked.run(function, tasks)

    with pytest.raises(
        AuditError, match=r"--inbox .*: the database did not answer .* locked; it was asked \d+ times"
    ) as none:
        judged(databases, tmp_path / "evidence", databases.sources(), run, hours.waiting())
    assert none.value.reason == "inputs"
    assert not (tmp_path / "evidence" / "evidence.json").exists()
    assert WAIT_SECONDS_MAX / 2 < sum(hours.pauses) <= WAIT_SECONDS_MAX
    assert len(asked[0]) > 1
    assert not [parts for parts in asked[1:] if any("outbox" in part for part in parts)], "what was given is kept"
    assert not [parts for parts in asked[1:] if len(parts) > len(databases.sources().inboxes)], "one task a source"


def test_who_is_away_at_the_start_is_told_at_once(databases: Databases, tmp_path: Path) -> None:
    paused: list[float] = []
    locked = Locked(databases.outbox_url, OUTBOX)
    with pytest.raises(AuditError, match=r"--outbox .* did not answer to the end"):
        judged(
            databases,
            tmp_path / "evidence",
            databases.sources(),
            locked.run,
            Waiting(clock=lambda: 0, pause=paused.append),
        )
    assert (locked.refused > 0, paused) == (True, [])


def test_what_waiting_does_not_mend_is_told_at_once(databases: Databases, tmp_path: Path) -> None:
    """A table that is not there, beside a source that is away."""
    with disposed(sa.create_engine(databases.inbox_url)) as engine:
        tables.inbox.drop(engine)
    locked, hours = Locked(databases.outbox_url, OUTBOX), Hours()
    with pytest.raises(AuditError, match="there is no table reconciler_inbox"):
        judged(databases, tmp_path / "evidence", databases.sources(), locked.run, hours.waiting())
    assert (locked.refused > 0, hours.pauses) == (True, [])


class CutRelay(Relay):
    """Ends the first `cuts` connections that bring more than `after_bytes`, behind these."""

    def __init__(self, port: int, *, after_bytes: int, cuts: int) -> None:
        super().__init__(port)
        self._after_bytes, self.cuts = after_bytes, cuts

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        self.spawn(self._carry, client, server, None)
        self.spawn(self._carry, server, client, self._after_bytes)

    def _carry(self, source: socket.socket, target: socket.socket, after_bytes: int | None) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                carried += len(data)
                if after_bytes is not None and carried > after_bytes and self.cuts:
                    self.cuts -= 1
                    break
                target.sendall(data)
        shut(source)
        shut(target)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def test_a_connection_that_breaks_among_the_rows_is_made_again(
    kind: str, generated: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    databases = load_databases(generated, request.getfixturevalue(f"{kind}_server").create_database)
    expected = judged(databases, tmp_path / "expected", databases.sources())
    url = make_url(databases.inbox_url)
    assert url.port is not None
    with CutRelay(url.port, after_bytes=8_192, cuts=1) as relay:
        relay.start()
        through = url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
        hours = Hours()
        found = judged(
            databases, tmp_path / "cut", replace(databases, inbox_url=through).sources(), waiting=hours.waiting()
        )
    assert (relay.cuts, hours.pauses) == (0, [1.0])
    assert (found.classes, found.findings) == (expected.classes, expected.findings)
