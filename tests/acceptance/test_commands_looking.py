"""What commands tell of one deployment in which something has happened, as JSON, as tables and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from reconciler.rocketmq.wire.message import Message
from tests.acceptance.command import RECONCILER, one_object, reconciler
from tests.acceptance.deployment import Deployment
from tests.acceptance.marked_secrets import require_no_secret_in_files
from tests.ended import Ended
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("lived"),  # one deployment is lived in, not one a worker
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A deployment in which something has happened: messages by what became of them."""

    deployed: Deployment
    delivered: list[str]
    repaired: list[str]
    rolled_back: str
    once: Ended


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory, services: tuple[str, str]) -> Iterator[Lived]:
    """Two messages delivered, two lost and repaired by `once`, one rolled back; no process works on it any more."""
    folder = tmp_path_factory.mktemp("lived")
    with (
        ExitStack() as stack,
        Deployment(folder, redis_url=services[0], name_servers=services[1], has_marked_secrets=True) as deployment,
    ):
        consumer = deployment.consume()
        producer = deployment.producer()
        delivered = deployment.commit(2, producer=producer)
        lost = deployment.commit(2, lose=True, producer=producer)
        message = Message(topic=deployment.topic, body=b"no")
        with (
            closing(sqlite3.connect(deployment.outbox, isolation_level=None)) as connection,
            suppress(ArithmeticError),
            producer.transaction(message) as tx,
        ):
            connection.execute("BEGIN IMMEDIATE")
            tx.record(connection)
            connection.rollback()
            raise ArithmeticError("the business says no")
        rolled_back = deployment.rows(
            deployment.outbox, "SELECT unique_key FROM reconciler_outbox WHERE state = 'ROLLED_BACK'"
        )
        eventually(lambda: deployment.effects() == sorted(delivered), within_seconds=60)
        once = deployment.command("once", "--output", "json")
        stack.callback(consumer.shutdown)
        yield Lived(deployed=deployment, delivered=delivered, repaired=lost, rolled_back=rolled_back[0], once=once)
        require_no_secret_in_files(folder)


def test_once_finds_repairs_and_verifies_and_ends_with_0(lived: Lived) -> None:
    document = one_object(lived.once)
    assert (document["repairs_unfinished"], document["repairs_failed"]) == (0, 0)
    (line,) = document["subscriptions"]
    assert (line["losses"], line["repaired"], line["pending"], line["problems"]) == (2, 2, 0, [])
    assert lived.deployed.effects() == sorted(lived.delivered + lived.repaired)


def test_status_is_calm_after_everything_was_repaired(lived: Lived) -> None:
    document = one_object(lived.deployed.command("status", "--output", "json"))
    assert document["needs_a_person"] is False
    assert document["away"] == []
    (line,) = document["subscriptions"]
    assert (line["pending"], line["weaker"]) == (0, "no sweep on record")
    assert document["summary"].startswith("All is well: every commit until ")
    assert sum(row["repairs"] for row in document["repairs"]) == 2


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("candidates", "--state", "settled"), 2),
        (("candidates", "--state", "OPEN"), 0),
        (("candidates", "--verdict", "PARKED"), 0),
        (("candidates", "--limit", "1"), 1),
        (("repairs", "--state", "DONE"), 2),
        (("repairs", "--state", "FAILED"), 0),
        (("quarantine",), 0),
        (("outages",), 0),
        (("floors",), None),
    ],
)
def test_list_gives_rows_by_their_state(lived: Lived, arguments: tuple[str, ...], count: int | None) -> None:
    rows = one_object(lived.deployed.command("list", *arguments, "--output", "json"))[arguments[0]]
    if count is None:
        assert rows
    else:
        assert len(rows) == count


def test_list_that_is_cut_says_so(lived: Lived) -> None:
    for limit, has_more in ((1, True), (2, False)):
        ended = lived.deployed.command("list", "candidates", "--limit", str(limit), "-o", "json")
        document = one_object(ended)
        assert (len(document["candidates"]), document["has_more"]) == (limit, has_more)
        assert ("only the first 1: there are more" in ended.stderr) is has_more


