"""What TLS costs: messages a second and processor time, with and without it, by one embedded broker in one run.

The broker is permissive, so plain and encrypted connections reach the same port. Rounds take turns, and the best of
each counts. Broker and client share the process: its processor time has both sides, encryption and decryption. `signed`
sends signed requests over TLS.

    python benchmarks/tls.py [--messages 2000] [--rounds 9] [--bytes 1024] [--result FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.tls import ServerTls
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import Message

TOPIC = "BENCHMARK"


def certificate(folder: Path) -> ServerTls:
    """Its own authority, for 127.0.0.1."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=benchmark", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return ServerTls(certificate_file=folder / "cert.pem", key_file=folder / "key.pem")


def one_by_one(instance: ClientInstance, body: bytes, messages: int) -> None:
    """Each message waits for the answer of the one before."""
    sender = instance.sender("BENCHMARKS")
    for _ in range(messages):
        sender.send(Message(topic=TOPIC, body=body))


def measured(work: Callable[[], None], messages: int) -> tuple[float, float]:
    """Messages a second, and microseconds of processor time for one."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return messages / (time.perf_counter() - wall), (time.process_time() - processor) / messages * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    keys = AclCredentials(access_key="benchmark", secret_key="secret-of-the-benchmark")
    body = bytes(chosen.bytes)
    rates: dict[str, list[tuple[float, float]]] = {"plain": [], "tls": [], "signed": []}
    with tempfile.TemporaryDirectory() as name:
        server = certificate(Path(name))
        tls = TlsSettings(ca_file=str(server.certificate_file))
        with (
            EmbeddedBroker(tls=server) as broker,
            RemotingClient() as plain,
            RemotingClient(tls=tls) as encrypted,
            RemotingClient(tls=tls, acl=keys) as signed,
        ):
            Admin(plain).create_topic(broker.address, TOPIC, queues=4)
            clients = {"plain": plain, "tls": encrypted, "signed": signed}
            instances = {kind: ClientInstance(broker.name_servers, client=client) for kind, client in clients.items()}
            for _ in range(chosen.rounds):
                for kind, instance in instances.items():
                    rates[kind].append(measured(partial(one_by_one, instance, body, chosen.messages), chosen.messages))
            for instance in instances.values():
                instance.close()
    figures: dict[str, float] = {"messages": chosen.messages, "rounds": chosen.rounds, "body_bytes": chosen.bytes}
    for kind, rounds in rates.items():
        figures[f"{kind}_messages_per_second"] = round(max(rate for rate, _ in rounds))
        figures[f"{kind}_microseconds"] = round(min(cost for _, cost in rounds), 1)
    for kind in ("tls", "signed"):
        figures[f"{kind}_rate_ratio"] = round(
            figures[f"{kind}_messages_per_second"] / figures["plain_messages_per_second"], 3
        )
        figures[f"{kind}_processor_ratio"] = round(figures[f"{kind}_microseconds"] / figures["plain_microseconds"], 3)
    text = json.dumps(figures, indent=1)
    print(text)
    if chosen.result is not None:
        chosen.result.write_text(text + "\n")


if __name__ == "__main__":
    main()
