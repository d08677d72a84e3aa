"""evidence.json: the request, the sources, and the files that answer the request.

The parser trusts nothing and guesses nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.plan import RowGroup
from reconciler.audit.evidence.tables import EVIDENCE_NAMES
from reconciler.audit.result.not_judged import KEPT_MAX, OMITTED, RowsOf, kept
from reconciler.audit.result.values import AuditedSubscription, InputVersion, Window
from reconciler.contract.evidence_layout import EVIDENCE_VERSION, LEDGER_ROUND_EVIDENCE
from reconciler.contract.history_row import PREFIXES

EVIDENCE_JSON = "evidence.json"
_SKEW_BOUND_MS = 10_000
#: Upper bound of integers in columns of tables. The bound itself is not allowed.
_INTEGER_MAX = 1 << 63
#: Longest duration that can be added to a time, some thirty years.
_SECONDS_MAX = 1e9

#: Topic, group, table and column. The column is one of LATER_COLUMNS that a source of the subscription's evidence
#: lacked.
LackingColumn = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """One Parquet file below the evidence folder."""

    path: str
    table: str
    #: Prefix of the file's keys. None: the table has no key, or the file has keys of all prefixes.
    prefix: int | None
    rows: int
    sha256: str
    #: Row groups of a file with keys of all prefixes. Empty for other files.
    groups: tuple[RowGroup, ...] = ()
    footer_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDocument:
    """Parsed evidence.json."""

    environment: str
    window: Window
    collected_at_ms: int
    skew_bound_ms: int
    shards: int
    #: Audited subscriptions, sorted by topic and group.
    subscriptions: tuple[AuditedSubscription, ...]
    outboxes: frozenset[str]
    ledger: bool
    #: Place of the history: path relative to the evidence folder, absolute path, or URL. None: no history.
    history: str | None
    #: (table, topic, group) -> number of rows of the window that the audit did not ask for. None: such rows were not
    #: counted.
    not_asked: Mapping[RowsOf, int] | None
    #: (topic, group) -> number of keys whose business effects were left out, because nothing places the keys in the
    #: window.
    undated_effects: Mapping[tuple[str, str], int]
    #: Columns that were read as NULL because a source lacked the columns. None: the columns are not known.
    lacking_columns: frozenset[LackingColumn] | None
    #: Versions of a platform's tables that were copied.
    input_versions: tuple[InputVersion, ...]
    #: Files of the evidence, sorted by path.
    files: tuple[EvidenceFile, ...]
    #: SHA-256 of the document's bytes.
    sha256: str


def parse_evidence(data: bytes) -> EvidenceDocument:
    """Parses evidence.json. Raises AuditError("inputs") that names the field."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AuditError("inputs", f"{EVIDENCE_JSON}: no JSON ({error}); collect again") from error
    if not isinstance(document, dict):
        raise _wrong("the document", document, "an object")
    version = _typed(document, "version", int)
    if not 1 <= version <= EVIDENCE_VERSION:
        raise AuditError(
            "inputs",
            f"{EVIDENCE_JSON}: version {version}, this audit knows up to {EVIDENCE_VERSION}; audit it with the version "
            "that collected it",
        )
    window = _window(_typed(document, "window", dict))
    asked = [_subscription(item, place) for place, item in enumerate(_typed(document, "subscriptions", list))]
    names = [(one.topic, one.group) for one in asked]
    if not names or len(set(names)) != len(names):
        raise _wrong("subscriptions", names, "at least one subscription, and none twice")
    files = [_file(path, item) for path, item in _typed(document, "files", dict).items()]
    shards = _typed(document, "shards", int)
    if shards < 1:
        raise _wrong("shards", shards, "at least 1")
    skew_bound_ms = _typed(document, "skew_bound_ms", int) if "skew_bound_ms" in document else _SKEW_BOUND_MS
    if skew_bound_ms < 0:
        raise _wrong("skew_bound_ms", skew_bound_ms, "at least 0")
    return EvidenceDocument(
        environment=_typed(document, "environment", str),
        window=window,
        collected_at_ms=_typed(document, "collected_at_ms", int),
        skew_bound_ms=skew_bound_ms,
        shards=shards,
        subscriptions=tuple(sorted(asked, key=lambda one: (one.topic, one.group))),
        outboxes=frozenset(_names(document, "outboxes")),
        ledger=_typed(document, "ledger", bool),
        history=None if document.get("history", "") is None else _typed(document, "history", str),
        not_asked=_not_asked(document),
        undated_effects=_undated_effects(document),
        lacking_columns=_lacking_columns(document),
        input_versions=_input_versions(document),
        files=tuple(sorted(files, key=lambda file: file.path)),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _window(item: Mapping[str, Any]) -> Window:
    window = Window(start_ms=_typed(item, "start_ms", int, "window."), end_ms=_typed(item, "end_ms", int, "window."))
    if window.start_ms >= window.end_ms:
        raise _wrong("window", dict(item), "start_ms before end_ms")
    return window


def _subscription(item: Any, place: int) -> AuditedSubscription:
    where = f"subscriptions[{place}]."
    if not isinstance(item, dict):
        raise _wrong(where[:-1], item, "an object")
    tags = item.get("tags")
    found = AuditedSubscription(
        topic=_typed(item, "topic", str, where),
        group=_typed(item, "group", str, where),
        tags=None if tags is None else tuple(sorted(set(_names(item, "tags", where)))),
        producer_groups=tuple(sorted(set(_names(item, "producer_groups", where)))),
        grace_period_seconds=_seconds(item, "grace_period_seconds", where),
        late_after_seconds=_seconds(item, "late_after_seconds", where),
        inbox=_typed(item, "inbox", bool, where),
        effects=_typed(item, "effects", bool, where),
        # The field is absent where services announce the messages, and in evidence of earlier releases.
        of_halves="of_halves" in item and _typed(item, "of_halves", bool, where),
    )
    if not found.producer_groups:
        raise _wrong(f"{where}producer_groups", [], "at least one group: without one nothing says what was committed")
    return found


def not_asked_document(counts: Mapping[RowsOf, int]) -> dict[str, Any]:
    """Makes the field `not_asked` of evidence.json, which `_not_asked` reads."""
    first = kept(counts, KEPT_MAX)
    omitted = first.pop(OMITTED, 0)
    listed = [{"table": t, "topic": topic, "group": group, "rows": n} for (t, topic, group), n in first.items()]
    return {"listed": listed, "omitted_rows": omitted}


def _not_asked(document: Mapping[str, Any]) -> Mapping[RowsOf, int] | None:
    if document.get("not_asked") is None:
        return None  # a release that does not count has collected the evidence
    item = _typed(document, "not_asked", dict)
    found: dict[RowsOf, int] = {}
    for place, one in enumerate(_typed(item, "listed", list, "not_asked.")):
        where = f"not_asked.listed[{place}]."
        if not isinstance(one, dict):
            raise _wrong(where[:-1], one, "an object")
        names = (_typed(one, "table", str, where), _typed(one, "topic", str, where), _typed(one, "group", str, where))
        found[names] = _count(one, "rows", where)
    if omitted := _count(item, "omitted_rows", "not_asked."):
        found[OMITTED] = omitted
    return found


def _undated_effects(document: Mapping[str, Any]) -> Mapping[tuple[str, str], int]:
    if document.get("undated_effects") is None:
        return {}  # a release that leaves out no keys has collected the evidence
    found: dict[tuple[str, str], int] = {}
    for place, one in enumerate(_typed(document, "undated_effects", list)):
        where = f"undated_effects[{place}]."
        if not isinstance(one, dict):
            raise _wrong(where[:-1], one, "an object")
        found[_typed(one, "topic", str, where), _typed(one, "group", str, where)] = _count(one, "keys", where)
    return found


def lacking_document(lacking: Collection[LackingColumn]) -> list[dict[str, str]]:
    """Makes the field `lacking_columns` of evidence.json, which `_lacking_columns` reads."""
    return [{"topic": topic, "group": group, "table": t, "column": name} for topic, group, t, name in sorted(lacking)]


def _lacking_columns(document: Mapping[str, Any]) -> frozenset[LackingColumn] | None:
    if document.get("lacking_columns") is None:
        return None  # the collector does not record such columns
    found: set[LackingColumn] = set()
    for place, one in enumerate(_typed(document, "lacking_columns", list)):
        where = f"lacking_columns[{place}]."
        if not isinstance(one, dict):
            raise _wrong(where[:-1], one, "an object")
        of, table = (_typed(one, name, str, where) for name in ("topic", "group")), _typed(one, "table", str, where)
        found.add((*of, table, _typed(one, "column", str, where)))
    return frozenset(found)


def _input_versions(document: Mapping[str, Any]) -> tuple[InputVersion, ...]:
    if document.get("input_versions") is None:
        return ()  # the command, or an older release, has collected
    found: list[InputVersion] = []
    for place, one in enumerate(_typed(document, "input_versions", list)):
        where = f"input_versions[{place}]."
        if not isinstance(one, dict):
            raise _wrong(where[:-1], one, "an object")
        told = {
            name: None if one.get(name) is None else _typed(one, name, str, where)
            for name in ("table", "format", "version")
        }
        found.append(InputVersion(input=_typed(one, "input", str, where), **told))
    return tuple(sorted(found, key=lambda one: one.input))


def _count(item: Mapping[str, Any], name: str, where: str) -> int:
    value: int = _typed(item, name, int, where)
    if value < 0:
        raise _wrong(where + name, value, "a number, 0 or more")
    return value


def _file(path: str, item: Any) -> EvidenceFile:
    parts = path.split("/")
    table = parts[0]
    prefix = None
    if not isinstance(item, dict) or ".." in parts or "" in parts or len(parts) < 2:
        raise _wrong(f"files[{path!r}]", item, "a relative path with rows and sha256")
    where = f"files[{path!r}]."
    rows = _typed(item, "rows", int, where)
    sha256 = _typed(item, "sha256", str, where)
    if table in EVIDENCE_NAMES and "row_groups" in item and len(parts) == 2:
        groups = tuple(_row_group(one, n, where) for n, one in enumerate(_typed(item, "row_groups", list, where)))
        if sum(group.rows for group in groups) != rows:
            raise _wrong(f"{where}row_groups", sum(group.rows for group in groups), f"{rows} rows together")
        footer = _typed(item, "footer_sha256", str, where)
        return EvidenceFile(
            path=path, table=table, prefix=None, rows=rows, sha256=sha256, groups=groups, footer_sha256=footer
        )
    if table in EVIDENCE_NAMES:
        name = parts[1].removeprefix("prefix=")
        if len(parts) != 3 or not parts[1].startswith("prefix=") or not name.isdecimal() or int(name) >= PREFIXES:
            expected = (
                f"{table}/prefix=NN/NAME.parquet with NN below {PREFIXES}, or {table}/NAME.parquet with row_groups"
            )
            raise _wrong(where[:-1], path, expected)
        prefix = int(name)
    elif table != LEDGER_ROUND_EVIDENCE.name:
        raise _wrong(where[:-1], table, f"one of {', '.join((*EVIDENCE_NAMES, LEDGER_ROUND_EVIDENCE.name))}")
    return EvidenceFile(path=path, table=table, prefix=prefix, rows=rows, sha256=sha256)


def _row_group(item: Any, number: int, where: str) -> RowGroup:
    where = f"{where}row_groups[{number}]."
    if not isinstance(item, dict):
        raise _wrong(where[:-1], item, "an object")
    prefix = _count(item, "prefix", where)
    if prefix >= PREFIXES:
        raise _wrong(f"{where}prefix", prefix, f"a number below {PREFIXES}")
    return RowGroup(
        number=number, prefix=prefix, rows=_count(item, "rows", where), sha256=_typed(item, "sha256", str, where)
    )


def _typed(item: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    value = item.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(
            where + name, value, {int: "a whole number", str: "text", dict: "an object"}.get(kind, kind.__name__)
        )
    if kind is int and not -_INTEGER_MAX <= item[name] < _INTEGER_MAX:
        raise _wrong(where + name, value, "a whole number of 64 bits")
    return value


def _names(item: Mapping[str, Any], name: str, where: str = "") -> list[str]:
    values = _typed(item, name, list, where)
    if not all(isinstance(value, str) for value in values):
        raise _wrong(where + name, values, "a list of texts")
    return list(values)


def _seconds(item: Mapping[str, Any], name: str, where: str) -> float:
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _SECONDS_MAX:
        raise _wrong(where + name, value, f"seconds, 0 to {_SECONDS_MAX:g}")
    return float(value)


def _wrong(field: str, value: object, expected: str) -> AuditError:
    return AuditError("inputs", f"{EVIDENCE_JSON}: {field} = {value!r:.200}: expected {expected}; collect again")