@pytest.mark.parametrize("chosen", [("--topic", "ODERS"), ("--group", "biling")])
def test_repair_of_a_misspelt_topic_does_not_say_that_nothing_is_to_be_done(
    lived: Lived, chosen: tuple[str, str]
) -> None:
    ended = lived.deployed.command("repair", "--all", "--dry-run", *chosen)
    assert ended.exit_code == 2
    assert "no [[subscriptions]] section has it" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("repairs", "--state", "SETTLED"), "expected one of OPEN, SENDING"),
        (("repairs", "--verdict", "PARKED"), "does not apply to repairs"),
        (("outages", "--topic", "T"), "does not apply to outages"),
    ],
)
def test_filter_that_a_listing_does_not_know_is_refused(lived: Lived, arguments: tuple[str, ...], part: str) -> None:
    ended = lived.deployed.command("list", *arguments)
    assert ended.exit_code == 2
    assert part in ended.stderr


@pytest.mark.parametrize("command", ["status", "list", "doctor"])
def test_table_needs_no_terminal_and_holds_no_escape_codes(lived: Lived, command: str) -> None:
    ended = lived.deployed.command(command)
    assert ended.exit_code == 0, ended.stderr
    assert lived.deployed.topic in ended.stdout
    assert "\x1b" not in ended.stdout


def told(lived: Lived, key: str, *, code: int = 0) -> dict[str, Any]:
    return one_object(lived.deployed.command("explain", key, "--output", "json"), code=code)


def test_explain_tells_a_repaired_message_in_time_order_with_evidence(lived: Lived) -> None:
    story = told(lived, lived.repaired[0])
    events = story["events"]
    assert [e["at_ms"] for e in events] == sorted(e["at_ms"] for e in events)
    words = [e["what"] for e in events]
    inbox = f"took effect in {lived.deployed.group}"
    expected = [
        "half message stored",
        f"first seen unmatched for {lived.deployed.topic}/{lived.deployed.group} in round",
        "repair opened for every group",
        "repair sent by end for every group",
        "repair verified for every group",
    ]
    found = [next(i for i, text in enumerate(words) if text.startswith(part)) for part in expected]
    assert found == sorted(found)
    assert inbox in words
    assert {e["witness"] for e in events} == {"outbox", "broker", "inbox", "ledger"}
    halves = {e["evidence"]["commit_log_offset"] for e in events if e["what"].startswith("half")}
    committed = next(e for e in events if e["what"] == "visible to consumers")
    assert committed["evidence"]["from_half_at"] in halves


def test_explain_tells_a_delivered_message_without_any_repair(lived: Lived) -> None:
    story = told(lived, lived.delivered[0])
    words = " | ".join(e["what"] for e in story["events"])
    assert "announced on the unique-key topic" in words
    assert "visible to consumers" in words
    assert "repair" not in words
    assert story["outlook"] == [f"{lived.deployed.topic}/{lived.deployed.group}: done, the message took effect"]


def test_explain_tells_a_rolled_back_message(lived: Lived) -> None:
    words = [e["what"] for e in told(lived, lived.rolled_back)["events"]]
    assert "a tombstone was written: the transaction counts as rolled back" in words
    assert "visible to consumers" not in words


def test_explain_of_a_key_that_nobody_knows_is_2(lived: Lived) -> None:
    assert told(lived, "F" * 32, code=2)["known"] is False
    ended = lived.deployed.command("explain", "F" * 32)
    assert ended.exit_code == 2
    assert ended.stdout.startswith("no witness knows ")
    malformed = lived.deployed.command("explain", "not-a-key")
    assert malformed.exit_code == 2
    assert "no witness knows the business id 'not-a-key', and it is no unique key" in malformed.stdout


