"""Stores the state of queues of business topics, so that it outlives restarts (ports.SeenQueues).

The states are rows of reconciler_floor without a group. Readers of floors ask for a group, so they never see rows
without a group. In a state, queue_offset is the offset below which the queue may have assigned offsets twice. `proof`
contains the end, the last record, and for each group the place from which the group's offset proves something again. A
ledger without the column `proof` stores nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import sqlalchemy as sa

from reconciler.contract.queue_proof import QueueProof, read_proof
from reconciler.contract.row_rules import is_storable
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import FLOOR
from reconciler.ledger.database import LedgerDatabase, chunks
from reconciler.ledger.floors import SqlFloors
from reconciler.policy.ports.announcing import ProvedFrom, SeenQueue
from reconciler.sql.tables import floor

#: The value of consumer_group in these rows.
_NO_GROUP = ""
#: Maximum number of rows of one transaction, because each row is locked until its end.
ROWS_A_TRANSACTION = 200

#: Maximum number of groups of a queue that are stored. Further groups start in doubt after a restart.
GROUPS_MAX = 64
_PROVED = re.compile(r"(\d{1,19}) (\d{1,19}) (\d{1,19}) (\*|[%|0-9A-Za-z_-]{1,255})", re.ASCII)

_NAMES = ("broker", "queue_id", "queue_offset", "proof")
_ROWS = RowReader(FLOOR, _NAMES)


class SqlSeenQueues:
    """The seen queues in SQL. Thread-safe. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, floors: SqlFloors) -> None:
        """`floors` knows whether the table has the column `proof`."""
        self._database = database
        self._floors = floors

    def of_topic(self, environment: str, topic: str) -> Mapping[tuple[str, int], SeenQueue]:
        """Runs one SELECT. A damaged row counts as missing."""
        query = sa.select(*(floor.c[name] for name in _NAMES)).where(*_of(environment, topic))
        with self._database.reading() as connection:
            if not self._floors.keeps_proofs(connection):
                return {}
            rows = [_ROWS.parse(row) for row in connection.execute(query)]
        return {
            (row.values["broker"], row.values["queue_id"]): _seen(row.values["queue_offset"], row.values["proof"])
            for row in rows
            if row.damage is None
        }

    def keep(self, environment: str, topic: str, seen: Mapping[tuple[str, int], SeenQueue]) -> None:
        """Replaces the rows, but never lowers the doubtful offset. Each group's line names the doubtful offset that it
        belongs to, and is valid only for this one. Writes in order, so that two processes never wait for each other."""
        now = self._database.now()
        identity = {"environment": environment, "topic": topic, "consumer_group": _NO_GROUP}
        rows = [
            {"broker": broker, "queue_id": number, "queue_offset": one.doubtful_below, "proof": _text(one)}
            for (broker, number), one in sorted(seen.items())
            if is_storable(broker)
        ]
        if not is_storable(topic):
            return  # no database can store this name
        below = sa.bindparam("p_below", type_=sa.BigInteger())
        update = (
            sa.update(floor)
            .where(*_of(environment, topic))
            .where(floor.c.broker == sa.bindparam("p_broker"), floor.c.queue_id == sa.bindparam("p_queue_id"))
            .values(
                queue_offset=sa.case((floor.c.queue_offset > below, floor.c.queue_offset), else_=below),
                proof=sa.bindparam("p_proof"),
                updated_at_ms=now,
            )
        )
        for some in chunks(rows, ROWS_A_TRANSACTION):
            with self._database.writing() as connection:
                if not self._floors.keeps_proofs(connection):
                    return
                self._database.insert_missing(
                    connection, floor, [identity | row | {"updated_at_ms": now} for row in some]
                )
                connection.execute(
                    update,
                    [
                        {
                            "p_broker": row["broker"],
                            "p_queue_id": row["queue_id"],
                            "p_below": row["queue_offset"],
                            "p_proof": row["proof"],
                        }
                        for row in some
                    ],
                )


def _of(environment: str, topic: str) -> list[sa.ColumnElement[bool]]:
    return [floor.c.environment == environment, floor.c.topic == topic, floor.c.consumer_group == _NO_GROUP]


def _text(seen: SeenQueue) -> str | None:
    """Returns the proof, then one line per group: the doubtful offset, the group's offset, the place in the log, the
    group."""
    if seen.record is None:
        return None
    proof = QueueProof(following=seen.end, record=seen.record).text
    lines = [
        f"{seen.doubtful_below} {one.queue_offset} {one.behind_log_offset} {group}"
        for group, one in sorted(seen.proved_from.items())[:GROUPS_MAX]
    ]
    return "\n".join((proof, *lines))


def _seen(doubtful_below: int, text: str | None) -> SeenQueue:
    first, *lines = (text or "").split("\n")
    proof = read_proof(first)
    if proof is None:
        return SeenQueue(end=0, record=None, doubtful_below=doubtful_below)
    read = [found.groups() for line in lines[:GROUPS_MAX] if (found := _PROVED.fullmatch(line)) is not None]
    proved = {
        group: ProvedFrom(queue_offset=int(offset), behind_log_offset=int(log))
        for below, offset, log, group in read
        if int(below) == doubtful_below
    }
    return SeenQueue(end=proof.following, record=proof.record, doubtful_below=doubtful_below, proved_from=proved)
