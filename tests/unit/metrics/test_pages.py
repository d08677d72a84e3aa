"""/metrics, /livez and /readyz over HTTP: each answers within a bound, whatever is away."""

from __future__ import annotations

import http.client
import json
import logging
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import prometheus_client.values
import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.errors import ConfigurationError
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.instrumentation.metrics.catalogue import Sample
from reconciler.instrumentation.metrics.pages import MetricPages
from reconciler.instrumentation.metrics.reading import STALE_SECONDS, LatestReading
from reconciler.instrumentation.metrics.serving import CONNECTIONS_MAX, REQUESTS_MAX, serving
from tests.polling import eventually
from tests.services.ports import free_port
from tests.unit.metrics.measured_world import scraped

Answer = tuple[int, dict[str, str], bytes]
Results = Mapping[str, str | None] | None
INTERVAL_SECONDS = 10.0


@contextmanager
def served(results: Results = None, book: MetricBook | None = None) -> Iterator[tuple[str, int]]:
    pages = MetricPages(book or MetricBook("run"), readiness=lambda: results)
    with serving(pages, f"127.0.0.1:{free_port()}") as where:
        yield where


def asked(where: tuple[str, int], path: str, method: str = "GET", *, host: str = "") -> Answer:
    connection = http.client.HTTPConnection(*where, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_a_process_that_waits_for_everything_is_alive_and_not_ready() -> None:
    with served({"redis": None, "ledger": "connection refused"}) as where:
        assert asked(where, "/livez")[0] == 200
        status, headers, body = asked(where, "/readyz")
    assert (status, headers["retry-after"]) == (503, "10")
    checks = {"redis": "ok", "ledger": "connection refused"}
    assert json.loads(body) == {"status": "not ready", "checks": checks}


def test_the_numbers_of_a_process_are_its_own_where_its_service_counts_in_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PROMETHEUS_MULTIPROC_DIR, which `replay` has from its service, with and without what an earlier process left."""
    values: Any = prometheus_client.values  # untyped in parts
    for folder in (tmp_path, tmp_path / "missing"):
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
        monkeypatch.setattr(values, "ValueClass", values.MultiProcessValue())
        for _ in range(2):
            book = MetricBook("run")
            book.add(c.OUTAGES, "away", amount=2)
            for value in (0.1, 3.0, 1e9):
                book.observe(c.ROUND_DURATION, "ORDERS", "billing", value=value)
            numbers = scraped(book)
            assert numbers["reconciler_outages_total{reason=away}"] == 2
            place = "consumer_group=billing,topic=ORDERS"
            assert numbers[f"reconciler_round_duration_seconds_count{{{place}}}"] == 3
            assert numbers["reconciler_round_duration_seconds_bucket{consumer_group=billing,le=+Inf,topic=ORDERS}"] == 3
            assert numbers["reconciler_round_duration_seconds_bucket{consumer_group=billing,le=5.0,topic=ORDERS}"] == 2
            assert numbers[f"reconciler_round_duration_seconds_sum{{{place}}}"] == pytest.approx(1e9 + 3.1)
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("evil.example", "away"),
        ("evil.example:9378", "away"),
        ("localhost.evil.example", "away"),
        ("127.0.0.1.evil.example", "away"),
        ("a b", "away"),
        ("localhost:9378", "connection refused"),
        ("10.0.0.7:9378", "connection refused"),
        ("[::1]:9378", "connection refused"),
    ],
)
def test_a_page_of_another_site_reads_the_errors_of_dependencies_by_a_name_of_its_own(host: str, told: str) -> None:
    with served({"redis": None, "ledger": "connection refused"}) as where:
        status, _, body = asked(where, "/readyz", host=host)
    assert (status, json.loads(body)["checks"]) == (503, {"redis": "ok", "ledger": told})


def test_a_process_whose_dependencies_answer_is_ready() -> None:
    with served({"redis": None}) as where:
        status, headers, body = asked(where, "/readyz")
    assert (status, json.loads(body)["status"]) == (200, "ready")
    assert "retry-after" not in headers


def test_dependencies_that_could_not_be_asked_in_time_are_not_ready() -> None:
    with served(None) as where:
        assert asked(where, "/readyz")[0] == 503


def test_metrics_are_text_for_a_browser_and_head_and_other_pages_have_their_answers() -> None:
    book = MetricBook("run")
    book.add(c.BREAKER_OPENINGS, "ORDERS")
    with served(book=book) as where:
        status, headers, body = asked(where, "/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain")
        assert b'reconciler_breaker_openings_total{topic="ORDERS"} 1.0' in body
        status, headers, body = asked(where, "/metrics", "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0
        assert asked(where, "/")[0] == 404
        status, headers, _ = asked(where, "/metrics", "POST")
        assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_port_in_use_names_the_setting_and_the_way_out() -> None:
    pages = MetricPages(MetricBook("run"), readiness=dict)
    with served() as (host, port), pytest.raises(ConfigurationError, match=r"RECONCILER_METRICS__LISTEN"):
        serving(pages, f"{host}:{port}").__enter__()


def test_clients_that_say_nothing_keep_no_other_from_its_answer() -> None:
    with served() as where:
        silent = [socket.create_connection(where) for _ in range(REQUESTS_MAX + 1)]
        try:
            assert asked(where, "/livez")[0] == 200
        finally:
            for connection in silent:
                connection.close()


def test_a_crowd_of_silent_clients_is_bounded_and_leaves_room_when_it_goes() -> None:
    with served() as where:
        with ExitStack() as crowd:
            silent, peaks = list[socket.socket](), list[int]()
            for _ in range(2 * CONNECTIONS_MAX):
                silent.append(crowd.enter_context(socket.create_connection(where)))
                peaks.append(len(serving_threads()))

            def are_turned_away() -> bool:
                peaks.append(len(serving_threads()))
                return len(select.select(silent, [], [], 0)[0]) >= CONNECTIONS_MAX

            eventually(are_turned_away, within_seconds=30)
            assert max(peaks) <= CONNECTIONS_MAX
        eventually(lambda: answered(where), within_seconds=30)


def serving_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]


def answered(where: tuple[str, int]) -> bool:
    try:
        return asked(where, "/livez")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_two_books_in_one_process_share_nothing() -> None:
    first, second = MetricBook("run"), MetricBook("run")
    first.add(c.BREAKER_OPENINGS, "ORDERS")
    assert "reconciler_breaker_openings_total{topic=ORDERS}" in scraped(first)
    assert "reconciler_breaker_openings_total{topic=ORDERS}" not in scraped(second)


def test_a_reader_that_fails_costs_its_own_values_only(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Iterator[Sample]:
        raise KeyError("a bug")

    book = MetricBook("run")
    with book.reading(fails), caplog.at_level(logging.ERROR):
        assert scraped(book, [Sample(c.OUTAGE_OPEN, (), 1)])["reconciler_outage_open"] == 1
    assert "metrics_unread" in caplog.text


def test_readers_end_with_what_they_read() -> None:
    book = MetricBook("run")
    with book.reading(lambda: [Sample(c.OUTAGE_OPEN, (), 1)]):
        assert "reconciler_outage_open" in scraped(book)
    assert "reconciler_outage_open" not in scraped(book)


# ---- the newest answer of something slow


class PatientClock(ManualClock):
    """Waits for real: time that passes because a thread is slow would make a young answer old."""

    #: False: nothing that hangs is waited for.
    is_patient = True

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        return event.wait(60) if self.is_patient else super().wait(event, timeout_seconds)


def test_a_hundred_scrapes_cost_one_reading_until_it_is_old() -> None:
    clock, readings = PatientClock(), list[int]()

    def read() -> int:
        readings.append(1)
        return len(readings)

    latest = LatestReading(read, clock=clock, interval_seconds=INTERVAL_SECONDS)
    assert [latest.get() for _ in range(100)] == [1] * 100
    clock.advance(INTERVAL_SECONDS + 1)
    assert latest.get() == 2
    assert len(readings) == 2


def test_a_console_that_nobody_looks_at_costs_no_reading() -> None:
    """Its interval is shorter than that of scrapes and notices, which ask all the time."""
    clock, readings = PatientClock(), list[int]()

    def read() -> int:
        readings.append(1)
        return len(readings)

    latest = LatestReading(read, clock=clock, interval_seconds=60.0)
    assert [latest.get(), latest.get(10.0)] == [1, 1]
    clock.advance(11)
    assert latest.get() == 1
    assert latest.get(10.0) == 2, "somebody looks"
    assert latest.get() == 2, "the younger answer is for all"


def test_a_page_waits_for_one_reading_after_the_other() -> None:
    both = threading.Barrier(2, timeout=60)
    first, second = (
        LatestReading(both.wait, clock=PatientClock(), interval_seconds=INTERVAL_SECONDS) for _ in range(2)
    )
    second.begin()
    assert {first.get(), second.get()} == {0, 1}, "neither ends before both have begun"
    assert first.begin() is None


def test_a_reading_that_hangs_is_shown_as_unknown_and_never_for_ever_as_calm() -> None:
    clock, goes_on, readings = PatientClock(), threading.Event(), list[int]()

    def read() -> str:
        readings.append(1)
        if len(readings) > 1:
            goes_on.wait(60)
        return "calm"

    latest = LatestReading(read, clock=clock, interval_seconds=INTERVAL_SECONDS)
    assert latest.get() == "calm"
    clock.is_patient = False
    clock.advance(INTERVAL_SECONDS + 1)
    assert latest.get() == "calm", "a moment old, while a new one is read"
    clock.advance(STALE_SECONDS)
    assert latest.get() is None
    clock.is_patient = True
    goes_on.set()
    assert latest.get() == "calm"
    assert len(readings) == 2, "one reading at a time"


def test_what_was_changed_since_is_shown_as_it_was_before() -> None:
    goes_on, began, readings = threading.Event(), threading.Event(), list[int]()

    def read() -> int:
        readings.append(1)
        number = len(readings)
        if number == 2:
            began.set()
            goes_on.wait(60)
        return number

    latest = LatestReading(read, clock=ManualClock(), interval_seconds=INTERVAL_SECONDS)
    eventually(lambda: latest.get() == 1, within_seconds=30)
    latest.outdate()
    assert latest.get() == 1, "nobody waits for ever"
    assert began.wait(30)
    latest.outdate()
    goes_on.set()
    eventually(lambda: latest.get() == 3, within_seconds=30)
    assert {latest.get() for _ in range(100)} == {3}


def test_a_reading_that_fails_is_unknown_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, failures = PatientClock(), [ValueError("a bug")]

    def read() -> str:
        if failures:
            raise failures.pop()
        return "read"

    latest = LatestReading(read, clock=clock, interval_seconds=INTERVAL_SECONDS)
    assert latest.get() is None
    clock.advance(INTERVAL_SECONDS + 1)
    assert latest.get() == "read"
    assert "metrics_unread" in caplog.text


def test_a_slow_reading_is_kept_for_longer_so_that_it_costs_little() -> None:
    class Slow(SystemClock):
        seconds = 0.0

        def monotonic_seconds(self) -> float:
            return self.seconds

    clock, readings = Slow(), list[int]()

    def read() -> int:
        readings.append(1)
        clock.seconds += 2.0
        return len(readings)

    latest = LatestReading(read, clock=clock, interval_seconds=INTERVAL_SECONDS)
    assert latest.get() == 1
    clock.seconds += 25.0
    assert latest.get() == 1
    clock.seconds += 10.0
    assert latest.get() == 2