def test_everything_of_a_business_id_is_found_by_it_and_repaired_by_choice_only(lived: Lived) -> None:
    with closing(sqlite3.connect(lived.deployed.outbox)) as connection, connection:
        rename = "UPDATE reconciler_outbox SET business_id = ? WHERE unique_key = ?"
        of_order = [*lived.repaired, lived.delivered[0]]
        connection.executemany(rename, [("order-1", key) for key in of_order])
        connection.execute(rename, ("order-2", lived.delivered[1]))
    document = told(lived, "order-1")
    assert sorted(story["unique_key"] for story in document["messages"]) == sorted(of_order)
    assert all("took effect" in story["outlook"][0] for story in document["messages"])
    shown = lived.deployed.command("explain", "order-2")
    assert f"Life of {lived.delivered[1]}" in shown.stdout
    assert "_ms" not in shown.stdout
    listed = one_object(lived.deployed.command("list", "candidates", "--key", "order-1", "-o", "json"))["candidates"]
    assert sorted(row["unique_key"] for row in listed) == sorted(lived.repaired)
    refused = lived.deployed.command("repair", "order-1")
    assert refused.exit_code == 2
    assert all(key in refused.stderr for key in of_order)
    looked = one_object(lived.deployed.command("repair", "order-1", "--dry-run", "-o", "json"))
    assert {row["verdict"] for row in looked["keys"]} == {"CONSUMED"}
    assert len(looked["keys"]) == len(of_order)
    alone = one_object(lived.deployed.command("repair", "order-2", "-o", "json"))
    assert [row["unique_key"] for row in alone["keys"]] == [lived.delivered[1]]


def test_explain_as_a_table_shows_time_witness_and_evidence(lived: Lived) -> None:
    ended = lived.deployed.command("explain", lived.repaired[0])
    assert ended.exit_code == 0
    assert f"Life of {lived.repaired[0]}" in ended.stdout
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ended.stdout)
    assert "done, the message took effect" in ended.stdout


def test_doctor_finds_nothing_wrong_and_names_strangers(lived: Lived, deployed: Deployment) -> None:
    document = one_object(lived.deployed.command("doctor", "--output", "json"))
    assert document["healthy"] is True
    assert {f["level"] for f in document["findings"]} <= {"ok", "note"}
    checked = " ".join(f["check"] for f in document["findings"])
    for part in (
        "redis eviction",
        "ledger",
        "outbox of",
        "inbox of",
        "name server",
        "broker",
        "topic",
        "group",
        "clocks",
    ):
        assert part in checked
    # The same topic, seen by a deployment that configures another group.
    lived.deployed.config.with_suffix(".other").write_text(
        lived.deployed.config.read_text().replace(f'group = "{lived.deployed.group}"', 'group = "shipping"')
    )
    other = reconciler("doctor", "--config", lived.deployed.config.with_suffix(".other"), "-o", "json").document
    strangers = [f for f in other["findings"] if f["found"] == "reads the topic and is not configured"]
    assert [f["check"] for f in strangers] == [f"group {lived.deployed.topic}/{lived.deployed.group}"]


def test_rebuild_puts_the_inbox_back_and_needs_a_time_without_an_outage(lived: Lived) -> None:
    document = one_object(lived.deployed.command("rebuild", "--since", "2020-01-01", "--output", "json"))
    assert document["scanned"] == 4
    text = lived.deployed.command("rebuild", "--since", "2020-01-01T00:00:00")
    assert text.stdout == "4 inbox rows put back\n"
    refused = lived.deployed.command("rebuild")
    assert refused.exit_code == 2
    assert "--since" in refused.stderr


# ----------------------------------------------------------------- on a terminal


def on_a_terminal(*arguments: str, environment: dict[str, str]) -> str:
    """What a person sees: standard output and standard error on a terminal of 100 columns."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(str(RECONCILER), [str(RECONCILER), *arguments], {**os.environ, "COLUMNS": "100", **environment})
    seen, deadline = b"", time.monotonic() + 60
    with os.fdopen(terminal, "rb", buffering=0) as output:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([output], [], [], 1)
            try:
                part = output.read(65536) if ready else None
            except OSError:  # Linux: the other end is closed
                break
            if part == b"":
                break
            seen += part or b""
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, seen.decode(errors="replace")
    return seen.decode(errors="replace")


def test_progress_and_colours_are_for_terminals_and_no_color_is_honoured(lived: Lived) -> None:
    arguments = ("rebuild", "--since", "2020-01-01", "--config", str(lived.deployed.config))
    plain = {"TERM": "xterm-256color"}
    colour = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])(?:;\d+)*m")
    seen = on_a_terminal(*arguments, environment=plain)
    assert "inbox rows" in seen
    assert "4 inbox rows put back" in seen
    assert colour.search(seen)
    without = on_a_terminal(*arguments, environment={**plain, "NO_COLOR": "1"})
    assert not colour.search(without)
    piped = lived.deployed.command(*arguments[:-2])
    assert piped.stdout == "4 inbox rows put back\n"
    assert piped.stderr == ""
