"""A process that has no free file descriptor or thread: the error says so, and accuses no server."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import sqlalchemy as sa
from prometheus_client.exposition import ThreadingWSGIServer
from redis import exceptions
from redis.sentinel import MasterNotFoundError

from reconciler.clock import ManualClock
from reconciler.contract.own_limits import lacking
from reconciler.errors import DatabaseAway, RedisAway, RedisUnasked
from reconciler.instrumentation.metrics import serving
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.instrumentation.metrics.pages import MetricPages
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.shards.access import translate
from reconciler.sql.driver_errors import away, is_silent
from reconciler.sql.engines import reading
from reconciler.wiring.scheduler import Tick, TickRunner
from tests.engines import disposed
from tests.polling import eventually
from tests.services.ports import free_port

TOO_MANY = os.strerror(errno.EMFILE)
MORE_FILES = "raise the limit of open files of this process"
ENGINE = sa.create_engine("sqlite:///nowhere.db")


@pytest.fixture
def no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, TOO_MANY)

    monkeypatch.setattr("reconciler.contract.own_limits.os.open", refuse)


def raised(outer: Exception, inner: Exception) -> Exception:
    """As a library raises it whose handler does not say from what."""
    try:
        try:
            raise inner
        except type(inner):
            raise outer  # noqa: B904
    except type(outer) as error:
        return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (raised(exceptions.ConnectionError("Error 24 connecting to redis:6379."), OSError(errno.EMFILE, "")), True),
        (MasterNotFoundError("No master found for 'mymaster' : Sentinel<...> - Error 24 connecting to s:26379."), True),
        (
            raised(exceptions.ConnectionError("Error 111 connecting to redis:6379."), OSError(errno.ECONNREFUSED, "")),
            False,
        ),
        (exceptions.TimeoutError("Timeout connecting to server"), False),
        (exceptions.ResponseError("OOM command not allowed when used memory > 'maxmemory'"), False),
    ],
)
def test_an_error_of_this_process_says_nothing_about_redis(error: Exception, *, told: bool) -> None:
    found = translate(error)
    assert isinstance(found, RedisAway)
    assert isinstance(found, RedisUnasked) is told
    assert (MORE_FILES in str(found)) is told


def test_a_name_that_is_looked_up_without_a_descriptor_is_no_missing_name(no_descriptor: None) -> None:
    unknown = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert MORE_FILES in lacking(raised(exceptions.ConnectionError("Error -3 connecting to redis:6379."), unknown))


def test_a_name_that_is_missing_is_no_lack_of_descriptors() -> None:
    assert lacking(socket.gaierror(socket.EAI_NONAME, "Name or service not known")) == ""


@pytest.mark.parametrize(
    "text",
    [
        "unable to open database file",
        "connection is bad: no error details available",
        f"connection failed: could not create socket: {TOO_MANY}",
    ],
)
def test_databases_that_no_descriptor_reaches_are_not_to_be_started(no_descriptor: None, text: str) -> None:
    found = away(sqlite3.OperationalError(text), ENGINE)
    assert MORE_FILES in found.remedy


def test_errors_that_came_of_each_other_are_read_once() -> None:
    """An error that is raised while another one is handled, which was raised while the first one was."""
    first, second = DatabaseAway("orders: not reached"), ConnectionError("lost")
    first.__context__, second.__context__ = second, first
    assert lacking(first) == ""
    assert not is_silent(first)


def test_a_file_of_sqlite_that_is_missing_is_still_told_so() -> None:
    assert "reconciler db upgrade" in away(sqlite3.OperationalError("unable to open database file"), ENGINE).remedy


def test_a_driver_that_waits_by_a_descriptor_raises_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    with disposed(sa.create_engine("sqlite://")) as engine:
        for number, translated in ((errno.EMFILE, DatabaseAway), (errno.EIO, OSError)):
            with pytest.raises(translated), reading(engine):
                raise OSError(number, os.strerror(number))


class NoThread(threading.Thread):
    """Starts as a thread of a process that has as many as it may."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", NoThread)
        yield patch


def test_a_turn_that_got_no_thread_begins_the_next_time(
    no_threads: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turns = threading.Semaphore(0)
    begun = Tick(name="rounds ORDERS", interval_seconds=1.0, run=turns.release, is_begun=True)
    beginning = Tick(name="rounds", interval_seconds=1.0, run=lambda: runner.begin(begun.name))
    runner = TickRunner([beginning, begun], stop=threading.Event(), clock=ManualClock())
    for _ in range(2):
        assert not runner._run_turn(beginning)
    (line,) = [vars(one) for one in caplog.records]
    assert (line["msg"], line["job"], line["cause"]) == ("turn_skipped", "rounds", "RuntimeError")
    assert "raise the limit of threads of this process" in line["error"]
    no_threads.undo()
    assert runner._run_turn(beginning)
    assert turns.acquire(timeout=60)


def test_a_reading_that_got_no_thread_is_made_the_next_time(no_threads: pytest.MonkeyPatch) -> None:
    latest = LatestReading(lambda: "calm", clock=ManualClock(), interval_seconds=10.0)
    with pytest.raises(RuntimeError):
        latest.get()
    no_threads.undo()
    ended = latest.begin()
    assert ended is not None
    assert ended.wait(60)
    assert latest.get() == "calm"


def test_pages_are_served_again_once_connections_can_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    is_short = threading.Event()
    is_short.set()
    accept = ThreadingWSGIServer.get_request

    def accept_if_free(server: ThreadingWSGIServer) -> object:
        if is_short.is_set():
            tried.append(1)
            raise OSError(errno.EMFILE, TOO_MANY)
        return accept(server)

    monkeypatch.setattr(ThreadingWSGIServer, "get_request", accept_if_free)
    pages = MetricPages(MetricBook("run"), readiness=lambda: None)
    with serving.serving(pages, f"127.0.0.1:{free_port()}") as where, socket.create_connection(where) as asking:
        asking.settimeout(60)
        asking.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        eventually(lambda: len(tried) >= 2, within_seconds=60)
        assert len(tried) < 100, "the loop waits"
        is_short.clear()
        assert b"200 OK" in asking.recv(100)


def test_a_connection_that_got_no_thread_leaves_its_place_to_others(no_threads: pytest.MonkeyPatch) -> None:
    no_threads.undo()
    pages = MetricPages(MetricBook("run"), readiness=lambda: None)
    with serving.serving(pages, f"127.0.0.1:{free_port()}") as where:
        no_threads.setattr(threading, "Thread", NoThread)
        for _ in range(serving.CONNECTIONS_MAX + 1):
            with socket.create_connection(where) as asking, suppress(ConnectionError):
                asking.settimeout(60)
                assert asking.recv(1) == b""
        no_threads.undo()
        with socket.create_connection(where) as asking:
            asking.settimeout(60)
            asking.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert b"200 OK" in asking.recv(100)
