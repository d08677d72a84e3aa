"""Writes docs/reference and the dashboard from the code: `make docs`. A test fails when a page is not what this script writes."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from deploy import written
from deploy.grafana import dashboard
from reconciler.audit.judged_tables.schema import COLUMNS as AUDIT_TABLES
from reconciler.audit.result.classes import RULES
from reconciler.channels import webhook
from reconciler.contract import announcement, keyspace, tables, verdicts
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement, sign
from reconciler.contract.unique_key import UNIQUE_KEY_SHAPE, shard_of
from reconciler.instrumentation.metrics import catalogue
from reconciler.settings.schema import Settings
from reconciler.settings.secret_settings import SECRET_NAMES
from reconciler.sql import schema
from reconciler.words import said

FOLDER = Path(__file__).parent / "reference"
DASHBOARD = FOLDER.parents[1] / "deploy/grafana/reconciler.json"
_PYTHON_API = runpy.run_path(str(FOLDER.parent / "python_api.py"))
PYTHON_API, cell = _PYTHON_API["PAGES"], _PYTHON_API["cell"]
NOTE = "<!-- Written by docs/generate.py; change the code and run `make docs`. -->\n"


def settings_page() -> str:
    """Every setting with type, default and meaning."""
    lines = [
        "# Settings",
        "",
        NOTE,
        "The file is the one of `--config`, or else of `RECONCILER_CONFIG`, or else `reconciler.toml` in",
        "`$CONFIGURATION_DIRECTORY` or `/etc/reconciler` ([where each installation has it](../how-to/find-a-setting.md)).",
        "After a change run `reconciler config check`, then [restart](../how-to/start-and-stop.md) the processes that read",
        "the setting.",
        "",
        "Flag beats environment beats file beats default. `RECONCILER_REDIS__URL` overrides `redis.url`;",
        "`RECONCILER_REDIS__URL_FILE` names a file that holds the value. Unknown settings and variables are errors,",
        "all reported at once with exit code 2. [config/reconciler.toml](../../config/reconciler.toml) tells what breaks",
        "when a value is too small or too large. A secret X may be given as `X_file` or `X_command` instead",
        "([secrets](security.md#secrets)): " + ", ".join(f"`{name}`" for name in SECRET_NAMES) + ".",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {default} | {cell(doc)} |" for name, default, doc in _settings(Settings, "")]
    return "\n".join(lines) + "\n"


def _settings(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, info in model.model_fields.items():
        annotation: Any = info.annotation
        is_list = getattr(annotation, "__origin__", None) is list
        inner = annotation.__args__[0] if is_list else annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _settings(inner, f"{prefix}{name}{'[]' if is_list else ''}.")
            continue
        if info.default is PydanticUndefined and info.default_factory is None:
            default = "required"
        else:
            value = info.get_default(call_default_factory=True)
            default = "unset" if value is None else f"`{json.dumps(value, default=str)}`"
        yield prefix + name, default, info.description or ""


def verdicts_page() -> str:
    """The closed list."""
    groups = {
        "loss": verdicts.LOSSES,
        "settled": verdicts.SETTLING,
        "quarantined": verdicts.QUARANTINING,
        "waits": verdicts.WAITING,
    }
    lines = ["# Verdicts", "", NOTE, "| verdict | what follows | meaning |", "|---|---|---|"]
    for verdict, meaning in verdicts.MEANINGS.items():
        follows = next(name for name, members in groups.items() if verdict in members)
        lines.append(f"| `{verdict}` | {follows} | {said(meaning())} |")
    return "\n".join(lines) + "\n"


def tables_page() -> str:
    """All tables."""
    lines = ["# Tables", "", NOTE, (inspect.getdoc(tables) or "").split("\n\n", 1)[1], ""]
    for title, group in (
        ("Outbox", tables.OUTBOX_TABLES),
        ("Inbox", tables.INBOX_TABLES),
        ("Ledger", tables.LEDGER_TABLES),
    ):
        lines += [f"## {title}", "", f"`reconciler db upgrade {title.lower()}`, or the DDL by"]
        lines += [f"`reconciler db sql {title.lower()} --dialect sqlite|postgresql|mysql`.", ""]
        for table in group:
            lines += [f"### {table.name}", "", table.doc, "", "| column | kind | meaning |", "|---|---|---|"]
            for column in table.columns:
                kind = column.kind + (", nullable" if column.nullable else "")
                kind += ", primary key" if column.name in table.primary_key else ""
                lines.append(f"| `{column.name}` | {kind} | {column.doc} |")
            lines += [""]
            lines += [f"Index on ({', '.join(names)})." for names in table.indexes]
            lines += [
                f"Index on ({', '.join(names)}), on PostgreSQL and SQLite only of rows that have the last one."
                for names in (*table.sparse_indexes, *([table.undecided_index] if table.undecided_index else []))
            ]
            for index in table.page_indexes:
                only = (
                    "" if index.only_with is None else f", on PostgreSQL and SQLite, of rows with a {index.only_with}"
                )
                lines.append(f"Index of pages on ({', '.join(table.columns_of(index))}){only}.")
            lines += [f"Unique: ({', '.join(names)})." for names in table.unique]
            lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def keys_page() -> str:
    """The Redis key space."""
    doc = inspect.getdoc(keyspace) or ""
    return "\n".join(["# Redis keys", "", NOTE, doc.split("\n\n", 1)[1]]) + "\n"


def announcement_page() -> str:
    """The wire form, with a worked example."""
    key = "7F00000100002A9F0000000000000090"
    example = Announcement(
        environment="production",
        topic="ORDERS",
        producer_group="order-service",
        keys=(AnnouncedKey(unique_key=key, tag="paid", committed_at_ms=1_763_716_000_000),),
    )
    body = encode_announcement(example)
    lines = [
        "# Announcement format",
        "",
        NOTE,
        (inspect.getdoc(announcement) or "").split("\n\n", 1)[1],
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        "| `v` | integer | 1; any other version is quarantined |",
        "| `env` | text, 1-255 | environment; another one is quarantined |",
        "| `topic` | text, 1-255 | business topic, also the message's tag |",
        "| `group` | text, 1-255 | producer group |",
        f"| `keys` | list, 1-{announcement.KEYS_MAX} | keys of one shard |",
        f"| `keys[].key` | text | unique key: {UNIQUE_KEY_SHAPE}; case counts |",
        "| `keys[].tag` | text or null | tag of the business message |",
        "| `keys[].committed_at_ms` | integer | created_at_ms of the outbox row, milliseconds UTC |",
        "",
        f"A body has at most {announcement.BODY_BYTES_MAX} bytes. Unknown fields are ignored.",
        "",
        "## Worked example",
        "",
        f"The key `{key}` has CRC-32 `{shard_of(key, 1 << 32)}`; with 16 queues it belongs to shard and queue",
        f"`{shard_of(key, 16)}`. The message goes to topic `RECONCILER_UNIQUE_KEY`, that queue, tag `ORDERS`, with this body:",
        "",
        "```json",
        body.decode(),
        "```",
        "",
        "With the secret `secret` its property `RECONCILER_SIGNATURE` is",
        f"`{sign(body, b'secret')}`.",
    ]
    return "\n".join(lines) + "\n"


def exit_codes_page() -> str:
    """The contract of the commands."""
    rows = {
        "0": "done and clean; `once` and `demo`: all that was found is repaired and verified; a clean SIGTERM",
        "1": "differences, violations or failed checks: `status` that needs a person, `doctor` with a failed check, a "
        "`demo` whose counts do not hold",
        "2": "no answer: usage, configuration (all problems at once), a missing extra, evidence missing",
        "3": "a dependency is away, or `status`: commits are not accounted for ([what to "
        "do](../runbooks/AccountedUntilStale.md)), or [something else has stopped](operations.md#reconciler-status); `scan`: the halves of a broker could not be read, or a commit query was not asked; where 1 holds, too, both end with 3 (`run`, `sweep`, `announcements` and `replay` wait and try again instead)",
        "4": "partly done: some repairs failed, were held or are not due yet, a key of `repair` waits for a person, or `repair --dry-run` found something to do; `jobs show`: keys did not end well; `uninstall` left out outboxes and inboxes that are still needed",
        "5": "what a person acts on has changed since it was looked at: nothing of it was done; the output says what is there now",
        "70": "a bug, with its traceback",
        "130": "SIGINT, a second SIGTERM, or a SIGTERM whose turn in hand took over 30 s",
    }
    lines = ["# Exit codes", "", NOTE, "The same for every command.", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in rows.items()]
    return "\n".join(lines) + "\n"


def audit_classes_page() -> str:
    """The audit's ordered list."""
    lines = [
        "# What the audit says about a key",
        "",
        NOTE,
        "The first rule that matches decides, for each subscription; [how the audit judges](../explanation/how-the-audit-judges.md)",
        "says what the words mean.",
        "",
        "A **violation** makes the audit's verdict `violations`. Keys of violations and of *listed* classes are findings, one by",
        "one: in the report, `findings.json` and `audit_findings`, so the number of findings is no number of violations.",
        "*Counted* classes are there as numbers only; `audit_keys` has their keys.",
        "",
    ]
    lines += ["| class | rule | meaning | for example |", "|---|---|---|---|"]
    for rule in RULES:
        kind = "**violation**" if rule.violation else "listed" if rule.listed else "counted"
        lines.append(f"| {rule.number} `{rule.name}` ({kind}) | {rule.rule} | {rule.meaning} | {rule.example} |")
    return "\n".join(lines) + "\n"


