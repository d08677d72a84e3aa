"""Reads the TOML files of queries on the business's own tables: commit queries and effect queries."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from reconciler.contract.named_files import require_file
from reconciler.contract.secret import Secret, secret_text
from reconciler.contract.secret_sources import UnreadableSecret, read_secret_file
from reconciler.contract.urls import HIDDEN, read_database_url
from reconciler.errors import InvalidValue
from reconciler.halves.business_key import KEY_SOURCE
from reconciler.policy.commit_query import KEYS_MAX, ROWS_A_KEY_MAX, KeyType, State

#: Names that the section of every query may have.
_NAMES = frozenset({"topic", "database_url", "database_url_file", "sql", "key", "key_type"})
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
#: subquery of LATERAL does not match, because most of these belong to one row.
_SET_OF_ROWS = re.compile(
    rf"\b(?:AS(?:{_GAP}+(?:NOT{_GAP}+)?MATERIALIZED)?|FROM|(?:STRAIGHT_)?JOIN){_GAP}*\(?{_GAP}*\Z", re.I | re.S
)
_LATERAL = re.compile(rf"\bLATERAL{_GAP}*\(?{_GAP}*\Z", re.I | re.S)
#: Matches a subquery of names and commas alone, without a condition. It has the same rows whatever row it belongs to if
#: all its names are of its own tables.
_SAME_ROWS = re.compile(
    r"""\s*SELECT\s(?!.*\b(?:WHERE|ON|USING|HAVING|SELECT)\b)(?P<of_rows>[\w\s,.*]+)
    \bFROM\s(?P<tables>[\w\s,.]+?)\b(?P<order>(?:ORDER|GROUP)\s[\w\s,.]+)?(?:LIMIT|FETCH|OFFSET)\b[\w\s,]*""",
    re.I | re.S | re.X,
)
#: Matches the text before the bracket of a subquery that gives values to compare with.
_SET_OF_VALUES = re.compile(rf"\b(?:IN|(?:ANY|SOME)(?:{_GAP}*\({_GAP}*ARRAY)?){_GAP}*\(?{_GAP}*\Z", re.I | re.S)


def read_sections(path: Path, listed_as: str, *, setting: str) -> list[tuple[str, Any]]:
    """Returns the sections of a file, each with its place. Raises InvalidValue."""
    try:
        require_file(path)
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidValue(setting, str(path), f"cannot be read as TOML: {error}") from None
    listed = values.get(listed_as)
    if not isinstance(listed, list) or not listed or values.keys() != {listed_as}:
        raise InvalidValue(setting, str(path), f"needs sections [[{listed_as}]], and nothing else")
    return [(f"{listed_as}[{number}]", one) for number, one in enumerate(listed)]


class QuerySection:
    """Reader of one section. Each method raises InvalidValue for a value that does not fit."""

    def __init__(self, place: str, values: Any, *, own_names: Iterable[str]) -> None:
        """`own_names`: the names that only this kind of query has."""
        names = _NAMES.union(own_names)
        if not isinstance(values, dict) or values.keys() - names:
            raise InvalidValue(place, "", f"takes {', '.join(sorted(names))}")
        self.place = place
        self.values: Mapping[str, Any] = values

    def text(self, name: str, otherwise: str | None = None) -> str:
        """Returns a text that is not blank."""
        value = self.values.get(name, otherwise)
        if not isinstance(value, str) or not value.strip():
            raise InvalidValue(f"{self.place}.{name}", value, "expected a text")
        return value.strip()

    def key(self) -> tuple[str, KeyType]:
        """Returns the place of the key in a message, and the type of the key."""
        key, key_type = self.text("key"), self.text("key_type", KeyType.TEXT.value)
        if KEY_SOURCE.fullmatch(key) is None:
            raise InvalidValue(f"{self.place}.key", key, "expected UNIQ_KEY, KEYS, property:NAME or body:NAME.NAME")
        if key_type not in [one.value for one in KeyType]:
            raise InvalidValue(f"{self.place}.key_type", key_type, f"expected one of {', '.join(KeyType)}")
        return key, KeyType(key_type)

    def states(self, wanted: str, other: str) -> tuple[tuple[State, ...], tuple[State, ...]]:
        """Returns the states of two lists that have none in common. The first list has a state at least."""
        found, others = (_states(f"{self.place}.{name}", self.values.get(name, [])) for name in (wanted, other))
        if not found or any(type(one) is type(two) and one == two for one in found for two in others):
            raise InvalidValue(f"{self.place}.{wanted}", found, f"needs a state at least, and none that is in {other}")
        return found, others

    def sql_and_url(self) -> tuple[str, Secret]:
        """Returns the statement, and the URL of its database."""
        url = _url(self.place, self.values)
        return _sql(f"{self.place}.sql", self.text("sql"), is_mysql=_is_of_mysql(url)), url


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
    ends: dict[int, int] = {}
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
                ends |= dict.fromkeys(brackets[-1:], found.start())
                brackets, clauses = brackets[:-1], clauses[:-1] or [""]
            case ":keys":
                of_keys = brackets
            case _ if brackets or int(found["rows"] or found["of_rows"] or 0) < _ROWS_MAX:
                limits.append(brackets)
    listed |= {at for at, end in ends.items() if _has_same_rows(sql[:at], sql[at + 1 : end], is_mysql=is_mysql)}
    return any(of_keys[: len(one)] == one or _is_of_a_set(sql, one, listed) for one in limits)


def _has_same_rows(before: str, text: str, *, is_mysql: bool) -> bool:
    """Returns True for a subquery of LATERAL without a condition that names no other table.

    A name without a table counts as a column of the subquery's own tables.
    """
    if not _LATERAL.search(before):
        return False
    quoted = re.compile(_QUOTED[is_mysql] + "|`[^`]*`", re.S | re.X)
    found = _SAME_ROWS.fullmatch(quoted.sub(lambda one: " " if one[0].startswith(("--", "/*", "#")) else "?", text))
    if found is None:
        return False
    own = {word.lower() for word in re.findall(r"\w+", found["tables"])}
    named = re.findall(r"(\w+)\s*\.", f"{found['of_rows']} {found['order'] or ''}")
    return own.issuperset(one.lower() for one in named)


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
