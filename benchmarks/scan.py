"""What a scan of many halves costs: processor time of this process, against bare pulls of the same three topics.

`python -m benchmarks.scan` loads a real broker with HALVES halves, of which OPEN are open and one of a hundred was
rolled back, and waits until its check service has come past those that were ended. The default mode reads what is open;
its goal is 5 s of processor time. `--classify` reads everything; its goal is 3.5 times what bare pulls of the half
topic, the OP topic and the real topic take in the same run, with as many under way, and 100 MiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.commands.scan import ScanReport, run_scan
from reconciler.errors import RequestTimeout
from reconciler.halves.half_topic import IN_FLIGHT, TOOLS_GROUP
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest
from reconciler.rocketmq.producer.ending import EndDecision, EndRequest
from reconciler.rocketmq.wire.codes import HALF_TOPIC, OP_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command, FrameReader, encode_frame
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.message_id import decode_offset_message_id
from reconciler.wiring.half_scan import ScanRequest
from tests.services.patient_instance import patient_client, patient_instance
from tests.services.rocketmq import RocketMQCluster
from tests.services.topics import create_topic

TOPIC, GROUP, QUEUES = "SCANNED", "PG_scanned", 4
#: Of so many halves one is rolled back.
_ROLLED_BACK_EACH = 100
_LOADERS = 2
#: Halves of a loader, and of one write.
_EACH_LOADER, _TOGETHER = 10_000, 200
_PLACE_OF_KEY = "F" * 32
_GOAL_SECONDS, _GOAL_RATIO, _GOAL_MIB = 5.0, 3.5, 100


def main() -> int:
    """Prints one JSON document; 1: a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halves", type=int, default=1_000_000)
    parser.add_argument("--open", type=int, default=1_000)
    parser.add_argument("--broker", default="5.3.3")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", nargs=2, metavar=("NAME_SERVERS", "BROKER"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure is not None:
        return _measure(*chosen.measure, halves=chosen.halves, left_open=chosen.open, out=chosen.out)
    # The log of a million halves and their copies is some 800 MB.
    properties = {
        "transactionCheckInterval": "5000",
        # Until all are loaded: a half that is put back before its END counts as open.
        "transactionTimeOut": "86400000",
        "transactionCheckMax": "10000",
        "transactionOpBatchInterval": "1000",
        "mappedFileSizeCommitLog": str(1 << 28),
        "mappedFileSizeConsumeQueue": "6000000",
        # A busy machine is slow: nothing is refused.
        **dict.fromkeys(("waitTimeMillsInSendQueue", "waitTimeMillsInTransactionQueue"), "600000"),
        "waitTimeMillsInPullQueue": "600000",
    }
    with RocketMQCluster(chosen.broker, properties=properties) as cluster:
        broker = cluster.broker()
        create_topic(broker.port, TOPIC, queues=QUEUES, name_server_port=cluster.name_server.port)
        _load(cluster.name_servers, broker.address, halves=chosen.halves, left_open=chosen.open)
        broker.update_config(transactionTimeOut="6000")
        # A process that has loaded nothing, so that its memory is that of scans.
        command = [sys.executable, "-m", "benchmarks.scan", "--measure", cluster.name_servers, broker.name]
        command += ["--halves", str(chosen.halves), "--open", str(chosen.open)]
        command += ["--out", str(chosen.out)] if chosen.out is not None else []
        return subprocess.run(command, check=False).returncode


def _measure(name_servers: str, broker: str, *, halves: int, left_open: int, out: Path | None) -> int:
    _settle(name_servers, left_open=left_open)
    with patient_instance(name_servers) as instance:
        (address,) = instance.cluster_addresses()
        bare = _measured(lambda: _bare_pulls(instance, address, broker))
    default = _measured(lambda: _scan(name_servers))
    classified = _measured(lambda: _scan(name_servers, is_counting=True))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report: ScanReport = default["result"]
    ((_, _, outcome),) = classified["result"].outcomes
    document = {
        "halves": halves,
        "default": {**_figures(default), "open": len(report.halves), "goal_cpu_seconds": _GOAL_SECONDS},
        "bare_pulls": {**_figures(bare), "records": bare["result"]},
        "classify": {
            **_figures(classified),
            "committed": outcome.committed,
            "rolled_back": outcome.rolled_back,
            "ratio_to_bare_pulls": round(classified["cpu"] / bare["cpu"], 2),
            "goal_ratio": _GOAL_RATIO,
        },
        "peak_mib": round(peak_mib),
        "goal_peak_mib": _GOAL_MIB,
    }
    text = json.dumps(document, indent=2)
    sys.stdout.write(text + "\n")
    if out is not None:
        out.write_text(text + "\n")
    is_exact = len(report.halves) == left_open and outcome.halves == halves
    is_fast = default["cpu"] <= _GOAL_SECONDS and classified["cpu"] <= _GOAL_RATIO * bare["cpu"]
    return int(not (is_exact and is_fast and peak_mib <= _GOAL_MIB))


