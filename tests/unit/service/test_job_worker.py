"""A worker stops before its next key when the job is not its own any more, and gives back what it cannot end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.cli.app import run
from reconciler.clock import SystemClock
from reconciler.commands.acts.job_worker import LINES_MAX, JobWorker, working_on_jobs
from reconciler.commands.acts.jobs import (
    REASON_CHARACTERS_MAX,
    cancel_job,
    find_job,
    job_document,
    job_id_of,
    place_rebuild,
    place_repair,
)
from reconciler.commands.acts.repair import REPAIR_KEYS_MAX, RepairLine
from reconciler.contract.outcomes import KEY_FAILED
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import JobState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway, InvalidValue, UsageError
from reconciler.policy.plan import TopicPlan
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import job as job_table
from reconciler.telling.ports.jobs import Job
from reconciler.wiring.connections import Connections
from tests.engines import begun, disposed
from tests.polling import eventually

ROOT = Path(__file__).parents[3]
KEYS = [f"{number:032X}" for number in range(4)]
LEASE_SECONDS = 60.0


class PausedClock(SystemClock):
    """The machine's, and how long the process was stopped."""

    def __init__(self) -> None:
        self.paused_seconds = 0.0

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.paused_seconds


class Worker(JobWorker):
    """Does what the test says to each key."""

    def __init__(
        self, connections: Connections, repair: Callable[[str], str], *, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(connections, is_over=is_over, lease_seconds=LEASE_SECONDS)
        self.repaired: list[str] = []
        self._do = repair

    def _repair_one(
        self,
        plan: TopicPlan | None,
        subscription: Subscription,
        key: str,
        *,
        by: str,
        detail: str,
        is_changed: bool,
    ) -> RepairLine:
        self.repaired.append(key)
        outcome = "changed" if is_changed else self._do(key)
        return RepairLine(
            topic=subscription.topic,
            group=subscription.group,
            unique_key=key,
            verdict=str(Verdict.LOST_CONFIRM),
            outcome=outcome,
            rung="end",
            reason=KEY_FAILED(error=f"by {by}"),
        )


def planned(connections: Connections, keys: list[str], *, changed: Sequence[str] = ()) -> Job:
    """A job whose first owner found out what there is to do, and died. Its keys are not what the person saw any more:
    it may have repaired them for another group."""
    seen = dict.fromkeys(keys, "as it was asked for")
    job = place_repair(
        connections, keys[:REPAIR_KEYS_MAX], topic=None, group=None, reason="drill", by="anna", seen=seen
    )
    work = json.dumps(
        {"keys": [["ORDERS", "billing", key] for key in keys]} | ({"changed": changed} if changed else {})
    )
    with connections.ledger.database.writing() as connection:
        this = sa.update(job_table).where(job_table.c.job_id == job.job_id)
        connection.execute(this.values(state=JobState.RUNNING.value, work=work, total=len(keys)))
    return job


def test_what_has_changed_since_it_was_asked_for_is_not_repaired(connections: Connections) -> None:
    job = planned(connections, KEYS, changed=[KEYS[1]])
    assert Worker(connections, lambda _key: "sent").work_one()
    done = find_job(connections, job.job_id)
    assert done.counts == {"sent": len(KEYS) - 1, "changed": 1}
    assert [(line["unique_key"], line["outcome"]) for line in done.lines] == [(KEYS[1], "changed")]


def test_a_repair_ends_with_its_counts_and_with_what_did_not_end_well(connections: Connections) -> None:
    job = planned(connections, KEYS)
    worker = Worker(connections, lambda key: "failed" if key == KEYS[2] else "sent")
    assert worker.work_one()
    assert not worker.work_one()
    ended = find_job(connections, job.job_id)
    assert (ended.state, ended.done, ended.total) == (JobState.DONE, 4, 4)
    assert ended.counts == {"sent": 3, "failed": 1}
    assert [(line["unique_key"], line["reason"]) for line in ended.lines] == [(KEYS[2], "by anna")]


def test_an_owner_that_lost_its_lease_repairs_another_key(connections: Connections) -> None:
    job = planned(connections, KEYS)

    def lose(key: str) -> str:
        if key == KEYS[1]:  # as after a long pause: the lease ran out, and another one took the job
            expire(connections)
            heir = connections.ledger.jobs.claim(connections.settings.environment, token="heir", lease_seconds=60)
            assert heir is not None
            assert heir.job.done == 1
        return "sent"

    worker = Worker(connections, lose)
    assert worker.work_one()
    assert worker.repaired == KEYS[:2]
    left = find_job(connections, job.job_id)
    assert (left.state, left.done, left.token) == (JobState.RUNNING, 1, "heir")


def expire(connections: Connections) -> None:
    with begun(connections.settings.ledger.url.reveal()) as connection:
        connection.exec_driver_sql("UPDATE reconciler_job SET lease_until_ms = 1 WHERE lease_until_ms IS NOT NULL")


@pytest.mark.parametrize(("behind", "repaired"), [("claim", 0), ("change", 2)])
def test_an_owner_whose_time_is_over_repairs_a_key_before_it_asks_the_ledger(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, behind: str, repaired: int
) -> None:
    """Nobody has told it: the process was stopped for a while, or the ledger took its time to answer."""
    clock = PausedClock()
    with Connections(settings, clock=clock) as connections:
        planned(connections, KEYS)
        worker, jobs = Worker(connections, lambda _: "sent"), connections.ledger.jobs
        written = getattr(jobs, behind)

        def answers_late(*arguments: object, **named: object) -> object:
            answer = written(*arguments, **named)
            if len(worker.repaired) == repaired:
                clock.paused_seconds = LEASE_SECONDS
            return answer

        monkeypatch.setattr(jobs, behind, answers_late)
        assert worker.work_one()
        assert worker.repaired == KEYS[:repaired]


def test_a_cancelled_repair_goes_on_with_the_next_key(connections: Connections) -> None:
    job = planned(connections, KEYS)

    def cancel(key: str) -> str:
        if key == KEYS[1]:
            assert cancel_job(connections, job.job_id, by="ben").state is JobState.RUNNING
        return "sent"

    worker = Worker(connections, cancel)
    assert worker.work_one()
    assert worker.repaired == KEYS[:2]
    ended = find_job(connections, job.job_id)
    assert (ended.state, ended.done, ended.cancelled_by) == (JobState.CANCELLED, 2, "ben")


def test_a_process_that_ends_keeps_its_job_or_loses_what_is_done(connections: Connections) -> None:
    job = planned(connections, KEYS)
    stop = threading.Event()

    def stop_at_the_second(key: str) -> str:
        if key == KEYS[1]:
            stop.set()
        return "sent"

    assert Worker(connections, stop_at_the_second, is_over=stop.is_set).work_one()
    given_back = find_job(connections, job.job_id)
    assert (given_back.state, given_back.done, given_back.token) == (JobState.RUNNING, 2, None)
    heir = Worker(connections, lambda _: "sent")
    eventually(heir.work_one, within_seconds=60)
    assert heir.repaired == KEYS[2:]
    assert find_job(connections, job.job_id).counts == {"sent": 4}


def test_a_dependency_that_is_away_fails_a_job_or_is_asked_again_at_once(connections: Connections) -> None:
    job = planned(connections, KEYS)

    def away(key: str) -> str:
        if key == KEYS[1]:
            raise DatabaseAway("the outbox of orders is away")
        return "sent"

    worker = Worker(connections, away)
    assert worker.work_one()
    waits = find_job(connections, job.job_id)
    assert (waits.state, waits.done, waits.token) == (JobState.RUNNING, 1, None)
    assert waits.error == "waits: the outbox of orders is away"
    assert not worker.work_one(), "not before its time"
    expire(connections)
    heir = Worker(connections, lambda _: "sent")
    assert heir.work_one()
    assert heir.repaired == KEYS[1:]
    ended = find_job(connections, job.job_id)
    assert (ended.state, ended.error) == (JobState.DONE, None)


def test_a_job_whose_work_is_damaged_is_begun_from_another_list(connections: Connections) -> None:
    job = planned(connections, KEYS)
    with disposed(open_engine(connections.settings.ledger.url.reveal())) as engine:
        for text in ("no json", '{"keys": [["ORDERS", "billing"]]}', '{"keys": 1}'):
            with engine.begin() as connection:
                connection.exec_driver_sql(
                    "UPDATE reconciler_job SET state = 'QUEUED', ended_at_ms = NULL, work = ?", (text,)
                )
            worker = Worker(connections, lambda _: "sent")
            assert worker.work_one()
            assert worker.repaired == []
            ended = find_job(connections, job.job_id)
            assert (ended.state, "damaged" in (ended.error or "")) == (JobState.FAILED, True)


def test_a_thousand_failures_fill_the_row_without_a_bound(connections: Connections) -> None:
    keys = [f"{number:032X}" for number in range(LINES_MAX + 50)]
    job = planned(connections, keys)
    assert Worker(connections, lambda _: "failed").work_one()
    ended = find_job(connections, job.job_id)
    assert ended.counts == {"failed": LINES_MAX + 50}
    assert len(ended.lines) == LINES_MAX


def test_a_bug_in_a_job_ends_the_thread_that_does_jobs(connections: Connections) -> None:
    broken, sound = planned(connections, KEYS[:1]), planned(connections, KEYS[1:2])

    def fall(key: str) -> str:
        if key == KEYS[0]:
            raise ZeroDivisionError("division by zero")
        return "sent"

    Worker(connections, fall).work_all()
    ended = find_job(connections, broken.job_id)
    assert (ended.state, ended.error) == (JobState.FAILED, "a bug, see the log: ZeroDivisionError: division by zero")
    assert find_job(connections, sound.job_id).state is JobState.DONE


def test_the_thread_that_does_jobs_outlives_the_block_or_a_ledger_that_is_away(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    with working_on_jobs(connections):
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "jobs"]
    assert not thread.is_alive()
    missing = connections.settings.model_copy(
        update={"ledger": connections.settings.ledger.model_copy(update={"url": _nowhere(connections)})}
    )
    with Connections(missing) as away:
        worker = Worker(away, lambda _: "sent")
        assert [worker.work_all() > 1 for _ in range(3)] == [True] * 3
    told = [record for record in caplog.records if record.name.endswith("job_worker")]
    assert [record.msg for record in told] == ["jobs_wait"]
    assert not told[0].exc_info, "a page of traceback every ten seconds"


def _nowhere(connections: Connections) -> object:
    secret = connections.settings.ledger.url
    return type(secret)(f"{secret.reveal()}-gone")


@pytest.mark.parametrize(
    ("keys", "topic", "reason", "told"),
    [
        (["no key"], None, "", "unique_keys"),
        ([f"{number:032X}" for number in range(REPAIR_KEYS_MAX + 1)], None, "", "at most"),
        (KEYS, "NO_SUCH_TOPIC", "", "NO_SUCH_TOPIC"),
        (KEYS, None, "x" * (REASON_CHARACTERS_MAX + 1), "reason"),
    ],
)
def test_a_request_that_no_worker_could_do_is_placed(
    connections: Connections, keys: list[str], topic: str | None, reason: str, told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        place_repair(connections, keys, topic=topic, group=None, reason=reason, by="anna")
    assert connections.ledger.jobs.page(connections.settings.environment, limit=9).rows == []


def test_a_rebuild_without_a_time_is_placed_though_no_outage_is_open(connections: Connections) -> None:
    with pytest.raises(UsageError, match="since when"):
        place_rebuild(connections, since_ms=None, reason="", by="anna")
    connections.ledger.outages.open(connections.settings.environment, reason="AWAY", noticed_by="test")
    assert place_rebuild(connections, since_ms=None, reason="", by="anna").state is JobState.QUEUED


def test_a_repeated_request_is_another_job(connections: Connections) -> None:
    environment = connections.settings.environment
    requests = (("anna", "k1"), ("anna", "k2"), ("annak", "1"), ("ben", "k1"))
    assert len({job_id_of(environment, by, key) for by, key in requests}) == len(requests)
    job_id = job_id_of(environment, "anna", "k1")
    first = place_repair(connections, KEYS, topic=None, group=None, reason="", by="anna", job_id=job_id)
    assert place_repair(connections, KEYS, topic=None, group=None, reason="", by="anna", job_id=job_id) == first
    document = job_document(first)
    assert document["request"] == {"topic": None, "group": None, "reason": "", "named_keys": 4}
    assert not {"token", "attempts"} & set(document)


@pytest.mark.parametrize(
    ("state", "outcome", "shown", "cancelled"),
    [
        (None, "sent", 0, 0),
        (JobState.DONE, "sent", 0, 4),
        (JobState.DONE, "failed", 4, 4),
        (JobState.FAILED, "bug", 1, 4),
        (JobState.CANCELLED, "sent", 4, 0),
    ],
)
def test_an_exit_code_tells_how_a_job_ended(
    settings: Settings,
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
    state: JobState | None,
    outcome: str,
    shown: int,
    cancelled: int,
) -> None:
    job = planned(connections, KEYS)
    if state is JobState.CANCELLED:
        cancel_job(connections, job.job_id, by="ben")
    elif state is not None:
        Worker(connections, lambda key: outcome if outcome != "bug" else str(1 // key.count("X"))).work_one()
        assert find_job(connections, job.job_id).state is state
    monkeypatch.setenv("RECONCILER_LEDGER__URL", settings.ledger.url.reveal())
    config = ["--config", str(ROOT / "config" / "reconciler.toml")]
    assert run(["jobs", "list", *config]) == 0
    assert run(["jobs", "show", job.job_id, *config]) == shown
    assert run(["jobs", "cancel", job.job_id, *config]) == cancelled
    assert run(["jobs", "cancel", "nobodys", *config]) == 2
