"""How many 1 KiB messages a second the embedded broker takes in and hands out; prints one JSON line.

Broker, producer and consumer are three processes. The producer keeps ``--window`` sends under way on one
connection (as an asynchronous producer does); the consumer long-polls every queue. ``broker_cpu_seconds`` is the
broker's own time, so ``per_core`` says what one core would carry if clients ran elsewhere.

    python benchmarks/embedded_throughput.py [--messages 50000] [--data DIR] [--family 5.x]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from reconciler.rocketmq.wire.frame import Command, FrameReader, encode_frame

TOPIC = "Throughput"
QUEUES = 4


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def produce(address: str, messages: int, size: int, window: int) -> None:
    body = os.urandom(size // 2).hex().encode()[:size]
    connection, reader = connect(address), FrameReader()
    sent = answered = 0
    while answered < messages:
        frames: list[bytes] = []
        while sent < messages and sent - answered + len(frames) < window:
            fields = {
                "a": "PG", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(sent % QUEUES), "f": "0",
                "g": str(int(time.time() * 1000)), "h": "0",
                "i": f"UNIQ_KEY\x017F0000012E2A675B5F106408{sent:08X}\x02KEYS\x01order-{sent}\x02WAIT\x01true\x02",
                "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
            sent += 1
            frames.append(encode_frame(Command(code=310, opaque=sent, fields=fields, body=body)))
        connection.sendall(b"".join(frames))
        for reply in reader.feed(connection.recv(1 << 20)):
            if reply.code != 0:
                raise SystemExit(f"send refused: {reply}")
            answered += 1
    connection.close()


def consume_queue(address: str, queue_id: int, wanted: int) -> None:
    connection, reader = connect(address), FrameReader()
    offset = opaque = 0
    while offset < wanted:
        opaque += 1
        fields = {
            "consumerGroup": "CG", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
            "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "15000",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        connection.sendall(encode_frame(Command(code=11, opaque=opaque, fields=fields)))
        replies: list[Command] = []
        while not replies:
            replies = reader.feed(connection.recv(1 << 20))
        if replies[0].code not in (0, 19, 20):
            raise SystemExit(f"pull refused: {replies[0]}")
        offset = int(replies[0].fields["nextBeginOffset"])
    connection.close()


def consume(address: str, messages: int) -> None:
    threads = [
        threading.Thread(target=consume_queue, args=(address, queue, len(range(queue, messages, QUEUES))))
        for queue in range(QUEUES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(messages: int, size: int, window: int, family: str, data: str | None) -> dict[str, object]:
    command = [sys.executable, "-m", "reconciler.embedded", "--listen", "127.0.0.1:0", "--family", family]
    broker = subprocess.Popen(command + (["--data", data] if data else []), stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        address = json.loads(broker.stdout.readline())["listen"]
        produce(address, QUEUES, size, QUEUES)  # makes the topic
        before, started = cpu_seconds(broker.pid), time.perf_counter()
        again = [sys.executable, __file__, "--address", address, "--messages", str(messages)]
        clients = [
            subprocess.Popen([*again, "--role", "produce", "--size", str(size), "--window", str(window)]),
            subprocess.Popen([*again, "--role", "consume"]),
        ]
        for client in clients:
            if client.wait() != 0:
                raise SystemExit("a client failed")
        seconds, cpu = time.perf_counter() - started, cpu_seconds(broker.pid) - before
    finally:
        broker.terminate()
        broker.wait()
    return {
        "benchmark": "embedded_throughput",
        "family": family,
        "on_disk": data is not None,
        "messages": messages,
        "size_bytes": size,
        "seconds": round(seconds, 2),
        "per_second_in_and_out": round(messages / seconds),
        "broker_cpu_seconds": round(cpu, 2),
        "per_core": round(messages / cpu),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--family", default="5.x")
    parser.add_argument("--data", action="store_true", help="with a log on disk")
    parser.add_argument("--role", choices=("produce", "consume"), help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role == "produce":
        produce(chosen.address, chosen.messages, chosen.size, chosen.window)
    elif chosen.role == "consume":
        consume(chosen.address, chosen.messages)
    elif chosen.data:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(chosen.messages, chosen.size, chosen.window, chosen.family, folder)))
    else:
        print(json.dumps(measure(chosen.messages, chosen.size, chosen.window, chosen.family, None)))


if __name__ == "__main__":
    main()
