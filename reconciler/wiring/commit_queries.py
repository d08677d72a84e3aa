"""Reads the file of commit queries, and makes the adapters that ask the databases."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.kept_facts import ACT_QUERY_ACCEPTED, QUERY_NOT_ACCEPTED
from reconciler.contract.row_rules import QUERY_ACCEPTANCE, QUERY_WITHDRAWAL
from reconciler.contract.secret import Secret, secret_text
from reconciler.contract.secret_sources import UnreadableSecret, read_secret_file
from reconciler.contract.urls import HIDDEN, read_database_url, shown_url
from reconciler.errors import InvalidValue, MissingDependency
from reconciler.halves.business_key import KEY_SOURCE, judge_halves, key_in, tried_halves, without_key
from reconciler.halves.classify import Identity
from reconciler.halves.ended_sample import EndedHalves
from reconciler.halves.values import Half, HalfCopy
from reconciler.policy.commit_query import (
    KEYS_MAX,
    ROWS_A_KEY_MAX,
    BusinessAnswer,
    CommitQuery,
    KeyType,
    KeyValue,
    State,
    digest_of_key,
    is_committed,
    unknown,
    without_row,
)
from reconciler.policy.commit_query_dry_run import (
    Fitness,
    QueryAspect,
    QueryFinding,
    shared_keys,
    trust,
    try_on_committed,
    try_on_rolled_back,
)
from reconciler.policy.evidence import StoredMessage
from reconciler.rocketmq.wire.codes import HALF_TOPICS
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.paging import LedgerFilter, all_rows

if TYPE_CHECKING:
    from reconciler.settings.schema import Settings
    from reconciler.wiring.connections import Connections  # a scan needs no connections

UNFIT = Code("query.unfit", why=Field.FACT)
OF_TOPIC = Code("query.of-topic", topic=Field.NAME, told=Field.FACT)

#: Name of the list in the file.
_LIST = "commit_queries"
_NAMES = frozenset(
    {
        "topic",
        "database_url",
        "database_url_file",
        "sql",
        "key",
        "key_type",
        "committed",
        "rolled_back",
        "longest_transaction_seconds",
    }
)
_LONGEST_TRANSACTION_SECONDS = 600.0
_KEYS_IN_BRACKETS = re.compile(r"\(\s*:keys\s*\)")
_KEYS = re.compile(r"(?<![:\w]):keys\b")
#: A statement that returns this number of rows has returned too many.
_ROWS_MAX = KEYS_MAX * ROWS_A_KEY_MAX + 1
_GAP = r"(?>\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)"
_QUOTED = {
    False: r"""(?<!\w)E'(?:[^'\\]|\\.|'')*'|'[^']*'|--[^\n]*|/\*.*?\*/|"[^"]*"(?:\s*\.\s*\w+)*""",
    # MySQL and MariaDB execute the text of /*! */ and /*M! */.
    True: r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\#[^\n]*|--(?!\S)[^\n]*|/\*(?!M?!).*?\*/""",
}
#: True for MySQL and MariaDB, False for others -> pattern that finds :keys, brackets, clauses, commas before brackets,
#: and words that leave rows out. The pattern skips texts, names and comments. Words in quotes, or behind a dot, a colon
#: or AS, count as names.
_WORDS = {
    is_mysql: re.compile(
        rf"""{quoted}|`[^`]*`(?:\s*\.\s*\w+)*|(?<!\w)AS\s+\w+|(?<!\w)[^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)+
        |(?P<word>[()]|(?<![:\w]):keys\b
        |(?P<clause>\b(?:SELECT|FROM|WHERE|GROUP|ORDER|HAVING|WINDOW|UNION|EXCEPT|INTERSECT)\b)
        |(?P<comma>,{_GAP}*(?=\())
        |\bLIMIT\b(?!{_GAP}+(?:ALL|NULL)\b)(?:{_GAP}+(?P<rows>\d{{1,18}}){_GAP}*\Z)?
        |\bFETCH{_GAP}+(?:FIRST|NEXT)\b(?:{_GAP}+(?P<of_rows>\d{{1,18}}){_GAP}+ROWS?{_GAP}+ONLY{_GAP}*\Z)?
        |\bOFFSET{_GAP}*(?:[1-9:?(]|0\d)
        |(?P<leaves_out>\bSKIP{_GAP}+LOCKED\b|\bTABLESAMPLE{_GAP}+\w+{_GAP}*\())
        |:+\w+""",
        re.I | re.S | re.X,
    )
    for is_mysql, quoted in _QUOTED.items()
}

