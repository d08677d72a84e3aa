"""Arrow tables of one prefix made from its stories: the evidence tables, and the history streams with a key."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.history_generation.plan import Int64s, Plan, RoundTimes
from benchmarks.history_generation.stories import (
    CANDIDATE_STATES,
    CLOSED,
    NEVER,
    NEW,
    NO_CANDIDATE,
    NO_ROW,
    OPEN,
    REPAIR_STATES,
    RUNGS,
    STATES,
    TAGS,
    VERDICTS,
    Repairs,
    Stories,
)
from reconciler.contract.evidence_layout import EVIDENCE_TABLES, LEDGER_ROUND_EVIDENCE
from reconciler.contract.history_row import HISTORY_STREAMS
from reconciler.contract.schema import Column

DIGEST_BYTES = 32
_EVIDENCE_TEXT = '{"broker":"ABSENT","inbox":"ABSENT","outbox":"FOUND"}'
_ARROW = {
    "key": pa.binary(),
    "digest": pa.binary(),
    "name": pa.string(),
    "text": pa.string(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "bool": pa.bool_(),
}


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, _ARROW[c.kind], nullable=c.nullable) for c in columns])


SCHEMAS: dict[str, pa.Schema] = {
    **{table.name: _schema(table.columns) for table in (*EVIDENCE_TABLES, LEDGER_ROUND_EVIDENCE)},
    **{f"history/{stream.name}": _schema(stream.columns) for stream in HISTORY_STREAMS},
}


def named(numbers: NDArray[np.integer], names: tuple[str, ...] | list[str]) -> pa.Array:
    """Names by number; negative numbers and empty names are NULL."""
    known = np.array([bool(name) for name in names])
    absent = (numbers < 0) | ~known[numbers]
    indices = pa.array(np.where(absent, 0, numbers).astype(np.int32), mask=absent if absent.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def times(values: Int64s) -> pa.Array:
    """Milliseconds; -1 is NULL."""
    absent = values == NEVER
    return pa.array(values, pa.int64(), mask=absent if absent.any() else None)


def made(name: str, columns: dict[str, pa.Array]) -> pa.Table:
    """A table whose columns are those of the contract, names dictionary-encoded (Parquet shows plain strings)."""
    fields = [pa.field(field.name, columns[field.name].type, nullable=field.nullable) for field in SCHEMAS[name]]
    return pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))


@dataclass(slots=True)
class PrefixRows:
    """Tables by name, and what the streams without a key need: rows by (subscription and shard, round)."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    #: "announced", "consumed", "matched", "added", "left_matched", "settled": (rows, rounds).
    counts: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    #: Rows of each snapshot: (rows, snapshots).
    snapshot_rows: NDArray[np.int64] | None = None


