"""What `reconciler doctor` says of the clocks: everything that compares times assumes that they hardly differ."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.wiring.clocks import other_clocks, redis_clock
from reconciler.wiring.connections import Connections

_REMEDY = "set the clocks right (NTP); while they differ, what was lost is found later, or looked up for nothing"
_UNMEASURED = "see to the reason, and compare the clock of that host by hand until then: while it is behind, what was \
lost is found that much later"


def check_clocks(connections: Connections) -> Sequence[Diagnosis]:
    """Every server's clock against Redis', which dates the keys; a broker's that cannot be measured is named.

    A database that is away has a check of its own.

    Raises RedisAway.
    """
    margin_seconds = connections.settings.rounds.skew_margin_seconds
    redis = redis_clock(connections)
    compared: list[str] = []
    findings: list[Diagnosis] = []
    for server, found in other_clocks(connections):
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
