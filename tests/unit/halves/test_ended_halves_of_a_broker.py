"""Halves whose end is known, read from the embedded broker, and `reconciler doctor --commit-query`, which tries a query
on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.wiring.ended_halves import ClusterSample, sample_ended
from reconciler.wiring.half_scan import ScanRequest
from tests.polling import eventually
from tests.settings_file import commit_queries_file
from tests.unit.embedded.check_back_stage import Stage, stage, two_stages
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.shop_of_halves import COMMIT, ROLLBACK, shop_of

#: Between rounds that the broker begins by itself.
ROUNDS_BY_HAND_SECONDS = 10_000.0


@pytest.fixture(params=["4.9", "5.x"])
def play(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(request.param, check_interval_seconds=ROUNDS_BY_HAND_SECONDS) as made:
        yield made


def sampled(play: Stage, *, topic: str = TOPIC, address: str = "") -> ClusterSample:
    request = ScanRequest(name_servers=address or play.broker.address, clock=play.clock)
    return sample_ended(request, {topic: "KEYS"}, progress=lambda *_: None)


def keys(sample: ClusterSample) -> tuple[list[str], list[str]]:
    halves = sample.topics[TOPIC]
    return tuple([copy.business_key for copy in some] for some in (halves.committed, halves.rolled_back))  # type: ignore[return-value]


def test_each_half_whose_end_is_known_is_there_once_the_newest_first(play: Stage) -> None:
    late, wrong = play.half("L", KEYS="late"), play.half("W", KEYS="wrong")
    play.round()  # puts both back
    play.end(late, COMMIT)
    play.end(wrong, ROLLBACK)
    for number in range(3):
        play.clock.advance(1)
        play.end(play.half(f"C{number}", KEYS=f"c{number}"), COMMIT)
        play.end(play.half(f"R{number}", KEYS=f"r{number}"), ROLLBACK)
    play.half("open", KEYS="open")
    play.write_ends()
    assert keys(sampled(play)) == (["c2", "c1", "c0", "late"], ["r2", "r1", "r0", "wrong"])
    assert sampled(play, topic="OTHER").topics["OTHER"].committed == []


def test_a_half_whose_message_is_on_another_broker_was_not_rolled_back() -> None:
    with two_stages() as (one, other, address):
        one.end(one.half("K1", KEYS="k1"), ROLLBACK)
        one.end(one.half("K2", KEYS="k2"), ROLLBACK)
        other.end(other.half("K1", KEYS="k1"), COMMIT)
        one.write_ends()
        other.write_ends()
        eventually(lambda: len(sampled(one, address=address).brokers) == 2, within_seconds=30)
        assert keys(sampled(one, address=address)) == (["k1"], ["k2"])


@pytest.mark.parametrize(("family", "code"), [("4.2", "scan.in-no-queue"), ("4.4", "query.ends-unreadable")])
def test_what_a_release_does_not_tell_is_said(family: str, code: str) -> None:
    with stage(family, check_interval_seconds=ROUNDS_BY_HAND_SECONDS) as play:
        play.end(play.half("C", KEYS="c"), COMMIT)
        play.end(play.half("R", KEYS="r"), ROLLBACK)
        play.round()
        sample = sampled(play)
        (broker,) = sample.brokers
        told = [*([] if broker.unread is None else [broker.unread]), *broker.notes]
        assert [note.code.name for note in told] == [code]
        assert keys(sample) == (["c"] if family == "4.4" else [], [])


def told(play: Stage, file: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]]]:
    code = run(["doctor", "--commit-query", file, "-n", play.broker.address, "--output", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["healthy"] is (code == 0)
    return code, {one["facts"]["check"]["code"]: one for one in document["findings"]}


def test_doctor_tells_of_a_query_whether_it_can_be_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stage("5.x") as play:
        shop_of(tmp_path, play, halves=20)
        code, found = told(play, str(commit_queries_file(tmp_path, TOPIC)), capsys)
        assert (code, found["doctor.query-trust"]["level"]) == (0, "note")  # of SQLite not everything is known
        assert (
            found["doctor.query-committed-halves"]["found"] == "of 20 halves that ended in commit it calls 20 committed"
        )
        sql = "SELECT number, 'PAID' FROM orders WHERE number IN (:keys) AND number > 'c1'"
        blind = str(commit_queries_file(tmp_path, TOPIC, sql=sql))
        code, found = told(play, blind, capsys)
        assert (code, found["doctor.query-trust"]["level"]) == (1, "fail")
        missed = found["doctor.query-committed-halves"]
        assert {one["facts"]["check"]["fields"]["key"] for one in missed["following"]} == {"C0", "C1"}  # type: ignore[attr-defined]
        assert run(["doctor", "--commit-query", blind, "-n", play.broker.address]) == 1
        assert "accept it" in " ".join(capsys.readouterr().out.split())


def test_doctor_leaves_it_to_a_person_where_few_halves_were_rolled_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage("5.x") as play:
        shop_of(tmp_path, play, halves=19)
        code, found = told(play, str(commit_queries_file(tmp_path, TOPIC)), capsys)
    assert code == 1
    facts = found["doctor.query-trust"]["facts"]
    assert facts["remedy"]["code"] == "doctor.accept-by-person"  # type: ignore[index]


def test_doctor_wants_a_cluster_for_a_commit_query_and_nothing_of_it_without(tmp_path: Path) -> None:
    assert run(["doctor", "--commit-query", str(commit_queries_file(tmp_path, TOPIC))]) == 2
    assert run(["doctor", "--tls"]) == 2
    assert run(["doctor", "--commit-query", str(commit_queries_file(tmp_path, TOPIC)), "-n", "127.0.0.1:1"]) == 3
