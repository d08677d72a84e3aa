"""From events and rounds into the history: nothing lost by failures, everything that is lost told, nothing waits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.contract.subscription import Shard
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState, Rung
from reconciler.contract.unique_key import key_of, member_of
from reconciler.contract.verdicts import Verdict
from reconciler.history import recorder
from reconciler.history.positions import HistoryPositions
from reconciler.history.segment import SegmentWriter
from reconciler.policy.events import (
    KeysLeft,
    KeysNotTaken,
    LeftKey,
    RepairStepped,
    RoundFinished,
    ShardRoundRan,
    ShardsAtRest,
    VerdictsWritten,
)
from reconciler.policy.ports.history import Capture, RoundMark
from reconciler.policy.ports.ledger import VerdictEntry
from tests.unit.contract.keys import GO, OF_CLIENTS
from tests.unit.history.house import BILLING, EPOCH, House, shard, some_keys


def left(keys: list[bytes]) -> KeysLeft:
    gone = [LeftKey(unique_key=key_of(k), state=CandidateState.SETTLED, verdict=Verdict.CONSUMED) for k in keys]
    return KeysLeft(shard=shard(0), keys=gone)


def stepped(key: bytes, attempts: int = 1) -> RepairStepped:
    return RepairStepped(
        environment=BILLING.environment,
        topic=BILLING.topic,
        scope=EVERY_GROUP,
        unique_key=key_of(key),
        rung=Rung.END,
        before=RepairState.SENDING,
        after=RepairState.SENT,
        attempts=attempts,
        answer="SUCCESS",
        answer_code="repair.answered",
    )


def noted(steps: list[str], step: str, function: Callable[..., object]) -> Callable[..., object]:
    """The function, which notes each call as a step."""

    def call(*arguments: object) -> object:
        steps.append(step)
        return function(*arguments)

    return call


@pytest.mark.parametrize("size", [0, 15, 33, 300])
def test_a_member_that_is_no_key_stops_no_capture_and_spoils_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    """A login with SADD can put anything into a commit set; no audit reads a file with it."""
    house = House(tmp_path)
    junk, keys = b"x" * size, some_keys(2)
    house.round(0, announced=keys, consumed=[junk, *keys], left=[junk])
    house.round(1, announced=keys)
    house.rounds.pending[shard(0)] = [(junk, 5), (keys[0], 6)]
    house.recorder.run_pass(shutdown=True)
    house.seal()
    assert {shard(0), shard(1)} <= house.recorder.marks.keys()
    assert house.keys("consumed") == sorted(keys)
    assert (house.keys("left"), house.keys("pending")) == ([], [keys[0]])
    [row] = [row for row in house.rows("round") if row["shard"] == 0]
    assert (row["announced"], row["consumed"], row["left_matched"]) == (2, 2, 0)
    [told] = [record for record in caplog.records if record.message == "history_junk_left_out"]
    assert vars(told)["members"] == 2


def test_keys_of_every_client_are_in_the_files_as_they_are_in_redis(tmp_path: Path) -> None:
    house = House(tmp_path)
    keys = sorted(member_of(key) for key in (*OF_CLIENTS, GO.upper(), "a" * 16, "Z" * 64))
    junk = [b"\0" + bytes(32), b"\0" + GO.encode()[:-1] + b"/", b"\0" + bytes(64)]
    house.round(0, announced=[*keys, *junk], consumed=keys)
    house.rounds.pending[shard(0)] = [(junk[0], 5), *((key, 6) for key in keys)]
    house.recorder.run_pass(shutdown=True)
    house.seal()
    assert house.keys("announced") == house.keys("consumed") == house.keys("pending") == keys
    entry = json.loads(min(tmp_path.rglob("manifest/**/*.json")).read_bytes())
    assert entry["version"] == 2


def test_keys_that_a_group_does_not_take_are_told_as_left(tmp_path: Path) -> None:
    house = House(tmp_path)
    keys = some_keys(3)
    house.round(0, announced=keys)
    house.sink.emit(KeysNotTaken(shard=shard(0), unique_keys=[key_of(k) for k in keys]))
    house.recorder.run_pass()
    house.seal()
    assert house.keys("left") == sorted(keys)
    assert {(row["reason"], row["detail"]) for row in house.rows("left")} == {("NOT_TAKEN", None)}


def test_every_id_of_every_round_is_there_once_with_its_round(tmp_path: Path) -> None:
    house = House(tmp_path)
    announced, consumed = some_keys(12, seed=1), [*some_keys(4, seed=2, size=17), b"\x00" * 32, b"\x00" * 28]
    house.round(0, announced=announced[:7], consumed=consumed)
    house.round(1, announced=announced[7:], left=announced[:5])
    house.seal()
    assert house.keys("announced") == sorted(announced)
    assert house.keys("consumed") == sorted(consumed)
    assert house.keys("left") == sorted(announced[:5])
    assert {(row["reason"], row["detail"]) for row in house.rows("left")} == {("MATCHED", None)}
    rounds = {row["shard"]: row for row in house.rows("round")}
    assert (rounds[0]["announced"], rounds[0]["consumed"], rounds[0]["left_matched"]) == (7, 6, 0)
    assert (rounds[1]["announced"], rounds[1]["left_matched"], rounds[1]["pending_after"]) == (5, 5, 7)
    assert {row["generation"] for row in house.rows("announced")} == {1}
    assert house.rows("gap") == []


def test_a_round_whose_reply_was_lost_is_captured_with_the_next_one_and_its_counts_are_unknown(tmp_path: Path) -> None:
    house = House(tmp_path)
    [lost, told] = some_keys(2)
    house.rounds.run(shard(0), announced=[lost])
    house.round(0, announced=[told])
    house.seal()
    assert house.keys("announced") == sorted([lost, told])
    assert [(row["generation"], row["pending_after"]) for row in house.rows("round")] == [(1, None), (2, 7)]


def test_rounds_that_rotated_away_are_told_as_a_gap_with_their_generations(tmp_path: Path) -> None:
    house = House(tmp_path)
    first = house.round(0)
    house.recorder.run_pass()
    for _ in range(5):
        done = house.round(0)
    house.seal()
    [gap] = house.rows("gap")
    assert (gap["shard"], gap["epoch"], gap["stream"]) == (0, EPOCH, "round")
    assert (gap["first_generation"], gap["last_generation"]) == (2, 4)
    assert (gap["from_ms"], gap["at_ms"]) == (first.at_ms, done.at_ms - 1_000)
    assert [row["generation"] for row in house.rows("round")] == [1, 5, 6]
    assert house.counters.rounds_missed == 3
    house.round(0)
    house.seal()
    assert len(house.rows("gap")) == 1, "told once"


def test_a_gap_is_told_once_even_where_no_round_can_be_read_at_all(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0)
    house.recorder.run_pass()
    house.rounds.kept = 0
    house.round(0)
    house.recorder.run_pass()
    house.round(0)
    house.seal()
    assert [(g["first_generation"], g["last_generation"]) for g in house.rows("gap")] == [(2, 2), (3, 3)]


def test_lost_memory_after_everything_was_captured_is_no_gap(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0, announced=some_keys(1))
    house.recorder.run_pass()
    house.rounds.epoch = "test:0002"
    house.round(0, announced=some_keys(1, seed=1))
    house.seal()
    assert house.rows("gap") == []
    assert {(row["epoch"], row["generation"]) for row in house.rows("round")} == {(EPOCH, 1), ("test:0002", 1)}


def test_rounds_lost_with_redis_memory_are_told_as_a_gap(tmp_path: Path) -> None:
    house = House(tmp_path)
    first = house.round(0)
    house.recorder.run_pass()
    house.round(0)
    house.round(0)
    house.rounds.epoch = "test:0002"
    again = house.round(0)
    house.seal()
    [gap] = house.rows("gap")
    assert (gap["epoch"], gap["first_generation"], gap["last_generation"]) == (EPOCH, 2, 3)
    assert (gap["from_ms"], gap["at_ms"]) == (first.at_ms, again.at_ms)


def house_that_lost_rounds(folder: Path, floors: dict[str, int] | None, *, anew: bool = True) -> House:
    """Rounds 2 and 3 went with Redis' memory; announcements were read up to 10 by round 1, and up to 20 by 3."""
    house = House(folder, floors=lambda of, queues: floors if of == shard(0) and "broker-a/0" in queues else None)
    house.rounds.offsets = {"broker-a/0": 10}
    house.round(0)
    house.recorder.run_pass()
    house.rounds.offsets = {"broker-a/0": 20}
    house.round(0)
    house.round(0)
    house.rounds.epoch = "test:0002"
    for _ in range(1 if anew else 3):
        house.round(0)
    house.seal()
    return house