def _load(name_servers: str, address: str, *, halves: int, left_open: int) -> None:
    """The open ones are spread over all."""
    half = _half(name_servers)
    halves_of_queues = [replace(half, fields={**half.fields, "e": str(number)}) for number in range(QUEUES)]
    each_open = halves // left_open if left_open else halves + 1

    def decision(number: int) -> EndDecision | None:
        if number % each_open == 0 and number // each_open < left_open:
            return None
        return EndDecision.ROLLBACK if number % _ROLLED_BACK_EACH == 1 else EndDecision.COMMIT

    def load(begin: int) -> None:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            for first in range(begin, min(begin + _EACH_LOADER, halves), _TOGETHER):
                numbers = range(first, min(first + _TOGETHER, begin + _EACH_LOADER, halves))
                sent = _answers(connection, [_numbered(halves_of_queues[one % QUEUES], one) for one in numbers])
                # Whichever half an answer is of: all of a number are as many.
                ends = [
                    _end(stored, made) for one, stored in zip(numbers, sent, strict=True) if (made := decision(one))
                ]
                _answers(connection, ends)

    with ThreadPoolExecutor(_LOADERS) as pool:
        deque(pool.map(load, range(0, halves, _EACH_LOADER)), maxlen=0)


def _half(name_servers: str) -> Command:
    """The request, which was not sent."""
    requests: list[Command] = []

    def keep(_address: str, command: Command) -> Command | None:
        if command.code != RequestCode.SEND_MESSAGE_V2:
            return command
        requests.append(command)
        return None

    with patient_client(outgoing=keep) as client, ClientInstance(name_servers, client=client) as instance:
        message = Message(topic=TOPIC, body=b"x" * 100, unique_key=_PLACE_OF_KEY)
        with suppress(RequestTimeout):
            instance.sender(GROUP).send(message, is_half=True, attempts=1)
    return requests[0]


def _numbered(half: Command, number: int) -> bytes:
    return encode_frame(half, opaque=number).replace(_PLACE_OF_KEY.encode(), f"{number:032X}".encode())


def _end(half: Command, decision: EndDecision) -> bytes:
    place = decode_offset_message_id(half.fields["msgId"]).commit_log_offset
    request = EndRequest(
        address="",
        producer_group=GROUP,
        decision=decision,
        message_id=half.fields["transactionId"],
        transaction_id=half.fields["transactionId"],
        tran_state_table_offset=int(half.fields["queueOffset"]),
        commit_log_offset=place,
        from_transaction_check=True,
    )
    return encode_frame(request.as_command(), opaque=place % 1_000_000)


def _answers(connection: socket.socket, frames: Sequence[bytes]) -> list[Command]:
    """In any order."""
    connection.sendall(b"".join(frames))
    reader, answers = FrameReader(), list[Command]()
    while len(answers) < len(frames):
        answers += reader.feed(connection.recv(1 << 16))
    if refused := [one for one in answers if one.code != ResponseCode.SUCCESS]:
        raise SystemExit(f"refused: {refused[0]}")
    return answers


def _settle(name_servers: str, *, left_open: int) -> None:
    """Until the check service has passed what was ended."""
    for _ in range(600):
        report = _scan(name_servers)
        if len(report.halves) == left_open and report.findings[0].records_read <= 3 * left_open + 10_000:
            return
        time.sleep(1)
    raise SystemExit(f"the check service is behind: {report.findings[0].records_read} records")


def _scan(name_servers: str, *, is_counting: bool = False) -> ScanReport:
    request = ScanRequest(
        name_servers=name_servers,
        request_timeout_seconds=30.0,
        records_per_second=10_000_000.0,
        is_counting=is_counting,
    )
    return run_scan(request, older_than_seconds=600.0, topic=TOPIC, progress=lambda *_: None)


def _bare_pulls(instance: ClientInstance, address: str, broker: str) -> int:
    """Answers that are waited for, and not looked into."""
    topics = [(HALF_TOPIC, 0), (OP_TOPIC, 0), *((TOPIC, number) for number in range(QUEUES))]
    pulled = 0
    for topic, queue_id in topics:
        queue = MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)
        end = instance.offsets.maximum(address, queue)
        ahead: deque[Future[Command]] = deque()
        for offset in range(0, end, 32):
            request = PullRequest(queue=queue, offset=offset, group=TOOLS_GROUP)
            ahead.append(instance.client.submit(address, request.as_command()))
            if len(ahead) == IN_FLIGHT:
                ahead.popleft().result()
        while ahead:
            ahead.popleft().result()
        pulled += end
    return pulled


def _measured(work: Callable[[], Any]) -> dict[str, Any]:
    cpu, wall = time.process_time(), time.monotonic()
    result = work()
    return {"cpu": time.process_time() - cpu, "wall": time.monotonic() - wall, "result": result}


def _figures(measured: dict[str, Any]) -> dict[str, float]:
    return {"cpu_seconds": round(measured["cpu"], 2), "wall_seconds": round(measured["wall"], 2)}


if __name__ == "__main__":
    sys.exit(main())