#: What a reader of the tables must know before he counts.
_ROWS_OF_AN_AUDIT = (
    "## Rows of a window without an answer",
    "",
    "If `verdict` of `audit_runs` is `no answer`, its rows are not final: leave them out, as the views of [how to ask",
    "them](../how-to/audit-tables.md#read-them) do. With the reason `window` or `gap` the keys were judged by what was there,",
    "and LOST may be late data. With another reason nothing was judged, and only `audit_runs` has rows.",
    "",
    "## Keys, files and size",
    "",
    "- A row of `audit_keys` is one key of one subscription: `environment`, `window_start`, `window_end`, `topic`,",
    "  `consumer_group`, `key` name it. A message of three groups has three rows, and counts thrice in `keys` of `audit_counts`:",
    "  ask for one group, or count outcomes. Windows that adjoin share a key only after a [very late",
    "  commit](../explanation/how-the-audit-judges.md#late-commits); windows that overlap share keys.",
    "- `audit_counts` has a row for each subscription, hour and class, `audit_runs` one for each subscription and window.",
    "- Each table is a flat folder of Parquet files, without partitions. A window has one file in `audit_runs`, and in each",
    "  other table at least one for each subscription. Names of files are no interface.",
    "- An audit removes no other window. To keep less, delete rows of [tables of a",
    "  catalogue](../how-to/audit-on-a-platform.md#into-iceberg-or-delta-tables), or begin a new folder.",
    "- A rule that was not checked, for lack of a ledger or a history, leaves no trace in these tables: `not_checked` of",
    "  `result.json` and the report list it. `repaired` false and no REPAIR_DIFFERS then mean: not known.",
    "",
    "## Columns",
    "",
)


