"""What `reconciler doctor` says about the servers' clocks and the brokers' indexes.

The reconciler relies on clocks that differ by no more than the skew margin. A probe shows a broker's clock by its store
time, and shows the broker's index by being found in the index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.commands.diagnosis import Diagnosis, listed
from reconciler.commands.doctor.areas import area
from reconciler.commands.doctor.server_clocks import BrokerProbes, missing_probes, other_clocks, redis_clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.wiring.connections import Connections

CLOCK_OF = Code("doctor.clock-of", server=Field.FACT)
CLOCK_UNMEASURED = Code("doctor.clock-unmeasured", why=Field.FACT)
COMPARE_CLOCKS_BY_HAND = Code("doctor.compare-clocks-by-hand")
CLOCK_AHEAD = Code("doctor.clock-ahead", seconds=Field.NUMBER, margin=Field.NUMBER)
CLOCK_BEHIND = Code("doctor.clock-behind", seconds=Field.NUMBER, margin=Field.NUMBER)
SET_CLOCKS = Code("doctor.set-clocks")
CLOCKS_ALIKE = Code("doctor.clocks-alike", servers=Field.FACT, margin=Field.NUMBER)
INDEX_OF = Code("doctor.index-of", broker=Field.FACT)
SEE_TO_INDEX = Code("doctor.see-to-index")


def check_clocks(connections: Connections, probed: Callable[[], BrokerProbes]) -> Sequence[Diagnosis]:
    """Compares every server's clock with Redis' clock, which dates the keys.

    A broker whose clock cannot be measured gets a note. A database that is away has its own check. Raises RedisAway.
    """
    margin_seconds = connections.settings.rounds.skew_margin_seconds
    redis = redis_clock(connections)
    compared: list[Fact] = []
    findings: list[Diagnosis] = []
    for server, found in other_clocks(connections, probed):
        check = CLOCK_OF(server=server)
        if isinstance(found, Fact):
            unmeasured = CLOCK_UNMEASURED(why=found)
            findings.append(Diagnosis(check=check, level="note", found=unmeasured, remedy=COMPARE_CLOCKS_BY_HAND()))
            continue
        compared.append(server)
        ahead_seconds = found.ahead_of(redis)
        if abs(ahead_seconds) > margin_seconds:
            way = CLOCK_AHEAD if ahead_seconds > 0 else CLOCK_BEHIND
            told = way(seconds=round(abs(ahead_seconds), 1), margin=margin_seconds)
            findings.append(Diagnosis(check=check, level="fail", found=told, remedy=SET_CLOCKS()))
    if compared and all(finding.level == "note" for finding in findings):
        alike = CLOCKS_ALIKE(servers=listed(compared), margin=margin_seconds)
        findings.append(Diagnosis(check=area("clocks"), level="ok", found=alike))
    return findings


def check_indexes(probed: BrokerProbes) -> Sequence[Diagnosis]:
    """Returns one line for each broker whose index does not show a probe."""
    return [
        Diagnosis(check=INDEX_OF(broker=broker), level="fail", found=why, remedy=SEE_TO_INDEX())
        for broker, why in missing_probes(probed)
    ]
