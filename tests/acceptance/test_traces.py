"""The service's spans over the wire: a lost message leads to its repair; a collector that hangs costs spans only."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.test_metrics_served import values
from tests.polling import eventually
from tests.services.collector import ReceivedSpan, SpanCollector
from tests.services.ports import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUICK = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.2

[repairs]
check_back_wait_seconds = 0

[tracing]
enabled = true
"""


def test_a_lost_message_s_trace_leads_to_its_repair_and_a_collector_that_hangs_delays_no_other(
    new_deployment: DeploymentFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SpanCollector() as collector:
        deployed = new_deployment(settings=QUICK, grace_period_seconds=1.0)
        port = free_port()
        variables = {
            "RECONCILER_METRICS__LISTEN": f"127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with monkeypatch.context() as of_once:
            of_once.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
            assert deployed.command("once").exit_code == 0
        of_a_single_pass = len(collector.spans(f"round {deployed.topic}"))
        assert of_a_single_pass > 0, "its spans were sent before it ended"

        deployed.consume()
        service = deployed.run("run", variables=variables)
        producer = deployed.producer()
        (lost,) = deployed.commit(1, lose=True, producer=producer, properties={"traceparent": f"00-{TRACE}-{SPAN}-01"})

        def linked(operation: str) -> list[ReceivedSpan]:
            return [s for s in collector.spans(f"{operation} {deployed.topic}") if (TRACE, SPAN) in s.links]

        sent = eventually(
            lambda: [s for s in linked("repair") if s.attributes["reconciler.repair.after"] == "SENT"],
            within_seconds=60,
        )
        verified = [s for s in linked("verify") if s.attributes["reconciler.verdict"] == "LOST_CONFIRM"]
        assert {s.attributes["messaging.message.id"] for s in (*verified, *sent)} == {lost}
        assert sent[0].attributes["reconciler.rung"] == "end"
        assert {s.attributes["messaging.system"] for s in collector.spans()} == {"rocketmq"}
        assert {s.resource["deployment.environment.name"] for s in collector.spans()} == {deployed.environment}
        (of_the_loss,) = eventually(  # a round's span is made last
            lambda: [s for s in collector.spans(f"round {deployed.topic}") if s.span_id == verified[0].parent_id],
            within_seconds=60,
        )
        assert of_the_loss.took_seconds >= verified[0].took_seconds > 0

        collector.hang()
        assert collector.holds_a_request.wait(60)
        (later,) = deployed.commit(1, lose=True, producer=producer)
        eventually(lambda: later in deployed.effects(), within_seconds=60)
        counted = values(port, "reconciler_spans_total")
        assert counted["made"] > counted["sent"] >= len(collector.spans()) - of_a_single_pass > 0
        assert service.end() == 0

    assert any(line["event"] == "spans_lost" for line in service.records)
    finished = [line for line in service.records if line["event"] == "round_finished"]
    assert verified[0].trace_id in {line.get("trace_id") for line in finished}