def audit_tables_page() -> str:
    """Columns of the audit's tables for SQL."""
    kinds = {"string": "text", "int64": "64-bit integer", "int32": "32-bit integer", "bool": "boolean"}
    lines = [
        "# Tables of an audit",
        "",
        NOTE,
        "`reconciler audit --tables DIR` writes four tables of Parquet files ([how to ask them](../how-to/audit-tables.md)).",
        "A row of `audit_keys`, `audit_findings` and `audit_counts` is valid if `audit_runs` has a row with its `run`, `topic`",
        "and `consumer_group`. An audit replaces the rows of its environment, window and subscriptions; its rows of",
        "`audit_runs` come last, in one step.",
        "",
        *_ROWS_OF_AN_AUDIT,
        "Columns are only added, at the end, and may be NULL in rows of earlier releases. No column changes its type or its",
        "meaning. So name the columns that you read, and let your reader take files with fewer columns (DuckDB:",
        "`union_by_name`, Spark: `mergeSchema`). `schema_version` of `audit_runs` grows with each column.",
        "",
        "A timestamp is an instant (UTC, microseconds), NULL also for a time beyond the years 1 to 9999. Folders whose names",
        "begin with `_` are no tables.",
    ]
    for table, columns in AUDIT_TABLES.items():
        lines += ["", f"## {table}", "", "| column | type | meaning |", "|---|---|---|"]
        for column in columns:
            kind = kinds.get(str(column.type), "timestamp") + (", nullable" if column.nullable else "")
            meaning = re.sub(r"\((\S+?\.md)\)", _page_link, column.meaning)
            lines.append(f"| `{column.name}` | {kind} | {meaning} |")
    return "\n".join(lines) + "\n"