def test_rounds_lost_with_redis_memory_are_no_gap_where_their_announcements_are_read_again(tmp_path: Path) -> None:
    house = house_that_lost_rounds(tmp_path, {"broker-a/0": 10})
    [row] = house.rows("reread")
    assert (row["shard"], row["epoch"], row["first_generation"], row["last_generation"]) == (0, EPOCH, 2, 3)
    first, again = sorted(house.rows("round"), key=lambda one: int(one["at_ms"]))
    assert (row["from_ms"], row["at_ms"]) == (first["at_ms"], again["at_ms"])
    assert json.loads(row["sources"]) == {"broker-a/0": 10}
    assert house.rows("gap") == []
    assert house.counters.rounds_missed == 0
    house.rounds.offsets = {"broker-a/0": 25}
    house.round(0)
    house.seal()
    assert len(house.rows("reread")) == 1, "told once"


@pytest.mark.parametrize(
    ("floors", "anew"),
    [
        pytest.param({"broker-a/0": 11}, True, id="the floor has passed the last round that was captured"),
        pytest.param({"broker-a/0": 10, "broker-b/0": 1}, True, id="that round knew nothing of a queue"),
        pytest.param(None, True, id="the group has no inbox"),
        pytest.param({"broker-a/0": 10}, False, id="the counter went on: offsets may be there still"),
    ],
)
def test_rounds_lost_with_redis_memory_stay_a_gap(tmp_path: Path, floors: dict[str, int] | None, anew: bool) -> None:
    house = house_that_lost_rounds(tmp_path, floors, anew=anew)
    assert house.rows("reread") == []
    assert [(g["first_generation"], g["last_generation"]) for g in house.rows("gap") if g["epoch"] == EPOCH] == [(2, 3)]