#: Matches the text before the bracket of a common table expression, or of a subquery in FROM. The text before a
#: subquery of LATERAL does not match, because such a subquery belongs to one row.
_SET_OF_ROWS = re.compile(
    rf"\b(?:AS(?:{_GAP}+(?:NOT{_GAP}+)?MATERIALIZED)?|FROM|(?:STRAIGHT_)?JOIN){_GAP}*\(?{_GAP}*\Z", re.I | re.S
)
#: Matches the text before the bracket of a subquery that gives values to compare with.
_SET_OF_VALUES = re.compile(rf"\b(?:IN|(?:ANY|SOME)(?:{_GAP}*\({_GAP}*ARRAY)?){_GAP}*\(?{_GAP}*\Z", re.I | re.S)

Others = Callable[[Sequence[HalfCopy]], Mapping[Identity, bool | None]]


@dataclass(frozen=True, slots=True)
class ConfiguredQuery:
    """A commit query, and the URL of its database."""

    query: CommitQuery
    url: Secret = field(repr=False)

    @property
    def digest(self) -> str:
        """Digest of the query and of its database's URL without login and password.

        An acceptance holds only for a query with the same digest.
        """
        return hashlib.sha256(f"{self.query.meaning}{shown_url(self.url)}".encode()).hexdigest()


def accepted_query(connections: Connections, one: ConfiguredQuery) -> OperatorAction | None:
    """Returns the act by which a person accepted this query. None: the query is not accepted.

    Of a topic's queries, only the one that was accepted last counts as accepted. Raises DatabaseAway.
    """
    standing = standing_acceptance(connections, one.query.topic)
    return standing if standing is not None and accepted_digest(standing) == one.digest else None


def why_not_accepted(connections: Connections, topic: str) -> Fact | None:
    """Returns why this process sends nothing by the topic's query. None: a person has accepted the query.

    Raises DatabaseAway.
    """
    one = configured_queries(connections.settings).get(topic)
    return None if one is not None and accepted_query(connections, one) is not None else _not_accepted(topic)


def _not_accepted(topic: str) -> Fact:
    return QUERY_NOT_ACCEPTED(topic=topic)


def standing_acceptance(connections: Connections, topic: str) -> OperatorAction | None:
    """Returns the newest acceptance of a query of the topic, unless a later act withdrew it. Raises DatabaseAway."""
    accepted, withdrawn = (_newest_act(connections, of, topic) for of in (QUERY_ACCEPTANCE, QUERY_WITHDRAWAL))
    # If both acts have the same time, nobody knows which act came first, so no query counts as accepted.
    is_over = accepted is None or (withdrawn is not None and withdrawn.started_at_ms >= accepted.started_at_ms)
    return None if is_over else accepted


def accepted_digest(act: OperatorAction) -> str:
    """Returns the digest of the query that an act accepted. Empty: the act cannot be read."""
    return str(act.fact.fields["digest"]) if act.fact is not None and act.fact.code is ACT_QUERY_ACCEPTED else ""


def _newest_act(connections: Connections, command: str, topic: str) -> OperatorAction | None:
    only = LedgerFilter(command=command, topic=topic)
    listing = partial(connections.ledger.reports.actions, connections.settings.environment, only=only)
    return next(all_rows(listing, limit=1), None)