def _page_link(found: re.Match[str]) -> str:
    page = found[1]
    return f"([{page.rsplit('/', 1)[-1].removesuffix('.md')}]({'../' if '/' in page else ''}{page}))"


def metrics_page() -> str:
    """Every metric of run, sweep and replay."""
    lines = [
        "# Metrics",
        "",
        NOTE,
        "`reconciler run`, `sweep` and `replay` serve these metrics at `/metrics` of the address in `metrics.listen`. The",
        "same address has `/livez` (the process answers) and `/readyz` (the result of each dependency; 503 and Retry-After",
        "while one does not answer). The [extra](../how-to/install.md#extras) `metrics` is needed. Two",
        "processes on one machine need two ports: set `RECONCILER_METRICS__LISTEN` for each.",
        "",
        "A value that is not known is absent, never 0. `reconciler_state_up` and `reconciler_dependency_up` say whether what it",
        "is read from answered. What is read from the ledger is the same in every process that shows it: take `max by (topic,",
        "consumer_group)`, and no sum. Counters begin at 0 when their process starts.",
        "",
    ]
    for source in catalogue.NumberSource:
        lines += [f"## {source.value[0].upper()}{source.value[1:]}", ""]
        lines += ["| metric | kind | labels | by | meaning |", "|---|---|---|---|---|"]
        for metric in catalogue.METRICS:
            if metric.source is not source:
                continue
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            kind = metric.kind.value
            if metric.buckets:
                kind += " up to " + ", ".join(f"{bound:g}" for bound in metric.buckets)
            lines.append(f"| `{metric.name}` | {kind} | {labels} | {', '.join(metric.shown_by)} | {metric.meaning} |")
        lines += [""]
    lines += ["## Labels", "", "| label | values |", "|---|---|"]
    lines += [f"| `{label}` | {values} |" for label, values in catalogue.LABELS.items()]
    return "\n".join(lines) + "\n"


def test_vectors_page() -> str:
    """What other languages check themselves against."""
    vectors = runpy.run_path(str(FOLDER.parent / "test_vectors.py"))
    lines = ["# Test vectors", "", NOTE, *str(vectors["__doc__"]).strip().split("\n\n", 1), ""]
    lines += ["[For teams in other languages](../how-to/other-languages.md) says what each is for;"]
    lines += ["[OtherLanguage.java](../examples/OtherLanguage.java) computes all of them.", "", "```text"]
    return "\n".join([*lines, *vectors["lines"](), "```"]) + "\n"


def written_beside(title: str, file: str, *page: str) -> str:
    """A page whose lines are those of a script beside this one; its first words, too, unless it writes several pages."""
    script = runpy.run_path(str(FOLDER.parent / file))
    first = () if page else (str(script["__doc__"]).strip(), "")
    return "\n".join([f"# {title}", "", NOTE, *first, *script["lines"](*page)]).rstrip() + "\n"


def webhook_page() -> str:
    """What a receiver of webhooks gets."""
    lines = ["# Webhook", "", NOTE, *(inspect.getdoc(webhook) or "").splitlines()]
    lines += ["", "An example, signed with the secret `MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`:", "", "```text"]
    lines += webhook.example_lines()
    return "\n".join([*lines, "```"]) + "\n"


