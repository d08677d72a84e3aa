"""Counts rows of the window that no subscription of the plan judges, by table, topic and group.

The counting uses only columns that are read anyway. A table without such columns is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from reconciler.audit.evidence.plan import JudgePlan
from reconciler.audit.judge.keys import Codes
from reconciler.audit.judge.rows import Flags, Rows, Vocabulary
from reconciler.audit.result.not_judged import GROUP_COLUMNS, TIME_COLUMNS, RowsOf
from reconciler.audit.result.values import AuditedSubscription, NoAnswer
from reconciler.contract.evidence_layout import EFFECTS_EVIDENCE, INBOX_EVIDENCE, OUTBOX_EVIDENCE, REPAIR_EVIDENCE
from reconciler.contract.tables import EVERY_GROUP

#: Tables of commits and effects. An audit is about these tables.
_OF_MESSAGES = frozenset({OUTBOX_EVIDENCE.name, INBOX_EVIDENCE.name, EFFECTS_EVIDENCE.name})


def overlooked(
    asked: Collection[AuditedSubscription], messages: int, evidence: Mapping[RowsOf, int], sources: Mapping[RowsOf, int]
) -> NoAnswer | None:
    """Returns the reason why unjudged rows prevent an answer. None: the rows belong to other topics or groups.

    Unjudged rows prevent an answer if they are the window's own under names that an export has padded, or if they are
    all rows of the evidence.
    `messages`: number of judged messages. `evidence`, `sources`: unjudged rows in the evidence and at its sources.
    """
    topics = {one.topic for one in asked}
    for (table, topic, group), rows in sorted([*evidence.items(), *sources.items()]):
        if topic.strip() in topics and (topic, group) != (topic.strip(), group.strip()):
            why = (
                f"{rows} rows of {table} are of {topic!r} and {group!r}, with spaces that no name has, and were not "
                "judged; take them away (RTRIM) where the rows are exported, and collect again"
            )
            return NoAnswer(reason="inputs", message=why)
    others = [(rows, name) for name, rows in evidence.items() if name[0] in _OF_MESSAGES]
    if messages or not others:
        return None
    rows, (table, topic, group) = max(others, key=lambda one: (one[0], one[1]))
    why = (
        f"no message was judged, and the evidence has rows of the window under other names, {rows} rows of {table} of "
        f"{topic!r} and {group!r} among them; ask for these, or collect what was asked for"
    )
    return NoAnswer(reason="inputs", message=why)


def unjudged_rows(
    plan: JudgePlan, tables: Mapping[str, Rows], vocabulary: Vocabulary, judged: Mapping[str, int]
) -> Counter[RowsOf]:
    """Counts unjudged rows by (table, topic, group). Doubled rows count as often as they occur.

    `judged` has the number of judged rows of a table, if the number is known. A table whose rows were all judged is
    skipped.
    """
    found: Counter[RowsOf] = Counter()
    for name, group_column in GROUP_COLUMNS.items():
        rows = tables[name]
        if judged.get(name) == len(rows):
            continue
        topics, groups = rows.names["topic"], rows.names[group_column]
        others = ~_judged(name, plan, topics, groups, vocabulary)
        if not others.any():
            continue
        if (time_column := TIME_COLUMNS.get(name)) is not None:
            times = rows.times[time_column]
            others &= (times >= plan.window.start_ms) & (times < plan.window.end_ms)
        pairs = np.stack([topics[others], groups[others]], axis=1)
        for (topic, group), count in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
            found[name, _name(vocabulary, topic), _name(vocabulary, group)] += int(count)
    return found


def _judged(table: str, plan: JudgePlan, topics: Codes, groups: Codes, vocabulary: Vocabulary) -> Flags:
    """Marks judged rows. Outbox rows and repairs are judged by topic, for every group.

    Other rows are judged by topic and group.
    """
    asked = [(vocabulary.number(one.topic), vocabulary.number(one.group)) for one in plan.subscriptions]
    every_group = vocabulary.number(EVERY_GROUP)
    topic_places = _places([topic for topic, _ in asked], vocabulary)
    if table == OUTBOX_EVIDENCE.name:
        by_topic: Flags = topic_places[topics] > 0
        return by_topic
    group_places = _places([every_group, *(group for _, group in asked)], vocabulary)
    pairs = np.zeros((topic_places.max() + 1, group_places.max() + 1), np.bool_)
    for topic, group in asked:
        pairs[topic_places[topic], group_places[group]] = True
        if table == REPAIR_EVIDENCE.name:
            pairs[topic_places[topic], group_places[every_group]] = True
    by_pair: Flags = pairs[topic_places[topics], group_places[groups]]
    return by_pair


def _places(numbers: list[int], vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
    """Maps numbers of names to places from 1 among the wanted names.

    0 stands for another name, and at the end for no name.
    """
    places = np.zeros(len(vocabulary) + 1, np.int32)
    for place, number in enumerate(dict.fromkeys(numbers), start=1):
        places[number] = place
    return places


def _name(vocabulary: Vocabulary, number: int) -> str:
    return vocabulary.name(number) or ""
