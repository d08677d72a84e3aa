"""Makes spans of the policy's events: rounds, and in them verifications with written verdicts and steps of repairs.

A verification or a repair links to the span that sent the message, if the message names that span. Neither belongs to
the producer's trace, which ended long before. Nothing waits for spans, because they are made from events afterwards.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, TraceFlags, Tracer, set_span_in_context

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import RepairState
from reconciler.contract.visible_text import visible_line
from reconciler.errors import ReconcilerError
from reconciler.instrumentation.tracing import names
from reconciler.policy.events import Event, RepairStepped, RoundFinished, VerdictsWritten
from reconciler.policy.judging.suspect import TRACEPARENT
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.round import RoundReport

#: Maximum number of spans of one round for keys with the same verdict, or for repairs with the same step. Without this
#: limit, a flood of keys could push a loss out of the queue. The round's span counts the spans that are left out.
ALIKE_MAX = 100
#: Maximum number of characters that are kept of a text from outside. Invisible characters are replaced by their numbers
#: afterwards.
TEXT_CHARACTERS_MAX = 400
#: Problems of a round that its span lists.
PROBLEMS_MAX = 16
#: Figures of RoundFinished that its span has.
FIGURES = (
    "shards_run", "shards_skipped", "announced", "matched", "pending_after", "oldest_pending_seconds", "gate",
    "became_due", "verified", "settled", "not_taken", "broker_look_ups", "weaker",
)  # fmt: skip

Attributes = dict[str, str | int | float | tuple[str, ...]]


@dataclass(slots=True, kw_only=True)
class _RunningRound:
    span: Span
    began_ns: int
    #: Seconds of the process's monotonic clock.
    began_seconds: float
    #: Kind of span -> number of such spans in the round.
    alike: Counter[tuple[str, ...]] = field(default_factory=Counter)
    left_out: int = 0


#: The round that runs in this thread.
_running: ContextVar[_RunningRound | None] = ContextVar("running_round", default=None)


class EventSpans:
    """EventSink that makes spans. Threads share it, and each thread has its own round."""

    def __init__(self, tracer: Tracer, *, clock: Clock, english: Callable[[Fact], str]) -> None:
        self._tracer = tracer
        self._english = english
        self._clock = clock

    def traced(self, run: Callable[[Subscription], RoundReport]) -> Callable[[Subscription], RoundReport]:
        """Wraps the function so that each call has a span of the round, even if the round did not run or failed."""

        def run_traced(subscription: Subscription) -> RoundReport:
            with self._round(subscription) as span:
                report = run(subscription)
                if report.suspended is not None:
                    span.set_attribute(names.SUSPENDED, _told(self._english(report.suspended)))
                return report

        return run_traced

    def emit(self, event: Event) -> None:
        """Makes the spans of an event. Most events have none."""
        match event:
            case RoundFinished():
                self._finished(event)
            case VerdictsWritten():
                for entry in event.entries:
                    if _has_room(names.VERIFY, entry.verdict.value):
                        self._verification(event, entry)
            # SENDING is written before a byte is sent. The step ends later, when the answer is written.
            case RepairStepped() if event.after is not RepairState.SENDING:
                if _has_room(names.REPAIR, event.rung.value, event.after.value):
                    self._repair(event)
            case _:
                pass

    @contextmanager
    def _round(self, subscription: Subscription) -> Iterator[Span]:
        began_ns = self._clock.now_ms() * 1_000_000
        attributes = _place(names.ROUND, subscription.environment, subscription.topic) | _group(subscription)
        span = self._tracer.start_span(
            f"{names.ROUND} {subscription.topic}", Context(), attributes=attributes, start_time=began_ns
        )
        running = _RunningRound(span=span, began_ns=began_ns, began_seconds=self._clock.monotonic_seconds())
        token = _running.set(running)
        try:
            yield span
        except BaseException as error:
            span.set_attribute(names.ERROR_TYPE, type(error).__name__)
            # Other errors are bugs, whose texts may hold anything.
            told = _told(str(error)) if isinstance(error, ReconcilerError) else None
            span.set_status(Status(StatusCode.ERROR, told))
            raise
        finally:
            if running.left_out:
                span.set_attribute(names.LEFT_OUT, running.left_out)
            span.end(self._now_ns(running))
            _running.reset(token)

    def _finished(self, event: RoundFinished) -> None:
        running = _running.get()
        if running is None or not running.span.is_recording():
            return
        figures: Attributes = {f"{names.OF_A_ROUND}{name}": getattr(event, name) for name in FIGURES}
        for name, numbers in (("verdicts", event.verdicts), ("repairs", event.repairs)):
            figures |= {f"{names.OF_A_ROUND}{name}.{word.lower()}": number for word, number in numbers.items()}
        figures[f"{names.OF_A_ROUND}gate_detail"] = (
            "" if event.gate_detail is None else _told(self._english(event.gate_detail))
        )
        figures[f"{names.OF_A_ROUND}holds"] = event.holds
        if event.problems:
            problems = tuple(_told(self._english(problem)) for problem in event.problems[:PROBLEMS_MAX])
            figures[f"{names.OF_A_ROUND}problems"] = problems
            running.span.set_status(Status(StatusCode.ERROR, problems[0]))
        running.span.set_attributes(figures)

    def _verification(self, event: VerdictsWritten, entry: VerdictEntry) -> None:
        subscription = event.shard.subscription
        self._span(
            names.VERIFY,
            _place(names.VERIFY, subscription.environment, subscription.topic)
            | _group(subscription)
            | {
                names.SHARD: event.shard.number,
                names.MESSAGE_ID: _told(entry.unique_key),
                names.VERDICT: entry.verdict.value,
                names.STATE: entry.state.value,
                names.REASON: _told(str(entry.evidence.get("reason", ""))),
            },
            took_seconds=event.took_seconds,
            traceparent=entry.evidence.get(TRACEPARENT),
        )

    def _repair(self, event: RepairStepped) -> None:
        attributes = _place(names.REPAIR, event.environment, event.topic) | {
            names.MESSAGE_ID: _told(event.unique_key),
            names.SCOPE: event.scope,
            names.RUNG: event.rung.value,
            names.BEFORE: event.before.value,
            names.AFTER: event.after.value,
            names.ATTEMPTS: event.attempts,
            names.ANSWER: _told(event.answer),
        }
        if event.took_seconds is not None:
            attributes[names.TOOK] = event.took_seconds
        self._span(
            names.REPAIR,
            attributes,
            took_seconds=event.worked_seconds,
            traceparent=event.traceparent,
            failed=_told(event.answer) if event.after is RepairState.FAILED else None,
        )

    def _span(
        self,
        operation: str,
        attributes: Attributes,
        *,
        took_seconds: float,
        traceparent: object,
        failed: str | None = None,
    ) -> None:
        """Makes a span that ends now. If a round runs in this thread, the span is a child of the round's span."""
        running = _running.get()
        context = Context() if running is None else set_span_in_context(running.span, Context())
        ends_ns = self._now_ns(running)
        span = self._tracer.start_span(
            f"{operation} {attributes[names.TOPIC]}",
            context,
            attributes=attributes | {names.MESSAGE_TYPE: names.TRANSACTION},
            links=_links(traceparent),
            start_time=ends_ns - round(max(0.0, took_seconds) * 1e9),
        )
        if failed is not None:
            span.set_status(Status(StatusCode.ERROR, failed))
        span.end(ends_ns)

    def _now_ns(self, running: _RunningRound | None) -> int:
        """Returns the time. In a round, the monotonic clock counts from the round's beginning, so a step of the wall
        clock reorders no spans."""
        if running is None:
            return self._clock.now_ms() * 1_000_000
        return running.began_ns + round((self._clock.monotonic_seconds() - running.began_seconds) * 1e9)