PAGES = {
    "commands.md": partial(written_beside, "Commands", "commands.py"),
    **{name: partial(written_beside, page.title, "python_api.py", name) for name, page in PYTHON_API.items()},
    "formats.md": partial(written_beside, "Formats", "formats.py"),
    "alerts.md": partial(written_beside, "Alerts", "alerts.py"),
    "shown-by.md": partial(written_beside, "Which tests show what", "shown_by.py"),
    "http-api.md": partial(written_beside, "HTTP API", "http_api.py"),
    "webhook.md": webhook_page,
    "metrics.md": metrics_page,
    "test-vectors.md": test_vectors_page,
    "dependencies.md": partial(written_beside, "Dependencies and their licences", "dependencies.py"),
    "audit-classes.md": audit_classes_page,
    "audit-tables.md": audit_tables_page,
    "settings.md": settings_page,
    "verdicts.md": verdicts_page,
    "tables.md": tables_page,
    "redis-keys.md": keys_page,
    "announcement.md": announcement_page,
    "exit-codes.md": exit_codes_page,
    "rights.md": partial(written_beside, "Least rights", "rights.py"),
}


_SHOWN = re.compile(r"<!-- (docs/examples/\S+) (\S+) -->\n.*?<!-- /\1 \2 -->", re.DOTALL)


def readme(text: str) -> str:
    """README.md with functions of docs/examples as they are."""
    return _SHOWN.sub(lambda found: _shown(found[1], found[2]), text)


def _shown(example: str, name: str) -> str:
    """A function within others is named by all of them, from the outermost on."""
    source = (FOLDER.parents[1] / example).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        node = next(one for one in ast.iter_child_nodes(node) if isinstance(one, ast.FunctionDef) and one.name == part)
    assert isinstance(node, ast.FunctionDef)
    first = min(one.lineno for one in (node, *node.decorator_list))
    code = textwrap.dedent("\n".join(source.splitlines()[first - 1 : node.end_lineno]))
    return f"<!-- {example} {name} -->\n```python\n{code}\n```\n<!-- /{example} {name} -->"


#: A whole file on a how-to page, and what the page's test does with it.
_WHOLE = re.compile(
    r"<!-- (docs/examples/\S+) -->\n(<!-- not run: .+ -->)\n```(\w+)\n.*?^```\n<!-- /\1 -->", re.DOTALL | re.MULTILINE
)


def with_files(text: str) -> str:
    """A how-to page with files of docs/examples as they are."""
    return _WHOLE.sub(lambda found: _whole(found[1], found[2], found[3]), text)


def _whole(example: str, mark: str, language: str) -> str:
    text = (FOLDER.parents[1] / example).read_text(encoding="utf-8").strip("\n")
    return f"<!-- {example} -->\n{mark}\n```{language}\n{text}\n```\n<!-- /{example} -->"


def tables_of_plug_ins(dialect: str) -> str:
    """What `reconciler db sql outbox` and `inbox` print for the transaction of a service's migration."""
    lines = "\n".join(schema.ddl(tree, dialect, in_transaction=True) for tree in ("outbox", "inbox"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


#: Tables for the migrations of the examples, and their dialect.
TABLES_OF_EXAMPLES = {
    "celery_shop/migrations/checkback.sql": "postgresql",
    "django_shop/shop/migrations/checkback.sql": "postgresql",
    "fastapi_async/migrations/checkback.sql": "postgresql",
    "fastapi_threads/migrations/checkback.sql": "postgresql",
    "flask_shop/migrations/checkback.sql": "postgresql",
}

RUNBOOKS = runpy.run_path(str(FOLDER.parent / "runbooks.py"))


def main() -> int:
    """Writes every page."""
    for page, language in RUNBOOKS["pages"]():
        page.write_text(RUNBOOKS["written"](page.read_text(encoding="utf-8"), language), encoding="utf-8")
    for readme_page in (FOLDER.parents[1] / name for name in ("README.md", "README.zh-CN.md")):
        readme_page.write_text(readme(readme_page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, dialect in TABLES_OF_EXAMPLES.items():
        (FOLDER.parent / "examples" / name).write_text(tables_of_plug_ins(dialect), encoding="utf-8")
    for page in (FOLDER.parent / "how-to").glob("*.md"):
        page.write_text(with_files(page.read_text(encoding="utf-8")), encoding="utf-8")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    DASHBOARD.write_text(dashboard.text(), encoding="utf-8")
    written.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
