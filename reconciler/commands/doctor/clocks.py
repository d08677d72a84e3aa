"""What `reconciler doctor` says of the clocks, which are assumed to hardly differ, and of the brokers' indexes.

Both are told by probes: a broker's clock by the time of one, its index by whether it shows one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.wiring.clocks import BrokerProbes, missing_probes, other_clocks, redis_clock
from reconciler.wiring.connections import Connections

_REMEDY = "set the clocks right (NTP); while they differ, what was lost is found later, or looked up for nothing"
_UNMEASURED = "see to the reason, and compare the clock of that host by hand until then: while it is behind, what was \
lost is found that much later"

_NO_PROBE = "no loss can be proved while this is so: see to messageIndexEnable, the load of the broker, and the probe \
topic (`reconciler topics create`)"


def check_clocks(connections: Connections, probed: Callable[[], BrokerProbes]) -> Sequence[Diagnosis]:
    """Every server's clock against Redis', which dates the keys; a broker's that cannot be measured is named.

    A database that is away has a check of its own.

    Raises RedisAway.
    """
    margin_seconds = connections.settings.rounds.skew_margin_seconds
    redis = redis_clock(connections)
    compared: list[str] = []
    findings: list[Diagnosis] = []
    for server, found in other_clocks(connections, probed):
        if isinstance(found, str):
            unmeasured = f"not measured: {found}"
            findings.append(Diagnosis(check=f"clock of {server}", level="note", found=unmeasured, remedy=_UNMEASURED))
            continue
        compared.append(server)
        ahead_seconds = found.ahead_of(redis)
        if abs(ahead_seconds) > margin_seconds:
            way = "ahead of" if ahead_seconds > 0 else "behind"
            text = f"{abs(ahead_seconds):.1f} s {way} Redis, more than rounds.skew_margin_seconds = {margin_seconds:g}"
            findings.append(Diagnosis(check=f"clock of {server}", level="fail", found=text, remedy=_REMEDY))
    if compared and all(finding.level == "note" for finding in findings):
        text = f"Redis and {', '.join(compared)} differ by less than {margin_seconds:g} s"
        findings.append(Diagnosis(check="clocks", level="ok", found=text))
    return findings


def check_indexes(probed: BrokerProbes) -> Sequence[Diagnosis]:
    """One line for each broker whose index does not come as far as a probe; nothing where all do."""
    return [
        Diagnosis(check=f"index of {name}", level="fail", found=why, remedy=_NO_PROBE)
        for name, why in sorted(missing_probes(probed).items())
    ]