class TraceOfRecords(logging.Filter):
    """Adds `trace_id` and `span_id` of the thread's round to log records, if the round's spans are kept."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True, because no record is dropped."""
        running = _running.get()
        if running is not None and running.span.is_recording():
            of = running.span.get_span_context()
            record.trace_id, record.span_id = f"{of.trace_id:032x}", f"{of.span_id:016x}"
        return True


def _has_room(*kind: str) -> bool:
    """Counts one more span of a kind. Returns False if the round of this thread has enough spans of this kind."""
    running = _running.get()
    if running is None:
        return True
    running.alike[kind] += 1
    is_too_many = running.alike[kind] > ALIKE_MAX
    running.left_out += is_too_many
    return not is_too_many


def _place(operation: str, environment: str, topic: str) -> Attributes:
    return {
        names.SYSTEM: names.ROCKETMQ,
        names.OPERATION: operation,
        names.TOPIC: topic,
        names.ENVIRONMENT: environment,
    }


def _group(subscription: Subscription) -> Attributes:
    return {names.GROUP: subscription.group, names.SUBSCRIPTION: str(subscription)}


def _links(traceparent: object) -> list[Link]:
    """Makes the link to the producing span, as contract/trace_context.py has read it."""
    if not isinstance(traceparent, str):
        return []
    _version, trace, span, flags = traceparent.split("-")
    return [Link(SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))))]


def _told(text: str) -> str:
    return visible_line(text[:TEXT_CHARACTERS_MAX])
