"""A group gets another name: the product's own procedure (reconciler group rename), run by a person who may die at any
of its steps, and runs it again.

The person stops the members, and the reconciler once what failed has its verdict, as docs/how-to/rename-a-group.md has
it.
A member that somebody starts while rows are copied is what the procedure looks for before it ends.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from reconciler.contract.subscription import Subscription
from reconciler.errors import ChangedMeanwhile, DatabaseAway, TransientError
from reconciler.rocketmq.wire.codes import retry_topic
from reconciler.telling.ports.idempotency import KeyAnswer, KeyUse
from reconciler.testing.memory import MemoryLedger
from reconciler.words import said
from tests.simulation.inbox_database import GroupInboxes, InboxDatabase
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import ENVIRONMENT
from tests.simulation.reconciling import LedgerPort
from tests.simulation.witnesses import OffsetsSeen, SimulatedEvidence, ask

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Rows of one transaction.
PAGE_ROWS = 20
#: Who is stopped meanwhile, beside the members.
RECONCILER = frozenset({"announcer", "operator", "reconciler", "sweeper"})
#: Port calls of the person between two deaths, about; and deaths.
CALLS, DEATHS_MAX = 25, 3


class Renaming:
    """One group and its new name, for all lives of the person."""

    def __init__(self, world: World, group: str) -> None:
        self._world = world
        self.old, self.new = group, f"{group}-renamed"
        self.inboxes = GroupInboxes([database.renamed(self.new) for database in world.inboxes[group].databases])
        self.leaves_waiting = world.kernel.dice.random() < 0.7
        self.is_stopped = self.is_begun = self.is_done = self.is_over = False
        self.deaths = 0
        self.has_stray = False

    def is_away(self, process_kind: str, name: str) -> bool:
        """A process that is not to be started."""
        return self.is_of_old(process_kind, name) if self.is_done else self._is_stopped(process_kind, name)

    def is_of_old(self, process_kind: str, name: str) -> bool:
        """A member of the old name."""
        return process_kind == "consumer" and name.rpartition("-")[0] == self.old

    def _is_stopped(self, process_kind: str, name: str) -> bool:
        return self.is_stopped and (process_kind in RECONCILER or self.is_of_old(process_kind, name))

    def stop(self, *, reconciler: bool) -> None:
        """The members, and then the reconciler."""
        self.is_stopped = True
        for process in list(self._world.processes):
            if self.is_away(process.kind, process.name) and (process.kind == "consumer" or reconciler):
                process.die()

    def start(self) -> None:
        """Everything goes on."""
        self.is_stopped = False

    def a_member_comes(self) -> None:
        """Somebody starts a member of the old name while its rows are copied, and it is stopped again."""
        world, dice = self._world, self._world.kernel.dice
        if self.has_stray or world.is_healed or dice.random() < 0.5:
            return
        self.has_stray = True
        process = world.start_one("consumer", f"{self.old}-0", partial(world.consumer, self.old, 0))
        world.kernel.saw("member came while a group was renamed", process.name)
        world.kernel.after(8 * dice.random(), process.die)

    def finish(self) -> None:
        """The new name takes the place of the old one in the settings, and its members start."""
        world = self._world
        left = {key for topic, key in world.delayed() if topic == retry_topic(self.old)}
        world.rename(self.old, self.new, self.inboxes)
        world.troubles.reset_over.setdefault(self.new, set()).update(left)
        world.kernel.saw("group renamed", self.new)
        self.is_done = self.is_over = True
        self.start()
        world.start_consumers(self.new)


class RenamesGroup:
    """The person."""

    def __init__(self, world: World, process: Process, renaming: Renaming) -> None:
        self._world = world
        self._process = process
        self._renaming = renaming
        if renaming.deaths < DEATHS_MAX:
            process.trouble_at = process.calls + 1 + round(world.kernel.dice.expovariate(1 / CALLS))
            process.trouble = self._die
        process.spawn(self._run)

    def _die(self) -> None:
        if self._renaming.is_begun and not self._renaming.is_over and not self._world.is_healed:
            self._renaming.deaths += 1
            self._world.kernel.saw("died while a group was renamed")
            self._process.die()

    def _run(self) -> None:
        world, renaming, dice = self._world, self._renaming, self._world.kernel.dice
        while not renaming.is_over:
            if not renaming.is_stopped:
                self._stop()
            try:
                report = self._rename()
            except (ChangedMeanwhile, TransientError) as error:
                world.kernel.tell(f"{self._process.name}: {type(error).__name__} {error}")
                self._process.sleep(2 + 8 * dice.random())
                continue
            world.kernel.tell(f"{self._process.name}: refused {report.refused}, done {report.is_done}")
            if report.is_done:
                renaming.finish()
                return
            renaming.start()
            if world.is_healed and not renaming.is_begun:
                renaming.is_over = True
                return
            self._process.sleep(20 + 20 * dice.random())

    def _stop(self) -> None:
        """The reconciler goes on until a message that failed last has its verdict."""
        swarm = self._world.swarm
        self._renaming.stop(reconciler=False)
        self._process.sleep(swarm.grace_period + 2 * swarm.round_interval + 5.0)
        self._renaming.stop(reconciler=True)

    def _rename(self) -> Any:
        renaming, world = self._renaming, self._world
        # Only where a group is renamed: the command imports what the simulator does without.
        command: Any = importlib.import_module("reconciler.commands.renaming.group_rename")
        connections = _connections(world, self._process)
        pairs = zip(world.inboxes[renaming.old].databases, renaming.inboxes.databases, strict=True)
        databases = [_Rows(self._process, old, new, on_copy=self._copies) for old, new in pairs]
        wanted = command.WantedRename(
            old=renaming.old,
            new=renaming.new,
            by=self._process.name,
            leaves_waiting=renaming.leaves_waiting,
            pulls=True,
        )
        group = _brokers(command.GroupOnBrokers, world, self._process, connections, wanted)
        return command.rename_on(connections, group, (databases, ()), wanted, [TOPIC], dry_run=False)

    def _copies(self) -> None:
        self._renaming.is_begun = True
        self._renaming.a_member_comes()


class _Rows:
    """reconciler.sql.renamed_group.RenamedRows over two simulated tables."""

    def __init__(
        self, process: Process, old: InboxDatabase, new: InboxDatabase, *, on_copy: Callable[[], None]
    ) -> None:
        self._process = process
        self._old, self._new = old, new
        self._on_copy = on_copy
        self.database = old.group

    def count(self) -> Any:
        module: Any = importlib.import_module("reconciler.sql.renamed_group")
        old, new = self._old, self._new

        def count() -> Any:
            missing = [key for key in old.rows if old.is_whole(key) and key not in new.rows]
            return module.RowsToCopy(rows=len(old.rows), missing=len(missing), incomplete=len(old.halves))

        return old.link.call(self._process, count, DatabaseAway, what="SELECT count")

    def writers(self) -> str:
        return ""

    def copy(self, seen: Callable[[int], None]) -> int:
        self._on_copy()
        copied, after = 0, ""
        while True:
            page = self._old.link.call(self._process, partial(self._page, after), DatabaseAway, what="copy a page")
            copied += len(page)
            seen(len(page))
            if len(page) < PAGE_ROWS:
                return copied
            after = page[-1]

    def _page(self, after: str) -> list[str]:
        keys = sorted(key for key in self._old.rows if key > after and self._old.is_whole(key))[:PAGE_ROWS]
        for key in keys:
            self._new.rows.setdefault(key, self._old.rows[key])
        self._new.reading.committed(keys)
        return keys


class _Verdicts:
    """reconciler.ledger.candidates.SqlCandidates.rename, which no policy asks for."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._rows = ledger.rows

    def rename(self, old: Subscription, new: Subscription) -> int:
        found = [key for owner, key in self._rows.candidates if owner == old]
        free = [key for key in found if (new, key) not in self._rows.candidates]
        for key in free:
            row = self._rows.candidates.pop((old, key))
            self._rows.candidates[new, key] = replace(row, subscription=new)
        return len(free)


