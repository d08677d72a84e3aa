"""What goes wrong in one history: plans accidents from the swarm's parameters and ends them all at the healing.

Nothing is counted here: an accident is counted where the world sees its effect (Kernel.saw).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.added_groups import add_group, move_since, remove_group
from tests.simulation.broker import THEIRS, Broker
from tests.simulation.clock_steps import set_back_over_a_claim, set_right, step
from tests.simulation.inbox_database import InboxDatabase
from tests.simulation.kernel import NEVER, Link, Process
from tests.simulation.keys_taken import contradict, take_keys
from tests.simulation.late_answers import answer_late
from tests.simulation.operators import hold_for_long
from tests.simulation.outbox_database import PRODUCER_GROUP, TOPIC, OutboxDatabase
from tests.simulation.producing import UNIQUE_KEY_TOPIC, Order
from tests.simulation.redis_data import Snapshot
from tests.simulation.replicas import NEVER_STOOD_STILL

if TYPE_CHECKING:
    from tests.simulation.world import World

DIES = {
    "producer": "producers die",
    "consumer": "consumers die",
    "sweeper": "sweepers die",
    "announcer": "announcers die",
    "reconciler": "reconcilers die",
}
#: The producing span of messages that have one.
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#: How much longer troubles last where they are long.
LONGER_SECONDS = 150.0
#: How many damages are mended; a row that is not keeps its key's history open for some twelve minutes.
MENDED = 0.9
#: Between the commit of a verdict and the end of what its round does with it, Redis being slow, at most.
FRESH_SECONDS = 10.0
#: Port calls between two deaths at full strength, about.
CALLS = {"producer": 150, "consumer": 250, "sweeper": 12, "announcer": 60, "reconciler": 150}


class Troubles:
    """The injector."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self._dice = world.kernel.dice
        self._of = world.swarm.of
        self._is_over = False
        #: Most losses are proved when the last message was sent some time ago.
        self.longer_seconds = LONGER_SECONDS if self._of("long troubles") else 0.0
        #: Group -> keys that an operator's offset reset has skipped.
        self.reset_over: dict[str, set[str]] = {}
        #: Keys whose outbox row nobody will ever be able to read again.
        self.unreadable: set[str] = set()
        #: Keys that a stranger has announced.
        self.forged: set[str] = set()
        self._set_rates()
        for name, act in self._accidents():
            strength = self._of(name)
            if strength:
                self._several(act, 1 + round(2 * strength))
        if self._of("ledger damage"):
            # The first verdicts often come when all other troubles are over; the next one mends a row.
            for _ in range(6):
                self._kernel.after((world.swarm.load_seconds + 150.0) * self._dice.random(), self._damage_ledger)
        if self._of("tags corrected"):
            # Rows are settled a minute after their announcement at the earliest.
            self._kernel.after(30 + 100 * self._dice.random(), self._correct_tags)
        if world.swarm.clocks_differ:
            self._several(self._step_clock, 2)
        self._plan_once()

    def _plan_once(self) -> None:
        """What happens once, in histories of its own."""
        world = self._world
        if self._of("groups added"):
            self._kernel.after(world.swarm.load_seconds * (0.2 + 0.6 * self._dice.random()), partial(add_group, world))
        if self._of("since moved"):
            self._kernel.after(world.swarm.load_seconds + 60 + 60 * self._dice.random(), partial(move_since, world))
        if self._of("groups removed"):
            after = (world.swarm.load_seconds + self.longer_seconds) * (0.4 + 0.6 * self._dice.random())
            self._kernel.after(after, partial(remove_group, world))
        if self._of("business queues"):
            # So late that a queue does not soon grow past what was seen of it.
            share = 0.5 + 0.4 * self._dice.random()
            self._kernel.after(world.swarm.load_seconds * share, world.business_queues.happen)
        if self._of("another outbox"):
            for database in world.outboxes:
                database.reading.leads_elsewhere = True
        if self._of("claims out of reach"):
            set_back_over_a_claim(world)
        if self._of("claims answered late"):
            answer_late(world)
        if self._of("groups renamed"):
            self._kernel.after(world.swarm.load_seconds * 0.6 * self._dice.random(), world.begin_renaming)

    @property
    def _inboxes(self) -> list[InboxDatabase]:
        return [one for inboxes in self._world.inboxes.values() for one in inboxes.databases]

    # ---- messages

    def order(self, number: int) -> Order:
        """One message with its intent."""
        dice, swarm, of = self._dice, self._world.swarm, self._world.swarm.troubles.get
        random = dice.random
        is_filtered = bool(of("filtered")) and random() < 0.1
        # A group with a filter takes none without a tag.
        has_no_tag = bool(of("rows without a digest")) and random() < 0.5 and not of("filtered")
        return Order(
            number=number,
            at=number / swarm.messages_per_second,
            tag="noise" if is_filtered else None if has_no_tag else "paid",
            keys=(f"order-{number}",) if random() < 0.5 else (),
            properties={"region": "north", "traceparent": TRACEPARENT} if random() < 0.5 else {},
            body=b"order %d" % number,
            rolls_back=random() < 0.1 * of("rollbacks", 0.0),
            forgets_commit=random() < 0.05 * of("forgotten commits", 0.0),
            commits_late=random() < 0.05 * of("late commits", 0.0) or (bool(of("late rows")) and random() < 0.15),
            business_seconds=swarm.local_transaction_timeout * 0.8 * random()
            if random() < 0.03 * of("long transactions", 0.0)
            else 0.0,
            is_poison=random() < 0.03 * of("poison", 0.0),
            failures=dice.randint(1, 2) if random() < 0.1 * of("flaky handlers", 0.0) else 0,
            commits_halfway="halfway handlers" in swarm.troubles and random() < 0.05,
        )

    # ---- rates

    def _set_rates(self) -> None:
        world, of = self._world, self._of
        links = (
            (world.redis.link, "redis network", "redis away"),
            *((broker.link, "broker network", "broker away") for broker in world.cluster.brokers.values()),
            *((outbox.link, "outbox away", "outbox away") for outbox in world.outboxes),
            *((inbox.link, "inbox away", "inbox away") for inbox in self._inboxes),
            (world._ledger_link, "ledger away", "ledger away"),
        )
        for link, network, away in links:
            link.trouble(of(network), of(away), of("connections break"))
        world.redis.exec_reply_lost = 0.3 * of("redis exec replies")
        world.end_lost = (0.05, 0.2, 0.6)[world.swarm.seed % 3] * of("end lost")
        world.end_late = 0.1 * of("end lost")
        world.end_twice = 0.1 * of("end lost")
        world.half_unsafe = 0.03 * of("rollbacks")
        world.checks_lost = min(1.0, 1.5 * of("checks lost"))
        world.announcements_lost = 0.3 * of("announcements lost")
        world.announcements_twice = 0.3 * of("announcements lost")
        for database in world.databases:
            self._set_rates_of(database)
        for broker in world.cluster.brokers.values():
            broker.ends_busy = 0.3 * of("end busy")
            if of("index lag"):
                broker.settings.index_lag = 8 * of("index lag") ** 3

    def _set_rates_of(self, database: OutboxDatabase | InboxDatabase) -> None:
        kind = "outbox" if isinstance(database, OutboxDatabase) else "inbox"
        database.commit_reply_lost = 0.05 * self._of(f"{kind} commits")
        if isinstance(database, OutboxDatabase):
            database.cancelled = 0.05 * self._of("blocks cancelled")
        database.without_digest = 0.5 if self._of("rows without a digest") else 0.0
        database.deadlocks = 0.02 * self._of("rollbacks" if kind == "outbox" else "flaky handlers")

    def of_new(self, inbox: InboxDatabase) -> None:
        """A database that came in mid-history has the troubles of the others."""
        if not self._is_over:
            inbox.link.trouble(self._of("inbox away"), self._of("inbox away"), self._of("connections break"))
            self._set_rates_of(inbox)

    # ---- accidents at some moments

    def _accidents(self) -> list[tuple[str, Callable[[], object]]]:
        outboxes = self._world.outboxes
        longest = 30.0 if len(outboxes) == 1 else 90.0  # one of several may be away for long: the others go on
        return [
            ("redis wipe", self._wipe),
            ("redis suffix", lambda: self._fall_back(within=20.0, kind="Redis lost its last writes")),
            ("redis suffix", lambda: self._fall_back(within=120.0, kind="Redis restored from an old snapshot")),
            ("redis suffix across a round", self._fall_back_over_a_round),
            ("redis back and forth", self._fail_over_and_back),
            ("redis full", self._full),
            ("redis away", lambda: self._down(self._world.redis.link, 20.0)),
            ("redis scripts", self._forget_scripts),
            ("broker away", lambda: self._down(self._any_broker().link, 30.0)),
            *(("outbox away", partial(self._down, outbox.link, longest)) for outbox in outboxes),
            ("outbox behind", self._stand_still),
            *(("inbox away", partial(self._down, inbox.link, 30.0)) for inbox in self._inboxes),
            ("ledger away", lambda: self._down(self._world._ledger_link, 20.0)),
            ("broker tail", self._tail),
            ("queues anew", self._begin_anew),
            ("standing servers", lambda: self._stop_server(self._world._ledger_link)),
            ("standing servers", lambda: self._stop_server(self._world.redis.link)),
            ("standing servers", lambda: self._stop_server(self._any_outbox().link)),
            ("standing servers", lambda: self._stop_server(self._any_inbox().link)),
            ("broker disk", self._disk),
            ("index lag", self._stall),
            ("retention", self._expire),
            ("route", self._unroute),
            ("group stopped", self._stop_group),
            ("lag beside pops", self._lag),
            ("long holds", partial(hold_for_long, self._world)),
            ("pauses", self._stop_announcers),
            ("pauses", self._stop_reconcilers),
            ("forged announcements", self._forge),
            ("malformed announcements", self._malform),
            ("foreign copies", self._use_keys),
            ("producers gone", self._producers_leave),
            ("overlapping consumers", self._reset_offset),
            ("redis clock", self._step_redis_clock),
            ("database clocks", lambda: step(self._kernel, self._world.ledger_clock, "ledger")),
            ("database clocks", lambda: step(self._kernel, self._any_outbox().clock, "outbox")),
            ("database clocks", lambda: step(self._kernel, self._any_inbox().clock, "inbox")),
            ("outbox damage", lambda: self._damage(self._any_outbox())),
            ("inbox damage", lambda: self._damage(self._any_inbox())),
            ("outboxes contradict", partial(contradict, self._world)),
            ("keys taken", lambda: take_keys(self._world, self._any_inbox())),
            ("outbox replica", lambda: self._read_replica(self._any_outbox())),
            ("inbox replica", lambda: self._read_replica(self._any_inbox())),
        ]

    def _several(self, act: Callable[[], object], times: int) -> None:
        for _ in range(times):
            within = self._world.swarm.load_seconds + 10.0 + self.longer_seconds
            self._kernel.after(within * self._dice.random(), lambda: None if self._is_over else act())

    def _any_broker(self) -> Broker:
        brokers = list(self._world.cluster.brokers.values())
        return brokers[self._dice.randrange(len(brokers))]

    def _any_inbox(self) -> InboxDatabase:
        return self._inboxes[self._dice.randrange(len(self._inboxes))]

    def _any_outbox(self) -> OutboxDatabase:
        return self._world.outboxes[self._dice.randrange(len(self._world.outboxes))]

    def _down(self, link: object, longest: float) -> None:
        link.down_until = self._kernel.now + longest * self._dice.random()  # type: ignore[attr-defined]

    def _stop_server(self, link: Link) -> None:
        link.is_troubled = True
        link.stands_until = self._kernel.now + 60 * self._dice.random()

    def _stand_still(self) -> None:
        """The replica that outboxes are read from, believed to be the primary, does not go on for a while."""
        for outbox in self._world.outboxes:
            outbox.reading.believe_replica(for_seconds=90 * self._dice.random())

    def _wipe(self) -> None:
        if self._world.redis.data.wipe(forgets_scripts=bool(self._of("redis scripts"))):
            self._kernel.saw("Redis lost everything")

    def _fall_back(self, *, within: float, kind: str) -> None:
        data = self._world.redis.data
        snapshot, era = data.snapshot(), data.era

        def fall_back() -> None:
            if self._is_over or (data.era == era and data.writes <= snapshot[2]):
                return
            # To a moment that an earlier fall-back has undone: a kind of fault of its own.
            if data.era == era or self._of("redis back and forth"):
                self._restore(snapshot, kind if data.era == era else "Redis came back with what it had undone")

        self._kernel.after(within * self._dice.random(), fall_back)

    def _restore(self, snapshot: Snapshot, kind: str) -> None:
        lost = self._world.redis.data.restore(snapshot, forgets_scripts=bool(self._of("redis scripts")))
        self._kernel.saw(kind, f"{lost} writes")

    def _fail_over_and_back(self) -> None:
        """To a replica that is behind; rounds run there; then the old disk is Redis' memory once more."""
        data = self._world.redis.data
        replica = data.snapshot()

        def fail_over() -> None:
            if self._is_over:
                return
            old_disk = data.snapshot()
            self._restore(replica, "Redis failed over to a replica that was behind")
            self._kernel.after(60 * self._dice.random(), lambda: fail_back(old_disk))

        def fail_back(old_disk: Snapshot) -> None:
            if not self._is_over:
                self._restore(old_disk, "Redis came back with what it had undone")

        self._kernel.after(60 * self._dice.random(), fail_over)

    def _fall_back_over_a_round(self) -> None:
        """The fail-over comes right after a round has run, to a replica that had not seen it."""
        world, data = self._world, self._world.redis.data
        before = world.redis.before_round
        taken: list[tuple[Snapshot, int]] = []

        def remember(root: str) -> object:
            if not taken and not self._is_over:
                taken.append((data.snapshot(), data.era))
                self._kernel.after(0.02 * self._dice.random() ** 2, fall_back)
            return before(root)

        def fall_back() -> None:
            snapshot, era = taken[0]
            if not self._is_over and data.era == era:
                lost = data.restore(snapshot, forgets_scripts=False)
                self._kernel.saw("Redis lost a round that had been answered", f"{lost} writes")
            world.redis.before_round = before

        world.redis.before_round = remember

    def _full(self) -> None:
        data = self._world.redis.data
        data.is_full = True

        def end() -> None:
            data.is_full = False

        self._kernel.after(15 * self._dice.random(), end)

    def _forget_scripts(self) -> None:
        self._world.redis.data.scripts = {}

    def _tail(self) -> None:
        broker = self._any_broker()
        lost = broker.lose_tail(3 * self._dice.random())
        if lost:
            self._kernel.saw("broker lost what it had not flushed", f"{broker.name}: {lost} records")
            broker.link.down_until = max(broker.link.down_until, self._kernel.now + 2.0)

    def _begin_anew(self) -> None:
        """While nobody reads them: they may have grown past the offset that was stored."""
        broker = self._any_broker()
        self._world.announcers_stopped_until = self._kernel.now + 30 * self._dice.random()
        lost = broker.begin_anew(UNIQUE_KEY_TOPIC)
        if lost:
            self._kernel.saw("announcement queues began anew", f"{broker.name}: {lost} records")

    def _disk(self) -> None:
        broker = self._any_broker()
        broker.is_disk_full = True

        def end() -> None:
            broker.is_disk_full = False

        self._kernel.after(15 * self._dice.random(), end)

    def _stall(self) -> None:
        broker = self._any_broker()
        broker.index_stalled_until = self._kernel.now + 60 * self._dice.random()

    def _expire(self) -> None:
        lost = sum(
            broker.expire(self._world.swarm.load_seconds * (0.2 + 0.5 * self._dice.random()))
            for broker in self._world.cluster.brokers.values()
        )
        if lost:
            self._kernel.saw("retention deleted records", lost)

    def _unroute(self) -> None:
        cluster = self._world.cluster
        if len(cluster.brokers) < 2 or cluster.unrouted:
            return
        name = self._any_broker().name
        cluster.unrouted.add(name)
        cluster.route_changed()

        def back() -> None:
            cluster.unrouted.discard(name)
            cluster.route_changed()

        self._kernel.after(30 * self._dice.random(), back)

    def _step_clock(self) -> None:
        half = self._world.swarm.skew_margin * 1000 / 2 * 0.9
        alive = [process for process in self._world.processes if not process.is_dead]
        process = alive[self._dice.randrange(len(alive))]
        process.clock.skew_ms = round(half * (2 * self._dice.random() - 1))

    def _step_redis_clock(self) -> None:
        """By more than any margin: back by up to an hour and a half, or forward by ten minutes."""
        clock = self._world.redis_clock
        skew_ms = round(self._dice.choice((-5_400_000, 600_000)) * self._dice.random())
        is_back = skew_ms < clock.skew_ms
        self._kernel.saw(f"Redis' clock was set {'back' if is_back else 'forward'}", f"{skew_ms / 1000:.0f} s off")
        clock.skew_ms = skew_ms
        self._world.redis_skews_ms.append(skew_ms)

    def _stop_group(self) -> None:
        groups = list(self._world.inboxes)
        group = groups[self._dice.randrange(len(groups))]
        self._world.group_stopped_until[group] = self._kernel.now + 90 * self._dice.random()

    def _lag(self) -> None:
        """The last group, which pulls, stands still while the first one pops."""
        first, *_, last = self._world.inboxes
        if self._world.pops(first):
            self._kernel.saw("group lags beside one that pops", last)
            self._world.group_stopped_until[last] = self._kernel.now + 60 + 60 * self._dice.random()

    def _stop_announcers(self) -> None:
        self._world.announcers_stopped_until = self._kernel.now + 60 * self._dice.random()

    def _stop_reconcilers(self) -> None:
        self._world.reconcilers_stopped_until = self._kernel.now + 60 * self._dice.random()

    def _announce(self, body: bytes) -> None:
        queue_id = self._dice.randrange(self._world.swarm.shards)
        self._any_broker().append(UNIQUE_KEY_TOPIC, queue_id, {"TAGS": TOPIC}, body, is_indexed=False)

    def _forge(self) -> None:
        """A stranger announces keys that are not committed: unknown ones, and the newest before their commit, with
        any tag."""
        keys = [f"{self._dice.getrandbits(128):032X}" for _ in range(2)]
        keys += list(self._world.orders)[-6:]
        self.forged.update(keys)
        tag = self._dice.choice(("paid", "noise"))
        entries = ",".join(f'{{"key":"{key}","tag":"{tag}","committed_at_ms":1700000000000}}' for key in keys)
        self._announce(
            f'{{"v":1,"env":"sim","topic":"{TOPIC}","group":"{PRODUCER_GROUP}","keys":[{entries}]}}'.encode()
        )

    def _malform(self) -> None:
        self._announce(self._dice.choice((b"{", b"\xff\xfe", b'{"v":9}', b'{"v":1,"env":"other","topic":"X"}')))

    def _use_keys(self) -> None:
        """A stranger sends ordinary messages of another content under the newest keys; consumers acknowledge them."""
        dice = self._dice
        for key in list(self._world.orders)[-6:]:
            properties = {"UNIQ_KEY": key, "KEYS": key, "TAGS": dice.choice(("paid", "theirs"))}
            self._any_broker().append(TOPIC, dice.randrange(self._world.swarm.queues), properties, THEIRS)

    def _producers_leave(self) -> None:
        """The producer group dies out after the load."""
        self._world.producers_stay_away = True

    def _damage(self, database: OutboxDatabase | InboxDatabase) -> None:
        """Values that cannot be read come into some of the newest rows; mended later, or never."""
        keys = [key for key in list(database.rows)[-12:] if self._dice.random() < 0.3]
        database.damaged.update(keys)
        if self._dice.random() < MENDED:
            self._kernel.after(60 * self._dice.random(), lambda: database.damaged.difference_update(keys))
        else:
            self.unreadable.update(keys if isinstance(database, OutboxDatabase) else ())

    def _read_replica(self, database: OutboxDatabase | InboxDatabase) -> None:
        """From now on evidence is read from a replica, which is behind; it stops for a while, or not."""
        reading, dice = database.reading, self._dice
        reading.is_from_replica, reading.lag_seconds = True, 20 * dice.random() ** 3
        if dice.random() < 0.5:
            reading.stands_since = self._kernel.now

            def go_on() -> None:
                reading.stands_since = NEVER_STOOD_STILL

            self._kernel.after(90 * dice.random(), go_on)

    def _damage_ledger(self) -> None:
        """The same, in verdicts: until the next one is written. Such a row is never due.

        A row that was written a moment ago is left alone: its round, which has read it as whole, takes its key out of
        pending next.
        """
        rows, now_ms = self._world.ledger.rows.candidates, self._world.ledger_clock.now_ms()
        for place, row in list(rows.items()):
            is_fresh = abs(now_ms - row.updated_at_ms) / 1_000 < FRESH_SECONDS
            if self._dice.random() < 0.3 and not is_fresh:
                self._kernel.saw("ledger row unreadable", place[1][-4:])
                rows[place] = replace(
                    row, evidence={}, next_at_ms=NEVER, damage="reconciler_candidate.next_at_ms is 'x'"
                )

    def _reset_offset(self) -> None:
        """An operator rewinds a group: everything is delivered again."""
        broker = self._any_broker()
        for place in list(broker.offsets):
            if place[1] == TOPIC:
                first, _ = broker.bounds(TOPIC, place[2])
                broker.offsets[place] = max(first, broker.offsets[place] - 10)
        self._kernel.saw("group's offset set back", broker.name)

    def _correct_tags(self) -> None:
        """An operator corrects a setting; each process goes on with the wrong one until it is started again."""
        world = self._world
        world.plan = world.right_plan

        def restart(process: Process) -> None:
            if not process.is_dead:
                process.die()

        for process in world.wrongly_set:
            self._kernel.after(30 * self._dice.random() ** 2, partial(restart, process))

    # ---- processes

    def plan(self, process: Process) -> None:
        """When, in port calls, something happens to a process."""
        if self._is_over:
            return
        if process.kind not in DIES:
            return
        dies, pauses = self._of(DIES[process.kind]), self._of("pauses")
        if not dies and not pauses:
            return
        mean = CALLS[process.kind] / max(dies, pauses, 0.1)
        process.trouble_at = process.calls + 1 + round(self._dice.expovariate(1 / mean))
        is_death = self._dice.random() < dies / (dies + 0.3 * pauses)
        process.trouble = (lambda: self._kill(process)) if is_death else (lambda: self._pause(process))

    def _kill(self, process: Process) -> None:
        if self._is_over or (process.kind == "producer" and self._world.producers_stay_away):
            return
        self._kernel.saw(f"{process.kind} died")
        process.die()

    def _pause(self, process: Process) -> None:
        """SIGSTOP: every thread stops where it is."""
        if self._is_over:
            return
        end = self._kernel.now + 90 * self._dice.random() ** 2
        process.stopped_until = end
        self._kernel.saw(f"{process.kind} stopped for a while", f"{end - self._kernel.now:.0f} s")

        def stand_still() -> None:
            if self._kernel.now < end:
                process.trouble_at = 0
                process.sleep(end - self._kernel.now)
            else:
                process.trouble_at = NEVER
                self.plan(process)

        process.trouble = stand_still
        process.trouble_at = 0
        stand_still()

    # ---- the end

    def heal(self) -> None:
        """All troubles end; what is away comes back."""
        self._is_over = True
        world = self._world
        for link in (
            world.redis.link, world._ledger_link, *(d.link for d in world.databases),
            *(b.link for b in world.cluster.brokers.values()),
        ):  # fmt: skip
            link.heal()
        for database in world.databases:
            database.commit_reply_lost = database.deadlocks = 0.0
            if isinstance(database, OutboxDatabase):
                database.cancelled = 0.0
            database.reading.lag_seconds, database.reading.stands_since = 0.1, NEVER_STOOD_STILL
            database.reading.believe_nobody()
        for inbox in self._inboxes:
            # A replica of an outbox proves what it has by its sign of life; one of an inbox never proves an absence.
            inbox.reading.is_from_replica = False
        for broker in world.cluster.brokers.values():
            broker.ends_busy, broker.is_disk_full, broker.index_stalled_until = 0.0, False, 0.0
            broker.settings.index_lag = 0.002
        world.redis.data.is_full, world.redis.exec_reply_lost = False, 0.0
        set_right(world)
        # Ahead of the brokers nothing is proved before they have caught up; behind them it may stay.
        if world.redis_clock.skew_ms > world.swarm.skew_margin * 1000 / 2:
            world.redis_clock.skew_ms = 0
        world.cluster.unrouted.clear()
        world.cluster.route_changed()
        world.half_unsafe = world.announcements_lost = world.announcements_twice = 0.0
        world.end_lost = world.end_late = world.end_twice = world.checks_lost = 0.0
        world.group_stopped_until = {}
        world.announcers_stopped_until = world.reconcilers_stopped_until = 0.0
        for process in world.processes:
            process.trouble_at = NEVER
        if world.producers_stay_away:
            for process in world.processes:
                if process.kind == "producer":
                    process.die()
