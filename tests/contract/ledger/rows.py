"""Values for the contract tests of the ledger."""

from __future__ import annotations

import itertools

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import StoredMessage, TransactionState
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.ports.rounds import RoundCounts, RoundDone

_NUMBERS = itertools.count(1)


def key(number: int) -> str:
    return f"{number:032X}"


def new_environment() -> str:
    """No two tests share one, so they may share a database."""
    return f"test-{next(_NUMBERS)}"


def subscription(environment: str, *, topic: str = "ORDERS", group: str = "billing") -> Subscription:
    return Subscription(environment=environment, topic=topic, group=group)


def shard(environment: str, number: int = 3, *, topic: str = "ORDERS", group: str = "billing") -> Shard:
    return Shard(subscription=subscription(environment, topic=topic, group=group), number=number)


def entry(
    number: int,
    verdict: Verdict = Verdict.UNKNOWN,
    state: CandidateState = CandidateState.OPEN,
    *,
    first_seen_ms: int = 1_000,
    wait_seconds: float = 0.0,
    evidence: dict[str, object] | None = None,
    ask_again_seconds: float | None = None,
) -> VerdictEntry:
    return VerdictEntry(
        unique_key=key(number),
        verdict=verdict,
        evidence=evidence or {"outbox": "FOUND"},
        first_seen_ms=first_seen_ms,
        state=state,
        wait_seconds=wait_seconds,
        ask_again_seconds=ask_again_seconds,
    )


def round_done(
    of: Shard,
    generation: int,
    at_ms: int,
    *,
    epoch: str = "test:one",
    offsets: dict[str, int] | None = None,
    announced: int = 7,
) -> RoundDone:
    return RoundDone(
        shard=of,
        epoch=epoch,
        generation=generation,
        at_ms=at_ms,
        offsets=offsets if offsets is not None else {"broker-a/3": generation * 10},
        counts=RoundCounts(
            announced=announced, matched=4, pending_before=1, pending_added=3, pending_matched=2, pending_after=2
        ),
    )


def message(number: int, *, topic: str = "ORDERS", body: bytes = b"\x00body\xff") -> StoredMessage:
    return StoredMessage(
        unique_key=key(number),
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        real_topic=topic,
        broker="broker-a",
        queue_id=3,
        queue_offset=11,
        commit_log_offset=4096,
        born_timestamp_ms=1_000,
        store_timestamp_ms=1_001,
        transaction_state=TransactionState.NONE,
        prepared_transaction_offset=0,
        producer_group="orders-service",
        check_times=None,
        reconsume_times=0,
        properties={"TAGS": "paid", "währung": "€"},
        body=body,
        flag=5,
    )
