"""The log: every line one JSON object, no secret and no body in it, nothing of a plug-in's extra fields lost."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest

from reconciler.clock import ManualClock
from reconciler.instrumentation.console import ask, remark
from reconciler.instrumentation.event_log import EventLog
from reconciler.instrumentation.log import configure_logging
from reconciler.words import said
from tests.unit.instrumentation.test_event_log import IDLE

Written = pytest.CaptureFixture[str]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("typed", "agrees"),
    [("y\n", True), (" YES \n", True), ("n\n", False), ("\n", False), ("yesterday\n", False), ("", None)],
)
def test_only_y_and_yes_agree_and_silence_is_no_answer(
    typed: str, agrees: bool | None, capsys: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert ask("Rename it? [y/N]: ") is agrees
    assert capsys.readouterr().err.startswith("Rename it? [y/N]: ")


def test_every_record_is_one_json_object_with_level_logger_and_utc_time(capsys: Written) -> None:
    configure_logging("info", "json")
    logging.getLogger("checkback_consumers.recorder").warning("batch_late: batch of %d ids\nwas late", 7)
    (line,) = lines(capsys.readouterr().err)
    assert (line["event"], line["message"]) == ("batch_late", "batch of 7 ids\nwas late")
    assert (line["level"], line["logger"]) == ("warning", "checkback_consumers.recorder")
    assert line["timestamp"].endswith("Z")


def test_the_event_is_a_constant_word_whatever_another_library_writes(capsys: Written) -> None:
    configure_logging("info", "json")
    logging.getLogger("redis").warning("connection to %s", "alice")
    logging.getLogger("urllib3").warning("alice")
    logging.getLogger("reconciler.x").warning("word_alone")
    logging.getLogger("checkback_consumers").warning(ValueError("alice"))
    told = [(line["event"], line.get("message")) for line in lines(capsys.readouterr().err)]
    assert told == [
        ("library_message", "connection to alice"),
        ("library_message", "alice"),
        ("word_alone", None),
        ("library_message", "alice"),
    ]


def test_a_day_of_rounds_with_nothing_to_do_takes_less_than_200_kilobytes(capsys: Written) -> None:
    configure_logging("info", "json")
    clock = ManualClock()
    log = EventLog(said, clock)
    for _ in range(24 * 720):
        log.emit(IDLE)
        clock.advance(5.0)
    written = capsys.readouterr().err
    assert len(lines(written)) == 24
    assert len(written) < 50_000, "the rest is for what else a process tells of itself"


def test_extra_fields_of_a_plug_in_reach_the_line(capsys: Written) -> None:
    configure_logging("info", "json")
    logging.getLogger("checkback_producers").info("announced", extra={"topic": "ORDERS", "keys": 3, "digest": b"\x01"})
    (line,) = lines(capsys.readouterr().err)
    assert (line["topic"], line["keys"]) == ("ORDERS", 3)
    assert line["digest"] == "b'\\x01'", "what JSON has no form for must not cost the line"
    assert not line.keys() & {"args", "pathname", "_record", "_from_structlog"}


@pytest.mark.parametrize("name", ["body", "password", "secret", "token", "signature"])
def test_secrets_and_bodies_are_hidden_whoever_logs_them(capsys: Written, name: str) -> None:
    configure_logging("info", "json")
    logging.getLogger("somebody.else").error("failed", extra={name: "hunter2"})
    written = capsys.readouterr().err
    assert "hunter2" not in written
    assert lines(written)[0][name] == "(hidden)"


def test_an_exception_stays_in_its_line(capsys: Written) -> None:
    configure_logging("info", "json")
    try:
        raise ZeroDivisionError("nobody divides")
    except ZeroDivisionError:
        logging.getLogger("reconciler.wiring.scheduler").exception("turn_failed", extra={"job": "rounds"})
    (line,) = lines(capsys.readouterr().err)
    assert "ZeroDivisionError: nobody divides" in line["exception"]
    assert (line["level"], line["job"]) == ("error", "rounds")


def test_the_level_counts_for_all_and_the_scheduler_is_silent_unless_it_warns(capsys: Written) -> None:
    configure_logging("warning", "json")
    logging.getLogger("reconciler").info("not asked for")
    configure_logging("debug", "json")
    logging.getLogger("reconciler").debug("asked_for")
    logging.getLogger("apscheduler.executors").info("Running job")
    logging.getLogger("apscheduler.executors").warning("skipped")
    assert [line["event"] for line in lines(capsys.readouterr().err)] == ["asked_for", "library_message"], (
        "and none is written twice"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("style", "stream", "is_json"),
    [
        ("auto", io.StringIO, True),
        ("auto", Terminal, False),
        ("json", Terminal, True),
        ("console", io.StringIO, False),
    ],
)
def test_people_get_text_and_machines_json(
    monkeypatch: pytest.MonkeyPatch,
    style: Any,
    stream: type[io.StringIO],
    is_json: bool,
) -> None:
    written = stream()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging("info", style)
    logging.getLogger("reconciler").info("round_finished", extra={"secret": "hunter2"})
    assert "round_finished" in written.getvalue()
    assert "hunter2" not in written.getvalue()
    assert written.getvalue().startswith("{") == is_json


def test_progress_never_gets_into_the_data_on_standard_output(capsys: Written) -> None:
    remark("40 messages sent")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "40 messages sent\n"
