"""END on an older half copy: it delivers, the broker forgets it, goes on asking, and parks the message.

So neither a half that was put back nor a parked one is a loss where the real topic has the message.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.clock import SystemClock
from reconciler.contract.tables import Rung
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.open_halves import HalfState, OpenHalves
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.words import said
from tests.integration.policy.test_thin_thread import GROUP, Thread, build
from tests.polling import eventually
from tests.services.fixtures import SharedClusters
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import VERSIONS, marks
from tests.unit.policy.world import TOPIC

CASES = [
    "4.9",
    "5.x",
    *(pytest.param(version, marks=[*marks(version), pytest.mark.nightly]) for version in ("4.9.7", "5.5.0")),
]


@pytest.fixture(params=CASES)
def thread(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Iterator[Thread]:
    if request.param in VERSIONS:
        cluster = shared_clusters.get(request.param)
        with patient_instance(cluster.name_servers) as instance:
            yield build(instance, cluster.broker().address, cluster.broker().name, (Rung.END, Rung.REPUBLISH))
        return
    settings = BrokerSettings(
        check_interval_seconds=0.2, transaction_timeout_seconds=0.1, check_max=3, finished_batch_interval_seconds=0.05
    )
    with (
        EmbeddedBroker(family=request.param, settings=settings) as broker,
        patient_instance(broker.name_servers) as instance,
    ):
        yield build(instance, broker.address, broker.settings.broker_name, (Rung.END, Rung.REPUBLISH))


def halves(thread: Thread, key: str) -> tuple[StoredMessage, ...]:
    return thread.evidence.half_copies(TOPIC, key, horizon=thread.horizon, not_before_ms=0, outbox=None)().records


def test_a_message_that_was_delivered_late_and_parked_is_no_loss_and_is_not_sent_again(thread: Thread) -> None:
    key = thread.lose_end()
    first = eventually(lambda: found[0] if len(found := halves(thread, key)) > 1 else None, within_seconds=60)
    assert first.check_times is None
    repairs = RemotingBrokerRepairs(thread.instance, english=said)
    answer = repairs.end_transaction(first, expected=thread.outbox.rows[key].seen.message, commit=True)()()
    assert answer.outcome == "DONE", answer

    def is_parked() -> bool:
        return thread.evidence.parked_copies(TOPIC, key, horizon=thread.horizon, not_before_ms=0)().is_found

    eventually(is_parked, within_seconds=90, message="the broker has forgotten the END")
    assert thread.copies(key)[0].prepared_transaction_offset == first.commit_log_offset
    subscription = thread.plan.subscriptions[0].subscription

    def verdict() -> Verdict:
        thread.rounds.run(subscription)
        found = thread.rounds.keys_by_hand.judge_one(subscription, key, dry_run=True).entry.verdict
        if found in LOSSES:
            pytest.fail(f"a delivered message was called {found}")  # an AssertionError is waited out by eventually()
        return found

    eventually(lambda: verdict() is Verdict.LAGGING, within_seconds=60)
    seen = OpenHalves(
        brokers=thread.evidence,
        sends=repairs,
        outbox=thread.outbox,
        inbox=thread.inbox,
        readers=lambda _: [GROUP],
        clock=SystemClock(),
    ).look(thread.plan, key, ledger=KeyInLedger())
    assert seen.state is HalfState.COMMITTED
    thread.consume()
    eventually(lambda: verdict() is Verdict.CONSUMED, within_seconds=60)
    assert (len(thread.copies(key)), thread.state(key)) == (1, None)
