"""`reconciler group rename`: a consumer group gets another name.

A group's effects are stored under the name of the group. So the new name gets the old name's offsets, which show where
the old name stopped, and the old name's inbox rows. If a process dies in between, the same command continues its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.clock import utc_text
from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.availability import ask_ledger, require
from reconciler.commands.renaming.group_on_brokers import GroupOnBrokers, GroupQueue, renamed_rows, sections_of
from reconciler.commands.renaming.renamed_groups import LEASE_SECONDS, OnlyRename, only_rename, renames
from reconciler.contract.kept_facts import ACT_GROUP_RENAME, ACT_GROUP_RENAME_UNDONE
from reconciler.contract.row_rules import GROUP_RENAME
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ChangedMeanwhile, DatabaseAway, DependencyAway, InvalidValue, without_remedy
from reconciler.evidence.waiting_retries import WaitingRetries
from reconciler.policy.evidence import ConsumeMode
from reconciler.settings.schema import Settings
from reconciler.settings.types import EVERYTHING
from reconciler.sql.renamed_group import RenamedRows
from reconciler.sql.rights import lacks_right
from reconciler.telling.ports.paging import LedgerFilter, all_rows
from reconciler.wiring.connections import Connections
from reconciler.words import said

_NEEDS = (
    "name each inbox by --url with a login that has SELECT and INSERT on reconciler_inbox: the owner's, or one that "
    "docs/reference/rights.md lists for `group rename`"
)
#: Maximum number of lines of one kind that a refusal names.
NAMED_MAX = 10
#: Maximum number of open losses whose repairs are looked at.
LOSSES_MAX = 10_000
_AT_WORK = (RepairState.OPEN, RepairState.SENDING, RepairState.SENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRename:
    """The rename that a person asks for."""

    old: str
    new: str
    by: str
    #: URLs of the inboxes with logins that may write. Empty: the URLs of the settings.
    urls: Sequence[Secret] = ()
    #: True: messages that wait in the topics' queues are left to the new name.
    leaves_waiting: bool = False
    #: True: a person says that no member has popped. Brokers may be unable to show this any more.
    pulls: bool = False
    #: Called with what would be done. If `confirm` returns False, nothing is done.
    confirm: Callable[[RenameReport], bool] = lambda _: True
    #: Called with two numbers: the inbox rows that were looked at, and all inbox rows.
    progress: Callable[[int, int], None] = lambda _seen, _of: None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedInbox:
    """The rename in one inbox database."""

    database: str
    #: Rows under the old name.
    rows: int
    #: Rows under the old name that had no counterpart under the new name before. None: these were not counted.
    missing: int
    #: Rows that were written. None: nothing was done.
    copied: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameReport:
    """What was found, what prevents the rename, and what was done."""

    old: str
    new: str
    topics: tuple[str, ...]
    refused: tuple[str, ...] = ()
    inboxes: tuple[RenamedInbox, ...] = ()
    queues: tuple[GroupQueue, ...] = ()
    notes: tuple[str, ...] = ()
    is_done: bool = False

    columns = ("what", "where", "now", "then")

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 1: something prevents the rename.
        Exit code 0: nothing prevents the rename, or it was done.
        """
        return 1 if self.refused else 0

    @property
    def moved(self) -> tuple[GroupQueue, ...]:
        """Queues in which the new name is to continue where the old name stopped."""
        return tuple(queue for queue in self.queues if not queue.is_retry and queue.offset is not None)

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What a person does afterwards, in order."""
        if not self.is_done:
            return ()
        return (
            f"1. put {self.new} in the place of {self.old} in each [[subscriptions]] section",
            "2. start `reconciler run` and `reconciler sweep` with these settings",
            f"3. start the members under the name {self.new}, replay workers, too; never start {self.old} again",
            f"4. once nobody would go back to it, delete {self.old} on the brokers (mqadmin deleteSubGroup)",
        )

    def rows(self) -> list[tuple[str, str, object, object]]:
        """Returns the lines of the table."""
        lines: list[tuple[str, str, object, object]] = [
            ("inbox rows", one.database, f"{one.rows} of {self.old}, {one.missing} missing", _copied(one))
            for one in self.inboxes
        ]
        return lines + [("offset", str(queue), queue.offset_before, queue.offset) for queue in self.moved]

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        return {
            "old": self.old,
            "new": self.new,
            "topics": list(self.topics),
            "done": self.is_done,
            "refused": list(self.refused),
            "inboxes": [
                {"database": one.database, "rows": one.rows, "missing": one.missing, "copied": one.copied}
                for one in self.inboxes
            ],
            "offsets": [
                {"topic": q.topic, "broker": q.broker, "queue_id": q.queue_id, "offset": q.offset,
                 "offset_before": q.offset_before}
                for q in self.moved
            ],
            "notes": list(self.notes),
            "next": list(self.next_steps),
        }  # fmt: skip


def rename_group(connections: Connections, wanted: WantedRename, *, dry_run: bool) -> RenameReport | None:
    """Checks everything, and renames the group if nothing prevents it. Returns None if the person declined.

    Raises InvalidValue for impossible names and for an inbox that is no database. Raises ChangedMeanwhile if a member
    came or an offset moved while rows were copied. Raises TransientError for a dependency that is away. After this
    error the same command continues.
    """
    settings = connections.settings
    sections = sections_of(settings, wanted.old)
    _require_new_name(settings, wanted)
    require(ask_ledger(connections))
    inboxes = renamed_rows(connections, sections, urls=wanted.urls, old=wanted.old, new=wanted.new)
    configured = list(dict.fromkeys(section.topic for section in sections))
    group = GroupOnBrokers(connections, configured, old=wanted.old, new=wanted.new, english=said)
    return rename_on(connections, group, inboxes, wanted, configured, dry_run=dry_run)


def rename_on(
    connections: Connections,
    group: GroupOnBrokers,
    inboxes: tuple[Sequence[RenamedRows], Sequence[RenamedRows]],
    wanted: WantedRename,
    configured: Sequence[str],
    *,
    dry_run: bool,
) -> RenameReport | None:
    """Checks and renames as rename_group() does, for names that are possible.

    `inboxes`: the inboxes with logins that may write, and the inboxes of the settings if these differ. `configured`:
    the topics of the group's sections.
    """
    if dry_run:
        return _look(connections, group, inboxes, wanted, configured)
    with only_rename(connections) as only:
        if only is None:
            why = f"another rename is at work, or has died in the last {LEASE_SECONDS:.0f} seconds"
            return RenameReport(old=wanted.old, new=wanted.new, topics=tuple(configured), refused=(why,))
        if wanted.old in renames(connections).unfinished:
            _give_back(connections, wanted, configured)
        preview = _look(connections, group, inboxes, wanted, configured)
        if preview.refused:
            return preview
        if not wanted.confirm(preview):
            return None
        only.keep()
        return _Renaming(connections, group, inboxes[0], wanted, preview, only).run(configured)


def _require_new_name(settings: Settings, wanted: WantedRename) -> None:
    if wanted.new == wanted.old:
        raise InvalidValue("NEW", wanted.new, "it is the old name")
    if any(one.group == wanted.new for one in settings.subscriptions):
        raise InvalidValue("NEW", wanted.new, "it has [[subscriptions]] of its own: two groups do not become one")


def _look(
    connections: Connections,
    group: GroupOnBrokers,
    inboxes: tuple[Sequence[RenamedRows], Sequence[RenamedRows]],
    wanted: WantedRename,
    configured: Sequence[str],
) -> RenameReport:
    databases, named = inboxes
    topics = group.all_topics()
    delayed = group.delayed()
    queues = group.queues(topics)
    refused = [*renames(connections).in_the_way_of(wanted.old, wanted.new), *_rounds(group), *_members(group)]
    refused += [*_delayed(delayed, wanted), *_waiting(queues, wanted)]
    refused += _unfinished(connections, wanted.old, topics)
    refused += _popping(group, topics, wanted)
    others = [topic for topic in topics if topic not in configured]
    try:
        refused += _writers(databases)
        counted = [(one.database, one.count()) for one in databases]
        refused += _other_inboxes(databases, named, wanted.old)
    except DatabaseAway as error:
        raise _named(error) from error
    refused += [
        f"{n.incomplete} inbox rows of {wanted.old} are incomplete in {name}, end them by `reconciler incomplete`"
        for name, n in counted
        if n.incomplete
    ]
    return RenameReport(
        old=wanted.old,
        new=wanted.new,
        topics=tuple(topics),
        refused=tuple(refused),
        inboxes=tuple(RenamedInbox(database=name, rows=n.rows, missing=n.missing) for name, n in counted),
        queues=tuple(queues),
        notes=(
            *(f"{topic} is no topic of the settings: its offsets are moved, too" for topic in others),
            *(
                f"{one.unread}: failed messages of {wanted.old} that wait for their next try are seen by their verdict "
                "only, so `run` must have worked for a grace period after the last member stopped"
                for one in delayed
                if one.unread
            ),
        ),
    )


def _writers(databases: Sequence[RenamedRows]) -> Iterator[str]:
    """Yields open writers of the inboxes. Call it before rows are counted, so that no row of a writer is missed."""
    for one in databases:
        writers = one.writers()
        if writers:
            yield f"what was written to {one.database} is not committed, end its process or transaction: {writers}"


def _other_inboxes(databases: Sequence[RenamedRows], named: Sequence[RenamedRows], old: str) -> Iterator[str]:
    """Yields inboxes of the settings that are not among the named inboxes.

    If rows were copied in the wrong database, members of the new name would find no rows.
    """
    if not named:
        return
    found, expected = ([(one.extent(), one.database) for one in of] for of in (databases, named))
    if sorted(extent for extent, _ in found) != sorted(extent for extent, _ in expected):
        there, here = (", ".join(f"{name}: {rows}" for (rows, *_), name in of) for of in (expected, found))
        yield (
            f"--url leads elsewhere than inbox_url, name each inbox by one: rows of {old} in {there}; --url has {here}"
        )


def _rounds(group: GroupOnBrokers) -> Iterator[str]:
    """Yields rounds that still run. Such rounds send, and write verdicts that would stay under the old name."""
    at_work = group.rounds_at_work()
    if at_work:
        yield f"rounds are at work, stop `reconciler run` (one that was killed is over soon): {_listed(at_work)}"


def _members(group: GroupOnBrokers) -> Iterator[str]:
    members = group.members()
    if members:
        yield f"members are connected, stop them: {_listed(members)}"


def _popping(group: GroupOnBrokers, topics: Sequence[str], wanted: WantedRename) -> Iterator[str]:
    """Yields topics that the group pops.

    An offset passes messages that were handed out but not acknowledged. Such a message comes again under the old name,
    or its effect comes after the rows were copied.
    """
    old, modes = wanted.old, group.consume_modes(topics)
    for topic in topics:
        if modes[topic] is ConsumeMode.POP:
            yield f"{old} pops {topic}: messages that were handed out may come again under the old name only"
    unknown = [topic for topic in topics if modes[topic] is ConsumeMode.UNKNOWN]
    if unknown and not wanted.pulls:
        yield (
            f"whether {old} pops is not shown while nobody is connected, and what it was handed may come again under "
            f"the old name only; none of its members did in the last 12 hours: --pulls ({_listed(unknown)})"
        )
    for topic in group.popped_by_new(topics):
        yield f"{wanted.new} has popped {topic} in the last minutes, stop its members, and wait for ten"


def _delayed(delayed: Sequence[WaitingRetries], wanted: WantedRename) -> Iterator[str]:
    keys = [key for one in delayed for key in one.keys]
    if keys:
        yield f"failed messages of {wanted.old} wait for their next try, start it until they are done: {_listed(keys)}"


def _waiting(queues: Sequence[GroupQueue], wanted: WantedRename) -> Iterator[str]:
    waiting = [queue for queue in queues if queue.waiting]
    retries = [f"{queue.waiting} in {queue}" for queue in waiting if queue.is_retry]
    others = [f"{queue.waiting} in {queue}" for queue in waiting if not queue.is_retry]
    if retries:
        yield f"failed messages wait for {wanted.old}, start it until it has passed them: {_listed(retries)}"
    if others and not wanted.leaves_waiting:
        yield (
            f"messages wait for {wanted.old}, start it until it has passed them, or leave them to {wanted.new} "
            f"(--leave-waiting): {_listed(others)}"
        )


def _unfinished(connections: Connections, old: str, topics: Sequence[str]) -> Iterator[str]:
    """Yields work that only the old name can finish.

    Such work is a retry that waits for its delay, a message that was handed over to the group's handler, or a copy that
    is under way to the group.
    """
    reports, environment = connections.ledger.reports, connections.settings.environment
    retrying = LedgerFilter(group=old, candidate_state=CandidateState.OPEN, verdict=Verdict.RETRYING)
    keys = [row.unique_key for row in reports.candidates(environment, limit=NAMED_MAX, only=retrying).rows]
    if keys:
        yield f"{old} has failed messages that come again, wait for their verdict: {_listed(keys)}"
    handed_over = [
        row.unique_key
        for state in _AT_WORK
        for row in reports.repairs(environment, limit=NAMED_MAX, only=LedgerFilter(scope=old, repair_state=state)).rows
    ]
    if handed_over:
        yield f"messages are handed over to {old}, let `reconciler replay` end them: {_listed(handed_over)}"
    for topic in topics:
        keys = list(_on_their_way(connections, Subscription(environment=environment, topic=topic, group=old)))
        if keys:
            yield f"repairs of {topic} are under way for {old}, let `reconciler run` end them: {_listed(keys)}"


def _on_their_way(connections: Connections, old: Subscription) -> Iterator[str]:
    """Yields keys of claimed or sent repairs for every group, if the old name still lacks the effect of the key.

    A repair may stay SENT for hours because of another group.
    """
    lost = LedgerFilter(topic=old.topic, group=old.group, candidate_state=CandidateState.OPEN, is_loss=True)
    listing = partial(connections.ledger.reports.candidates, old.environment, only=lost)
    keys = [row.unique_key for row in all_rows(listing, limit=LOSSES_MAX)]
    for key, rows in connections.ledger.repairs.of_keys(old.environment, old.topic, keys).items():
        of_all = [row for row in rows if row.scope == EVERY_GROUP and row.state in _AT_WORK]
        if any(row.state is not RepairState.OPEN or row.token is not None for row in of_all):
            yield key


def _give_back(connections: Connections, wanted: WantedRename, topics: Sequence[str]) -> None:
    """Closes the ledger rows that an interrupted rename gave to the new name, so that rounds of the old name go on."""
    for topic in topics:
        old = Subscription(environment=connections.settings.environment, topic=topic, group=wanted.old)
        connections.ledger.candidates.rename(replace(old, group=wanted.new), old)


@dataclass(slots=True)
class _Renaming:
    """The acts of a rename, in order."""

    connections: Connections
    group: GroupOnBrokers
    databases: Sequence[RenamedRows]
    wanted: WantedRename
    preview: RenameReport
    only: OnlyRename
    _seen: int = field(default=0, init=False)
    _offsets_set: int = field(default=0, init=False)
    #: What is left for a person to do.
    _notes: list[str] = field(default_factory=list, init=False)

    def run(self, configured: Sequence[str]) -> RenameReport:
        """Moves offsets, then inbox rows, then the ledger's rows of the group.

        Offsets come first. If this process dies and members of the new name start nevertheless, these members consume
        nothing that the old name has passed. The ledger comes last, when nothing can delay the rename any more. Without
        the ledger's rows, rounds of the old name could send what people have closed.
        """
        old, new, preview = self.wanted.old, self.wanted.new, self.preview
        fact, undone = ACT_GROUP_RENAME(old=old, new=new), ACT_GROUP_RENAME_UNDONE(old=old, new=new)
        act = recorded(
            self.connections,
            GROUP_RENAME,
            by=self.wanted.by,
            group=old,
            detail=said(fact),
            fact=fact,
            undone=undone,
        )
        with self._told_how_far(), act as outcome:
            made = self.group.make_group()
            for queue in preview.moved:
                self.only.keep()
                self.group.move(queue)
                self._offsets_set += 1
            inboxes = [self._copy(database, one) for database, one in zip(self.databases, preview.inboxes, strict=True)]
            outcome.result = f"{sum(one.copied or 0 for one in inboxes)} inbox rows copied"
            self._require_unchanged()
            try:
                outcome.result += f", {self._keep_ledger(configured)} verdicts"
            except BaseException:  # ^C included
                with suppress(ChangedMeanwhile):  # another person continues with it
                    self.only.keep()
                    _give_back(self.connections, self.wanted, configured)
                raise
            outcome.result += f", {len(preview.moved)} offsets set"
        notes = (
            *preview.notes,
            *self._notes,
            *(f"{new} was made on {broker}, with the defaults of a group" for broker in made),
        )
        return RenameReport(
            old=old, new=new, topics=preview.topics, inboxes=tuple(inboxes), queues=preview.queues, notes=notes,
            is_done=True,
        )  # fmt: skip

    @contextmanager
    def _told_how_far(self) -> Iterator[None]:
        """Surrounds the acts. If a dependency goes away in the middle, the error says what was done, and the remedy."""
        try:
            yield
        except DependencyAway as error:
            rows = sum(one.rows for one in self.preview.inboxes)
            raise DependencyAway(
                f"{self.wanted.old} is not renamed yet ({self._offsets_set} of {len(self.preview.moved)} offsets set, "
                f"{self._seen} of {rows} inbox rows seen to): {without_remedy(error, error.remedy)}",
                remedy="leave settings and members as they are, and run it again: it goes on there",
            ) from error

    def _copy(self, database: RenamedRows, counted: RenamedInbox) -> RenamedInbox:
        in_all = sum(one.rows for one in self.preview.inboxes)

        def seen(rows: int) -> None:
            self._seen += rows
            self.only.keep(at_least_seconds=LEASE_SECONDS / 10)
            self.wanted.progress(self._seen, in_all)

        try:
            copied = database.copy(seen)
        except DatabaseAway as error:
            raise _named(error) from error
        return RenamedInbox(database=counted.database, rows=counted.rows, missing=counted.missing, copied=copied)

    def _keep_ledger(self, topics: Sequence[str]) -> int:
        """Moves the ledger's rows. The group stays the same, so `since`, verdicts and dismissals stay."""
        ledger, environment, moved = self.connections.ledger, self.connections.settings.environment, 0
        for topic in topics:
            self.only.keep()
            old = Subscription(environment=environment, topic=topic, group=self.wanted.old)
            new = Subscription(environment=environment, topic=topic, group=self.wanted.new)
            # A group that never had a round gets the present time as its `since`. Older messages must not count.
            ledger.rounds.begin(old, at_ms=self.connections.clock.now_ms())
            if not ledger.rounds.rename(old, new):
                since_ms = ledger.rounds.since_ms(old)
                wanted = utc_text(since_ms, timespec="milliseconds") if since_ms else EVERYTHING
                self._notes.append(
                    f"{new} has had a round, {old} answers for older messages, and the ledger's login may not change "
                    f'that: set `since = "{wanted}"` in its section before you start `run`'
                )
            moved += ledger.candidates.rename(old, new)
        return moved

    def _require_unchanged(self) -> None:
        """Checks again after the rows were copied, because copying takes time.

        Effects of a member that came meanwhile may not have been copied. The same holds for effects of a replay worker,
        which no broker knows.
        """
        old, topics = self.wanted.old, self.preview.topics
        writers = _listed(list(_writers(self.databases)))
        counted = {one.database: one.count() for one in self.databases}
        before = {str(queue): queue.offset for queue in self.preview.queues}
        now = {
            "not committed": writers,
            "unfinished": _listed(list(_unfinished(self.connections, old, topics))),
            **{f"rows that came in {name}": n.missing + n.incomplete for name, n in counted.items()},
            "rounds": _listed(list(_rounds(self.group))),
            "members": _listed(list(_members(self.group))),
            "popping": _listed(list(_popping(self.group, topics, self.wanted))),
            "delayed": _listed(list(_delayed(self.group.delayed(), self.wanted))),
            **{
                str(queue): str(queue.offset)
                for queue in self.group.queues(topics)
                if before.get(str(queue)) != queue.offset
            },
        }
        changed = {name: what for name, what in now.items() if what}
        if changed:
            raise ChangedMeanwhile(old, now=changed)


def _copied(one: RenamedInbox) -> str:
    return f"{one.missing} to be copied" if one.copied is None else f"{one.copied} copied"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _named(error: DatabaseAway) -> Exception:
    """Returns the error for a missing right. The error asks for a login that has this right."""
    return InvalidValue("--url", "the login of an inbox", f"{_NEEDS} ({error})") if lacks_right(error) else error