class PrefixTables:
    """Makes them; `s` is not changed."""

    def __init__(self, plan: Plan, rounds: RoundTimes, stories: Stories) -> None:
        self.plan, self.rounds, self.s = plan, rounds, stories
        self.topics = [plan.topic(number) for number in range(plan.topics)]
        self.groups = [plan.group(number) for number in range(plan.groups)]
        self.producers = [plan.producer_group(topic, number) for topic in range(plan.topics) for number in (0, 1)]
        subscription = stories.topic[:, None] * plan.groups + np.arange(plan.groups)
        #: Row of RoundTimes of each (key, group), and the rounds that took its announcement and consumption.
        self.row = subscription * plan.shards + stories.shard[:, None]
        self.announced_round = rounds.after(self.row, stories.announced)
        self.consumed_round = rounds.after(self.row, stories.consumed)
        size = len(stories) * DIGEST_BYTES
        self.digests = np.frombuffer(stories.rng.bytes(size), np.uint8).reshape(-1, DIGEST_BYTES)

    def make(self) -> PrefixRows:
        """All of them."""
        rows = PrefixRows()
        rows.tables["outbox"] = self._outbox()
        rows.tables["inbox"], rows.tables["effects"] = self._inbox()
        rows.tables["candidate"], rows.tables["history/verdict"] = self._candidate()
        rows.tables["repair"], rows.tables["history/repair"] = self._repair()
        self._pending(rows)
        return rows

    def _digest(self, i: Int64s, known: NDArray[np.bool_], other: NDArray[np.bool_] | None = None) -> pa.Array:
        data = self.digests[i]
        if other is not None:
            data[other, 0] ^= 1
        data = data[known]
        offsets = np.zeros(len(i) + 1, np.int32)
        np.cumsum(known * DIGEST_BYTES, out=offsets[1:])
        valid = pa.py_buffer(np.packbits(known, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(i), [valid, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])

    def _business_ids(self, i: Int64s) -> pa.Array:
        """One a message, as a service would count its orders."""
        topics = named(self.s.topic[i], self.topics).cast(pa.string())
        return pc.binary_join_element_wise(topics, pa.array(self.s.created[i]).cast(pa.string()), "-")

    def _outbox(self) -> pa.Table:
        s = self.s
        i = np.flatnonzero(s.state != NO_ROW)
        announced = np.where(s.state[i] == NEW, NEVER, s.created[i] + 15)
        return made(
            "outbox",
            {
                "key": s.keys.column(i),
                "topic": named(s.topic[i], self.topics),
                "producer_group": named(2 * s.topic[i] + s.producer[i], self.producers),
                "tag": named(s.tag[i], TAGS),
                "content_digest": self._digest(i, s.digest_known[i]),
                "state": named(s.state[i], STATES),
                "created_at_ms": times(s.created[i]),
                "announced_at_ms": times(announced),
                "business_id": self._business_ids(i),
            },
        )

    def _inbox(self) -> tuple[pa.Table, pa.Table]:
        s = self.s
        i, g = np.nonzero(s.effects > 0)
        key, topic, group = s.keys.column(i), named(s.topic[i], self.topics), named(g, self.groups)
        inbox = {
            "key": key,
            "topic": topic,
            "consumer_group": group,
            "content_digest": self._digest(i, s.inbox_digest_known[i, g], s.digest_differs[i, g]),
            "source": named(s.handed_over[i, g].astype(np.int8), ["consumer", "hand-over"]),
            "applied_at_ms": times(s.applied[i, g]),
            "incomplete": pa.array(np.full(len(i), "4711"), mask=~s.incomplete[i, g]).dictionary_encode(),
        }
        count = pa.array(s.effects[i, g].astype(np.int64))
        effects = {"key": key, "topic": topic, "consumer_group": group, "effects": count}
        return made("inbox", inbox), made("effects", effects)

    def _at(self, i: Int64s, g: Int64s, number: Int64s) -> Int64s:
        """Time of a round of the key's shard; -1 for round -1."""
        return np.where(number < 0, NEVER, self.rounds.at[self.row[i, g], number])

    def _candidate(self) -> tuple[pa.Table, pa.Table]:
        s = self.s
        i, g = np.nonzero(s.candidate != NO_CANDIDATE)
        round_ms = self._at(i, g, self.announced_round[i, g])
        first_seen = np.where(round_ms < 0, s.created[i] + 1_000, round_ms)
        common = {
            "key": s.keys.column(i),
            "topic": named(s.topic[i], self.topics),
            "consumer_group": named(g, self.groups),
            "state": named(s.candidate[i, g], CANDIDATE_STATES),
            "verdict": named(s.verdict[i, g], VERDICTS),
            "first_seen_ms": times(first_seen),
        }
        updated = times(np.maximum(s.left_ms[i, g], first_seen + 40_000))
        candidate = {**common, "loss_verdict": named(s.loss[i, g], VERDICTS), "updated_at_ms": updated}
        text = named(np.zeros(len(i), np.int8), [_EVIDENCE_TEXT])
        shard = pa.array(s.shard[i].astype(np.int32))
        return made("candidate", candidate), made(
            "history/verdict", {**common, "shard": shard, "at_ms": updated, "evidence": text}
        )

    def _repair(self) -> tuple[pa.Table, pa.Table]:
        parts = self.s.repairs
        empty = np.zeros(0, np.int64)
        r = Repairs(*(np.concatenate([empty, *(getattr(p, name) for p in parts)]) for name in Repairs.__slots__))
        scopes = [*self.groups, "*"]
        key, topic = self.s.keys.column(r.key), named(self.s.topic[r.key], self.topics)
        scope, rung = named(r.scope % len(scopes), scopes), named(r.rung, RUNGS)
        table = {
            **{"key": key, "topic": topic, "scope": scope, "rung": rung},
            "state": named(r.state, REPAIR_STATES),
            "attempts": pa.array(r.attempts.astype(np.int32)),
            "created_at_ms": times(r.created_ms),
            "sent_at_ms": times(r.sent_ms),
            "first_sent_at_ms": times(r.first_sent_ms),
            "done_at_ms": times(r.done_ms),
        }
        sent = r.sent_ms != NEVER
        change = {
            **{"key": key.filter(pa.array(sent)), "topic": topic.filter(pa.array(sent))},
            **{"scope": scope.filter(pa.array(sent)), "rung": rung.filter(pa.array(sent))},
            "at_ms": times(r.sent_ms[sent]),
            "before": named(np.full(sent.sum(), 1), REPAIR_STATES),
            "after": named(np.full(sent.sum(), 2), REPAIR_STATES),
            "attempts": pa.array(r.attempts[sent].astype(np.int32)),
            "answer": pa.nulls(int(sent.sum()), pa.string()),
        }
        return made("repair", table), made("history/repair", change)

    def _taken(self, stream: str, i: Int64s, g: Int64s, number: Int64s) -> tuple[pa.Table, NDArray[np.int32]]:
        """Rows of `announced` or `consumed` in the order of rounds, and how many each round has."""
        times_, row = self.rounds, self.row[i, g]
        order = np.argsort(number * times_.rows + row, kind="stable")
        i, g, number, row = i[order], g[order], number[order], row[order]
        columns = {
            **self._subscription(i, g),
            "epoch": named(row, times_.epochs),
            "generation": times(times_.generation_first[row] + number),
            "at_ms": times(times_.at[row, number]),
            "key": self.s.keys.column(i),
        }
        return made(f"history/{stream}", columns), self._count(row, number)

    def _subscription(self, i: Int64s, g: Int64s) -> dict[str, pa.Array]:
        return {
            "topic": named(self.s.topic[i], self.topics),
            "consumer_group": named(g, self.groups),
            "shard": pa.array(self.s.shard[i].astype(np.int32)),
        }

    def _count(self, row: Int64s, number: Int64s) -> NDArray[np.int32]:
        shape = (self.rounds.rows, self.rounds.rounds)
        counted = np.bincount(row * shape[1] + number, minlength=shape[0] * shape[1])
        return counted.astype(np.int32).reshape(shape)

    def _pending(self, out: PrefixRows) -> None:
        s, a, c = self.s, self.announced_round, self.consumed_round
        i, g = np.nonzero(a >= 0)
        again_i, again_g = np.nonzero((a >= 0) & s.announced_again)
        again = self.rounds.after(self.row[again_i, again_g], s.announced[again_i, again_g] + 20_000)
        came = again >= 0
        parts = [(i, again_i[came]), (g, again_g[came]), (a[i, g], again[came])]
        out.tables["history/announced"], out.counts["announced"] = self._taken(
            "announced", *(np.concatenate(part) for part in parts)
        )
        i, g = np.nonzero(c >= 0)
        out.tables["history/consumed"], out.counts["consumed"] = self._taken("consumed", i, g, c[i, g])

        waited = (a >= 0) & ((c < 0) | (c > a))
        i, g = np.nonzero(waited)
        row, first, last = self.row[i, g], a[i, g], c[i, g]
        settled = (s.left[i, g] != 0) & (last < 0)
        last_ms = np.where(settled, s.left_ms[i, g], self._at(i, g, last))
        out.counts["added"] = self._count(row, first)
        matched = last >= 0
        out.counts["left_matched"] = self._count(row[matched], last[matched])
        settled_round = self.rounds.after(row, np.where(settled, s.left_ms[i, g], NEVER))
        out.counts["settled"] = self._count(row[settled_round >= 0], settled_round[settled_round >= 0])
        out.tables["history/left"] = self._left(i, g, matched | settled, settled, last_ms)
        out.tables["history/pending"], out.snapshot_rows = self._snapshots(i, g, first, last_ms)

    def _left(
        self, i: Int64s, g: Int64s, left: NDArray[np.bool_], settled: NDArray[np.bool_], last_ms: Int64s
    ) -> pa.Table:
        gone = np.flatnonzero(left)
        gone = gone[np.argsort(last_ms[gone], kind="stable")]
        i, g, settled = i[gone], g[gone], settled[gone]
        reason = np.where(settled, self.s.left[i, g], OPEN)
        columns = {
            **self._subscription(i, g),
            "at_ms": times(last_ms[gone]),
            "key": self.s.keys.column(i),
            "reason": named(reason, ["", "MATCHED", *CANDIDATE_STATES[CLOSED:]]),
            "detail": named(np.where(settled, self.s.verdict[i, g], -1), VERDICTS),
        }
        return made("history/left", columns)

    def _snapshots(self, i: Int64s, g: Int64s, first: Int64s, last_ms: Int64s) -> tuple[pa.Table, NDArray[np.int64]]:
        """Everything that waited at a snapshot's time, but what stories say was forgotten."""
        tables, counts = [], []
        row = self.row[i, g]
        first_ms = self.rounds.at[row, first]
        seen = np.zeros(len(i), bool)
        for number in range(self.rounds.snapshots.shape[1]):
            at = self.rounds.snapshots[row, number]
            there = (first_ms <= at) & ((last_ms < 0) | (last_ms > at))
            forgotten = self.s.forgotten[i, g]
            shown = there & ~((forgotten == 2) | ((forgotten == 1) & ~seen))
            seen |= there
            k = np.flatnonzero(shown)
            columns = {
                **self._subscription(i[k], g[k]),
                "at_ms": times(at[k]),
                "key": self.s.keys.column(i[k]),
                "first_seen_ms": times(first_ms[k]),
            }
            tables.append(made("history/pending", columns))
            counts.append(np.bincount(row[k], minlength=self.rounds.rows))
        return pa.concat_tables(tables), np.stack(counts, axis=1)
