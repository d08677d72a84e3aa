"""A receiver of notices that takes a connection and never answers: what the processes do beside it keeps its pace."""

from __future__ import annotations

import threading

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.sql.engines import open_engine
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment, Service
from tests.acceptance.work import turns_run
from tests.contract.ledger.rows import entry, shard
from tests.engines import disposed
from tests.polling import eventually
from tests.unit.channels.receiver import Reply, receiving

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]

#: Rounds and sweeps that have to end while one message is being sent, which takes five seconds: one in half a second
#: is what the settings ask for.
TURNS = 3


def test_rounds_and_sweeps_keep_their_pace_while_a_receiver_hangs(new_deployment: DeploymentFactory) -> None:
    release = threading.Event()
    with receiving(lambda _: Reply(hangs=release)) as receiver:
        deployed = new_deployment()
        _quarantine(deployed)
        settings = deployed.config.read_text()
        deployed.commit(1, lose=True)  # nobody consumes it: no round is idle
        services: dict[str, Service] = {}
        for name in ("run", "sweep"):  # each sends by a notifier of its own
            notifier = (
                f'\n[[notifiers]]\nname = "of-{name}"\nkind = "webhook"\nurl = "{receiver.url}"\npatience_minutes = 0\n'
            )
            deployed.config.write_text(settings + notifier)
            services[name] = _start(deployed, name)
        try:
            hangs = _Hangs(deployed, services["run"])
            eventually(hangs.are_outrun, within_seconds=120, message="turns end within one hang")
        finally:
            release.set()


def _start(deployed: Deployment, name: str) -> Service:
    """Returns once it has read the settings."""
    service = deployed.run(name)
    eventually(lambda: service.takes_signals, within_seconds=60)
    return service


def _quarantine(deployed: Deployment) -> None:
    """A key that waits for a person, which both processes tell."""
    with disposed(open_engine(deployed.ledger_url, must_exist=True)) as engine:
        of = shard(deployed.environment, topic=deployed.topic, group=deployed.group)
        SqlLedger(engine).candidates.record(of, [entry(1, Verdict.COLLISION, CandidateState.QUARANTINED)])


class _Hangs:
    """What has happened since each message under way was claimed."""

    def __init__(self, deployed: Deployment, run: Service) -> None:
        self._deployed = deployed
        self._run = run
        self._rounds_at: dict[str, int] = {}
        self._sweeps_in: dict[str, set[int]] = {}
        self._outrun: set[str] = set()

    def are_outrun(self) -> bool:
        """Whether enough turns of each process have ended within one hang of its receiver."""
        for notifier, token in self._under_way():
            rounds = turns_run(self._run)
            sweeps = self._deployed.rows(
                self._deployed.outbox, "SELECT swept_at_ms FROM reconciler_outbox_identity WHERE swept_at_ms > 0"
            )
            seen = self._sweeps_in.setdefault(token, set())
            seen.update(sweeps)
            turns = {
                "of-run": rounds - self._rounds_at.setdefault(token, rounds),
                "of-sweep": len(seen) - 1,
            }
            if turns[notifier] >= TURNS and (notifier, token) in self._under_way():
                self._outrun.add(notifier)
        return self._outrun == {"of-run", "of-sweep"}

    def _under_way(self) -> list[tuple[str, str]]:
        claims = "SELECT notifier || ' ' || token FROM reconciler_notice WHERE token IS NOT NULL"
        found = [claim.partition(" ") for claim in self._deployed.rows(self._deployed.ledger, claims)]
        return [(notifier, token) for notifier, _, token in found]