class _OnlyPerson:
    """reconciler.ledger.idempotency_keys.SqlIdempotencyKeys where nobody else renames."""

    def begin(self, *_: Any, **__: Any) -> KeyAnswer:
        return KeyAnswer(use=KeyUse.FIRST)

    def renew(self, *_: Any, **__: Any) -> bool:
        return True

    def forget(self, *_: Any, **__: Any) -> None:
        pass


class _Since:
    """reconciler.ledger.since.SqlSince.rename; no round has run under the new name."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._rounds = ledger.rounds

    def rename(self, old: Subscription, new: Subscription) -> bool:
        self._rounds.begin(new, at_ms=self._rounds.since_ms(old) or None)
        return True


class _Offsets(OffsetsSeen):
    def store(self, address: str, queue: Any, group: str, offset: int) -> None:
        broker = self._cluster.at(address)

        def store() -> None:
            broker.offsets[group, queue.topic, queue.queue_id] = offset

        ask(self._process, broker, store, "UPDATE_CONSUMER_OFFSET")


def _connections(world: World, process: Process) -> Any:
    """What the command takes from reconciler.wiring.connections.Connections."""
    evidence = SimulatedEvidence(process, world.cluster, skew_margin_seconds=world.swarm.skew_margin)
    ledger, link = world.ledger, world._ledger_link
    parts: dict[str, list[Any]] = {
        "actions": [ledger.actions], "brokers": [ledger.brokers], "reports": [ledger.reports],
        "repairs": [ledger.repairs], "rounds": [ledger.rounds, _Since(ledger)], "candidates": [_Verdicts(ledger)],
    }  # fmt: skip
    return SimpleNamespace(
        settings=SimpleNamespace(
            environment=ENVIRONMENT,
            subscriptions=[SimpleNamespace(group=plan.group) for plan in world.right_plan.subscriptions],
            rounds=SimpleNamespace(retention_seconds=world.retention_seconds),
            rocketmq=SimpleNamespace(retired_brokers=()),
        ),
        ledger=SimpleNamespace(
            **{name: LedgerPort(process, link, of) for name, of in parts.items()}, idempotency_keys=_OnlyPerson()
        ),
        admin=evidence._admin,
        rocketmq=SimpleNamespace(routes=evidence.routes, families=evidence._families),
        clock=process.clock,
        shared=lambda _make: evidence,
    )


def _brokers(of_product: Any, world: World, process: Process, connections: Any, wanted: Any) -> Any:
    """The product's view of a group on brokers, over simulated wires."""

    class Seen(of_product):  # type: ignore[misc]
        def __init__(self) -> None:
            self._connections, self._topics, self._old, self._new = connections, [TOPIC], wanted.old, wanted.new
            self._masters = {broker.name: broker.address for broker in world.cluster.routed}
            self._offsets, self._english = _Offsets(process, world.cluster), said
            # Else only the history that comes to the one place fails that reads what the product has besides.
            given = {name for name in of_product.__init__.__code__.co_names if name.startswith("_")}
            assert given <= vars(self).keys(), given - vars(self).keys()

        def members(self) -> list[str]:
            process.enter()
            names = (wanted.old, wanted.new)
            alive = [one.name for one in world.processes if one.kind == "consumer" and not one.is_dead]
            return [name for name in alive if name.rpartition("-")[0] in names]

        def make_group(self) -> list[str]:
            return []

        def rounds_at_work(self) -> list[str]:
            process.enter()
            return [one.name for one in world.processes if one.kind == "reconciler" and not one.is_dead]

        def delayed(self) -> list[Any]:
            process.enter()
            waiting = tuple(key for topic, key in world.delayed() if topic == retry_topic(wanted.old))
            return [importlib.import_module("reconciler.evidence.waiting_retries").WaitingRetries(keys=waiting)]

    return Seen()
