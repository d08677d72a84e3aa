"""No decision rests on a sentence: what product code compares, or takes apart, is no answer, reason, detail or result.

A sentence changes with a release, and 0.2.0 beside this one writes its own. Codes and closed words decide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("reconciler", "producers/checkback_producers", "consumers/checkback_consumers")
#: Rooms that know nothing of the ledger: a broker of our own, the client, and what only shows or tries.
APART = {"demo", "embedded", "rocketmq"}

#: Names of values that hold a sentence.
SENTENCES = {"answer", "because", "detail", "held_because", "reason", "remark", "result", "told", "why"}
#: Methods and functions that look into a text.
LOOKS = {
    "contains", "count", "endswith", "find", "findall", "finditer", "fullmatch", "index", "like", "match", "partition",
    "removeprefix", "removesuffix", "rfind", "rpartition", "search", "split", "startswith", "sub",
}  # fmt: skip
#: What hands a text on.
HANDS_ON = {"bounded_text", "casefold", "coalesce", "lower", "replace", "str", "strip", "upper"}

#: The one place that reads sentences of 0.2.0, with the expression of retention and the migration that fills facts.
OF_0_2_0 = {
    "reconciler/contract/earlier_words.py answer_in",
    "reconciler/contract/earlier_words.py tells_double_effect",
    "reconciler/ledger/repair_answers.py was_dismissed",
    "reconciler/sql/migrations/ledger/versions/v0015_facts.py _fact",
    "reconciler/sql/migrations/ledger/versions/v0015_facts.py _fill",
}
#: What is looked at elsewhere under such a name, and what it is.
NO_SENTENCE = {
    "consumers/checkback_consumers/redis_inbox.py _is_of_former_name": "a topic of rows for 0.2.0",
    "consumers/checkback_consumers/sql_session.py _lacks_savepoint": "a driver's error, which SQLite gives no number",
    "reconciler/audit/collect/tasks.py files_of": "a closed word of the audit",
    "reconciler/audit/engines/spark_errors.py cause_line": "a driver's error",
    "reconciler/audit/judge/facts.py quarantined_by_history": "a closed word of the history",
    "reconciler/audit/platform.py _answered": "a closed word of the audit",
    "reconciler/audit/platform.py _unanswered": "a closed word of the audit",
    "reconciler/audit/statement/document.py statement_document": "names of members",
    "reconciler/channels/answers.py secret_parts": "the header of a login",
    "reconciler/commands/run.py still_safe_redis": "an outage's reason is a closed word",
    "reconciler/commands/acts/operator_actions.py recorded": "an error without words leaves no colon",
    "reconciler/contract/row_rules.py use_of": "a kind of name in a list of names, as 0.2.0 keeps it",
    "reconciler/contract/row_rules.py held_again": "a person's words beside the same person's words: said twice or not",
    "reconciler/evidence/broker_answer.py and_elsewhere": "what two brokers said is told once if it is the same",
    "reconciler/evidence/lookup.py _record": "a broker's remark: it has no other code for what it means",
    "reconciler/instrumentation/console.py ask": "what a person typed",
    "reconciler/instrumentation/metrics/events.py emit": "an outage's reason is a closed word",
    "reconciler/instrumentation/metrics/readiness.py readiness_answer": "a closed word",
    "reconciler/ledger/holds.py _as_seen": "the row is the one that a person saw",
    "reconciler/policy/commit_query.py judge_rows": "what two rows of a key say is the same or not",
    "reconciler/policy/dismissal.py dismiss": "outcomes are closed words",
    "reconciler/policy/environment.py _known_brokers": "names of brokers",
    "reconciler/telling/life_events.py _history_event": "a closed word of the history",
    "reconciler/policy/judging/suspect.py taken_back": "a name of evidence",
    "reconciler/policy/round.py _suspend": "an outage's reason is a closed word",
    "reconciler/policy/shard_rounds.py goes_on": "an outage's reason is a closed word",
    "reconciler/settings/file.py describe": "pydantic's words before those of the settings",
    "reconciler/shards/access.py __call__": "an error of Redis, which has no code",
    "reconciler/shards/access.py _is_read_only": "an error of Redis, which has no code",
    "reconciler/shards/access.py translate": "an error of Redis, which has no code",
    "reconciler/sql/driver_errors.py is_away": "a driver's error",
    "reconciler/sql/driver_errors.py lacks_schema": "a driver's error",
    "reconciler/sql/driver_errors.py translate_driver_error": "a driver's error",
    "reconciler/wiring/query_files.py _sql": "SQL that a person wrote",
    "reconciler/web/application.py _log_refusal": "statuses",
    "reconciler/web/audits/verify_process.py _read": "a closed word of the audit",
    "reconciler/web/console/overview.py _now": "names of remarks",
    "reconciler/wiring/shard_numbers.py _note": "facts: the same as before is not logged again",
}


@cache
def trees() -> Mapping[str, ast.Module]:
    """File -> its syntax tree."""
    paths = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {name: ast.parse(path.read_text("utf-8")) for name, path in names.items() if name.split("/")[1] not in APART}


def looks() -> Iterator[tuple[str, ast.AST]]:
    """File and function of each comparison, and of each look into a text."""
    for name, tree in trees().items():
        yield from ((f"{name} {function}", node) for function, node in within(tree, ""))


@cache
def phrases() -> frozenset[tuple[str, str]]:
    """Constants that are several words of a sentence: file and name; no file where others may import it."""
    return frozenset(
        (name if target.id.startswith("_") else "", target.id)
        for name, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and is_several_words(node.value, name)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


@cache
def sayers() -> frozenset[str]:
    """Functions that put several words around a value: what they return is known by its beginning."""
    return frozenset(
        function
        for name, tree in trees().items()
        for function, node in within(tree, "")
        if isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr) and is_several_words(node.value, name)
    )


def is_several_words(node: ast.AST, file: str) -> bool:
    match node:
        case ast.Constant(value=str(value)):
            return re.search(r"[a-z]{2,} [a-z]{2,}|[a-z]{2,} $", value) is not None
        case ast.JoinedStr(values=values):
            return any(is_several_words(one, file) for one in values)
        case ast.Call(func=ast.Name(id=name)):
            return name in sayers()
        case ast.Name(id=name):
            return not phrases().isdisjoint({(file, name), ("", name)})
    return False


def within(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from within(child, name)
        yield function, child


def is_look(node: ast.AST, file: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=value), args=args) if attr in LOOKS:
            return any(is_sentence(one) or is_several_words(one, file) for one in (value, *args))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = (left, *others)
            is_of_texts = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in ops)
            is_empty = any(isinstance(side, ast.Constant) and side.value in ("", None) for side in sides)
            holds_words = isinstance(ops[0], ast.In | ast.NotIn) and is_several_words(left, file)
            return is_of_texts and not is_empty and (holds_words or any(map(is_sentence, sides)))
        case ast.Match(subject=subject):
            return is_sentence(subject)
    return False


def is_sentence(node: ast.AST) -> bool:
    """The value itself, as it is or handed on; not what a value of that name has as fields."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SENTENCES
        case ast.Subscript(slice=ast.Constant(value=name), value=value):
            return name in SENTENCES or is_fields(value)
        case ast.Call(func=ast.Attribute(attr="get", value=value), args=[ast.Constant(value=name), *_]):
            return name in SENTENCES or is_fields(value)
        case ast.Call(func=ast.Name(id=name), args=args) if name in HANDS_ON:
            return any(map(is_sentence, args))
        case ast.Call(func=ast.Attribute(attr=name, value=value), args=args) if name in HANDS_ON:
            return any(map(is_sentence, (value, *args)))
        case ast.BoolOp(values=values):
            return any(map(is_sentence, values))
        case ast.IfExp(body=body, orelse=orelse):
            return is_sentence(body) or is_sentence(orelse)
        case ast.NamedExpr(value=value):
            return is_sentence(value)
    return False


