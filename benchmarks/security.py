"""What a signature costs: processor time of small requests to an embedded broker, signed and unsigned, in one run.

A round sends the same requests without keys, with keys to the same broker, which lets everybody in, and with keys to a
broker that verifies them; the cheapest round of each counts. Broker and client share the process: its processor time
has both. `signing_share` is the signature's part of a request and its answer, `signed_share` what keys add with the
three fields that they make a frame longer, `whole_share` the same with the broker that verifies and looks up rights.

    python benchmarks/security.py [--requests 1000] [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.acl import AclCredentials, RequestSigner
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

ACCESS_KEY, SECRET = "benchmark-user", "secret-of-the-benchmark"
TOPIC = "TBW102"
#: The smallest request that a round sends for each queue.
SMALL = Command(code=RequestCode.GET_MAX_OFFSET, fields={"topic": TOPIC, "queueId": "0"})


def processor_seconds(work: Callable[[], object], times: int) -> float:
    """Processor time of the whole process for one call, in seconds."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    keys = AclCredentials(access_key=ACCESS_KEY, secret_key=SECRET)
    user = BrokerUser(access_key=ACCESS_KEY, secret_key=SECRET, rights=(f"GET topic {TOPIC}",))
    signer = RequestSigner(keys)
    unsigned: list[float] = []
    keyed: list[float] = []
    verified: list[float] = []
    signing: list[float] = []
    with (
        EmbeddedBroker() as open_broker,
        EmbeddedBroker(users=[user]) as secured_broker,
        RemotingClient() as plain,
        RemotingClient(acl=keys) as signed,
    ):
        for _ in range(chosen.rounds):
            unsigned.append(processor_seconds(lambda: plain.request(open_broker.address, SMALL), chosen.requests))
            keyed.append(processor_seconds(lambda: signed.request(open_broker.address, SMALL), chosen.requests))
            verified.append(processor_seconds(lambda: signed.request(secured_broker.address, SMALL), chosen.requests))
            signing.append(processor_seconds(lambda: signer.sign(SMALL), chosen.requests))
        answer = signed.request(secured_broker.address, SMALL)
        assert answer.code == 0, answer
    microseconds = {
        name: min(rounds) * 1e6
        for name, rounds in (("unsigned", unsigned), ("signed", keyed), ("verified", verified), ("signing", signing))
    }
    shares = {
        "signing_share": microseconds["signing"] / microseconds["unsigned"],
        "signed_share": microseconds["signed"] / microseconds["unsigned"] - 1,
        "whole_share": microseconds["verified"] / microseconds["unsigned"] - 1,
    }
    figures = {f"{name}_microseconds": round(value, 1) for name, value in microseconds.items()}
    print(json.dumps(figures | {name: round(share, 3) for name, share in shares.items()}))


if __name__ == "__main__":
    main()