def read_commit_queries(path: Path) -> tuple[ConfiguredQuery, ...]:
    """Returns the commit queries of a file. A topic has at most one query. Raises InvalidValue."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidValue("--commit-query", str(path), f"cannot be read as TOML: {error}") from None
    listed = values.get(_LIST)
    if not isinstance(listed, list) or not listed or values.keys() != {_LIST}:
        raise InvalidValue("--commit-query", str(path), f"needs sections [[{_LIST}]], and nothing else")
    found = tuple(_query(f"{_LIST}[{number}]", one) for number, one in enumerate(listed))
    topics = [one.query.topic for one in found]
    if len(set(topics)) < len(topics):
        raise InvalidValue(_LIST, ", ".join(topics), "each topic has one query at most")
    return found


#: Reads a file once for this process, so that after an edit its rounds and its pages still use the same queries.
_read_once = cache(read_commit_queries)


def configured_queries(settings: Settings) -> dict[str, ConfiguredQuery]:
    """Returns topic -> the commit query that replaces the outbox of the topic's producers.

    A later change of the file has no effect on this process. Raises InvalidValue.
    """
    found: dict[str, ConfiguredQuery] = {}
    for number, producer in enumerate(settings.producers):
        if producer.commit_queries is None:
            continue
        of_file = {one.query.topic: one for one in _read_once(Path(producer.commit_queries))}
        for topic in producer.topics:
            if topic not in of_file:
                raise InvalidValue(f"producers[{number}].commit_queries", topic, "the file has no query of this topic")
            found[topic] = of_file[topic]
    return found


def _query(place: str, values: Any) -> ConfiguredQuery:
    if not isinstance(values, dict) or values.keys() - _NAMES:
        raise InvalidValue(place, "", f"takes {', '.join(sorted(_NAMES))}")

    def text(name: str, otherwise: str | None = None) -> str:
        value = values.get(name, otherwise)
        if not isinstance(value, str) or not value.strip():
            raise InvalidValue(f"{place}.{name}", value, "expected a text")
        return value.strip()

    key, key_type = text("key"), text("key_type", KeyType.TEXT.value)
    if KEY_SOURCE.fullmatch(key) is None:
        raise InvalidValue(f"{place}.key", key, "expected UNIQ_KEY, KEYS, property:NAME or body:NAME.NAME")
    if key_type not in [one.value for one in KeyType]:
        raise InvalidValue(f"{place}.key_type", key_type, f"expected one of {', '.join(KeyType)}")
    committed, rolled_back = (_states(f"{place}.{name}", values.get(name, [])) for name in ("committed", "rolled_back"))
    if not committed or any(type(one) is type(other) and one == other for one in committed for other in rolled_back):
        raise InvalidValue(f"{place}.committed", committed, "needs a state at least, and none that is in rolled_back")
    seconds = values.get("longest_transaction_seconds", _LONGEST_TRANSACTION_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise InvalidValue(f"{place}.longest_transaction_seconds", seconds, "expected a number of seconds")
    url = _url(place, values)
    query = CommitQuery(
        topic=text("topic"),
        sql=_sql(f"{place}.sql", text("sql"), is_mysql=_is_of_mysql(url)),
        key=key,
        key_type=KeyType(key_type),
        committed=committed,
        rolled_back=rolled_back,
        longest_transaction_seconds=float(seconds),
    )
    return ConfiguredQuery(query, url)


def _sql(place: str, text: str, *, is_mysql: bool = False) -> str:
    """Returns the statement. Raises InvalidValue for a text that cannot be one statement with one place for keys."""
    sql = _KEYS_IN_BRACKETS.sub(" :keys ", text)
    if ";" in sql:
        raise InvalidValue(place, text, "holds a semicolon: one statement, without one at its end")
    if len(_KEYS.findall(sql)) != 1:
        raise InvalidValue(place, text, "needs :keys once, as in WHERE order_no IN (:keys)")
    if _cuts_off_rows(sql, is_mysql=is_mysql):
        raise InvalidValue(
            place,
            text,
            "asks for many keys at once: a row that LIMIT, FETCH, OFFSET, SKIP LOCKED or TABLESAMPLE cuts off would "
            "count as none",
        )
    return sql


def _is_of_mysql(url: Secret) -> bool:
    return read_database_url(url).scheme in ("mysql", "mariadb")


def _cuts_off_rows(sql: str, *, is_mysql: bool) -> bool:
    """Returns True if the statement may leave out rows of a key.

    A LIMIT, FETCH or OFFSET may leave rows out in the same brackets as :keys, in brackets around :keys, in a set of
    rows that is searched for keys, or in a set of values that rows must have. A limit is harmless in a subquery for a
    single value, and at the end of the statement with a number above the most rows of an answer. SKIP LOCKED and
    TABLESAMPLE leave rows out anywhere.
    """
    brackets: tuple[int, ...] = ()
    of_keys: tuple[int, ...] = ()
    limits: list[tuple[int, ...]] = []
    #: The clause in each of the brackets, beginning with the statement itself.
    clauses = [""]
    #: Brackets behind a comma of FROM.
    listed: set[int] = set()
    for found in _WORDS[is_mysql].finditer(sql):
        match found["word"]:
            case None:
                continue
            case _ if found["leaves_out"]:
                return True
            case _ if found["clause"]:
                clauses[-1] = found["clause"].upper()
            case _ if found["comma"]:
                listed |= {found.end()} if clauses[-1] == "FROM" else set()
            case "(":
                brackets = (*brackets, found.start())
                clauses.append("")
            case ")":
                brackets, clauses = brackets[:-1], clauses[:-1] or [""]
            case ":keys":
                of_keys = brackets
            case _ if brackets or int(found["rows"] or found["of_rows"] or 0) < _ROWS_MAX:
                limits.append(brackets)
    return any(of_keys[: len(one)] == one or _is_of_a_set(sql, one, listed) for one in limits)


def _is_of_a_set(sql: str, brackets: tuple[int, ...], listed: Collection[int]) -> bool:
    """Returns True if a limit in these brackets cuts off rows or values that decide whether a key has a row."""
    is_of_rows = any(at in listed or _SET_OF_ROWS.search(sql, 0, at) for at in brackets)
    return is_of_rows or _SET_OF_VALUES.search(sql, 0, brackets[-1]) is not None


def _states(place: str, values: Any) -> tuple[State, ...]:
    if not isinstance(values, list) or not all(isinstance(one, (str, int)) for one in values):
        raise InvalidValue(place, values, "expected a list of texts or whole numbers")
    return tuple(values)


def _url(place: str, values: Mapping[str, Any]) -> Secret:
    given = [name for name in ("database_url", "database_url_file") if name in values]
    if len(given) != 1 or not isinstance(values[given[0]], str):
        raise InvalidValue(place, "", "needs database_url, or database_url_file with a file that holds it")
    (name,) = given
    try:
        url = values[name] if name == "database_url" else read_secret_file(values[name])
        read_database_url(url)
    except UnreadableSecret as error:
        raise InvalidValue(f"{place}.{name}", values[name], str(error)) from None
    except ValueError as error:
        raise InvalidValue(f"{place}.{name}", HIDDEN, str(error)) from None
    return secret_text(url)


def require_drivers(configured: Collection[ConfiguredQuery]) -> None:
    """Raises MissingDependency for a driver that is not installed."""
    from reconciler.sql.engines import missing_driver  # loads SQLAlchemy

    for one in configured:
        if (install := missing_driver(one.url)) is not None:
            raise MissingDependency(install)


class Business:
    """The databases of the business that a scan asks. Used by one thread only."""

    def __init__(self, configured: Collection[ConfiguredQuery], *, clock: Clock) -> None:
        """Raises MissingDependency for a driver that is not installed."""
        require_drivers(configured)
        self._configured = configured
        self._clock = clock
        #: Topic -> the place of the business key in the topic's halves.
        self.keys: Mapping[str, str] = {one.query.topic: one.query.key for one in configured}
        #: Remarks about the queries since the last call of ask().
        self.notes: list[Fact] = []

    def ask(self, halves: Sequence[Half], *, others: Others) -> dict[Identity, BusinessAnswer]:
        """Returns the business's answer about each stuck half. Raises nothing.

        A query is not asked if its database or its plan has a problem.
        """
        answers: dict[Identity, BusinessAnswer] = {}
        self.notes = []
        for one in self._configured:
            found = [half for half in halves if half.copy.topic == one.query.topic]
            if found:
                answers |= self._ask_one(one, found, others)
        return answers

    def _ask_one(self, one: ConfiguredQuery, halves: Sequence[Half], others: Others) -> dict[Identity, BusinessAnswer]:
        from reconciler.evidence.commit_query import SqlCommitQuery  # loads SQLAlchemy

        query = one.query
        keys = [value for half in halves if (value := query.key_type.value_of(half.copy.business_key)) is not None]
        with closing(SqlCommitQuery(query, one.url, clock=self._clock)) as adapter:
            inspection = adapter.inspect(keys[:KEYS_MAX])
            for told in (*inspection.problems, *inspection.notes):
                self.notes.append(OF_TOPIC(topic=query.topic, told=told))
            ask = _refusing(inspection.problems[0]) if inspection.problems else adapter.ask
            return judge_halves(query, halves, ask=ask, others=others, now_ms=self._clock.now_ms())


class OpenQueries:
    """The port CommitQueries in SQL. Shared by threads. One thread at a time asks a query."""

    def __init__(
        self,
        configured: Mapping[str, ConfiguredQuery],
        *,
        clock: Clock,
        why_not: Callable[[str], Fact | None] = _not_accepted,
    ) -> None:
        """`configured`: topic -> query. `why_not`: returns why the query of a topic is not accepted.

        Connects only when a query is asked. Raises InvalidValue for a malformed URL, and MissingDependency for a
        missing driver.
        """
        from reconciler.evidence.commit_query import SqlCommitQuery  # loads SQLAlchemy

        self.why_not_accepted = why_not
        self._clock = clock
        self._opened = {
            topic: (one.query, SqlCommitQuery(one.query, one.url, clock=clock), Lock())
            for topic, one in configured.items()
        }

    def look_up(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, BusinessAnswer]:
        """Returns unique key -> the answer for the business key of its copy. One statement asks for KEYS_MAX keys."""
        query, adapter, lock = self._opened[topic]
        values = {unique_key: query.key_type.value_of(_key_of(query, copy)) for unique_key, copy in copies.items()}
        keys = list(dict.fromkeys(value for value in values.values() if value is not None))
        rows: dict[KeyValue, BusinessAnswer | None] = {}
        with lock:
            for start in range(0, len(keys), KEYS_MAX):
                rows |= adapter.ask(keys[start : start + KEYS_MAX])
        now_ms = self._clock.now_ms()
        found: dict[str, BusinessAnswer] = {}
        for unique_key, copy in copies.items():
            value = values[unique_key]
            answer = without_key(query) if value is None else rows[value]
            found[unique_key] = answer or without_row(query, stored_ms=_stored_ms(copy), now_ms=now_ms)
        return found

    def key_digests(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, bytes]:
        """Returns unique key -> digest of the business key, in the type that the database compares."""
        query = self._opened[topic][0]
        values = {unique_key: query.key_type.value_of(_key_of(query, copy)) for unique_key, copy in copies.items()}
        return {unique_key: digest_of_key(value) for unique_key, value in values.items() if value is not None}

    def key_words(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, str]:
        """Returns unique key -> the business key as a word of the property KEYS. Keys with a blank are left out."""
        query = self._opened[topic][0]
        texts = {unique_key: _key_of(query, copy) for unique_key, copy in copies.items()}
        return {unique_key: text for unique_key, text in texts.items() if text.split() == [text]}

    def close(self) -> None:
        """Closes all connections."""
        for _, adapter, _ in self._opened.values():
            adapter.close()


def _key_of(query: CommitQuery, copy: StoredMessage) -> str:
    return key_in(query.key, unique_key=copy.unique_key, properties=copy.properties, body=lambda: copy.body)


def _stored_ms(copy: StoredMessage) -> int:
    """Returns the time at which the half first came.

    The stored copy of a half that was put back or parked is later than its transaction, so its time of birth counts.
    """
    is_first = copy.check_times is None and copy.topic in HALF_TOPICS
    return copy.store_timestamp_ms if is_first else copy.born_timestamp_ms


def examine_query(one: ConfiguredQuery, *, clock: Clock) -> tuple[QueryFinding, ...]:
    """Returns findings about query, login and database that need no half.

    Raises MissingDependency for a driver that is not installed.
    """
    from reconciler.evidence.commit_query import SqlCommitQuery  # loads SQLAlchemy

    with closing(SqlCommitQuery(one.query, one.url, clock=clock)) as adapter:
        # A plan needs keys, and without a half there is no key.
        return tuple(told for told in adapter.examine(()) if told.aspect is not QueryAspect.PLAN)


def dry_run(one: ConfiguredQuery, ended: EndedHalves, *, clock: Clock) -> tuple[QueryFinding, ...]:
    """Tries a query on halves whose end is known. Returns the findings; the first finding is the conclusion.

    A query is not asked if its database, login or plan has a problem. Raises MissingDependency for a driver that is not
    installed.
    """
    from reconciler.evidence.commit_query import SqlCommitQuery  # loads SQLAlchemy

    query = one.query
    halves = (*ended.committed, *ended.rolled_back)
    values = (query.key_type.value_of(half.business_key) for half in halves)
    keys = list(dict.fromkeys(value for value in values if value is not None))
    with closing(SqlCommitQuery(query, one.url, clock=clock)) as adapter:
        found = [*adapter.examine(keys[:KEYS_MAX])]
        unfit = [told.found for told in found if told.fitness is Fitness.UNFIT]
        ask = _refusing(unfit[0]) if unfit else adapter.ask
        answers: dict[KeyValue, BusinessAnswer | None] = {}
        for start in range(0, len(keys), KEYS_MAX):
            answers |= ask(keys[start : start + KEYS_MAX])
        committed, rolled_back = (tried_halves(query, some, answers) for some in (ended.committed, ended.rolled_back))
        if not unfit:
            found.append(adapter.collation([key for key in keys if is_committed(answers[key])]))
    found += [shared_keys([*committed, *rolled_back]), try_on_committed(committed), try_on_rolled_back(rolled_back)]
    return (trust(found), *found)


def _refusing(why: Fact) -> Callable[[Sequence[KeyValue]], dict[KeyValue, BusinessAnswer | None]]:
    answer = unknown(UNFIT(why=why))
    return lambda keys: dict.fromkeys(keys, answer)
