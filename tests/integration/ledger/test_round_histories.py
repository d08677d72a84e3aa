"""Random histories of a shard on a real Redis whose replies get lost, with and without the retries of redis-py.

Against a plain model: nothing is lost, announced = matched + pending + settled, ages never rise, and what is read back
for the history is what every round moved, also the rounds that nobody heard of. More of them:
`pytest --hypothesis-profile=thorough --timeout=7200 tests/integration/ledger/test_round_histories.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis.backoff import NoBackoff
from redis.retry import Retry

from reconciler.contract.unique_key import member_of
from reconciler.policy.ports.history import RoundMark
from reconciler.policy.ports.rounds import RoundDone
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from tests.contract.ledger.rows import key, shard
from tests.contract.ledger.shards import InRedis
from tests.examples import examples
from tests.integration.ledger.reply_swallower import ReplySwallower
from tests.integration.ledger.round_model import RoundModel
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

OF = shard("round-histories")
KEYS = [key(number) for number in range(40)]
#: For every answer: a round whose reply is late would count as one whose reply was lost.
PATIENT_SECONDS = 60.0
SOME = st.lists(st.sampled_from(KEYS), min_size=1, max_size=12, unique=True)


class Meddled(RedisShardMemory):
    """Something happens between WATCH and EXEC."""

    meanwhile: Callable[[], object] | None = None

    def _command(self, *arguments: Any, **values: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super()._command(*arguments, **values)


class Histories(RuleBasedStateMachine):
    """Set the services in a subclass."""

    direct: InRedis
    proxy: ReplySwallower
    rounds: RoundRedis
    lost_replies = 0

    def __init__(self) -> None:
        super().__init__()
        self.direct.wipe()
        self.memory = Meddled(self.rounds, history_generations=2)
        self.model = RoundModel()
        self.saved: tuple[object, RoundModel] | None = None
        self.mark: RoundMark | None = None
        #: The newest time that a round of this shard had, as the ledger would know it.
        self.last_ms = 0

    # ---- the other users

    @rule(keys=SOME)
    def announce(self, keys: list[str]) -> None:
        self.direct.announce(OF, keys, following=1)
        self.model.half.update(keys)

    @rule(keys=SOME)
    def consume(self, keys: list[str]) -> None:
        self.direct.consume(OF, keys)
        self.model.commits[0].update(keys)

    @rule(share=st.sampled_from([1, 2, 3]))
    @precondition(lambda self: self.model.pending)
    def consume_what_is_pending(self, share: int) -> None:
        self.consume(sorted(self.model.pending)[::share])

    @rule(data=st.data())
    @precondition(lambda self: self.model.pending)
    def settle(self, data: Any) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.model.pending)), min_size=1, max_size=9, unique=True))
        assert self.memory.forget(OF, some) == len(some)
        self.model.settle(set(some))

    # ---- rounds

    def epoch(self) -> str:
        return self.memory.begin_epoch(OF)

    def ran(self, done: RoundDone | None) -> None:
        """The model's round; what is told of the real one must be equal."""
        expected = self.model.round()
        if done is not None:
            assert done.counts == expected
            assert done.generation == self.model.generation
            assert done.at_ms > self.last_ms
            self.last_ms = done.at_ms

    @rule()
    def round(self) -> None:
        done = self.memory.take_round(OF, epoch=self.epoch(), not_before_ms=self.last_ms + 1)
        assert done is not None
        self.ran(done)

    @rule(is_told_later=st.booleans())
    def round_whose_reply_is_lost(self, is_told_later: bool) -> None:
        epoch = self.epoch()
        self.proxy.swallow(1)
        assert self.memory.take_round(OF, epoch=epoch, not_before_ms=self.last_ms + 1) is None
        type(self).lost_replies += 1
        self.ran(None)
        assert self.memory.state(OF).generation == self.model.generation, "the fence moved once"
        if is_told_later:
            self.capture()

    @rule(keys=SOME, are_consumed=st.booleans())
    def round_while_others_write(self, keys: list[str], are_consumed: bool) -> None:
        epoch = self.epoch()
        self.memory.meanwhile = lambda: (self.consume if are_consumed else self.announce)(keys)
        done = self.memory.take_round(OF, epoch=epoch, not_before_ms=self.last_ms + 1)
        assert done is not None
        self.ran(done)

    @rule(is_reply_lost=st.booleans())
    def round_after_which_another_owner_was_quicker(self, is_reply_lost: bool) -> None:
        epoch = self.epoch()
        self.memory.meanwhile = lambda: self.ran(
            self.direct.memory.take_round(OF, epoch=epoch, not_before_ms=self.last_ms + 1)
        )
        self.proxy.swallow(int(is_reply_lost))
        assert self.memory.take_round(OF, epoch=epoch, not_before_ms=self.last_ms + 1) is None
        self.proxy.swallow(0)
        assert self.memory.state(OF).generation == self.model.generation

    # ---- the history

    @rule()
    def capture(self) -> None:
        capture = self.direct.captures.capture(OF, after=self.mark)
        assert capture.generation == self.model.generation
        first = self.mark.generation if self.mark is not None and self.mark.epoch == capture.epoch else 0
        told = [one.generation for one in capture.rounds]
        missed = [] if capture.missed is None else list(range(capture.missed[0], capture.missed[1] + 1))
        if not capture.fell_back:
            assert missed + told == list(range(first + 1, capture.generation + 1))
            assert len(told) >= min(2, capture.generation - first), "two rounds are kept"
        for one in capture.rounds:
            moved = self.model.moved[one.generation]
            for members, expected in (
                (one.announced, moved.announced), (one.consumed, moved.consumed), (one.left_matched, moved.late)
            ):  # fmt: skip
                assert list(members) == sorted(member_of(key) for key in expected)
        if capture.rounds:
            self.mark = capture.rounds[-1].mark
            self.last_ms = max(self.last_ms, self.mark.at_ms)

    # ---- Redis

    @rule(what=st.sampled_from(["save", "save", "fall back", "fall back", "wipe"]))
    def redis_has_bad_luck(self, what: str) -> None:
        if what == "wipe":
            self.direct.wipe()
            self.model, self.saved = RoundModel(), None
        elif what == "save":
            self.saved = (self.direct.snapshot(), self.model.copy())
        elif self.saved is not None:
            snapshot, model = self.saved
            self.direct.restore(snapshot)
            self.model = model.copy()

    # ---- what must hold at any time

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        assert self.direct.half(OF) == self.model.half
        assert set(self.direct.pending(OF)) == self.model.pending

    @invariant()
    def ages_never_rise(self) -> None:
        now = self.direct.pending(OF)
        assert {key: at for key, at in now.items() if key in self.model.ages} == {
            key: at for key, at in self.model.ages.items() if key in now
        }
        self.model.ages = now

    @invariant()
    def announced_is_matched_or_pending_or_settled(self) -> None:
        assert self.model.is_conserved


def patient(url: str) -> RoundRedis:
    return open_redis(url, timeout_seconds=PATIENT_SECONDS, round_timeout_seconds=PATIENT_SECONDS)


@pytest.mark.unmeasured
@pytest.mark.parametrize("retries", [0, 3], ids=["no-retry", "redis-py-retries"])
def test_histories_with_lost_replies_agree_with_the_model(redis_server: RedisServer, retries: int) -> None:
    plain = patient(redis_server.url)
    with (
        redis.Redis.from_url(redis_server.url, socket_timeout=PATIENT_SECONDS) as client,
        ReplySwallower(redis_server.port) as proxy,
    ):
        client.config_set("appendfsync", "no")
        if retries:
            retrying = redis.Redis.from_url(
                proxy.url, socket_timeout=PATIENT_SECONDS, retry=Retry(NoBackoff(), retries)
            )
            rounds = RoundRedis(client=retrying)
        else:
            rounds = patient(proxy.url)
        direct = InRedis(client, plain, history_generations=2)
        machine: Any = type("Machine", (Histories,), {"direct": direct, "proxy": proxy, "rounds": rounds})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples(60),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        rounds.close()
    plain.close()
    assert machine.lost_replies > examples(60)
