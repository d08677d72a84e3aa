"""Somebody looks at three in the morning while one server stands still: it costs the command one deadline.

There are two of each kind, and what the other one knows is told. A name server, broker, outbox and inbox each stand
behind a gate, which counts the connections that waited for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from reconciler.sql import schema
from tests.acceptance.deployment import Deployment
from tests.ended import Ended
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.gate import Gate
from tests.services.patient_instance import patient_instance
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.postgres import missing as postgres_missing
from tests.services.redis_server import RedisServer
from tests.services.redis_server import missing as redis_missing
from tests.services.requirements import require

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.sql("postgres"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

UNKNOWN_KEY = "0A" * 16
SETTINGS = "[rounds]\nstatement_seconds = 4.0\nskew_margin_seconds = 0.5\ninterval_seconds = 1.0\n"
#: Thing -> what the commands call it.
NAMES = {
    "outbox": "(2 of 2)",
    "inbox": "(2 of 2)",
    "ledger": "no answer in time",
    "redis": "redis",
    "broker": "second",
    "name server": "name server",
}
#: Exit codes as they are documented: of what is away; `explain` of a key that nobody knows ends with 2 where Redis, or
#: one of two name servers, is all that is missing.
CODES = {
    "status": dict.fromkeys(NAMES, 3) | {"name server": 0},
    "explain": dict.fromkeys(NAMES, 3) | {"name server": 2, "redis": 2},
    "doctor": dict.fromkeys(NAMES, 1),
    "repair": dict.fromkeys(NAMES, 3) | {"name server": 2},
    "list": dict.fromkeys(NAMES, 0) | {"ledger": 3},
}
ARGUMENTS = {
    "status": ("status",),
    "explain": ("explain", UNKNOWN_KEY),
    "doctor": ("doctor",),
    "repair": ("repair", UNKNOWN_KEY, "--dry-run"),
    "list": ("list", "candidates"),
}


@dataclass
class World:
    """A deployment with two of each kind, the second ones behind gates."""

    deployed: Deployment
    #: The server of the second outbox and inbox.
    postgres: PostgresServer
    gates: dict[str, Gate] = field(default_factory=dict)

    @contextmanager
    def standing(self, thing: str) -> Iterator[Gate]:
        """Within the block it stands still. Of the outbox the very process is stopped."""
        gate = self.gates[thing]
        hold, let_go = (self.postgres.freeze, self.postgres.thaw) if thing == "outbox" else (gate.hold, gate.let_go)
        gate.count()
        hold()
        try:
            yield gate
        finally:
            let_go()

    def command(self, name: str) -> Ended:
        """Runs to its end."""
        return self.deployed.command(*ARGUMENTS[name])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Rounds have run in it."""
    for why in (postgres_missing(), redis_missing()):
        require(why)
    folder = tmp_path_factory.mktemp("standing")
    with ExitStack() as stack:
        other, postgres = stack.enter_context(PostgresServer()), stack.enter_context(PostgresServer())
        redis = stack.enter_context(RedisServer(folder / "redis"))

        def behind(port: int, listen: tuple[str, int] = ("127.0.0.1", 0)) -> Gate:
            return stack.enter_context(Gate(port, listen=listen))

        gates = {"ledger": behind(other.port), "inbox": behind(other.port), "outbox": behind(postgres.port)}
        gates["redis"] = behind(redis.port)
        servers = brokers(stack, behind, gates)
        of_first, of_second = (address.rpartition(":")[2] for address in servers.split(";"))
        gates["name server"] = behind(int(of_second))
        deployed = Deployment(
            folder / "deployment",
            redis_url=f"redis://127.0.0.1:{gates['redis'].port}/0",
            name_servers=f"127.0.0.1:{of_first};127.0.0.1:{gates['name server'].port}",
            ledger_url=through(gates["ledger"], other),
            settings=SETTINGS,
        )
        stack.enter_context(deployed)
        text = deployed.config.read_text()
        for tree, server, path in (("outbox", postgres, deployed.outbox), ("inbox", other, deployed.inbox)):
            url, before = through(gates[tree], server), f'"sqlite:///{path}"'
            schema.upgrade(url, tree)
            text = text.replace(f"{tree}_url = {before}", f'{tree}_url = [{before}, "{url}"]')
        deployed.config.write_text(text)
        assert deployed.command("once").exit_code == 0
        yield World(deployed, postgres, gates)


def brokers(stack: ExitStack, behind: Callable[..., Gate], gates: dict[str, Gate]) -> str:
    """Two brokers, which are name servers, too: each registers with both. Returns these."""
    ports = [free_port(neighbours=(-2,)) for _ in range(2)]
    servers = ";".join(f"127.0.0.1:{port}" for port in ports)
    gates["broker"] = behind(ports[1], listen=("127.0.0.2", ports[1]))
    for port, name, host in ((ports[0], "first", "127.0.0.1"), (ports[1], "second", "127.0.0.2")):
        arguments = ["--advertise", host, "--namesrv", servers, "--knob", f"brokerName={name}"]
        stack.enter_context(EmbeddedBroker(listen=f"127.0.0.1:{port}", arguments=arguments))

    def know_both() -> bool:
        with ExitStack() as looking:
            several = [looking.enter_context(patient_instance(one)) for one in servers.split(";")]
            return all(len(one.cluster_addresses()) == len(ports) for one in several)

    eventually(know_both, within_seconds=60)
    return servers


def through(gate: Gate, server: PostgresServer) -> str:
    """URL of a new database, by the gate."""
    return server.create_database().replace(f":{server.port}/", f":{gate.port}/").replace("+psycopg", "")


@pytest.mark.parametrize("command", ["status", "explain"])
@pytest.mark.parametrize("thing", NAMES)
def test_a_server_that_stands_still_costs_who_looks_one_deadline(world: World, command: str, thing: str) -> None:
    looked(world, command, thing)


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["doctor", "repair", "list"])
@pytest.mark.parametrize("thing", NAMES)
def test_a_server_that_stands_still_costs_every_other_command_one_deadline(
    world: World, command: str, thing: str
) -> None:
    looked(world, command, thing)


def test_doctor_waits_for_all_that_stand_still_at_the_same_time(world: World) -> None:
    gates = [world.gates[thing] for thing in ("ledger", "broker")]
    with ExitStack() as stack:
        for gate in gates:
            gate.hold()
            stack.callback(gate.let_go)
        doctor, seen = world.deployed.run("doctor"), set[tuple[bool, ...]]()

        def has_seen_all_wait() -> bool:
            seen.add(tuple(gate.waiting > 0 for gate in gates))
            return (True, True) in seen or doctor.process.poll() is not None

        eventually(has_seen_all_wait, within_seconds=90)
        assert (True, True) in seen, f"{seen}\n{doctor.output}"
        assert doctor.process.wait(60) == 1


def looked(world: World, command: str, thing: str) -> None:
    """One command while one thing stands still."""
    with world.standing(thing) as gate:
        ended = world.command(command)
        assert gate.asked <= 1, f"{gate.asked} deadlines\n{ended.stdout}\n{ended.stderr}"
    assert ended.exit_code == CODES[command][thing], f"{ended.stdout}\n{ended.stderr}"
    if ended.exit_code in {1, 3}:
        assert NAMES[thing] in " ".join((ended.stdout + ended.stderr).lower().split())