def test_no_round_counts_as_captured_before_its_rows_survive_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    steps: list[str] = []
    with monkeypatch.context() as spied:
        spied.setattr(SegmentWriter, "append", noted(steps, "append", SegmentWriter.append))
        spied.setattr(SegmentWriter, "sync", noted(steps, "sync", SegmentWriter.sync))
        spied.setattr(house.sink, "captured", noted(steps, "captured", house.sink.captured))
        house.round(0, announced=some_keys(2))
        house.recorder.run_pass()
    assert steps.index("append") < steps.index("captured")
    assert steps[steps.index("captured") - 1] == "sync"


def test_a_snapshot_survives_a_loss_of_power_before_the_next_day_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    house.round(0, announced=some_keys(2))
    house.recorder.run_pass()
    house.rounds.pending[shard(0)] = [(some_keys(1)[0], 5)]
    steps: list[str] = []
    with monkeypatch.context() as spied:
        spied.setattr(SegmentWriter, "append", noted(steps, "append", SegmentWriter.append))
        spied.setattr(SegmentWriter, "sync", noted(steps, "sync", SegmentWriter.sync))
        house.recorder.run_pass(shutdown=True)
    assert "append" in steps
    assert steps[-1] == "sync"


def test_a_finished_round_is_a_row_of_the_gate_and_one_without_a_shard_is_none(tmp_path: Path) -> None:
    house = House(tmp_path)
    finished = RoundFinished(
        subscription=BILLING, at_ms=house.clock.now_ms(), shards_run=2, shards_skipped=0, announced=9, matched=8,
        pending_after=1, oldest_pending_seconds=2.5, gate="shut", gate_detail=None, watermark_ms=7, became_due=4,
        verified=3, settled=2, broker_look_ups=2, verdicts={}, repairs={}, holds=(), weaker=False,
    )  # fmt: skip
    house.sink.emit(finished)
    house.sink.emit(replace(finished, at_ms=0, shards_run=0, shards_skipped=2))
    house.seal()
    [row] = house.rows("gate")
    seen = (row["gate"], row["watermark_ms"], row["pending"], row["became_due"], row["verified"], row["settled"])
    assert seen == ("shut", 7, 1, 4, 3, 2)


