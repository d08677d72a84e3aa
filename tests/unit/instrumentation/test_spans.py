"""Spans of the policy's events: true times, one trace a round, links to producers, and nothing that misleads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway
from reconciler.instrumentation.tracing.spans import ALIKE_MAX, EventSpans, TraceOfRecords
from reconciler.policy.events import Event, RepairStepped, VerdictsWritten
from reconciler.policy.evidence import EndOutcome, SendAnswer, StoredMessage
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.round import RoundReport
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, Events, World, key

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


class _TracedEvents(Events):
    def __init__(self, spans: EventSpans) -> None:
        super().__init__()
        self.spans = spans

    def emit(self, event: Event) -> None:
        super().emit(event)
        self.spans.emit(event)


class Traced:
    """A world, one process in it, and the spans that it made."""

    def __init__(self, provider: TracerProvider | None = None, **options: Any) -> None:
        self.world = World(**options)
        self._exporter = InMemorySpanExporter()
        provider = provider or TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = EventSpans(provider.get_tracer("test"), clock=self.world.clock, english=said)
        self.world.events = _TracedEvents(self.spans)
        self.process = self.world.process()
        self.run = self.spans.traced(self.process.run)

    def rounds(self, number: int) -> list[RoundReport]:
        reports = []
        for _ in range(number):
            self.world.clock.advance(5.0)
            self.world.consume()
            reports += [self.run(subscription) for subscription in self.world.subscriptions]
        return reports

    def made(self, operation: str) -> list[ReadableSpan]:
        """Oldest first."""
        return [span for span in self._exporter.get_finished_spans() if span.name == f"{operation} {TOPIC}"]

    def lose(self, number: int, **properties: str) -> StoredMessage:
        """As the world does; the half has these properties, too."""
        world = self.world
        sent = world.broker.send_half(key(number))
        half = world.broker.halves[-1] = replace(sent, properties={**sent.properties, **properties})
        world.commit_locally(key(number), half)
        world.announce(key(number))
        return half


def linked(span: ReadableSpan) -> list[tuple[str, str]]:
    return [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links]


def attributes(spans: Sequence[ReadableSpan], name: str) -> list[object]:
    return [(span.attributes or {})[name] for span in spans]


def written(verdict: Verdict = Verdict.UNKNOWN, *, number: int = 1, took: float = 0.25, **evidence: object) -> Event:
    shard = Shard(subscription=Subscription(environment=ENVIRONMENT, topic=TOPIC, group="billing"), number=3)
    found = VerdictEntry(
        unique_key=key(number), verdict=verdict, evidence=evidence, first_seen_ms=1, state=CandidateState.OPEN,
        wait_seconds=1.0,
    )  # fmt: skip
    return VerdictsWritten(shard=shard, entries=[found], took_seconds=took)


def stepped(after: RepairState, answer: str = "done", **changes: Any) -> Event:
    step = RepairStepped(
        environment=ENVIRONMENT, topic=TOPIC, scope="*", unique_key=key(1), rung=Rung.END, before=RepairState.OPEN,
        after=after, attempts=1, answer=answer, answer_code="repair.ends",
    )  # fmt: skip
    return replace(step, **changes)


@pytest.mark.parametrize("kept_by", ["half", "outbox row"])
def test_a_producer_who_looks_at_its_trace_finds_the_loss_and_the_repair(kept_by: str) -> None:
    traced = Traced()
    if kept_by == "half":
        traced.lose(1, traceparent=TRACEPARENT)
    else:
        traced.lose(1)
        row = traced.world.outbox.rows[key(1)]
        traced.world.outbox.rows[key(1)] = replace(row, properties={"traceparent": TRACEPARENT}, content_digest=None)
    traced.rounds(12)
    lost = [span for span in traced.made("verify") if (span.attributes or {})["reconciler.verdict"] == "LOST_CONFIRM"]
    repairs = traced.made("repair")
    assert attributes(repairs, "reconciler.repair.after") == ["SENT", "DONE"]
    assert attributes(repairs, "reconciler.rung") == ["end", "end"]
    for span in (lost[0], *repairs):
        assert linked(span) == [(TRACE, SPAN)]
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" != TRACE, "a link: the producer's trace ended long ago"
        assert (span.attributes or {})["messaging.message.id"] == key(1)
    rounds = {span.context.span_id: span for span in traced.made("round") if span.context is not None}
    assert lost[0].parent is not None
    of_the_loss = rounds[lost[0].parent.span_id]
    assert (of_the_loss.attributes or {})["reconciler.round.verdicts.lost_confirm"] == 1
    assert all(span.parent is not None and span.parent.span_id in rounds for span in repairs)
    assert traced.world.ledger.candidates.of_keys(traced.world.subscriptions[0], [key(1)])[key(1)].verdict is not None


def test_a_copy_of_another_message_under_the_same_key_links_to_nobody() -> None:
    traced = Traced()
    traced.lose(1)
    forged = traced.world.broker.send_half(key(1), body=b"forged")
    traced.world.broker.halves[-1] = replace(forged, properties={**forged.properties, "traceparent": TRACEPARENT})
    traced.rounds(8)
    assert traced.made("verify")
    assert [span.links for span in (*traced.made("verify"), *traced.made("repair")) if span.links] == []


def test_a_span_says_where_it_belongs() -> None:
    traced = Traced()
    traced.lose(1)
    traced.rounds(6)
    for operation in ("round", "verify", "repair"):
        for span in traced.made(operation):
            said = dict(span.attributes or {})
            assert said["messaging.system"] == "rocketmq"
            assert said["messaging.destination.name"] == TOPIC
            assert said["reconciler.environment"] == ENVIRONMENT
            assert said["messaging.operation.name"] == operation
            if operation != "repair":
                assert said["messaging.consumer.group.name"] == "billing"
    assert {type(shard) for shard in attributes(traced.made("verify"), "reconciler.shard")} == {int}


def test_no_body_is_told_and_hostile_text_is_made_visible() -> None:
    traced = Traced()
    half = traced.lose(1, traceparent="\x1b[31m\u202e")
    traced.world.broker.halves[-1] = replace(half, body=b"card 4111")
    traced.world.outbox.rows[key(1)] = replace(traced.world.outbox.rows[key(1)], content_digest=None)
    hostile = SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, detail="\x1b]0;owned\x07" + "long " * 1000)
    traced.world.broker.scripted = [hostile]
    traced.rounds(8)
    traced.spans.emit(written(reason="\x1b[2J\u202eevil"))
    every = [*traced.made("round"), *traced.made("verify"), *traced.made("repair")]
    texts = [str(value) for span in every for value in (span.attributes or {}).values()]
    assert any("owned" in text for text in texts), "the broker's answer is told"
    assert any("evil" in text for text in texts)
    assert [text for text in texts if "\x1b" in text or "\u202e" in text or "card 4111" in text] == []
    assert max(map(len, texts)) < 1_000


def test_a_verification_ends_when_its_verdict_is_written_and_began_with_its_first_question() -> None:
    traced = Traced()
    now_ns = traced.world.clock.now_ms() * 1_000_000
    traced.spans.emit(written(took=0.25))
    (span,) = traced.made("verify")
    assert (span.end_time, span.start_time) == (now_ns, now_ns - 250_000_000)


def test_a_send_in_progress_is_no_span_and_its_answer_is_one() -> None:
    traced = Traced()
    traced.spans.emit(stepped(RepairState.SENDING, worked_seconds=0.125))
    assert traced.made("repair") == []
    traced.spans.emit(stepped(RepairState.SENT, worked_seconds=0.5, took_seconds=None))
    traced.spans.emit(stepped(RepairState.DONE, took_seconds=12.0))
    sent, done = traced.made("repair")
    assert (sent.end_time or 0) - (sent.start_time or 0) == 500_000_000
    assert "reconciler.repair.took_seconds" not in (sent.attributes or {})
    assert (done.attributes or {})["reconciler.repair.took_seconds"] == 12.0


def test_a_repair_that_failed_is_an_error() -> None:
    traced = Traced()
    traced.spans.emit(stepped(RepairState.FAILED, answer="no rung left"))
    (span,) = traced.made("repair")
    assert (span.status.is_ok, span.status.description) == (False, "no rung left")


def test_a_clock_that_is_set_back_does_not_turn_a_trace_around() -> None:
    traced = Traced()
    clock = traced.world.clock
    run = traced.spans.traced(lambda subscription: set_back(traced, subscription))

    def set_back(traced: Traced, subscription: Subscription) -> RoundReport:
        clock.advance(1.0)
        clock.step_wall(-3600)
        traced.spans.emit(written(took=0.5))
        clock.advance(1.0)
        return RoundReport(subscription=subscription)

    run(traced.world.subscriptions[0])
    (verified,), (ran,) = traced.made("verify"), traced.made("round")
    times = (ran.start_time, verified.start_time, verified.end_time, ran.end_time)
    assert [((at or 0) - (ran.start_time or 0)) / 1e9 for at in times] == [0.0, 0.5, 1.0, 2.0]


def test_a_flood_of_keys_with_one_verdict_does_not_push_a_loss_out() -> None:
    traced = Traced()

    def flooded(subscription: Subscription) -> RoundReport:
        for number in range(ALIKE_MAX + 50):
            traced.spans.emit(written(Verdict.REJECTED, number=number))
        traced.spans.emit(written(Verdict.LOST_CONFIRM, number=9_999))
        return RoundReport(subscription=subscription)

    traced.spans.traced(flooded)(traced.world.subscriptions[0])
    assert attributes(traced.made("verify"), "reconciler.verdict") == ["REJECTED"] * ALIKE_MAX + ["LOST_CONFIRM"]
    assert attributes(traced.made("round"), "reconciler.left_out") == [50]


@pytest.mark.parametrize(
    ("error", "told"), [(DatabaseAway("ledger: \x1b[0m away"), "ledger: \\u{001B}[0m away"), (KeyError("secret"), None)]
)
def test_a_round_that_fails_has_a_span_and_a_bug_s_text_is_not_told(error: Exception, told: str | None) -> None:
    traced = Traced()

    def fails(subscription: Subscription) -> RoundReport:
        raise error

    with pytest.raises(type(error)):
        traced.spans.traced(fails)(traced.world.subscriptions[0])
    (span,) = traced.made("round")
    assert attributes([span], "error.type") == [type(error).__name__]
    assert (span.status.is_ok, span.status.description, span.events) == (False, told, ())


def test_a_round_that_does_not_run_says_why() -> None:
    traced = Traced()
    traced.world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="another")
    traced.rounds(1)
    assert attributes(traced.made("round"), "reconciler.suspended") == ["outage: AWAY"]


def test_a_round_with_problems_is_an_error_and_says_which_holds_it_met() -> None:
    traced = Traced(shards=1)
    traced.world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="alice", reason="drill")
    traced.lose(1)
    traced.rounds(4)
    assert attributes(traced.made("round"), "reconciler.round.holds")[-1] == ("HOLD",)
    traced.world.shards._memory(traced.world.shard(key(1), traced.world.subscriptions[0])).half.add("no key")
    traced.world.clock.advance(60)
    traced.rounds(4)
    told = [span for span in traced.made("round") if not span.status.is_ok and span.status.description]
    assert "no unique keys" in str(told[0].status.description)


def test_a_key_that_a_person_asks_for_is_a_trace_of_its_own() -> None:
    traced = Traced()
    traced.lose(1, traceparent=TRACEPARENT)
    traced.world.clock.advance(60)
    traced.process.keys_by_hand.repair_one(traced.world.subscriptions[0], key(1))
    (verified,), repairs = traced.made("verify"), traced.made("repair")
    assert [span.parent for span in (verified, *repairs)] == [None, None]
    assert linked(verified) == [(TRACE, SPAN)]


def test_log_records_of_a_round_name_its_trace_and_others_none() -> None:
    traced = Traced()
    records: list[logging.LogRecord] = []

    def logs(subscription: Subscription) -> RoundReport:
        records.append(logging.makeLogRecord({"msg": "in it"}))
        assert TraceOfRecords().filter(records[-1])
        return RoundReport(subscription=subscription)

    traced.spans.traced(logs)(traced.world.subscriptions[0])
    (span,) = traced.made("round")
    assert span.context is not None
    assert vars(records[0])["trace_id"] == f"{span.context.trace_id:032x}"
    assert vars(records[0])["span_id"] == f"{span.context.span_id:016x}"
    outside = logging.makeLogRecord({"msg": "out of it"})
    assert TraceOfRecords().filter(outside)
    assert "trace_id" not in vars(outside)


def test_a_sampler_that_takes_nothing_gets_nothing_and_logs_name_no_trace_that_is_not_kept() -> None:
    traced = Traced(TracerProvider(sampler=ALWAYS_OFF))
    record = logging.makeLogRecord({"msg": "in it"})

    def logs(subscription: Subscription) -> RoundReport:
        TraceOfRecords().filter(record)
        return traced.process.run(subscription)

    traced.lose(1)
    traced.world.clock.advance(60)
    traced.spans.traced(logs)(traced.world.subscriptions[0])
    assert [traced.made(operation) for operation in ("round", "verify", "repair")] == [[], [], []]
    assert "trace_id" not in vars(record)