def is_fields(node: ast.AST) -> bool:
    """What a fact says beside its code."""
    return isinstance(node, ast.Attribute) and node.attr == "fields"


@pytest.mark.parametrize(
    "decision",
    [
        "fact.fields['name'] == 'rocketmq'",
        "str(fact.fields['name']).partition(' ')[0] in ('outbox', 'inbox')",
        "name.startswith(broker_name(''))",
        "name.startswith(f'broker {one}')",
        "str(fact.fields.get('answer')).startswith('dismissed')",
    ],
)
def test_a_look_into_what_a_fact_says_or_at_words_that_a_function_has_written_is_seen(decision: str) -> None:
    assert any(is_look(node, "") for node in ast.walk(ast.parse(decision)))


def test_nothing_but_the_named_place_looks_into_a_sentence() -> None:
    found = {place for place, node in looks() if is_look(node, place.partition(" ")[0])}
    assert found == OF_0_2_0 | NO_SENTENCE.keys()


def test_the_words_of_0_2_0_are_known_to_the_named_place_alone() -> None:
    words = {"BEGINS_DISMISSED", "BEGINS_DOUBLE_EFFECT"}
    users = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "reconciler.contract.earlier_words"
        and words & {alias.name for alias in node.names}
    }
    assert users == {"reconciler/ledger/repair_answers.py"}