def test_a_restart_goes_on_where_the_dead_process_stopped(tmp_path: Path) -> None:
    dead = House(tmp_path)
    before, meanwhile, after = some_keys(3)
    dead.round(0, announced=[before])
    dead.recorder.run_pass()
    dead.rounds.run(shard(0), announced=[meanwhile])
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    house.recorder.run_pass()  # the catch-up, before its first round
    house.round(0, announced=[after])
    house.seal()
    assert house.keys("announced") == sorted([before, meanwhile, after])
    assert [row["generation"] for row in house.rows("round")] == [1, 2, 3]
    assert house.rows("gap") == []
    assert sorted(p.name for p in house.spool_folder.iterdir()) == ["writer-2"]


def test_a_restart_after_a_clean_seal_reads_its_place_from_the_history(tmp_path: Path) -> None:
    first = House(tmp_path)
    first.round(0, announced=some_keys(1))
    first.seal()
    first.dies()
    for n in range(2):
        first.rounds.run(shard(0), announced=some_keys(1, seed=n + 1))
    house = House(tmp_path, rounds=first.rounds, writer="writer-2")
    house.seal()
    assert [row["generation"] for row in house.rows("round")] == [1, 2, 3]
    assert [row["generation"] for row in house.rows("announced")].count(1) == 1, "not captured again"


def test_a_history_that_begins_behind_rounds_of_before_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file system may not be mounted: the history then begins in the folder below the mount point."""
    first = House(tmp_path, last_stored=lambda _: None)
    last = first.round(0, announced=some_keys(1))
    first.recorder.run_pass()
    begun = [record for record in caplog.records if record.getMessage() == "history_begins"]
    assert not begun, "the first rounds of all"
    for folder, is_told in ((tmp_path, False), (tmp_path / "unmounted", True)):
        first.dies()
        first = House(folder, rounds=first.rounds, writer=f"writer-{folder.name}", last_stored=lambda _: last)
        first.recorder.run_pass()
        first.seal()
        begun = [record for record in caplog.records if record.getMessage() == "history_begins"]
        assert bool(begun) is is_told
    assert begun[0].__dict__["folder"] == str(tmp_path / "unmounted" / "history")
    assert begun[0].__dict__["rounds_until_ms"] == last.at_ms


def test_rounds_that_another_daemon_ran_are_no_gap_here(tmp_path: Path) -> None:
    """The other one has captured them; if it has not, every reader sees the hole between the generations."""
    house = House(tmp_path)
    house.round(0)
    house.recorder.run_pass()
    for _ in range(6):
        house.rounds.run(shard(0))
    house.round(0)
    house.seal()
    assert house.rows("gap") == []
    assert [row["generation"] for row in house.rows("round")] == [1, 7, 8]


def test_a_long_failure_is_told_with_all_its_rounds(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0)
    house.recorder.run_pass()
    house.rounds.is_away = True
    for _ in range(40):
        house.round(0)
        house.recorder.run_pass()
    house.rounds.is_away = False
    house.seal()
    assert [(g["first_generation"], g["last_generation"]) for g in house.rows("gap")] == [(2, 39)]


def test_rounds_of_a_killed_process_that_went_with_redis_memory_are_told(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.round(0)
    dead.recorder.run_pass()
    dead.round(0)
    last = dead.round(0)
    dead.dies()
    dead.rounds.epoch = "test:0002"
    house = House(
        tmp_path, rounds=dead.rounds, writer="writer-2", last_stored=lambda of: last if of == shard(0) else None
    )
    house.round(0)
    house.seal()
    assert [(g["epoch"], g["first_generation"], g["last_generation"]) for g in house.rows("gap")] == [(EPOCH, 2, 3)]
    assert {(row["epoch"], row["generation"]) for row in house.rows("round")} == {(EPOCH, 1), ("test:0002", 1)}


def test_redis_away_delays_and_loses_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.rounds.is_away = True
    house.round(0, announced=some_keys(3))
    house.sink.emit(stepped(b"k" * 16))
    house.seal()
    assert house.keys("repair") == [b"k" * 16]
    assert house.rows("announced") == []
    house.rounds.is_away = False
    house.seal()
    assert house.keys("announced") == sorted(some_keys(3))


def test_one_shard_whose_redis_is_away_holds_up_no_other(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0)
    house.round(1)
    house.recorder.run_pass()
    house.clock.advance(86_400)
    house.rounds.away_captures = {shard(0)}
    house.round(0, announced=some_keys(1))
    house.round(1, announced=some_keys(1, seed=1))
    house.seal()
    assert house.keys("announced") == some_keys(1, seed=1)
    assert [row["shard"] for row in house.rows("snapshot")] == [1]
    assert house.recorder.capture_health.problem is not None
    house.rounds.away_captures = set()
    house.rounds.away_snapshots = {shard(0)}
    house.clock.advance(86_400)
    house.round(1)
    house.seal()
    assert house.keys("announced") == sorted(some_keys(1) + some_keys(1, seed=1))
    assert [row["shard"] for row in house.rows("snapshot")] == [1, 1]
    house.rounds.away_snapshots = set()
    house.seal()
    assert sorted(row["shard"] for row in house.rows("snapshot")) == [0, 1, 1]


def test_a_shard_that_found_room_is_durable_beside_one_that_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    house.recorder.run_pass()
    append, calls = SegmentWriter.append, list[int]()

    def full(self: SegmentWriter, payload: bytes) -> None:
        calls.append(len(payload))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        append(self, payload)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "append", full)
        house.round(0, announced=some_keys(1))
        house.round(1, announced=some_keys(1, seed=1))
        house.recorder.run_pass()
        assert house.recorder.marks.keys() == {shard(0)}
        assert "No space" in (house.recorder.spool_health.problem or "")
    house.seal()
    assert len(house.rows("announced")) == 2


def test_of_two_memories_that_redis_lost_the_rounds_of_both_are_told_as_gaps(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0)
    house.recorder.run_pass()
    house.rounds.is_away = True
    house.round(0)
    house.round(0)
    for epoch in ("test:0002", "test:0003"):
        house.rounds.epoch = epoch
        house.round(0)
    house.rounds.is_away = False
    house.seal()
    gaps = [(g["epoch"], g["first_generation"], g["last_generation"]) for g in house.rows("gap")]
    assert sorted(gaps) == [(EPOCH, 2, 3), ("test:0002", 1, 1)]


def test_rounds_that_went_with_redis_memory_before_and_after_a_restart_are_told(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.round(0)
    dead.recorder.run_pass()
    last = dead.round(0)
    dead.dies()
    house = House(
        tmp_path, rounds=dead.rounds, writer="writer-2", last_stored=lambda of: last if of == shard(0) else None
    )
    house.rounds.epoch = "test:0002"
    house.round(0)
    house.rounds.epoch = "test:0003"
    house.round(0)
    house.seal()
    gaps = [(g["epoch"], g["first_generation"], g["last_generation"]) for g in house.rows("gap")]
    assert sorted(gaps) == [(EPOCH, 2, 2), ("test:0002", 1, 1)]


@pytest.mark.parametrize(
    ("before", "lost"),
    [
        pytest.param({}, {"broker-b/0": 5}, id="a queue that is new"),
        pytest.param({"broker-b/0": 2}, {}, id="a queue that has gone"),
    ],
)
def test_rounds_are_a_gap_where_the_announcements_of_one_queue_alone_are_not_read_again(
    tmp_path: Path, before: dict[str, int], lost: dict[str, int]
) -> None:
    floors = {"broker-a/0": 10, "broker-b/0": 3}
    house = House(tmp_path, floors=lambda _, queues: {queue: floors[queue] for queue in queues})
    house.rounds.offsets = {"broker-a/0": 10} | before
    house.round(0)
    house.recorder.run_pass()
    house.rounds.offsets = {"broker-a/0": 20} | lost
    house.round(0)
    house.rounds.epoch = "test:0002"
    house.round(0)
    house.seal()
    assert house.rows("reread") == []
    assert [(g["epoch"], g["first_generation"]) for g in house.rows("gap")] == [(EPOCH, 2)]


def test_a_snapshot_of_many_rows_lets_rounds_go_first_and_the_end_of_the_process_waits_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SNAPSHOT_ROWS_A_PASS", 1)
    house = House(tmp_path, shards=3)
    for day in range(2):
        house.clock.advance(86_400 * day)
        for number in range(3):
            house.rounds.pending[shard(number)] = [(some_keys(1)[0], 5)]
            house.round(number)
        house.recorder.run_pass()
    house.recorder.run_pass(shutdown=True)
    house.seal()
    kinds = [(row["shard"], row["kind"]) for row in house.rows("snapshot")]
    assert sorted(kinds) == [(number, kind) for number in range(3) for kind in ("DAY_END", "SHUTDOWN")]


def test_room_of_events_that_came_while_others_were_written_stays_taken(tmp_path: Path) -> None:
    sink = House(tmp_path, event_rows_max=5).sink
    sink.emit(left(some_keys(3)))
    sink.take()
    sink.emit(left(some_keys(2, seed=1)))
    sink.written()
    sink.emit(left(some_keys(4, seed=2)))
    taken = sink.take()
    assert (len(taken.events), [dropped.rows for dropped in taken.dropped.values()]) == (1, [4])


def test_a_shard_goes_on_from_its_newest_day_although_another_one_had_its_last_round_before(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.round(0)
    dead.round(1)
    dead.seal()
    dead.clock.advance(86_400)
    dead.round(0)
    dead.seal()
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    marks = house.recorder._read_positions().marks
    assert {of.number: mark.generation for of, mark in marks.items()} == {0: 2, 1: 1}


def test_a_shard_goes_on_from_its_newest_memory_although_an_older_one_had_more_rounds(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.round(0)
    dead.round(0)
    dead.recorder.run_pass()
    dead.rounds.epoch = "test:0002"
    dead.round(0)
    dead.seal()
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    mark = house.recorder._read_positions().marks[shard(0)]
    assert (mark.epoch, mark.generation) == ("test:0002", 1)


def test_a_shard_that_another_writer_continued_goes_on_from_there(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.recorder.run_pass()
    other = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    other.recorder.run_pass()
    dead.round(0)
    dead.recorder.run_pass()
    other.round(0)
    other.seal()
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-3")
    assert house.recorder._read_positions().marks[shard(0)].generation == 2


def test_a_full_disk_loses_nothing_that_fits_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path)
    house.recorder.run_pass()

    def full(self: SegmentWriter, payload: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "append", full)
        house.round(0, announced=some_keys(3))
        house.sink.emit(left(some_keys(2)))
        house.recorder.run_pass()
        house.sink.emit(stepped(b"k" * 16))
        house.recorder.run_pass()
        assert "No space" in (house.recorder.spool_health.problem or "")
    house.seal()
    assert house.recorder.spool_health.problem is None
    assert house.keys("announced") == sorted(some_keys(3))
    assert house.keys("left") == sorted(some_keys(2))
    assert house.keys("repair") == [b"k" * 16]
    assert house.rows("gap") == []


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_what_a_sync_that_failed_has_lost_is_written_by_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """After an error a kernel may drop what it had in memory, and succeed the next time (fsyncgate)."""
    house = House(tmp_path)
    house.round(0)
    house.round(1)
    house.recorder.run_pass()
    house.clock.advance(86_400)
    house.rounds.pending[shard(0)] = [(key, 5) for key in some_keys(2, seed=2)]
    house.round(0, announced=some_keys(3))
    house.round(1, announced=some_keys(3, seed=1))
    house.sink.emit(left(some_keys(2)))
    durable = [0]
    sizes: list[int] = []

    def sync(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        if len(sizes) == nth:
            os.ftruncate(descriptor, durable[-1])
            raise OSError(5, "Input/output error")
        durable.append(os.fstat(descriptor).st_size)

    with monkeypatch.context() as patched:
        house.recorder.rotate()
        patched.setattr(os, "fdatasync", sync)
        house.recorder.run_pass()
        assert "Input/output" in (house.recorder.spool_health.problem or "")
    house.seal()
    assert house.recorder.spool_health.problem is None
    assert house.keys("announced") == sorted([*some_keys(3), *some_keys(3, seed=1)])
    assert house.keys("left") == sorted(some_keys(2))
    assert {row["shard"] for row in house.rows("snapshot")} == {0, 1}
    assert house.keys("pending") == sorted(some_keys(2, seed=2))
    assert house.rows("gap") == []


def test_events_beyond_the_bound_are_counted_and_told_as_a_gap(tmp_path: Path) -> None:
    house = House(tmp_path, event_rows_max=5)
    house.sink.emit(left(some_keys(4)))
    began_ms = house.clock.now_ms()
    house.sink.emit(left(some_keys(2, seed=1)))
    house.clock.advance(3)
    house.sink.emit(KeysNotTaken(shard=shard(0), unique_keys=[key_of(k) for k in some_keys(3, seed=2)]))
    house.sink.emit(stepped(b"k" * 16))
    house.seal()
    [gap] = house.rows("gap")
    assert (gap["stream"], gap["rows"], gap["from_ms"], gap["at_ms"]) == ("left", 5, began_ms, began_ms + 3_000)
    assert (gap["topic"], gap["consumer_group"], gap["shard"]) == ("*", "*", -1)
    assert (len(house.rows("left")), len(house.rows("repair"))) == (4, 1)
    house.sink.emit(left(some_keys(4, seed=3)))
    house.seal()
    assert len(house.rows("left")) == 8, "there is room again"


def test_a_full_spool_is_told_as_a_gap_and_not_silently_skipped(tmp_path: Path) -> None:
    house = House(tmp_path, spool_bytes_max=5_000)
    house.round(0, announced=some_keys(40, size=32))
    house.recorder.run_pass()
    for _ in range(5):
        house.round(0, announced=some_keys(40, size=32))
        house.recorder.run_pass()
    assert "spool_max_mebibytes" in (house.recorder.spool_health.problem or "")
    house.recorder.rotate()
    house.maintenance.seal_all(house.recorder.spool)
    house.seal()
    gaps = [range(gap["first_generation"], gap["last_generation"] + 1) for gap in house.rows("gap")]
    missing = {generation for gap in gaps for generation in gap}
    assert missing
    assert {row["generation"] for row in house.rows("round")} == {1, 2, 3, 4, 5, 6} - missing
    assert house.counters.rounds_missed == len(missing)


def test_pending_is_written_down_at_the_days_end_and_at_shutdown_even_if_empty(tmp_path: Path) -> None:
    house = House(tmp_path)
    members = [(key, 1_000 + n) for n, key in enumerate(some_keys(5))]
    house.rounds.pending[shard(0)] = members
    house.round(0)
    house.round(1)
    house.recorder.run_pass()
    house.seal()
    assert house.rows("snapshot") == []
    house.clock.advance(86_400)
    house.round(0)
    house.round(1)
    house.seal()
    taken = {row["shard"]: (row["kind"], row["rows"], row["generation"]) for row in house.rows("snapshot")}
    assert taken == {0: ("DAY_END", 5, 2), 1: ("DAY_END", 0, 2)}
    assert sorted((row["key"], row["first_seen_ms"]) for row in house.rows("pending")) == sorted(members)
    house.recorder.run_pass(shutdown=True)
    house.seal()
    kinds = sorted((row["shard"], row["kind"]) for row in house.rows("snapshot"))
    assert kinds == [(0, "DAY_END"), (0, "SHUTDOWN"), (1, "DAY_END"), (1, "SHUTDOWN")]
    told = {(row["shard"], row["at_ms"]) for row in house.rows("snapshot")}
    assert {(row["shard"], row["at_ms"]) for row in house.rows("pending")} <= told


def test_verdicts_carry_their_evidence(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = some_keys(1)[0]
    entry = VerdictEntry(
        unique_key=key_of(key),
        verdict=Verdict.CONSUMED,
        evidence={"inbox": {"applied_at_ms": 5}, "brokers": ["ä"]},
        first_seen_ms=77,
        state=CandidateState.SETTLED,
        wait_seconds=1.0,
    )
    house.sink.emit(VerdictsWritten(shard=shard(1), entries=[entry]))
    house.seal()
    [row] = house.rows("verdict")
    assert row["evidence"] == '{"brokers":["ä"],"inbox":{"applied_at_ms":5}}'
    assert (row["key"], row["verdict"], row["state"], row["first_seen_ms"]) == (key, "CONSUMED", "SETTLED", 77)


def test_the_same_rounds_captured_by_two_daemons_are_the_same_set_of_rows(tmp_path: Path) -> None:
    one = House(tmp_path, writer="writer-1")
    two = House(tmp_path, rounds=one.rounds, writer="writer-2")
    done = one.round(0, announced=some_keys(20), consumed=some_keys(5, seed=9))
    one.seal()
    alone = {stream: {tuple(row.items()) for row in one.rows(stream)} for stream in ("announced", "consumed")}
    two.sink.emit(ShardRoundRan(done=done))
    two.recorder._read_positions = lambda: HistoryPositions(marks={})
    two.seal()
    for stream, rows in alone.items():
        assert {tuple(row.items()) for row in two.rows(stream)} == rows


def test_until_when_a_shard_was_at_rest_is_the_snapshot_of_an_empty_pending_set(tmp_path: Path) -> None:
    house = House(tmp_path)
    done = house.round(announced=some_keys(1))
    for seconds in (10, 50):
        house.sink.emit(ShardsAtRest(looks=[(done, done.at_ms + seconds * 1000)]))
    house.seal()
    house.seal()
    [row] = house.rows("snapshot")
    assert (row["kind"], row["rows"]) == ("AT_REST", 0)
    assert (row["shard"], row["epoch"], row["generation"]) == (0, done.epoch, done.generation)
    assert row["at_ms"] == done.at_ms + 50_000, "the newest look that was told since the last pass"
    assert house.counters.captured_until_ms == row["at_ms"]


def test_a_rest_behind_a_round_that_was_not_captured_is_not_written(tmp_path: Path) -> None:
    house = House(tmp_path)
    first = house.round()
    house.recorder.run_pass()
    house.rounds.away_captures.add(shard(0))
    done = house.round(consumed=some_keys(1))
    house.sink.emit(ShardsAtRest(looks=[(done, done.at_ms + 9_000)]))
    house.seal()
    assert house.rows("snapshot") == []
    assert house.counters.captured_until_ms == first.at_ms


def test_what_left_before_a_look_is_written_before_its_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are told while a pass reads rounds: without the keys that left, the empty snapshot would accuse them."""
    house, keys = House(tmp_path), some_keys(3)
    house.round(announced=keys)
    house.recorder.run_pass()
    done = house.round()
    capture = house.rounds.capture

    def capture_slowly(of: Shard, *, after: RoundMark | None) -> Capture:
        monkeypatch.setattr(house.rounds, "capture", capture)
        house.sink.emit(KeysNotTaken(shard=shard(0), unique_keys=[key_of(key) for key in keys]))
        house.sink.emit(ShardsAtRest(looks=[(done, done.at_ms + 5_000)]))
        return capture(of, after=after)

    monkeypatch.setattr(house.rounds, "capture", capture_slowly)
    house.seal()
    assert house.rows("snapshot") == []
    house.seal()
    assert len(house.rows("snapshot")) == 1
    assert house.keys("left") == sorted(keys)
